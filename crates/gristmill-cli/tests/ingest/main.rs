//! `gristmill ingest` as its clients meet it: a real process, real HTTP, a private server each. Every response that any of
//! these tests sees is held against the OpenAPI document.
//!
//! * [`fixture`]: the server, and requests to it; [`client`]: HTTP by hand; [`document`]: what OpenAPI says of a response;
//! * [`documented`]: every documented status and code is produced;
//! * [`jobs`]: what goes in, in every form, and what is said of each;
//! * [`refused`]: wrong input of every sort; [`tokens`]: who may ask;
//! * [`leaving`]: signals, and Redis that goes and comes back.

#![allow(clippy::unwrap_used, reason = "all of it is a test; clippy excuses test functions only")]

mod client;
mod document;
mod documented;
mod fixture;
mod jobs;
mod leaving;
mod refused;
mod tokens;
