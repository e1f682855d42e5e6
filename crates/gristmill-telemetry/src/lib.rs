//! What a process tells of itself: log lines, metrics and traces, from one table of events.
//!
//! In reading order:
//!
//! * [`events`]: everything that may happen, named once, with its log line and the metrics that it moves;
//! * [`metrics`]: every metric, and the text that Prometheus reads;
//! * [`Telemetry`]: the handle that whoever tells something has; a cheap clone;
//! * [`tally`]: what became of runs, counted in batches, since there may be hundreds of thousands a second;
//! * [`trace`]: spans, which of them are kept, and the queue from which an exporter takes them;
//! * [`pulse`]: ticks by which a runtime or an actor shows that it moves.
//!
//! Invariants: nothing here waits or speaks to a network; no label has a value that a job chooses; no payload, no key and
//! no secret is told.

pub mod events;
pub mod metrics;
pub mod pulse;
pub mod tally;
pub mod trace;

mod handle;

pub use handle::{Stage, Telemetry};
