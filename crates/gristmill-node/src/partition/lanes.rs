//! The lanes of a partition: each key's waiting jobs, in order of place. Pure.
//!
//! ```text
//!            start              answer of the run           settle answered: done, dead …
//!   Ready ──────────▶ Running ───────────────────▶ Settling ─────────────────────────────▶ the next job is Ready
//!     ▲  │               │ not started, stopped        │ retried
//!     │  │ not here      └─▶ Ready                     ▼
//!     │  └─────▶ Loading ─▶ Ready                   Backoff
//!     └──────────────────────── due ───────────────────┘
//! ```
//!
//! One job of a key runs at a time; a failing head blocks its lane and no other. A lane is `Blocked` while a run of an
//! earlier tenure with its key has not ended in this process.
//!
//! Only the first jobs of a lane are held here. The others are *parked*: claimed, and remembered by their place alone; so
//! are all jobs of a lane whose head waits for long. Parked jobs stay where they are in Redis, keep their place, and are
//! read again when their turn comes near. So a key with a hundred thousand jobs behind a failing head costs other keys
//! nothing, and this process a few bytes each.

use crate::partition::key_hasher::KeyHasher;
use gristmill_broker::Entry;
use gristmill_job::{Key, Place};
use std::collections::{BinaryHeap, HashMap, VecDeque};
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
    Running,
    Settling,
    Backoff {
        until: Instant,
    },
    Blocked,
}

/// What is held of a lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holding {
    /// Jobs of one lane that are held; the others are parked.
    pub(crate) jobs_per_lane: usize,
    /// A head that waits for longer is parked, and its lane with it.
    pub(crate) longest_wait: Duration,
}

/// A job that is held.
#[derive(Debug, Clone)]
pub(crate) struct LaneJob {
    pub(crate) entry: Arc<Entry>,
    pub(crate) turn: u32,
    pub(crate) attempts: u32,
}

/// A job that is parked.
#[derive(Debug, Clone, Copy)]
struct Parked {
    place: Place,
    turn: u32,
    attempts: u32,
}

/// The held jobs come before the parked ones; a lane has at least one job.
#[derive(Debug)]
struct Lane {
    key: Key,
    state: Head,
    held: VecDeque<LaneJob>,
    parked: VecDeque<Parked>,
    loading: bool,
}

impl Lane {
    fn place(&self) -> Option<Place> {
        self.held.front().map(|job| job.entry.place).or_else(|| self.parked.front().map(|job| job.place))
    }
}

#[derive(Debug)]
pub(crate) struct Lanes {
    holding: Holding,
    slots: Vec<Option<Lane>>,
    free: Vec<LaneId>,
    by_key: HashMap<Key, LaneId, BuildHasherDefault<KeyHasher>>,
    ready: VecDeque<LaneId>,
    due: BinaryHeap<std::cmp::Reverse<(Instant, LaneId, Place)>>,
    to_load: Vec<LaneId>,
    jobs: usize,
    parked: usize,
    bytes: usize,
    active: usize,
    highest: Place,
}

/// What a held job weighs against the window: its bytes and what holding it costs.
pub(crate) fn weight(entry: &Entry) -> usize {
    entry.envelope.len() + entry.key.as_bytes().len() + entry.id.as_bytes().len() + 256
}

impl Lanes {
    pub(crate) fn new(holding: Holding) -> Self {
        Self {
            holding,
            slots: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::default(),
            ready: VecDeque::new(),
            due: BinaryHeap::new(),
            to_load: Vec::new(),
            jobs: 0,
            parked: 0,
            bytes: 0,
            active: 0,
            highest: Place::ZERO,
        }
    }

