//! A node whose handlers do what their jobs say, and write what they did to a history.

use clap::Parser;
use gristmill_broker::RedisConfig;
use gristmill_handler::{Context, HandlerError, KindOptions, Reconciled, Registry, State};
use gristmill_job::{ContentType, Effects, NewJob, QueueName, RetryBudget, RetryPolicy};
use gristmill_node::{AfterDeadLetter, Counts, Node, NodeConfig, QueueConfig};
use gristmill_testkit::history::{HistoryWriter, Job, Outcome};
use gristmill_tests::fleet::{QUEUE, SWITCHES};
use gristmill_tests::script::{BOOKED, CAREFUL, Death, KIND, LIMITED, Look, NEWER, ONCE, Script};
use std::collections::HashSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser, Clone)]
struct Arguments {
    #[arg(long, overrides_with = "redis")]
    redis: String,
    #[arg(long, default_value = "n")]
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
    #[arg(long, default_value_t = 30_000)]
    census_ms: u64,
    #[arg(long, default_value_t = 1024 * 1024)]
    max_bytes: usize,
    /// Kinds beside those that every node serves.
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<String>,
    #[arg(long)]
    history: PathBuf,
    #[arg(long)]
    ca: Option<PathBuf>,
}

struct Recorder {
    history: HistoryWriter,
    incarnation: String,
    snoozed: Mutex<HashSet<String>>,
    switches: PathBuf,
}

impl Recorder {
    /// Whether a switch is on; where none is named, it is.
    fn is_on(&self, switch: Option<&str>) -> bool {
        switch.is_none_or(|name| self.switches.join(name).exists())
    }

    /// Whether this is the first time here that the job is asked.
    fn snoozed(&self, id: &str) -> bool {
        self.snoozed.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned())
    }
}

/// Never returns.
fn die(how: Death) -> ! {
    if how == Death::Memory {
        std::hint::black_box(Vec::<u8>::with_capacity(isize::MAX as usize));
    }
    if how == Death::Kill {
        let pid = std::process::id().to_string();
        let _ = std::process::Command::new("kill").args(["-9", &pid]).status();
    }
    std::process::abort();
}

/// What became of an interrupted run, as the job's script says.
async fn look(script: Script, context: Context) -> Result<Reconciled, HandlerError> {
    println!("looks at {}", context.id());
    Ok(match script.look {
        Look::Done if script.effect => Reconciled::Done(Effects::put(context.version().to_string())),
        Look::Done => Reconciled::Done(Effects::none()),
        Look::Again => Reconciled::RunAgain,
        Look::Dies => die(Death::Abort),
        Look::Person => Reconciled::AskAPerson("as the job's script says".into()),
    })
}

