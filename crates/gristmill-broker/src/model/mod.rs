//! The same operations as a pure in-memory machine: no server, no async, no clock of its own.
//!
//! [`Model`] has the methods of [`crate::Connection`] under the same names with the same arguments and answers, except
//! that an answer never gets lost. Node tests use it as the store; `tests/agreement` runs random operations on both and
//! they must agree. A clone is cheap and is what a failover to an older prefix looks like: go on with an earlier clone.
//!
//! * `stream`: what a Redis stream with one consumer group does.
//! * `partition`: everything that lies under one partition's hash tag.
//! * `lease`, `enqueue`, `claim` (with hand back and forward), `recover` (with take, start, absolve and census), `settle`:
//!   as the scripts of these names; `people`: replay, discard, release_key, skip, cancel, purge.
//! * `unordered`: grab, extend and reclaim, of queues with ordering none; the calls under number 0 are where their
//!   numbered forms are.
//! * `schedule`: define, fire, and what people do with schedules.
//! * `promote`: as its script.
//! * `look`: plain reads, and what a test may break.
//!
//! Invariants: time only moves by [`Model::set_now`]; two models that were asked the same are equal.

mod claim;
mod enqueue;
mod lease;
mod look;
mod partition;
mod people;
mod promote;
mod recover;
mod schedule;
mod settle;
mod stream;
#[cfg(test)]
mod tests;
mod unordered;

use crate::absolve::Absolved;
use crate::announce::Member;
use crate::call::{Answer, Call, Guard};
use crate::cancel::{Cancel, Cancelled};
use crate::create::CreateError;
use crate::delayed::Member as Delayed;
use crate::discard::{Discard, Discarded};
use crate::enqueue::EnqueueAnswer;
use crate::entry::Entry;
use crate::extend::Extended;
use crate::fence::{Fence, Incarnation};
use crate::grab::Grabbed;
use crate::keys::{Mode, PartitionKeys, QueueDefinition};
use crate::lease::acquire::{Acquire, Acquired, millis};
use crate::lease::renew::{Renew, Renewed};
use crate::lease::want::Wanted;
use crate::purge::{LeaseSeen, Purge, Purged};
use crate::reclaim::{Reclaim, Reclaimed};
use crate::release_key::ReleasedKey;
use crate::replay::{Replay, Replayed};
use crate::skip::{Skip, Skipped};
use gristmill_job::{EncodedJob, Key, Place, QueueName, UnixMillis};
pub use look::Outgoing;
use partition::{Meta, Partition};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A whole store.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Model {
    now_ms: u64,
    queues: BTreeMap<QueueName, QueueDefinition>,
    nodes: BTreeMap<QueueName, BTreeMap<String, Presence>>,
    /// By the name of its stream.
    partitions: BTreeMap<String, Arc<Partition>>,
}

/// A node's entry in the registry.
#[derive(Debug, Clone, PartialEq)]
struct Presence {
    expires_ms: u64,
    ttl_ms: u64,
    since_ms: u64,
    draining: bool,
    kinds: String,
}

impl Model {
    /// An empty store whose clock shows 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the clock. A step back is what a failover to a server with a slower clock shows.
    pub fn set_now(&mut self, now: UnixMillis) {
        self.now_ms = now.0;
    }

    /// The clock.
    #[must_use]
    pub fn now(&self) -> UnixMillis {
        UnixMillis(self.now_ms)
    }

    /// Everything is gone but the clock.
    pub fn flush(&mut self) {
        *self = Self { now_ms: self.now_ms, ..Self::default() };
    }

    /// As [`crate::Connection::create`].
    ///
    /// # Errors
    /// [`CreateError::Differs`] where the queue exists with another number of partitions.
    pub fn create(&mut self, queue: &QueueDefinition) -> Result<(), CreateError> {
        let mut differs = None;
        for number in 0..queue.partitions {
            let made = self.partition(&queue.partition(number)).create(queue);
            if let (Err(made), None) = (made, &differs) {
                differs = Some(made);
                if number == 0 {
                    break;
                }
            }
        }
        match differs {
            Some((mode, partitions)) => Err(CreateError::Differs {
                queue: queue.name.clone(),
                mode: mode.as_str().to_owned(),
                partitions: partitions.to_string(),
                configured_mode: queue.mode.as_str(),
                configured: queue.partitions,
            }),
            None => {
                self.queues.insert(queue.name.clone(), queue.clone());
                Ok(())
            }
        }
    }

