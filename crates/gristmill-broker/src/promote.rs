//! promote: jobs for later that are due become ready, in slices, by due time and then in the order they were enqueued.
//!
//! The names of the marks must be declared, so a slice is told which members it moves: the answer before it named them. The
//! first call of a round moves nothing and asks. In mode key it is a numbered call of a tenure ([`crate::Call::Promote`]);
//! in mode none any node may ([`Connection::promote`]).

use crate::call::{Answer, Guard, MAX_BYTES_PER_CALL, MAX_JOBS_PER_CALL, single};
use crate::delayed::{Member, members};
use crate::error::CallError;
use crate::keys::PartitionKeys;
use crate::link::Connection;
use crate::reply::{self, Words};
use crate::script::PROMOTE;
use gristmill_job::UnixMillis;
use redis::{Cmd, Pipeline, Value};
use std::time::Duration;

/// What one slice answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promoted {
    /// Jobs that were moved by this call; none in answer to a repeat.
    pub moved: u64,
    /// How late the latest of them became ready.
    pub late: Duration,
    /// Members without a body, or bodies without a member, removed: somebody deleted the other half by hand.
    pub lost: u64,
    /// What is due now, at most [`MAX_JOBS_PER_CALL`]: for the next slice.
    pub due: Vec<Member>,
    /// When the next one is due, where none is now; `None` where there is none at all.
    pub next: Option<UnixMillis>,
    /// The Redis clock.
    pub now: UnixMillis,
}

impl Connection {
    /// One slice, of no tenure: for queues without order, where any node may. At most [`MAX_JOBS_PER_CALL`] members.
    ///
    /// # Errors
    /// [`CallError`]; may be repeated: what is gone is passed over.
    pub async fn promote(&self, keys: &PartitionKeys, slice: &[Member]) -> Result<Promoted, CallError> {
        let mut script = declare(keys, slice);
        script.arg("").arg("").arg("");
        fill(&mut script, slice);
        match read(self.timed("promote", self.one(script)).await?)? {
            Answer::Promoted(promoted) => Ok(promoted),
            other => {
                Err(CallError::Unexpected(format!("expected ok of an unguarded promote, got {other:?}")))
            }
        }
    }
}

pub(crate) fn write(guard: Guard<'_>, slice: &[Member]) -> Pipeline {
    let Guard { keys, fence, number, .. } = guard;
    let mut script = declare(keys, slice);
    script.arg(fence.incarnation.as_str()).arg(fence.epoch.0).arg(number);
    fill(&mut script, slice);
    single(script)
}

fn declare(keys: &PartitionKeys, slice: &[Member]) -> Cmd {
    debug_assert!(slice.len() <= MAX_JOBS_PER_CALL);
    let marked: Vec<_> = slice.iter().map(Member::id).filter(|(_, own)| *own).collect();
    let mut script = PROMOTE.call_sized(5 + marked.len(), 5 + slice.len(), 128 * slice.len());
    script.arg(&keys.lease).arg(&keys.stream).arg(&keys.delayed).arg(&keys.delayed_bodies).arg(&keys.state);
    for (id, _) in marked {
        script.arg(keys.seen(id.as_bytes()));
    }
    script
}

fn fill(script: &mut Cmd, slice: &[Member]) {
    script.arg(MAX_BYTES_PER_CALL).arg(MAX_JOBS_PER_CALL);
    for member in slice {
        script.arg(member.as_bytes());
    }
}

pub(crate) fn read(value: Value) -> Result<Answer, CallError> {
    let mut words = Words::read(value, "the answer of promote")?;
    if let Some(refusal) = words.refusal()? {
        return Ok(Answer::Refused(refusal));
    }
    if !matches!(words.tag(), "ok" | "already") {
        return Err(words.unknown("ok, already, fenced or gap"));
    }
    let now = UnixMillis(words.next_number()?);
    let (moved, late, lost) = (words.next_number()?, words.next_number()?, words.next_number()?);
    let due = members(words.next())?;
    Ok(Answer::Promoted(Promoted {
        moved,
        late: Duration::from_millis(late),
        lost,
        due,
        next: due_time(words.next())?,
        now,
    }))
}

/// A score, or nothing. A time before 1970, which somebody wrote by hand, is 0.
pub(crate) fn due_time(value: Value) -> Result<Option<UnixMillis>, CallError> {
    let text = reply::text(value)?;
    if text.is_empty() {
        return Ok(None);
    }
    let score: f64 = text
        .parse()
        .map_err(|_| CallError::Unexpected(format!("expected a due time in ms, got {text:?}")))?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
    Ok(Some(UnixMillis(score.ceil() as u64)))
}
