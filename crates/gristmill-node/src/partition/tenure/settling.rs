//! From a run that ended to the answer of its settle.

use super::recovery::lost;
use super::{Action, End, Ended, Leftover, Now, Phase, Ran, Run, Settling, Tenure};
use crate::partition::calls::{OnAnswer, Sent};
use crate::partition::lanes::{Head, LaneId};
use crate::partition::verdict::Judge;
use crate::partition::way::Unrun;
use crate::worker::attempt::Attempt;
use crate::worker::slot::Slot;
use gristmill_broker::call::{MAX_BYTES_PER_CALL, MAX_JOBS_PER_CALL};
use gristmill_broker::state::Why;
use gristmill_broker::{Call, Entry, Settle, Settled, Verdict};
use gristmill_handler::Answer as RunAnswer;
use gristmill_job::EntityChange;
use gristmill_telemetry::tally::Outcome;
use std::sync::Arc;
use std::time::Duration;

/// Settles under way at a time: one executes while the next is on its way.
const SETTLES_UNDER_WAY: usize = 2;
/// Verdicts that wait before a second settle is sent.
const WORTH_A_SECOND: usize = 140;
/// How long a lane waits whose dead letter cannot be written.
const REFUSED_WAIT: Duration = Duration::from_secs(5);

impl Tenure {
    pub(super) fn ended(&mut self, mut run: Ended, now: Now, actions: &mut Vec<Action>) {
        self.long_runs.remove(&run.entry.place);
        let mut lane = run.lane;
        if let Some(leftover) = self.leftovers.get_mut(&run.entry.key)
            && (leftover.place, leftover.turn) == (run.entry.place, run.turn)
        {
            // A run of an earlier tenure. Adopted, if the rebuilt lane shows its job as running.
            let found = self.lanes.find(&run.entry.key).filter(|lane| {
                self.lanes
                    .head(*lane, run.entry.place)
                    .is_some_and(|(job, state)| state == Head::Running && job.turn() == run.turn)
            });
            let building = matches!(self.phase, Phase::Acquiring | Phase::Recovering { .. } | Phase::Taking);
            match found {
                Some(adopted) => {
                    self.leftovers.remove(&run.entry.key);
                    lane = adopted;
                }
                None if building => {
                    // The slot of one that asks is not kept meanwhile.
                    let asks = matches!(run.ran, Ran::Asks(..));
                    leftover.result = Some(if asks { Ran::NotStarted } else { run.ran });
                    leftover.attempt = run.attempt;
                    return;
                }
                None => {
                    leftover.result = Some(run.ran);
                    leftover.attempt = run.attempt;
                    return self.drop_leftover(&run.entry.key, now, actions);
                }
            }
        } else if run.epoch != self.epoch {
            return lost(run.attempt, actions);
        }
        let job = match self.lanes.head(lane, run.entry.place) {
            Some((job, Head::Running)) if job.turn() == run.turn => job.clone(),
            _ => return lost(run.attempt, actions),
        };
        let place = run.entry.place;
        let handed_back = |attempt: Option<Attempt>, actions: &mut Vec<Action>| {
            if let Some(attempt) = attempt {
                actions.push(Action::Ran(vec![(attempt, (Outcome::HandedBack, None))]));
            }
        };
        match run.ran {
            Ran::NotStarted => return self.not_run(lane, place, false, now, actions),
            Ran::Expired => {
                let settle = self.judge(now).unrun(&job, Unrun::Expired);
                self.lanes.settling(lane);
                let entry = run.entry;
                self.to_settle.push(Settling { lane, entry, settle, acknowledges: None, attempt: None });
                return;
            }
            Ran::Asks(first, slot) => return self.asked(lane, &job, first, slot, now),
            // One that may run at most once has had its run.
            Ran::Stopped if !job.acknowledged => {
                handed_back(run.attempt.take(), actions);
                return self.not_run(lane, place, true, now, actions);
            }
            // Nobody knows of its effect any more than that it did not happen: the handler itself runs.
            Ran::Answered(RunAnswer::RunAgain, _) if !job.acknowledged => {
                if let Some(job) = self.lanes.head_mut(lane) {
                    let entry = Entry { state: job.entry.state.noted(false), ..(*job.entry).clone() };
                    job.entry = Arc::new(entry);
                }
                self.lanes.not_run(lane, now.instant);
                handed_back(run.attempt.take(), actions);
                return self.alone_over(place, actions);
            }
            Ran::Judged(settle) => {
                self.lanes.settling(lane);
                let (entry, settle) = (run.entry, *settle);
                self.to_settle.push(Settling { lane, entry, settle, acknowledges: None, attempt: None });
                return;
            }
            Ran::Hung(..) => {
                // Its key is not started again as long as it lives.
                self.lanes.block(run.entry.key.clone());
                let (turn, acknowledged, entry) = (run.turn, job.acknowledged, run.entry.clone());
                let leftover = Leftover { place, turn, acknowledged, result: None, attempt: None, entry };
                self.leftovers.insert(run.entry.key.clone(), leftover);
            }
            _ => {}
        }
        let settle = self.judged_cancelled(self.judge(now).settle(&job, run.ran));
        if job.acknowledged && !matches!(settle.verdict, Verdict::Dead { .. }) {
            self.lanes.settled(lane, now.instant);
            actions.push(Action::Done(1));
            if let Some(attempt) = run.attempt {
                actions.push(Action::Ran(vec![(attempt, (meant(&settle.verdict), None))]));
            }
            return;
        }
        self.lanes.settling(lane);
        let (entry, attempt) = (run.entry, run.attempt);
        self.to_settle.push(Settling { lane, entry, settle, acknowledges: None, attempt });
    }

