//! Load and latency beside what Redis could do at most. `cargo xtask bench` builds and starts it.
//!
//! In reading order:
//!
//! * [`plan`]: what a person may ask for; also the hidden commands of the child processes.
//! * [`jobs`]: the jobs, the same for every side, and how a queue is filled with them.
//! * [`raw`] (a tight loop of plain commands), [`ceiling`] (gristmill's own calls with no node around them), [`whole`]
//!   (a node in a process of its own, [`child`]): the three sides that a scenario alternates.
//! * [`handlers`]: what a child's handlers do, by role.
//! * [`sql`] and [`web`]: work that is done elsewhere, in Postgres or by a site, for a handler and for a bare loop.
//! * `scenario`: `drain`, `enqueue`, `latency`, `memory`, `long`, `recovery`, `unordered` (ordering none), under failures `blocked` (a key), `fail_once`,
//!   `poison`, `dead` (letters), by the clock `promote` (jobs for later) and `schedules`, and with work elsewhere `postgres`, `http`; one private server each, at least.
//! * [`rate`] and [`cost`]: figures from samples. [`report`]: the table and the last line.
//!
//! Invariants: filling a queue is never timed as draining it; all sides of a round see the same bytes on the same
//! server; a run that lost or doubled a job ends the bench with an error; while a child is timed, its parent sleeps.

mod ceiling;
mod child;
mod cost;
mod failure;
mod ground;
mod handlers;
mod jobs;
mod plan;
mod rate;
mod raw;
mod report;
mod scenario;
mod sql;
mod web;
mod whole;

use clap::Parser;
use plan::{Arguments, Command};
use std::process::ExitCode;

/// Both sides of every comparison run on the allocator that worker binaries are advised to use.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.command {
        Some(Command::Node(task)) => child::node(task),
        Some(Command::Bare(task)) => child::bare(task),
        Some(Command::Site) => web::site(),
        None => scenario::all(&arguments.plan()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::FAILURE
        }
    }
}
