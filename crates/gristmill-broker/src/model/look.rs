//! Plain reads as in [`crate::inspect`], what only tests look at, and what a test may break.

use super::Model;
use super::partition::{Entity, Hold, Job, Partition};
use super::stream::Claim;
use crate::cancel::Asked;
use crate::delayed::Member;
use crate::fence::{Fence, Incarnation};
use crate::inspect::{DeadView, EntityView, PartitionView};
use crate::keys::{PartitionKeys, QueueDefinition};
use crate::lease::acquire::millis;
use crate::locate::ClaimView;
use crate::state::StateLine;
use bytes::Bytes;
use gristmill_job::{DeadLetter, Due, EncodedJob, JobId, Key, Place, QueueName, UnixMillis, partition_of};
use std::time::Duration;

/// An outbox entry: its id, and the job and where it goes, or why it cannot be read.
pub type Outgoing = (Place, Result<(QueueName, EncodedJob), String>);

impl Model {
    /// As [`crate::Connection::queues`].
    #[must_use]
    pub fn queues(&self) -> Vec<QueueDefinition> {
        self.queues.values().cloned().collect()
    }

    /// As [`crate::Connection::definition`].
    #[must_use]
    pub fn definition(&self, name: &QueueName) -> Option<QueueDefinition> {
        self.queues.get(name).cloned()
    }

    /// As [`crate::Connection::partitions`].
    #[must_use]
    pub fn partitions(&self, queue: &QueueDefinition) -> Vec<PartitionView> {
        let empty = Partition::default();
        let view = |number| {
            let partition = self.seen_partition(&queue.partition(number)).unwrap_or(&empty);
            PartitionView {
                partition: number,
                ready: partition.stream.entries().len() as u64,
                claimed: partition.stream.pending().len() as u64,
                dead: partition.dead.len() as u64,
                outbox: partition.outbox.entries().len() as u64,
                delayed: partition.delayed.len() as u64,
                due: partition.delayed.keys().next().map(|(due, _)| UnixMillis(*due)),
                oldest: partition.stream.entries().keys().next().map(|place| UnixMillis(place.ms)),
                owner: partition.lease.owner.clone(),
                epoch: partition.lease.epoch.unwrap_or_default(),
                expires: UnixMillis(partition.lease.expires_ms),
                now: self.now(),
            }
        };
        (0..queue.partitions).map(view).collect()
    }

    /// As [`crate::Connection::entity`]; an entity whose key was spoiled is shown as none.
    #[must_use]
    pub fn entity(&self, queue: &QueueDefinition, key: &[u8]) -> Option<EntityView> {
        let keys = queue.partition(partition_of(key, queue.partitions));
        let key = Key::from_stored(Bytes::copy_from_slice(key));
        match self.seen_partition(&keys)?.entities.get(&key)? {
            Entity::Spoiled => None,
            Entity::Is { version, state, deleted, changes } => Some(EntityView {
                version: *version,
                state: state.clone(),
                deleted: *deleted,
                changes: *changes,
            }),
        }
    }

    /// As [`crate::Connection::dead_letters`].
    #[must_use]
    pub fn dead_letters(
        &self,
        queue: &QueueDefinition,
        partition: u16,
        skip: usize,
        count: usize,
    ) -> Vec<DeadView> {
        let Some(found) = self.seen_partition(&queue.partition(partition)) else { return Vec::new() };
        let view = |(at, id): &(UnixMillis, String)| DeadView {
            id: id.clone(),
            partition,
            at: *at,
            letter: match found.dead_bodies.get(id) {
                Some(body) => DeadLetter::decode(body),
                None => Err("its record is gone".to_owned()),
            },
        };
        found.dead.iter().skip(skip).take(count.max(1)).map(view).collect()
    }

    /// As [`crate::Connection::outbox`]; the model holds no entry that cannot be read.
    #[must_use]
    pub fn outbox(&self, keys: &PartitionKeys, count: usize) -> Vec<Outgoing> {
        let Some(partition) = self.seen_partition(keys) else { return Vec::new() };
        let emitted = partition.outbox.entries().iter().take(count);
        emitted
            .map(|(place, emit)| {
                (*place, Ok((emit.queue.clone(), EncodedJob { own_id: true, ..emit.job.clone() })))
            })
            .collect()
    }

    /// As [`crate::Connection::doorbell`], but answers at once.
    #[must_use]
    pub fn doorbell(&self, streams: &[(&str, Place)]) -> Vec<(String, Place)> {
        let rung = |(stream, from): &(&str, Place)| {
            let partition = self.partitions.get(*stream)?;
            let (place, _) = partition.stream.entries().range(from.next()..).next()?;
            Some(((*stream).to_owned(), *place))
        };
        streams.iter().filter_map(rung).collect()
    }

