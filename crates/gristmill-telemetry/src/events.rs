//! Every event, named once. Its log line and the metrics that it moves follow from its row; who meets one says
//! [`Telemetry::tell`](crate::Telemetry::tell).
//!
//! A row: the type, the name, the level, the target that the log's directives speak of, the words, the fields, and which
//! metrics move by it:
//!
//! ```text
//! JobDead "job.dead" WARN "gristmill_node" "a job is now a dead letter"
//!     { queue: str, job: show, reason: str }
//!     { dead_letters_total[queue, reason] += 1 }
//! ```
//!
//! A counter grows (`+=`) by 1 or a field, a histogram observes (`<=`) a duration, a gauge takes (`=`) a duration or (`@`) a
//! number. Fields are `str`, `show` (anything that can be displayed), `num`, `ms` (a duration, logged in ms). Never a payload, a key
//! or a secret. What happens to every job is told in numbers and not one by one; see [`COUNTED`].

pub mod job;
pub mod node;
pub mod others;
pub mod schedule;

use crate::metrics::Metrics;
use tracing::Level;

/// What there is to know about an event.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// Its name.
    pub name: &'static str,
    /// How loud it is logged.
    pub level: Level,
    /// What the log's directives call its part of the program.
    pub target: &'static str,
    /// Its words in the log.
    pub words: &'static str,
    /// Its fields.
    pub fields: &'static [&'static str],
    /// The metrics that move by it.
    pub moves: &'static [&'static str],
}

/// Something that happened.
pub trait Event {
    /// What there is to know about it.
    const ABOUT: About;

    /// Writes its line.
    fn log(&self);

    /// Moves its metrics.
    fn count(&self, metrics: &Metrics);
}

