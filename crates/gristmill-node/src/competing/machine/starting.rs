//! From a claimed job to its run: at once, under a start mark, alone in the process, or acknowledged first.

use super::{For, Held, Machine, Phase, Settling, Stage};
use crate::competing::events::{Action, Now};
use crate::limits::permit::Permit;
use crate::partition::lanes::{LaneId, LaneJob};
use crate::partition::tenure::{First, Run};
use crate::partition::verdict;
use crate::partition::way::Way;
use crate::worker::slot::Slot;
use gristmill_broker::call::MAX_JOBS_PER_CALL;
use gristmill_broker::start::{How, Marked, Start};
use gristmill_broker::{Call, Entry};
use gristmill_job::Place;
use std::collections::VecDeque;
use std::sync::Arc;

/// A start mark to be written, and the slot of the run that waits for it.
pub(super) type ToMark = (Start, Option<Arc<Slot>>);

/// Strong suspects of this partition: one runs alone, or has asked to; the others wait for it.
#[derive(Debug, Default)]
pub(super) struct Alone {
    first: Option<Place>,
    waiting: VecDeque<(Place, How)>,
}

impl Alone {
    pub(super) fn is_first(&self, place: Place) -> bool {
        self.first == Some(place)
    }
}

/// What starts with the end of this decision, and how many of them run for the first time.
#[derive(Debug, Default)]
pub(super) struct Starts {
    runs: Vec<Run>,
    first: usize,
}

impl Starts {
    pub(super) fn push(&mut self, run: Run) {
        self.runs.push(run);
    }
}

impl Machine {
    /// A job was claimed, with a slot.
    pub(super) fn arrived(
        &mut self,
        entry: Entry,
        slot: Option<Arc<Slot>>,
        now: Now<'_>,
        actions: &mut Vec<Action>,
    ) {
        let place = entry.place;
        if let Some(held) = self.held.get_mut(&place) {
            // Claimed again by this very node, while it is still busy with the claim before. A hand back names the newest.
            let newest = held.job.entry.claim.max(entry.claim);
            Arc::make_mut(&mut held.job.entry).claim = newest;
            if let Some(permit) = &held.permit {
                permit.revoke();
            }
            match held.stage {
                Stage::Lost { .. } => held.stage = Stage::Lost { again: true },
                Stage::HandingBack => {
                    let stopped = self.is_laid_down(place) == Some(true);
                    self.to_hand_back.push((place, stopped));
                }
                Stage::Limited | Stage::Marking | Stage::Alone | Stage::Running | Stage::Settling => {}
            }
            return;
        }
        let job = LaneJob::new(entry, now.instant);
        if self.phase != Phase::Serving {
            self.held.insert(place, Held { job, stage: Stage::HandingBack, permit: None, cancelled: false });
            return self.hand_back(place, false, actions);
        }
        self.begin(job, slot, now, actions);
    }

    /// In its slot; where there is none, it asks for one when its turn comes.
    pub(super) fn begin(
        &mut self,
        job: LaneJob,
        slot: Option<Arc<Slot>>,
        now: Now<'_>,
        actions: &mut Vec<Action>,
    ) {
        // What another node had in hand may have begun there.
        let first = job.entry.recovered;
        self.begin_in_turn(job, slot, first, now, actions);
    }

    /// It has waited, or had begun: before the others.
    pub(super) fn begin_again(&mut self, job: LaneJob, now: Now<'_>, actions: &mut Vec<Action>) {
        self.begin_in_turn(job, None, true, now, actions);
    }

