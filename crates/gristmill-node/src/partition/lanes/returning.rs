//! A job that came back from the dead, at its place: it may be anywhere in its lane.

use super::{LaneJob, Lanes, weight};
use gristmill_broker::Entry;
use std::time::Instant;

impl Lanes {
    /// Puts it before every job of its key that came later and does not run. One that is there already is passed over.
    pub(crate) fn insert(&mut self, entry: Entry, now: Instant) {
        let place = entry.place;
        let Some(id) = self.find(&entry.key) else {
            self.open(entry, now);
            return;
        };
        let (memory, is_full) = (self.memory, self.is_full());
        let Some(lane) = self.lane(id) else { return };
        let known = lane.jobs.iter().any(|job| job.entry.place == place);
        if known || lane.parked.binary_search(&place).is_ok() {
            return;
        }
        let first = usize::from(lane.state.is_active());
        let later = |job: &LaneJob| job.entry.place > place;
        let at = lane.jobs.iter().skip(first).position(later).map_or(lane.jobs.len(), |at| at + first);
        let new_head = !lane.state.is_active() && lane.place().is_none_or(|head| place < head);
        // In full memory it takes the room of the last of its lane.
        let fits = at < lane.jobs.len() || (lane.parked.is_empty() && !is_full);
        if fits && !lane.is_parked(memory, now) {
            let job = LaneJob::new(entry, now);
            let weight = weight(&job.entry);
            lane.jobs.insert(at, job);
            let too_many = lane.jobs.len() > memory.jobs_per_lane || is_full;
            let may_park = lane.jobs.len() > first + 1;
            self.jobs += 1;
            self.bytes += weight;
            if too_many && may_park {
                self.park_last(id);
            }
        } else {
            let at = lane.parked.partition_point(|parked| *parked < place);
            lane.parked.insert(at, place);
            self.parked += 1;
        }
        if new_head {
            if let Some(lane) = self.lane(id) {
                lane.due = None;
            }
            self.next_head(id, now);
        }
    }
}
