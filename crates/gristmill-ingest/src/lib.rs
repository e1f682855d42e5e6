//! Jobs by HTTP: a producer like any other, for those that speak neither Rust nor Redis.
//!
//! In reading order:
//!
//! * [`Ingest`]: listens, serves connections, leaves when asked to.
//! * `answer`: the table of paths; who may ask; one response for every request.
//! * `jobs`: a body of a request as jobs, or why not; what became of each. [`described`]: one of them.
//! * `body`: a body in bounded memory and time. `tokens`: who may ask, read again when their file changes.
//! * [`explain`]: what the program that runs this tells about a job.
//! * `response`: every response there is; [`OPENAPI`] documents them, and is tested against the server.
//!
//! Invariants: nothing of a body is looked at before its sender is known; a body is enqueued as a whole or not at all as
//! far as it is to blame, and where Redis or a full queue is, each job has its own answer; neither tokens nor payloads are
//! logged.

mod answer;
mod body;
pub mod config;
pub mod described;
pub mod explain;
mod jobs;
mod response;
mod server;
mod tokens;

pub use config::IngestConfig;
pub use explain::{Explain, ExplainError, Explaining};
pub use server::{Ingest, Left, StartError};

/// The OpenAPI 3.1 document that `GET /v1/openapi.json` answers.
pub const OPENAPI: &str = include_str!("../openapi.json");