/// The type of a field.
macro_rules! field {
    (str) => { &'a str };
    (show) => { &'a dyn std::fmt::Display };
    (num) => { u64 };
    (ms) => { std::time::Duration };
}

/// A field as the log takes it.
macro_rules! logged {
    (str, $value:expr) => {
        $value
    };
    (show, $value:expr) => {
        tracing::field::display($value)
    };
    (num, $value:expr) => {
        $value
    };
    (ms, $value:expr) => {
        u64::try_from($value.as_millis()).unwrap_or(u64::MAX)
    };
}

/// One movement of a metric.
macro_rules! moved {
    ($series:expr, += 1) => {
        $series.add(1)
    };
    ($series:expr, += $amount:expr) => {
        $series.add($amount)
    };
    ($series:expr, <= $took:expr) => {
        $series.observe($took)
    };
    ($series:expr, @ $value:expr) => {
        $series.set(f64::from($value))
    };
    ($series:expr, = $took:expr) => {
        $series.set($took.as_secs_f64())
    };
}

macro_rules! events {
    ($($(#[$doc:meta])* $event:ident $name:literal $level:ident $target:literal $words:literal
        { $($field:ident: $sort:ident),* $(,)? }
        { $($metric:ident [$($label:ident),*] $how:tt $by:tt),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[allow(missing_docs, reason = "fields are named after what they hold")]
            pub struct $event<'a> { $(pub $field: $crate::events::field!($sort)),* }

            impl $crate::events::Event for $event<'_> {
                const ABOUT: $crate::events::About = $crate::events::About {
                    name: $name,
                    level: tracing::Level::$level,
                    target: $target,
                    words: $words,
                    fields: &[$(stringify!($field)),*],
                    moves: &[$(stringify!($metric)),*],
                };

                fn log(&self) {
                    tracing::event!(
                        target: $target,
                        tracing::Level::$level,
                        event = $name,
                        $($field = $crate::events::logged!($sort, self.$field),)*
                        $words
                    );
                }

                fn count(&self, metrics: &$crate::metrics::Metrics) {
                    let _ = metrics;
                    $({
                        let series = metrics.$metric.with(&[$(self.$label),*]);
                        $crate::events::moved!(series, $how ($crate::events::amount!(self, $by)));
                    })*
                }
            }
        )*

        /// The rows of this part of the table.
        pub(super) const ROWS: &[$crate::events::About] =
            &[$(<$event as $crate::events::Event>::ABOUT),*];

        /// One of each, to be told by a test.
        #[cfg(test)]
        pub(super) fn samples() -> Vec<(&'static str, Box<dyn Fn(&$crate::Telemetry)>)> {
            vec![$(($name, Box::new(|telemetry: &$crate::Telemetry| {
                telemetry.tell(&$event { $($field: $crate::events::sample!($sort)),* });
            }))),*]
        }
    };
}

/// By how much: 1, or a field.
macro_rules! amount {
    ($event:expr, 1) => {
        1
    };
    ($event:expr, $field:ident) => {
        $event.$field
    };
}

/// A value for a field.
#[cfg(test)]
macro_rules! sample {
    (str) => {
        "some"
    };
    (show) => {
        &"some"
    };
    (num) => {
        2
    };
    (ms) => {
        std::time::Duration::from_millis(1500)
    };
}

#[cfg(test)]
pub(crate) use sample;
pub(crate) use {amount, events, field, logged, moved};

/// What happens to every job is not told one by one: the metrics that are moved without an event, and by what.
pub const COUNTED: &[(&str, &str)] = &[
    ("job_attempts_total", "a run ended, and what became of it is known"),
    ("job_attempt_duration_seconds", "a run ended, and what became of it is known"),
    ("job_wait_seconds", "a run ended, and what became of it is known"),
    ("job_retries_total", "a run ended, and its job is put back after an error"),
    ("lease_renewals_total", "a lease was renewed"),
    ("fencing_rejections_total", "Redis refused a call of a tenure, or a renewal"),
    ("claims_extended_total", "Redis answered an extend"),
    ("claims_oldest_over_seconds", "read when it is asked for"),
    ("partitions", "a partition's actor goes on to another state"),
    ("worker_slots", "read when it is asked for"),
    ("batches_total", "a batch is handed to its handler"),
    ("batch_jobs_total", "a batch is handed to its handler"),
    ("limit_asked_total", "Redis answered a run that asked for its limit"),
    ("limit_slots", "read when it is asked for"),
    ("limit_waiting", "read when it is asked for"),
    ("heartbeat_late_seconds", "a beat begins"),
    ("runtime_stalled_seconds", "read when it is asked for"),
    ("redis_up", "a connection was made or given up"),
    ("redis_call_duration_seconds", "a call of Redis was answered"),
    ("spans_exported_total", "a collector took spans"),
    ("spans_dropped_total", "spans found the queue full, or no collector took them"),
    ("outbox_relayed_total", "read from the relay when it is asked for"),
    ("outbox_refused_total", "read from the relay when it is asked for"),
    ("ingest_requests_total", "a request was answered"),
    ("ingest_jobs_total", "a request was answered, for each job in it"),
    ("build_info", "the process starts"),
];

/// Every event there is.
#[must_use]
pub fn all() -> Vec<About> {
    [job::ROWS, node::ROWS, others::ROWS, schedule::ROWS].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Telemetry;
    use crate::metrics::{self, Role};
    use std::collections::BTreeSet;

    #[test]
    fn each_event_moves_the_metrics_of_its_row_and_no_others() {
        let samples = [job::samples(), node::samples(), others::samples(), schedule::samples()];
        for (name, tell) in samples.into_iter().flatten() {
            let row = all().into_iter().find(|row| row.name == name).unwrap();
            let mut moved = BTreeSet::new();
            for role in Role::ALL {
                let telemetry = Telemetry::new(role);
                let before: Vec<String> =
                    telemetry.metrics().read().iter().map(|r| format!("{r:?}")).collect();
                tell(&telemetry);
                let after = telemetry.metrics().read();
                let changed = after.iter().filter(|r| !before.contains(&format!("{r:?}")));
                moved.extend(changed.map(|reading| reading.about.name));
            }
            assert_eq!(moved, row.moves.iter().copied().collect(), "{name}");
        }
    }

    #[test]
    fn names_are_words_with_dots_and_come_once() {
        let mut seen = BTreeSet::new();
        for row in all() {
            let legal = |b: u8| b.is_ascii_lowercase() || b"._".contains(&b);
            assert!(row.name.bytes().all(legal) && row.name.contains('.'), "{}", row.name);
            assert!(seen.insert(row.name), "{} twice", row.name);
            assert!(!row.words.ends_with('.'), "{}", row.name);
        }
    }

    #[test]
    fn every_metric_is_moved_by_something_that_is_told() {
        let by_events = all().iter().flat_map(|row| row.moves).copied().collect::<BTreeSet<_>>();
        for about in metrics::ALL {
            let counted = COUNTED.iter().any(|(name, _)| *name == about.name);
            let looked_at = about.from == [Role::Monitor];
            assert!(by_events.contains(about.name) || counted || looked_at, "{}", about.name);
        }
        for (name, _) in COUNTED {
            assert!(metrics::ALL.iter().any(|about| about.name == *name), "{name}");
        }
    }
}
