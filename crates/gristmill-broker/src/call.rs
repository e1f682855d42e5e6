//! The calls of a tenure. They carry 1, 2, 3 …, and a script executes only the number that follows the last: a repeat
//! does nothing twice, and a request that arrives late, or after a failover to an older state, does nothing at all.

use crate::census::Census;
use crate::delayed::Member;
use crate::entry::Entry;
use crate::error::CallError;
use crate::fence::{Fence, Refusal};
use crate::keys::PartitionKeys;
use crate::promote::Promoted;
use crate::settle::{Settle, Settled};
use crate::start::{Marked, Start};
use crate::take::Taken;
use crate::{census, claim, forward, hand_back, lease, promote, recover, settle, start, take};
use gristmill_job::Place;
use redis::{Pipeline, Value};

/// Most jobs in one call.
pub const MAX_JOBS_PER_CALL: usize = 200;
/// What the jobs of one call may weigh together, in bytes, so that its answer comes before it is missed. A single job may
/// weigh more.
pub const MAX_BYTES_PER_CALL: usize = 1024 * 1024;

/// One numbered call.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// Reads up to so many new jobs.
    Claim {
        /// At most so many, 1 to [`MAX_JOBS_PER_CALL`].
        count: usize,
    },
    /// Takes back one slice of every claim of the partition.
    Recover {
        /// Where to go on; [`Place::ZERO`] first.
        cursor: Place,
        /// Claims per slice.
        count: usize,
    },
    /// Reads one slice of what lies beside the stream.
    Take {
        /// Jobs that came back later than this value of `changes`; 0 first.
        after: u64,
        /// Jobs per slice.
        count: usize,
        /// Where to go on with the held keys, 0 first; `None` where they are known.
        cursor: Option<u64>,
    },
    /// Writes start marks.
    Start(Vec<Start>),
    /// Writes verdicts.
    Settle(Vec<Settle>),
    /// Lays claims down for the next owner.
    HandBack {
        /// Which; those whose run was stopped hard come first.
        places: Vec<Place>,
        /// Which claim of each ([`Entry::claim`]), where the ordering is none: another stays. Else empty, and not asked for.
        claims: Vec<u64>,
        /// How many of them those are.
        stopped: usize,
    },
    /// Counts what the partition holds.
    Census {
        /// Where to go on looking for what waits for nothing, as the last one told; zeros first.
        cursors: (u64, u64),
    },
    /// Removes outbox entries whose jobs are in their queues.
    Forward(Vec<Place>),
    /// Moves jobs for later that are due to the stream, as the answer before named them, and asks what is due next.
    Promote(Vec<Member>),
    /// Gives the partition up.
    Release,
}

impl Call {
    /// A hand back by the owner of a partition of jobs none of which was stopped hard.
    #[must_use]
    pub fn hand_back(places: Vec<Place>) -> Self {
        Self::HandBack { places, claims: Vec::new(), stopped: 0 }
    }

    /// The word for logs and metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Claim { .. } => "claim",
            Self::Recover { .. } => "recover",
            Self::Settle(_) => "settle",
            Self::Take { .. } => "take",
            Self::Start(_) => "start",
            Self::HandBack { .. } => "hand_back",
            Self::Census { .. } => "census",
            Self::Forward(_) => "forward",
            Self::Promote(_) => "promote",
            Self::Release => "release",
        }
    }

    /// Whether the same call may be sent again under the same number when its answer is lost. What a claim, recover or take
    /// took and did not report is in nobody's lane; only a new tenure can find it.
    #[must_use]
    pub fn repeatable(&self) -> bool {
        !matches!(self, Self::Claim { .. } | Self::Recover { .. } | Self::Take { .. })
    }
}

