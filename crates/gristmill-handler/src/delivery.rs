//! What a node hands over, and what it gets back.

use crate::cancellation::Cancellation;
use crate::options::KindOptions;
use bytes::Bytes;
use gristmill_job::{DeadReason, Effects, Failure, JobId, Key, Place, QueueName, TraceContext};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// One delivery of a job, as the node hands it over.
#[derive(Clone)]
pub struct Delivery {
    /// The job's id (field `i`).
    pub id: JobId,
    /// Its key (field `k`).
    pub key: Key,
    /// Its envelope (field `d`), not decoded yet.
    pub envelope: Bytes,
    /// Where it stands in the order of its key.
    pub place: Place,
    /// Which attempt this is; 1 for the first run.
    pub attempt: u32,
    /// Whether it was taken back from an owner that is gone, so that an earlier run may have happened unseen.
    pub recovered: bool,
    /// Whether an earlier run was interrupted and its kind says how to look: `Registry::start` then looks, and runs no
    /// handler.
    pub reconcile: bool,
    /// By which the node stops this run.
    pub cancellation: Cancellation,
    /// The queue it came from.
    pub queue: QueueName,
    /// The span of this run, where attempts are traced.
    pub trace: Option<TraceContext>,
}

impl fmt::Debug for Delivery {
    /// Without key and payload, which belong to the user.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("queue", &self.queue.as_str())
            .field("id", &format_args!("{}", self.id))
            .field("place", &format_args!("{}", self.place))
            .field("attempt", &self.attempt)
            .field("recovered", &self.recovered)
            .field("reconcile", &self.reconcile)
            .field("envelope_bytes", &self.envelope.len())
            .finish_non_exhaustive()
    }
}

/// A run, ready to be polled. It may panic where the user's code does.
pub type RunFuture = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// What became of a delivery.
pub enum Started {
    /// It runs when `future` is polled.
    Run {
        /// The run. Dropping it stops the handler at its next await.
        future: RunFuture,
        /// What settle needs to know of the job.
        facts: Facts,
    },
    /// Nobody here can run it.
    Refused {
        /// [`DeadReason::Undecodable`] or [`DeadReason::UnknownKind`].
        reason: DeadReason,
        /// What was expected and what came.
        error: String,
        /// What could be read of the job.
        facts: Facts,
    },
}

impl fmt::Debug for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run { facts, .. } => f.debug_struct("Run").field("facts", facts).finish_non_exhaustive(),
            Self::Refused { reason, error, facts } => f
                .debug_struct("Refused")
                .field("reason", reason)
                .field("error", error)
                .field("facts", facts)
                .finish(),
        }
    }
}

/// What settle needs to know of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The producer's number for the state of the entity; 0 where the envelope cannot be read.
    pub version: u64,
    /// Whether the id is the producer's; true where the envelope cannot be read, so that its mark is looked after.
    pub own_id: bool,
    /// How many attempts the job says it has in all.
    pub max_attempts: Option<u32>,
    /// Its kind, where a handler of this registry serves it.
    pub kind: Option<&'static str>,
    /// What was said about its kind when it was registered, where anything was.
    pub options: Option<Arc<KindOptions>>,
}

impl Facts {
    /// Of a job whose envelope cannot be read.
    pub(crate) const UNREADABLE: Self =
        Self { version: 0, own_id: true, max_attempts: None, kind: None, options: None };
}

/// How a run ended.
#[derive(Debug)]
pub enum Answer {
    /// Well; what is to be written with its acknowledgement.
    Done(Effects),
    /// Not well.
    Failed(Failure),
    /// Not now: again after this wait, uncharged.
    Snoozed(Duration),
    /// Never, for this reason: done without effect.
    Discarded(String),
    /// Its effect is there already, by an earlier run of the same id: done without effect.
    Duplicate,
    /// Its version is not newer than what is there: done without effect.
    Stale(String),
    /// The look at an interrupted run found that its work was not done: the handler runs next, uncharged.
    RunAgain,
    /// Nobody knows whether its effect happened, for this reason: a dead letter `review`.
    Review(String),
}
