//! What a partition without an order is told, and what it asks for.

use crate::partition::pauses::Pauses;
use crate::partition::tenure::{Asking, Became, Ended, Run};
use crate::worker::attempt::Attempt;
use crate::worker::grant::Grant;
use gristmill_broker::admit::Admitted;
use gristmill_broker::delayed::Member;
use gristmill_broker::grab::Grabbed;
use gristmill_broker::promote::Promoted;
use gristmill_broker::reclaim::{Reclaim, Reclaimed};
use gristmill_broker::{Answer, Call, CallError, Entry, Settled};
use gristmill_job::{DeadReason, Place, UnixMillis};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) enum Event {
    /// The slots that were asked for, or some of them: it claims now, or gives them back.
    Granted(Grant),
    /// A grab was answered, or not.
    Grabbed(u64, Result<Grabbed, CallError>),
    /// A slice of looking for claims that are over was answered, or not.
    Reclaimed(u64, Result<Reclaimed, CallError>),
    /// Another call was answered, or not.
    Answered(u64, Result<Answer, CallError>),
    /// The queue was made anew, since its stream was gone; or not.
    Made(bool),
    /// Runs ended.
    Ended(Vec<Ended>),
    /// The doorbell rang for an entry at this place.
    Rung(Place),
    /// What is paused; nothing is claimed before it was said once.
    Pauses(Arc<Pauses>),
    /// The limits of kinds said which runs may begin.
    Admitted(Vec<(Asking, Option<Admitted>)>),
    /// The bell of jobs for later rang: another is the first.
    Bell,
    /// These are claimed by this node no more, or trusted no more.
    Lost(Vec<Place>),
    /// A person cancelled these.
    Cancelled(Vec<Place>),
    /// Nothing runs in the process, and nothing will start: the job at this place may run alone.
    Alone(Place),
    /// The outbox was read and its jobs are in their queues; `more` if there may be others.
    Forwarded { ids: Vec<Place>, more: bool },
    /// A slice of the jobs that were due was moved, or not.
    Promoted(Result<Promoted, CallError>),
    /// The node leaves.
    Drain,
    /// Some time has passed.
    Tick,
}

/// What a grab asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// What was handed back, then what is new; and the last place that was claimed.
    All,
    /// What is new: cheaper, where much waits.
    New,
}

#[derive(Debug)]
pub(crate) enum Action {
    /// Ask for so many slots to claim with; 0: for none any more.
    Ask(usize),
    /// Claim so many jobs. What comes is extended from then on.
    Grab(u64, usize, Which),
    /// Look for claims that are over. What comes is extended from then on.
    Reclaim(u64, Reclaim),
    /// Send a call, after a pause.
    Send(u64, Arc<Call>, Duration),
    /// Make the queue anew.
    Make,
    /// It has another ordering than this node was told (a word), or does not exist.
    Differs(String),
    /// Ask the limits of kinds whether these may begin.
    Admit(Vec<Asking>),
    /// Run these.
    Start(Vec<Run>),
    /// Not extended any more.
    Forget(Place),
    /// The claim of this run is lost: ask it to stop. Its result is refused.
    SoftCancel(Place),
    /// A person cancelled the job of this run: ask it to stop. It has all the time its kind allows.
    Cancel(Place),
    /// The job at this place is to run alone: ask for it.
    AskAlone(Place),
    /// That it runs alone is over, or asked for no more.
    AloneOver,
    /// A run that was alone lost its claim: whoever takes the job may charge it with the death of this process, which lives.
    Orphaned { place: Place, turn: u32 },
    /// So many claims were lost.
    Lost(usize),
    /// So many claims were taken whose visibility timeout was over.
    Recovered(usize),
    /// A look at the whole partition has ended: by how much the oldest claim is over that was not taken.
    Over(Duration),
    /// So much was stored of jobs that are gone; it is removed.
    Repaired(u64),
    /// So many jobs that may run at most once were acknowledged and never started.
    Unstarted(usize),
    /// Runs that have not started come back as `NotStarted`, and others take their jobs: nobody has a slot for them here.
    Recall,
    /// Withdraw runs that have not started; they come back as `NotStarted`. None starts any more.
    Withdraw,
    /// Ring for entries behind this place; `None`: do not ring.
    Listen(Option<Place>),
    /// Read the outbox and forward it.
    Forward,
    /// Move these jobs for later, which are due, and tell which others are.
    Promote(Vec<Member>),
    /// So many jobs for later were moved, the first of them so late, and so many had no body.
    Promoted { moved: u64, late: Duration, lost: u64 },
    /// Call `Tick` then.
    WakeAt(Instant),
    /// Nothing is held any more, and nothing will be.
    Left,
    /// So many jobs were done.
    Done(usize),
    /// So many jobs are laid down for others.
    HandedBack(usize),
    /// What became of these runs.
    Ran(Vec<(Attempt, Became)>),
    /// A job ended otherwise, or was put back; `reason` where it is dead.
    Outcome { entry: Arc<Entry>, settled: Settled, reason: Option<DeadReason> },
}

/// What the shell knows and the machine may not look up.
#[derive(Clone, Copy)]
pub(crate) struct Now<'a> {
    pub(crate) instant: Instant,
    pub(crate) wall: UnixMillis,
    /// The Redis clock, about.
    pub(crate) redis: UnixMillis,
    /// Uniform in `[0, 1)`, fresh for every event.
    pub(crate) random: f64,
    /// How many slots of the node are free, about.
    pub(crate) free_slots: &'a dyn Fn() -> usize,
    /// Whether the claim at this place is trusted at this moment.
    pub(crate) trusts: &'a dyn Fn(Place) -> bool,
}

impl fmt::Debug for Now<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Now({})", self.redis.0)
    }
}
