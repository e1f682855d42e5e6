//! The lanes of a partition: each key's waiting jobs, in order of place. Pure.
//!
//! ```text
//!            start      start mark written       answer of the run         settle answered: done, dead …
//!   Ready ──────────▶ Marking ──▶ Running ───────────────────▶ Settling ──────────────────────────▶ the next job
//!     ▲ ▲ └──────────────────────▶  │ not started, stopped      │ retried
//!     │ └─ granted ─ Alone          └─▶ Ready                   ▼
//!     │ not here                                             Backoff ── due ──▶ Ready
//!     └──────▶ Loading ──▶ Ready        a dead letter that holds its key ──▶ Held ── a person ──▶ Ready
//!                            Ready, where its kind or key is paused ──▶ Paused ── resumed ──▶ Ready
//! ```
//!
//! One job of a key runs at a time; a failing head blocks its lane and no other. A lane is `Blocked` while a run of an
//! earlier tenure with its key has not ended in this process, `Alone` while its head waits until nothing else runs, and
//! `Limited` while the limit of its kind lets no more begin.
//!
//! Only the first jobs of a lane are in memory. The others are *parked*: claimed, and remembered by their place alone;
//! so are all jobs of a lane whose head waits for long. Parked jobs stay where they are in Redis, keep their place, and are
//! read again when their turn comes near. So a key with a hundred thousand jobs behind a failing head costs other keys
//! nothing, and this process a few bytes each.
//!
//! Here: jobs in, and heads out. `heads` is what becomes of heads, `returning` how a job comes in at its place, `parking` what
//! is read again, `withdrawing` how a job leaves from anywhere, `keys` what stops whole lanes, `counts` what is told of all of them, `acknowledged` what Redis knows no more.

mod acknowledged;
mod counts;
mod heads;
mod keys;
mod limited;
mod parking;
mod returning;
mod withdrawing;

pub(crate) use withdrawing::Withdrawn;

use crate::partition::key_hasher::KeyHasher;
use gristmill_broker::Entry;
use gristmill_job::{Key, Place};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Which lane. Valid until the lane is empty or the lanes are thrown away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LaneId(u32);

/// Where the head of a lane stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    Ready,
    /// Parked, and being read.
    Loading,
    /// It will run when its start mark is written.
    Marking,
    /// It will run when nothing else does.
    Alone,
    Running,
    Settling,
    Backoff {
        until: Instant,
    },
    /// An earlier run of its key has not ended in this process.
    Blocked,
    /// Its key waits for a person.
    Held,
    /// The limit of its kind lets no more begin for now.
    Limited,
    /// A person has paused its kind or its key.
    Paused,
}

impl Head {
    /// Whether it is being run or settled, or about to be.
    fn is_active(self) -> bool {
        matches!(self, Self::Marking | Self::Running | Self::Settling)
    }
}

/// How much of a lane is in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// Jobs of one lane that are; the others are parked.
    pub(crate) jobs_per_lane: usize,
    /// A head that waits for longer is parked, and its lane with it.
    pub(crate) longest_wait: Duration,
}

/// A job in memory.
#[derive(Debug, Clone)]
pub(crate) struct LaneJob {
    /// With what is stored about it, as of its last settle.
    pub(crate) entry: Arc<Entry>,
    /// Not before then.
    due: Option<Instant>,
    /// Whether its start mark stands.
    pub(crate) marked: bool,
    /// Whether its run was stopped hard.
    pub(crate) stopped: bool,
    /// Whether it was acknowledged before its run: Redis knows it no more.
    pub(crate) acknowledged: bool,
    /// Its start mark was written by an earlier tenure of this process: unless its run lives or never began, it has run and
    /// nobody knows how it ended. Holds what was noted before of interrupted runs.
    found_marked: Option<bool>,
}

impl LaneJob {
    pub(crate) fn new(entry: Entry, now: Instant) -> Self {
        let due = (!entry.state.due_in.is_zero()).then(|| now + entry.state.due_in);
        // Marks of others were taken by recover and take.
        let line = entry.state.line().filter(|line| line.mark.is_some());
        let found_marked = line.map(|line| line.interrupted);
        let marked = found_marked.is_some();
        let entry = if marked { Entry { state: entry.state.noted(true), ..entry } } else { entry };
        let entry = Arc::new(entry);
        Self { entry, due, marked, stopped: marked, acknowledged: false, found_marked }
    }

