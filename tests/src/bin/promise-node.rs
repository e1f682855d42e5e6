//! A node whose handlers do what their jobs say, and write what they did to a history.

use clap::Parser;
use gristmill_broker::RedisConfig;
use gristmill_handler::{BatchOptions, KindOptions, Registry};
use gristmill_job::{Limit, QueueName, Rate, RetryBudget, RetryPolicy};
use gristmill_node::{AfterDeadLetter, Counts, Mode, Node, NodeConfig, QueueConfig};
use gristmill_schedule::Schedule;
use gristmill_tests::handlers::{Recorder, batched, look, scripted};
use gristmill_tests::script::{BATCHED, BOOKED, CAREFUL, KIND, LIMITED, NEWER, ONCE, SCARCE};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser, Clone)]
struct Arguments {
    #[arg(long, overrides_with = "redis")]
    redis: String,
    #[arg(long, default_value = "n", overrides_with = "name")]
    name: String,
    #[arg(long, value_delimiter = ',', default_value = "work")]
    queues: Vec<String>,
    #[arg(long, default_value_t = 8)]
    partitions: u16,
    #[arg(long, default_value_t = 1500)]
    lease_ms: u64,
    #[arg(long, default_value_t = 20)]
    slots: usize,
    #[arg(long, default_value_t = 25_000)]
    window_ms: u64,
    #[arg(long, default_value_t = 5_000)]
    grace_ms: u64,
    #[arg(long, default_value_t = 5_000)]
    handover_ms: u64,
    #[arg(long, default_value_t = 20)]
    backoff_ms: u64,
    #[arg(long, default_value_t = 300_000)]
    backoff_cap_ms: u64,
    #[arg(long, default_value_t = 10)]
    max_attempts: u32,
    /// Threads of the runtime.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    #[arg(long, default_value_t = 30_000)]
    blocked_ms: u64,
    /// `continue` or `hold`.
    #[arg(long, default_value = "continue")]
    after_dead_letter: String,
    /// `key` or `none`.
    #[arg(long, default_value = "key")]
    ordering: String,
    #[arg(long, default_value_t = 30_000)]
    visibility_ms: u64,
    #[arg(long, default_value_t = 3)]
    crash_budget: u32,
    #[arg(long, default_value_t = RetryBudget::default().share)]
    retry_share: f64,
    #[arg(long, default_value_t = RetryBudget::default().per_second)]
    retry_per_second: f64,
    #[arg(long, default_value_t = 3_600_000)]
    unknown_kind_ms: u64,
    #[arg(long)]
    max_age_ms: Option<u64>,
    #[arg(long)]
    expires_ms: Option<u64>,
    #[arg(long, default_value_t = 30_000)]
    census_ms: u64,
    #[arg(long, default_value_t = 1024 * 1024)]
    max_bytes: usize,
    /// Kinds beside those that every node serves.
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<String>,
    /// Recurring jobs: `NAME=DEFINITION`, the definition as Redis keeps it.
    #[arg(long)]
    schedule: Vec<String>,
    /// Runs of `scarce` at a time, on all nodes.
    #[arg(long)]
    max_running: Option<u32>,
    /// Runs of `scarce` in a stretch of time, on all nodes.
    #[arg(long)]
    rate: Option<String>,
    #[arg(long, default_value_t = 1)]
    rate_burst: u32,
    #[arg(long)]
    rate_per_key: bool,
    #[arg(long)]
    history: PathBuf,
    #[arg(long)]
    ca: Option<PathBuf>,
}

fn tell(counts: &Counts) {
    let ends: String =
        counts.tenure_ends.iter().map(|(cause, count)| format!(" end.{cause}={count}")).collect();
    let Counts {
        done,
        stale,
        duplicate,
        retried,
        dead,
        discarded,
        rejected,
        fenced,
        handed_back,
        restarts,
        repaired,
        claims_lost,
        ..
    } = counts;
    println!(
        "counts done={done} stale={stale} duplicate={duplicate} retried={retried} dead={dead} discarded={discarded} \
         rejected={rejected} fenced={fenced} handed_back={handed_back} restarts={restarts} \
         repaired={repaired} claims_lost={claims_lost}{ends}"
    );
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter("info,ractor=warn")
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    match leave() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(4),
        Err(error) => fail(&*error),
    }
}

/// As every program with a node does it: signals and the drain on a runtime of their own, which no handler can block.
fn leave() -> Result<usize, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let handlers = Builder::new_multi_thread().worker_threads(arguments.threads).enable_all().build()?;
    let control = Builder::new_current_thread().enable_all().build()?;
    let left = control.block_on(run(&handlers, arguments));
    handlers.shutdown_background();
    left
}

fn fail(error: &dyn Error) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

