//! A partition's life at this node, as a pure state machine: events in, actions out. No clock, no randomness, no I/O.
//!
//! ```text
//!            serve            granted              end of the cursor
//!   Idle ──────────▶ Acquiring ──────▶ Recovering ───────────────────▶ Serving ──┐
//!    ▲  ▲               │ held            │                              │  ▲   │ hand-over given up: its run takes long
//!    │  └───────────────┘                 │ whatever is unknown          ▼  └───┤
//!    │                                    └──────▶ Acquiring ◀──── any ─── Yielding ──▶ Releasing
//!    └──────────────────────────────────────────── released ◀───────────────────────────────┘
//! ```
//!
//! Ending a tenure is the one repair path: the lanes are thrown away, the partition is acquired again in a new epoch,
//! recovered to the end of the cursor, and only then anything starts. Runs outlive tenures as *leftovers*: their keys
//! stay blocked, and a run is adopted only if its job is the head of the rebuilt lane, at the same turn.

use crate::partition::calls::{self, Calls, Sent};
use crate::partition::lanes::{Head, LaneId, Lanes};
use crate::partition::verdict::Judge;
use gristmill_broker::call::MAX_JOBS_PER_CALL;
use gristmill_broker::{Answer, Call, CallError, Entry, Epoch, Refusal, Settle, Settled, Verdict};
use gristmill_handler::{Answer as RunAnswer, Facts};
use gristmill_job::{DeadReason, Key, Place, RetryPolicy, UnixMillis};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What bounds a partition.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// Jobs in the lanes beyond which nothing is claimed.
    pub(crate) window_jobs: usize,
    /// Bytes in the lanes beyond which nothing is claimed.
    pub(crate) window_bytes: usize,
    /// Jobs per claim.
    pub(crate) claim_jobs: usize,
    /// Longest a hand-over waits for runs before the owner goes on.
    pub(crate) handover_wait: Duration,
    /// How failed jobs are tried again.
    pub(crate) retry: RetryPolicy,
}

/// Calls of one kind under way at a time: one executes while the next is on its way.
const SETTLES_UNDER_WAY: usize = 2;

/// Why a tenure ended. A run without faults shows none but `Handover` and `Drain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum End {
    /// The lease was handed to another.
    Handover,
    /// The node leaves.
    Drain,
    /// A script answered that the lease is not ours.
    Fenced,
    /// Redis stands on another history than we were told.
    Gap,
    /// The connection was replaced.
    Connection,
    /// The answer of a claim or a recover stayed away, or a repeatable call's for too long.
    Unknown,
    /// Trust ran out and the renewal failed.
    Trust,
    /// A settle was told at its first sending that its job is gone, or at another turn.
    Disagreement,
    /// Redis answered with an error.
    Error,
}

impl End {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Handover => "handover",
            Self::Drain => "drain",
            Self::Fenced => "fenced",
            Self::Gap => "gap",
            Self::Connection => "connection",
            Self::Unknown => "unknown",
            Self::Trust => "trust",
            Self::Disagreement => "disagreement",
            Self::Error => "error",
        }
    }
}

/// How a run ended.
#[derive(Debug)]
pub(crate) enum Ran {
    /// With an answer of the handler.
    Answered(RunAnswer, Facts),
    /// Nobody here can run it.
    Refused(DeadReason, String, Facts),
    /// It was never started: withdrawn, or the lease was not trusted any more.
    NotStarted,
    /// It was stopped before it answered.
    Stopped,
}

/// A run that ended, as the workers tell it.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) epoch: Epoch,
    pub(crate) lane: LaneId,
    pub(crate) entry: Arc<Entry>,
    pub(crate) turn: u32,
    pub(crate) ran: Ran,
}

/// A job to run.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) epoch: Epoch,
    pub(crate) lane: LaneId,
    pub(crate) entry: Arc<Entry>,
    pub(crate) turn: u32,
    /// 1 for the first run.
    pub(crate) attempt: u32,
}

#[derive(Debug)]
pub(crate) enum Event {
    /// The lease manager wants this partition served here.
    Serve,
    /// The lease manager, or another node's wish, wants it given up.
    Yield(Why),
    /// Acquire was answered.
    Acquired(Result<Epoch, ()>),
    /// A numbered call was answered, or not.
    Answered(u64, Result<Answer, CallError>),
    /// Runs ended.
    Ended(Vec<Ended>),
    /// The doorbell rang for an entry at this place.
    Rung(Place),
    /// The lease was renewed; someone may want it. Also the beat of a slow look for work.
    Renewed { wanted: bool },
    /// The tenure cannot go on.
    Lost(End),
    /// The outbox was read and its jobs are in their queues; `more` if there may be others.
    Forwarded { ids: Vec<Place>, more: bool },
    /// Some time has passed.
    Tick,
}

