//! What became of runs. A partition counts a batch of them here, and adds the batch to the metrics at once: shared counters
//! are moved once for many jobs.

use crate::metrics::family::Family;
use crate::metrics::series::{Counter, Histogram, bucket_of, micros};
use crate::metrics::{LONG_US, Metrics};
use gristmill_job::ErrorClass;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How a run ended, in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Its effects are written.
    Done,
    /// Another run of the same id had applied.
    Duplicate,
    /// Its version was not newer.
    Stale,
    /// Its handler said so.
    Discarded,
    /// A person took its job back, and its handler gave up.
    Cancelled,
    /// It was too late for it.
    Expired,
    /// It failed, and the job is put back.
    Retry,
    /// Its handler asked for another time.
    Snoozed,
    /// The job is a dead letter.
    Dead,
    /// It was stopped before it answered, and the job is laid down for another run.
    HandedBack,
    /// Its result is not known to be written: the lease was lost first, or Redis refused it.
    Lost,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Done,
        Self::Duplicate,
        Self::Stale,
        Self::Discarded,
        Self::Cancelled,
        Self::Expired,
        Self::Retry,
        Self::Snoozed,
        Self::Dead,
        Self::HandedBack,
        Self::Lost,
    ];

    /// The word in labels and spans.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Duplicate => "duplicate",
            Self::Stale => "stale",
            Self::Discarded => "discarded",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Retry => "retry",
            Self::Snoozed => "snoozed",
            Self::Dead => "dead",
            Self::HandedBack => "handed_back",
            Self::Lost => "lost",
        }
    }
}

/// A run that ended.
#[derive(Debug)]
pub struct Attempt {
    /// What sort of work it was.
    pub kind: &'static str,
    /// From when its job was ready, or due, to its start; `None` where that is not known.
    pub waited: Option<Duration>,
    /// How long its handler ran.
    pub ran: Duration,
    /// Of what sort its error was.
    pub class: Option<ErrorClass>,
}

/// The series of one kind of one queue.
#[derive(Debug)]
struct OfKind {
    kind: &'static str,
    attempts: [Arc<Counter>; Outcome::ALL.len()],
    durations: [OnceLock<Arc<Histogram>>; Outcome::ALL.len()],
}

/// The series of one queue. Shared by its partitions.
#[derive(Debug)]
pub struct OfQueue {
    queue: String,
    kinds: Vec<OfKind>,
    waits: Arc<Histogram>,
    retries: [Arc<Counter>; CLASSES.len()],
}

/// Every class of an error.
const CLASSES: [ErrorClass; 5] = [
    ErrorClass::Transient,
    ErrorClass::Permanent,
    ErrorClass::Unknown,
    ErrorClass::Panic,
    ErrorClass::Timeout,
];

impl OfQueue {
    /// Of a queue whose jobs are of these kinds.
    #[must_use]
    pub fn new(metrics: &Metrics, queue: &str, kinds: impl Iterator<Item = &'static str>) -> Arc<Self> {
        let of_kind = |kind: &'static str| OfKind {
            kind,
            attempts: Outcome::ALL
                .map(|outcome| metrics.job_attempts_total.with(&[queue, kind, outcome.as_str()])),
            durations: Default::default(),
        };
        Arc::new(Self {
            queue: queue.to_owned(),
            kinds: kinds.map(of_kind).collect(),
            waits: metrics.job_wait_seconds.with(&[queue]),
            retries: CLASSES.map(|class| metrics.job_retries_total.with(&[queue, class.as_str()])),
        })
    }

    /// Which kind this is. Kinds are constants, so that mostly the address tells.
    fn position(&self, kind: &'static str) -> Option<usize> {
        self.kinds
            .iter()
            .position(|known| std::ptr::eq(known.kind, kind))
            .or_else(|| self.kinds.iter().position(|known| known.kind == kind))
    }
}

/// Runs of one kind with one outcome.
#[derive(Debug, Clone, Default)]
struct Runs {
    count: u64,
    sum_us: u64,
    buckets: [u32; LONG_US.len() + 1],
}

