//! From a head that is ready to its run: at once, under a start mark, alone in the process, or acknowledged first.

use super::{Action, End, First, Next, Now, Phase, Run, Settling, Tenure};
use crate::partition::calls::{OnAnswer, Sent};
use crate::partition::lanes::{Head, LaneId, LaneJob};
use crate::partition::verdict;
use crate::partition::way::Way;
use crate::worker::slot::Slot;
use gristmill_broker::Call;
use gristmill_broker::call::MAX_JOBS_PER_CALL;
use gristmill_broker::start::{How, Marked, Start};
use gristmill_job::Place;
use std::collections::VecDeque;
use std::sync::Arc;

/// A start mark to be written, or taken back, and the slot of the run that waits for it.
pub(super) type ToMark = (LaneId, LaneJob, How, Option<Arc<Slot>>);

/// Strong suspects of this partition: one runs alone, or has asked to; the others wait for it.
#[derive(Debug, Default)]
pub(super) struct Alone {
    first: Option<Place>,
    waiting: VecDeque<(LaneId, Place, How)>,
}

impl Tenure {
    /// Starts every head that is ready.
    pub(super) fn start_heads(&mut self, now: Now, actions: &mut Vec<Action>) {
        // Nothing of it starts, and its lanes need not be looked at.
        if self.pauses.queue() {
            return;
        }
        let (mut runs, mut first_runs) = (Vec::new(), 0);
        while let Some((lane, job)) = self.lanes.start_next() {
            let job = if self.is_cancelled(job.entry.place) { self.with_cancel(job) } else { job };
            if self.is_paused(&job) {
                self.pause(lane);
                continue;
            }
            let Ok(permit) = self.may_ask(lane, &job, now, actions) else { continue };
            let asks = |first| Run { first: Some(first), ..self.run(lane, &job, None) };
            match Way::of(&job, &self.bounds.policy, &self.node, now.instant) {
                Way::Run if permit.is_some() => runs.push(asks(First::Admit(Next::Run))),
                Way::Mark(how) if permit.is_some() => runs.push(asks(First::Admit(Next::Mark(how)))),
                Way::Acknowledge if permit.is_some() => runs.push(asks(First::Admit(Next::Acknowledge))),
                Way::Run => runs.push(self.run(lane, &job, None)),
                Way::Mark(how) => runs.push(asks(First::Mark(how))),
                Way::Acknowledge => runs.push(asks(First::Acknowledge)),
                Way::Alone(how) => self.ask_alone(lane, job.entry.place, how, actions),
                Way::Settle(unrun) => {
                    self.asks_nothing(job.entry.place);
                    let settle = self.judge(now).unrun(&job, unrun);
                    self.lanes.settling(lane);
                    let entry = job.entry.clone();
                    self.to_settle.push(Settling { lane, entry, settle, acknowledges: None, attempt: None });
                    continue;
                }
            }
            // One that asks its limit is counted once it is let in.
            first_runs += usize::from(job.turn() == 0 && permit.is_none());
        }
        if first_runs > 0 {
            self.bounds.policy.budget.ran(first_runs, now.instant);
        }
        if !runs.is_empty() {
            actions.push(Action::Start(runs));
        }
    }

    /// A run holds its slot and would begin: what comes first is written. So no more is marked than runs (V33), and no more
    /// acknowledged than would be lost with this process.
    pub(super) fn asked(&mut self, lane: LaneId, job: &LaneJob, first: First, slot: Arc<Slot>, now: Now) {
        let stopped = self.is_cancelled(job.entry.place) || self.is_paused(job);
        if self.phase != Phase::Serving || !now.trusted || stopped {
            self.lanes.not_run(lane, now.instant);
            return;
        }
        match first {
            First::Admit(next) => self.asks_limit(lane, job, next, slot, now),
            First::Mark(how) => {
                self.lanes.marking(lane);
                self.to_mark.push((lane, job.clone(), how, Some(slot)));
            }
            First::Acknowledge => {
                let settle = verdict::acknowledgement(job, &self.bounds.policy);
                self.lanes.settling(lane);
                let entry = job.entry.clone();
                let acknowledges = Some(slot);
                self.to_settle.push(Settling { lane, entry, settle, acknowledges, attempt: None });
            }
        }
    }

    /// Sends the start marks that came together.
    pub(super) fn mark_starts(&mut self, actions: &mut Vec<Action>) {
        let marks = std::mem::take(&mut self.to_mark);
        for marks in marks.chunks(MAX_JOBS_PER_CALL) {
            self.mark(marks, actions);
        }
    }