    pub(super) fn judge(&self, now: Now) -> Judge<'_> {
        Judge {
            policy: &self.bounds.policy,
            node: &self.node,
            partition: self.partition,
            epoch: self.epoch,
            wall: now.wall,
            redis: now.redis,
            random: now.random,
        }
    }

    pub(super) fn settle(&mut self, actions: &mut Vec<Action>) {
        while self.settle_is_due() {
            let count = self.jobs_of_next_settle();
            let mut settles = Vec::with_capacity(count);
            let mut lanes = Vec::with_capacity(count);
            for settling in self.to_settle.drain(..count) {
                let Settling { lane, entry, settle, acknowledges, attempt } = settling;
                settles.push(settle);
                lanes.push(OnAnswer { lane, entry, slot: acknowledges, attempt });
            }
            self.settling_calls += 1;
            self.send(Call::Settle(settles), lanes, actions);
        }
    }

    /// At once when none is under way; under load a second one, once it is worth a call. So settles are quick when there is
    /// little to do, and batch by themselves when there is much.
    fn settle_is_due(&self) -> bool {
        match self.settling_calls {
            0 => !self.to_settle.is_empty(),
            under_way => under_way < SETTLES_UNDER_WAY && self.to_settle.len() >= WORTH_A_SECOND,
        }
    }

    /// As many as one call may carry, and as may be written before its answer is missed; at least one.
    fn jobs_of_next_settle(&self) -> usize {
        let mut bytes = 0;
        let fits = |settling: &&Settling| {
            bytes += written(&settling.settle.verdict);
            bytes <= MAX_BYTES_PER_CALL
        };
        self.to_settle.iter().take(MAX_JOBS_PER_CALL).take_while(fits).count().max(1)
    }

    pub(super) fn settled(
        &mut self,
        sent: Sent,
        jobs: Vec<Settled>,
        first: bool,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        self.settling_calls = self.settling_calls.saturating_sub(1);
        let Call::Settle(settles) = &*sent.call else { return };
        self.full_since = None;
        let (mut done, mut disagreement) = (0, false);
        let (mut runs, instant) = (Vec::new(), now.instant);
        let mut ran = Vec::with_capacity(settles.len());
        for ((settle, settled), on_answer) in settles.iter().zip(jobs).zip(sent.lanes) {
            let OnAnswer { lane, entry, slot, mut attempt } = on_answer;
            let (reason, holds) = match &settle.verdict {
                Verdict::Dead { reason, hold, .. } => (Some(*reason), *hold),
                _ => (None, false),
            };
            let mut became = |attempt: &mut Option<Attempt>, outcome| {
                ran.extend(attempt.take().map(|attempt| (attempt, (outcome, reason))));
            };
            match (&settled, &settle.verdict) {
                (Settled::Done, _) if slot.is_some() => {
                    runs.extend(self.acknowledged(lane, slot));
                    continue;
                }
                (Settled::Gone, _) if slot.is_some() && !first => {
                    runs.extend(self.acknowledged(lane, slot));
                    continue;
                }
                (Settled::Done, verdict) => {
                    if matches!(verdict, Verdict::Done { emits, .. } if !emits.is_empty()) {
                        self.outbox.news();
                    }
                    self.cancel_over(lane, settle.place);
                    self.lanes.settled(lane, instant);
                    became(&mut attempt, Outcome::Done);
                    done += 1;
                    // Here and below: only a partition with a suspect looks.
                    self.alone_over(settle.place, actions);
                    continue;
                }
                (
                    Settled::Stale
                    | Settled::Duplicate
                    | Settled::Discarded
                    | Settled::Cancelled
                    | Settled::Expired,
                    _,
                ) => {
                    self.cancel_over(lane, settle.place);
                    self.lanes.settled(lane, instant)
                }
                (Settled::Dead, _) => {
                    if holds {
                        self.holds(sent.number, &entry, now);
                    }
                    self.cancel_over(lane, settle.place);
                    self.lanes.settled(lane, instant);
                }
                (Settled::Retried, Verdict::Retry { .. }) => {
                    self.put_back(lane, &entry, settle, now, actions)
                }
                // Not even the dead letter can be written. Nothing is lost; the lane waits for a person.
                (Settled::Rejected(_), Verdict::Dead { acknowledged: false, .. }) => {
                    self.lanes.wait(lane, instant, instant + REFUSED_WAIT);
                }
                // It was acknowledged, and has had its one run.
                (Settled::Rejected(_), Verdict::Dead { .. }) => self.lanes.settled(lane, instant),
                (Settled::Rejected(why), _) => {
                    if let Some(job) = self.lanes.head_of(lane).cloned() {
                        let settle = self.judge(now).rejected(&job, settle, why);
                        let entry = entry.clone();
                        let attempt = attempt.take();
                        self.to_settle.push(Settling { lane, entry, settle, acknowledges: None, attempt });
                    }
                    actions.push(Action::Outcome { entry, settled, reason });
                    continue;
                }
                // Answers to a repeat: what the first call did, and what it did not.
                (Settled::AtTurn(turn), Verdict::Retry { .. }) if !first && *turn == settle.turn + 1 => {
                    self.put_back(lane, &entry, settle, now, actions);
                }
                (Settled::AtTurn(turn), _) if !first && *turn == settle.turn => {
                    let (settle, acknowledges) = (settle.clone(), slot);
                    self.to_settle.push(Settling { lane, entry, settle, acknowledges, attempt });
                    continue;
                }
                (
                    Settled::Gone,
                    Verdict::Done { .. }
                    | Verdict::Discard
                    | Verdict::Duplicate
                    | Verdict::Stale
                    | Verdict::Cancelled
                    | Verdict::Expired
                    | Verdict::Dead { .. },
                ) if !first => {
                    self.cancel_over(lane, settle.place);
                    self.outbox.news();
                    if holds {
                        self.holds(sent.number, &entry, now);
                    }
                    self.lanes.settled(lane, instant);
                }
                (Settled::Gone | Settled::AtTurn(_) | Settled::Retried, _) => {
                    disagreement = true;
                    became(&mut attempt, Outcome::Lost);
                }
            }
            became(&mut attempt, outcome(&settled, &settle.verdict));
            self.alone_over(settle.place, actions);
            actions.push(Action::Outcome { entry, settled, reason });
        }
        if !ran.is_empty() {
            actions.push(Action::Ran(ran));
        }
        if !runs.is_empty() {
            actions.push(Action::Start(runs));
        }
        if done > 0 {
            actions.push(Action::Done(done));
        }
        if disagreement {
            self.end(End::Disagreement, actions);
        }
    }
}

