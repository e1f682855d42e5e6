//! What a job is. Pure: no async, no I/O, no clock, no randomness but the making of an id.
//!
//! In reading order:
//!
//! * [`name`]: the identifiers (`JobId`, `Key`, `QueueName`, `Kind`), their limits, and key to partition.
//! * [`place`]: where a job stands in the order of its key.
//! * [`envelope`]: a job on the wire, in named MessagePack.
//! * [`job`]: a job as a producer describes it, and its encoded form.
//! * [`outcome`]: what a handler may answer: effects, or an error with a class.
//! * [`retry`]: how long a job that failed waits, and how often it is tried.
//! * [`dead_letter`]: the record kept of a job that is no longer tried.
//! * [`time`]: `UnixMillis`, the only wall-clock type.
//!
//! Invariants: an identifier that was built by `new` is within its limits; what was read from Redis is kept as it is
//! (`from_stored`), so that nothing a foreign producer wrote can stop a reader.

pub mod dead_letter;
pub mod envelope;
pub mod job;
pub mod name;
pub mod outcome;
pub mod place;
pub mod retry;
pub mod time;

pub use dead_letter::{DeadLetter, DeadReason};
pub use envelope::{ContentType, Envelope, EnvelopeError, Limits};
pub use job::{EncodeError, EncodedJob, JobLimits, NewJob};
pub use name::{JobId, Key, Kind, NameError, QueueName, partition_of};
pub use outcome::{Effects, EntityChange, ErrorClass, Failure};
pub use place::Place;
pub use retry::{Backoff, RetryPolicy};
pub use time::UnixMillis;
