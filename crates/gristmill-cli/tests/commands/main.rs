//! The commands as a person uses them: real processes, real signals, a private server each.
//!
//! * [`fixture`]: running the program and reading what it said;
//! * [`enqueue`]: lines in, and what is said about the bad ones;
//! * [`dead`]: dead letters listed, shown and discarded, and what is noted of it;
//! * [`cancel`]: jobs taken back;
//! * [`pause`]: what does not start, and until when;
//! * [`purge`]: a queue emptied;
//! * [`replay`]: dead letters brought back;
//! * [`explain`]: where a job is and why it does not run;
//! * [`keys`]: keys that wait, released and skipped, and `kinds`;
//! * [`looking`]: `queues`, `dead list`, `doctor`, `config show`;
//! * [`postgres`]: tables, relay, pruning, and what `doctor` says of them;
//! * [`producers`]: a producer in another language;
//! * [`health`], [`monitor`]: what processes answer about themselves and about queues; [`asked`] is how they are asked;
//! * [`traces`]: what a [`collector`] hears of jobs, whatever becomes of them;
//! * [`unanswered`]: commands whose answer is lost, said again;
//! * [`unordered`]: what people see of a queue with ordering none;
//! * [`windows`]: how long ids are known, queue by queue;
//! * [`node`]: start, signals, exit codes;
//! * [`others`]: kinds that others serve, from settings alone, in Python;
//! * [`dev`]: a private server that leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "all of it is a test; clippy excuses test functions only")]

mod asked;
mod cancel;
#[cfg(feature = "otlp")]
mod collector;
mod dead;
mod dev;
mod enqueue;
mod explain;
mod fixture;
mod health;
mod keys;
mod looking;
mod monitor;
mod node;
mod others;
mod pause;
#[cfg(feature = "postgres")]
mod postgres;
mod producers;
mod purge;
mod replay;
mod schedules;
#[cfg(feature = "otlp")]
mod traces;
mod unanswered;
mod unordered;
mod windows;