async fn scripted(
    script: Script,
    State(recorder): State<Recorder>,
    context: Context,
) -> Result<Effects, HandlerError> {
    // Order is promised within a queue: the same key in another is another key of the history.
    let key = match context.queue().as_str() {
        QUEUE => context.key().to_string(),
        other => format!("{other}/{}", context.key()),
    };
    let job = Job::new(context.id().to_string(), key, context.version());
    let run = recorder
        .history
        .start(&job, &recorder.incarnation, context.attempt())
        .map_err(HandlerError::permanent)?;
    if let Some(death) = script.dies.filter(|_| recorder.is_on(script.dies_while.as_deref())) {
        // not a wait: others run meanwhile
        tokio::time::sleep(Duration::from_millis(script.dies_after_ms)).await;
        die(death);
    }
    if script.block_ms > 0 && !(script.recovered_free && context.recovered()) {
        // not a wait: a handler that hogs its thread
        std::thread::sleep(Duration::from_millis(script.block_ms));
    }
    let wait_ms = script.recovered_wait_ms.filter(|_| context.recovered()).unwrap_or(script.wait_ms);
    if wait_ms > 0 {
        // not a wait: the handler's work
        let work = tokio::time::sleep(Duration::from_millis(wait_ms));
        if script.heeds_cancel || script.fails_when_cancelled {
            tokio::select! {
                () = work => {}
                () = context.cancelled() => {
                    if script.fails_when_cancelled {
                        run.end(Outcome::Failed).map_err(HandlerError::permanent)?;
                        return Err(HandlerError::transient("cancelled"));
                    }
                }
            }
        } else {
            work.await;
        }
    }
    if context.attempt() <= script.panic_until {
        drop(run);
        panic!("as the job's script says");
    }
    if script.snooze_ms > 0 && recorder.snoozed(&context.id().to_string()) {
        run.end(Outcome::Stopped).map_err(HandlerError::permanent)?;
        return Err(HandlerError::snooze(Duration::from_millis(script.snooze_ms)));
    }
    if script.discard {
        run.end(Outcome::Failed).map_err(HandlerError::permanent)?;
        return Err(HandlerError::discard("as the job's script says"));
    }
    let fails = script.permanent || context.attempt() <= script.fail_until;
    if fails && recorder.is_on(script.fails_while.as_deref()) {
        run.end(Outcome::Failed).map_err(HandlerError::permanent)?;
        let error = format!("as the job's script says, at attempt {}", context.attempt());
        return Err(if script.permanent {
            HandlerError::permanent(error)
        } else {
            HandlerError::transient(error).retry_after(Duration::from_millis(script.retry_after_ms))
        });
    }
    let mut effects = Effects::none();
    if script.effect {
        effects = Effects::put(context.version().to_string());
    }
    if let Some(queue) = &script.emit {
        let queue = QueueName::new(queue).map_err(HandlerError::permanent)?;
        let script = serde_json::to_vec(&Script { effect: true, ..Script::default() })
            .map_err(HandlerError::permanent)?;
        let job = NewJob::from_bytes(KIND, context.key().as_bytes(), script, ContentType::Json);
        effects =
            effects.and_emit(queue, job.map_err(HandlerError::permanent)?.with_version(context.version()));
    }
    run.end(Outcome::Done).map_err(HandlerError::permanent)?;
    Ok(effects)
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
        ..
    } = counts;
    println!(
        "counts done={done} stale={stale} duplicate={duplicate} retried={retried} dead={dead} discarded={discarded} \
         rejected={rejected} fenced={fenced} handed_back={handed_back} restarts={restarts} \
         repaired={repaired}{ends}"
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

async fn run(handlers: &Runtime, arguments: Arguments) -> Result<usize, Box<dyn Error>> {
    let mut redis = RedisConfig::new(&arguments.redis);
    redis.ca_pem = arguments.ca.map(std::fs::read).transpose()?;
    let mut retry = RetryPolicy::exponential(Duration::from_millis(arguments.backoff_ms))
        .with_bounds(Duration::from_millis(1), Duration::from_millis(arguments.backoff_cap_ms))
        .with_max_attempts(arguments.max_attempts);
    retry.max_age = arguments.max_age_ms.map(Duration::from_millis);
    let mut queues = Vec::new();
    for name in &arguments.queues {
        let mut queue = QueueConfig::new(QueueName::new(name)?).with_partitions(arguments.partitions);
        queue.retry = retry.clone();
        queue.retry_budget =
            RetryBudget { share: arguments.retry_share, per_second: arguments.retry_per_second };
        queue.crash_budget = arguments.crash_budget;
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
    // Its own start names the node in the history: a restart is another.
    let incarnation = format!("{}#{}", arguments.name, std::process::id());
    let recorder = Recorder {
        history: HistoryWriter::open(&arguments.history)?,
        incarnation: incarnation.clone(),
        snoozed: Mutex::default(),
        switches: arguments.history.parent().unwrap_or(Path::new(".")).join(SWITCHES),
    };
    let limited = KindOptions::new()
        .soft_limit(Duration::from_millis(100))
        .hard_limit(Duration::from_millis(300))
        .retry(RetryPolicy::fixed(Duration::from_millis(50)).with_max_attempts(2));
    let mut registry =
        Registry::new().state(recorder).kind(KIND, scripted).kind_with(LIMITED, limited, scripted);
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
