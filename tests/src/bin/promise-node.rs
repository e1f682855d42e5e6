//! A node whose handlers do what their jobs say, and write what they did to a history.

use clap::Parser;
use gristmill_broker::RedisConfig;
use gristmill_handler::{Context, HandlerError, KindOptions, Registry, State};
use gristmill_job::{ContentType, Effects, NewJob, QueueName, RetryPolicy};
use gristmill_node::{Counts, Node, NodeConfig, QueueConfig};
use gristmill_testkit::history::{HistoryWriter, Job, Outcome};
use gristmill_tests::fleet::QUEUE;
use gristmill_tests::script::{KIND, LIMITED, Script};
use std::collections::HashSet;
use std::error::Error;
use std::path::PathBuf;
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
    #[arg(long, default_value_t = 10)]
    max_attempts: u32,
    /// Threads of the runtime.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    #[arg(long, default_value_t = 30_000)]
    blocked_ms: u64,
    #[arg(long)]
    history: PathBuf,
    #[arg(long)]
    ca: Option<PathBuf>,
}

struct Recorder {
    history: HistoryWriter,
    incarnation: String,
    snoozed: Mutex<HashSet<String>>,
}

impl Recorder {
    /// Whether this is the first time here that the job is asked.
    fn snoozed(&self, id: &str) -> bool {
        self.snoozed.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned())
    }
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
    if script.permanent || context.attempt() <= script.fail_until {
        run.end(Outcome::Failed).map_err(HandlerError::permanent)?;
        let error = format!("as the job's script says, at attempt {}", context.attempt());
        return Err(if script.permanent {
            HandlerError::permanent(error)
        } else {
            HandlerError::transient(error)
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
        ..
    } = counts;
    println!(
        "counts done={done} stale={stale} duplicate={duplicate} retried={retried} dead={dead} discarded={discarded} \
         rejected={rejected} fenced={fenced} handed_back={handed_back} restarts={restarts}{ends}"
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
    let retry = RetryPolicy::exponential(Duration::from_millis(arguments.backoff_ms))
        .with_bounds(Duration::from_millis(1), Duration::from_secs(300))
        .with_max_attempts(arguments.max_attempts);
    let mut queues = Vec::new();
    for name in &arguments.queues {
        let mut queue = QueueConfig::new(QueueName::new(name)?).with_partitions(arguments.partitions);
        queue.retry = retry.clone();
        queues.push(queue);
    }
    let mut config =
        NodeConfig::new(&arguments.name, redis, queues).with_lease(Duration::from_millis(arguments.lease_ms));
    config.slots = arguments.slots;
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
    };
    let limited = KindOptions::new()
        .soft_limit(Duration::from_millis(100))
        .hard_limit(Duration::from_millis(300))
        .retry(RetryPolicy::fixed(Duration::from_millis(50)).with_max_attempts(2));
    let registry = Registry::new().state(recorder).kind(KIND, scripted).kind_with(LIMITED, limited, scripted);
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