    pub(super) fn run(&self, lane: LaneId, job: &LaneJob, how: Option<How>) -> Run {
        Run {
            epoch: self.epoch,
            lane,
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

    fn mark(&mut self, marks: &[ToMark], actions: &mut Vec<Action>) {
        let mut starts = Vec::with_capacity(marks.len());
        let mut lanes = Vec::with_capacity(marks.len());
        for (lane, job, how, slot) in marks {
            self.lanes.marking(*lane);
            starts.push(Start { place: job.entry.place, turn: job.turn(), how: *how });
            lanes.push(OnAnswer { lane: *lane, entry: job.entry.clone(), slot: slot.clone(), attempt: None });
        }
        self.send(Call::Start(starts), lanes, actions);
    }

    /// Start marks were written, or taken back.
    pub(super) fn marked(&mut self, sent: Sent, marks: Vec<Marked>, now: Now, actions: &mut Vec<Action>) {
        let Call::Start(starts) = &*sent.call else { return };
        let (mut runs, mut disagreement) = (Vec::new(), false);
        for ((start, marked), OnAnswer { lane, slot, .. }) in starts.iter().zip(marks).zip(sent.lanes) {
            let Some((job, Head::Marking)) = self.lanes.head(lane, start.place) else { continue };
            let job = job.clone();
            match (marked, start.how) {
                (Marked::Gone | Marked::AtTurn(_), _) => disagreement = true,
                (Marked::Started, How::Not | How::Interrupted) => {
                    if let Some(job) = self.lanes.head_mut(lane) {
                        job.marked = false;
                    }
                    self.lanes.not_run(lane, now.instant);
                }
                (Marked::Started, how) => {
                    self.lanes.marked(lane);
                    if self.phase == Phase::Serving && now.trusted && !self.is_cancelled(start.place) {
                        runs.push(Run { slot, ..self.run(lane, &job, Some(how)) });
                    } else {
                        self.lanes.not_run(lane, now.instant);
                        self.alone_over(start.place, actions);
                    }
                }
            }
        }
        if !runs.is_empty() {
            actions.push(Action::Start(runs));
        }
        if disagreement {
            self.end(End::Disagreement, actions);
        }
    }

    /// Its run did not begin, or not come to its answer. Where a start mark stands, it is taken back before anything else
    /// of the key starts: the next death is not its doing.
    pub(super) fn not_run(
        &mut self,
        lane: LaneId,
        place: Place,
        stopped: bool,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        let Some(job) = self.lanes.head_mut(lane) else { return };
        job.stopped |= stopped && job.marked;
        if job.marked && self.phase == Phase::Serving {
            if stopped {
                // Noted by the same call.
                let noted =
                    gristmill_broker::Entry { state: job.entry.state.noted(true), ..(*job.entry).clone() };
                job.entry = Arc::new(noted);
            }
            let how = if stopped { How::Interrupted } else { How::Not };
            let job = job.clone();
            self.mark(&[(lane, job, how, None)], actions);
        } else {
            self.lanes.not_run(lane, now.instant);
        }
        self.alone_over(place, actions);
    }

    fn ask_alone(&mut self, lane: LaneId, place: Place, how: How, actions: &mut Vec<Action>) {
        self.lanes.alone(lane);
        self.alone.waiting.push_back((lane, place, how));
        self.next_alone(actions);
    }

    /// The first that waits asks the process, unless another of this partition has its turn.
    fn next_alone(&mut self, actions: &mut Vec<Action>) {
        while self.alone.first.is_none() {
            let Some((lane, place, _)) = self.alone.waiting.front().copied() else { return };
            if matches!(self.lanes.head(lane, place), Some((_, Head::Alone))) {
                self.alone.first = Some(place);
                actions.push(Action::AskAlone(place));
            } else {
                self.alone.waiting.pop_front();
            }
        }
    }

    /// Nothing else runs in the process: the job at this place may.
    pub(super) fn may_run_alone(&mut self, place: Place, now: Now, actions: &mut Vec<Action>) {
        let asked = self.alone.waiting.front().copied().filter(|asked| asked.1 == place);
        if let Some((lane, _, how)) = asked
            && self.alone.first == Some(place)
            && self.phase == Phase::Serving
            && now.trusted
            && let Some((job, Head::Alone)) = self.lanes.head(lane, place)
        {
            let job = job.clone();
            self.alone.waiting.pop_front();
            match self.has_permit(place) {
                true => self.asks_limit(lane, &job, Next::Mark(how), Slot::none(), now),
                false => self.mark(&[(lane, job, how, None)], actions),
            }
            return;
        }
        if let Some((lane, ..)) = asked
            && matches!(self.lanes.head(lane, place), Some((_, Head::Alone)))
        {
            self.lanes.not_run(lane, now.instant);
        }
        self.alone.first.get_or_insert(place);
        self.alone_over(place, actions);
    }

    /// The job at this place runs alone no more, or never did.
    pub(super) fn alone_over(&mut self, place: Place, actions: &mut Vec<Action>) {
        if self.alone.first == Some(place) {
            self.alone.first = None;
            self.alone.waiting.retain(|(_, waits, _)| *waits != place);
            actions.push(Action::AloneOver);
            self.next_alone(actions);
        }
    }

    /// The partition is given up: who asked, and did not start, asks no more.
    pub(super) fn ask_no_more(&mut self, now: Now, actions: &mut Vec<Action>) {
        for (lane, place, _) in std::mem::take(&mut self.alone.waiting) {
            if matches!(self.lanes.head(lane, place), Some((_, Head::Alone))) {
                self.lanes.not_run(lane, now.instant);
                if self.alone.first == Some(place) {
                    self.alone.first = None;
                    actions.push(Action::AloneOver);
                }
            }
        }
    }

    /// The tenure ends. What ran alone may be charged by the next owner although this process lives: it is told. As long as
    /// its run lives, nothing else starts.
    pub(super) fn alone_at_the_end(&mut self, actions: &mut Vec<Action>) {
        self.alone.waiting.clear();
        let Some(place) = self.alone.first else { return };
        let at_place = |job: &&LaneJob| job.entry.place == place;
        if let Some(turn) = self.lanes.active_heads().find(at_place).map(LaneJob::turn) {
            actions.push(Action::Orphaned { place, turn, epoch: self.epoch });
        }
        if !self.lanes.running().any(|job| job.entry.place == place) {
            self.alone.first = None;
            actions.push(Action::AloneOver);
        }
    }
}
