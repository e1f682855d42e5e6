//! Heads of limited kinds: who may ask, who asks, who waits. See [`crate::limits`].
//!
//! A permit is kept exactly as long as its job is the head of its lane and active, or its run is left over from an earlier
//! tenure; it is looked at behind every event, so that no way out of those states can forget it.

use super::{Action, Next, Now, Phase, Run, Settling, Tenure};
use crate::limits::gate::Gate;
use crate::limits::permit::Permit;
use crate::partition::lanes::{Head, LaneId, LaneJob};
use crate::partition::verdict;
use crate::worker::slot::Slot;
use gristmill_broker::Entry;
use gristmill_broker::admit::Admitted;
use gristmill_broker::limit::SlotName;
use gristmill_broker::start::How;
use gristmill_job::Place;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How long a head waits that a younger epoch has overtaken: this tenure is about to hear of it.
const OVERTAKEN: Duration = Duration::from_secs(1);

/// A run that holds its slot of the node and asks whether its kind's limit lets it begin.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) lane: LaneId,
    pub(crate) entry: Arc<Entry>,
    pub(crate) turn: u32,
    /// What comes once it is let in.
    pub(crate) next: Next,
    pub(crate) slot: Arc<Slot>,
    pub(crate) permit: Arc<Permit>,
}

/// Heads in the order in which they wait.
type Heads = VecDeque<(LaneId, Place)>;

/// What there is of limits in a tenure.
#[derive(Debug, Default)]
pub(super) struct Limited {
    permits: BTreeMap<Place, (LaneId, Arc<Permit>)>,
    /// Heads that wait, by kind, in turn.
    waiting: BTreeMap<&'static str, (Arc<Gate>, Heads)>,
    to_ask: Vec<Asking>,
}

impl Tenure {
    /// Whether it may ask already.
    pub(super) fn has_permit(&self, place: Place) -> bool {
        self.limited.permits.contains_key(&place)
    }

    /// It does not run.
    pub(super) fn asks_nothing(&mut self, place: Place) {
        self.limited.permits.remove(&place);
    }

    /// Whether the limit of its kind lets this head ask now, where it has one. One that has to wait waits from here on.
    pub(super) fn may_ask(
        &mut self,
        lane: LaneId,
        job: &LaneJob,
        now: Now,
        actions: &mut Vec<Action>,
    ) -> Result<Option<Arc<Permit>>, ()> {
        let Some(gate) = self.bounds.policy.limits.of(&job.entry.envelope).cloned() else { return Ok(None) };
        let has_turn = self.lanes.take_turn(lane);
        let place = job.entry.place;
        // A person's word waits for no limit: it is settled without a run.
        if job.entry.state.line().is_some_and(|line| line.request.is_some()) {
            return Ok(None);
        }
        let others = self.limited.waiting.get(gate.kind).is_some_and(|(_, waiting)| !waiting.is_empty());
        if has_turn || !others {
            let name = SlotName { partition: self.partition, place };
            match gate.enter(name, self.epoch, &job.entry.id, now.instant) {
                Ok(permit) => {
                    self.limited.permits.insert(place, (lane, permit.clone()));
                    return Ok(Some(permit));
                }
                Err(at) => actions.push(Action::WakeAt(at)),
            }
        }
        self.wait_for(&gate, lane, place, has_turn);
        Err(())
    }

    /// The head waits until its kind's limit lets it ask again; `first` before the others.
    fn wait_for(&mut self, gate: &Arc<Gate>, lane: LaneId, place: Place, first: bool) {
        self.lanes.limit(lane);
        let (_, waiting) =
            self.limited.waiting.entry(gate.kind).or_insert_with(|| (gate.clone(), VecDeque::new()));
        if first {
            waiting.push_front((lane, place))
        } else {
            waiting.push_back((lane, place))
        }
        gate.waits(self.partition, waiting.len());
    }

    /// Heads whose turn has come are ready again.
    pub(super) fn reopen(&mut self, now: Now, actions: &mut Vec<Action>) {
        for (gate, waiting) in self.limited.waiting.values_mut() {
            waiting.retain(|(lane, place)| self.lanes.is_limited(*lane, *place));
            if !waiting.is_empty() {
                match gate.room(self.partition, now.instant) {
                    Ok(room) => {
                        let first = waiting.drain(..room.min(waiting.len()));
                        // Each is put before the others.
                        first.rev().for_each(|(lane, _)| self.lanes.unlimit(lane));
                    }
                    Err(at) => actions.push(Action::WakeAt(at)),
                }
            }
            gate.waits(self.partition, waiting.len());
        }
        self.limited.waiting.retain(|_, (_, waiting)| !waiting.is_empty());
    }

