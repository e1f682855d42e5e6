//! Handlers that live outside this program, from configuration alone: kinds served by an HTTP request or by a command.
//!
//! In reading order:
//!
//! * [`config`]: what is said about a kind, and what is refused;
//! * [`serve`]: a [`Remote`], the kinds of a configuration as handlers; places and limits of a run;
//! * `told`: what a handler is told about its job, the same in every form;
//! * [`outcome`], `answer`: the six words for how a run ended, and the JSON that may say more;
//! * [`http`]: one POST per run. `client` (connections, TLS), [`http::status`] (the table), `signature`, `retry_after`;
//! * [`exec`]: one process per run. `group` (a process and its children), [`exec::exit`] (the table), `tail`;
//! * `lines`: processes that stay, one JSON line in and one out.
//!
//! Invariants: what a handler may send back is bounded in bytes, and a run in time; where a run ends, for whatever
//! reason, its processes are gone; nothing of a payload and no secret is logged or put into an error.

pub mod config;
pub mod exec;
pub mod http;
mod lines;
pub mod outcome;
pub mod serve;

mod answer;
mod told;

pub use config::{ConfigError, ExecConfig, Form, HttpConfig, HttpVersion, KindConfig, Limits, Way};
pub use outcome::Outcome;
pub use serve::Remote;
