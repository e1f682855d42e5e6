//! What is being demonstrated: a job says how a file changed, and its handler's answer becomes the state of the
//! entity of that path.

use crate::input::Op;
use gristmill_job::Effects;
use serde::{Deserialize, Serialize};

/// The one kind of job.
pub(crate) const KIND: &str = "file.changed";
/// The one queue.
pub(crate) const QUEUE: &str = "files";

/// A file as the tree knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileState {
    pub(crate) mode: String,
    pub(crate) blob: String,
}

/// The payload of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) op: Op,
    #[serde(flatten)]
    pub(crate) state: FileState,
}

/// A change as the effect that is written with its job's acknowledgement.
pub(crate) fn effects(change: &Change) -> Result<Effects, serde_json::Error> {
    match change.op {
        Op::Add | Op::Modify => Ok(Effects::put(serde_json::to_vec(&change.state)?)),
        Op::Delete => Ok(Effects::delete()),
    }
}