    /// As [`crate::Connection::enqueue`].
    pub fn enqueue(
        &mut self,
        keys: &PartitionKeys,
        partitions: u16,
        call_id: &str,
        jobs: &[EncodedJob],
    ) -> EnqueueAnswer {
        let now_ms = self.now_ms;
        self.partition(keys).enqueue(now_ms, partitions, call_id, jobs)
    }

    /// As [`crate::Connection::discard`].
    pub fn discard(
        &mut self,
        keys: &PartitionKeys,
        seen_window_ms: u64,
        letters: &[Discard],
    ) -> Vec<Discarded> {
        let now_ms = self.now_ms;
        self.partition(keys).discard(now_ms, seen_window_ms, letters)
    }

    /// As [`crate::Connection::replay`].
    pub fn replay(&mut self, keys: &PartitionKeys, letters: &[Replay]) -> Vec<Replayed> {
        let now_ms = self.now_ms;
        self.partition(keys).replay(now_ms, letters)
    }

    /// As [`crate::Connection::release_key`].
    pub fn release_key(&mut self, keys: &PartitionKeys, key: &Key, waits: Option<Place>) -> ReleasedKey {
        let now_ms = self.now_ms;
        self.partition(keys).release_key(now_ms, key, waits)
    }

    /// As [`crate::Connection::skip`].
    pub fn skip(&mut self, keys: &PartitionKeys, seen_window_ms: u64, skip: &Skip) -> Skipped {
        let now_ms = self.now_ms;
        self.partition(keys).skip(now_ms, seen_window_ms, skip)
    }

    /// As [`crate::Connection::purge`].
    pub fn purge(&mut self, keys: &PartitionKeys, lease: &LeaseSeen, jobs: &[Purge]) -> Purged {
        let now_ms = self.now_ms;
        self.partition(keys).purge(now_ms, lease, jobs)
    }

    /// As [`crate::Connection::cancel`].
    pub fn cancel(&mut self, keys: &PartitionKeys, seen_window_ms: u64, cancel: &Cancel) -> Cancelled {
        let now_ms = self.now_ms;
        self.partition(keys).cancel(now_ms, seen_window_ms, cancel)
    }

    /// As [`crate::Connection::acquire`].
    pub fn acquire(&mut self, acquire: &Acquire<'_>) -> Acquired {
        let now_ms = self.now_ms;
        self.partition(&acquire.queue.partition(acquire.partition)).acquire(now_ms, acquire)
    }

    /// As [`crate::Connection::want`].
    pub fn want(&mut self, keys: &PartitionKeys, incarnation: &Incarnation, stands_for: Duration) -> Wanted {
        let now_ms = self.now_ms;
        self.partition(keys).want(now_ms, incarnation, millis(stands_for))
    }

    /// As [`crate::Connection::renew`].
    pub fn renew(&mut self, leases: &[Renew], ttl: Duration) -> Vec<Renewed> {
        let now_ms = self.now_ms;
        leases.iter().map(|lease| self.partition(&lease.keys).renew(now_ms, lease, millis(ttl))).collect()
    }

    /// As [`crate::Connection::load`].
    #[must_use]
    pub fn load(&self, keys: &PartitionKeys, places: &[Place]) -> Vec<(Place, Option<Entry>)> {
        let nothing = |place: &Place| (*place, None);
        self.partitions.get(&keys.stream).map_or_else(
            || places.iter().map(nothing).collect(),
            |partition| partition.load(self.now_ms, places),
        )
    }

    /// As [`crate::Connection::call`].
    pub fn call(&mut self, call: &Call, guard: Guard<'_>) -> Answer {
        let now_ms = self.now_ms;
        let partition = self.partition(guard.keys);
        match call {
            Call::Claim { count } => partition.claim(now_ms, guard, *count),
            Call::Recover { cursor, count } => partition.recover(now_ms, guard, *cursor, *count),
            Call::Settle(jobs) => partition.settle(now_ms, guard, jobs),
            Call::Take { after, count, cursor } => partition.take(now_ms, guard, *after, *count, *cursor),
            Call::Start(starts) => partition.start(guard, starts),
            Call::HandBack { places, claims, stopped } => {
                partition.hand_back(now_ms, guard, places, claims, *stopped)
            }
            Call::Census { .. } => partition.census(guard),
            Call::Promote(slice) => partition.promote(now_ms, Some(guard), slice),
            Call::Forward(ids) => partition.forward(guard, ids),
            Call::Release => partition.release(guard),
        }
    }

