//! What is told about a job: by the program that runs the server, which knows more than a producer.

use gristmill_broker::CallError;
use gristmill_job::QueueName;
use serde_json::Value;
use std::pin::Pin;

/// An explanation on its way: one JSON object, as `gristmill explain --json` prints it.
pub type Explaining = Pin<Box<dyn Future<Output = Result<Value, ExplainError>> + Send>>;

/// Tells where a job is.
pub trait Explain: Send + Sync + 'static {
    /// About the job of this id, place or dead letter, in this queue or in all.
    fn explain(&self, job: String, queue: Option<QueueName>) -> Explaining;
}

/// Why nothing is told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// There is no such queue.
    #[error("there is no queue {0}")]
    NoQueue(QueueName),
    /// The question cannot be asked so.
    #[error("{0}")]
    Question(String),
    /// Nothing is found.
    #[error("{0}")]
    NotFound(String),
    /// Redis.
    #[error(transparent)]
    Call(#[from] CallError),
}
