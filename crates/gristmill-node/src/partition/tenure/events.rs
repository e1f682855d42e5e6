//! What a tenure is told and what it asks for.

use super::limiting::Asking;
use crate::partition::lanes::{LaneId, Memory};
use crate::partition::pauses::Pauses;
use crate::partition::policy::Policy;
use crate::worker::attempt::Attempt;
use crate::worker::slot::Slot;
use gristmill_broker::admit::Admitted;
use gristmill_broker::start::How;
use gristmill_broker::{Answer, Call, CallError, Entry, Epoch, Settle, Settled};
use gristmill_handler::{Answer as RunAnswer, Facts};
use gristmill_job::{DeadReason, Place, UnixMillis};
use gristmill_telemetry::tally::Outcome;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What bounds a partition.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// Jobs held in the lanes beyond which nothing is claimed.
    pub(crate) window_jobs: usize,
    /// Parked jobs beyond which nothing is claimed.
    pub(crate) window_parked: usize,
    /// What is held of a lane.
    pub(crate) memory: Memory,
    /// Bytes in the lanes beyond which nothing is claimed.
    pub(crate) window_bytes: usize,
    /// Jobs per claim.
    pub(crate) claim_jobs: usize,
    /// Claims per slice of recover.
    pub(crate) recover_jobs: usize,
    /// Longest a hand-over waits for runs before the owner goes on.
    pub(crate) handover_wait: Duration,
    /// Between two counts of what the partition holds.
    pub(crate) census_every: Duration,
    /// What becomes of jobs that do not simply succeed.
    pub(crate) policy: Policy,
}

#[derive(Debug)]
pub(crate) enum Event {
    /// The lease manager wants this partition served here.
    Serve,
    /// The lease manager, or another node's wish, wants it given up.
    Yield(Why),
    /// This is paused, and nothing else.
    Pauses(Arc<Pauses>),
    /// Acquire was answered.
    Acquired(Result<Epoch, ()>),
    /// A numbered call was answered, or not.
    Answered(u64, Result<Answer, CallError>),
    /// Runs ended.
    Ended(Vec<Ended>),
    /// The doorbell rang for an entry at this place.
    Rung(Place),
    /// The lease was renewed; someone may want it. Also the beat of a slow look for work.
    Renewed {
        wanted: bool,
        changes: u64,
        /// When the first job for later is due, by the Redis clock.
        due: Option<UnixMillis>,
    },
    /// Another job for later may be the first.
    Bell,
    /// It is this partition's turn to promote a slice.
    MayPromote,
    /// The tenure cannot go on.
    Lost(End),
    /// The outbox was read and its jobs are in their queues; `more` if there may be others.
    Forwarded { ids: Vec<Place>, more: bool },
    /// Parked jobs of a lane were read, in the order they were asked for.
    Loaded(LaneId, Vec<(Place, Option<Entry>)>),
    /// What the limits of their kinds said to runs that asked; nothing where no answer came.
    Admitted(Vec<(Asking, Option<Admitted>)>),
    /// Nothing runs in the process, and nothing will start: the job at this place may run alone.
    Alone(Place),
    /// Some time has passed.
    Tick,
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
    /// Ask the limits of their kinds whether these may begin. `Admitted` answers, always.
    Admit(Vec<Asking>),
    /// Read these parked jobs of a lane.
    Load(LaneId, Vec<Place>),
    /// The job at this place is to run alone: ask for it. `Alone` answers, once no other run is under way.
    AskAlone(Place),
    /// That it runs alone is over, or asked for no more.
    AloneOver,
    /// A run that was alone, or was to be, lost its tenure: whoever owns the partition next may charge its job with the
    /// death of this process, which lives. To be taken back.
    Orphaned { place: Place, turn: u32, epoch: Epoch },
    /// So many things were found that waited for nothing, or that the lanes had lost sight of.
    Repaired(u64),
    /// So many jobs that may run at most once were acknowledged and never started.
    Unstarted(usize),
    /// The run of the job at this place is to stop: one that has not started comes back as `NotStarted`, one that runs is asked.
    Cancel(Place),
    /// Runs that have not started come back as `NotStarted`, and may be started again.
    Recall,
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
    /// Ask for a turn to promote a slice; `MayPromote` answers.
    AskPromote,
    /// The turn is over.
    PromoteOver,
    /// So many jobs for later became ready, the latest so late; so many had no body any more.
    Promoted { moved: u64, late: Duration, lost: u64 },
    /// So many jobs were done.
    Done(usize),
    /// So many jobs are laid down for the next owner.
    HandedBack(usize),
    /// What became of these runs.
    Ran(Vec<(Attempt, Became)>),
    /// A job ended otherwise, or was put back; `reason` where it is dead.
    Outcome { entry: Arc<Entry>, settled: Settled, reason: Option<DeadReason> },
}

