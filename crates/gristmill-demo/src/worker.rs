//! One node process: the handler of `file.changed` behind a gristmill node, until SIGTERM.
//!
//! It says `ready` when it serves, and at its end what the drain did and what the node had counted. The handler writes
//! its own history: a line when it starts and one when it ends.

use crate::{
    failure::Failure,
    plant::InHandler,
    projection::{self, Change},
};
use gristmill_broker::RedisConfig;
use gristmill_handler::{Context, HandlerError, Registry, State};
use gristmill_job::{Effects, QueueName};
use gristmill_node::{Counts, Node, NodeConfig, QueueConfig};
use gristmill_testkit::{
    history::{HistoryWriter, Job, Outcome},
    seed::SplitMix64,
};
use serde::{Deserialize, Serialize};
use std::{path::PathBuf, time::Duration};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// What a node process is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Also its name in histories: never given twice.
    pub(crate) name: String,
    pub(crate) redis: String,
    pub(crate) partitions: u16,
    pub(crate) lease_ms: u64,
    /// Where its handlers write; nowhere in the run that measures.
    pub(crate) history: Option<PathBuf>,
    /// How long a handler takes on average, in microseconds.
    pub(crate) pause_us: u64,
    pub(crate) seed: u64,
    pub(crate) plant: Option<InHandler>,
}

pub(crate) async fn run(order: &str) -> Result<(), Failure> {
    let order: Order = serde_json::from_str(order)
        .map_err(|error| Failure::Input(format!("`node` is started by the demo itself: {error}")))?;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(std::io::stderr).init();
    let mut terminate =
        signal(SignalKind::terminate()).map_err(Failure::while_doing("listening for SIGTERM"))?;

    let queue = QueueName::new(projection::QUEUE).map_err(Failure::while_doing("naming the queue"))?;
    let queue = QueueConfig::new(queue).with_partitions(order.partitions);
    let config = NodeConfig::new(&order.name, RedisConfig::new(&order.redis), vec![queue])
        .with_lease(Duration::from_millis(order.lease_ms));
    let history = order.history.as_ref().map(HistoryWriter::open).transpose()?;
    let registry = Registry::new().state(Projector { order, history }).kind(projection::KIND, file_changed);
    let mut node = Node::start(config, registry).await.map_err(Failure::while_doing("starting the node"))?;
    println!("ready {}", node.incarnation());
    tokio::select! {
        _ = terminate.recv() => {}
        failure = node.failure() => return Err(Failure::Run(failure.to_string())),
    }
    let report = node.drain(again(&mut terminate)).await;
    println!("{report}");
    println!("{}", told(&report.counts));
    match report.abandoned {
        0 => Ok(()),
        runs => Err(Failure::Run(format!("{runs} runs could not be stopped"))),
    }
}

async fn again(terminate: &mut Signal) {
    terminate.recv().await;
}

/// One line, read back by the fleet.
fn told(counts: &Counts) -> String {
    let Counts { done, stale, duplicate, retried, dead, rejected, fenced, .. } = counts;
    let ends: Vec<String> = counts
        .tenure_ends
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(cause, count)| format!("{cause}={count}"))
        .collect();
    format!(
        "counts: done={done} stale={stale} duplicate={duplicate} retried={retried} dead={dead} rejected={rejected} \
         fenced={fenced} heartbeat_late_ms={} restarts={} tenures_ended: {}",
        counts.heartbeat_late_ms,
        counts.restarts,
        ends.join(" ")
    )
}

struct Projector {
    order: Order,
    history: Option<HistoryWriter>,
}

async fn file_changed(
    change: Change,
    projector: State<Projector>,
    context: Context,
) -> Result<Effects, HandlerError> {
    let job = || Job::new(context.id().to_string(), context.key().to_string(), context.version());
    match &projector.order.plant {
        Some(InHandler::NoEffect { id }) if id.as_bytes() == context.id().as_bytes() => {
            projector.work(&job, context.attempt()).await?;
            return Ok(Effects::none());
        }
        Some(InHandler::NextFirst { id, next }) if id.as_bytes() == context.id().as_bytes() => {
            projector.work(&|| next.told(), context.attempt()).await?;
            projector.work(&job, context.attempt()).await?;
        }
        Some(InHandler::NextFirst { next, .. }) if next.id.as_bytes() == context.id().as_bytes() => {}
        _ => projector.work(&job, context.attempt()).await?,
    }
    Ok(projection::effects(&change)?)
}

impl Projector {
    /// The time a real projection would spend, between the handler's first and last line.
    async fn work(&self, job: &(impl Fn() -> Job + Sync), attempt: u32) -> Result<(), HandlerError> {
        let Some(history) = &self.history else { return Ok(()) };
        let job = job();
        let run = history.start(&job, &self.order.name, attempt)?;
        tokio::time::sleep(self.pause(&job.id)).await;
        run.end(Outcome::Done)?;
        Ok(())
    }

    /// Between half and one and a half of the mean, by the job.
    fn pause(&self, id: &str) -> Duration {
        let seed = id
            .bytes()
            .fold(self.order.seed, |mixed, byte| (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let mean = self.order.pause_us;
        Duration::from_micros(mean / 2 + SplitMix64::new(seed).below(mean + 1))
    }
}