    /// The run that its start mark speaks of lives, or never began.
    pub(crate) fn not_interrupted(&mut self) {
        if let Some(before) = self.found_marked.take() {
            self.stopped = false;
            let state = self.entry.state.noted(before);
            self.entry = Arc::new(Entry { state, ..(*self.entry).clone() });
        }
    }

    /// Since when it is due, or when it will be; `None` where it never waited in this process.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(crate) fn turn(&self) -> u32 {
        self.entry.state.turn()
    }
}

/// The jobs in memory come before the parked ones; a lane has at least one job.
#[derive(Debug)]
struct Lane {
    key: Key,
    state: Head,
    jobs: VecDeque<LaneJob>,
    parked: VecDeque<Place>,
    /// Parked jobs of it are to be read, or being read.
    loading: bool,
    /// When the head is due, as far as this process has known it; see [`Lanes::loaded`].
    due: Option<Instant>,
    /// It has waited for the limit of its kind, and its turn has come.
    has_turn: bool,
}

impl Lane {
    /// Whether none of its jobs is worth being in memory now.
    fn is_parked(&self, memory: Memory, now: Instant) -> bool {
        match self.state {
            Head::Backoff { until } => until > now + memory.longest_wait,
            Head::Held | Head::Paused => true,
            _ => false,
        }
    }

    fn place(&self) -> Option<Place> {
        self.jobs.front().map(|job| job.entry.place).or_else(|| self.parked.front().copied())
    }
}

#[derive(Debug)]
pub(crate) struct Lanes {
    memory: Memory,
    slots: Vec<Option<Lane>>,
    free: Vec<LaneId>,
    by_key: HashMap<Key, LaneId, BuildHasherDefault<KeyHasher>>,
    ready: VecDeque<LaneId>,
    due: BinaryHeap<Reverse<(Instant, LaneId, Place)>>,
    to_load: VecDeque<(LaneId, usize)>,
    /// Jobs that are being read.
    loading: usize,
    /// Jobs and bytes in memory beyond which whatever comes is parked, and nothing is read.
    window: (usize, usize),
    /// Keys with a run of an earlier tenure that has not ended. They outlive the lanes.
    blocked: HashSet<Key>,
    /// Keys that wait for a person.
    held: HashSet<Key>,
    jobs: usize,
    parked: usize,
    bytes: usize,
    active: usize,
    acknowledged: usize,
    highest: Place,
}

/// What a job in memory weighs against the window: its bytes and what having it there costs.
pub(crate) fn weight(entry: &Entry) -> usize {
    entry.envelope.len() + entry.key.as_bytes().len() + entry.id.as_bytes().len() + 256
}

impl Lanes {
    pub(crate) fn new(memory: Memory) -> Self {
        Self {
            memory,
            slots: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::default(),
            ready: VecDeque::new(),
            due: BinaryHeap::new(),
            to_load: VecDeque::new(),
            loading: 0,
            window: (usize::MAX, usize::MAX),
            blocked: HashSet::new(),
            held: HashSet::new(),
            jobs: 0,
            parked: 0,
            bytes: 0,
            active: 0,
            acknowledged: 0,
            highest: Place::ZERO,
        }
    }

    /// Throws everything away but the keys whose runs have not ended.
    pub(crate) fn clear(&mut self) {
        let (blocked, window) = (std::mem::take(&mut self.blocked), self.window);
        *self = Self { blocked, window, ..Self::new(self.memory) };
    }

    /// With so many jobs and bytes in memory at most, or little more.
    pub(crate) fn within(self, jobs: usize, bytes: usize) -> Self {
        Self { window: (jobs, bytes), ..self }
    }

    fn is_full(&self) -> bool {
        self.jobs + self.loading >= self.window.0 || self.bytes >= self.window.1
    }

    /// Puts a job of the stream behind the others of its key. Jobs come in order of place; one that came before is passed
    /// over.
    pub(crate) fn push(&mut self, entry: Entry, now: Instant) {
        if entry.place <= self.highest {
            return;
        }
        self.highest = entry.place;
        let Some(id) = self.by_key.get(&entry.key).copied() else {
            self.open(entry, now);
            return;
        };
        let (memory, is_full) = (self.memory, self.is_full());
        let Some(lane) = self.lane(id) else { return };
        if is_full
            || !lane.parked.is_empty()
            || lane.jobs.len() >= memory.jobs_per_lane
            || lane.is_parked(memory, now)
        {
            lane.parked.push_back(entry.place);
            self.parked += 1;
        } else {
            let job = LaneJob::new(entry, now);
            let weight = weight(&job.entry);
            lane.jobs.push_back(job);
            self.jobs += 1;
            self.bytes += weight;
        }
    }