/// What a partition has counted and not added yet.
#[derive(Debug)]
pub struct Tally {
    queue: Arc<OfQueue>,
    /// By kind and outcome.
    runs: Vec<Runs>,
    waits: Runs,
    /// Which of `runs` are not empty.
    touched: Vec<usize>,
    last: Option<(&'static str, usize)>,
}

impl Tally {
    /// Of a partition of this queue.
    #[must_use]
    pub fn new(queue: Arc<OfQueue>) -> Self {
        let runs = vec![Runs::default(); queue.kinds.len() * Outcome::ALL.len()];
        Self { queue, runs, waits: Runs::default(), touched: Vec::new(), last: None }
    }

    /// One more. A kind that the node does not serve has no runs.
    pub fn count(&mut self, attempt: &Attempt, outcome: Outcome) {
        let known = self.last.filter(|(kind, _)| std::ptr::eq(*kind, attempt.kind)).map(|(_, at)| at);
        let Some(kind) = known.or_else(|| self.queue.position(attempt.kind)) else { return };
        self.last = Some((attempt.kind, kind));
        let at = kind * Outcome::ALL.len() + outcome as usize;
        if self.runs[at].count == 0 {
            self.touched.push(at);
        }
        self.runs[at].add(attempt.ran);
        if outcome == Outcome::Retry
            && let Some(class) = CLASSES.iter().position(|class| Some(*class) == attempt.class)
        {
            self.queue.retries[class].add(1);
        }
        if let Some(waited) = attempt.waited {
            self.waits.add(waited);
        }
    }

    /// Adds what was counted to the metrics.
    pub fn flush(&mut self, metrics: &Metrics) {
        for at in self.touched.drain(..) {
            let (kind, outcome) = (at / Outcome::ALL.len(), at % Outcome::ALL.len());
            let of_kind = &self.queue.kinds[kind];
            of_kind.attempts[outcome].add(self.runs[at].count);
            let word = Outcome::ALL[outcome].as_str();
            let series: &Family<Histogram> = &metrics.job_attempt_duration_seconds;
            let durations = of_kind.durations[outcome]
                .get_or_init(|| series.with(&[&self.queue.queue, of_kind.kind, word]));
            self.runs[at].flush(durations);
        }
        if self.waits.count > 0 {
            self.waits.flush(&self.queue.waits);
        }
    }
}

impl Runs {
    fn add(&mut self, took: Duration) {
        let us = micros(took);
        self.count += 1;
        self.sum_us += us;
        self.buckets[bucket_of(LONG_US, us)] += 1;
    }

    fn flush(&mut self, histogram: &Histogram) {
        for (bucket, count) in self.buckets.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
            histogram.add(bucket, u64::from(std::mem::take(count)));
        }
        histogram.add_sum(self.sum_us);
        (self.count, self.sum_us) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Telemetry;

    #[test]
    fn a_batch_is_added_once_and_whole() {
        let telemetry = Telemetry::default();
        let metrics = telemetry.metrics();
        let queue = OfQueue::new(metrics, "q", ["a", "b"].into_iter());
        let mut tally = Tally::new(queue);
        let attempt = |kind, ms| Attempt {
            kind,
            waited: Some(Duration::from_millis(20)),
            ran: Duration::from_millis(ms),
            class: Some(ErrorClass::Panic),
        };
        tally.count(&attempt("a", 1), Outcome::Done);
        tally.count(&attempt("b", 2), Outcome::Dead);
        tally.count(&attempt("b", 7), Outcome::Dead);
        tally.count(&attempt("unserved", 7), Outcome::Dead);
        tally.count(&attempt("a", 1), Outcome::Retry);
        assert_eq!(metrics.job_attempts_total.with(&["q", "b", "dead"]).get(), 0);
        tally.flush(metrics);
        tally.flush(metrics);
        assert_eq!(metrics.job_attempts_total.with(&["q", "a", "done"]).get(), 1);
        assert_eq!(metrics.job_attempts_total.with(&["q", "b", "dead"]).get(), 2);
        let held = metrics.job_attempt_duration_seconds.with(&["q", "b", "dead"]).held();
        assert_eq!((held.counts[0], held.counts[1], held.sum_us), (1, 1, 9_000));
        let waits = metrics.job_wait_seconds.with(&["q"]).held();
        assert_eq!((waits.counts[2], waits.sum_us), (4, 80_000));
        assert_eq!(metrics.job_retries_total.with(&["q", "panic"]).get(), 1);
    }

    #[test]
    fn outcomes_stand_in_the_order_of_their_numbers() {
        for (at, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, at);
        }
    }
}