    /// Throws everything away.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.holding);
    }

    /// Puts a job behind the others of its key. Jobs come in order of place; one that came before is passed over.
    /// `blocked` tells whether a run of an earlier tenure with this key is still alive.
    pub(crate) fn push(&mut self, entry: Entry, now: Instant, blocked: impl FnOnce(&Key) -> bool) {
        if entry.place <= self.highest {
            return;
        }
        self.highest = entry.place;
        let (place, due_in) = (entry.place, entry.state.due_in);
        let id = match self.by_key.get(&entry.key) {
            Some(id) => *id,
            None => self.open(&entry.key, due_in, place, now, blocked),
        };
        let holding = self.holding;
        let Some(lane) = self.lane(id) else { return };
        let waits = matches!(lane.state, Head::Backoff { until } if until > now + holding.longest_wait);
        let job =
            LaneJob { turn: entry.state.turn(), attempts: entry.state.attempts(), entry: Arc::new(entry) };
        if waits || !lane.parked.is_empty() || lane.held.len() >= holding.jobs_per_lane {
            lane.parked.push_back(Parked { place, turn: job.turn, attempts: job.attempts });
            self.parked += 1;
        } else {
            let weight = weight(&job.entry);
            lane.held.push_back(job);
            self.jobs += 1;
            self.bytes += weight;
        }
    }

    fn open(
        &mut self,
        key: &Key,
        due_in: Duration,
        place: Place,
        now: Instant,
        blocked: impl FnOnce(&Key) -> bool,
    ) -> LaneId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            LaneId(u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX))
        });
        let state = if blocked(key) {
            Head::Blocked
        } else if due_in.is_zero() {
            self.ready.push_back(id);
            Head::Ready
        } else {
            let until = now + due_in;
            self.due.push(std::cmp::Reverse((until, id, place)));
            Head::Backoff { until }
        };
        // A copy of its own: the key of an entry holds on to the whole entry.
        let key = Key::from_stored(bytes::Bytes::copy_from_slice(key.as_bytes()));
        let (held, parked) = (VecDeque::new(), VecDeque::new());
        self.slots[id.0 as usize] = Some(Lane { key: key.clone(), state, held, parked, loading: false });
        self.by_key.insert(key, id);
        id
    }

    fn lane(&mut self, id: LaneId) -> Option<&mut Lane> {
        self.slots.get_mut(id.0 as usize).and_then(Option::as_mut)
    }

    fn look(&self, id: LaneId) -> Option<&Lane> {
        self.slots.get(id.0 as usize).and_then(Option::as_ref)
    }

    /// The head of a lane and where it stands, if it is held and the job at this place.
    pub(crate) fn head(&self, id: LaneId, place: Place) -> Option<(&LaneJob, Head)> {
        let lane = self.look(id)?;
        let head = lane.held.front()?;
        (head.entry.place == place).then_some((head, lane.state))
    }

    /// The lane of a key.
    pub(crate) fn find(&self, key: &Key) -> Option<LaneId> {
        self.by_key.get(key).copied()
    }

    /// The head of a lane, if it is held.
    pub(crate) fn head_of(&self, id: LaneId) -> Option<&LaneJob> {
        self.look(id)?.held.front()
    }

    /// The next head to start; it is `Running` from here on.
    pub(crate) fn start_next(&mut self) -> Option<(LaneId, LaneJob)> {
        while let Some(id) = self.ready.pop_front() {
            let Some(lane) = self.lane(id).filter(|lane| lane.state == Head::Ready) else { continue };
            if let Some(job) = lane.held.front().cloned() {
                lane.state = Head::Running;
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

    fn load(&mut self, id: LaneId) {
        if let Some(lane) = self.lane(id)
            && !lane.loading
            && !lane.parked.is_empty()
        {
            lane.loading = true;
            self.to_load.push(id);
        }
    }

    /// Which parked jobs to read now, per lane, `most` of each.
    pub(crate) fn take_loads(&mut self, most: usize) -> Vec<(LaneId, Vec<Place>)> {
        let lanes = std::mem::take(&mut self.to_load);
        let count = self.holding.jobs_per_lane.min(most.max(1));
        let places = |id: &LaneId| self.look(*id).map(|lane| (*id, lane.parked.iter().take(count)));
        lanes.iter().filter_map(places).map(|(id, jobs)| (id, jobs.map(|job| job.place).collect())).collect()
    }

    /// Parked jobs were read, in the order they were asked for. One that is not there any more (someone deleted it) is
    /// passed over.
    pub(crate) fn loaded(&mut self, id: LaneId, jobs: Vec<(Place, Option<Entry>)>) {
        let Some(lane) = self.lane(id) else { return };
        lane.loading = false;
        let (mut held, mut bytes, mut gone) = (0, 0, 0);
        for (place, entry) in jobs {
            let Some(parked) = lane.parked.front().copied().filter(|parked| parked.place == place) else {
                break;
            };
            lane.parked.pop_front();
            gone += 1;
            if let Some(entry) = entry {
                held += 1;
                bytes += weight(&entry);
                lane.held.push_back(LaneJob {
                    entry: Arc::new(entry),
                    turn: parked.turn,
                    attempts: parked.attempts,
                });
            }
        }
        let (state, none_left) = (lane.state, lane.held.is_empty() && lane.parked.is_empty());
        self.jobs += held;
        self.bytes += bytes;
        self.parked -= gone;
        if none_left {
            self.close(id);
        } else if state == Head::Loading {
            self.set_ready(id);
        }
    }

    fn set_ready(&mut self, id: LaneId) {
        if let Some(lane) = self.lane(id) {
            lane.state = Head::Ready;
            self.ready.push_back(id);
        }
    }

    fn close(&mut self, id: LaneId) {
        if let Some(lane) = self.slots.get_mut(id.0 as usize).and_then(Option::take) {
            self.by_key.remove(&lane.key);
            self.free.push(id);
        }
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

    /// The run of an earlier tenure that blocked this key has ended.
    pub(crate) fn unblock(&mut self, key: &Key) {
        if let Some(id) = self.find(key)
            && self.look(id).is_some_and(|lane| lane.state == Head::Blocked)
        {
            self.set_ready(id);
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
        if self.look(id).is_some_and(|lane| matches!(lane.state, Head::Running | Head::Settling)) {
            self.active -= 1;
            self.set_ready(id);
        }
    }

    /// The head is settled and gone; the next job of the key is ready.
    pub(crate) fn settled(&mut self, id: LaneId) {
        let Some(lane) = self.lane(id) else { return };
        let was_active = matches!(lane.state, Head::Running | Head::Settling);
        let Some(job) = lane.held.pop_front() else { return };
        let (held, parked) = (lane.held.len(), lane.parked.len());
        self.active -= usize::from(was_active);
        self.jobs -= 1;
        self.bytes -= weight(&job.entry);
        if held == 0 && parked == 0 {
            self.close(id);
            return;
        }
        if held <= self.holding.jobs_per_lane / 4 {
            self.load(id);
        }
        self.set_ready(id);
    }

    /// The head was put back: one turn further, and it waits.
    pub(crate) fn put_back(&mut self, id: LaneId, attempts: u32, now: Instant, until: Instant) {
        if let Some(head) = self.lane(id).and_then(|lane| lane.held.front_mut()) {
            head.turn += 1;
            head.attempts = attempts;
        }
        self.wait(id, until);
        if until > now + self.holding.longest_wait {
            self.park(id);
        }
    }

    /// Everything that is held of a lane is parked. What is being read of it comes behind, so nothing is while this is done.
    fn park(&mut self, id: LaneId) {
        let Some(lane) = self.lane(id).filter(|lane| !lane.loading) else { return };
        let (mut jobs, mut bytes) = (0, 0);
        while let Some(job) = lane.held.pop_back() {
            jobs += 1;
            bytes += weight(&job.entry);
            lane.parked.push_front(Parked { place: job.entry.place, turn: job.turn, attempts: job.attempts });
        }
        self.jobs -= jobs;
        self.bytes -= bytes;
        self.parked += jobs;
    }

    /// The head waits without having been put back.
    pub(crate) fn wait(&mut self, id: LaneId, until: Instant) {
        let Some(lane) = self.lane(id) else { return };
        let was_active = matches!(lane.state, Head::Running | Head::Settling);
        lane.state = Head::Backoff { until };
        let Some(place) = lane.place() else { return };
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
            if self
                .look(id)
                .is_some_and(|lane| lane.place() == Some(place) && lane.state == (Head::Backoff { until }))
            {
                self.set_ready(id);
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

    /// Jobs parked.
    pub(crate) fn parked(&self) -> usize {
        self.parked
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

    /// Every job, held or parked, in no order.
    pub(crate) fn places(&self) -> Vec<Place> {
        let lanes = self.slots.iter().flatten();
        let places = |lane: &Lane| {
            let held = lane.held.iter().map(|job| job.entry.place);
            held.chain(lane.parked.iter().map(|job| job.place)).collect::<Vec<_>>()
        };
        lanes.flat_map(places).collect()
    }

    /// The heads that run, with their turns.
    pub(crate) fn running(&self) -> impl Iterator<Item = &LaneJob> {
        let running = self.slots.iter().flatten().filter(|lane| lane.state == Head::Running);
        running.filter_map(|lane| lane.held.front())
    }
}

#[cfg(test)]
#[path = "lanes_tests.rs"]
mod tests;
