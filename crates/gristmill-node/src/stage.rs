//! What tests of single rooms put on the stage: a job, a run, bounds, and an actor that tells what it hears.

use crate::partition::lanes::{Lanes, Memory};
use crate::partition::policy::Policy;
use crate::partition::tenure::{Bounds, Run};
use bytes::Bytes;
use gristmill_broker::{Entry, Epoch, JobState};
use gristmill_job::{JobId, Key, Place, RetryPolicy};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// A job that was never put back.
pub(crate) fn entry(seq: u64, key: &str) -> Entry {
    Entry {
        place: Place { ms: 1, seq },
        id: JobId::from_stored(Bytes::from(format!("id{seq}"))),
        key: Key::from_stored(Bytes::copy_from_slice(key.as_bytes())),
        envelope: Bytes::new(),
        state: JobState::default(),
        recovered: false,
        returned: false,
        claim: 1,
    }
}

/// Its first run.
pub(crate) fn run(entry: Entry) -> Run {
    let mut lanes = Lanes::new(bounds().memory);
    lanes.push(entry.clone(), Instant::now());
    Run {
        epoch: Epoch(1),
        lane: lanes.find(&entry.key).unwrap(),
        entry: Arc::new(entry),
        turn: 0,
        attempt: 1,
        alone: false,
        acknowledged: false,
        reconcile: false,
        first: None,
        slot: None,
        due: None,
    }
}

/// Of a partition of a small queue that says nothing.
pub(crate) fn bounds() -> Bounds {
    Bounds {
        window_jobs: 10,
        window_parked: 10_000,
        memory: Memory { jobs_per_lane: 32, longest_wait: Duration::from_secs(2) },
        window_bytes: 1 << 20,
        claim_jobs: 10,
        recover_jobs: 10,
        handover_wait: Duration::from_secs(5),
        census_every: Duration::from_secs(30),
        policy: Policy::with(RetryPolicy::default()),
    }
}

/// Tells every message it gets.
struct Listener<M>(PhantomData<fn(M)>);

impl<M: ractor::Message> Actor for Listener<M> {
    type Msg = M;
    type State = mpsc::UnboundedSender<M>;
    type Arguments = mpsc::UnboundedSender<M>;

    async fn pre_start(
        &self,
        _: ActorRef<M>,
        heard: mpsc::UnboundedSender<M>,
    ) -> Result<mpsc::UnboundedSender<M>, ActorProcessingErr> {
        Ok(heard)
    }

    async fn handle(
        &self,
        _: ActorRef<M>,
        message: M,
        heard: &mut mpsc::UnboundedSender<M>,
    ) -> Result<(), ActorProcessingErr> {
        let _ = heard.send(message);
        Ok(())
    }
}

/// An actor in the place of another, and what it is told.
pub(crate) async fn listener<M: ractor::Message>() -> (ActorRef<M>, mpsc::UnboundedReceiver<M>) {
    let (heard, hears) = mpsc::unbounded_channel();
    let (actor, _) = Actor::spawn(None, Listener(PhantomData), heard).await.unwrap();
    (actor, hears)
}
