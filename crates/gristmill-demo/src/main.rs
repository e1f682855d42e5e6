//! `cargo xtask demo`: real changes of files, projected into entities by three nodes of which one is killed and one is
//! drained, and then the account of it.
//!
//! In reading order:
//! * [`args`]: what a person may say;
//! * [`input`]: the events and the truth they must lead to, from a git repository, from files, or made;
//! * [`projection`]: the job, its handler's work and the entity's state: what is being demonstrated;
//! * [`worker`]: one node process (the hidden subcommand `node`) · [`fleet`]: starting, killing and draining them;
//! * [`schedule`] and [`producer`]: which job is enqueued when, and which twice;
//! * [`fault_free`] and [`paced`]: the two runs · [`faults`]: what happens to nodes in the second;
//! * [`compare`] and [`account`]: what came of it, beside the truth and the histories;
//! * [`plant`]: breaking a promise on purpose, to show that the account would tell.
//!
//! Exit codes: 0 every promise kept · 1 one was broken, or the demo could not run to its end · 2 wrong arguments or
//! input · 130 interrupted. Whatever the end, every process is stopped and every file is removed.

mod account;
mod args;
mod compare;
mod demo;
mod failure;
mod fault_free;
mod faults;
mod fleet;
mod history_tail;
mod input;
mod paced;
mod plant;
mod producer;
mod progress;
mod projection;
mod schedule;
mod worker;

use args::{Args, Command};
use clap::Parser;
use failure::Failure;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return ended(Err(Failure::Run(format!("no async runtime can be started: {error}")))),
    };
    match &args.command {
        Some(Command::Node { order }) => ended(runtime.block_on(worker::run(order))),
        None => ended(runtime.block_on(until_interrupted(&args))),
    }
}

/// Dropping the demo's future is what stops and removes everything.
async fn until_interrupted(args: &Args) -> Result<(), Failure> {
    let listen =
        |kind| signal(kind).map_err(|error| Failure::Run(format!("signals cannot be heard: {error}")));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let mut hangup = listen(SignalKind::hangup())?;
    tokio::select! {
        result = demo::run(args) => result,
        _ = interrupt.recv() => Err(Failure::Interrupted),
        _ = terminate.recv() => Err(Failure::Interrupted),
        _ = hangup.recv() => Err(Failure::Interrupted),
    }
}

fn ended(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::Broken) {
                eprintln!("demo: {failure}");
            }
            ExitCode::from(failure.code())
        }
    }
}
