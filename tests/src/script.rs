//! What a job tells its handler to do.

use serde::{Deserialize, Serialize};

/// The kind all scripted jobs have.
pub const KIND: &str = "scripted";
/// The kind of scripted jobs that are asked to stop after 100 ms, stopped after 300 ms, and tried twice.
pub const LIMITED: &str = "limited";

/// The kind whose interrupted runs a person looks at; served with `--kinds`, as the ones below.
pub const CAREFUL: &str = "careful";
/// The kind whose interrupted runs a function looks at.
pub const BOOKED: &str = "booked";
/// The kind that runs at most once.
pub const ONCE: &str = "once";
/// The kind that `--max-running` and `--rate` limit across the fleet; every node serves it.
pub const SCARCE: &str = "scarce";
/// The kind whose jobs are handled up to eight at a time; every node serves it.
pub const BATCHED: &str = "batched";
/// A kind that a newer release brings.
pub const NEWER: &str = "newer";

/// How a handler ends its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Death {
    /// By `abort`.
    Abort,
    /// By SIGKILL.
    Kill,
    /// By asking for more memory than there is.
    Memory,
}

/// What a look at an interrupted run finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Look {
    /// It did its work.
    #[default]
    Done,
    /// It did not.
    Again,
    /// It cannot be told.
    Person,
    /// Nothing: the look ends its process.
    Dies,
}

/// The payload of a scripted job, as JSON. By default it does nothing and succeeds.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// Waits so long, in ms, at an await.
    pub wait_ms: u64,
    /// Waits so long instead, in ms, where the job was recovered from another owner.
    pub recovered_wait_ms: Option<u64>,
    /// Blocks its thread so long, in ms.
    pub block_ms: u64,
    /// Does not block where the job was recovered from another owner.
    pub recovered_free: bool,
    /// Fails this attempt and those before it, transiently.
    pub fail_until: u32,
    /// Fails for good.
    pub permanent: bool,
    /// Asks to be run again after so long, in ms, the first time in each process.
    pub snooze_ms: u64,
    /// Asks to be discarded.
    pub discard: bool,
    /// Panics this attempt and those before it.
    pub panic_until: u32,
    /// Ends early, and well, when cancelled softly.
    pub heeds_cancel: bool,
    /// Ends early when cancelled softly, with an error that would be tried again.
    pub fails_when_cancelled: bool,
    /// Writes its version as the state of its entity, …
    pub effect: bool,
    /// … or this.
    pub state: Option<String>,
    /// Deletes its entity.
    pub delete: bool,
    /// Ends its process.
    pub dies: Option<Death>,
    /// So long after its start, in ms.
    pub dies_after_ms: u64,
    /// Only while this switch of the fleet is on.
    pub dies_while: Option<String>,
    /// It fails, for good or not, only while this switch of the fleet is on.
    pub fails_while: Option<String>,
    /// Where it fails, it says that it can be tried again after so long, in ms.
    pub retry_after_ms: u64,
    /// What a look at an interrupted run of it finds.
    pub look: Look,
    /// Emits a job of the same kind and key into this queue.
    pub emit: Option<String>,
    /// Which is due so many ms later.
    pub emit_in_ms: u64,
}
