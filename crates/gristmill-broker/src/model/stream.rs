//! What a Redis stream with one consumer group does, as far as the scripts use it.

use gristmill_job::Place;
use std::collections::BTreeMap;

/// Entries, and who was given which of them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stream<T> {
    entries: BTreeMap<Place, T>,
    last: Place,
    delivered: Place,
    /// Given and not acknowledged, by whom.
    pending: BTreeMap<Place, String>,
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

    pub(super) fn pending(&self) -> &BTreeMap<Place, String> {
        &self.pending
    }

    /// `XREADGROUP >`. Like Redis, a count of 0 means all.
    pub(super) fn read_new(&mut self, consumer: &str, count: usize) -> Vec<(Place, T)> {
        let limit = if count == 0 { usize::MAX } else { count };
        let new: Vec<(Place, T)> = self
            .entries
            .range(self.delivered.next()..)
            .take(limit)
            .map(|(place, entry)| (*place, entry.clone()))
            .collect();
        for (place, _) in &new {
            self.pending.insert(*place, consumer.to_owned());
            self.delivered = *place;
        }
        new
    }

    /// `XPENDING` and `XAUTOCLAIM` of a slice: entries with the consumer they were taken from, and where to go on.
    pub(super) fn take_over(
        &mut self,
        consumer: &str,
        cursor: Place,
        count: usize,
    ) -> (Vec<(Place, T, String)>, Place) {
        let slice: Vec<Place> = self.pending.range(cursor..).take(count).map(|(place, _)| *place).collect();
        let next = slice.last().and_then(|last| self.pending.range(last.next()..).next());
        let next = next.map_or(Place::ZERO, |(place, _)| *place);
        let mut taken = Vec::with_capacity(slice.len());
        for place in slice {
            match (self.entries.get(&place), self.pending.get_mut(&place)) {
                (Some(entry), Some(holder)) => {
                    taken.push((place, entry.clone(), std::mem::replace(holder, consumer.to_owned())));
                }
                _ => {
                    self.pending.remove(&place);
                }
            }
        }
        (taken, next)
    }

    /// `XCLAIM` without FORCE: only what is pending moves.
    pub(super) fn give(&mut self, consumer: &str, place: Place) {
        if let Some(holder) = self.pending.get_mut(&place) {
            consumer.clone_into(holder);
        }
    }

    /// `XCLAIM FORCE`: takes back what was acknowledged a moment ago.
    pub(super) fn give_back(&mut self, consumer: &str, place: Place) {
        self.pending.insert(place, consumer.to_owned());
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
