//! A partition without an order at this node, as a pure state machine: events in, actions out. No clock, no randomness, no I/O.
//!
//! ```text
//!   asks for slots ──granted──▶ grabs, or reclaims ──▶ per job:   (marked │ acknowledged │ alone) ──▶ Running ──▶ Settling ──▶ gone
//!        ▲   what is not used is given back at once                   └──────────────┴── not started, stopped ──▶ HandingBack ──▶ gone
//!        └── doorbell, full claim, slow look, a claim that is over     a claim that is lost: asked to stop, its result refused
//! ```
//!
//! A slot comes before the claim, so whatever this node claims runs at once, and what it cannot run another node gets. Every
//! node serves every partition; no answer is waited for by another call, and none is numbered: a job is asked for by its
//! claim, in every script.
//!
//! Here: the state and the one entry point. `claiming`: from a reason to claim to jobs; `starting`: from a job to its run;
//! `settling`: from a run that ended to its verdict's answer; `limiting`: jobs of
//! limited kinds; `leaving`: what is handed back; `promoting`: jobs for later.

mod claiming;
mod counting;
mod leaving;
mod limiting;
mod promoting;
mod settling;
mod starting;

use super::events::{Action, Event, Now};
use crate::limits::permit::Permit;
use crate::partition::lanes::LaneJob;
use crate::partition::pauses::Pauses;
use crate::partition::policy::Policy;
use crate::worker::slot::Slot;
use gristmill_broker::{Answer, Call, CallError, Epoch};
use gristmill_job::Place;
use settling::Settling;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two tries of a call that Redis did not take.
const AGAIN: Duration = Duration::from_millis(200);

/// What bounds such a partition.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// Most jobs of one claim.
    pub(crate) claim_jobs: usize,
    /// How long a claim stands that is not extended.
    pub(crate) visibility_timeout: Duration,
    /// How often what is stored of jobs that are gone is looked for, about.
    pub(crate) census_every: Duration,
    /// What becomes of jobs that do not simply succeed.
    pub(crate) policy: Policy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    Draining,
    Left,
}

/// Where a claimed job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It waits for the limit of its kind, without a slot.
    Limited,
    /// Its start mark is being written, or taken back.
    Marking,
    /// It will run when nothing else does.
    Alone,
    Running,
    Settling,
    HandingBack,
    /// It runs, and its claim is lost: its result is refused.
    Lost {
        /// It was claimed again meanwhile; handed back once the run ended.
        again: bool,
    },
}

#[derive(Debug)]
struct Held {
    job: LaneJob,
    stage: Stage,
    /// A person cancelled it: it is not tried again.
    cancelled: bool,
    /// Of a limited kind: given back with the job.
    permit: Option<Arc<Permit>>,
}

/// What a call is for, job by job.
#[derive(Debug)]
enum For {
    Settle(Vec<Settling>),
    /// The slots of the runs that begin once their marks stand.
    Start(Vec<Option<Arc<Slot>>>),
    HandBack,
    Forward,
    Census,
}

#[derive(Debug)]
struct Sent {
    call: Arc<Call>,
    purpose: For,
}

#[derive(Debug)]
pub(crate) struct Machine {
    bounds: Bounds,
    node: Arc<str>,
    partition: u16,
    /// Of this life of the actor; no lease has it.
    epoch: Epoch,
    phase: Phase,
    held: HashMap<Place, Held>,
    calls: HashMap<u64, Sent>,
    last_call: u64,
    to_settle: Vec<Settling>,
    /// Letters that Redis refused, and when they are tried again.
    settle_later: Vec<(Instant, Settling)>,
    to_mark: Vec<starting::ToMark>,
    to_hand_back: Vec<(Place, bool)>,
    settling_calls: usize,
    /// Questions to limits without an answer.
    asking: usize,
    claiming: claiming::Claiming,
    alone: starting::Alone,
    starts: starting::Starts,
    limited: limiting::Limited,
    outbox: settling::Outbox,
    /// What is paused, once that was heard.
    pauses: Option<Arc<Pauses>>,
    promoting: promoting::Promoting,
    counting: counting::Counting,
}

