//! `audit`: what people did, and how a command notes what it does.

use crate::exit::{End, Failure};
use crate::output::{self, Table, age, cut};
use crate::settings::Settings;
use bytes::Bytes;
use clap::Args;
use gristmill_broker::Connection;
use gristmill_broker::audit::{AuditEntry, AuditStep, Original};
use gristmill_job::{JobId, Place, UnixMillis};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

/// Steps read at once.
const SLICE: usize = 200;
/// Longest filter and reason in a table, in characters; `--json` has all of it.
const TEXT_SHOWN: usize = 60;

#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct AuditArguments {
    /// How many acts at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    limit: u64,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
An act is noted before it begins and when it ended. One that is shown as `begun` is under way, or was cut short: what \
it had done by then is not known. Kept are the newest 10000 entries, two per act, for 400 days. The log is a help, not \
a proof: whoever can write to Redis can change it.";

/// What a command is about to do.
pub(crate) struct Act(AuditEntry);

impl Act {
    pub(crate) fn new(what: &str, filter: String, reason: &str) -> Self {
        Self(AuditEntry {
            act: JobId::generate().to_string(),
            step: AuditStep::Begun,
            who: who(),
            what: what.to_owned(),
            filter,
            reason: reason.to_owned(),
            count: 0,
            original: None,
        })
    }

    /// What it is going to replace.
    pub(crate) fn instead_of(mut self, original: Option<&Bytes>) -> Self {
        self.0.original = original.map(Original::of);
        self
    }

    /// Who does it.
    pub(crate) fn who(&self) -> &str {
        &self.0.who
    }

    /// Before anything is done.
    pub(crate) async fn begin(&self, connection: &Connection) -> Result<(), Failure> {
        connection.note(&self.0).await.map(drop).map_err(|error| {
            Failure::Failed(format!("it cannot be noted in the audit log, so nothing was done: {error}"))
        })
    }

    /// After it. What was done stays done where this cannot be noted.
    pub(crate) async fn end(self, connection: &Connection, count: u64, whole: bool) {
        let step = if whole { AuditStep::Done } else { AuditStep::Failed };
        if let Err(error) = connection.note(&AuditEntry { step, count, ..self.0 }).await {
            output::complain(&format!(
                "what was done ({count}) could not be noted in the audit log: {error}"
            ));
        }
    }
}

/// `user@host`. The user is who runs this process, not what its environment says.
fn who() -> String {
    let uid = std::fs::metadata("/proc/self").ok().map(|own| own.uid());
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = uid.map(|uid| name_of(uid, &users).unwrap_or_else(|| format!("uid {uid}")));
    let user = user.or_else(|| std::env::var("USER").ok()).unwrap_or_else(|| "unknown".into());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    format!("{user}@{}", host.trim())
}

/// The name of a user in a table of `name:password:uid:…`.
fn name_of(uid: u32, users: &str) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// The command.
pub(crate) async fn command(settings: &Settings, arguments: &AuditArguments) -> Result<End, Failure> {
    let connection = crate::connect(settings).await?;
    let limit = usize::try_from(arguments.limit).unwrap_or(usize::MAX);
    let acts = acts(&connection, limit).await?;
    if arguments.json {
        let acts: Vec<Value> = acts.iter().map(as_json).collect();
        output::print(&json!({ "acts": acts }).to_string())?;
    } else if acts.is_empty() {
        output::complain("nothing was done by hand, or it was too long ago");
    } else {
        output::print(&table(&acts, UnixMillis::from_system(SystemTime::now())))?;
    }
    Ok(End::Done)
}

/// The newest acts, each by its last step.
async fn acts(connection: &Connection, limit: usize) -> Result<Vec<(Place, AuditEntry)>, Failure> {
    let (mut acts, mut known, mut before) = (Vec::new(), BTreeSet::new(), None);
    loop {
        let slice = connection.audit_log(before, SLICE).await?;
        let Some((last, _)) = slice.last() else { return Ok(acts) };
        before = Some(*last);
        for (place, step) in slice {
            // A step behind another of its act came before it.
            if !step.act.is_empty() && !known.insert(step.act.clone()) {
                continue;
            }
            acts.push((place, step));
            if acts.len() == limit {
                return Ok(acts);
            }
        }
    }
}

fn as_json((place, step): &(Place, AuditEntry)) -> Value {
    let original = step.original.as_ref().map(|original| {
        let cut = original.whole_bytes > original.start.len() as u64;
        json!({
            "bytes": original.whole_bytes,
            "hex": hex_of(&original.start),
            "note": if cut { "only its beginning; the whole is kept with the job until its verdict" } else { "whole" },
        })
    });
    json!({
        "original_envelope": original,
        "act": step.act,
        "at_ms": place.ms,
        "who": step.who,
        "what": step.what,
        "filter": step.filter,
        "reason": step.reason,
        "step": step.step.as_str(),
        "count": if step.step == AuditStep::Begun { Value::Null } else { step.count.into() },
    })
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn table(acts: &[(Place, AuditEntry)], now: UnixMillis) -> String {
    let mut table = Table::new(&["#age", "who", "what", "step", "#count", "filter", "reason"]);
    for (place, step) in acts {
        let count = if step.step == AuditStep::Begun { "?".into() } else { step.count.to_string() };
        table.row(vec![
            age(UnixMillis(place.ms).age_at(now)),
            step.who.clone(),
            step.what.clone(),
            step.step.as_str().into(),
            count,
            cut(&step.filter, TEXT_SHOWN),
            cut(&step.reason, TEXT_SHOWN),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_number() {
        let users = "root:x:0:0:::\nbroken\nann:x:1000:1000:::\n";
        assert_eq!(name_of(1000, users).as_deref(), Some("ann"));
        assert_eq!((name_of(0, users).as_deref(), name_of(7, users)), (Some("root"), None));
        assert!(!who().starts_with('@') && !who().contains('\n'), "{}", who());
    }
}
