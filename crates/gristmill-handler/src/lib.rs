//! What users implement: handlers, what they are given, and what they may answer. Knows no broker and no node.
//!
//! In reading order:
//!
//! * [`delivery`]: what a node hands over, and what it gets back.
//! * [`registry`]: which handler serves which kind; [`Registry::start`] is the node's only door.
//! * [`handler`]: the async functions that are handlers, and what they may return.
//! * [`batch`]: handlers of many jobs at a time.
//! * [`payload`]: the first argument, typed or [`Raw`]; `nesting` refuses what would hurt a decoder.
//! * [`extract`]: the other arguments ([`State`], [`Context`], your own).
//! * [`scope`]: what an argument does after the handler's answer, such as to commit.
//! * [`context`]: what a run may ask about itself.
//! * [`cancellation`]: asking a run to stop, in two stages.
//! * [`polls`]: work of a run that is polled elsewhere, in sight of the watchdog.
//! * [`redelivery`]: what a kind says about runs that may have happened already.
//! * [`reconcile`]: looking whether an interrupted run did its work.
//! * [`error`]: errors with a class, and the chain that a dead letter keeps; snooze, discard and review.
//! * [`options`]: a kind's own retry policy, limits and semantics.
//!
//! Invariants: all user code (decoding a payload, extractors, the handler) runs inside the returned future, so that
//! whoever polls it can catch a panic; what a foreign producer wrote never panics here; the way of a job through
//! [`Registry::start`] allocates its boxed future and what its payload needs, nothing else (headers aside, which the
//! envelope's reader lists).

pub mod batch;
pub mod cancellation;
pub mod context;
pub mod delivery;
pub mod error;
pub mod extract;
pub mod handler;
mod nesting;
pub mod options;
pub mod payload;
pub mod polls;
pub mod reconcile;
pub mod redelivery;
pub mod registry;
pub mod scope;

pub use batch::{BatchHandler, BatchOptions, IntoAnswers, Item};
pub use cancellation::{Cancellation, Stage};
pub use context::{Context, Headers};
pub use delivery::{Answer, Delivery, Facts, RunFuture, Started};
pub use error::{Classifier, Classify, HandlerError, WithClass};
pub use extract::{FromDelivery, Needs, Shared, State};
pub use handler::{Handler, IntoAnswer};
pub use options::KindOptions;
pub use payload::{FromPayload, Raw};
pub use polls::Polls;
pub use reconcile::{Look, Reconciled};
pub use redelivery::{DeliverySemantics, KindDescription, Redelivery, Rule};
pub use registry::{Registry, RegistryError, RegistryFault};
pub use scope::{Close, Closing, Scope};
