//! The shop as a newcomer runs it, against a real Postgres and a real Redis.
//!
//! * `world`: the processes, the servers, and the holds that stop a job at a step
//! * `crashes`: everything is killed, and answers are lost, at each step of a job
//! * `deploy`: events that come doubled and late, while every node is replaced

#![allow(clippy::unwrap_used, reason = "all of it is a test; clippy excuses test functions only")]

mod crashes;
mod deploy;
mod world;
