//! Jobs from Redis streams: in order per key across crashes and deploys, each effect once.
//!
//! The one crate a user adds. With the feature `worker` (on by default) a program of one's own is the whole command line
//! with its own handlers:
//!
//! ```no_run
//! use gristmill::{Effects, HandlerError, Registry};
//!
//! async fn reprice(cents: u64) -> Result<Effects, HandlerError> {
//!     Ok(Effects::put(cents.to_string()))
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     gristmill::main(Registry::new().kind("price.changed", reprice))
//! }
//! ```
//!
//! `your-program node --queues orders:64` then serves a queue, and `your-program --help` lists the rest. With the feature
//! `producer` (on by default) a program enqueues jobs:
//!
//! ```no_run
//! use gristmill::{Broker, NewJob, QueueName, RedisConfig};
//!
//! # async fn enqueue() -> Result<(), Box<dyn std::error::Error>> {
//! let broker = Broker::connect(RedisConfig::new("redis://127.0.0.1:6379"));
//! let job = NewJob::new("price.changed", "apple", &120)?.with_id("event-7")?.with_version(7);
//! let enqueued = broker.enqueue(&QueueName::new("orders")?, job).await?;
//! println!("{} has its place", enqueued.id);
//! # Ok(()) }
//! ```
//!
//! In reading order: what a job is ([`NewJob`], [`Effects`]), then [`Broker`], then [`Registry`], [`Context`], [`State`] and
//! [`HandlerError`], with the feature `postgres` `postgres::Tx`, for handlers that must not be repeated [`Redelivery`], then [`main`], for recurring jobs [`Schedule`] with [`main_with`], and, for programs with a command line of their own, [`run_node`] with [`NodeConfig`].

pub use gristmill_job::{
    Backoff, ContentType, Due, Effects, EncodeError, EncodedJob, ErrorClass, JobId, JobLimits, Key, Kind,
    Limit, Limits, NameError, NewJob, Place, QueueName, Rate, RatePer, RetryBudget, RetryPolicy, UnixMillis,
    partition_of,
};

#[cfg(feature = "producer")]
pub use gristmill_broker::{
    Broker, CallError, Connection, EnqueueError, Enqueued, QueueDefinition, create::CreateError,
};

#[cfg(any(feature = "producer", feature = "worker"))]
pub use gristmill_broker::RedisConfig;

#[cfg(feature = "worker")]
pub use gristmill_handler::{
    BatchHandler, BatchOptions, Cancellation, Classify, Context, DeliverySemantics, FromDelivery,
    FromPayload, Handler, HandlerError, Headers, IntoAnswer, IntoAnswers, Item, KindDescription, KindOptions,
    Look, Needs, Raw, Reconciled, Redelivery, Registry, RegistryError, RegistryFault, Shared, Stage, State,
    WithClass,
};

#[cfg(feature = "worker")]
pub use gristmill_schedule::{CatchUp, Overlap, Schedule, ScheduleError, Timing};

#[cfg(feature = "postgres")]
pub use gristmill_postgres as postgres;

#[cfg(feature = "worker")]
pub use gristmill_node::{ConfigError, Counts, DrainReport, Node, NodeConfig, NodeError, QueueConfig};

#[cfg(feature = "worker")]
pub use gristmill_cli::{
    exit::Failure,
    main, main_with,
    node::{Left, run as run_node},
    settings::{Layers, Settings, SettingsError},
};
