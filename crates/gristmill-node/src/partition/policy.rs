//! What a queue and its kinds say about jobs that do not simply succeed.

use crate::limits::Limits;
use crate::worker::run_queue::lock;
use gristmill_handler::Rule;
use gristmill_job::retry_budget::{Bucket, RetryBudget};
use gristmill_job::{QueueName, RetryPolicy};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Of one queue.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    /// How failed jobs are tried again.
    pub(crate) retry: RetryPolicy,
    /// Deaths of processes after which a job is given up.
    pub(crate) crash_budget: u32,
    /// Whether a lane waits for a person after a dead letter.
    pub(crate) hold: bool,
    /// How long a job waits for a node that serves its kind.
    pub(crate) unknown_kind_wait: Duration,
    /// Largest envelope that is looked into, in bytes.
    pub(crate) max_envelope_bytes: usize,
    /// What share of the runs may be retries.
    pub(crate) budget: Budget,
    /// What the kinds say.
    pub(crate) rules: Rules,
    /// Which kinds are limited across the fleet.
    pub(crate) limits: Limits,
    /// Where attempts are traced: the queue, and the share of them that is kept whatever they come to.
    pub(crate) traced: Option<(QueueName, f64)>,
}

#[cfg(test)]
impl Policy {
    /// Of a queue that says nothing, with a retry policy.
    pub(crate) fn with(retry: RetryPolicy) -> Self {
        Self {
            retry,
            crash_budget: 3,
            hold: false,
            unknown_kind_wait: Duration::from_secs(3600),
            max_envelope_bytes: 1 << 20,
            budget: Budget::new(RetryBudget { share: 0.2, per_second: 1e9 }, Instant::now()),
            rules: Rules::default(),
            limits: Limits::default(),
            traced: None,
        }
    }
}

/// A queue's retry budget at this node, shared by its partitions.
#[derive(Clone)]
pub(crate) struct Budget {
    bucket: Arc<Mutex<Bucket>>,
    per_second: f64,
    /// When the last retry that waits for the budget may come again.
    next: Arc<Mutex<Instant>>,
    origin: Instant,
}

/// Longest wait for the budget.
const LONGEST_TURN: Duration = Duration::from_secs(60);

impl Budget {
    pub(crate) fn new(budget: RetryBudget, origin: Instant) -> Self {
        let bucket = Arc::new(Mutex::new(Bucket::new(budget, Duration::ZERO)));
        Self { bucket, per_second: budget.per_second, next: Arc::new(Mutex::new(origin)), origin }
    }

    /// So many first runs start.
    pub(crate) fn ran(&self, runs: usize, now: Instant) {
        let mut bucket = lock(&self.bucket);
        for _ in 0..runs {
            bucket.ran(now.saturating_duration_since(self.origin));
        }
    }

    /// When a retry that the budget does not afford may ask again: one after another at the budget's pace, so that many cost no
    /// more than few.
    pub(crate) fn turn(&self, now: Instant) -> Duration {
        let mut next = lock(&self.next);
        let step = Duration::try_from_secs_f64(1.0 / self.per_second).unwrap_or(LONGEST_TURN);
        *next = ((*next).max(now) + step).min(now + LONGEST_TURN);
        next.saturating_duration_since(now)
    }

    /// Whether a retry may start.
    pub(crate) fn take(&self, now: Instant) -> bool {
        lock(&self.bucket).take(now.saturating_duration_since(self.origin))
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Budget")
    }
}

/// What is said of the kind of an envelope.
type Ask = dyn Fn(&[u8]) -> Rule + Send + Sync;

/// What the kinds say; nothing where all of them are as kinds are by default, so that no envelope is looked into.
#[derive(Clone, Default)]
pub(crate) struct Rules(Option<Arc<Ask>>);

impl Rules {
    pub(crate) fn new(ask: impl Fn(&[u8]) -> Rule + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(ask)))
    }

    /// What the kind of this envelope says.
    pub(crate) fn of(&self, envelope: &[u8]) -> Option<Rule> {
        self.0.as_ref().map(|ask| ask(envelope))
    }

    pub(crate) fn are_none(&self) -> bool {
        self.0.is_none()
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.are_none() { "Rules(none)" } else { "Rules" })
    }
}
