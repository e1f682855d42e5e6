//! What is parked of a lane, and read again.

use super::{Head, LaneId, LaneJob, Lanes, weight};
use gristmill_broker::Entry;
use gristmill_job::Place;
use std::time::Instant;

impl Lanes {
    /// The next parked jobs of a lane are to be read.
    pub(super) fn load(&mut self, id: LaneId) {
        self.load_some(id, self.holding.jobs_per_lane);
    }

    fn load_some(&mut self, id: LaneId, count: usize) {
        if let Some(lane) = self.lane(id)
            && lane.loading == 0
            && !lane.parked.is_empty()
        {
            lane.loading = count.max(1);
            self.to_load.push_back((id, count.max(1)));
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
            let Some(lane) = self.lane(id) else { continue };
            let places: Vec<Place> = lane.parked.iter().take(count).copied().collect();
            lane.loading = places.len().max(1);
            self.loading += places.len();
            loads.push((id, places));
        }
        loads
    }

    /// Parked jobs were read, in the order they were asked for, with what is stored about them. One that is not there any
    /// more (someone deleted it) is passed over.
    pub(crate) fn loaded(&mut self, id: LaneId, jobs: Vec<(Place, Option<Entry>)>, now: Instant) {
        self.loading = self.loading.saturating_sub(jobs.len());
        let Some(lane) = self.lane(id) else { return };
        lane.loading = 0;
        let (mut held, mut bytes, mut gone) = (0, 0, 0);
        for (place, entry) in jobs {
            if lane.parked.front() != Some(&place) {
                break;
            }
            lane.parked.pop_front();
            gone += 1;
            if let Some(entry) = entry {
                held += 1;
                bytes += weight(&entry);
                lane.jobs.push_back(LaneJob::new(entry, now));
            }
        }
        let (state, none_left) = (lane.state, lane.jobs.is_empty() && lane.parked.is_empty());
        self.jobs += held;
        self.bytes += bytes;
        self.parked -= gone;
        if none_left {
            self.close(id);
        } else if state == Head::Loading {
            self.next_head(id, now);
        } else if state == Head::Held {
            self.park(id);
        }
    }

    /// Everything that is in memory of a lane is parked. What is being read of it comes behind, so nothing is while that is
    /// done.
    pub(super) fn park(&mut self, id: LaneId) {
        // What was acknowledged is nowhere but here.
        let may =
            |lane: &&mut super::Lane| lane.loading == 0 && !lane.jobs.iter().any(|job| job.acknowledged);
        let Some(lane) = self.lane(id).filter(may) else { return };
        let (mut jobs, mut bytes) = (0, 0);
        while let Some(job) = lane.jobs.pop_back() {
            jobs += 1;
            bytes += weight(&job.entry);
            lane.parked.push_front(job.entry.place);
        }
        self.jobs -= jobs;
        self.bytes -= bytes;
        self.parked += jobs;
    }

    /// Every job in memory that waits behind another of its key is parked: it makes room for other keys.
    pub(crate) fn park_followers(&mut self) {
        let (mut parked, mut bytes) = (0, 0);
        for lane in self.slots.iter_mut().flatten().filter(|lane| lane.loading == 0) {
            while lane.jobs.len() > 1
                && let Some(job) = lane.jobs.pop_back()
            {
                parked += 1;
                bytes += weight(&job.entry);
                lane.parked.push_front(job.entry.place);
            }
        }
        self.jobs -= parked;
        self.parked += parked;
        self.bytes -= bytes;
    }

    /// A person may have asked something of heads that wait: up to `most` of them, from lane `from` on, are read again.
    /// Returns where to go on, if there are more.
    pub(crate) fn read_again(&mut self, from: usize, most: usize) -> Option<usize> {
        let waits = |lane: &super::Lane| matches!(lane.state, Head::Backoff { .. }) && lane.loading == 0;
        let lanes: Vec<usize> = (from..self.slots.len())
            .filter(|at| self.slots[*at].as_ref().is_some_and(waits))
            .take(most)
            .collect();
        for at in &lanes {
            let id = LaneId(u32::try_from(*at).unwrap_or(u32::MAX));
            self.park(id);
            if let Some(lane) = self.lane(id) {
                lane.state = Head::Loading;
            }
            self.load_some(id, 1);
        }
        lanes.last().filter(|_| lanes.len() == most).map(|last| last + 1)
    }
}
