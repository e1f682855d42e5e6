//! The task of a tenure: sends its calls in order on its one connection, and reports their answers in order.

use crate::partition::shared::Shared;
use crate::partition::tenure::{End, Event};
use crate::partition::{Message, was_answered};
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use gristmill_broker::call::Guard;
use gristmill_broker::{
    Answer, Broker, Call, CallError, Connection, EnqueueError, Fence, Link, PartitionKeys,
};
use gristmill_job::{EncodedJob, Place, QueueName};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::{mpsc, watch};

/// Calls that are sent and not answered.
const UNDER_WAY: usize = 32;
/// Outbox entries per step.
const FORWARD_JOBS: usize = 32;

/// Dropping it ends the task; calls under way may still run, and are refused or find nothing to do.
pub(crate) struct Line {
    calls: mpsc::UnboundedSender<(u64, Arc<Call>)>,
    connection: Connection,
}

impl Line {
    pub(crate) fn start(
        connection: Connection,
        link: Link,
        fence: Fence,
        shared: Arc<Shared>,
        seen_window_ms: u64,
    ) -> Self {
        let (calls, waiting) = mpsc::unbounded_channel();
        tokio::spawn(serve(connection.clone(), link, fence, shared, seen_window_ms, waiting));
        Self { calls, connection }
    }

    pub(crate) fn send(&self, number: u64, call: Arc<Call>) {
        // The task ends only with this handle.
        let _ = self.calls.send((number, call));
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }
}

async fn serve(
    connection: Connection,
    link: Link,
    fence: Fence,
    shared: Arc<Shared>,
    seen_window_ms: u64,
    mut waiting: mpsc::UnboundedReceiver<(u64, Arc<Call>)>,
) {
    let epoch = fence.epoch;
    let fence = Arc::new(fence);
    let mut current = link.watch();
    let generation = connection.generation();
    let mut under_way = FuturesOrdered::new();
    loop {
        tokio::select! {
            biased;
            call = waiting.recv(), if under_way.len() < UNDER_WAY => {
                let Some((number, call)) = call else { return };
                let mut sent = Box::pin(one(connection.clone(), shared.keys.clone(), fence.clone(), number, seen_window_ms, call));
                // The first poll sends it, so that calls leave in order whatever is polled next: it must not end early
                // because this task has done enough for one turn.
                match futures_util::poll!(tokio::task::unconstrained(&mut sent)) {
                    std::task::Poll::Ready(answer) => under_way.push_back(futures_util::future::Either::Left(std::future::ready(answer))),
                    std::task::Poll::Pending => under_way.push_back(futures_util::future::Either::Right(sent)),
                }
            }
            Some((number, result)) = under_way.next(), if !under_way.is_empty() => {
                if was_answered(&result) {
                    shared.answered.fetch_max(number, Ordering::SeqCst);
                }
                shared.cast(Message::Event(epoch, Event::Answered(number, result)));
            }
            () = replaced(&mut current, generation) => {
                shared.cast(Message::Event(epoch, Event::Lost(End::Connection)));
                return;
            }
        }
    }
}

/// Waits until the link has another connection than this, or none.
async fn replaced(current: &mut watch::Receiver<Option<Connection>>, generation: u64) {
    let _ = current.wait_for(|c| c.as_ref().is_none_or(|c| c.generation() != generation)).await;
}

async fn one(
    connection: Connection,
    keys: Arc<PartitionKeys>,
    fence: Arc<Fence>,
    number: u64,
    seen_window_ms: u64,
    call: Arc<Call>,
) -> (u64, Result<Answer, CallError>) {
    let guard = Guard { keys: &keys, fence: &fence, number, seen_window_ms };
    (number, connection.call(&call, guard).await)
}

/// Enqueues the oldest outbox entries in their queues by id. Returns which may be removed, and whether there are more.
/// An entry that cannot be read, or whose queue does not exist, stays and is passed over.
pub(crate) async fn forward(
    connection: &Connection,
    keys: &PartitionKeys,
    broker: &Broker,
) -> Result<(Vec<Place>, bool), CallError> {
    let emitted = connection.outbox(keys, FORWARD_JOBS).await?;
    let full = emitted.len() >= FORWARD_JOBS;
    let mut by_queue: BTreeMap<QueueName, (Vec<Place>, Vec<EncodedJob>)> = BTreeMap::new();
    let mut stuck = false;
    for (id, job) in emitted {
        match job {
            Ok((queue, job)) => {
                let (ids, jobs) = by_queue.entry(queue).or_default();
                ids.push(id);
                jobs.push(job);
            }
            Err(error) => {
                stuck = true;
                tracing::error!(%id, error, "an outbox entry cannot be read; it stays");
            }
        }
    }
    let mut done = Vec::new();
    for (queue, (ids, jobs)) in by_queue {
        match broker.enqueue_encoded(&queue, jobs).await {
            Ok(_) => done.extend(ids),
            Err(EnqueueError::Call(error)) => {
                return if done.is_empty() { Err(error) } else { Ok((done, true)) };
            }
            Err(error) => {
                stuck = true;
                tracing::warn!(%queue, %error, "emitted jobs wait for their queue");
            }
        }
    }
    if stuck && done.is_empty() {
        return Err(CallError::Unexpected("outbox entries wait for a queue that takes them".into()));
    }
    Ok((done, full || stuck))
}
