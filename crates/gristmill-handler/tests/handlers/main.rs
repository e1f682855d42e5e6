//! The contract between a node and a user's handlers, through the public API alone.
//!
//! `fixture` makes deliveries and polls runs; the rest is one module per question.

#![allow(clippy::unwrap_used, clippy::expect_used)] // the lint knows `#[test]` functions, not their helpers

mod allocations;
mod answers;
mod arguments;
mod batches;
mod fixture;
mod payloads;
mod redelivery;
mod refusals;
mod scope;
mod worker;
