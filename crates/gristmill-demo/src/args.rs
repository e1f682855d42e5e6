//! What a person may say.

use crate::plant::Plant;
use clap::{Parser, Subcommand};
use gristmill_testkit::seed::SplitMix64;
use std::{
    hash::{BuildHasher, Hasher, RandomState},
    path::PathBuf,
};

/// See gristmill work: the changes of a git history become jobs, three nodes project them into entities, one node is
/// killed and another drained on the way, and the result is compared with the repository's own tree.
#[derive(Debug, Parser)]
#[command(name = "demo", args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// Take the history of this git repository, instead of the one it stands in
    #[arg(long, value_name = "PATH", conflicts_with_all = ["events", "truth", "made"])]
    pub(crate) repo: Option<PathBuf>,

    /// Take events from this file: a JSON object a line (id, key, version, op, mode, blob), plain or gzip
    #[arg(long, value_name = "FILE", requires = "truth", conflicts_with = "made")]
    pub(crate) events: Option<PathBuf>,

    /// The truth the events must lead to: lines of path<TAB>mode<TAB>blob, plain or gzip
    #[arg(long, value_name = "FILE", requires = "events")]
    pub(crate) truth: Option<PathBuf>,

    /// Make an input of this many events from the seed
    #[arg(long, value_name = "EVENTS", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) made: Option<u32>,

    /// How long the paced run enqueues, in seconds
    #[arg(long, default_value = "20", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,

    /// When a node is killed: percent of the input enqueued
    #[arg(long, default_value = "30", value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=95))]
    pub(crate) kill_at: u8,

    /// When another is drained: percent of the input enqueued
    #[arg(long, default_value = "60", value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=95))]
    pub(crate) drain_at: u8,

    /// Break a promise on purpose: the field of the last line that it turns is named in the output
    #[arg(long, value_enum)]
    pub(crate) plant: Option<Plant>,

    /// Partitions of the queue
    #[arg(long, default_value = "8", value_parser = clap::value_parser!(u16).range(3..=1024))]
    pub(crate) partitions: u16,

    /// How long a lease is granted for, in milliseconds
    #[arg(long, default_value = "2000", value_name = "MS", value_parser = clap::value_parser!(u64).range(500..=300_000))]
    pub(crate) lease_ms: u64,

    /// Repeat a run's choices: what is enqueued twice or out of order, how long handlers take, what a made input holds
    #[arg(long, value_parser = seed)]
    pub(crate) seed: Option<u64>,

    /// Keep histories and the nodes' logs in this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// One node process; the demo starts these itself
    #[command(hide = true)]
    Node {
        /// What it is to do, as JSON
        order: String,
    },
}

impl Args {
    /// The seed that was given, or a fresh one.
    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| SplitMix64::new(RandomState::new().build_hasher().finish()).next_u64())
    }
}

fn seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "expected a number up to 2^64 - 1, decimal or 0x…".to_owned())
}