/// What a numbered call answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// New jobs in order of place.
    Claimed(Vec<Entry>),
    /// One slice; `next` is [`Place::ZERO`] at the end.
    Recovered {
        /// Jobs in order of place.
        entries: Vec<Entry>,
        /// Where to go on.
        next: Place,
    },
    /// One slice of what lies beside the stream.
    Taken(Taken),
    /// One word per mark, in the order of the call.
    Started(Vec<Marked>),
    /// What was counted; nothing in answer to a repeat.
    Counted(Option<Census>),
    /// One word per job, in the order of the call. `first` is false in answer to a repeat.
    Settled {
        /// What became of each job.
        jobs: Vec<Settled>,
        /// Whether this call wrote them, or an earlier one of the same number.
        first: bool,
    },
    /// What was moved, and what is due next.
    Promoted(Promoted),
    /// Done, now or by an earlier call of the same number.
    Done,
    /// A call that cannot be repeated was executed before.
    Already,
    /// Refused by the guard; nothing was done.
    Refused(Refusal),
}

/// Everything a call is written from.
#[derive(Debug, Clone, Copy)]
pub struct Guard<'a> {
    /// The partition.
    pub keys: &'a PartitionKeys,
    /// Whose tenure.
    pub fence: &'a Fence,
    /// This call's number, from 1; 0 where the ordering is none: there is no lease, and every job must be claimed by this
    /// incarnation ([`Guard::unordered`]).
    pub number: u64,
    /// How long a producer's mark stays after the verdict, in ms.
    pub seen_window_ms: u64,
}

impl<'a> Guard<'a> {
    /// Of a queue with ordering none; `fence` is [`Fence::unordered`].
    #[must_use]
    pub fn unordered(keys: &'a PartitionKeys, fence: &'a Fence, seen_window_ms: u64) -> Self {
        Self { keys, fence, number: 0, seen_window_ms }
    }

    /// Whether it is of a queue with ordering none.
    #[must_use]
    pub fn is_unordered(&self) -> bool {
        self.number == 0
    }
}

impl Call {
    /// The commands of this call, to be sent in one pipeline.
    #[must_use]
    pub fn write(&self, guard: Guard<'_>) -> Pipeline {
        match self {
            Self::Claim { count } => claim::write(guard, *count),
            Self::Recover { cursor, count } => recover::write(guard, *cursor, *count),
            Self::Settle(jobs) => settle::write(guard, jobs),
            Self::Take { after, count, cursor } => take::write(guard, *after, *count, *cursor),
            Self::Start(starts) => start::write(guard, starts),
            Self::HandBack { places, claims, stopped } => hand_back::write(guard, places, claims, *stopped),
            Self::Census { cursors } => census::write(guard, *cursors),
            Self::Forward(ids) => forward::write(guard, ids),
            Self::Promote(slice) => promote::write(guard, slice),
            Self::Release => lease::release::write(guard),
        }
    }

    /// Reads the answers to [`Call::write`].
    ///
    /// # Errors
    /// [`CallError`] where Redis answered with an error, or with what no release of ours says.
    pub fn read(&self, mut values: Vec<Value>) -> Result<Answer, CallError> {
        let first = if values.is_empty() { Value::Nil } else { values.remove(0) };
        match self {
            Self::Claim { .. } => claim::read(first, values.pop()),
            Self::Recover { .. } => recover::read(first),
            Self::Settle(jobs) => settle::read(jobs, first),
            Self::Take { after, .. } => take::read(*after, first),
            Self::Start(starts) => start::read(starts, first),
            Self::HandBack { .. } => hand_back::read(first),
            Self::Census { .. } => census::read(first),
            Self::Forward(_) => forward::read(first),
            Self::Promote(_) => promote::read(first),
            Self::Release => lease::release::read(first),
        }
    }
}

/// The pipeline of one script call.
pub(crate) fn single(command: redis::Cmd) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(1);
    pipeline.add_command(command);
    pipeline
}

/// Reads `ok`, `already`, `fenced` or `gap` of a call that may be repeated and reports nothing else.
pub(crate) fn done(value: Value, what: &str) -> Result<Answer, CallError> {
    let mut words = crate::reply::Words::read(value, what)?;
    if let Some(refusal) = words.refusal()? {
        return Ok(Answer::Refused(refusal));
    }
    match words.tag() {
        "ok" | "already" => Ok(Answer::Done),
        _ => Err(words.unknown("ok, already, fenced or gap")),
    }
}
