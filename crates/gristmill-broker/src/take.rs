//! take: reads what lies beside the stream: jobs that came back from the dead, the keys that wait for a person, and the jobs that
//! are to be cancelled.

use crate::call::{Answer, Guard, single};
use crate::cancel::Asked;
use crate::entry::Entry;
use crate::error::CallError;
use crate::reply::{self, Words};
use crate::returned::Returned;
use crate::script::TAKE;
use crate::state::{JobState, StateLine};
use gristmill_job::{Key, Place};
use redis::{Pipeline, Value};

/// One slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// How often people have acted on this partition's lanes, when the slice was read.
    pub changes: u64,
    /// Jobs that came back, in the order of their return.
    pub entries: Vec<Entry>,
    /// The value of `changes` at the last of these returns; where to go on behind.
    pub last: u64,
    /// Whether there are more jobs.
    pub more: bool,
    /// Where to go on with the held keys; 0 at the end.
    pub cursor: u64,
    /// Keys whose lanes wait for a person; a key may come twice.
    pub held: Vec<Key>,
    /// Jobs that are to be cancelled, with what is stored about each, in the order in which that was asked. They are named
    /// once; what is stored stays.
    pub asked: Vec<(Asked, StateLine)>,
    /// Whether there are more of them.
    pub more_asked: bool,
}

pub(crate) fn write(guard: Guard<'_>, after: u64, count: usize, cursor: Option<u64>) -> Pipeline {
    let Guard { keys, fence, number, .. } = guard;
    let mut script = TAKE.call(&[
        keys.lease.as_bytes(),
        keys.stream.as_bytes(),
        keys.state.as_bytes(),
        keys.returned.as_bytes(),
        keys.returned_bodies.as_bytes(),
        keys.held.as_bytes(),
        keys.asked.as_bytes(),
    ]);
    script.arg(fence.incarnation.as_str()).arg(fence.epoch.0).arg(number);
    script.arg(after).arg(count);
    match cursor {
        Some(cursor) => script.arg(cursor),
        None => script.arg(""),
    };
    single(script)
}

pub(crate) fn read(after: u64, value: Value) -> Result<Answer, CallError> {
    let mut words = Words::read(value, "the answer of take")?;
    if let Some(refusal) = words.refusal()? {
        return Ok(Answer::Refused(refusal));
    }
    match words.tag() {
        "already" => return Ok(Answer::Already),
        "ok" => {}
        _ => return Err(words.unknown("ok, already, fenced or gap")),
    }
    let changes = words.next_number()?;
    let rows = reply::list(words.next(), "returned jobs")?;
    let more = words.next_text()? == "1";
    let cursor = words.next_number()?;
    let holds = reply::list(words.next(), "held keys")?;
    let now_ms = words.next_number()?;
    let asks = reply::list(words.next(), "jobs that are asked for")?;
    let more_asked = words.next_text()? == "1";
    let mut asked = Vec::with_capacity(asks.len());
    for row in asks {
        let mut row = reply::list(row, "a job that is asked for")?.into_iter();
        let mut next = || reply::bytes(row.next().unwrap_or(Value::Nil));
        let (item, line) = (next()?, next()?);
        asked.extend(Asked::parse(&item).zip(StateLine::parse(&line)));
    }
    let (mut entries, mut last) = (Vec::with_capacity(rows.len()), after);
    for row in rows {
        let mut row = reply::list(row, "a returned job")?.into_iter();
        let mut next = || reply::bytes(row.next().unwrap_or(Value::Nil));
        let (place, record, state, came_at) = (next()?, next()?, next()?, next()?);
        let came_at = std::str::from_utf8(&came_at).ok().and_then(|digits| digits.parse().ok());
        let (Some(place), Some(came_at)) = (Place::parse(&place), came_at) else {
            return Err(CallError::Unexpected(format!("expected a place and a number, got {place:?}")));
        };
        last = came_at;
        entries.push(Returned::entry(&record, place, JobState::parse(&state, now_ms)));
    }
    let held = holds.into_iter().step_by(2).map(|key| Ok(Key::from_stored(reply::bytes(key)?)));
    let held = held.collect::<Result<_, CallError>>()?;
    Ok(Answer::Taken(Taken { changes, entries, last, more, cursor, held, asked, more_asked }))
}
