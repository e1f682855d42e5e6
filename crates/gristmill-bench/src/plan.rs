//! What a person may ask for.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::time::Duration;

/// Runs at a time, where nothing else is said.
const HANDLERS_PER_NODE: usize = 100;

/// Load and latency of gristmill beside the raw limits of Redis, on a private server.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Only one of the scenarios; the fields of the others are `n/a` in the last line.
    #[arg(long, value_enum)]
    only: Option<Only>,
    /// Of the drain scenario, only this variant (for tuning).
    #[arg(long, value_enum)]
    variant: Option<Variant>,
    /// Few jobs and rounds: figures to tune by, not to publish.
    #[arg(long)]
    quick: bool,
    /// Ten million jobs through a node, and a million dead letters, in place of everything else; fails if memory grows.
    #[arg(long)]
    long: bool,
    /// Jobs per side and round [default: 1000000, quick: 200000, long: 10000000].
    #[arg(long)]
    jobs: Option<usize>,
    /// Alternated rounds [default: 5, quick: 2].
    #[arg(long)]
    rounds: Option<usize>,
    /// Jobs per side and round of the latency scenario, at 200 a second [default: 2000, quick: 600].
    #[arg(long)]
    latency_jobs: Option<usize>,
    /// Times a node is killed [default: 5, quick: 1].
    #[arg(long)]
    kills: Option<usize>,
    /// Jobs of the key that is blocked.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    blocked_jobs: u32,
    /// The jobs that fail once do so under the default retry budget, which then is what is measured (for tuning).
    #[arg(long)]
    default_retry_budget: bool,
    /// Times a poison job is tried [default: 3, quick: 1].
    #[arg(long)]
    poisons: Option<usize>,
    /// Dead letters that are listed and replayed [default: 100000, quick: 20000, long: 1000000].
    #[arg(long)]
    dead_letters: Option<usize>,
    /// Jobs for later that are due at once [default: 100000, quick: 20000].
    #[arg(long)]
    promote_jobs: Option<usize>,
    /// Schedules that are due every second [default: 1000, quick: 200].
    #[arg(long)]
    schedules: Option<usize>,
    /// Slots of each of them per round [default: 30, quick: 5].
    #[arg(long)]
    slots_each: Option<usize>,
    /// Jobs per side and round of the postgres scenario [default: 50000, quick: 5000].
    #[arg(long)]
    postgres_jobs: Option<usize>,
    /// Jobs per side and round of the http scenario [default: 200000, quick: 20000].
    #[arg(long)]
    http_jobs: Option<usize>,
    /// Runs at a time, and as many connections, of the postgres and http scenarios.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=500))]
    slots: u16,
    /// Partitions of the queue, on every side.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    partitions: u16,
    /// Keys of the jobs.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    keys: u32,
    /// Bytes of a job's payload.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(16..=100_000))]
    payload_bytes: u32,
    /// Gives every job a W3C trace context.
    #[arg(long)]
    trace_context: bool,
    /// Lease time of the nodes, in ms.
    #[arg(long, default_value_t = 5000)]
    lease_ms: u64,
    /// Jobs per batch of the raw loop.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    raw_batch: u32,
    /// Jobs per call of the scripts' ceiling.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=200))]
    ceiling_batch: u32,
    /// Partitions that the raw loop and the ceiling serve side by side: pipelines in flight.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    in_flight: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Only {
    Drain,
    Enqueue,
    Latency,
    Memory,
    Recovery,
    /// Ordering none.
    #[value(name = "none")]
    Unordered,
    Blocked,
    FailOnce,
    Poison,
    Dead,
    Promote,
    Fairness,
    Schedules,
    Telemetry,
    Postgres,
    Http,
}

/// The ways a queue is drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Variant {
    /// Ids made by us.
    Plain,
    /// Producer's ids.
    OwnIds,
    /// Ids made by us, a versioned effect each.
    Effect,
    /// Producer's ids and a versioned effect each.
    OwnIdsEffect,
    /// Ids made by us, `appendfsync everysec`.
    Aof,
}

/// What child processes are started with.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// A node that is measured.
    #[command(hide = true)]
    Node(Task),
    /// A doorbell and a claim with nothing around them.
    #[command(hide = true)]
    Bare(Task),
    /// The site that answers HTTP requests.
    #[command(hide = true)]
    Site,
}

