//! A node from start to exit. `queues` is what it makes of its settings.

mod queues;

#[cfg(test)]
pub(crate) use queues::LONGEST_WAIT_IN_MEMORY;

use crate::config::{ConfigError, NodeConfig};
use crate::counters::{Counters, Counts};
use crate::doorbell::Doorbell;
use crate::heartbeat::{Heartbeat, Rhythm};
use crate::limits::releaser::ToReleaser;
use crate::partition::shared::Shared;
use crate::partition::surroundings::Surroundings;
use crate::supervisor::{self, Message, Served, Supervisor};
use crate::worker::alone::{ALONE_WAIT, Alone};
use crate::worker::execution::Executor;
use crate::worker::panics;
use crate::worker::run_queue::RunQueue;
use crate::worker::watch::Watch;
use futures_util::FutureExt;
use gristmill_broker::create::CreateError;
use gristmill_broker::{Broker, Incarnation, Link};
use gristmill_handler::{Registry, RegistryError};
use gristmill_job::JobLimits;
use gristmill_telemetry::events::node::{
    DrainStops, DrainWindowOver, NodeDrained, NodeDraining, NodeStarted,
};
use gristmill_telemetry::{Stage, Telemetry};
use ractor::{Actor, ActorRef};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Why a node did not start, or could not go on.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A setting that cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Handlers that cannot be.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A queue that exists otherwise than configured.
    #[error(transparent)]
    Queue(CreateError),
    /// Redis would lose jobs under memory pressure.
    #[error(
        "Redis evicts keys when memory is full (maxmemory-policy is {0:?}): jobs would be lost; \
         set maxmemory-policy to noeviction"
    )]
    Eviction(String),
    /// The operating system refused a thread.
    #[error("the heartbeat's thread cannot be started: {0}")]
    Thread(#[from] std::io::Error),
    /// A part failed too often.
    #[error("the node gives up: {0}")]
    Failed(String),
}

/// What became of the work of a node that left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainReport {
    /// Jobs that were settled between the signal and the exit.
    pub finished: u64,
    /// Jobs that were laid down for others.
    pub handed_back: u64,
    /// Runs that could not be stopped. Their jobs run again elsewhere.
    pub abandoned: usize,
    /// How long it took.
    pub took: Duration,
    /// What the node had counted in its life.
    pub counts: Counts,
}

impl fmt::Display for DrainReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { finished, handed_back, abandoned, took, .. } = self;
        write!(
            f,
            "drained: finished={finished} handed_back={handed_back} abandoned={abandoned} took_ms={}",
            took.as_millis()
        )
    }
}

/// A running node.
pub struct Node {
    config: NodeConfig,
    incarnation: Incarnation,
    supervisor: ActorRef<Message>,
    supervisor_task: JoinHandle<()>,
    queues: Vec<Served>,
    heartbeat: Arc<Heartbeat>,
    heartbeat_left: Option<oneshot::Receiver<()>>,
    doorbell: JoinHandle<()>,
    keeper: JoinHandle<()>,
    releaser: JoinHandle<()>,
    to_releaser: mpsc::UnboundedSender<ToReleaser>,
    counters: Arc<Counters>,
    runs: Arc<RunQueue>,
    failed: mpsc::UnboundedReceiver<String>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({})", self.incarnation)
    }
}