fn limit(arguments: &Arguments) -> Result<Limit, Box<dyn Error>> {
    let rate = match &arguments.rate {
        None => None,
        Some(text) => {
            let rate = Rate::parse(text).ok_or("a rate such as 100/s")?.burst(arguments.rate_burst);
            Some(if arguments.rate_per_key { rate.per_key() } else { rate })
        }
    };
    Ok(Limit { max_running: arguments.max_running, rate })
}

async fn run(handlers: &Runtime, arguments: Arguments) -> Result<usize, Box<dyn Error>> {
    let mut redis = RedisConfig::new(&arguments.redis);
    redis.ca_pem = arguments.ca.as_ref().map(std::fs::read).transpose()?;
    let mut retry = RetryPolicy::exponential(Duration::from_millis(arguments.backoff_ms))
        .with_bounds(Duration::from_millis(1), Duration::from_millis(arguments.backoff_cap_ms))
        .with_max_attempts(arguments.max_attempts);
    retry.max_age = arguments.max_age_ms.map(Duration::from_millis);
    let mut queues = Vec::new();
    for name in &arguments.queues {
        let mut queue = QueueConfig::new(QueueName::new(name.split('=').next().unwrap_or(name))?)
            .with_partitions(arguments.partitions);
        queue.retry = retry.clone();
        queue.retry_budget =
            RetryBudget { share: arguments.retry_share, per_second: arguments.retry_per_second };
        // `NAME=none` for one of several.
        let (_, ordering) = name.split_once('=').unwrap_or((name, &arguments.ordering));
        queue.mode = Mode::parse(ordering).ok_or("key or none")?;
        queue.visibility_timeout = Duration::from_millis(arguments.visibility_ms);
        queue.crash_budget = arguments.crash_budget;
        queue.expires_in = arguments.expires_ms.map(Duration::from_millis);
        queue.unknown_kind_wait = Duration::from_millis(arguments.unknown_kind_ms);
        queue.after_dead_letter =
            AfterDeadLetter::parse(&arguments.after_dead_letter).ok_or("continue or hold")?;
        queues.push(queue);
    }
    let mut config =
        NodeConfig::new(&arguments.name, redis, queues).with_lease(Duration::from_millis(arguments.lease_ms));
    config.slots = arguments.slots;
    config.census_every = Duration::from_millis(arguments.census_ms);
    config.max_envelope_bytes = arguments.max_bytes;
    config.blocked_after = Duration::from_millis(arguments.blocked_ms);
    config.drain_window = Duration::from_millis(arguments.window_ms);
    config.drain_grace = Duration::from_millis(arguments.grace_ms);
    config.handover_wait = Duration::from_millis(arguments.handover_ms);
    for schedule in &arguments.schedule {
        let (name, stored) = schedule.split_once('=').ok_or("NAME=DEFINITION")?;
        config.schedules.push(Schedule::from_stored(name, stored.as_bytes())?);
    }
    // Its own start names the node in the history: a restart is another.
    let incarnation = format!("{}#{}", arguments.name, std::process::id());
    let recorder = Recorder::open(&arguments.history, incarnation.clone())?;
    let limited = KindOptions::new()
        .soft_limit(Duration::from_millis(100))
        .hard_limit(Duration::from_millis(300))
        .retry(RetryPolicy::fixed(Duration::from_millis(50)).with_max_attempts(2));
    let mut registry =
        Registry::new().state(recorder).kind(KIND, scripted).kind_with(LIMITED, limited, scripted);
    registry = registry.batch(BATCHED, BatchOptions::new(8, Duration::from_millis(20)), batched);
    registry = registry.kind(SCARCE, scripted).limit(SCARCE, limit(&arguments)?);
    for kind in &arguments.kinds {
        registry = match kind.as_str() {
            CAREFUL => registry.kind_with(CAREFUL, KindOptions::new().review(), scripted),
            BOOKED => registry.kind(BOOKED, scripted).reconcile(BOOKED, look),
            ONCE => registry.kind_with(ONCE, KindOptions::new().at_most_once(), scripted),
            NEWER => registry.kind(NEWER, scripted),
            other => return Err(format!("no such kind: {other}").into()),
        };
    }
    let (mut terminate, mut again) = (signal(SignalKind::terminate())?, signal(SignalKind::terminate())?);
    let mut asked = signal(SignalKind::user_defined1())?;
    let allowed = config.drain_window + config.drain_grace;
    let mut node = handlers.spawn(Node::start(config, registry)).await??;
    println!("ready {incarnation}");
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = asked.recv() => tell(&node.counts()),
            error = node.failure() => return Err(error.into()),
        }
    }
    // The second listener has seen the first signal too.
    again.recv().await;
    let drain = node.drain(async { again.recv().await.map_or((), |()| ()) });
    let Ok(report) = tokio::time::timeout(allowed, drain).await else {
        println!("overdue");
        return Ok(1);
    };
    println!("{report}");
    tell(&report.counts);
    Ok(report.abandoned)
}