    /// What living nodes say of the kinds they serve, in order of incarnation; those that say nothing are left out.
    #[must_use]
    pub fn announced_kinds(&self, queue: &QueueName) -> Vec<(Incarnation, String)> {
        let living = self.nodes.get(queue).into_iter().flatten();
        let living = living.filter(|(_, it)| it.expires_ms > self.now_ms && !it.kinds.is_empty());
        living.map(|(name, it)| (Incarnation::from_stored(name), it.kinds.clone())).collect()
    }

    /// The jobs in a partition's stream, in order of place, with the consumer that holds each claim.
    #[must_use]
    pub fn jobs(&self, keys: &PartitionKeys) -> Vec<(Place, JobId, Option<String>)> {
        let Some(partition) = self.seen_partition(keys) else { return Vec::new() };
        let pending = partition.stream.pending();
        let job = |(place, job): (&Place, &Job)| {
            (*place, job.id.clone(), pending.get(place).map(|it| it.holder.clone()))
        };
        partition.stream.entries().iter().map(job).collect()
    }

    /// Everything that is pending in a partition, in order of place, also claims of jobs that were deleted by hand.
    #[must_use]
    pub fn claims(&self, keys: &PartitionKeys) -> Vec<(Place, ClaimView)> {
        let Some(partition) = self.seen_partition(keys) else { return Vec::new() };
        let claim = |(place, claim): (&Place, &Claim)| {
            let (holder, idle_ms) = (claim.holder.clone(), claim.idle_ms(self.now_ms));
            (*place, ClaimView { holder, idle_ms, deliveries: claim.deliveries })
        };
        partition.stream.pending().iter().map(claim).collect()
    }

    /// What is stored about a job.
    #[must_use]
    pub fn state(&self, keys: &PartitionKeys, place: Place) -> Option<StateLine> {
        self.seen_partition(keys)?.state.get(&place).cloned()
    }

    /// The dead letter for which the lane of a key waits, and since when.
    #[must_use]
    pub fn hold_of(&self, keys: &PartitionKeys, key: &Key) -> Option<(String, UnixMillis)> {
        let hold = self.seen_partition(keys)?.held.get(key)?;
        Some((hold.letter.clone(), UnixMillis(hold.since_ms)))
    }

    /// The first envelope of a job that was replayed with another.
    #[must_use]
    pub fn original(&self, keys: &PartitionKeys, place: Place) -> Option<bytes::Bytes> {
        self.seen_partition(keys)?.originals.get(&place).cloned()
    }

    /// How often people have acted on the partition's lanes.
    #[must_use]
    pub fn changes(&self, keys: &PartitionKeys) -> u64 {
        self.seen_partition(keys).map_or(0, |partition| partition.lease.changes)
    }

    /// Everything that is stored about jobs, in order of place.
    #[must_use]
    pub fn states(&self, keys: &PartitionKeys) -> Vec<(Place, StateLine)> {
        let Some(partition) = self.seen_partition(keys) else { return Vec::new() };
        partition.state.iter().map(|(place, line)| (*place, line.clone())).collect()
    }

    /// Jobs that came back from the dead, in order of place, with the value of `changes` at their return.
    #[must_use]
    pub fn returned(&self, keys: &PartitionKeys) -> Vec<(Place, u64, EncodedJob)> {
        let Some(partition) = self.seen_partition(keys) else { return Vec::new() };
        let job = |(place, (at, job)): (&Place, &(u64, Job))| {
            let (id, key, envelope) = (job.id.clone(), job.key.clone(), job.envelope.clone());
            (*place, *at, EncodedJob { id, key, envelope, own_id: false, due: Due::Now })
        };
        partition.returned.iter().map(job).collect()
    }

    /// First envelopes of jobs that were replayed with another, in order of place.
    #[must_use]
    pub fn originals(&self, keys: &PartitionKeys) -> Vec<(Place, Bytes)> {
        let Some(partition) = self.seen_partition(keys) else { return Vec::new() };
        partition.originals.iter().map(|(place, envelope)| (*place, envelope.clone())).collect()
    }

    /// Keys whose lanes wait for a person, each with its `<letter> <since ms> <place>`.
    #[must_use]
    pub fn held(&self, keys: &PartitionKeys) -> Vec<(Key, String)> {
        let Some(partition) = self.seen_partition(keys) else { return Vec::new() };
        let hold = |(key, hold): (&Key, &Hold)| {
            (key.clone(), format!("{} {} {}", hold.letter, hold.since_ms, hold.place))
        };
        partition.held.iter().map(hold).collect()
    }

    /// Jobs that their owner is asked to end and has not heard of.
    #[must_use]
    pub fn asked(&self, keys: &PartitionKeys) -> Vec<Asked> {
        self.seen_partition(keys).map_or_else(Vec::new, |partition| partition.asked.iter().cloned().collect())
    }

