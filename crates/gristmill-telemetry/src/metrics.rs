//! Every metric, named once: name, sort, labels, what it tells, and which roles show it.
//!
//! * this file: the table;
//! * [`series`]: what is moved;
//! * [`family`]: all series of a metric;
//! * [`text`]: as Prometheus reads them.
//!
//! Values of labels are queues and kinds of the settings and fixed words; never an id, a key or a text of an error.

pub mod family;
pub mod series;
pub mod text;

use family::{AnyFamily, Family, Shown};
use series::{Counter, Gauge, Histogram};

/// How every name begins.
pub const PREFIX: &str = "gristmill_";

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Claims jobs and runs their handlers.
    Node,
    /// Takes jobs by HTTP.
    Ingest,
    /// Looks at queues.
    Monitor,
    /// Enqueues what lies in an outbox.
    Relay,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Node, Self::Ingest, Self::Monitor, Self::Relay];

    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Ingest => "ingest",
            Self::Monitor => "monitor",
            Self::Relay => "relay",
        }
    }
}

/// How a metric moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Only up.
    Counter,
    /// Up and down.
    Gauge,
    /// Durations, in buckets.
    Histogram,
}

impl Sort {
    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// What there is to know about a metric.
#[derive(Debug)]
pub struct About {
    /// Its name, without [`PREFIX`].
    pub name: &'static str,
    /// How it moves.
    pub sort: Sort,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it tells.
    pub help: &'static str,
    /// Who shows it.
    pub from: &'static [Role],
    /// Of a histogram: the upper ends of its buckets, in µs.
    pub bounds_us: &'static [u64],
}

/// Of runs, waits, hand-overs: a job may take an hour.
pub const LONG_US: &[u64] = &[
    5_000,
    10_000,
    25_000,
    50_000,
    75_000,
    100_000,
    250_000,
    500_000,
    750_000,
    1_000_000,
    2_500_000,
    5_000_000,
    7_500_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    900_000_000,
    3_600_000_000,
];
/// Of calls of Redis.
pub const SHORT_US: &[u64] = &[
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000,
];

/// Of slots: a timer is late by little, a catch-up by a day.
pub const LATE_US: &[u64] = &[
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    1_000_000,
    5_000_000,
    10_000_000,
    60_000_000,
    600_000_000,
    3_600_000_000,
    86_400_000_000,
];

const EVERYBODY: &[Role] = &Role::ALL;

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident: $sort:ident [$($label:ident),*] from $from:expr, $bounds:expr, $help:literal;)*) => {
        /// Every metric there is.
        pub const ALL: &[About] = &[$(About {
            name: stringify!($name),
            sort: Sort::$sort,
            labels: &[$(stringify!($label)),*],
            help: $help,
            from: $from,
            bounds_us: $bounds,
        }),*];

        /// What a process counts.
        #[derive(Debug)]
        #[allow(missing_docs, reason = "the table says what each of them tells")]
        pub struct Metrics {
            role: Role,
            $(pub $name: Family<$sort>,)*
        }

        impl Metrics {
            /// Nothing counted yet.
            #[must_use]
            pub fn new(role: Role) -> Self {
                let mut all = ALL.iter();
                // As many as there are fields, in their order.
                let mut next = || all.next().unwrap_or(&ALL[0]);
                let metrics = Self { role, $($name: Family::new(next()),)* };
                for family in metrics.families() {
                    family.show_one();
                }
                metrics
            }

            /// Those that this role shows.
            fn families(&self) -> Vec<&dyn AnyFamily> {
                let all: Vec<&dyn AnyFamily> = vec![$(&self.$name),*];
                all.into_iter().filter(|family| family.about().from.contains(&self.role)).collect()
            }
        }
    };
}

const NODE: &[Role] = &[Role::Node];
const INGEST: &[Role] = &[Role::Ingest];
const MONITOR: &[Role] = &[Role::Monitor];
const OUTBOX: &[Role] = &[Role::Node, Role::Relay];
const TRACING: &[Role] = &[Role::Node, Role::Ingest];