impl Node {
    /// Starts a node on the current runtime. Waits for Redis as long as it takes.
    ///
    /// # Errors
    /// [`NodeError`] where settings, handlers or queues cannot be.
    pub async fn start(mut config: NodeConfig, registry: Registry) -> Result<Self, NodeError> {
        config.check()?;
        let telemetry = config.telemetry.clone();
        config.redis.telemetry = telemetry.clone();
        registry.check()?;
        queues::batches(&registry, config.slots, &telemetry);
        panics::hear();
        let incarnation = Incarnation::of(&config.name, rand::random());
        let link = Link::start(config.redis.clone(), "commands");
        let definitions = queues::prepare(&link, &config.queues, &telemetry).await?;

        let counters = Arc::new(Counters::default());
        let workers = std::thread::available_parallelism().map_or(2, usize::from);
        let runs = Arc::new(RunQueue::new(config.slots, workers));
        let rhythm = Rhythm {
            redis: config.redis.clone(),
            incarnation: incarnation.clone(),
            queues: definitions.iter().map(|queue| queue.name.clone()).collect(),
            kinds: serde_json::to_string(&registry.describe()).unwrap_or_default().into(),
            ttl: config.lease_ttl,
            renewal: config.lease_renewal,
            margin: config.lease_margin,
        };
        let heartbeat = Arc::new(Heartbeat::new(rhythm, counters.clone(), telemetry.clone()));
        let doorbell = Arc::new(Doorbell::new(telemetry.clone()));
        let mut bell_config = config.redis.clone();
        bell_config.response_timeout = config.lease_renewal + Duration::from_secs(1);
        let bell_link = Link::start(bell_config, "doorbell");
        let schedules = queues::scheduled(&config, &definitions);
        let (freeing, freed) = mpsc::unbounded_channel();
        let queues = queues::serve(&config, &registry, definitions, &freeing);
        let gates = queues::gates(&queues);
        heartbeat.keep_slots(gates.clone());
        let partitions: Vec<Arc<Shared>> =
            queues.iter().flat_map(|queue| &queue.partitions).cloned().collect();
        let (failing, failed) = mpsc::unbounded_channel();
        let watch = Arc::new(Watch::new(
            runs.clone(),
            partitions.clone(),
            config.blocked_after,
            counters.clone(),
            failing.clone(),
            telemetry.clone(),
        ));
        heartbeat.keep_watch(watch.clone());
        let unordered: Vec<Arc<Shared>> =
            partitions.iter().filter(|shared| shared.claims.is_some()).cloned().collect();
        told_of_claims(&telemetry, unordered.clone());
        heartbeat.extend_claims(unordered);
        let around = Arc::new(Surroundings {
            incarnation: incarnation.clone(),
            link: link.clone(),
            lines: (0..LINES).map(|_| Link::start(config.redis.clone(), "tenures")).collect(),
            broker: Broker::over(link.clone()).telling(telemetry.clone()),
            heartbeat: heartbeat.clone(),
            doorbell: doorbell.clone(),
            runs: runs.clone(),
            alone: Arc::new(Alone::new(runs.clone(), partitions, ALONE_WAIT, telemetry.clone())),
            promotions: crate::promotions::Promotions::default(),
            counters: counters.clone(),
            telemetry: telemetry.clone(),
            lease_ttl: config.lease_ttl,
            manager: std::sync::Mutex::default(),
        });
        let arguments = supervisor::Arguments {
            queues: queues.clone(),
            around,
            executor: Arc::new(Executor::new(
                registry,
                runs.clone(),
                config.max_envelope_bytes,
                telemetry.clone(),
            )),
            watch: watch.clone(),
            schedules,
            limits: JobLimits { max_envelope_bytes: config.max_envelope_bytes },
            failed: failing,
        };
        let heartbeat_left = Some(heartbeat.start()?);
        let (supervisor, supervisor_task) =
            Actor::spawn(None, Supervisor, arguments).await.map_err(|e| NodeError::Failed(e.to_string()))?;
        watch.supervise(supervisor.clone());
        let keeper = queues::keeper(&config, &queues, &link, &incarnation, &counters);
        let keeper = tokio::spawn(keeper.run());
        let releaser = queues::releaser(&config, &queues, &link, &incarnation, freed);
        let releaser = tokio::spawn(releaser.run());
        let doorbell = tokio::spawn(doorbell.run(bell_link, link, config.lease_renewal));
        told_of_slots(&telemetry, &runs, config.slots);
        queues::told_of_limits(&telemetry, gates);
        telemetry.tell(&NodeStarted {
            node: &incarnation,
            queues: config.queues.len() as u64,
            slots: config.slots as u64,
        });
        Ok(Self {
            config,
            incarnation,
            supervisor,
            supervisor_task,
            queues,
            heartbeat,
            heartbeat_left,
            doorbell,
            keeper,
            releaser,
            to_releaser: freeing,
            counters,
            runs,
            failed,
        })
    }

    /// Which start of which node this is.
    #[must_use]
    pub fn incarnation(&self) -> &Incarnation {
        &self.incarnation
    }

