//! Why the bench ended early.

use gristmill_broker::create::CreateError;
use gristmill_broker::{CallError, EnqueueError};
use gristmill_job::{EncodeError, NameError};
use gristmill_node::NodeError;
use gristmill_postgres::sqlx;

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
    /// Postgres.
    #[error("Postgres: {0}")]
    Sql(#[from] sqlx::Error),
    /// Tables that were not made.
    #[error("Postgres: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// The address of a database.
    #[error(transparent)]
    Database(#[from] gristmill_postgres::DatabaseError),
    /// A kind that cannot be served.
    #[error(transparent)]
    Kind(#[from] gristmill_remote::ConfigError),
    /// A request that cannot be made.
    #[error("a request: {0}")]
    Request(#[from] hyper::http::Error),
    /// A request without an answer.
    #[error("no answer to a request: {0}")]
    NoAnswer(#[from] hyper_util::client::legacy::Error),
    /// A body that broke off.
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
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