metrics! {
    build_info: Gauge [version] from EVERYBODY, &[], "Always 1; which release runs.";
    runtime_stalled_seconds: Gauge [] from EVERYBODY, &[], "How long the runtime that does the work has not ticked.";

    job_attempts_total: Counter [queue, kind, outcome] from NODE, &[], "Runs of handlers that began, by how they ended.";
    job_attempt_duration_seconds: Histogram [queue, kind, outcome] from NODE, LONG_US, "How long a handler ran.";
    job_wait_seconds: Histogram [queue] from NODE, LONG_US, "From when a job was ready, or due again, to the start of its run.";
    job_retries_total: Counter [queue, class] from NODE, &[], "Jobs put back for another attempt, by the class of their error.";
    dead_letters_total: Counter [queue, reason] from NODE, &[], "Jobs that became dead letters.";
    dead_letters_expired_total: Counter [queue] from NODE, &[], "Dead letters discarded beyond dead_max_age_ms.";
    jobs_cancelled_total: Counter [queue] from NODE, &[], "Claimed jobs that ended since a person had cancelled them.";
    jobs_expired_total: Counter [queue] from NODE, &[], "Jobs that ended unrun, since they were not started before they expired.";
    jobs_repaired_total: Counter [queue] from NODE, &[], "Jobs and keys that waited for nothing, or were lost sight of, and were found.";
    jobs_promoted_total: Counter [queue] from NODE, &[], "Jobs for later that became ready.";
    promotion_late_seconds: Histogram [queue] from NODE, LONG_US, "How late jobs for later became ready: the latest of each slice.";
    jobs_unstarted_total: Counter [queue] from NODE, &[], "Jobs that may run at most once, acknowledged and never started.";
    handlers_given_up_total: Counter [queue] from NODE, &[], "Runs that held their threads and were given up.";
    fencing_rejections_total: Counter [operation] from NODE, &[], "Calls that Redis refused, since the lease was no longer the caller's.";
    claims_extended_total: Counter [] from NODE, &[], "Claims extended, of queues with ordering none.";
    claims_lost_total: Counter [queue] from NODE, &[], "Claims that were lost before their jobs were settled.";
    claims_recovered_total: Counter [queue] from NODE, &[], "Claims taken whose visibility timeout was over.";
    claims_oldest_over_seconds: Gauge [queue] from NODE, &[], "By how much the oldest claim is over its visibility timeout that no node has recovered.";
    lease_renewals_total: Counter [] from NODE, &[], "Leases renewed.";
    leases_lost_total: Counter [] from NODE, &[], "Tenures that ended otherwise than by hand-over or drain.";
    heartbeat_late_seconds: Gauge [] from NODE, &[], "How late the heartbeat has been at worst.";
    recoveries_total: Counter [queue] from NODE, &[], "Partitions taken over from an owner whose lease had run out.";
    handovers_total: Counter [queue] from NODE, &[], "Partitions given to another node by request.";
    handover_duration_seconds: Histogram [] from NODE, LONG_US, "From the wish of another node to the release.";
    partitions: Gauge [queue, state] from NODE, &[], "Partitions of this node.";
    worker_slots: Gauge [state] from NODE, &[], "Handler slots; hung: given up, beside the others.";
    batches_total: Counter [kind] from NODE, &[], "Batches that were handed to their handlers.";
    batch_jobs_total: Counter [kind] from NODE, &[], "Jobs in them.";
    limit_asked_total: Counter [queue, kind, answer] from NODE, &[], "Runs of limited kinds that asked whether they may begin, by what they were told.";
    limit_slots: Gauge [queue, kind] from NODE, &[], "Slots of a limited kind that runs of this node hold.";
    limit_waiting: Gauge [queue, kind] from NODE, &[], "Keys of this node whose next job waits for the limit of its kind; without order, jobs of this node that do.";
    limit_slots_lost_total: Counter [queue, kind] from NODE, &[], "Runs that went on without their slots.";
    actor_restarts_total: Counter [] from NODE, &[], "Actors that failed and were started again.";
    node_draining: Gauge [] from NODE, &[], "1 while the node leaves.";
    drain_duration_seconds: Gauge [] from NODE, &[], "How long the drain took; 0 before.";
    drain_handed_back_jobs_total: Counter [] from NODE, &[], "Jobs laid down for others while draining.";

    schedule_fired_total: Counter [schedule] from NODE, &[], "Slots whose job this node enqueued.";
    schedule_missed_total: Counter [schedule] from NODE, &[], "Slots that were missed and are not made up.";
    schedule_overlapped_total: Counter [schedule] from NODE, &[], "Slots passed over, since the job of the slot before was not done.";
    schedule_lateness_seconds: Histogram [schedule] from NODE, LATE_US, "From a slot to the enqueue of its job.";

    redis_up: Gauge [] from EVERYBODY, &[], "1 while there is a connection that answers.";
    redis_call_duration_seconds: Histogram [operation] from EVERYBODY, SHORT_US, "Calls of Redis, until their answer.";
    redis_reconnects_total: Counter [] from EVERYBODY, &[], "Connections given up and made again.";

    spans_exported_total: Counter [] from TRACING, &[], "Spans that a collector took.";
    spans_dropped_total: Counter [] from TRACING, &[], "Spans that were to be kept and are lost: the collector was away or slow.";

    outbox_relayed_total: Counter [] from OUTBOX, &[], "Outbox rows enqueued.";
    outbox_refused_total: Counter [] from OUTBOX, &[], "Outbox rows that cannot be jobs.";

    ingest_requests_total: Counter [code] from INGEST, &[], "Requests, by the status of their answer.";
    ingest_jobs_total: Counter [queue, status] from INGEST, &[], "Jobs in requests, by what became of them.";

    queue_jobs: Gauge [queue, state] from MONITOR, &[], "Jobs of a queue, by where they stand.";
    queue_oldest_ready_age_seconds: Gauge [queue] from MONITOR, &[], "Age of the oldest job that nobody has claimed; 0 where there is none.";
    queue_oldest_in_flight_age_seconds: Gauge [queue] from MONITOR, &[], "How long the oldest claim has stood; 0 where there is none.";
    key_blocked_max_age_seconds: Gauge [queue] from MONITOR, &[], "How long a key has waited for a person, or for a job that is tried again, at most.";
    queue_paused_age_seconds: Gauge [queue, what] from MONITOR, &[], "How long the queue, a kind of it or a key of it has been paused, at most; 0 where none is.";
    queue_delayed_overdue_seconds: Gauge [queue] from MONITOR, &[], "How long the first job for later has been due without being ready; 0 where none is.";
    queue_jobs_enqueued_total: Counter [queue] from MONITOR, &[], "Jobs ever enqueued; one for later counts once it is due.";
    queue_jobs_settled_total: Counter [queue] from MONITOR, &[], "Jobs that left the queue: done, or dead letters.";
    schedule_overdue_seconds: Gauge [queue, schedule] from MONITOR, &[], "How long the oldest slot that is due has not been fired; 0 where none is. Paused and disabled ones have none.";
    queue_partitions: Gauge [queue, state] from MONITOR, &[], "Partitions with a lease that stands, and without.";
    queue_nodes: Gauge [queue, state] from MONITOR, &[], "Living nodes that serve the queue.";
    outbox_backlog_rows: Gauge [] from MONITOR, &[], "Outbox rows that wait to be enqueued.";
    outbox_oldest_age_seconds: Gauge [] from MONITOR, &[], "Age of the oldest of them; 0 where there is none.";
    outbox_refused_rows: Gauge [] from MONITOR, &[], "Outbox rows that cannot be jobs.";
    inbox_rows: Gauge [] from MONITOR, &[], "Inbox rows.";
    monitor_look_duration_seconds: Gauge [] from MONITOR, &[], "How long the last look at all queues took.";
    monitor_last_look_timestamp_seconds: Gauge [] from MONITOR, &[], "When the last look that saw everything ended; 0 before the first.";
}

