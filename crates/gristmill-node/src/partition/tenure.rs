//! A partition's life at this node, as a pure state machine: events in, actions out. No clock, no randomness, no I/O.
//!
//! ```text
//!            serve            granted              end of the cursor
//!   Idle ──────────▶ Acquiring ──────▶ Recovering ────────▶ Taking ──▶ Serving ──┐
//!    ▲  ▲               │ held            │                              │  ▲   │ hand-over given up: its run takes long
//!    │  └───────────────┘                 │ whatever is unknown          ▼  └───┤
//!    │                                    └──────▶ Acquiring ◀──── any ─── Yielding ──▶ Releasing
//!    └──────────────────────────────────────────── released ◀───────────────────────────────┘
//! ```
//!
//! Ending a tenure is the one repair path: the lanes are thrown away, the partition is acquired again in a new epoch,
//! recovered to the end of the cursor, and only then anything starts. Runs outlive tenures as *leftovers*: their keys
//! stay blocked, and a run is adopted only if its job is the head of the rebuilt lane, at the same turn.
//!
//! Here: the state and the one entry point. `events` is what goes in and out, `recovery` how tenures begin and end,
//! `promoting` how jobs for later become ready, `looking` what is learned beside the claims, `serving` what happens while all
//! is well and how a partition is left, `cancelling` what a person takes back, `pausing` what a person stops,
//! `starting` from a head to its run, `limiting` what a limit of its kind does to that, `settling` from a
//! run to its verdict's answer.

mod cancelling;
mod events;
mod limiting;
mod looking;
mod pausing;
mod promoting;
mod recovery;
mod serving;
mod settling;
mod starting;

pub(crate) use events::{Action, Became, Bounds, End, Ended, Event, First, Next, Now, Ran, Run, Why};
pub(crate) use limiting::Asking;
pub(crate) use settling::{meant, outcome, written};

use crate::partition::calls::{self, Calls};
use crate::partition::lanes::{LaneId, Lanes};
use crate::partition::pauses::Pauses;
use crate::worker::attempt::Attempt;
use crate::worker::slot::Slot;
use gristmill_broker::{Answer, Call, CallError, Entry, Epoch, Refusal, Settle};
use gristmill_job::{Key, Place};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Acquiring,
    Recovering {
        cursor: Place,
    },
    /// What lies beside the stream is read.
    Taking,
    Serving,
    Yielding {
        why: Why,
        since: Instant,
    },
    Releasing {
        why: Why,
    },
}

/// A run of an earlier tenure.
#[derive(Debug)]
struct Leftover {
    place: Place,
    turn: u32,
    /// Acknowledged before it ran.
    acknowledged: bool,
    result: Option<Ran>,
    attempt: Option<Attempt>,
    entry: Arc<Entry>,
}

#[derive(Debug)]
pub(crate) struct Tenure {
    bounds: Bounds,
    node: Arc<str>,
    partition: u16,
    phase: Phase,
    epoch: Epoch,
    calls: Calls,
    lanes: Lanes,
    leftovers: HashMap<Key, Leftover>,
    /// Jobs whose start mark an earlier tenure wrote, and whose run did not begin.
    not_begun: Vec<(Key, Place)>,
    to_settle: Vec<Settling>,
    to_mark: Vec<starting::ToMark>,
    /// Whether a claim is worth while: the last one was full, or the slow look is due.
    news: bool,
    /// The doorbell rang for this place since the last claim was sent.
    rung: Option<Place>,
    /// Since when the window is full, and no job has ended.
    full_since: Option<Instant>,
    /// The last claim was full: more is there, and nobody need ring for it.
    backlog: bool,
    listening: bool,
    claiming: bool,
    settling_calls: usize,
    outbox: Outbox,
    /// Runs for whose sake a hand-over was given up; no wish is heeded until they ended.
    long_runs: HashSet<Place>,
    yield_after: Option<Why>,
    /// Tenures in a row in which nothing was claimed or settled.
    short_tenures: u32,
    alone: starting::Alone,
    limited: limiting::Limited,
    looking: looking::Looking,
    promoting: promoting::Promoting,
    cancelling: cancelling::Cancelling,
    pauses: Arc<Pauses>,
    /// What a job has weighed lately, in bytes; nothing is known before the first.
    job_bytes: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outbox {
    Empty,
    News,
    UnderWay { more: bool },
}

impl Outbox {
    fn news(&mut self) {
        *self = match self {
            Self::UnderWay { .. } => Self::UnderWay { more: true },
            _ => Self::News,
        };
    }
}

/// A verdict on its way, and the lane it is for.
#[derive(Debug)]
struct Settling {
    lane: LaneId,
    entry: Arc<Entry>,
    settle: Settle,
    /// The job is acknowledged by it, and runs then, in this slot.
    acknowledges: Option<Arc<Slot>>,
    /// The run that it answers.
    attempt: Option<Attempt>,
}

/// How a partition stands at this node, for whoever counts partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Idle,
    Recovering,
    Owned,
    HandingOver,
}

