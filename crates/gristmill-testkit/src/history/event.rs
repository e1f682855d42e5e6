//! What is written, and the clock it is written by.

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The job of an event.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Job {
    /// The job's id; a job that is enqueued twice under one id is one job.
    pub id: String,
    /// What must stay in order.
    pub key: String,
    /// The producer's number for the state of the key.
    pub version: u64,
}

impl Job {
    /// A job of these.
    pub fn new(id: impl Into<String>, key: impl Into<String>, version: u64) -> Self {
        Self { id: id.into(), key: key.into(), version }
    }
}

/// How a run ended, as the handler saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The handler succeeded.
    Done,
    /// The handler answered with an error, or panicked.
    Failed,
    /// The handler was stopped before it ended.
    Stopped,
}

/// One line of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// A producer was told that this job is accepted (or known already).
    Enqueued {
        /// Job id.
        id: String,
        /// Its key.
        key: String,
        /// Its version.
        version: u64,
    },
    /// A handler's first line.
    Started {
        /// Job id.
        id: String,
        /// Its key.
        key: String,
        /// Its version.
        version: u64,
        /// One start of a process: its incarnation, never reused by a later start.
        node: String,
        /// The attempt as the handler was told.
        attempt: u32,
        /// [`now_us`].
        at_us: u64,
    },
    /// A handler's last line.
    Ended {
        /// Job id.
        id: String,
        /// Its key.
        key: String,
        /// Its version.
        version: u64,
        /// As in `Started`.
        node: String,
        /// As in `Started`.
        attempt: u32,
        /// [`now_us`].
        at_us: u64,
        /// How it ended.
        outcome: Outcome,
    },
}

/// Microseconds of this machine's monotonic clock (since boot).
///
/// All processes of one machine read the same clock, and it never jumps, so the times of a history compare across its files.
/// That is all the checker needs; histories of two machines must not be mixed.
pub fn now_us() -> u64 {
    match clock_gettime(ClockId::CLOCK_MONOTONIC) {
        Ok(now) => now.tv_sec() as u64 * 1_000_000 + now.tv_nsec() as u64 / 1_000,
        // Only an unknown clock or a bad address can fail, and both are fixed here.
        Err(errno) => panic!("cannot read the monotonic clock: {errno}"),
    }
}