    /// A run holds its slot, and asks for its limit before anything is written or begins.
    pub(super) fn asks_limit(&mut self, lane: LaneId, job: &LaneJob, next: Next, slot: Arc<Slot>, now: Now) {
        let held = self.limited.permits.get(&job.entry.place).map(|(_, permit)| permit.clone());
        let Some(permit) = held else { return self.lanes.not_run(lane, now.instant) };
        self.lanes.marking(lane);
        let (entry, turn) = (job.entry.clone(), job.turn());
        self.limited.to_ask.push(Asking { lane, entry, turn, next, slot, permit });
    }

    /// Sends the questions that came together.
    pub(super) fn ask_limits(&mut self, actions: &mut Vec<Action>) {
        if !self.limited.to_ask.is_empty() {
            actions.push(Action::Admit(std::mem::take(&mut self.limited.to_ask)));
        }
    }

    /// Redis said which may begin; nothing of those that got no answer.
    pub(super) fn admitted(
        &mut self,
        answers: Vec<(Asking, Option<Admitted>)>,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        let mut runs = Vec::new();
        for (asking, said) in answers {
            let Asking { lane, entry, turn, next, slot, permit } = asking;
            let place = entry.place;
            let job = match self.lanes.head(lane, place) {
                Some((job, Head::Marking)) if job.turn() == turn => job.clone(),
                _ => continue,
            };
            let instant = now.instant;
            let serves = self.phase == Phase::Serving && now.trusted;
            match said {
                _ if !serves => self.not_let_in(lane, place, next, now, actions),
                Some(Admitted::Slot | Admitted::Passed) => {
                    slot.permitted(&permit);
                    let first_runs = usize::from(turn == 0);
                    self.bounds.policy.budget.ran(first_runs, instant);
                    runs.extend(self.let_in(lane, &job, next, slot));
                }
                Some(Admitted::Full(_) | Admitted::Until(_)) | None => {
                    self.wait_for(&permit.gate.clone(), lane, place, true);
                    self.over_if_alone(place, next, actions);
                }
                Some(Admitted::KeyUntil(wait)) => {
                    self.lanes.later(lane, instant, instant + wait);
                    self.over_if_alone(place, next, actions);
                }
                Some(Admitted::Fenced) => {
                    self.lanes.later(lane, instant, instant + OVERTAKEN);
                    self.over_if_alone(place, next, actions);
                }
            }
        }
        if !runs.is_empty() {
            actions.push(Action::Start(runs));
        }
    }

    fn let_in(&mut self, lane: LaneId, job: &LaneJob, next: Next, slot: Arc<Slot>) -> Option<Run> {
        match next {
            Next::Run => {
                self.lanes.begin(lane);
                Some(Run { slot: Some(slot), ..self.run(lane, job, None) })
            }
            Next::Mark(how) => {
                self.to_mark.push((lane, job.clone(), how, Some(slot)));
                None
            }
            Next::Acknowledge => {
                let settle = verdict::acknowledgement(job, &self.bounds.policy);
                self.lanes.begin(lane);
                self.lanes.settling(lane);
                let (entry, acknowledges) = (job.entry.clone(), Some(slot));
                self.to_settle.push(Settling { lane, entry, settle, acknowledges, attempt: None });
                None
            }
        }
    }

    fn not_let_in(&mut self, lane: LaneId, place: Place, next: Next, now: Now, actions: &mut Vec<Action>) {
        self.lanes.not_run(lane, now.instant);
        self.over_if_alone(place, next, actions);
    }

    /// One that was to run alone keeps the process closed for nobody while it waits.
    fn over_if_alone(&mut self, place: Place, next: Next, actions: &mut Vec<Action>) {
        if matches!(next, Next::Mark(How::Alone | How::LookAlone)) {
            self.alone_over(place, actions);
        }
    }

    /// Nothing waits any more: the lanes are thrown away.
    pub(super) fn wait_no_more(&mut self) {
        self.limited.to_ask.clear();
        for (gate, _) in std::mem::take(&mut self.limited.waiting).into_values() {
            gate.waits(self.partition, 0);
        }
    }

    /// Drops the permits that nothing needs any more.
    pub(super) fn drop_permits(&mut self) {
        if self.limited.permits.is_empty() {
            return;
        }
        let (lanes, leftovers) = (&self.lanes, &self.leftovers);
        self.limited.permits.retain(|place, (lane, _)| {
            lanes.has_begun(*lane, *place) || leftovers.values().any(|leftover| leftover.place == *place)
        });
    }
}

#[cfg(test)]
#[path = "limiting_tests.rs"]
mod tests;
