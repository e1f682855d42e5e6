//! census: counts what a partition holds, for its owner to compare with its lanes, and repairs what waits for nothing.

use crate::call::{Answer, Guard, single};
use crate::error::CallError;
use crate::reply::Words;
use crate::script::CENSUS;
use redis::{Pipeline, Value};

/// What was counted and repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Census {
    /// Jobs of the stream that are claimed.
    pub claimed: u64,
    /// Jobs that came back from the dead and are not settled.
    pub returned: u64,
    /// Where the next census goes on: held keys and lines.
    pub cursors: (u64, u64),
    /// Holds that named no dead letter; they are gone.
    pub holds_removed: u64,
    /// Lines of no job; they are gone.
    pub lines_removed: u64,
    /// How often people had acted on this partition's lanes, this census included.
    pub changes: u64,
}

pub(crate) fn write(guard: Guard<'_>, cursors: (u64, u64)) -> Pipeline {
    let Guard { keys, fence, number, .. } = guard;
    let mut script = CENSUS.call(&[
        keys.lease.as_bytes(),
        keys.stream.as_bytes(),
        keys.state.as_bytes(),
        keys.returned.as_bytes(),
        keys.dead_bodies.as_bytes(),
        keys.held.as_bytes(),
    ]);
    script.arg(fence.incarnation.as_str()).arg(fence.epoch.0).arg(number);
    script.arg(cursors.0).arg(cursors.1);
    single(script)
}

pub(crate) fn read(value: Value) -> Result<Answer, CallError> {
    let mut words = Words::read(value, "the answer of census")?;
    if let Some(refusal) = words.refusal()? {
        return Ok(Answer::Refused(refusal));
    }
    match words.tag() {
        "already" => return Ok(Answer::Counted(None)),
        "ok" => {}
        _ => return Err(words.unknown("ok, already, fenced or gap")),
    }
    Ok(Answer::Counted(Some(Census {
        claimed: words.next_number()?,
        returned: words.next_number()?,
        cursors: (words.next_number()?, words.next_number()?),
        holds_removed: words.next_number()?,
        lines_removed: words.next_number()?,
        changes: words.next_number()?,
    })))
}
