//! From a run that ended to the answer of its settle.

use super::{For, Machine, Phase, Stage};
use crate::competing::events::{Action, Now};
use crate::partition::lanes::LaneJob;
use crate::partition::tenure::{Ended, Ran, Run, meant, outcome, written};
use crate::partition::verdict::Judge;
use crate::partition::way::Unrun;
use crate::worker::attempt::Attempt;
use crate::worker::slot::Slot;
use gristmill_broker::call::{MAX_BYTES_PER_CALL, MAX_JOBS_PER_CALL};
use gristmill_broker::{Call, Entry, Settle, Settled, Verdict};
use gristmill_handler::Answer as RunAnswer;
use gristmill_job::{Place, UnixMillis};
use gristmill_telemetry::tally::Outcome;
use std::sync::Arc;
use std::time::Duration;

/// Settles under way at a time: one executes while the next is on its way.
const SETTLES_UNDER_WAY: usize = 2;
/// Verdicts that wait before a second settle is sent.
const WORTH_A_SECOND: usize = 64;
/// How long a job waits whose dead letter cannot be written.
const REFUSED_WAIT: Duration = Duration::from_secs(5);

/// A verdict on its way.
#[derive(Debug)]
pub(super) struct Settling {
    entry: Arc<Entry>,
    settle: Settle,
    /// The job is acknowledged by it, and runs then, in this slot.
    acknowledges: Option<Arc<Slot>>,
    attempt: Option<Attempt>,
    /// It was sent before, and its answer stayed away.
    repeats: bool,
}

impl Settling {
    pub(super) fn of(entry: Arc<Entry>, settle: Settle) -> Self {
        Self { entry, settle, acknowledges: None, attempt: None, repeats: false }
    }

    /// A run begins with it, in this slot.
    pub(super) fn acknowledging(mut self, slot: Option<Arc<Slot>>) -> Self {
        self.acknowledges = slot;
        self
    }

    /// To be sent once more; it may have been executed.
    pub(super) fn again(mut self, executed: bool) -> Self {
        self.repeats |= executed;
        self
    }

    pub(super) fn place(&self) -> Place {
        self.settle.place
    }

    /// It needs no claim: its job was acknowledged before its run.
    fn buries(&self) -> bool {
        matches!(self.settle.verdict, Verdict::Dead { acknowledged: true, .. })
    }
}

/// Jobs that were emitted and are not in their queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outbox {
    Empty,
    News,
    UnderWay { more: bool },
}

impl Outbox {
    pub(super) fn news(&mut self) {
        *self = match self {
            Self::UnderWay { .. } => Self::UnderWay { more: true },
            _ => Self::News,
        };
    }

    /// Whether forwarding begins now.
    pub(super) fn starts(&mut self) -> bool {
        let starts = *self == Self::News;
        if starts {
            *self = Self::UnderWay { more: false };
        }
        starts
    }

    /// What was in its queues is removed, or could not be.
    pub(super) fn forwarded(&mut self) {
        *self = match self {
            Self::UnderWay { more: true } => Self::News,
            _ => Self::Empty,
        };
    }
}

fn tell(attempt: Option<Attempt>, outcome: Outcome, actions: &mut Vec<Action>) {
    if let Some(attempt) = attempt {
        actions.push(Action::Ran(vec![(attempt, (outcome, None))]));
    }
}