/// What a child does.
#[derive(Debug, Clone, Args)]
pub(crate) struct Task {
    #[arg(long)]
    pub(crate) url: String,
    #[arg(long)]
    pub(crate) name: String,
    #[arg(long)]
    pub(crate) partitions: u16,
    #[arg(long)]
    pub(crate) lease_ms: u64,
    #[arg(long, value_enum)]
    pub(crate) role: Role,
    /// It leaves after so many jobs; never, if it is 0.
    #[arg(long)]
    pub(crate) expect: u64,
    /// Of a hundred jobs, so many fail once.
    #[arg(long, default_value_t = 0)]
    pub(crate) fail_percent: u64,
    /// The queue has the default retry budget, not one that is never used up.
    #[arg(long)]
    pub(crate) default_retry_budget: bool,
    /// What it tells of itself.
    #[arg(long, value_enum, default_value_t = Told::Metrics)]
    pub(crate) told: Told,
    /// Where traces go.
    #[arg(long, default_value = "")]
    pub(crate) collector: String,
    /// Runs at a time.
    #[arg(long, default_value_t = HANDLERS_PER_NODE)]
    pub(crate) slots: usize,
    /// Its queue has no order.
    #[arg(long)]
    pub(crate) unordered: bool,
    /// Schedules that are due every second.
    #[arg(long, default_value_t = 0)]
    pub(crate) schedules: usize,
    /// Where the work is done: a database, a site.
    #[arg(long, default_value = "")]
    pub(crate) target: String,
}

/// What a node tells of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Told {
    /// Nothing is counted.
    Nothing,
    /// As every node does.
    Metrics,
    /// Traces, of which one in a hundred is kept.
    Some,
    /// Traces, of which all are kept.
    All,
}

impl Told {
    pub(crate) fn word(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// What a child's handler does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Nothing.
    Plain,
    /// A versioned effect.
    Effect,
    /// Notes how old the job is.
    Latency,
    /// Notes how long ago the job's slot was.
    Slot,
    /// Never ends.
    Hold,
    /// Tells when the first recovered job starts.
    Recover,
    /// Fails the jobs of the blocked key, to be tried again in ten minutes.
    Blocked,
    /// Fails some jobs once, to be tried again in ten milliseconds.
    FailOnce,
    /// Takes a while and writes an effect; the poison job aborts the process meanwhile.
    Poison,
    /// Writes an effect into Postgres.
    Postgres,
    /// Is served by HTTP.
    Http,
    /// Takes two milliseconds, in two queues; notes how old the jobs of the small one are.
    Fair,
}

impl Role {
    pub(crate) fn word(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// A plan with all its numbers.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) only: Option<Only>,
    pub(crate) variant: Option<Variant>,
    pub(crate) long: bool,
    pub(crate) jobs: usize,
    pub(crate) rounds: usize,
    pub(crate) latency_jobs: usize,
    pub(crate) kills: usize,
    pub(crate) blocked_jobs: usize,
    pub(crate) default_retry_budget: bool,
    pub(crate) poisons: usize,
    pub(crate) dead_letters: usize,
    pub(crate) promote_jobs: usize,
    pub(crate) schedules: usize,
    pub(crate) slots_each: usize,
    pub(crate) postgres_jobs: usize,
    pub(crate) http_jobs: usize,
    pub(crate) slots: usize,
    pub(crate) partitions: u16,
    pub(crate) keys: usize,
    pub(crate) payload_bytes: usize,
    pub(crate) trace_context: bool,
    pub(crate) lease: Duration,
    pub(crate) raw_batch: usize,
    pub(crate) ceiling_batch: usize,
    pub(crate) in_flight: usize,
}

impl Arguments {
    pub(crate) fn plan(&self) -> Plan {
        let pick = |quick, full| if self.quick { quick } else { full };
        let jobs = if self.long { 10_000_000 } else { pick(200_000, 1_000_000) };
        let dead_letters = if self.long { 1_000_000 } else { pick(20_000, 100_000) };
        Plan {
            only: self.only,
            variant: self.variant,
            long: self.long,
            jobs: self.jobs.unwrap_or(jobs).max(1),
            rounds: self.rounds.unwrap_or(pick(2, 5)).max(1),
            latency_jobs: self.latency_jobs.unwrap_or(pick(600, 2000)).max(10),
            kills: self.kills.unwrap_or(pick(1, 5)).max(1),
            blocked_jobs: self.blocked_jobs as usize,
            default_retry_budget: self.default_retry_budget,
            poisons: self.poisons.unwrap_or(pick(1, 3)).max(1),
            dead_letters: self.dead_letters.unwrap_or(dead_letters).max(1),
            promote_jobs: self.promote_jobs.unwrap_or(pick(20_000, 100_000)).max(1),
            schedules: self.schedules.unwrap_or(pick(200, 1000)).clamp(1, 10_000),
            slots_each: self.slots_each.unwrap_or(pick(5, 30)).max(1),
            postgres_jobs: self.postgres_jobs.unwrap_or(pick(5000, 50_000)).max(1),
            http_jobs: self.http_jobs.unwrap_or(pick(20_000, 200_000)).max(1),
            slots: usize::from(self.slots),
            partitions: self.partitions,
            keys: self.keys as usize,
            payload_bytes: self.payload_bytes as usize,
            trace_context: self.trace_context,
            lease: Duration::from_millis(self.lease_ms),
            raw_batch: self.raw_batch as usize,
            ceiling_batch: self.ceiling_batch as usize,
            in_flight: self.in_flight as usize,
        }
    }
}

impl Plan {
    pub(crate) fn wants(&self, scenario: Only) -> bool {
        self.only.is_none_or(|only| only == scenario)
    }
}
