//! Jobs of limited kinds: they ask before they start, in their slot. There is no lane in which one could wait, so one that is
//! not let in is put back for a while, uncharged, and its slot serves another. See [`crate::limits`].

use super::{Held, Machine, Phase, Settling, Stage};
use crate::competing::events::{Action, Now};
use crate::limits::permit::Permit;
use crate::partition::lanes::{LaneId, LaneJob};
use crate::partition::tenure::{Asking, Next};
use crate::worker::slot::Slot;
use gristmill_broker::Epoch;
use gristmill_broker::admit::Admitted;
use gristmill_broker::limit::SlotName;
use std::sync::Arc;
use std::time::Duration;

/// After so long, up to doubled by the dice, a job that may not start now is looked at again.
const WAIT: Duration = Duration::from_secs(2);

impl Machine {
    /// Whether the limit of its kind has to be asked, and lets it ask now; `Err` where it has to wait.
    pub(super) fn may_ask(&self, job: &LaneJob, now: Now<'_>) -> Result<Option<Arc<Permit>>, ()> {
        let Some(gate) = self.bounds.policy.limits.of(&job.entry.envelope).cloned() else { return Ok(None) };
        // A person's word waits for no limit: it is settled without a run.
        if job.acknowledged || job.entry.state.line().is_some_and(|line| line.request.is_some()) {
            return Ok(None);
        }
        let name = SlotName { partition: self.partition, place: job.entry.place };
        // By the clock of Redis, about: whoever claims it later asks in a younger epoch.
        let asked = gate.enter(name, Epoch(now.redis.0), &job.entry.id, now.instant);
        asked.map(Some).map_err(drop)
    }

    /// It may not start now: put back, uncharged.
    pub(super) fn put_off(&mut self, job: LaneJob, least: Duration, now: Now<'_>) {
        let place = job.entry.place;
        let settle = self.judge(now).paused(&job, least.max(WAIT.mul_f64(1.0 + now.random)));
        self.to_settle.push(Settling::of(job.entry.clone(), settle));
        self.held.insert(place, Held { job, stage: Stage::Settling, permit: None, cancelled: false });
    }

    pub(super) fn ask_limit(
        &mut self,
        job: LaneJob,
        (slot, permit): (Arc<Slot>, Arc<Permit>),
        actions: &mut Vec<Action>,
    ) {
        let (entry, turn) = (job.entry.clone(), job.turn());
        let permit_of = Some(permit.clone());
        self.held
            .insert(entry.place, Held { job, stage: Stage::Marking, permit: permit_of, cancelled: false });
        let (lane, next) = (LaneId::NONE, Next::Run);
        self.asking += 1;
        actions.push(Action::Admit(vec![Asking { lane, entry, turn, next, slot, permit }]));
    }

    /// Redis said which may begin; nothing of those that got no answer.
    pub(super) fn admitted(
        &mut self,
        answers: Vec<(Asking, Option<Admitted>)>,
        now: Now<'_>,
        actions: &mut Vec<Action>,
    ) {
        for (asking, said) in answers {
            self.asking = self.asking.saturating_sub(1);
            let Asking { entry, turn, slot, permit, .. } = asking;
            let place = entry.place;
            let held = self.held.get(&place);
            let waits = held.is_some_and(|held| held.stage == Stage::Marking && held.job.turn() == turn);
            let Some(held) = self.held.remove(&place).filter(|_| waits) else { continue };
            if self.phase != Phase::Serving {
                self.held.insert(place, held);
                self.hand_back(place, false, actions);
                continue;
            }
            match said {
                Some(Admitted::Slot | Admitted::Passed) => {
                    slot.permitted(&permit);
                    self.start(held.job, Some(slot), Some(permit), now, actions);
                }
                Some(Admitted::KeyUntil(wait) | Admitted::Until(wait)) => self.put_off(held.job, wait, now),
                Some(Admitted::Full(_) | Admitted::Fenced) | None => {
                    self.put_off(held.job, Duration::ZERO, now);
                }
            }
        }
        self.flush_starts(now, actions);
    }
}
