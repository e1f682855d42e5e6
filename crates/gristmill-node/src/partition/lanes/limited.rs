//! Heads that wait for the limit of their kind. Which of them come next, and when, the tenure knows.

use super::{Head, LaneId, Lanes};
use gristmill_job::Place;
use std::cmp::Reverse;
use std::time::Instant;

impl Lanes {
    /// The head waits for the limit of its kind.
    pub(crate) fn limit(&mut self, id: LaneId) {
        self.set(id, Head::Limited);
    }

    /// The head waits until then, and was not put back: since when it was due does not change.
    pub(crate) fn later(&mut self, id: LaneId, now: Instant, until: Instant) {
        self.set(id, Head::Backoff { until });
        let longest = now + self.memory.longest_wait;
        if let Some(place) = self.look(id).and_then(super::Lane::place) {
            self.due.push(Reverse((until, id, place)));
        }
        if until > longest {
            self.park(id);
        }
    }

    /// Whether the job at this place still waits as the head of this lane.
    pub(crate) fn is_limited(&self, id: LaneId, place: Place) -> bool {
        self.look(id).is_some_and(|lane| lane.state == Head::Limited && lane.place() == Some(place))
    }

    /// Whether the job at this place is the head of this lane and runs, is settled, or is about to run.
    pub(crate) fn has_begun(&self, id: LaneId, place: Place) -> bool {
        let begun = |state: Head| state.is_active() || state == Head::Alone;
        self.look(id).is_some_and(|lane| begun(lane.state) && lane.place() == Some(place))
    }

    /// The head has its turn: it is ready, before all others.
    pub(crate) fn unlimit(&mut self, id: LaneId) {
        let Some(lane) = self.lane(id).filter(|lane| lane.state == Head::Limited) else { return };
        lane.state = Head::Ready;
        lane.has_turn = true;
        self.ready.push_front(id);
    }

    /// Whether the head has waited and has its turn now; asked once.
    pub(crate) fn take_turn(&mut self, id: LaneId) -> bool {
        self.lane(id).is_some_and(|lane| std::mem::take(&mut lane.has_turn))
    }

    /// Everything that waits for a limit is parked: it makes room for what does not.
    pub(crate) fn park_limited(&mut self) {
        for at in 0..self.slots.len() {
            let id = LaneId(u32::try_from(at).unwrap_or(u32::MAX));
            if self.look(id).is_some_and(|lane| lane.state == Head::Limited) {
                self.park(id);
            }
        }
    }
}
