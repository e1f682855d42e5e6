//! Everything that lies under one partition's hash tag: one field per key of [`crate::keys`].

use super::stream::Stream;
use crate::call::Guard;
use crate::cancel::Asked;
use crate::delayed::Member;
use crate::keys::Mode;
use crate::schedule::{Pause, Record};
use crate::settle::Emit;
use crate::state::{JobState, Said, StateLine};
use bytes::Bytes;
use gristmill_job::{JobId, Key, Place, UnixMillis};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Partition {
    pub(super) meta: Option<Meta>,
    pub(super) stream: Stream<Job>,
    pub(super) lease: Lease,
    /// The tenures whose gate is open, by consumer name: at most one.
    pub(super) gates: BTreeSet<String>,
    pub(super) state: BTreeMap<Place, StateLine>,
    /// Jobs that came back from the dead, with the value of `changes` at their return.
    pub(super) returned: BTreeMap<Place, (u64, Job)>,
    /// First envelopes of jobs that were replayed with another.
    pub(super) originals: BTreeMap<Place, Bytes>,
    pub(super) held: BTreeMap<Key, Hold>,
    /// Jobs that their owner is asked to end.
    pub(super) asked: VecDeque<Asked>,
    /// In order of death; a letter's id may be written once more, and then moves.
    pub(super) dead: BTreeSet<(UnixMillis, String)>,
    pub(super) dead_bodies: BTreeMap<String, Bytes>,
    pub(super) schedules: BTreeMap<String, Record>,
    pub(super) schedule_definitions: BTreeMap<String, Bytes>,
    pub(super) schedules_paused: BTreeMap<String, Pause>,
    /// Jobs for later, by due time (ms) and member, each with the line it gets with its place.
    pub(super) delayed: BTreeMap<(u64, Member), (Job, StateLine)>,
    pub(super) outbox: Stream<Emit>,
    pub(super) seen: BTreeMap<JobId, Mark>,
    /// Until when (ms) a call's repeat is known.
    pub(super) calls: BTreeMap<String, u64>,
    pub(super) entities: BTreeMap<Key, Entity>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Meta {
    pub(super) mode: Mode,
    pub(super) partitions: u16,
    /// Jobs; 0 is no limit.
    pub(super) limit: u64,
    /// Jobs ever delayed.
    pub(super) delayed_seq: u64,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Lease {
    /// Empty if nobody's.
    pub(super) owner: String,
    /// Stays when it is released.
    pub(super) epoch: Option<u64>,
    pub(super) number: u64,
    pub(super) expires_ms: u64,
    /// For how long it is granted and prolonged; stays when it is released.
    pub(super) ttl_ms: Option<u64>,
    /// Who, and until when (ms).
    pub(super) wanted: Option<(String, u64)>,
    /// Grows with every act of a person on the partition's lanes.
    pub(super) changes: u64,
}

/// A lane that waits for a person.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hold {
    /// The dead letter it waits for.
    pub(super) letter: String,
    pub(super) since_ms: u64,
    pub(super) place: Place,
}

/// The three fields of a stream entry.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Job {
    pub(super) id: JobId,
    pub(super) key: Key,
    pub(super) envelope: Bytes,
}

/// The mark of a producer's id.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Mark {
    pub(super) standing: Standing,
    /// `None` as long as its job lives.
    pub(super) expires_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Standing {
    Waiting(Place),
    /// For later.
    Delayed(Member),
    Applied,
    Stale,
    Discarded,
    /// By whom, where that is known.
    Cancelled(Option<Said>),
    Expired,
    Dead(String),
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting(place) => write!(f, "waiting {place}"),
            Self::Delayed(member) => write!(f, "waiting {member}"),
            Self::Applied => f.write_str("applied"),
            Self::Stale => f.write_str("stale"),
            Self::Discarded => f.write_str("discarded"),
            Self::Cancelled(Some(said)) => write!(f, "cancelled {said}"),
            Self::Cancelled(None) => f.write_str("cancelled"),
            Self::Expired => f.write_str("expired"),
            Self::Dead(letter) => write!(f, "dead {letter}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Entity {
    Is {
        version: u64,
        state: Bytes,
        deleted: bool,
        changes: u64,
    },
    /// Its key holds another type: whatever touches it is refused.
    Spoiled,
}

impl Partition {
    /// The mark that is valid now.
    pub(super) fn mark(&self, now_ms: u64, id: &JobId) -> Option<&Standing> {
        let mark = self.seen.get(id)?;
        mark.expires_ms.is_none_or(|expires| expires > now_ms).then_some(&mark.standing)
    }

    /// Writes a line; one that says nothing is none.
    pub(super) fn write_state(&mut self, place: Place, line: StateLine) {
        if line == StateLine::default() {
            self.state.remove(&place);
        } else {
            self.state.insert(place, line);
        }
    }

    /// Whether a job is anybody's: pending, or back from the dead.
    pub(super) fn is_there(&self, place: Place) -> bool {
        self.returned.contains_key(&place) || self.stream.is_pending(place)
    }

    /// Whether a job is claimed, as far as this caller is concerned: without a lease it must be its own.
    pub(super) fn is_claimed(&self, guard: Guard<'_>, place: Place) -> bool {
        match guard.is_unordered() {
            true => self.stream.is_held_by(&guard.fence.consumer(), place),
            false => self.is_there(place),
        }
    }

    /// What is stored about a job.
    pub(super) fn state_of(&self, now_ms: u64, place: Place) -> JobState {
        self.state.get(&place).map_or_else(JobState::default, |line| JobState::of(line.clone(), now_ms))
    }

    /// The turn of a job: 0 if it was never put back.
    pub(super) fn turn_of(&self, place: Place) -> u32 {
        self.state.get(&place).map_or(0, |line| line.turn)
    }
}