impl Tenure {
    pub(crate) fn new(bounds: Bounds, node: Arc<str>, partition: u16) -> Self {
        Self {
            lanes: Lanes::new(bounds.memory).within(bounds.window_jobs, bounds.window_bytes),
            bounds,
            node,
            partition,
            phase: Phase::Idle,
            epoch: Epoch::default(),
            calls: Calls::default(),
            leftovers: HashMap::new(),
            not_begun: Vec::new(),
            to_settle: Vec::new(),
            to_mark: Vec::new(),
            news: false,
            rung: None,
            full_since: None,
            backlog: false,
            listening: false,
            claiming: false,
            settling_calls: 0,
            outbox: Outbox::Empty,
            long_runs: HashSet::new(),
            yield_after: None,
            short_tenures: 0,
            alone: starting::Alone::default(),
            limited: limiting::Limited::default(),
            looking: looking::Looking::default(),
            promoting: promoting::Promoting::default(),
            cancelling: cancelling::Cancelling::default(),
            pauses: Arc::default(),
            job_bytes: None,
        }
    }

    /// Whether a lease is held or asked for.
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// The epoch of this tenure, or of the last.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// How it stands.
    pub(crate) fn standing(&self) -> Standing {
        match self.phase {
            Phase::Idle | Phase::Acquiring => Standing::Idle,
            Phase::Recovering { .. } | Phase::Taking => Standing::Recovering,
            Phase::Serving => Standing::Owned,
            Phase::Yielding { .. } | Phase::Releasing { .. } => Standing::HandingOver,
        }
    }

    /// The one entry point.
    pub(crate) fn decide(&mut self, event: Event, now: Now, actions: &mut Vec<Action>) {
        let beat = looking::is_beat(&event);
        match event {
            Event::Serve => {
                self.yield_after = None;
                if self.phase == Phase::Idle {
                    self.acquire(actions);
                }
            }
            Event::Yield(why) => self.give_up(why, now, actions),
            Event::Pauses(pauses) => self.pauses(pauses, now, actions),
            Event::Acquired(answer) => self.acquired(answer, now, actions),
            Event::Answered(number, result) => self.answered(number, result, now, actions),
            Event::Ended(ended) => {
                for run in ended {
                    self.ended(run, now, actions);
                }
            }
            Event::Rung(place) => {
                if place > self.lanes.highest() {
                    self.rung = self.rung.max(Some(place));
                }
            }
            Event::Bell => self.promoting.look(),
            Event::MayPromote => self.may_promote(actions),
            Event::Renewed { wanted, changes, due } => {
                self.heard(changes);
                self.promoting.told(due, now);
                // A slow look: one claim for every renewal of a partition that may claim.
                self.news = true;
                if wanted && self.long_runs.is_empty() {
                    self.give_up(Why::Handover, now, actions);
                }
            }
            Event::Lost(end) => {
                // While a release is on its way its own answer decides: a renewal that overtook it in nothing but the
                // order of connections is told that the lease is gone, which is what was asked for.
                let released = matches!(self.phase, Phase::Releasing { .. }) && end == End::Fenced;
                if !matches!(self.phase, Phase::Idle | Phase::Acquiring) && !released {
                    self.end(end, actions);
                }
            }
            Event::Forwarded { ids, more } => self.forwarded(ids, more, actions),
            Event::Admitted(answers) => self.admitted(answers, now, actions),
            Event::Alone(place) => self.may_run_alone(place, now, actions),
            Event::Loaded(lane, jobs) => self.lanes.loaded(lane, jobs, now.instant),
            Event::Tick => {}
        }
        self.go_on(beat, now, actions);
        self.drop_permits();
    }

