//! What a test of gristmill stands on: real servers, real processes, real faults, and a checker for what happened.
//!
//! Everything here is blocking and uses plain threads, so that it serves synchronous tests, tests of async code, the demo
//! and the bench alike. Everything started here is stopped and removed when its value is dropped, also by a panic, and
//! also when the test process itself is killed with SIGKILL (see [`guard`]).
//!
//! In reading order:
//!
//! | module | for |
//! |---|---|
//! | [`server`] | a private Redis or Valkey: start, pause, kill, restart, roll back, TLS, ACL |
//! | [`postgres`] | a private Postgres cluster: start, pause, kill, restart, ask |
//! | [`python`] | an interpreter that has what a script imports |
//! | [`process`] | any program with its lines captured: wait for a line, signal it, wait for its end |
//! | [`proxy`] | a TCP proxy that cuts, refuses, holds or diverts, *before or after* the server applied a call |
//! | [`history`] | what handlers did, written by many processes, and the checker of promises over it |
//! | [`deadline`] | waiting for a state: a condition, a name for it and a deadline; never a bare sleep |
//! | [`seed`] | one printed seed per test and a small generator that repeats it |
//! | [`guard`] | how children die with their parent |
//!
//! ```no_run
//! use gristmill_testkit::{process::Process, server::{Server, ServerOptions}};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), gristmill_testkit::Error> {
//! let server = Server::start(ServerOptions::new().appendonly(gristmill_testkit::server::Appendonly::Everysec))?;
//! let mut node = Process::spawn("my-worker", ["--redis", &server.url()], [("RUST_LOG", "info")])?;
//! node.wait_line(|line| line.text.contains("ready"), Duration::from_secs(10))?;
//! node.kill()?;
//! # Ok(()) }
//! ```
//!
//! Invariants: no server or port is shared between two values; nothing waits without a deadline; a fault is never
//! reported as injected before it is.

pub mod deadline;
pub mod error;
pub mod guard;
pub mod history;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod python;
pub mod seed;
pub mod server;

pub use deadline::{Deadline, eventually};
pub use error::Error;