    fn begin_in_turn(
        &mut self,
        job: LaneJob,
        slot: Option<Arc<Slot>>,
        first: bool,
        now: Now<'_>,
        actions: &mut Vec<Action>,
    ) {
        let (key, envelope) = (&job.entry.key, &job.entry.envelope);
        let most = self.bounds.policy.max_envelope_bytes;
        let asked = job.entry.state.line().is_some_and(|line| line.request.is_some());
        if !asked && self.pauses.as_ref().is_some_and(|pauses| pauses.stop(key, envelope, most)) {
            return self.put_off_paused(job, now);
        }
        match self.gate_of(&job) {
            None => self.start(job, slot, None, now, actions),
            Some(gate) => self.limit((gate, job), slot, first, now, actions),
        }
    }

    /// Nothing stands against it.
    pub(super) fn start(
        &mut self,
        job: LaneJob,
        slot: Option<Arc<Slot>>,
        permit: Option<Arc<Permit>>,
        now: Now<'_>,
        actions: &mut Vec<Action>,
    ) {
        let place = job.entry.place;
        let way = Way::of(&job, &self.bounds.policy, &self.node, now.instant);
        if job.turn() == 0 && !matches!(way, Way::Settle(_)) {
            self.starts.first += 1;
        }
        let asks = |first| Run { first: Some(first), ..self.run(&job, None) };
        let stage = match way {
            Way::Run => {
                let run = Run { slot, ..self.run(&job, None) };
                self.starts.runs.push(run);
                Stage::Running
            }
            Way::Mark(how) if slot.is_some() => {
                self.to_mark.push((Start { place, turn: job.turn(), how }, slot));
                Stage::Marking
            }
            Way::Acknowledge if slot.is_some() => {
                self.acknowledge(&job, slot);
                Stage::Settling
            }
            Way::Mark(how) => {
                let run = asks(First::Mark(how));
                self.starts.runs.push(run);
                self.limited.queued(place, now.instant);
                Stage::Running
            }
            Way::Acknowledge => {
                let run = asks(First::Acknowledge);
                self.starts.runs.push(run);
                self.limited.queued(place, now.instant);
                Stage::Running
            }
            // Its slot is given back: the process is cleared for it first.
            Way::Alone(how) => {
                self.alone.waiting.push_back((place, how));
                Stage::Alone
            }
            Way::Settle(unrun) => {
                let settle = self.judge(now).unrun(&job, unrun);
                self.to_settle.push(Settling::of(job.entry.clone(), settle));
                Stage::Settling
            }
        };
        self.held.insert(place, Held { job, stage, permit, cancelled: false });
        self.next_alone(actions);
    }

    fn acknowledge(&mut self, job: &LaneJob, slot: Option<Arc<Slot>>) {
        let settle = verdict::acknowledgement(job, &self.bounds.policy);
        self.to_settle.push(Settling::of(job.entry.clone(), settle).acknowledging(slot));
    }

    /// Hands the runs of this decision to the workers.
    pub(super) fn flush_starts(&mut self, now: Now<'_>, actions: &mut Vec<Action>) {
        let Starts { runs, first } = std::mem::take(&mut self.starts);
        if first > 0 {
            self.bounds.policy.budget.ran(first, now.instant);
        }
        if !runs.is_empty() {
            actions.push(Action::Start(runs));
        }
    }

    pub(super) fn run(&self, job: &LaneJob, how: Option<How>) -> Run {
        Run {
            epoch: self.epoch,
            lane: LaneId::NONE,
            turn: job.turn(),
            attempt: job.entry.state.attempts() + 1,
            entry: job.entry.clone(),
            alone: matches!(how, Some(How::Alone | How::LookAlone)),
            acknowledged: job.acknowledged,
            reconcile: matches!(how, Some(How::Look | How::LookAlone)),
            first: None,
            slot: None,
            due: job.due(),
        }
    }

    /// A run holds its slot and would begin: what comes first is written.
    pub(super) fn asked(&mut self, place: Place, first: First, slot: Arc<Slot>, actions: &mut Vec<Action>) {
        let Some(held) = self.held.get_mut(&place) else { return };
        match first {
            First::Admit(_) => self.asks_limit(place, slot, actions),
            First::Mark(how) => {
                held.stage = Stage::Marking;
                let turn = held.job.turn();
                self.to_mark.push((Start { place, turn, how }, Some(slot)));
            }
            First::Acknowledge => {
                held.stage = Stage::Settling;
                let job = held.job.clone();
                self.acknowledge(&job, Some(slot));
            }
        }
    }