    fn answered(
        &mut self,
        number: u64,
        result: Result<Answer, CallError>,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        let Some(sent) = self.calls.take(number) else { return };
        let answer = match result {
            Ok(answer) => answer,
            Err(CallError::Unknown) if sent.call.repeatable() && now.trusted => {
                let (number, call) = self.calls.repeat(sent);
                actions.push(Action::Send(number, call));
                return;
            }
            Err(error) => {
                let end = match error {
                    CallError::Unknown => End::Unknown,
                    CallError::Lost(_) | CallError::NotConnected(_) | CallError::Unserved(_) => {
                        End::Connection
                    }
                    CallError::NoGroup(_) | CallError::OutOfMemory(_) | CallError::Unexpected(_) => {
                        End::Error
                    }
                };
                self.end(end, actions);
                return;
            }
        };
        match answer {
            Answer::Refused(Refusal::Gap { .. }) => self.end(End::Gap, actions),
            Answer::Refused(Refusal::Fenced { .. } | Refusal::Overtaken) => self.end(End::Fenced, actions),
            Answer::Already => self.end(End::Unknown, actions),
            Answer::Claimed(entries) => self.claimed(&sent.call, entries, now),
            Answer::Recovered { entries, next } => self.recovered_slice(entries, next, now),
            Answer::Settled { jobs, first } => self.settled(sent, jobs, first, now, actions),
            Answer::Done => self.done(&sent.call, actions),
            Answer::Taken(taken) => self.taken(taken, now, actions),
            Answer::Started(marks) => self.marked(sent, marks, now, actions),
            Answer::Promoted(promoted) => self.promoted(promoted, now, actions),
            Answer::Counted(census) => self.counted(number, census, now, actions),
        }
    }

    fn send(&mut self, call: Call, lanes: calls::Lanes, actions: &mut Vec<Action>) -> u64 {
        let (number, call) = self.calls.send(call, lanes);
        actions.push(Action::Send(number, call));
        number
    }

    /// Does what the state allows: recover, settle, start, claim, listen, hand back, release.
    fn go_on(&mut self, beat: bool, now: Now, actions: &mut Vec<Action>) {
        match self.phase {
            Phase::Idle | Phase::Acquiring | Phase::Releasing { .. } => return,
            Phase::Recovering { cursor } => {
                if self.calls.is_empty() {
                    let count = self.bounds.recover_jobs.min(self.jobs_per_answer());
                    self.send(Call::Recover { cursor, count }, Vec::new(), actions);
                }
                return;
            }
            Phase::Taking => {
                if self.calls.is_empty() {
                    self.look(actions);
                }
                return;
            }
            Phase::Serving | Phase::Yielding { .. } => {}
        }
        self.settle(actions);
        self.mark_starts(actions);
        self.ask_limits(actions);
        match self.phase {
            Phase::Serving => {
                if beat {
                    self.look(actions);
                    self.count(now, actions);
                }
                self.promote(now, actions);
                self.serve(now, actions);
                // What is settled without a run.
                self.settle(actions);
            }
            Phase::Yielding { why, since } => self.leave(why, since, now, actions),
            _ => {}
        }
    }
}

#[cfg(test)]
mod large_jobs_tests;
#[cfg(test)]
mod leaving_tests;
#[cfg(test)]
mod promoting_tests;
#[cfg(test)]
mod saturated_tests;
#[cfg(test)]
mod simulation;