    /// How a producer's id stands (`waiting <place>`, `applied`, `stale`, `dead <letter>`), and until when that is
    /// known, if not as long as its job lives.
    #[must_use]
    pub fn mark(&self, keys: &PartitionKeys, id: &JobId) -> Option<(String, Option<UnixMillis>)> {
        let partition = self.seen_partition(keys)?;
        let standing = partition.mark(self.now_ms, id)?;
        Some((standing.to_string(), partition.seen.get(id)?.expires_ms.map(UnixMillis)))
    }

    /// Whether the gate of a tenure is open: it may claim.
    #[must_use]
    pub fn gate(&self, keys: &PartitionKeys, fence: &Fence) -> bool {
        self.seen_partition(keys).is_some_and(|partition| partition.gates.contains(&fence.consumer()))
    }

    /// The tenures whose gate is open, as consumers are named: one at most.
    #[must_use]
    pub fn gates(&self, keys: &PartitionKeys) -> Vec<String> {
        self.seen_partition(keys).map_or_else(Vec::new, |partition| partition.gates.iter().cloned().collect())
    }

    /// The number of the last call that was executed in the present tenure.
    #[must_use]
    pub fn number(&self, keys: &PartitionKeys) -> u64 {
        self.seen_partition(keys).map_or(0, |partition| partition.lease.number)
    }

    /// Jobs for later: what names each, when it is due, and the job with the line it will have, in order.
    #[must_use]
    pub fn delayed(&self, keys: &PartitionKeys) -> Vec<(Member, UnixMillis, EncodedJob, StateLine)> {
        let Some(partition) = self.seen_partition(keys) else { return Vec::new() };
        let job = |((due, member), (job, line)): (&(u64, Member), &(Job, StateLine))| {
            let (id, key, envelope) = (job.id.clone(), job.key.clone(), job.envelope.clone());
            let job = EncodedJob { id, key, envelope, own_id: member.id().1, due: Due::At(UnixMillis(*due)) };
            (member.clone(), UnixMillis(*due), job, line.clone())
        };
        partition.delayed.iter().map(job).collect()
    }

    /// How many jobs were ever delayed.
    #[must_use]
    pub fn delayed_seq(&self, keys: &PartitionKeys) -> u64 {
        self.seen_partition(keys)
            .and_then(|partition| partition.meta.as_ref())
            .map_or(0, |meta| meta.delayed_seq)
    }

    /// Puts a value of another type where this entity's state belongs: its jobs are answered `rejected`.
    pub fn spoil_entity(&mut self, keys: &PartitionKeys, key: &Key) {
        self.partition(keys).entities.insert(key.clone(), Entity::Spoiled);
    }

    /// Brings a job back from the dead with this line, as a replay does; `original` is its envelope before an edit. The
    /// value of `changes` is the answer.
    pub fn come_back(
        &mut self,
        keys: &PartitionKeys,
        place: Place,
        job: &EncodedJob,
        line: StateLine,
        original: Option<Bytes>,
    ) -> u64 {
        let partition = self.partition(keys);
        partition.lease.changes += 1;
        let changes = partition.lease.changes;
        let job = Job { id: job.id.clone(), key: job.key.clone(), envelope: job.envelope.clone() };
        partition.returned.insert(place, (changes, job));
        partition.write_state(place, line);
        if let Some(original) = original {
            partition.originals.entry(place).or_insert(original);
        }
        changes
    }

    /// Writes what is stored about a job, whether it is there or not.
    pub fn set_line(&mut self, keys: &PartitionKeys, place: Place, line: StateLine) {
        self.partition(keys).write_state(place, line);
    }

    /// Time passes for what is pending and for jobs for later: claims were not extended for so much longer, and jobs are due
    /// so much sooner. Claims of jobs that were deleted by hand are forgotten.
    pub fn pass(&mut self, keys: &PartitionKeys, time: Duration) {
        let partition = self.partition(keys);
        let ms = millis(time);
        partition.stream.age(ms);
        let delayed = std::mem::take(&mut partition.delayed).into_iter();
        partition.delayed =
            delayed.map(|((due, member), job)| ((due.saturating_sub(ms), member), job)).collect();
    }

    /// Deletes a job of the stream by hand: who claims it still does.
    pub fn delete_job(&mut self, keys: &PartitionKeys, place: Place) {
        self.partition(keys).stream.delete(place);
    }

    /// Holds a key, whether its letter is there or not.
    pub fn put_hold(
        &mut self,
        keys: &PartitionKeys,
        key: &Key,
        letter: &str,
        since: UnixMillis,
        place: Place,
    ) {
        let hold = Hold { letter: letter.to_owned(), since_ms: since.0, place };
        self.partition(keys).held.insert(key.clone(), hold);
    }

    /// Limits the length of a partition, in jobs; 0 is no limit.
    pub fn set_limit(&mut self, keys: &PartitionKeys, limit: u64) {
        if let Some(meta) = &mut self.partition(keys).meta {
            meta.limit = limit;
        }
    }
}
