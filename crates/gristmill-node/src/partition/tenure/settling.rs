//! From a run that ended to the answer of its settle.

use super::{Action, End, Ended, Now, Phase, Ran, Settling, Tenure};
use crate::partition::calls::Sent;
use crate::partition::lanes::Head;
use crate::partition::verdict::Judge;
use gristmill_broker::call::{MAX_BYTES_PER_CALL, MAX_JOBS_PER_CALL};
use gristmill_broker::{Call, Settled, Verdict};
use gristmill_job::EntityChange;
use std::time::Duration;

/// Settles under way at a time: one executes while the next is on its way.
const SETTLES_UNDER_WAY: usize = 2;
/// Verdicts that wait before a second settle is sent.
const WORTH_A_SECOND: usize = 140;
/// How long a lane waits whose dead letter cannot be written.
const REFUSED_WAIT: Duration = Duration::from_secs(5);

impl Tenure {
    pub(super) fn ended(&mut self, run: Ended, now: Now) {
        self.long_runs.remove(&run.entry.place);
        let mut lane = run.lane;
        if let Some(leftover) = self.leftovers.get_mut(&run.entry.key)
            && (leftover.place, leftover.turn) == (run.entry.place, run.turn)
        {
            // A run of an earlier tenure. Adopted, if the rebuilt lane shows its job as running.
            let found = self.lanes.find(&run.entry.key).filter(|lane| {
                self.lanes
                    .head(*lane, run.entry.place)
                    .is_some_and(|(job, state)| state == Head::Running && job.turn == run.turn)
            });
            match found {
                Some(adopted) => {
                    self.leftovers.remove(&run.entry.key);
                    lane = adopted;
                }
                None if self.phase == Phase::Acquiring || matches!(self.phase, Phase::Recovering { .. }) => {
                    leftover.result = Some(run.ran);
                    return;
                }
                None => {
                    self.leftovers.remove(&run.entry.key);
                    self.lanes.unblock(&run.entry.key);
                    return;
                }
            }
        } else if run.epoch != self.epoch {
            return;
        }
        let Some((job, Head::Running)) = self.lanes.head(lane, run.entry.place) else { return };
        if job.turn != run.turn {
            return;
        }
        let verdict = match run.ran {
            Ran::NotStarted | Ran::Stopped => {
                self.lanes.not_run(lane);
                return;
            }
            ran => ran,
        };
        let judge = self.judge(now);
        let settle = judge.settle(&run.entry, run.turn, job.attempts, verdict);
        self.lanes.settling(lane);
        self.to_settle.push(Settling { lane, entry: run.entry, settle });
    }

    pub(super) fn judge(&self, now: Now) -> Judge<'_> {
        Judge {
            retry: &self.bounds.retry,
            node: &self.node,
            partition: self.partition,
            epoch: self.epoch,
            wall: now.wall,
            random: now.random,
        }
    }

    pub(super) fn settle(&mut self, actions: &mut Vec<Action>) {
        while self.settle_is_due() {
            let count = self.jobs_of_next_settle();
            let mut settles = Vec::with_capacity(count);
            let mut lanes = Vec::with_capacity(count);
            for settling in self.to_settle.drain(..count) {
                settles.push(settling.settle);
                lanes.push((settling.lane, settling.entry));
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
        let (mut done, mut disagreement) = (0, false);
        for ((settle, settled), (lane, entry)) in settles.iter().zip(jobs).zip(sent.lanes) {
            let reason = match &settle.verdict {
                Verdict::Dead { reason, .. } => Some(*reason),
                _ => None,
            };
            match (&settled, &settle.verdict) {
                (Settled::Done, verdict) => {
                    if matches!(verdict, Verdict::Done { emits, .. } if !emits.is_empty()) {
                        self.outbox.news();
                    }
                    self.lanes.settled(lane);
                    done += 1;
                    continue;
                }
                (Settled::Stale | Settled::Duplicate | Settled::Discarded | Settled::Dead, _) => {
                    self.lanes.settled(lane)
                }
                (Settled::Retried, Verdict::Retry { attempts, delay, .. }) => {
                    self.lanes.put_back(lane, *attempts, now.instant, now.instant + *delay);
                }
                // Not even the dead letter can be written. Nothing is lost; the lane waits for a person.
                (Settled::Rejected(_), Verdict::Dead { .. }) => {
                    self.lanes.wait(lane, now.instant + REFUSED_WAIT);
                }
                (Settled::Rejected(why), _) => {
                    let attempts = self.lanes.head_of(lane).map_or(0, |job| job.attempts);
                    let settle = self.judge(now).rejected(&entry, settle, attempts, why);
                    self.to_settle.push(Settling { lane, entry: entry.clone(), settle });
                }
                // Answers to a repeat: what the first call did, and what it did not.
                (Settled::AtTurn(turn), Verdict::Retry { attempts, delay, .. })
                    if !first && *turn == settle.turn + 1 =>
                {
                    self.lanes.put_back(lane, *attempts, now.instant, now.instant + *delay);
                }
                (Settled::AtTurn(turn), _) if !first && *turn == settle.turn => {
                    self.to_settle.push(Settling { lane, entry, settle: settle.clone() });
                    continue;
                }
                (Settled::Gone, Verdict::Done { .. } | Verdict::Discard | Verdict::Dead { .. }) if !first => {
                    self.outbox.news();
                    self.lanes.settled(lane);
                }
                (Settled::Gone | Settled::AtTurn(_) | Settled::Retried, _) => disagreement = true,
            }
            actions.push(Action::Outcome { entry, settled, reason });
        }
        if done > 0 {
            actions.push(Action::Done(done));
        }
        if disagreement {
            self.end(End::Disagreement, actions);
        }
    }
}

/// What a verdict writes, in bytes, where it may be much.
fn written(verdict: &Verdict) -> usize {
    match verdict {
        Verdict::Done { entity, emits, .. } => {
            let state = match entity {
                Some(EntityChange::Put(state)) => state.len(),
                Some(EntityChange::Delete) | None => 0,
            };
            state + emits.iter().map(|emit| emit.job.envelope.len()).sum::<usize>()
        }
        Verdict::Dead { body, .. } => body.len(),
        _ => 0,
    }
}
