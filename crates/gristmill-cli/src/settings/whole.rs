//! All settings judged at once, whichever command would read them, and what they amount to.

use super::{Settings, SettingsError};
use gristmill_node::{NodeConfig, QueueConfig};
use gristmill_remote::KindConfig;
use gristmill_schedule::Schedule;
use std::time::Duration;

/// A line that tells what settings mean together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// What it is about.
    pub about: &'static str,
    /// What it comes to.
    pub text: String,
    /// Whether a person should think about it.
    pub warns: bool,
}

impl Settings {
    /// Whether every part of the settings can be: those of a node where queues are named, of the database, the server that
    /// takes jobs, and so on. Reads the files that are named, and connects to nothing.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn check(&self) -> Result<(), SettingsError> {
        let parts = [
            match self.has_queues() {
                true => self.node().map(drop),
                // Redis and retries are of use to other commands, too.
                false => self.redis().map(drop).and_then(|()| self.queues().map(drop)),
            },
            self.remote().map(drop),
            self.schedules().map(drop),
            self.limits().map(drop).map_err(Into::into),
            self.expiries().map(drop).map_err(Into::into),
            self.ingest().map(drop),
            self.check_postgres(),
            self.health().map(drop),
            self.monitor_every().map(drop),
            self.telemetry().map(drop),
        ];
        let faults: Vec<_> =
            parts.into_iter().filter_map(Result::err).flat_map(|error| error.faults).collect();
        match faults.is_empty() {
            true => Ok(()),
            false => Err(SettingsError { faults }),
        }
    }

    #[cfg(feature = "postgres")]
    fn check_postgres(&self) -> Result<(), SettingsError> {
        self.database().map(drop).and_then(|()| self.relay().map(drop))
    }

    #[cfg(not(feature = "postgres"))]
    fn check_postgres(&self) -> Result<(), SettingsError> {
        self.refuse_postgres()
    }

    /// What the settings amount to, for a person.
    ///
    /// # Errors
    /// As [`Settings::check`].
    pub fn told(&self) -> Result<Vec<Told>, SettingsError> {
        self.check()?;
        let mut told = vec![Told { about: "Redis", text: self.redis()?.redacted_url(), warns: false }];
        match self.has_queues() {
            true => told.extend(of_node(&self.node()?)),
            false => told.push(Told {
                about: "queues",
                text: "none: a node would refuse to start; other commands need none".into(),
                warns: false,
            }),
        }
        told.extend(of_schedules(&self.schedules()?, &self.queues()?));
        let window = Duration::from_millis(self.drain.window_ms);
        told.extend(self.remote()?.kinds().filter_map(|kind| of_kind(kind, window)));
        Ok(told)
    }
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_millis() as f64 / 1000.0)
}

fn of_node(node: &NodeConfig) -> Vec<Told> {
    let queues = node.queues.iter().map(|queue| format!("{}:{}", queue.name, queue.partitions));
    let partitions: usize = node.queues.iter().map(|queue| usize::from(queue.partitions)).sum();
    let whole = node.drain_window + node.drain_grace;
    // A renewal may just not have been sent when it begins.
    let patience = node.lease_ttl.saturating_sub(node.lease_margin + node.lease_renewal);
    vec![
        Told { about: "queues", text: queues.collect::<Vec<_>>().join(", "), warns: false },
        Told {
            about: "work",
            text: format!(
                "{} handlers at a time; jobs in memory: {} of each of {partitions} partitions, and {} MiB in all, at most",
                node.slots,
                node.window_jobs,
                node.window_bytes >> 20,
            ),
            warns: false,
        },
        Told {
            about: "a node dies",
            text: format!(
                "others take its partitions over once its leases have expired, {} after the last renewal",
                seconds(node.lease_ttl)
            ),
            warns: false,
        },
        Told {
            about: "a pause",
            text: format!(
                "of Redis, the network or a node costs no lease up to about {}; an answer is waited for {}",
                seconds(patience),
                seconds(node.redis.response_timeout)
            ),
            warns: node.redis.response_timeout > patience,
        },
        Told {
            about: "SIGTERM",
            text: format!(
                "running jobs have {}, then all ends within {}: the platform waits {} or more before SIGKILL",
                seconds(node.drain_window),
                seconds(node.drain_grace),
                seconds(whole)
            ),
            // Autoscalers of nodes grant no more, whatever the pod asks for.
            warns: whole > Duration::from_secs(600),
        },
    ]
}

/// What is recurring, and whether this node fires it.
fn of_schedules(schedules: &[Schedule], queues: &[QueueConfig]) -> Vec<Told> {
    let of_others: Vec<&Schedule> =
        schedules.iter().filter(|one| queues.iter().all(|queue| &queue.name != one.queue())).collect();
    let shown = |schedule: &Schedule| {
        let disabled = if schedule.enabled() { "" } else { " (disabled)" };
        format!("{}: {}{disabled}", schedule.name(), schedule.timing().text())
    };
    let all = schedules.iter().map(shown).collect::<Vec<_>>().join("; ");
    let mut told = Vec::new();
    if !schedules.is_empty() {
        told.push(Told { about: "schedules", text: all, warns: false });
    }
    if !of_others.is_empty() {
        let names: Vec<&str> = of_others.iter().map(|schedule| schedule.name().as_str()).collect();
        let text = format!(
            "{}: of queues that are not in queues; nodes that serve those fire them",
            names.join(", ")
        );
        told.push(Told { about: "schedules", text, warns: false });
    }
    told
}

/// A kind whose runs may outlast a drain.
fn of_kind(kind: &KindConfig, window: Duration) -> Option<Told> {
    (kind.limits.hard > window).then(|| Told {
        about: "SIGTERM",
        text: format!(
            "runs of {} may take {}, longer than drain.window_ms: what is cut off runs again elsewhere",
            kind.kind,
            seconds(kind.limits.hard)
        ),
        warns: true,
    })
}
