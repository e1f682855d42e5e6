//! The scripts' ceiling: gristmill's own numbered, fenced calls with no node around them.

use crate::failure::{Failure, Outcome, ensure};
use crate::jobs::patient;
use crate::rate::Samples;
use bytes::Bytes;
use futures_util::future::{join, try_join_all};
use gristmill_broker::call::Guard;
use gristmill_broker::lease::acquire::{Acquire, Acquired, Before};
use gristmill_broker::{
    Answer, Call, Connection, Entry, Epoch, Fence, Incarnation, PartitionKeys, QueueDefinition, Settle,
    Settled, Verdict,
};
use gristmill_job::{EntityChange, Envelope};
use std::cell::RefCell;
use std::time::Duration;

/// Long enough for a whole run: nothing renews it.
const LEASE: Duration = Duration::from_secs(3600);
const SEEN_WINDOW_MS: u64 = 24 * 3600 * 1000;

/// One partition's tenure.
pub(crate) struct Tenure<'a> {
    connection: &'a Connection,
    keys: PartitionKeys,
    fence: Fence,
    number: u64,
}

impl<'a> Tenure<'a> {
    /// Acquires a partition that is free.
    pub(crate) async fn acquire(
        connection: &'a Connection,
        queue: &QueueDefinition,
        partition: u16,
        incarnation: &Incarnation,
    ) -> Outcome<Self> {
        let mut before = Before::default();
        loop {
            let acquire = Acquire {
                queue,
                partition,
                incarnation,
                ttl: LEASE,
                highest: Epoch::default(),
                before: &before,
            };
            match connection.acquire(&acquire).await? {
                Acquired::Granted(epoch) => {
                    let fence = Fence { incarnation: incarnation.clone(), epoch };
                    return Ok(Self { connection, keys: queue.partition(partition), fence, number: 0 });
                }
                Acquired::Changed(now) => before = now,
                other => {
                    return Err(Failure::Broken(format!(
                        "partition {partition} is not to be had: {other:?}"
                    )));
                }
            }
        }
    }

    /// The next call of this tenure; sent when first polled.
    fn call<'b>(&mut self, call: &'b Call) -> impl Future<Output = Outcome<Answer>> + use<'a, 'b> {
        self.number += 1;
        let (connection, keys, fence) = (self.connection, self.keys.clone(), self.fence.clone());
        let number = self.number;
        async move {
            let guard = Guard { keys: &keys, fence: &fence, number, seen_window_ms: SEEN_WINDOW_MS };
            Ok(connection.call(call, guard).await?)
        }
    }

    /// Claims up to `count` jobs.
    pub(crate) async fn claim(&mut self, count: usize) -> Outcome<Vec<Entry>> {
        claimed(self.call(&Call::Claim { count }).await?)
    }
}

/// Drains every partition: the settle of a batch and the claim of the next are sent one behind the other, unanswered.
pub(crate) async fn drain(
    url: &str,
    queue: &QueueDefinition,
    effect: bool,
    batch: usize,
    in_flight: usize,
) -> Outcome<Samples> {
    let connection = Connection::open(&patient(url), 1).await?;
    let incarnation = Incarnation::of("ceiling", rand::random());
    let mut tenures = Vec::new();
    for partition in 0..queue.partitions {
        tenures.push(Tenure::acquire(&connection, queue, partition, &incarnation).await?);
    }
    let samples = RefCell::new(Samples::start());
    let share = tenures.len().div_ceil(in_flight);
    let lanes = tenures.chunks_mut(share).map(async |tenures| {
        for tenure in tenures {
            drain_one(tenure, effect, batch, &samples).await?;
        }
        Ok::<(), Failure>(())
    });
    try_join_all(lanes).await?;
    Ok(samples.into_inner())
}

async fn drain_one(
    tenure: &mut Tenure<'_>,
    effect: bool,
    batch: usize,
    samples: &RefCell<Samples>,
) -> Outcome<()> {
    let state = Bytes::from_static(crate::child::STATE);
    let claim = Call::Claim { count: batch };
    let mut held = tenure.claim(batch).await?;
    while !held.is_empty() {
        let jobs = held.drain(..).map(|entry| verdict(entry, effect, &state)).collect::<Outcome<_>>()?;
        let settle = Call::Settle(jobs);
        let (settling, claiming) = (tenure.call(&settle), tenure.call(&claim));
        let (settled, next) = join(settling, claiming).await;
        let Answer::Settled { jobs, first: true } = settled? else {
            return Err(Failure::Broken("a settle of the ceiling was refused".into()));
        };
        let done = jobs.iter().filter(|job| **job == Settled::Done).count();
        ensure(done == jobs.len(), || format!("{done} of {} jobs were done", jobs.len()))?;
        samples.borrow_mut().more(done as u64);
        held = claimed(next?)?;
    }
    Ok(())
}

fn verdict(entry: Entry, effect: bool, state: &Bytes) -> Outcome<Settle> {
    let envelope = Envelope::decode(&entry.envelope, usize::MAX)
        .map_err(|error| Failure::Broken(format!("a job of the bench does not decode: {error}")))?;
    let verdict = Verdict::Done {
        version: envelope.version,
        entity: effect.then(|| EntityChange::Put(state.clone())),
        emits: Vec::new(),
    };
    let marked = envelope.own_id;
    Ok(Settle { place: entry.place, turn: 0, id: entry.id, key: entry.key, marked, verdict })
}

fn claimed(answer: Answer) -> Outcome<Vec<Entry>> {
    match answer {
        Answer::Claimed(entries) => Ok(entries),
        other => Err(Failure::Broken(format!("expected claimed jobs, got {other:?}"))),
    }
}
