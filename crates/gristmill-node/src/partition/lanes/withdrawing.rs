//! A job that is to end without a run, wherever it stands in its lane.

use super::{Head, LaneId, Lanes, weight};
use gristmill_broker::Entry;
use gristmill_job::{Key, Place};
use std::sync::Arc;
use std::time::Instant;

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Withdrawn {
    /// It is in no lane any more; with the job, where it was in memory.
    Idle(Option<Arc<Entry>>),
    /// It is being run or settled, or about to be: it stays.
    Active,
    /// It cannot be taken out now, and is met when it is the head.
    Later,
    /// There is no such job.
    Nowhere,
}

impl LaneId {
    /// The lane of what is in no lane.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

impl Lanes {
    /// Takes the job at this place out of the lane of its key, unless it is active. The lane goes on.
    pub(crate) fn withdraw(&mut self, key: &Key, place: Place, now: Instant) -> Withdrawn {
        let Some(id) = self.find(key) else { return Withdrawn::Nowhere };
        let Some(lane) = self.lane(id) else { return Withdrawn::Nowhere };
        let state = lane.state;
        let in_memory = lane.jobs.iter().position(|job| job.entry.place == place);
        let parked = lane.parked.binary_search(&place).ok();
        let last = lane.jobs.len() + lane.parked.len() == 1;
        let is_head = in_memory == Some(0) || (lane.jobs.is_empty() && parked == Some(0));
        let acknowledged = in_memory.and_then(|at| lane.jobs.get(at)).is_some_and(|job| job.acknowledged);
        if in_memory.is_none() && parked.is_none() {
            return Withdrawn::Nowhere;
        }
        if acknowledged || (is_head && state.is_active()) {
            return Withdrawn::Active;
        }
        // What is being read finds its lane again.
        if last && lane.loading {
            return Withdrawn::Later;
        }
        let job = in_memory.and_then(|at| lane.jobs.remove(at));
        if let Some(at) = parked.filter(|_| job.is_none()) {
            lane.parked.remove(at);
        }
        if is_head {
            lane.due = None;
        }
        match &job {
            Some(job) => {
                self.jobs -= 1;
                self.bytes -= weight(&job.entry);
            }
            None => self.parked -= 1,
        }
        if last {
            self.close(id);
        } else if is_head && state != Head::Loading {
            self.next_head(id, now);
        }
        Withdrawn::Idle(job.map(|job| job.entry))
    }
}