impl Tenure {
    /// Put back, by the settle that was answered.
    fn put_back(
        &mut self,
        lane: LaneId,
        entry: &Entry,
        settle: &Settle,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        let Verdict::Retry { attempts, delay, why, interrupted, history } = &settle.verdict else { return };
        let state = entry.state.put_back(*attempts, *why, *interrupted, history.clone());
        self.lanes.put_back(lane, state, now.instant, now.instant + *delay);
        self.cancel_put_back(settle.place, settle.turn + 1, now, actions);
    }

    /// A job that may run at most once is acknowledged. It runs now, or is lost with this tenure.
    fn acknowledged(&mut self, lane: LaneId, slot: Option<Arc<Slot>>) -> Option<Run> {
        self.lanes.acknowledged(lane);
        let job = self.lanes.head_of(lane)?.clone();
        Some(Run { slot, ..self.run(lane, &job, None) })
    }
}

/// What becomes of a run whose verdict is written.
pub(crate) fn meant(verdict: &Verdict) -> Outcome {
    match verdict {
        Verdict::Done { .. } => Outcome::Done,
        Verdict::Discard => Outcome::Discarded,
        Verdict::Duplicate => Outcome::Duplicate,
        Verdict::Stale => Outcome::Stale,
        Verdict::Cancelled => Outcome::Cancelled,
        Verdict::Expired => Outcome::Expired,
        Verdict::Dead { .. } => Outcome::Dead,
        Verdict::Retry { why: Why::Snooze, .. } => Outcome::Snoozed,
        Verdict::Retry { .. } => Outcome::Retry,
    }
}

/// What became of a run, by the answer to its settle.
pub(crate) fn outcome(settled: &Settled, verdict: &Verdict) -> Outcome {
    match settled {
        Settled::Done => Outcome::Done,
        Settled::Stale => Outcome::Stale,
        Settled::Duplicate => Outcome::Duplicate,
        Settled::Discarded => Outcome::Discarded,
        Settled::Cancelled => Outcome::Cancelled,
        Settled::Expired => Outcome::Expired,
        Settled::Dead => Outcome::Dead,
        // Also the answers to a repeat: the first call took effect.
        Settled::Retried | Settled::Gone | Settled::AtTurn(_) => meant(verdict),
        Settled::Rejected(_) => Outcome::Lost,
    }
}

/// What a verdict writes, in bytes, where it may be much.
pub(crate) fn written(verdict: &Verdict) -> usize {
    match verdict {
        Verdict::Done { entity, emits, .. } => {
            let state = match entity {
                Some(EntityChange::Put(state)) => state.len(),
                Some(EntityChange::Delete) | None => 0,
            };
            state + emits.iter().map(|emit| emit.job.envelope.len()).sum::<usize>()
        }
        Verdict::Dead { body, .. } => body.len(),
        Verdict::Retry { history, .. } => history.len(),
        _ => 0,
    }
}
