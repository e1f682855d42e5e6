//! What is parked of a lane, and read again.

use super::{Head, Lane, LaneId, LaneJob, Lanes, weight};
use gristmill_broker::Entry;
use gristmill_job::Place;
use std::time::Instant;

impl Lanes {
    /// The next parked jobs of a lane are to be read.
    pub(super) fn load(&mut self, id: LaneId) {
        self.load_some(id, self.memory.jobs_per_lane);
    }

    fn load_some(&mut self, id: LaneId, count: usize) {
        if let Some(lane) = self.lane(id)
            && !lane.loading
            && !lane.parked.is_empty()
        {
            lane.loading = true;
            self.to_load.push_back((id, count));
        }
    }

    /// Which parked jobs to read now, per lane, `most` of each: as many as there is room for. The others wait for it; where
    /// nothing is in memory that could make any, one lane is read all the same.
    pub(crate) fn take_loads(&mut self, most: usize) -> Vec<(LaneId, Vec<Place>)> {
        let mut loads = Vec::new();
        while let Some((id, count)) = self.to_load.front().copied() {
            let moves = self.active > 0 || self.loading > 0;
            if self.is_full() && moves {
                break;
            }
            self.to_load.pop_front();
            let room = self.window.0.saturating_sub(self.jobs + self.loading).max(1);
            let count = count.min(most.max(1)).min(room);
            let Some(lane) = self.look(id) else { continue };
            let places: Vec<Place> = lane.parked.iter().take(count).copied().collect();
            self.loading += places.len();
            loads.push((id, places));
        }
        loads
    }

    /// Parked jobs were read, in the order they were asked for, with what is stored about them. One that is not there any
    /// more (someone deleted it) is passed over. A head whose wait this process has seen out waits no longer, whatever is
    /// stored: the clock of Redis may have been set back meanwhile.
    pub(crate) fn loaded(&mut self, id: LaneId, jobs: Vec<(Place, Option<Entry>)>, now: Instant) {
        self.loading = self.loading.saturating_sub(jobs.len());
        let Some(lane) = self.lane(id) else { return };
        lane.loading = false;
        let mut known_due = lane.due.take().filter(|_| lane.jobs.is_empty());
        let (mut read, mut bytes, mut gone) = (0, 0, 0);
        for (place, entry) in jobs {
            if lane.parked.front() != Some(&place) {
                break;
            }
            lane.parked.pop_front();
            gone += 1;
            if let Some(entry) = entry {
                read += 1;
                bytes += weight(&entry);
                let mut job = LaneJob::new(entry, now);
                if let Some(known) = known_due.take() {
                    job.due = job.due.map(|due| due.min(known));
                }
                lane.jobs.push_back(job);
            }
        }
        let (state, none_left) = (lane.state, lane.jobs.is_empty() && lane.parked.is_empty());
        self.jobs += read;
        self.bytes += bytes;
        self.parked -= gone;
        if none_left {
            self.close(id);
        } else if state == Head::Loading {
            self.next_head(id, now);
        } else if matches!(state, Head::Held | Head::Paused) {
            self.park(id);
        }
    }

    /// The last job in memory of a lane is parked. True if there was one.
    pub(super) fn park_last(&mut self, id: LaneId) -> bool {
        let Some(lane) = self.lane(id) else { return false };
        let Some(job) = lane.jobs.pop_back() else { return false };
        lane.parked.push_front(job.entry.place);
        self.parked += 1;
        self.jobs -= 1;
        self.bytes -= weight(&job.entry);
        true
    }

    /// Everything that is in memory of a lane is parked. What is being read of it comes behind, so nothing is while that is
    /// done.
    pub(super) fn park(&mut self, id: LaneId) {
        // What was acknowledged is nowhere but here.
        let may = |lane: &Lane| !lane.loading && !lane.jobs.iter().any(|job| job.acknowledged);
        if self.look(id).is_some_and(may) {
            while self.park_last(id) {}
        }
    }

    /// Every job in memory that waits behind another of its key is parked: it makes room for other keys.
    pub(crate) fn park_followers(&mut self) {
        for at in 0..self.slots.len() {
            let id = LaneId(u32::try_from(at).unwrap_or(u32::MAX));
            while self.look(id).is_some_and(|lane| !lane.loading && lane.jobs.len() > 1) {
                self.park_last(id);
            }
        }
    }

    /// A person may have asked something of heads that wait: up to `most` of them, from lane `from` on, are read again.
    /// Returns where to go on, if there are more.
    pub(crate) fn read_again(&mut self, from: usize, most: usize) -> Option<usize> {
        let waits = |lane: &Lane| matches!(lane.state, Head::Backoff { .. } | Head::Limited) && !lane.loading;
        let lanes: Vec<usize> = (from..self.slots.len())
            .filter(|at| self.slots[*at].as_ref().is_some_and(waits))
            .take(most)
            .collect();
        for at in &lanes {
            let id = LaneId(u32::try_from(*at).unwrap_or(u32::MAX));
            self.park(id);
            if let Some(lane) = self.lane(id) {
                lane.due = match lane.state {
                    Head::Backoff { until } => Some(until),
                    _ => None,
                };
                lane.state = Head::Loading;
            }
            self.load_some(id, 1);
        }
        lanes.last().filter(|_| lanes.len() == most).map(|last| last + 1)
    }
}