/// Why a partition is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    Handover,
    Drain,
}

#[derive(Debug)]
pub(crate) enum Action {
    /// Ask for the lease, above this epoch, after a pause.
    Acquire { highest: Epoch, pause: Duration },
    /// The lease is mine: heartbeat it, open the gate for runs of this epoch.
    Hold(Epoch),
    /// The tenure is over: stop the heartbeat, withdraw what has not started.
    Drop,
    /// Send a numbered call; the same number again is a repeat.
    Send(u64, Arc<Call>),
    /// Run these.
    Start(Vec<Run>),
    /// Withdraw runs that have not started; they come back as `NotStarted`.
    Withdraw,
    /// Ring for entries behind this place; `None`: do not ring.
    Listen(Option<Place>),
    /// Read the outbox and forward it.
    Forward,
    /// Call `Tick` then.
    WakeAt(Instant),
    /// The partition is not served any more, and free if `released`.
    Idle { end: Option<End>, released: bool },
    /// A tenure ended and the next begins.
    Ended(End),
    /// So many jobs were done.
    Done(usize),
    /// So many jobs are laid down for the next owner.
    HandedBack(usize),
    /// A job ended otherwise, or was put back; `reason` where it is dead.
    Outcome { entry: Arc<Entry>, settled: Settled, reason: Option<DeadReason> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Acquiring,
    Recovering { cursor: Place },
    Serving,
    Yielding { why: Why, since: Instant },
    Releasing { why: Why },
}

/// A run of an earlier tenure.
#[derive(Debug)]
struct Leftover {
    place: Place,
    turn: u32,
    result: Option<Ran>,
    entry: Arc<Entry>,
}

/// What the shell knows and the machine may not look up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) instant: Instant,
    pub(crate) wall: UnixMillis,
    /// Whether the lease is trusted at this moment.
    pub(crate) trusted: bool,
    /// Uniform in `[0, 1)`, fresh for every event.
    pub(crate) random: f64,
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
    recovered: Vec<Entry>,
    leftovers: HashMap<Key, Leftover>,
    to_settle: Vec<Settling>,
    /// Whether a claim is worth while: the last one was full, or the slow look is due.
    news: bool,
    /// The doorbell rang for this place since the last claim was sent.
    rung: Option<Place>,
    listening: bool,
    claiming: bool,
    settling_calls: usize,
    outbox: Outbox,
    /// Runs for whose sake a hand-over was given up; no wish is heeded until they ended.
    long_runs: HashSet<Place>,
    yield_after: Option<Why>,
    /// Tenures in a row in which nothing was settled or renewed.
    short_tenures: u32,
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
}

