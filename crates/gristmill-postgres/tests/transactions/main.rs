//! One run with a transaction, against a real Postgres and without a node: what commits, what does not, and how it ends.
//!
//! * `world`: a cluster, its tables, and deliveries
//! * `ends`: each way in which a run can end
//! * `rivals`: two runs of one job at once
//! * `faults`: Postgres is killed, connections break
//! * `connections`: handed from run to run
//! * `tables`: migrations, pruning, and the table of the docs

#![allow(clippy::unwrap_used, reason = "all of it is a test; clippy excuses test functions only")]

mod connections;
mod ends;
mod faults;
mod rivals;
mod tables;
mod world;