impl Machine {
    pub(crate) fn new(bounds: Bounds, node: Arc<str>, partition: u16, epoch: Epoch, now: Instant) -> Self {
        // What an actor that failed before this one had waiting.
        bounds.policy.limits.gates().for_each(|gate| gate.waits(partition, 0));
        Self {
            claiming: claiming::Claiming::new(now),
            bounds,
            node,
            partition,
            epoch,
            phase: Phase::Serving,
            held: HashMap::new(),
            calls: HashMap::new(),
            last_call: 0,
            to_settle: Vec::new(),
            settle_later: Vec::new(),
            to_mark: Vec::new(),
            to_hand_back: Vec::new(),
            settling_calls: 0,
            asking: 0,
            alone: starting::Alone::default(),
            starts: starting::Starts::default(),
            limited: limiting::Limited::default(),
            outbox: settling::Outbox::Empty,
            pauses: None,
            promoting: promoting::Promoting::default(),
            counting: counting::Counting::default(),
        }
    }

    /// Of this life of the actor.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether it holds nothing, and will not.
    pub(crate) fn has_left(&self) -> bool {
        self.phase == Phase::Left
    }

    /// The one entry point.
    pub(crate) fn decide(&mut self, event: Event, now: Now<'_>, actions: &mut Vec<Action>) {
        match event {
            Event::Granted(grant) => self.granted(grant, now, actions),
            Event::Grabbed(call, result) => self.grabbed(call, result, now, actions),
            Event::Reclaimed(call, result) => self.reclaimed(call, result, now, actions),
            Event::Answered(call, result) => self.answered(call, result, now, actions),
            Event::Made(made) => self.made(made, now),
            Event::Ended(ended) => ended.into_iter().for_each(|run| self.ended(run, now, actions)),
            Event::Rung(place) => self.claiming.rung(place),
            Event::Pauses(pauses) => {
                self.pauses = Some(pauses);
                self.heed_pauses(now);
                self.claiming.look();
            }
            Event::Admitted(answers) => self.admitted(answers, now, actions),
            Event::Bell => self.is_due(now.redis, now),
            Event::Lost(places) => self.lost(&places, actions),
            Event::Cancelled(places) => self.cancelled(&places, now, actions),
            Event::Alone(place) => self.may_run_alone(place, now, actions),
            Event::Forwarded { ids, more } => self.forwarded(ids, more, actions),
            Event::Promoted(result) => self.promoted(result, now, actions),
            Event::Drain => self.drain(actions),
            Event::Tick => {}
        }
        self.go_on(now, actions);
    }

    fn answered(
        &mut self,
        number: u64,
        result: Result<Answer, CallError>,
        now: Now<'_>,
        actions: &mut Vec<Action>,
    ) {
        let Some(Sent { call, purpose }) = self.calls.remove(&number) else { return };
        match (result, purpose) {
            (Ok(Answer::Settled { jobs, .. }), For::Settle(settlings)) => {
                self.settled(jobs, settlings, now, actions);
            }
            (Ok(Answer::Started(marks)), For::Start(slots)) => {
                self.marked(&call, marks, slots, now, actions);
            }
            (Ok(_), For::HandBack) => self.handed_back(&call, actions),
            (Ok(_), For::Forward) => self.outbox.forwarded(),
            (Ok(Answer::Counted(census)), For::Census) => self.counted(census, now, actions),
            (result, purpose) => self.unanswered(result.err(), &call, purpose, now, actions),
        }
    }

