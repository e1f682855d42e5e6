//! Everything that lies under one partition's hash tag: one field per key of [`crate::keys`].

use super::stream::Stream;
use crate::entry::JobState;
use crate::settle::Emit;
use bytes::Bytes;
use gristmill_job::{JobId, Key, Place, UnixMillis};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Partition {
    pub(super) meta: Option<Meta>,
    pub(super) stream: Stream<Job>,
    pub(super) lease: Lease,
    /// The tenures whose gate is open, by consumer name: at most one.
    pub(super) gates: BTreeSet<String>,
    pub(super) state: BTreeMap<Place, StateLine>,
    /// In order of death; a letter's id may be written once more, and then moves.
    pub(super) dead: BTreeSet<(UnixMillis, String)>,
    pub(super) dead_bodies: BTreeMap<String, Bytes>,
    pub(super) outbox: Stream<Emit>,
    pub(super) seen: BTreeMap<JobId, Mark>,
    /// Until when (ms) a call's repeat is known.
    pub(super) calls: BTreeMap<String, u64>,
    pub(super) entities: BTreeMap<Key, Entity>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Meta {
    pub(super) partitions: u16,
    /// Jobs; 0 is no limit.
    pub(super) limit: u64,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Lease {
    /// Empty if nobody's.
    pub(super) owner: String,
    /// Stays when it is released.
    pub(super) epoch: Option<u64>,
    pub(super) number: u64,
    pub(super) expires_ms: u64,
    /// Who, and until when (ms).
    pub(super) wanted: Option<(String, u64)>,
}

/// The three fields of a stream entry.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Job {
    pub(super) id: JobId,
    pub(super) key: Key,
    pub(super) envelope: Bytes,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct StateLine {
    pub(super) turn: u32,
    pub(super) attempts: u32,
    pub(super) due_ms: u64,
    pub(super) error: String,
}

impl StateLine {
    pub(super) fn at(&self, now_ms: u64) -> JobState {
        JobState {
            turn: self.turn,
            attempts: self.attempts,
            due_in: Duration::from_millis(self.due_ms.saturating_sub(now_ms)),
        }
    }
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
    Applied,
    Stale,
    Discarded,
    Dead(String),
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting(place) => write!(f, "waiting {place}"),
            Self::Applied => f.write_str("applied"),
            Self::Stale => f.write_str("stale"),
            Self::Discarded => f.write_str("discarded"),
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

    /// The turn of a job: 0 if it was never put back.
    pub(super) fn turn_of(&self, place: Place) -> u32 {
        self.state.get(&place).map_or(0, |line| line.turn)
    }
}