impl Tenure {
    pub(crate) fn new(bounds: Bounds, node: Arc<str>, partition: u16) -> Self {
        Self {
            bounds,
            node,
            partition,
            phase: Phase::Idle,
            epoch: Epoch::default(),
            calls: Calls::default(),
            lanes: Lanes::default(),
            recovered: Vec::new(),
            leftovers: HashMap::new(),
            to_settle: Vec::new(),
            news: false,
            rung: None,
            listening: false,
            claiming: false,
            settling_calls: 0,
            outbox: Outbox::Empty,
            long_runs: HashSet::new(),
            yield_after: None,
            short_tenures: 0,
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

    /// The one entry point.
    pub(crate) fn decide(&mut self, event: Event, now: Now, actions: &mut Vec<Action>) {
        match event {
            Event::Serve => {
                self.yield_after = None;
                if self.phase == Phase::Idle {
                    self.acquire(actions);
                }
            }
            Event::Yield(why) => self.give_up(why, now, actions),
            Event::Acquired(answer) => self.acquired(answer, actions),
            Event::Answered(number, result) => self.answered(number, result, now, actions),
            Event::Ended(ended) => {
                for run in ended {
                    self.ended(run, now);
                }
            }
            Event::Rung(place) => {
                if place > self.lanes.highest() {
                    self.rung = self.rung.max(Some(place));
                }
            }
            Event::Renewed { wanted } => {
                self.short_tenures = 0;
                // A slow look: one claim for every renewal of a partition that may claim.
                self.news = true;
                if wanted && self.long_runs.is_empty() {
                    self.give_up(Why::Handover, now, actions);
                }
            }
            Event::Lost(end) => {
                if !matches!(self.phase, Phase::Idle | Phase::Acquiring) {
                    self.end(end, actions);
                }
            }
            Event::Forwarded { ids, more } => self.forwarded(ids, more, actions),
            Event::Tick => {}
        }
        self.go_on(now, actions);
    }

    fn acquire(&mut self, actions: &mut Vec<Action>) {
        self.phase = Phase::Acquiring;
        let pause = match self.short_tenures {
            0 | 1 => Duration::ZERO,
            n => (FIRST_PAUSE * (1 << n.min(10))).min(LONGEST_PAUSE),
        };
        actions.push(Action::Acquire { highest: self.epoch, pause });
    }

    fn acquired(&mut self, answer: Result<Epoch, ()>, actions: &mut Vec<Action>) {
        if self.phase != Phase::Acquiring {
            return;
        }
        match answer {
            Ok(epoch) => {
                self.epoch = epoch;
                self.calls = Calls::default();
                self.phase = Phase::Recovering { cursor: Place::ZERO };
                actions.push(Action::Hold(epoch));
            }
            Err(()) => {
                self.phase = Phase::Idle;
                self.yield_after = None;
                actions.push(Action::Idle { end: None, released: false });
            }
        }
    }

    /// Begins to leave: nothing starts, nothing is claimed, what has not started is withdrawn.
    fn give_up(&mut self, why: Why, now: Now, actions: &mut Vec<Action>) {
        match self.phase {
            Phase::Idle => {}
            Phase::Acquiring | Phase::Recovering { .. } => self.yield_after = Some(why),
            Phase::Serving => {
                self.phase = Phase::Yielding { why, since: now.instant };
                actions.push(Action::Withdraw);
                self.listen(false, actions);
                if why == Why::Handover {
                    actions.push(Action::WakeAt(now.instant + self.bounds.handover_wait));
                }
            }
            Phase::Yielding { since, .. } if why == Why::Drain => self.phase = Phase::Yielding { why, since },
            Phase::Yielding { .. } | Phase::Releasing { .. } => {}
        }
    }

    /// Ends the tenure and begins the next: drop the lanes, acquire again.
    fn end(&mut self, end: End, actions: &mut Vec<Action>) {
        self.short_tenures = self.short_tenures.saturating_add(1);
        let leaving = match self.phase {
            Phase::Yielding { why, .. } | Phase::Releasing { why } => Some(why),
            _ => self.yield_after,
        };
        for job in self.lanes.running() {
            let leftover =
                Leftover { place: job.entry.place, turn: job.turn, result: None, entry: job.entry.clone() };
            self.leftovers.insert(job.entry.key.clone(), leftover);
        }
        self.lanes = Lanes::default();
        self.recovered.clear();
        self.to_settle.clear();
        self.calls = Calls::default();
        (self.news, self.rung, self.claiming, self.settling_calls) = (false, None, false, 0);
        self.outbox = Outbox::Empty;
        self.long_runs.clear();
        self.listen(false, actions);
        actions.push(Action::Drop);
        actions.push(Action::Ended(end));
        self.yield_after = leaving;
        self.acquire(actions);
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
            Answer::Recovered { entries, next } => self.recovered_slice(entries, next, now, actions),
            Answer::Settled { jobs, first } => self.settled(sent, jobs, first, now, actions),
            Answer::Done => self.done(&sent.call, actions),
        }
    }

    fn claimed(&mut self, call: &Call, entries: Vec<Entry>, now: Now) {
        self.claiming = false;
        if let Call::Claim { count } = call {
            self.news |= entries.len() >= *count;
        }
        self.push(entries, now);
        self.rung = self.rung.filter(|place| *place > self.lanes.highest());
    }

    fn push(&mut self, entries: Vec<Entry>, now: Now) {
        for entry in entries {
            let leftovers = &self.leftovers;
            self.lanes.push(entry, now.instant, |key| leftovers.contains_key(key));
        }
    }

    fn recovered_slice(&mut self, entries: Vec<Entry>, next: Place, now: Now, actions: &mut Vec<Action>) {
        self.recovered.extend(entries);
        if next != Place::ZERO {
            self.phase = Phase::Recovering { cursor: next };
            return;
        }
        let mut entries = std::mem::take(&mut self.recovered);
        entries.sort_by_key(|entry| entry.place);
        entries.dedup_by_key(|entry| entry.place);
        self.push(entries, now);
        self.phase = Phase::Serving;
        self.news = true;
        self.outbox = Outbox::News;
        self.adopt(now);
        if let Some(why) = self.yield_after.take() {
            self.give_up(why, now, actions);
        }
    }

    /// Takes over runs and results of earlier tenures whose jobs stand exactly where they stood.
    fn adopt(&mut self, now: Now) {
        let mut adopted = Vec::new();
        for (key, leftover) in &self.leftovers {
            let Some(lane) = self.lanes.find(key) else { continue };
            let stands = self.lanes.head_of(lane);
            if stands.is_some_and(|job| job.entry.place == leftover.place && job.turn == leftover.turn) {
                self.lanes.adopt(lane);
                adopted.push((key.clone(), lane));
            }
        }
        for (key, lane) in adopted {
            let finished = self.leftovers.get_mut(&key).and_then(|leftover| leftover.result.take());
            if let Some(ran) = finished
                && let Some(leftover) = self.leftovers.remove(&key)
            {
                let run = Ended { epoch: self.epoch, lane, entry: leftover.entry, turn: leftover.turn, ran };
                self.ended(run, now);
            }
        }
        // A result that fits no head is dropped, and its key is free.
        let free: Vec<Key> =
            self.leftovers.iter().filter(|(_, l)| l.result.is_some()).map(|(key, _)| key.clone()).collect();
        for key in free {
            self.leftovers.remove(&key);
            self.unblock(&key);
        }
    }

    fn unblock(&mut self, key: &Key) {
        if let Some(lane) = self.lanes.find(key)
            && let Some(head) = self.lanes.head_of(lane)
            && self.lanes.head(lane, head.entry.place).is_some_and(|(_, state)| state == Head::Blocked)
        {
            self.lanes.not_run(lane);
        }
    }

    fn ended(&mut self, run: Ended, now: Now) {
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
                    self.unblock(&run.entry.key);
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

    fn judge(&self, now: Now) -> Judge<'_> {
        Judge {
            retry: &self.bounds.retry,
            node: &self.node,
            partition: self.partition,
            epoch: self.epoch,
            wall: now.wall,
            random: now.random,
        }
    }

    fn settled(&mut self, sent: Sent, jobs: Vec<Settled>, first: bool, now: Now, actions: &mut Vec<Action>) {
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
                (Settled::Stale | Settled::Duplicate | Settled::Dead, _) => self.lanes.settled(lane),
                (Settled::Retried, Verdict::Retry { attempts, delay, .. }) => {
                    self.lanes.put_back(lane, *attempts, now.instant + *delay);
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
                    self.lanes.put_back(lane, *attempts, now.instant + *delay);
                }
                (Settled::AtTurn(turn), _) if !first && *turn == settle.turn => {
                    self.to_settle.push(Settling { lane, entry, settle: settle.clone() });
                    continue;
                }
                (Settled::Gone, _) if !first => {
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

    fn done(&mut self, call: &Call, actions: &mut Vec<Action>) {
        match (call, self.phase) {
            (Call::Release, Phase::Releasing { why }) => {
                self.phase = Phase::Idle;
                let end = if why == Why::Drain { End::Drain } else { End::Handover };
                self.lanes = Lanes::default();
                self.calls = Calls::default();
                self.yield_after = None;
                actions.push(Action::Drop);
                actions.push(Action::Idle { end: Some(end), released: true });
            }
            (Call::Forward(_), _) => {
                self.outbox = match self.outbox {
                    Outbox::UnderWay { more: true } => Outbox::News,
                    _ => Outbox::Empty,
                };
            }
            _ => {}
        }
    }

    fn forwarded(&mut self, ids: Vec<Place>, more: bool, actions: &mut Vec<Action>) {
        if !matches!(self.phase, Phase::Serving | Phase::Yielding { .. }) {
            return;
        }
        if ids.is_empty() {
            self.outbox = if more { Outbox::News } else { Outbox::Empty };
            return;
        }
        if let Outbox::UnderWay { more: before } = self.outbox {
            self.outbox = Outbox::UnderWay { more: before || more };
        }
        self.send(Call::Forward(ids), Vec::new(), actions);
    }

    fn send(&mut self, call: Call, lanes: calls::Lanes, actions: &mut Vec<Action>) {
        let (number, call) = self.calls.send(call, lanes);
        actions.push(Action::Send(number, call));
    }

    /// Does what the state allows: recover, settle, start, claim, listen, hand back, release.
    fn go_on(&mut self, now: Now, actions: &mut Vec<Action>) {
        match self.phase {
            Phase::Idle | Phase::Acquiring | Phase::Releasing { .. } => return,
            Phase::Recovering { cursor } => {
                if self.calls.is_empty() {
                    self.send(Call::Recover { cursor, count: RECOVER_JOBS }, Vec::new(), actions);
                }
                return;
            }
            Phase::Serving | Phase::Yielding { .. } => {}
        }
        self.settle(actions);
        match self.phase {
            Phase::Serving => self.serve(now, actions),
            Phase::Yielding { why, since } => self.leave(why, since, now, actions),
            _ => {}
        }
    }

    fn settle(&mut self, actions: &mut Vec<Action>) {
        while !self.to_settle.is_empty() && self.settling_calls < SETTLES_UNDER_WAY {
            let count = self.to_settle.len().min(MAX_JOBS_PER_CALL);
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

    fn serve(&mut self, now: Now, actions: &mut Vec<Action>) {
        self.lanes.wake_due(now.instant);
        if self.lanes.has_ready() && now.trusted {
            let mut runs = Vec::new();
            while let Some((lane, job)) = self.lanes.start_next() {
                runs.push(Run {
                    epoch: self.epoch,
                    lane,
                    turn: job.turn,
                    attempt: job.attempts + 1,
                    entry: job.entry,
                });
            }
            if !runs.is_empty() {
                actions.push(Action::Start(runs));
            }
        }
        if let Some(due) = self.lanes.next_due() {
            actions.push(Action::WakeAt(due));
        }
        if self.outbox == Outbox::News {
            self.outbox = Outbox::UnderWay { more: false };
            actions.push(Action::Forward);
        }
        let count = self.room();
        if (self.news || self.rung.is_some()) && !self.claiming && count > 0 {
            self.claiming = true;
            (self.news, self.rung) = (false, None);
            self.send(Call::Claim { count }, Vec::new(), actions);
        }
        self.listen(count > 0, actions);
    }

    /// How many jobs may be claimed: none while the window is fuller than one claim leaves it worth while.
    fn room(&self) -> usize {
        let jobs = self.bounds.window_jobs.saturating_sub(self.lanes.jobs());
        let held = self.lanes.jobs().max(1);
        let each = (self.lanes.bytes() / held).max(512);
        let bytes = self.bounds.window_bytes.saturating_sub(self.lanes.bytes()) / each;
        let room = jobs.min(bytes).min(self.bounds.claim_jobs);
        // An empty lane set may always take one job, however large.
        let least = if self.lanes.jobs() == 0 {
            1
        } else {
            (self.bounds.claim_jobs / 2).min(self.bounds.window_jobs / 2).max(1)
        };
        if room >= least { room } else { usize::from(self.lanes.jobs() == 0) }
    }

    fn listen(&mut self, on: bool, actions: &mut Vec<Action>) {
        if on != self.listening {
            self.listening = on;
            actions.push(Action::Listen(on.then(|| self.lanes.highest())));
        }
    }

    fn leave(&mut self, why: Why, since: Instant, now: Now, actions: &mut Vec<Action>) {
        let quiet = self.to_settle.is_empty() && self.calls.is_empty();
        let runs = self.lanes.active() > 0 || !self.leftovers.is_empty();
        if !runs && quiet {
            self.release(why, actions);
        } else if why == Why::Handover && now.instant >= since + self.bounds.handover_wait && runs {
            // A run that takes long stops the hand-over, not the partition.
            self.phase = Phase::Serving;
            self.long_runs = self.lanes.running().map(|job| job.entry.place).collect();
            self.long_runs.extend(self.leftovers.values().map(|leftover| leftover.place));
            self.news = true;
            actions.push(Action::Hold(self.epoch));
            self.serve(now, actions);
        }
    }

    /// Hands back what is claimed and gives the partition up.
    fn release(&mut self, why: Why, actions: &mut Vec<Action>) {
        let places = self.lanes.places();
        for chunk in places.chunks(MAX_JOBS_PER_CALL) {
            self.send(Call::HandBack(chunk.to_vec()), Vec::new(), actions);
        }
        if !places.is_empty() {
            actions.push(Action::HandedBack(places.len()));
        }
        self.phase = Phase::Releasing { why };
        self.send(Call::Release, Vec::new(), actions);
    }

    /// The last act before exit: lays everything down and releases, also what still runs (it cannot be stopped).
    pub(crate) fn abandon(&mut self, actions: &mut Vec<Action>) -> usize {
        let running = self.lanes.running().count() + self.leftovers.len();
        if matches!(self.phase, Phase::Serving | Phase::Yielding { .. }) {
            self.release(Why::Drain, actions);
        }
        running
    }
}

/// How long a lane waits whose dead letter cannot be written.
const REFUSED_WAIT: Duration = Duration::from_secs(5);
/// Between tenures that end before anything was settled or renewed, so that an error of Redis makes no hot loop.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// Claims per slice of recover.
const RECOVER_JOBS: usize = 100;
