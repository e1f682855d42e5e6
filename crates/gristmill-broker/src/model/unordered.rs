//! grab, extend, reclaim: as the scripts of these names, of queues with ordering none.

use super::claim::entry;
use super::partition::{Job, Partition};
use super::recover::found_marked;
use super::stream::{Over, TakenOver};
use crate::entry::Entry;
use crate::extend::Extended;
use crate::fence::{Fence, Incarnation};
use crate::grab::Grabbed;
use crate::keys::{HANDED_BACK, Mode};
use crate::lease::acquire::millis;
use crate::reclaim::{Reclaim, Reclaimed};
use crate::state::{Request, StateLine, Suspicion};
use gristmill_job::{Place, UnixMillis};
use std::time::Duration;

/// Claims that a slice which only looks reads.
const LOOKED_AT: usize = 1000;
/// The gate of what reads without a lease.
const OPEN: &str = "open";

impl Partition {
    /// The word of another ordering, or the empty one where there is no queue.
    fn differs(&self) -> Option<String> {
        match &self.meta {
            Some(meta) if meta.mode == Mode::None => None,
            meta => Some(meta.as_ref().map_or_else(String::new, |meta| meta.mode.as_str().to_owned())),
        }
    }

    pub(super) fn grab(&mut self, now_ms: u64, incarnation: &Incarnation, count: usize) -> Grabbed {
        if let Some(mode) = self.differs() {
            return Grabbed::Differs(mode);
        }
        self.gates.insert(OPEN.into());
        let consumer = Fence::unordered(incarnation).consumer();
        let back: Vec<Place> = self.held_by(HANDED_BACK).take(count).collect();
        let mut taken = Vec::with_capacity(count);
        for place in back {
            taken.extend(self.stream.take(now_ms, &consumer, place).map(|job| (place, job)));
        }
        if taken.len() < count {
            taken.extend(self.stream.read_new(now_ms, &consumer, count - taken.len()));
        }
        let delivered = (taken.len() < count).then(|| self.stream.delivered());
        self.grabbed(now_ms, taken, delivered)
    }

    pub(super) fn grab_new(&mut self, now_ms: u64, incarnation: &Incarnation, count: usize) -> Grabbed {
        if !self.gates.contains(OPEN) {
            return self.grab(now_ms, incarnation, count);
        }
        let consumer = Fence::unordered(incarnation).consumer();
        let taken = self.stream.read_new(now_ms, &consumer, count).into_iter().collect();
        self.grabbed(now_ms, taken, None)
    }

    fn grabbed(&self, now_ms: u64, taken: Vec<(Place, Job)>, delivered: Option<Place>) -> Grabbed {
        let claimed = |(place, job)| self.claimed(now_ms, place, job, false);
        Grabbed::Jobs {
            entries: taken.into_iter().map(claimed).collect(),
            delivered,
            next_due: self.delayed.keys().next().map(|(due, _)| UnixMillis(*due)),
            now: UnixMillis(now_ms),
        }
    }

    fn claimed(&self, now_ms: u64, place: Place, job: Job, recovered: bool) -> Entry {
        let claim = self.stream.deliveries(place).unwrap_or_default();
        Entry { claim, ..entry(place, job, self.state_of(now_ms, place), recovered) }
    }

    fn held_by(&self, consumer: &str) -> impl Iterator<Item = Place> {
        let held = self.stream.pending().iter().filter(move |(_, claim)| claim.holder == consumer);
        held.map(|(place, _)| *place)
    }

    pub(super) fn extend(&mut self, now_ms: u64, incarnation: &Incarnation, places: &[Place]) -> Extended {
        let consumer = Fence::unordered(incarnation).consumer();
        let (mut lost, mut cancelled) = (Vec::new(), Vec::new());
        for place in places {
            let mine = self.stream.is_held_by(&consumer, *place);
            if !mine || !self.stream.give(now_ms, &consumer, *place) {
                lost.push(*place);
                continue;
            }
            let request = self.state.get(place).and_then(|line| line.request.as_ref());
            if request.is_some_and(Request::is_cancel) {
                cancelled.push(*place);
            }
        }
        Extended { lost, cancelled, now: UnixMillis(now_ms) }
    }

    pub(super) fn reclaim(&mut self, now_ms: u64, incarnation: &Incarnation, reclaim: Reclaim) -> Reclaimed {
        if let Some(mode) = self.differs() {
            return Reclaimed::Differs(mode);
        }
        let Reclaim { timeout, cursor, count } = reclaim;
        let timeout_ms = millis(timeout);
        let slice = if count > 0 { 10 * count } else { LOOKED_AT };
        // Each with how long it is over, where it is.
        let pending = self.stream.pending().range(cursor..).take(slice);
        let rows: Vec<(Place, Option<u64>)> =
            pending.map(|(place, claim)| (*place, claim.idle_ms(now_ms).checked_sub(timeout_ms))).collect();
        if timeout_ms > 0 {
            self.stream.bring_near(now_ms, rows.iter().map(|(place, _)| *place));
        }
        let full = rows.last().filter(|_| rows.len() == slice);
        let mut next = full.map_or(Place::ZERO, |(last, _)| last.next());
        let (mut entries, mut settled) = (Vec::new(), Vec::new());
        if count > 0 && rows.iter().any(|(_, over)| over.is_some()) {
            let consumer = Fence::unordered(incarnation).consumer();
            let over = Over { timeout_ms, cursor };
            let taken: TakenOver<_> = self.stream.take_over(now_ms, &consumer, over, count);
            next = taken.next;
            settled = taken.deleted;
            for (place, job, holder) in taken.entries {
                settled.push(place);
                self.suspect(now_ms, incarnation, place, &holder);
                entries.push(self.claimed(now_ms, place, job, holder != HANDED_BACK));
            }
        }
        let left = rows.iter().filter(|(place, _)| !settled.contains(place));
        let left: Vec<u64> = left.filter_map(|(_, over)| *over).collect();
        Reclaimed::Slice {
            entries,
            next,
            left: left.len() as u64,
            worst: Duration::from_millis(left.into_iter().max().unwrap_or_default()),
            outbox: self.outbox.entries().len() as u64,
            now: UnixMillis(now_ms),
        }
    }

    /// A claim of another incarnation was running, since a permit came before it.
    fn suspect(&mut self, now_ms: u64, me: &Incarnation, place: Place, holder: &str) {
        let mut line = self.state.get(&place).cloned().unwrap_or_default();
        let another = holder.rsplit_once('#').is_some_and(|(holder, _)| holder != me.as_str());
        if found_marked(&mut line, me, now_ms) {
            self.write_state(place, line);
        } else if another && line.suspicion == Suspicion::None && line.mark.is_none() {
            self.write_state(place, StateLine { suspicion: Suspicion::Weak, ..line });
        }
    }
}