/// One metric with every series of it.
#[derive(Debug)]
pub struct Reading {
    /// Which.
    pub about: &'static About,
    /// The values of its labels, and what it shows for them.
    pub series: Vec<(Vec<String>, Shown)>,
}

impl Metrics {
    /// Whose they are.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// What this role shows now; metrics without a series are left out.
    #[must_use]
    pub fn read(&self) -> Vec<Reading> {
        let read = |family: &&dyn AnyFamily| Reading { about: family.about(), series: family.all() };
        self.families().iter().map(read).filter(|reading| !reading.series.is_empty()).collect()
    }

    /// The same as Prometheus reads it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Reading { about, series } in self.read() {
            text::write(about, &series, &mut text);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_as_prometheus_wants_them() {
        let mut seen = BTreeSet::new();
        for about in ALL {
            let name = about.name;
            assert!(seen.insert(name), "{name} twice");
            assert_eq!(name.ends_with("_total"), about.sort == Sort::Counter, "{name}");
            assert_eq!(about.bounds_us.is_empty(), about.sort != Sort::Histogram, "{name}");
            assert!(about.help.ends_with('.') && !about.from.is_empty(), "{name}");
            assert!(about.bounds_us.windows(2).all(|pair| pair[0] < pair[1]), "{name}");
        }
    }

    #[test]
    fn a_field_has_the_description_of_its_name() {
        for role in Role::ALL {
            let metrics = Metrics::new(role);
            let fields = format!("{metrics:?}");
            for about in ALL {
                let field = format!(" {}: Family {{ about: About {{ name: {:?}", about.name, about.name);
                assert!(fields.contains(&field), "{}", about.name);
            }
        }
    }

    #[test]
    fn a_role_shows_its_own_and_no_more() {
        let metrics = Metrics::new(Role::Ingest);
        metrics.ingest_requests_total.with(&["200"]).add(2);
        metrics.partitions.with(&["q", "owned"]).set(1.0);
        let text = metrics.text();
        assert!(text.contains("\ngristmill_ingest_requests_total{code=\"200\"} 2\n"), "{text}");
        assert!(text.contains("\ngristmill_redis_reconnects_total 0\n"), "{text}");
        assert!(!text.contains("partitions") && !text.contains("redis_up"), "{text}");
    }

    #[test]
    fn more_series_than_a_metric_may_have_are_counted_together() {
        let metrics = Metrics::new(Role::Node);
        for n in 0..family::MOST_SERIES + 3 {
            metrics.recoveries_total.with(&[&n.to_string()]).add(1);
        }
        assert_eq!(metrics.recoveries_total.with(&[family::OTHER]).get(), 3);
    }
}