    /// No answer, or none of any use: sent again, as far as the claims are trusted.
    fn unanswered(
        &mut self,
        error: Option<CallError>,
        call: &Arc<Call>,
        purpose: For,
        now: Now<'_>,
        actions: &mut Vec<Action>,
    ) {
        let executed = matches!(error, None | Some(CallError::Unknown | CallError::Lost(_)));
        if let Some(CallError::NoGroup(_)) = error {
            self.make(now, actions);
        }
        let pause = AGAIN.mul_f64(0.5 + now.random);
        match purpose {
            For::Settle(settlings) => {
                self.settling_calls = self.settling_calls.saturating_sub(1);
                let again = settlings.into_iter().map(|settling| settling.again(executed));
                self.to_settle.extend(again);
                self.claiming.settle_from(now.instant + pause, actions);
            }
            // Whether the marks stand is not known: the same call again tells.
            For::Start(slots) => self.send_after(call.clone(), For::Start(slots), pause, actions),
            For::HandBack => {
                // What is lost meanwhile comes back by its timeout.
                self.send_after(call.clone(), For::HandBack, pause, actions);
            }
            For::Forward => self.outbox.news(),
            For::Census => self.counted(None, now, actions),
        }
    }

    fn send(&mut self, call: Call, purpose: For, actions: &mut Vec<Action>) {
        self.send_after(Arc::new(call), purpose, Duration::ZERO, actions);
    }

    fn send_after(&mut self, call: Arc<Call>, purpose: For, pause: Duration, actions: &mut Vec<Action>) {
        self.last_call += 1;
        actions.push(Action::Send(self.last_call, call.clone(), pause));
        self.calls.insert(self.last_call, Sent { call, purpose });
    }

    /// Does what the state allows: hand back, settle, mark, forward, claim, listen, leave.
    fn go_on(&mut self, now: Now<'_>, actions: &mut Vec<Action>) {
        if self.phase == Phase::Left {
            return;
        }
        if self.phase == Phase::Serving {
            self.reopen(now, actions);
        }
        self.send_hand_backs(actions);
        self.send_settles(now, actions);
        self.send_marks(actions);
        if self.outbox.starts() {
            actions.push(Action::Forward);
        }
        match self.phase {
            Phase::Serving => {
                self.claim(now, actions);
                self.promote(now, actions);
                self.count(now, actions);
            }
            Phase::Draining => self.leave(actions),
            Phase::Left => {}
        }
    }

    /// A claim is over for this node, however.
    fn forget(&mut self, place: Place, actions: &mut Vec<Action>) {
        if self.held.remove(&place).is_some() {
            actions.push(Action::Forget(place));
        }
        self.alone_over(place, actions);
    }

    /// A person wants these to end; every extend tells so again, also of one that was about to begin when it was told first. A run
    /// that finishes all the same stands; one that has not begun is met by its line, where it is claimed next.
    fn cancelled(&mut self, places: &[Place], now: Now<'_>, actions: &mut Vec<Action>) {
        for place in places {
            let Some(held) = self.held.get_mut(place) else { continue };
            held.cancelled = true;
            match held.stage {
                Stage::Running => actions.push(Action::Cancel(*place)),
                // By its line, at once.
                Stage::Limited => {
                    let job = held.job.clone();
                    self.put_off(job, Duration::ZERO, now);
                }
                _ => {}
            }
        }
    }

    /// These are claimed by this node no more. What is being settled or handed back is decided by the script.
    fn lost(&mut self, places: &[Place], actions: &mut Vec<Action>) {
        let mut lost = 0;
        for place in places {
            let Some(held) = self.held.get_mut(place) else { continue };
            match held.stage {
                Stage::Running if held.job.acknowledged => continue,
                Stage::Running => {
                    if let Some(permit) = &held.permit {
                        permit.revoke();
                    }
                    held.stage = Stage::Lost { again: false };
                    let turn = held.job.turn();
                    actions.push(Action::SoftCancel(*place));
                    if self.alone.is_first(*place) {
                        actions.push(Action::Orphaned { place: *place, turn });
                    }
                }
                Stage::Alone | Stage::Limited => self.forget(*place, actions),
                // Who claims it meanwhile has its slot of the limit; its answer tells the rest.
                Stage::Marking => {
                    held.permit = None;
                    continue;
                }
                // Its answer, or the end of its run, tells.
                Stage::Settling | Stage::HandingBack | Stage::Lost { .. } => continue,
            }
            lost += 1;
        }
        if lost > 0 {
            actions.push(Action::Lost(lost));
        }
    }
}

#[cfg(test)]
mod simulation;