    /// What has been counted so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counters.snapshot()
    }

    /// Handler slots that are free.
    #[must_use]
    pub fn free_slots(&self) -> usize {
        self.runs.free_slots()
    }

    /// Waits until the node cannot go on. Pending while all is well.
    pub async fn failure(&mut self) -> NodeError {
        let why = self.failed.recv().await;
        NodeError::Failed(why.unwrap_or_else(|| "its supervisor is gone".into()))
    }

    /// Leaves on purpose: stops claiming, finishes what runs inside the window, hands back the rest, releases, leaves.
    /// `hurry` (a second signal) goes to the hard stop at once. Ends inside window + grace.
    pub async fn drain(mut self, hurry: impl Future<Output = ()>) -> DrainReport {
        let started = Instant::now();
        let before = self.counters.snapshot();
        let (telemetry, node) = (self.config.telemetry.clone(), self.incarnation.clone());
        telemetry.reach(Stage::Leaving);
        telemetry.tell(&NodeDraining { node: &node, window_ms: self.config.drain_window });
        let (left, leaving) = oneshot::channel();
        let _ = self.supervisor.cast(Message::Drain(left));
        let leaving = leaving.shared();
        let (released, runs) = (leaving.clone(), self.runs.clone());
        // A run may outlive its lease (Redis is away): it may finish all the same.
        let ended = async move {
            let _ = released.await;
            runs.quiet().await;
        };
        tokio::pin!(ended);
        let grace = self.config.drain_grace;
        let hard_stop = started + self.config.drain_window + grace / 2;
        tokio::pin!(hurry);
        let mut gone = tokio::select! {
            () = &mut ended => true,
            () = tokio::time::sleep(self.config.drain_window) => false,
            () = &mut hurry => false,
        };
        if !gone && Instant::now() >= started + self.config.drain_window {
            telemetry.tell(&DrainWindowOver { node: &node });
            self.each_partition(|shared| shared.soft_cancel(hard_stop));
            gone = tokio::select! {
                () = &mut ended => true,
                () = tokio::time::sleep_until(hard_stop.into()) => false,
                () = &mut hurry => false,
            };
        }
        if !gone {
            telemetry.tell(&DrainStops { node: &node });
            let until = Instant::now() + (grace / 4).min(Duration::from_secs(1));
            // Again and again: a run that began before its partition heard of the drain is stopped too.
            while !gone && Instant::now() < until {
                self.each_partition(|shared| shared.hard_stop());
                gone = tokio::time::timeout(STOP_AGAIN, &mut ended).await.is_ok();
            }
        }
        // Also where all the others are gone: what was given up still holds its thread.
        let abandoned = self.alive();
        if !gone {
            let _ = self.supervisor.cast(Message::Abandon);
            let _ = tokio::time::timeout((grace / 16).min(Duration::from_millis(500)), leaving).await;
        }
        let rest = (started + self.config.drain_window + grace).saturating_duration_since(Instant::now());
        self.stop((rest / 4).min(Duration::from_secs(1))).await;
        let counts = self.counters.snapshot();
        let settled = |c: &Counts| c.done + c.stale + c.duplicate + c.dead + c.retried;
        let report = DrainReport {
            finished: settled(&counts) - settled(&before),
            handed_back: counts.handed_back - before.handed_back,
            abandoned,
            took: started.elapsed(),
            counts,
        };
        telemetry.tell(&NodeDrained {
            node: &node,
            finished: report.finished,
            handed_back: report.handed_back,
            abandoned: report.abandoned as u64,
            took_ms: report.took,
        });
        report
    }

    fn each_partition(&self, act: impl Fn(&Shared)) {
        self.queues.iter().flat_map(|queue| &queue.partitions).for_each(|shared| act(shared));
    }

    fn alive(&self) -> usize {
        self.queues.iter().flat_map(|queue| &queue.partitions).map(|shared| shared.alive()).sum()
    }

    /// Actors and heartbeat; each has `wait` to end by itself.
    async fn stop(&mut self, wait: Duration) {
        let (stopped, stopping) = oneshot::channel();
        let _ = self.supervisor.cast(Message::Stop(stopped));
        let _ = tokio::time::timeout(wait, stopping).await;
        self.supervisor.stop(None);
        self.supervisor_task.abort();
        // What is not freed lapses; what can be freed need not wait for that.
        let (flushed, flushing) = oneshot::channel();
        let _ = self.to_releaser.send(ToReleaser::Flush(flushed));
        let _ = tokio::time::timeout(wait, flushing).await;
        self.releaser.abort();
        self.doorbell.abort();
        self.keeper.abort();
        self.heartbeat.stop();
        if let Some(left) = self.heartbeat_left.take() {
            let _ = tokio::time::timeout(wait, left).await;
        }
    }
}

/// Slots are counted where they are, whenever somebody asks.
fn told_of_slots(telemetry: &Telemetry, runs: &Arc<RunQueue>, slots: usize) {
    let runs = runs.clone();
    telemetry.ask(move |metrics| {
        let free = runs.free_slots().min(slots);
        let shown = [("free", free), ("busy", slots - free), ("hung", runs.hung().len())];
        for (state, count) in shown {
            metrics.worker_slots.with(&[state]).set(count as f64);
        }
    });
}

/// By how much claims are over that nobody recovered, as each partition was seen last.
fn told_of_claims(telemetry: &Telemetry, unordered: Vec<Arc<Shared>>) {
    if unordered.is_empty() {
        return;
    }
    telemetry.ask(move |metrics| {
        let mut worst: BTreeMap<&str, f64> = BTreeMap::new();
        for shared in &unordered {
            let over = shared.claims.as_ref().map_or(0.0, |claims| claims.over().as_secs_f64());
            let of_queue = worst.entry(shared.queue.as_str()).or_default();
            *of_queue = of_queue.max(over);
        }
        for (queue, over) in worst {
            metrics.claims_oldest_over_seconds.with(&[queue]).set(over);
        }
    });
}

/// How often the hard stop is repeated.
const STOP_AGAIN: Duration = Duration::from_millis(50);

/// Connections that carry the calls of tenures. One would do; but the library reads a connection's answers in one task, and
/// several let it keep up with Redis.
const LINES: usize = 4;