/// What became of a run, and why its job is dead where it is.
pub(crate) type Became = (Outcome, Option<DeadReason>);

/// Why a partition is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    Handover,
    Drain,
}

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
    /// Redis holds another number of jobs than the lanes.
    Census,
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
            Self::Census => "census",
            Self::Error => "error",
        }
    }
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
    /// Nothing else may run in the process until it is settled.
    pub(crate) alone: bool,
    /// It was acknowledged: it runs now or never, also while its partition is given up.
    pub(crate) acknowledged: bool,
    /// Not the handler runs, but what looks how an interrupted run ended.
    pub(crate) reconcile: bool,
    /// What is written before it begins: who pulls it keeps the slot and asks, so that no more is written than can run.
    pub(crate) first: Option<First>,
    /// The slot that was taken for it when it asked.
    pub(crate) slot: Option<Arc<Slot>>,
    /// Since when it is due, where this process has put it back or read when it is due.
    pub(crate) due: Option<Instant>,
}

/// What is written before a run begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    /// A start mark.
    Mark(How),
    /// The acknowledgement of a job that may run at most once.
    Acknowledge,
    /// Nothing, but the limit of its kind is asked.
    Admit(Next),
}

/// What comes once the limit of its kind lets a run begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The run itself.
    Run,
    /// A start mark.
    Mark(How),
    /// The acknowledgement.
    Acknowledge,
}

/// A run that ended, as the workers tell it.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) epoch: Epoch,
    pub(crate) lane: LaneId,
    pub(crate) entry: Arc<Entry>,
    pub(crate) turn: u32,
    pub(crate) ran: Ran,
    /// What is to be told of the run, where there was one.
    pub(crate) attempt: Option<Attempt>,
}

/// How a run ended.
#[derive(Debug)]
pub(crate) enum Ran {
    /// With an answer of the handler.
    Answered(RunAnswer, Facts),
    /// Nobody here can run it.
    Refused(DeadReason, String, Facts),
    /// It was too late for it: it was never started, and will not be.
    Expired,
    /// It was never started: withdrawn, or the lease was not trusted any more.
    NotStarted,
    /// It would begin, and holds its slot: what comes first may be written.
    Asks(First, Arc<Slot>),
    /// It was stopped before it answered.
    Stopped,
    /// It had answered in an earlier tenure, whose settle of it was not answered.
    Judged(Box<Settle>),
    /// It holds its thread and cannot be stopped: given up, with these words. It is told once more when it has ended.
    Hung(String, Facts),
}

/// What the shell knows and the machine may not look up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) instant: Instant,
    pub(crate) wall: UnixMillis,
    /// The Redis clock, about; the wall clock before the first renewal. Decides nothing that must be exact.
    pub(crate) redis: UnixMillis,
    /// Whether the lease is trusted at this moment.
    pub(crate) trusted: bool,
    /// Whether runs of this partition wait for a slot.
    pub(crate) waits: bool,
    /// Uniform in `[0, 1)`, fresh for every event.
    pub(crate) random: f64,
}
