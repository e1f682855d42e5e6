//! What a person has paused does not start. Its jobs are claimed, and parked: they fill no window, and other keys go on. Of a
//! queue that is paused as a whole nothing is claimed either.

use super::{Action, Now, Phase, Tenure};
use crate::partition::lanes::{LaneId, LaneJob};
use crate::partition::pauses::Pauses;
use std::sync::Arc;

impl Tenure {
    /// Something else is paused than before.
    pub(super) fn pauses(&mut self, pauses: Arc<Pauses>, now: Now, actions: &mut Vec<Action>) {
        let before = std::mem::replace(&mut self.pauses, pauses);
        if before.exceed(&self.pauses) {
            self.lanes.resume(now.instant);
            self.news = true;
        }
        // What waits for a slot comes back, and is looked at again.
        if self.pauses.exceed(&before) && self.phase == Phase::Serving {
            actions.push(Action::Recall);
        }
    }

    /// Whether the head may not start. What a person asked of it is done all the same, and what was acknowledged runs.
    pub(super) fn is_paused(&self, job: &LaneJob) -> bool {
        if self.pauses.are_none() || job.acknowledged {
            return false;
        }
        let asked = job.entry.state.line().is_some_and(|line| line.request.is_some());
        let most = self.bounds.policy.max_envelope_bytes;
        !asked && self.pauses.stop(&job.entry.key, &job.entry.envelope, most)
    }

    /// A head that was about to start waits.
    pub(super) fn pause(&mut self, lane: LaneId) {
        self.lanes.pause(lane);
    }
}
