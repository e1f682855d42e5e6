//! The lanes of a partition: each key's waiting jobs, in order of place. Pure.
//!
//! ```text
//!            start              answer of the run           settle answered: done, dead …
//!   Ready ──────────▶ Running ───────────────────▶ Settling ─────────────────────────────▶ the next job is Ready
//!     ▲                  │ not started, stopped        │ retried
//!     └──────────────────┘                             ▼
//!     └──────────────────────── due ────────────── Backoff
//! ```
//!
//! One job of a key runs at a time; a failing head blocks its lane and no other. A lane is `Blocked` while a run of an
//! earlier tenure with its key has not ended in this process.

use gristmill_broker::Entry;
use gristmill_job::{Key, Place};
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Instant;

/// Which lane. Valid until the lane is empty or the lanes are thrown away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LaneId(u32);

/// Where the head of a lane stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    Ready,
    Running,
    Settling,
    Backoff { until: Instant },
    Blocked,
}

/// A job in a lane.
#[derive(Debug, Clone)]
pub(crate) struct LaneJob {
    pub(crate) entry: Arc<Entry>,
    pub(crate) turn: u32,
    pub(crate) attempts: u32,
}

#[derive(Debug)]
struct Lane {
    head: LaneJob,
    state: Head,
    rest: VecDeque<LaneJob>,
}

/// xxh64 over the key: partitions are chosen by the same hash, which spreads well and costs little.
#[derive(Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxhash_rust::xxh64::xxh64(bytes, self.0);
    }

    // The length prefix of a slice: the bytes alone tell keys apart.
    fn write_usize(&mut self, _: usize) {}
}

#[derive(Debug, Default)]
pub(crate) struct Lanes {
    slots: Vec<Option<Lane>>,
    free: Vec<LaneId>,
    by_key: HashMap<Key, LaneId, BuildHasherDefault<KeyHasher>>,
    ready: VecDeque<LaneId>,
    due: BinaryHeap<std::cmp::Reverse<(Instant, LaneId, Place)>>,
    jobs: usize,
    bytes: usize,
    active: usize,
    highest: Place,
}

/// What a job weighs against the window: its bytes and what holding it costs.
pub(crate) fn weight(entry: &Entry) -> usize {
    entry.envelope.len() + entry.key.as_bytes().len() + entry.id.as_bytes().len() + 256
}