    pub(super) fn send_marks(&mut self, actions: &mut Vec<Action>) {
        let mut marks = std::mem::take(&mut self.to_mark).into_iter().peekable();
        while marks.peek().is_some() {
            let (starts, slots) = marks.by_ref().take(MAX_JOBS_PER_CALL).unzip();
            self.send(Call::Start(starts), For::Start(slots), actions);
        }
    }

    /// Start marks were written.
    pub(super) fn marked(
        &mut self,
        call: &Call,
        marks: Vec<Marked>,
        slots: Vec<Option<Arc<Slot>>>,
        now: Now<'_>,
        actions: &mut Vec<Action>,
    ) {
        let Call::Start(starts) = call else { return };
        let mut lost = 0;
        for ((start, marked), slot) in starts.iter().zip(marks).zip(slots) {
            let place = start.place;
            let unpermitted = |held: &Held| held.permit.is_none() && self.gate_of(&held.job).is_some();
            let permitted = !self.held.get(&place).is_some_and(unpermitted);
            let held = self.held.get_mut(&place).filter(|held| held.stage == Stage::Marking);
            let Some(held) = held else { continue };
            match marked {
                // Another node has it, or had it.
                Marked::Gone | Marked::AtTurn(_) => {
                    lost += 1;
                    self.forget(place, actions);
                }
                Marked::Started => {
                    held.job.marked = true;
                    if permitted && self.phase == Phase::Serving && (now.trusts)(place) {
                        held.stage = Stage::Running;
                        let job = held.job.clone();
                        let run = Run { slot, ..self.run(&job, Some(start.how)) };
                        self.starts.runs.push(run);
                    } else {
                        self.hand_back(place, false, actions);
                    }
                }
            }
        }
        self.flush_starts(now, actions);
        if lost > 0 {
            actions.push(Action::Lost(lost));
        }
    }

    /// The first that waits asks the process, unless another of this partition has its turn.
    pub(super) fn next_alone(&mut self, actions: &mut Vec<Action>) {
        while self.alone.first.is_none() {
            let Some((place, _)) = self.alone.waiting.front().copied() else { return };
            if self.held.get(&place).is_some_and(|held| held.stage == Stage::Alone) {
                self.alone.first = Some(place);
                actions.push(Action::AskAlone(place));
            } else {
                self.alone.waiting.pop_front();
            }
        }
    }

    /// Nothing else runs in the process: the job at this place may.
    pub(super) fn may_run_alone(&mut self, place: Place, now: Now<'_>, actions: &mut Vec<Action>) {
        let asked = self.alone.waiting.front().copied().filter(|asked| asked.0 == place);
        let waits = self.held.get_mut(&place).filter(|held| held.stage == Stage::Alone);
        if let (Some((_, how)), Some(held)) = (asked, waits)
            && self.alone.first == Some(place)
        {
            self.alone.waiting.pop_front();
            if self.phase == Phase::Serving && (now.trusts)(place) {
                held.stage = Stage::Marking;
                self.to_mark.push((Start { place, turn: held.job.turn(), how }, None));
            } else {
                self.hand_back(place, false, actions);
            }
            return;
        }
        self.alone.first.get_or_insert(place);
        self.alone_over(place, actions);
    }

    /// The job at this place runs alone no more, or never did.
    pub(super) fn alone_over(&mut self, place: Place, actions: &mut Vec<Action>) {
        if self.alone.first == Some(place) {
            self.alone.first = None;
            self.alone.waiting.retain(|(waits, _)| *waits != place);
            actions.push(Action::AloneOver);
            self.next_alone(actions);
        }
    }
}