impl Machine {
    pub(super) fn judge(&self, now: Now<'_>) -> Judge<'_> {
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

    pub(super) fn ended(&mut self, run: Ended, now: Now<'_>, actions: &mut Vec<Action>) {
        let Ended { epoch, entry, turn, ran, attempt, .. } = run;
        let place = entry.place;
        self.limited.pulled(place);
        let held = self.held.get(&place).filter(|held| epoch == self.epoch && held.job.turn() == turn);
        let Some(held) = held else { return tell(attempt, Outcome::Lost, actions) };
        let job = held.job.clone();
        match held.stage {
            Stage::Running => {}
            Stage::Lost { again } => {
                tell(attempt, Outcome::Lost, actions);
                return match again {
                    true => self.hand_back(place, true, actions),
                    false => self.forget(place, actions),
                };
            }
            _ => return tell(attempt, Outcome::Lost, actions),
        }
        match ran {
            Ran::NotStarted if job.acknowledged => {
                actions.push(Action::Unstarted(1));
                self.forget(place, actions);
            }
            Ran::NotStarted => self.hand_back(place, false, actions),
            Ran::Asks(first, slot) => self.asked(place, first, slot, actions),
            // One that may run at most once has had its run.
            Ran::Stopped if !job.acknowledged => {
                tell(attempt, Outcome::HandedBack, actions);
                self.hand_back(place, true, actions);
            }
            // It is known that the effect did not happen: the handler itself runs.
            Ran::Answered(RunAnswer::RunAgain, _) if !job.acknowledged => {
                tell(attempt, Outcome::HandedBack, actions);
                self.alone_over(place, actions);
                let mut job = job;
                job.stopped = false;
                job.entry = Arc::new(Entry { state: job.entry.state.noted(false), ..(*job.entry).clone() });
                if self.held.get(&place).is_some_and(|held| held.cancelled) {
                    return self.ends_unrun(&job, Unrun::Cancelled, now);
                }
                if self.phase != Phase::Serving {
                    return self.hand_back(place, false, actions);
                }
                self.begin_again(job, now, actions);
                self.flush_starts(now, actions);
            }
            ran => self.judged(&job, ran, attempt, now, actions),
        }
    }

    fn ends_unrun(&mut self, job: &LaneJob, unrun: Unrun, now: Now<'_>) {
        let settle = self.judge(now).unrun(job, unrun);
        if let Some(held) = self.held.get_mut(&job.entry.place) {
            held.stage = Stage::Settling;
        }
        self.to_settle.push(Settling::of(job.entry.clone(), settle));
    }

    fn judged(
        &mut self,
        job: &LaneJob,
        ran: Ran,
        attempt: Option<Attempt>,
        now: Now<'_>,
        actions: &mut Vec<Action>,
    ) {
        let (entry, place) = (job.entry.clone(), job.entry.place);
        let cancelled = self.held.get(&place).is_some_and(|held| held.cancelled);
        let settle = match ran {
            Ran::Judged(settle) => *settle,
            Ran::Expired => self.judge(now).unrun(job, Unrun::Expired),
            ran => self.judge(now).settle(job, ran),
        };
        let again = matches!(settle.verdict, Verdict::Retry { .. });
        let settle = match cancelled && again {
            true => Settle { verdict: Verdict::Cancelled, ..settle },
            false => settle,
        };
        if job.acknowledged && !matches!(settle.verdict, Verdict::Dead { .. }) {
            actions.push(Action::Done(1));
            tell(attempt, meant(&settle.verdict), actions);
            return self.forget(place, actions);
        }
        if let Some(held) = self.held.get_mut(&place) {
            held.stage = Stage::Settling;
        }
        self.to_settle.push(Settling { attempt, ..Settling::of(entry, settle) });
    }

    /// What is not trusted any more is not settled: its claim may be another's.
    fn drop_untrusted(&mut self, now: Now<'_>, actions: &mut Vec<Action>) {
        let stale = |settling: &mut Settling| !settling.buries() && !(now.trusts)(settling.settle.place);
        let dropped: Vec<Settling> = self.to_settle.extract_if(.., stale).collect();
        if !dropped.is_empty() {
            actions.push(Action::Lost(dropped.len()));
        }
        for settling in dropped {
            self.forget(settling.settle.place, actions);
            tell(settling.attempt, Outcome::Lost, actions);
        }
    }

    pub(super) fn send_settles(&mut self, now: Now<'_>, actions: &mut Vec<Action>) {
        let due = self.settle_later.extract_if(.., |(at, _)| *at <= now.instant);
        self.to_settle.extend(due.map(|(_, settling)| settling));
        if self.to_settle.is_empty() || !self.claiming.may_settle(now.instant) {
            return;
        }
        self.drop_untrusted(now, actions);
        while self.settle_is_due() {
            let mut bytes = 0;
            let fits = |settling: &&Settling| {
                bytes += written(&settling.settle.verdict);
                bytes <= MAX_BYTES_PER_CALL
            };
            let count = self.to_settle.iter().take(MAX_JOBS_PER_CALL).take_while(fits).count().max(1);
            let settlings: Vec<Settling> = self.to_settle.drain(..count).collect();
            let settles = settlings.iter().map(|settling| settling.settle.clone()).collect();
            self.settling_calls += 1;
            self.send(Call::Settle(settles), For::Settle(settlings), actions);
        }
    }

    fn settle_is_due(&self) -> bool {
        match self.settling_calls {
            0 => !self.to_settle.is_empty(),
            under_way => under_way < SETTLES_UNDER_WAY && self.to_settle.len() >= WORTH_A_SECOND,
        }
    }

    pub(super) fn settled(
        &mut self,
        jobs: Vec<Settled>,
        settlings: Vec<Settling>,
        now: Now<'_>,
        actions: &mut Vec<Action>,
    ) {
        self.settling_calls = self.settling_calls.saturating_sub(1);
        let (mut done, mut lost, mut ran) = (0, 0, Vec::with_capacity(settlings.len()));
        for (settled, mut settling) in jobs.into_iter().zip(settlings) {
            if let Some(slot) = settling.acknowledges.take() {
                self.acknowledged(&settled, &settling, slot, actions);
                continue;
            }
            let repeats = settling.repeats;
            let place = settling.settle.place;
            match (&settled, &settling.settle.verdict) {
                (Settled::Rejected(_), _) => {
                    self.refused(settled, settling, now, actions);
                    continue;
                }
                (Settled::Done, Verdict::Done { emits, .. }) => {
                    if !emits.is_empty() {
                        self.outbox.news();
                    }
                    done += 1;
                    ran.extend(settling.attempt.map(|attempt| (attempt, (Outcome::Done, None))));
                    self.forget(place, actions);
                    continue;
                }
                (Settled::Retried, Verdict::Retry { delay, .. }) => {
                    let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                    self.is_due(UnixMillis(now.redis.0.saturating_add(delay)), now);
                }
                // The first call settled it, or its claim was lost before: in both cases it is out of our hands.
                (Settled::Gone, _) if repeats => self.outbox.news(),
                // The claim was lost before its result could be written: another node has the job, or had it.
                (Settled::Gone | Settled::AtTurn(_), _) => {
                    lost += 1;
                    ran.extend(settling.attempt.map(|attempt| (attempt, (Outcome::Lost, None))));
                    self.forget(place, actions);
                    continue;
                }
                _ => {}
            }
            let reason = match &settling.settle.verdict {
                Verdict::Dead { reason, .. } => Some(*reason),
                _ => None,
            };
            let became = outcome(&settled, &settling.settle.verdict);
            ran.extend(settling.attempt.map(|attempt| (attempt, (became, reason))));
            self.forget(place, actions);
            actions.push(Action::Outcome { entry: settling.entry, settled, reason });
        }
        if !ran.is_empty() {
            actions.push(Action::Ran(ran));
        }
        if done > 0 {
            actions.push(Action::Done(done));
        }
        if lost > 0 {
            actions.push(Action::Lost(lost));
        }
    }

    /// A job that may run at most once: it runs where its acknowledgement is known to be this one's. Where it may have been
    /// another node's, since an answer was lost, it does not run.
    fn acknowledged(
        &mut self,
        settled: &Settled,
        settling: &Settling,
        slot: Arc<Slot>,
        actions: &mut Vec<Action>,
    ) {
        let place = settling.settle.place;
        match (settled, self.held.get_mut(&place)) {
            (Settled::Done, Some(held)) => {
                (held.stage, held.job.acknowledged) = (Stage::Running, true);
                let job = held.job.clone();
                actions.push(Action::Forget(place));
                actions.push(Action::Start(vec![Run { slot: Some(slot), ..self.run(&job, None) }]));
            }
            (Settled::Gone, _) if settling.repeats => {
                actions.push(Action::Unstarted(1));
                self.forget(place, actions);
            }
            // A copy of it had run, or the claim was lost.
            _ => {
                let (entry, settled) = (settling.entry.clone(), settled.clone());
                match settled {
                    Settled::Gone | Settled::AtTurn(_) => actions.push(Action::Lost(1)),
                    settled => actions.push(Action::Outcome { entry, settled, reason: None }),
                }
                self.forget(place, actions);
            }
        }
    }

    /// Redis refused what was to be written: the job is a dead letter, or its letter is tried again.
    fn refused(&mut self, settled: Settled, settling: Settling, now: Now<'_>, actions: &mut Vec<Action>) {
        let Settling { entry, settle, attempt, .. } = settling;
        let reason = match &settle.verdict {
            Verdict::Dead { reason, .. } => Some(*reason),
            _ => None,
        };
        let held = self.held.get(&entry.place);
        if let (Settled::Rejected(why), None, Some(held)) = (&settled, reason, held) {
            let settle = self.judge(now).rejected(&held.job, &settle, why);
            self.to_settle.push(Settling { attempt, ..Settling::of(entry.clone(), settle) });
        } else if held.is_some() {
            // Nothing is lost; it waits for a person.
            let at = now.instant + REFUSED_WAIT;
            self.settle_later.push((at, Settling { attempt, ..Settling::of(entry.clone(), settle) }));
            actions.push(Action::WakeAt(at));
        }
        actions.push(Action::Outcome { entry, settled, reason });
    }

    pub(super) fn forwarded(&mut self, ids: Vec<Place>, more: bool, actions: &mut Vec<Action>) {
        if let Outbox::UnderWay { more: before } = self.outbox {
            self.outbox = Outbox::UnderWay { more: before || more };
        }
        match ids.is_empty() {
            true => self.outbox.forwarded(),
            false => self.send(Call::Forward(ids), For::Forward, actions),
        }
    }
}
