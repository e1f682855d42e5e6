//! The claims of a partition whose ordering is none: when each was last extended. Shared by the partition's actor, the workers
//! and the heartbeat's thread, which extends them.

use crate::worker::run_queue::lock;
use gristmill_job::Place;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A claim is extended every third of its timeout, and trusted for this share of it, counted from when the extension was sent.
const TRUSTED_PERCENT: u32 = 90;

pub(crate) struct Claims {
    timeout: Duration,
    /// When the call was sent that claimed or extended it last.
    held: Mutex<BTreeMap<Place, Instant>>,
    /// By how much the oldest claim of the partition was over that nobody had recovered, at the last look (ms).
    over_ms: AtomicU64,
}

impl Claims {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, held: Mutex::default(), over_ms: AtomicU64::new(0) }
    }

    /// The visibility timeout.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Claimed by a call that was sent then.
    pub(crate) fn add(&self, places: impl IntoIterator<Item = Place>, sent: Instant) {
        lock(&self.held).extend(places.into_iter().map(|place| (place, sent)));
    }

    /// Settled, handed back, or given up: not extended any more.
    pub(crate) fn remove(&self, place: Place) {
        lock(&self.held).remove(&place);
    }

    /// Nothing is held: the actor that knew of it is gone.
    pub(crate) fn clear(&self) {
        lock(&self.held).clear();
    }

    /// Whether a run of the job at this place may start, and its result be settled.
    pub(crate) fn trusts(&self, place: Place, now: Instant) -> bool {
        lock(&self.held).get(&place).is_some_and(|extended| self.is_fresh(*extended, now))
    }

    fn is_fresh(&self, extended: Instant, now: Instant) -> bool {
        now.saturating_duration_since(extended) < self.timeout * TRUSTED_PERCENT / 100
    }

    /// All of them in ascending order, once one was not extended for a third of the timeout; else nothing.
    pub(crate) fn due(&self, now: Instant) -> Vec<Place> {
        let held = lock(&self.held);
        let is_due = |extended: &Instant| now.saturating_duration_since(*extended) >= self.timeout / 3;
        if held.values().any(is_due) { held.keys().copied().collect() } else { Vec::new() }
    }

    /// An extend that was sent then was answered: it prolongs all it asked for but those that are `lost`. Returns those of the
    /// lost that it knew about.
    pub(crate) fn extended(&self, asked: &[Place], lost: &[Place], sent: Instant) -> Vec<Place> {
        let mut held = lock(&self.held);
        for place in asked {
            if let Some(extended) = held.get_mut(place) {
                *extended = (*extended).max(sent);
            }
        }
        // One that was claimed after the call was sent is another claim.
        lost.iter().copied().filter(|place| held.remove_if(place, |extended| *extended <= sent)).collect()
    }

    /// Drops those that are trusted no more, and returns them.
    pub(crate) fn distrust(&self, now: Instant) -> Vec<Place> {
        let mut held = lock(&self.held);
        let stale: Vec<Place> = held
            .iter()
            .filter(|(_, extended)| !self.is_fresh(**extended, now))
            .map(|(place, _)| *place)
            .collect();
        held.retain(|place, _| !stale.contains(place));
        stale
    }

    /// What the last look at the whole partition saw.
    pub(crate) fn saw_over(&self, worst: Duration) {
        self.over_ms.store(u64::try_from(worst.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// By how much the oldest claim is over that nobody had recovered at the last look.
    pub(crate) fn over(&self) -> Duration {
        Duration::from_millis(self.over_ms.load(Ordering::Relaxed))
    }
}

trait RemoveIf<K> {
    fn remove_if(&mut self, key: &K, remove: impl FnOnce(&Instant) -> bool) -> bool;
}

impl RemoveIf<Place> for BTreeMap<Place, Instant> {
    fn remove_if(&mut self, key: &Place, remove: impl FnOnce(&Instant) -> bool) -> bool {
        self.get(key).is_some_and(remove) && self.remove(key).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(seq: u64) -> Place {
        Place { ms: 1, seq }
    }

    #[test]
    fn a_claim_is_trusted_for_less_than_its_timeout_from_when_its_extension_was_sent() {
        let claims = Claims::new(Duration::from_secs(10));
        let start = Instant::now();
        claims.add([place(1), place(2)], start);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(claims.due(at(3)).is_empty());
        assert_eq!(claims.due(at(4)), [place(1), place(2)]);
        assert!(claims.trusts(place(1), at(8)) && !claims.trusts(place(1), at(9)));
        assert!(!claims.trusts(place(3), start), "not claimed");
        assert_eq!(claims.extended(&[place(1), place(2)], &[place(2)], at(4)), [place(2)]);
        assert!(claims.trusts(place(1), at(12)) && !claims.trusts(place(2), at(4)));
        assert_eq!((claims.distrust(at(12)), claims.distrust(at(13))), (vec![], vec![place(1)]));
        assert!(!claims.trusts(place(1), at(4)), "what was given up is not trusted again");
    }

    #[test]
    fn an_answer_about_an_earlier_claim_says_nothing_about_a_later_one() {
        let claims = Claims::new(Duration::from_secs(10));
        let sent = Instant::now();
        let later = sent + Duration::from_secs(1);
        claims.add([place(1)], later);
        assert!(claims.extended(&[place(1)], &[place(1)], sent).is_empty());
        assert!(claims.trusts(place(1), later));
        // And a late answer does not shorten what a newer one prolonged.
        claims.extended(&[place(1)], &[], sent);
        assert!(claims.trusts(place(1), sent + Duration::from_millis(9500)));
    }
}
