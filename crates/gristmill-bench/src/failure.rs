//! Why the bench ended early.

use gristmill_broker::create::CreateError;
use gristmill_broker::{CallError, EnqueueError};
use gristmill_job::{EncodeError, NameError};
use gristmill_node::NodeError;

/// The one error of the bench.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A server or process of the testkit.
    #[error(transparent)]
    Testkit(#[from] gristmill_testkit::Error),
    /// A call of the broker.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Jobs that were not taken.
    #[error(transparent)]
    Enqueue(#[from] EnqueueError),
    /// A queue that was not made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// A job that cannot be.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// A name that cannot be.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A node that did not start.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A plain command.
    #[error("a plain Redis command: {0}")]
    Redis(#[from] redis::RedisError),
    /// The operating system.
    #[error("the operating system: {0}")]
    Io(#[from] std::io::Error),
    /// A promise was broken, or the figures would mean nothing.
    #[error("{0}")]
    Broken(String),
}

/// What everything here returns.
pub(crate) type Outcome<T> = Result<T, Failure>;

/// An error unless `holds`.
pub(crate) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Outcome<()> {
    if holds { Ok(()) } else { Err(Failure::Broken(what())) }
}
