//! Judges inbox and outbox in Postgres.

use super::Finding;
use crate::output::age;
use gristmill_postgres::look::MOST;
use gristmill_postgres::{Database, Probe, Standing};
use std::time::Duration;

/// A relay that is well leaves no row waiting for so long.
const LATE: Duration = Duration::from_secs(60);
/// An inbox in which rows grow so old is never pruned.
const NEVER_PRUNED: Duration = Duration::from_secs(400 * 24 * 3600);

pub(super) async fn findings(database: Database) -> Vec<Finding> {
    match Probe::new(database).look().await {
        Ok(standing) => judge(standing.as_ref()),
        Err(error) => vec![away(&error.to_string())],
    }
}

fn away(why: &str) -> Finding {
    let mend = "handlers with a transaction are tried again until it is there; see to the server, and to postgres.url or postgres.url_file";
    Finding::bad("postgres", why, mend)
}

fn judge(standing: Option<&Standing>) -> Vec<Finding> {
    let Some(standing) = standing else {
        return vec![Finding::bad(
            "postgres: tables",
            "the schema gristmill has no inbox and no outbox",
            "gristmill postgres migrate",
        )];
    };
    let mut findings = vec![outbox(standing)];
    findings.extend(refused(standing));
    findings.push(inbox(standing));
    findings
}

fn outbox(standing: &Standing) -> Finding {
    const CHECK: &str = "postgres: outbox";
    let relay = if standing.relay { "a relay is connected" } else { "no relay is connected" };
    let Some(oldest) = standing.oldest else {
        let found = format!("no row waits; {relay}");
        return match standing.relay {
            true => Finding::ok(CHECK, found),
            false => Finding::warn(
                CHECK,
                found,
                "before rows are written: postgres.relay = true for nodes, or `gristmill postgres relay`",
            ),
        };
    };
    let count = match standing.waiting {
        most if most >= MOST as u64 => format!("{MOST} rows or more wait"),
        1 => "1 row waits".to_owned(),
        waiting => format!("{waiting} rows wait"),
    };
    let found = format!("{count}, the oldest for {}; {relay}", age(oldest));
    match (standing.relay, oldest > LATE) {
        (_, false) => Finding::ok(CHECK, found),
        (true, true) => Finding::warn(
            CHECK,
            found,
            "see the relay's log: its queue may not exist, be full, or Redis be away; `select queue, count(*) from gristmill.outbox group by 1` tells which",
        ),
        (false, true) => Finding::bad(
            CHECK,
            found,
            "start one: postgres.relay = true for nodes, or `gristmill postgres relay`",
        ),
    }
}

fn refused(standing: &Standing) -> Option<Finding> {
    (standing.refused > 0).then(|| {
        Finding::warn(
            "postgres: refused",
            format!("of {} outbox rows no job can be made", standing.refused),
            "`select id, queue, refused from gristmill.outbox where refused is not null`; mend a row and set refused to null, or delete it",
        )
    })
}

fn inbox(standing: &Standing) -> Finding {
    const CHECK: &str = "postgres: inbox";
    let Some(oldest) = standing.inbox_oldest else { return Finding::ok(CHECK, "empty") };
    let count = standing.inbox.map_or_else(String::new, |rows| format!("about {rows} rows, "));
    let found = format!("{count}the oldest is {} old", age(oldest));
    match oldest > NEVER_PRUNED {
        false => Finding::ok(CHECK, found),
        true => Finding::warn(
            CHECK,
            found,
            "it grows for ever: postgres.prune_inbox_after_days, above the longest time after which a job may come again",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;

    fn seconds(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    fn said(standing: Standing) -> Vec<(Severity, String)> {
        judge(Some(&standing)).into_iter().map(|finding| (finding.severity, finding.found)).collect()
    }

    #[test]
    fn tables_that_are_missing_are_bad() {
        let findings = judge(None);
        assert_eq!((findings.len(), findings[0].severity), (1, Severity::Bad));
        assert_eq!(findings[0].mend.as_deref(), Some("gristmill postgres migrate"));
    }

    #[test]
    fn an_outbox_is_well_as_long_as_it_moves() {
        let well = Standing { relay: true, ..Standing::default() };
        assert_eq!(said(well)[0], (Severity::Ok, "no row waits; a relay is connected".into()));
        let moving = Standing { waiting: 1, oldest: seconds(2), ..well };
        assert_eq!(said(moving)[0].0, Severity::Ok);
        let late = Standing { waiting: MOST as u64, oldest: seconds(61), ..well };
        let (severity, found) = said(late)[0].clone();
        assert!(severity == Severity::Warn && found.starts_with("100000 rows or more wait"), "{found}");
        let nobody = Standing { relay: false, ..late };
        assert_eq!(said(nobody)[0].0, Severity::Bad);
        let idle = Standing::default();
        assert_eq!(said(idle)[0].0, Severity::Warn);
    }

    #[test]
    fn refused_rows_and_an_inbox_that_is_never_pruned_are_told() {
        let standing = Standing {
            relay: true,
            refused: 2,
            inbox: Some(7),
            inbox_oldest: seconds(401 * 86_400),
            ..Standing::default()
        };
        let said = said(standing);
        assert_eq!(said.len(), 3);
        assert_eq!(said[1], (Severity::Warn, "of 2 outbox rows no job can be made".into()));
        assert!(said[2].0 == Severity::Warn && said[2].1.starts_with("about 7 rows, "), "{said:?}");
    }
}
