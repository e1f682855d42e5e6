//! What a handler may answer.

use crate::job::NewJob;
use crate::name::QueueName;
use bytes::Bytes;
use std::time::Duration;

/// What a run wants written together with its acknowledgement, in one script.
#[derive(Debug, Clone, Default)]
pub struct Effects {
    /// The new state of the job's own entity (the job's key); refused as stale unless the job's version is strictly newer.
    pub entity: Option<EntityChange>,
    /// Jobs to emit, each named after its parent and position.
    pub emit: Vec<(QueueName, NewJob)>,
}

impl Effects {
    /// No effect at all.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// The entity's new state, any bytes.
    #[must_use]
    pub fn put(state: impl Into<Bytes>) -> Self {
        Self { entity: Some(EntityChange::Put(state.into())), emit: Vec::new() }
    }

    /// The entity is gone. A tombstone keeps its version.
    #[must_use]
    pub fn delete() -> Self {
        Self { entity: Some(EntityChange::Delete), emit: Vec::new() }
    }

    /// One more job, on its way to `queue` once this one is settled; a delay of its own counts from then.
    #[must_use]
    pub fn and_emit(mut self, queue: QueueName, job: NewJob) -> Self {
        self.emit.push((queue, job));
        self
    }

    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entity.is_none() && self.emit.is_empty()
    }
}

/// A change of the job's own entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntityChange {
    /// The new state, any bytes.
    Put(Bytes),
    /// Deleted; the version stays as a tombstone.
    Delete,
}

/// Whether trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// Will pass by itself: tried again with backoff.
    Transient,
    /// Will not pass: a dead letter at once.
    Permanent,
    /// The handler did not say: tried again, then exhausted.
    Unknown,
    /// The handler panicked: an attempt like any other.
    Panic,
    /// The run went past its hard limit and was stopped: an attempt like any other.
    Timeout,
}

impl ErrorClass {
    /// The word used in metrics, logs and dead letters.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Permanent => "permanent",
            Self::Unknown => "unknown",
            Self::Panic => "panic",
            Self::Timeout => "timeout",
        }
    }
}

/// An answer of a run that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Whether trying again can help.
    pub class: ErrorClass,
    /// The error and its sources, outermost first.
    pub chain: Vec<String>,
    /// The least wait before the next attempt, where the dependency said one; the policy's wait may be longer.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure that says nothing about when to try again.
    #[must_use]
    pub fn new(class: ErrorClass, chain: Vec<String>) -> Self {
        Self { class, chain, retry_after: None }
    }
}