impl Lanes {
    /// Puts a job behind the others of its key. Jobs come in order of place. `blocked` tells whether a run of an earlier
    /// tenure with this key is still alive.
    pub(crate) fn push(&mut self, entry: Entry, now: Instant, blocked: impl FnOnce(&Key) -> bool) {
        self.jobs += 1;
        self.bytes += weight(&entry);
        self.highest = self.highest.max(entry.place);
        let due_in = entry.state.due_in;
        let job = LaneJob { turn: entry.state.turn, attempts: entry.state.attempts, entry: Arc::new(entry) };
        if let Some(lane) = self.by_key.get(&job.entry.key).and_then(|id| self.slots[id.0 as usize].as_mut())
        {
            lane.rest.push_back(job);
            return;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            LaneId(u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX))
        });
        let key = job.entry.key.clone();
        let place = job.entry.place;
        let state = if blocked(&key) {
            Head::Blocked
        } else if due_in.is_zero() {
            self.ready.push_back(id);
            Head::Ready
        } else {
            let until = now + due_in;
            self.due.push(std::cmp::Reverse((until, id, place)));
            Head::Backoff { until }
        };
        self.slots[id.0 as usize] = Some(Lane { head: job, state, rest: VecDeque::new() });
        self.by_key.insert(key, id);
    }

    fn lane(&mut self, id: LaneId) -> Option<&mut Lane> {
        self.slots.get_mut(id.0 as usize).and_then(Option::as_mut)
    }

    /// The head of a lane and where it stands, if it is the job at this place.
    pub(crate) fn head(&self, id: LaneId, place: Place) -> Option<(&LaneJob, Head)> {
        let lane = self.slots.get(id.0 as usize).and_then(Option::as_ref)?;
        (lane.head.entry.place == place).then_some((&lane.head, lane.state))
    }

    /// The lane of a key.
    pub(crate) fn find(&self, key: &Key) -> Option<LaneId> {
        self.by_key.get(key).copied()
    }

    /// The head of a lane.
    pub(crate) fn head_of(&self, id: LaneId) -> Option<&LaneJob> {
        self.slots.get(id.0 as usize).and_then(Option::as_ref).map(|lane| &lane.head)
    }

    /// The next head to start; it is `Running` from here on.
    pub(crate) fn start_next(&mut self) -> Option<(LaneId, LaneJob)> {
        while let Some(id) = self.ready.pop_front() {
            if let Some(lane) = self.lane(id)
                && lane.state == Head::Ready
            {
                lane.state = Head::Running;
                let job = lane.head.clone();
                self.active += 1;
                return Some((id, job));
            }
        }
        None
    }

    /// Whether a head could start now.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The head is being run by this process already (adopted from an earlier tenure).
    pub(crate) fn adopt(&mut self, id: LaneId) {
        if let Some(lane) = self.lane(id)
            && matches!(lane.state, Head::Ready | Head::Blocked)
        {
            lane.state = Head::Running;
            self.active += 1;
        }
    }

    /// Its run has answered; the verdict is on its way.
    pub(crate) fn settling(&mut self, id: LaneId) {
        if let Some(lane) = self.lane(id)
            && lane.state == Head::Running
        {
            lane.state = Head::Settling;
        }
    }

    /// The head was not run, or not to an answer: it is ready again.
    pub(crate) fn not_run(&mut self, id: LaneId) {
        let Some(lane) = self.lane(id) else { return };
        if matches!(lane.state, Head::Running | Head::Settling) {
            self.active -= 1;
        } else if lane.state != Head::Blocked {
            return;
        }
        if let Some(lane) = self.lane(id) {
            lane.state = Head::Ready;
        }
        self.ready.push_back(id);
    }

    /// The head is settled and gone; the next job of the key is ready.
    pub(crate) fn settled(&mut self, id: LaneId) {
        let Some(lane) = self.slots.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        if matches!(lane.state, Head::Running | Head::Settling) {
            self.active -= 1;
        }
        self.jobs -= 1;
        self.bytes -= weight(&lane.head.entry);
        if let Some(next) = lane.rest.pop_front() {
            lane.head = next;
            lane.state = Head::Ready;
            self.ready.push_back(id);
        } else {
            self.by_key.remove(&lane.head.entry.key);
            self.slots[id.0 as usize] = None;
            self.free.push(id);
        }
    }

    /// The head was put back: one turn further, and it waits.
    pub(crate) fn put_back(&mut self, id: LaneId, attempts: u32, until: Instant) {
        if let Some(lane) = self.lane(id) {
            lane.head.turn += 1;
            lane.head.attempts = attempts;
        }
        self.wait(id, until);
    }

    /// The head waits without having been put back.
    pub(crate) fn wait(&mut self, id: LaneId, until: Instant) {
        let Some(lane) = self.lane(id) else { return };
        let was_active = matches!(lane.state, Head::Running | Head::Settling);
        lane.state = Head::Backoff { until };
        let place = lane.head.entry.place;
        self.active -= usize::from(was_active);
        self.due.push(std::cmp::Reverse((until, id, place)));
    }

    /// Makes the heads ready whose wait is over.
    pub(crate) fn wake_due(&mut self, now: Instant) {
        while let Some(std::cmp::Reverse((until, id, place))) = self.due.peek().copied() {
            if until > now {
                break;
            }
            self.due.pop();
            if let Some(lane) = self.lane(id)
                && lane.head.entry.place == place
                && lane.state == (Head::Backoff { until })
            {
                lane.state = Head::Ready;
                self.ready.push_back(id);
            }
        }
    }

    /// When the next head is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.peek().map(|due| due.0.0)
    }

    /// Jobs held.
    pub(crate) fn jobs(&self) -> usize {
        self.jobs
    }

    /// Bytes held, see [`weight`].
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Heads that run or are being settled.
    pub(crate) fn active(&self) -> usize {
        self.active
    }

    /// The highest place ever put in.
    pub(crate) fn highest(&self) -> Place {
        self.highest
    }

    /// Every job held, in no order.
    pub(crate) fn places(&self) -> Vec<Place> {
        let lanes = self.slots.iter().flatten();
        lanes
            .flat_map(|lane| std::iter::once(&lane.head).chain(&lane.rest))
            .map(|job| job.entry.place)
            .collect()
    }

    /// The heads that run, with their turns.
    pub(crate) fn running(&self) -> impl Iterator<Item = &LaneJob> {
        self.slots.iter().flatten().filter(|lane| lane.state == Head::Running).map(|lane| &lane.head)
    }
}

#[cfg(test)]
#[path = "lanes_tests.rs"]
mod tests;
