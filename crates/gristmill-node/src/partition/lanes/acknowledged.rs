//! Jobs that were acknowledged before their run: in their lanes, and unknown to Redis.

use super::{Head, LaneId, LaneJob, Lanes, weight};
use gristmill_broker::Entry;
use std::collections::VecDeque;
use std::time::Instant;

impl Lanes {
    /// It was acknowledged before its run, which begins now.
    pub(crate) fn acknowledged(&mut self, id: LaneId) {
        self.set(id, Head::Running);
        if let Some(job) = self.head_mut(id) {
            job.acknowledged = true;
            self.acknowledged += 1;
        }
    }

    /// The head of its lane was acknowledged in an earlier tenure, and runs.
    pub(crate) fn seat_again(&mut self, entry: Entry, now: Instant) {
        self.jobs += 1;
        self.bytes += weight(&entry);
        let key = entry.key.clone();
        let job = LaneJob::new(entry, now);
        let id = match self.find(&key) {
            None => self.new_lane(&key, VecDeque::from([job]), VecDeque::new()),
            Some(id) => {
                if let Some(lane) = self.lane(id) {
                    lane.jobs.push_front(job);
                }
                id
            }
        };
        self.acknowledged(id);
    }

    /// Jobs that were acknowledged and have not been started: nobody else knows them.
    pub(crate) fn unstarted(&self) -> usize {
        let lanes = self.slots.iter().flatten();
        let lanes = lanes.filter(|lane| !matches!(lane.state, Head::Running | Head::Settling));
        lanes.filter(|lane| lane.jobs.front().is_some_and(|job| job.acknowledged)).count()
    }
}
