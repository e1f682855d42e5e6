//! `doctor`: judges the server and the queues. Every finding says what was found and, unless it is well, how to mend it.
//!
//! * `server`: what kind it is, its version, what it does when memory is full, persistence, replicas, latency;
//! * `patch_levels`: from which release on a line of versions has its known holes mended;
//! * `limits`: what nodes say kinds are limited to, and what is heeded;
//! * `pauses`: what a person has paused;
//! * `queues`: groups, leases, members, hung runs, outbox, dead letters;
//! * `postgres`: inbox and outbox there, where the settings name a database.
//!
//! Both judge plain facts, so that their tests need no server that is ill.

mod limits;
mod patch_levels;
mod pauses;
#[cfg(feature = "postgres")]
mod postgres;
mod queues;
mod server;

use crate::exit::{End, Failure};
use crate::output;
use crate::settings::Settings;
use gristmill_broker::Mode;
use gristmill_broker::doctor::ClaimsOver;
use serde_json::json;
use std::time::Duration;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    Ok,
    /// Works, and may cost something one day.
    Warn,
    /// Jobs are stuck, or can be lost.
    Bad,
}

impl Severity {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    severity: Severity,
    check: String,
    found: String,
    mend: Option<String>,
}

impl Finding {
    fn ok(check: impl Into<String>, found: impl Into<String>) -> Self {
        Self { severity: Severity::Ok, check: check.into(), found: found.into(), mend: None }
    }

    fn warn(check: impl Into<String>, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { severity: Severity::Warn, check: check.into(), found: found.into(), mend: Some(mend.into()) }
    }

    fn bad(check: impl Into<String>, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { severity: Severity::Bad, check: check.into(), found: found.into(), mend: Some(mend.into()) }
    }
}

/// Round trips that are timed.
const PINGS: usize = 21;

/// The command.
pub(crate) async fn command(settings: &Settings, json: bool) -> Result<End, Failure> {
    let connection = crate::connect(settings).await?;
    let mut pings = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        pings.push(connection.ping().await?);
    }
    let mut findings = server::judge(&connection.server_facts().await?, &pings);
    let queues = connection.queues().await?;
    if queues.is_empty() {
        findings.push(Finding::ok("queues", "there are none yet; a node makes those it serves"));
    }
    // Between two round trips nobody serves theirs.
    for queue in queues.iter().filter(|queue| queue.name.as_str() != crate::roundtrip::QUEUE) {
        let (now, members) = connection.members(&queue.name).await?;
        let facts = queues::Facts {
            groups: connection.groups(queue).await?,
            views: connection.partitions(queue).await?,
            members,
            hung: connection.hung(&queue.name).await?,
            limits: connection.limits(&queue.name).await?,
            kinds: crate::kinds::Served::look(&connection, queue).await?.kinds,
            now,
            mode: queue.mode,
            visibility: settings.visibility_timeout(&queue.name),
            over: match queue.mode {
                Mode::Key => ClaimsOver::default(),
                Mode::None => {
                    let old = settings.visibility_timeout(&queue.name) * queues::CLAIM_OLD;
                    connection.claims_over(queue, old).await?
                }
            },
        };
        let (now, pauses) = connection.pauses(&queue.name).await?;
        findings.extend(pauses::judge(&queue.name, &pauses, now));
        findings.extend(queues::judge(&queue.name, &facts));
    }
    #[cfg(feature = "postgres")]
    if let Some(database) = settings.database()? {
        findings.extend(postgres::findings(database).await);
    }
    print(&findings, json)?;
    let worst = worst(&findings);
    Ok(if worst == Severity::Bad { End::Bad } else { End::Done })
}

fn worst(findings: &[Finding]) -> Severity {
    findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
}

fn print(findings: &[Finding], json: bool) -> std::io::Result<()> {
    if json {
        let row = |finding: &Finding| {
            json!({
                "severity": finding.severity.as_str(),
                "check": finding.check,
                "found": finding.found,
                "mend": finding.mend,
            })
        };
        let rows: Vec<_> = findings.iter().map(row).collect();
        return output::print(&json!({ "worst": worst(findings).as_str(), "findings": rows }).to_string());
    }
    let width = findings.iter().map(|finding| finding.check.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { severity, check, found, mend } in findings {
        text.push_str(&format!("{:<4}  {check:<width$}  {}\n", severity.as_str(), output::visible(found)));
        if let Some(mend) = mend {
            text.push_str(&format!("      {:<width$}  → {mend}\n", ""));
        }
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    text.push_str(&format!(
        "{} ok, {} to look at, {} bad",
        count(Severity::Ok),
        count(Severity::Warn),
        count(Severity::Bad)
    ));
    output::print(&text)
}

fn millis(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1000.0)
}
