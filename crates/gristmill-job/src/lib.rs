//! What a job is. Pure: no async, no I/O, no clock, no randomness but the making of an id.
//!
//! In reading order:
//!
//! * [`name`]: the identifiers (`JobId`, `Key`, `QueueName`, `Kind`), their limits, and key to partition.
//! * [`place`]: where a job stands in the order of its key.
//! * [`envelope`]: a job on the wire, in named MessagePack.
//! * [`job`]: a job as a producer describes it, and its encoded form.
//! * [`outcome`]: what a handler may answer: effects, or an error with a class.
//! * [`retry`]: how long a job that failed waits, how often it is tried, and until what age.
//! * [`retry_budget`]: how many retries a node affords.
//! * [`limit`]: how much of a kind may run across the fleet, at a time and in a stretch of time.
//! * [`history`]: what happened to a job so far: its attempts and its crashes.
//! * [`dead_letter`]: the record kept of a job that is no longer tried.
//! * [`trace`]: the trace a job belongs to, and those of its attempts.
//! * [`time`]: `UnixMillis`, the only wall-clock type.
//!
//! Invariants: an identifier that was built by `new` is within its limits; what was read from Redis is kept as it is
//! (`from_stored`), so that nothing a foreign producer wrote can stop a reader.

pub mod date;
pub mod dead_letter;
pub mod due;
pub mod envelope;
pub mod history;
pub mod job;
pub mod limit;
pub mod name;
pub mod outcome;
pub mod place;
pub mod retry;
pub mod retry_budget;
pub mod time;
pub mod trace;

pub use dead_letter::{DeadLetter, DeadReason};
pub use due::{Due, MAX_DELAY, TooFar};
pub use envelope::{ContentType, Envelope, EnvelopeError, Limits};
pub use history::{AttemptRecord, CrashRecord, History};
pub use job::{EncodeError, EncodedJob, JobLimits, NewJob};
pub use limit::{Limit, Rate, RatePer};
pub use name::{JobId, Key, Kind, NameError, QueueName, partition_of};
pub use outcome::{Effects, EntityChange, ErrorClass, Failure};
pub use place::Place;
pub use retry::{Backoff, RetryPolicy};
pub use retry_budget::RetryBudget;
pub use time::UnixMillis;
pub use trace::{TraceContext, trace_id};