    fn open(&mut self, entry: Entry, now: Instant) {
        let key = entry.key.clone();
        let (mut jobs, mut parked) = (VecDeque::new(), VecDeque::new());
        if self.is_full() {
            parked.push_back(entry.place);
            self.parked += 1;
        } else {
            self.jobs += 1;
            self.bytes += weight(&entry);
            jobs.push_back(LaneJob::new(entry, now));
        }
        let id = self.new_lane(&key, jobs, parked);
        self.next_head(id, now);
    }

    fn new_lane(&mut self, key: &Key, jobs: VecDeque<LaneJob>, parked: VecDeque<Place>) -> LaneId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            LaneId(u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX))
        });
        // A copy of its own: the key of an entry holds on to the whole entry.
        let key = Key::from_stored(bytes::Bytes::copy_from_slice(key.as_bytes()));
        let lane = Lane {
            key: key.clone(),
            state: Head::Ready,
            jobs,
            parked,
            loading: false,
            due: None,
            has_turn: false,
        };
        self.slots[id.0 as usize] = Some(lane);
        self.by_key.insert(key, id);
        id
    }

    fn lane(&mut self, id: LaneId) -> Option<&mut Lane> {
        self.slots.get_mut(id.0 as usize).and_then(Option::as_mut)
    }

    fn look(&self, id: LaneId) -> Option<&Lane> {
        self.slots.get(id.0 as usize).and_then(Option::as_ref)
    }

    /// The head of a lane and where it stands, if it is in memory and the job at this place.
    pub(crate) fn head(&self, id: LaneId, place: Place) -> Option<(&LaneJob, Head)> {
        let lane = self.look(id)?;
        let head = lane.jobs.front()?;
        (head.entry.place == place).then_some((head, lane.state))
    }

    /// The lane of a key.
    pub(crate) fn find(&self, key: &Key) -> Option<LaneId> {
        self.by_key.get(key).copied()
    }

    /// The head of a lane, if it is in memory.
    pub(crate) fn head_of(&self, id: LaneId) -> Option<&LaneJob> {
        self.look(id)?.jobs.front()
    }

    /// The same, to note something about it.
    pub(crate) fn head_mut(&mut self, id: LaneId) -> Option<&mut LaneJob> {
        self.lane(id)?.jobs.front_mut()
    }

    /// Another job may be the head now, or the head may stand otherwise: says where it stands.
    fn next_head(&mut self, id: LaneId, now: Instant) {
        let Some(lane) = self.slots.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        // Most partitions hold and block nothing; their keys are not looked up.
        let held = !self.held.is_empty() && self.held.contains(&lane.key);
        let blocked = !self.blocked.is_empty() && self.blocked.contains(&lane.key);
        let due = lane.jobs.front().and_then(|job| job.due).filter(|due| *due > now);
        let place = lane.place().unwrap_or(Place::ZERO);
        match due {
            _ if held => {
                lane.state = Head::Held;
                self.park(id);
            }
            _ if blocked => lane.state = Head::Blocked,
            Some(until) => {
                lane.state = Head::Backoff { until };
                self.due.push(Reverse((until, id, place)));
                if until > now + self.memory.longest_wait {
                    self.park(id);
                }
            }
            None => {
                lane.state = Head::Ready;
                self.ready.push_back(id);
            }
        }
    }

    /// The next head to start; it is `Running` from here on.
    pub(crate) fn start_next(&mut self) -> Option<(LaneId, LaneJob)> {
        while let Some(id) = self.ready.pop_front() {
            let Some(lane) = self.lane(id).filter(|lane| lane.state == Head::Ready) else { continue };
            if let Some(job) = lane.jobs.front().cloned() {
                lane.state = Head::Running;
                lane.due = None;
                self.active += 1;
                return Some((id, job));
            }
            lane.state = Head::Loading;
            self.load(id);
        }
        None
    }

    /// Whether a head could start now.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    fn close(&mut self, id: LaneId) {
        if let Some(lane) = self.slots.get_mut(id.0 as usize).and_then(Option::take) {
            self.by_key.remove(&lane.key);
            self.free.push(id);
        }
    }

    fn set(&mut self, id: LaneId, state: Head) {
        let Some(lane) = self.lane(id) else { return };
        let (was, is) = (lane.state.is_active(), state.is_active());
        lane.state = state;
        self.active = self.active + usize::from(is) - usize::from(was);
    }
}

#[cfg(test)]
#[path = "lanes_tests.rs"]
mod tests;
