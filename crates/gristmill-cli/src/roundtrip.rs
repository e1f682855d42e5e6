//! `roundtrip`: one job all the way, with the settings, the network and the rights of this process: enqueued, claimed, run
//! and settled, in a queue of its own. What `helm test` runs.

use crate::exit::{End, Failure};
use crate::output;
use crate::settings::Settings;
use clap::Args;
use gristmill_broker::{Broker, EnqueueError};
use gristmill_handler::Registry;
use gristmill_job::{JobId, NewJob, QueueName};
use gristmill_node::{Node, NodeConfig, QueueConfig};
use serde_json::json;
use std::time::{Duration, Instant};

/// The queue of round trips.
pub(crate) const QUEUE: &str = "gristmill-roundtrip";
const KIND: &str = "roundtrip";
/// Its mark says how the job ended, and is of no use for longer.
const SEEN: Duration = Duration::from_secs(600);
/// Between two looks at the mark.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Args)]
pub(crate) struct RoundtripArguments {
    /// How long it may take, in seconds
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    within_s: u64,
    /// The result as one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn command(settings: &Settings, arguments: &RoundtripArguments) -> Result<End, Failure> {
    // At once or not at all: a node would wait for Redis for ever.
    crate::connect(settings).await?;
    let queue = QueueName::new(QUEUE).map_err(|error| Failure::Failed(error.to_string()))?;
    let mut config = NodeConfig::new(
        "roundtrip",
        settings.redis()?,
        vec![QueueConfig::new(queue.clone()).with_partitions(1)],
    );
    config.seen_window = SEEN;
    config.drain_window = Duration::from_secs(1);
    let registry = Registry::new().kind(KIND, |_: gristmill_handler::Raw| async {});
    let within = Duration::from_secs(arguments.within_s);
    let began = Instant::now();
    let round = async {
        let node = Node::start(config, registry).await.map_err(|error| Failure::Failed(error.to_string()))?;
        let settled = settled(settings, &queue).await;
        // It holds nothing that another round trip would have to wait for.
        node.drain(std::future::pending()).await;
        settled
    };
    let took = tokio::time::timeout(within, round).await.map_err(|_| {
        Failure::Failed(format!(
            "no job went round within {} s (steps: enqueue, claim, run, settle); `gristmill doctor` and `gristmill queues` tell more",
            within.as_secs()
        ))
    })??;
    let (job_ms, whole_ms) = (took.as_millis(), began.elapsed().as_millis());
    output::print(&match arguments.json {
        true => json!({ "queue": QUEUE, "job_ms": job_ms, "whole_ms": whole_ms }).to_string(),
        false => format!("a job went round in {job_ms} ms (with a node's start and end: {whole_ms} ms)"),
    })?;
    Ok(End::Done)
}

/// From enqueue until the job's mark says that its verdict is written. Whose node runs it does not matter.
async fn settled(settings: &Settings, queue: &QueueName) -> Result<Duration, Failure> {
    let broker = Broker::connect(settings.redis()?);
    let id = JobId::generate();
    let job = |key: &str| {
        let job = NewJob::new(KIND, key, &()).map_err(|error| error.to_string());
        job.and_then(|job| job.with_id(&id.to_string()).map_err(|error| error.to_string()))
    };
    let failed = |error: EnqueueError| Failure::Failed(error.to_string());
    let began = Instant::now();
    loop {
        let job = job("roundtrip").map_err(Failure::Failed)?;
        // The second and every later one is absorbed as its duplicate, and tells how the first one stands.
        match broker.enqueue(queue, job).await.map_err(failed)?.duplicate_of.as_deref() {
            None => {}
            Some("applied") => return Ok(began.elapsed()),
            Some(standing) if standing.starts_with("waiting") => {}
            Some(other) => {
                return Err(Failure::Failed(format!("expected the job to be applied, it is {other}")));
            }
        }
        // not a wait for a state alone: a pause between two looks, under a deadline
        tokio::time::sleep(LOOK).await;
    }
}
