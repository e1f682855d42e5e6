//! The jobs of all scenarios, and how a queue is filled with them and looked at.

use crate::failure::{Outcome, ensure};
use bytes::Bytes;
use gristmill_broker::{Broker, QueueDefinition, RedisConfig};
use gristmill_job::{ContentType, NewJob, QueueName};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The kind of every job.
pub(crate) const KIND: &str = "bench";
/// How the key begins whose head fails and waits.
pub(crate) const BLOCKED: &str = "blocked";
/// How the key begins whose job kills its process.
pub(crate) const POISON: &str = "poison";
/// Jobs per call of `enqueue_all`: with 64 partitions about 160 for each, so that nearly all go in one script call.
pub(crate) const BULK: usize = 10_000;

/// Who makes the ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ids {
    Ours,
    Producers,
}

/// What a scenario's jobs look like.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    pub(crate) queue: QueueDefinition,
    pub(crate) ids: Ids,
    /// How its keys begin.
    pub(crate) prefix: &'static str,
    pub(crate) keys: usize,
    pub(crate) payload: Bytes,
    pub(crate) trace_context: bool,
}

impl Workload {
    /// Job number `n`, from 0. Versions of a key grow by one.
    pub(crate) fn job(&self, n: usize) -> Outcome<NewJob> {
        let (key, version) = self.key_and_version(n);
        let mut job = NewJob::from_bytes(KIND, key, self.payload.clone(), ContentType::MessagePack)?
            .with_version(version);
        if self.ids == Ids::Producers {
            job = job.with_id(&format!("order-{n:012}"))?;
        }
        if self.trace_context {
            job = job.with_header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        }
        Ok(job)
    }

    /// Of job number `n`.
    pub(crate) fn key_and_version(&self, n: usize) -> (String, u64) {
        (self.key(n % self.keys), (n / self.keys + 1) as u64)
    }

    /// The key with this number.
    pub(crate) fn key(&self, n: usize) -> String {
        format!("{}-{n:08}", self.prefix)
    }

    /// Many jobs of one key of their own.
    pub(crate) fn of_one_key(&self, prefix: &'static str) -> Self {
        Self { prefix, keys: 1, ..self.clone() }
    }

    /// Jobs number `from` to `to` (not included).
    pub(crate) fn jobs(&self, from: usize, to: usize) -> Outcome<Vec<NewJob>> {
        (from..to).map(|n| self.job(n)).collect()
    }
}

/// The queue of all scenarios.
pub(crate) fn queue(partitions: u16) -> Outcome<QueueDefinition> {
    Ok(QueueDefinition::new(QueueName::new(KIND)?, partitions))
}

/// The queue beside it that has little to do.
pub(crate) const SMALL: &str = "small";
/// And its partitions.
pub(crate) const SMALL_PARTITIONS: u16 = 8;

/// Makes the queue, if need be, and puts jobs number 0 to `count` into it, in order, behind what is there.
pub(crate) async fn fill(url: &str, workload: &Workload, count: usize) -> Outcome<()> {
    let broker = Broker::connect(patient(url));
    broker.create(&workload.queue).await?;
    let (before, _) = standing(&broker, &workload.queue).await?;
    let mut from = 0;
    while from < count {
        let to = (from + BULK).min(count);
        let taken = broker.enqueue_all(&workload.queue.name, &workload.jobs(from, to)?).await?;
        ensure(taken.iter().all(|job| job.duplicate_of.is_none()) && taken.len() == to - from, || {
            format!("jobs {from} to {to} were not all new to the queue")
        })?;
        from = to;
    }
    let (ready, _) = standing(&broker, &workload.queue).await?;
    ensure(ready == before + count as u64, || {
        format!("{count} jobs were enqueued behind {before}, the queue holds {ready}")
    })
}

/// Jobs in the queue, and how many of them are claimed.
pub(crate) async fn standing(broker: &Broker, queue: &QueueDefinition) -> Outcome<(u64, u64)> {
    let partitions = broker.connection().await?.partitions(queue).await?;
    Ok(partitions.iter().fold((0, 0), |sum, p| (sum.0 + p.ready, sum.1 + p.claimed)))
}

/// An error unless every job is settled and gone, none of them dead.
pub(crate) async fn check_drained(url: &str, queue: &QueueDefinition) -> Outcome<()> {
    let broker = Broker::connect(patient(url));
    for p in broker.connection().await?.partitions(queue).await? {
        ensure(p.ready == 0 && p.claimed == 0 && p.dead == 0, || {
            format!("not everything was settled: {p:?}")
        })?;
    }
    Ok(())
}

/// An error unless effects were applied `jobs` times in all.
pub(crate) async fn check_effects(url: &str, workload: &Workload, jobs: usize) -> Outcome<()> {
    let broker = Broker::connect(patient(url));
    let keys: Vec<String> = (0..workload.keys.min(jobs)).map(|n| workload.key(n)).collect();
    let entities = broker.connection().await?.entities(&workload.queue, &keys).await?;
    let changes: u64 = entities.iter().flatten().map(|entity| entity.changes).sum();
    ensure(changes == jobs as u64, || format!("{jobs} effects were due, {changes} were applied"))
}

/// Timeouts for a server that is busy by design.
pub(crate) fn patient(url: &str) -> RedisConfig {
    RedisConfig { response_timeout: Duration::from_secs(30), ..RedisConfig::new(url) }
}

/// Nanoseconds since 1970 on this machine's clock; processes of one machine share it.
pub(crate) fn now_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
