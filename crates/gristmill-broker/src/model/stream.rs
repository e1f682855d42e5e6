//! What a Redis stream with one consumer group does, as far as the scripts use it.

use gristmill_job::Place;
use std::collections::BTreeMap;

/// Entries, and who was given which of them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stream<T> {
    entries: BTreeMap<Place, T>,
    last: Place,
    delivered: Place,
    /// Given and not acknowledged.
    pending: BTreeMap<Place, Claim>,
}

/// An entry of the pending list.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Claim {
    pub(super) holder: String,
    /// When it was given last (ms).
    pub(super) since_ms: u64,
    /// How often it was given.
    pub(super) deliveries: u64,
}

impl Claim {
    fn new(holder: &str, since_ms: u64) -> Self {
        Self { holder: holder.to_owned(), since_ms, deliveries: 1 }
    }

    pub(super) fn idle_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.since_ms)
    }

    /// To this one, at this time: the same claim if it is `JUSTID`, else one delivery more.
    fn pass_to(&mut self, holder: &str, now_ms: u64, just_id: bool) {
        holder.clone_into(&mut self.holder);
        self.since_ms = now_ms;
        self.deliveries += u64::from(!just_id);
    }
}

/// Which claims are taken over.
#[derive(Clone, Copy)]
pub(super) struct Over {
    pub(super) timeout_ms: u64,
    /// From there on.
    pub(super) cursor: Place,
}

pub(super) struct TakenOver<T> {
    pub(super) entries: Vec<(Place, T, String)>,
    pub(super) deleted: Vec<Place>,
    pub(super) next: Place,
}

impl<T> Default for Stream<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), last: Place::ZERO, delivered: Place::ZERO, pending: BTreeMap::new() }
    }
}

impl<T: Clone> Stream<T> {
    /// `XADD *`: the clock, but never at or before the last one.
    pub(super) fn add(&mut self, now_ms: u64, entry: T) -> Place {
        let place = if now_ms > self.last.ms { Place { ms: now_ms, seq: 0 } } else { self.last.next() };
        self.last = place;
        self.entries.insert(place, entry);
        place
    }

    pub(super) fn entries(&self) -> &BTreeMap<Place, T> {
        &self.entries
    }

    pub(super) fn pending(&self) -> &BTreeMap<Place, Claim> {
        &self.pending
    }

    /// The last place that was ever given.
    pub(super) fn delivered(&self) -> Place {
        self.delivered
    }

    /// `XREADGROUP >`. Like Redis, a count of 0 means all.
    pub(super) fn read_new(&mut self, now_ms: u64, consumer: &str, count: usize) -> Vec<(Place, T)> {
        let limit = if count == 0 { usize::MAX } else { count };
        let new: Vec<(Place, T)> = self
            .entries
            .range(self.delivered.next()..)
            .take(limit)
            .map(|(place, entry)| (*place, entry.clone()))
            .collect();
        for (place, _) in &new {
            self.pending.insert(*place, Claim::new(consumer, now_ms));
            self.delivered = *place;
        }
        new
    }

    /// `XPENDING` and `XAUTOCLAIM` of a slice: entries with the consumer they were taken from, places whose entries were
    /// deleted, which are pending no more, and where to go on. Like Redis, it looks at ten claims for each it may take.
    pub(super) fn take_over(
        &mut self,
        now_ms: u64,
        consumer: &str,
        over: Over,
        count: usize,
    ) -> TakenOver<T> {
        let mut taken = TakenOver { entries: Vec::new(), deleted: Vec::new(), next: Place::ZERO };
        let slice: Vec<Place> =
            self.pending.range(over.cursor..).take(10 * count).map(|(place, _)| *place).collect();
        let mut last = None;
        for place in slice {
            if taken.entries.len() + taken.deleted.len() == count {
                break;
            }
            last = Some(place);
            let Some(entry) = self.entries.get(&place) else {
                self.pending.remove(&place);
                taken.deleted.push(place);
                continue;
            };
            let Some(claim) = self.pending.get_mut(&place) else { continue };
            if claim.idle_ms(now_ms) >= over.timeout_ms {
                taken.entries.push((place, entry.clone(), claim.holder.clone()));
                claim.pass_to(consumer, now_ms, false);
            }
        }
        let next = last.and_then(|last| self.pending.range(last.next()..).next());
        taken.next = next.map_or(Place::ZERO, |(place, _)| *place);
        taken
    }

    /// `XCLAIM JUSTID` without FORCE: only what is pending moves. Whether it did: what was deleted is pending no more.
    pub(super) fn give(&mut self, now_ms: u64, consumer: &str, place: Place) -> bool {
        self.pass(now_ms, consumer, place, true)
    }

    /// `XCLAIM` without FORCE.
    pub(super) fn take(&mut self, now_ms: u64, consumer: &str, place: Place) -> Option<T> {
        self.pass(now_ms, consumer, place, false).then(|| self.entries.get(&place).cloned())?
    }

    fn pass(&mut self, now_ms: u64, consumer: &str, place: Place, just_id: bool) -> bool {
        let Some(claim) = self.pending.get_mut(&place) else { return false };
        if !self.entries.contains_key(&place) {
            self.pending.remove(&place);
            return false;
        }
        claim.pass_to(consumer, now_ms, just_id);
        true
    }

    /// `XACK`, and `XCLAIM RETRYCOUNT FORCE JUSTID`, which takes it back if its entry is there. `None`: as if it were the first
    /// time.
    pub(super) fn give_back(&mut self, now_ms: u64, consumer: &str, place: Place, deliveries: Option<u64>) {
        self.pending.remove(&place);
        if self.entries.contains_key(&place) {
            let first = Claim::new(consumer, now_ms);
            self.pending.insert(place, Claim { deliveries: deliveries.unwrap_or(1), ..first });
        }
    }

    /// How often it was given, where it is pending.
    pub(super) fn deliveries(&self, place: Place) -> Option<u64> {
        self.pending.get(&place).map(|claim| claim.deliveries)
    }

    /// These claims, as far as they are of a moment that is to come, are of now: the clock was set back.
    pub(super) fn bring_near(&mut self, now_ms: u64, places: impl IntoIterator<Item = Place>) {
        for place in places {
            if let Some(claim) = self.pending.get_mut(&place).filter(|_| self.entries.contains_key(&place)) {
                claim.since_ms = claim.since_ms.min(now_ms);
            }
        }
    }

    /// Whether this consumer holds it.
    pub(super) fn is_held_by(&self, consumer: &str, place: Place) -> bool {
        self.pending.get(&place).is_some_and(|claim| claim.holder == consumer)
    }

    /// Makes each claim older, as if nobody had extended it. Like Redis, it forgets those whose entries were deleted.
    pub(super) fn age(&mut self, ms: u64) {
        let entries = &self.entries;
        self.pending.retain(|place, claim| {
            claim.since_ms = claim.since_ms.saturating_sub(ms);
            entries.contains_key(place)
        });
    }

    pub(super) fn is_pending(&self, place: Place) -> bool {
        self.pending.contains_key(&place)
    }

    /// `XACK`: whether it was pending.
    pub(super) fn acknowledge(&mut self, place: Place) -> bool {
        self.pending.remove(&place).is_some()
    }

    /// `XDEL`.
    pub(super) fn delete(&mut self, place: Place) {
        self.entries.remove(&place);
    }
}