    /// As [`crate::Connection::grab`].
    pub fn grab(&mut self, keys: &PartitionKeys, incarnation: &Incarnation, count: usize) -> Grabbed {
        let now_ms = self.now_ms;
        self.partition(keys).grab(now_ms, incarnation, count)
    }

    /// As [`crate::Connection::grab_new`].
    pub fn grab_new(&mut self, keys: &PartitionKeys, incarnation: &Incarnation, count: usize) -> Grabbed {
        let now_ms = self.now_ms;
        self.partition(keys).grab_new(now_ms, incarnation, count)
    }

    /// As [`crate::Connection::extend`].
    pub fn extend(&mut self, keys: &PartitionKeys, incarnation: &Incarnation, places: &[Place]) -> Extended {
        let now_ms = self.now_ms;
        self.partition(keys).extend(now_ms, incarnation, places)
    }

    /// As [`crate::Connection::reclaim`].
    pub fn reclaim(
        &mut self,
        keys: &PartitionKeys,
        incarnation: &Incarnation,
        reclaim: Reclaim,
    ) -> Reclaimed {
        let now_ms = self.now_ms;
        self.partition(keys).reclaim(now_ms, incarnation, reclaim)
    }

    /// As [`crate::Connection::promote`].
    pub fn promote(&mut self, keys: &PartitionKeys, slice: &[Delayed]) -> Answer {
        let now_ms = self.now_ms;
        self.partition(keys).promote(now_ms, None, slice)
    }

    /// As [`crate::Connection::absolve`].
    pub fn absolve(&mut self, keys: &PartitionKeys, run: &Fence, turn: u32, place: Place) -> Absolved {
        self.partition(keys).absolve(run, turn, place)
    }

    /// As [`crate::Connection::announce`], in order of incarnation.
    pub fn announce(
        &mut self,
        queue: &QueueName,
        incarnation: &Incarnation,
        ttl: Duration,
        draining: bool,
        kinds: &str,
    ) -> Vec<Member> {
        let now_ms = self.now_ms;
        let nodes = self.nodes.entry(queue.clone()).or_default();
        let before = nodes.remove(incarnation.as_str());
        if millis(ttl) > 0 {
            let since_ms = before.map_or(now_ms, |presence| presence.since_ms.min(now_ms));
            let ttl_ms = millis(ttl);
            let expires_ms = now_ms + ttl_ms;
            let presence = Presence { expires_ms, ttl_ms, since_ms, draining, kinds: kinds.to_owned() };
            nodes.insert(incarnation.as_str().to_owned(), presence);
        }
        // One of before the clock was set back lives for its ttl from now on.
        nodes
            .values_mut()
            .for_each(|presence| presence.expires_ms = presence.expires_ms.min(now_ms + presence.ttl_ms));
        nodes.retain(|_, presence| presence.expires_ms > now_ms);
        let member = |(name, presence): (&String, &Presence)| Member {
            incarnation: Incarnation::from_stored(name),
            since: Duration::from_millis(now_ms.saturating_sub(presence.since_ms)),
            draining: presence.draining,
        };
        nodes.iter().map(member).collect()
    }

    fn partition(&mut self, keys: &PartitionKeys) -> &mut Partition {
        Arc::make_mut(self.partitions.entry(keys.stream.clone()).or_default())
    }

    fn seen_partition(&self, keys: &PartitionKeys) -> Option<&Partition> {
        self.partitions.get(&keys.stream).map(Arc::as_ref)
    }
}

impl Partition {
    /// How it was made, where that is otherwise.
    fn create(&mut self, queue: &QueueDefinition) -> Result<(), (Mode, u16)> {
        let (mode, partitions) = (queue.mode, queue.partitions);
        match &self.meta {
            Some(meta) if (meta.mode, meta.partitions) != (mode, partitions) => {
                Err((meta.mode, meta.partitions))
            }
            _ => {
                let before = self.meta.as_ref().map_or((0, 0), |meta| (meta.limit, meta.delayed_seq));
                let (limit, delayed_seq) = before;
                self.meta = Some(Meta { mode, partitions, limit, delayed_seq });
                Ok(())
            }
        }
    }
}
