//! recover: takes back every claim of a partition, in slices, in order of place. The one way to build lanes.

use crate::call::{Answer, Guard, single};
use crate::entry::{self, Entry};
use crate::error::CallError;
use crate::keys::HANDED_BACK;
use crate::reply::{self, Words};
use crate::script::RECOVER;
use crate::state::JobState;
use gristmill_job::Place;
use redis::{Pipeline, Value};

pub(crate) fn write(guard: Guard<'_>, cursor: Place, count: usize) -> Pipeline {
    let Guard { keys, fence, number, .. } = guard;
    let mut script = RECOVER.call(&[keys.lease.as_bytes(), keys.stream.as_bytes(), keys.state.as_bytes()]);
    script.arg(fence.incarnation.as_str()).arg(fence.epoch.0).arg(number);
    script.arg(cursor.to_string()).arg(count);
    single(script)
}

pub(crate) fn read(value: Value) -> Result<Answer, CallError> {
    let mut words = Words::read(value, "the answer of recover")?;
    if let Some(refusal) = words.refusal()? {
        return Ok(Answer::Refused(refusal));
    }
    match words.tag() {
        "already" => return Ok(Answer::Already),
        "ok" => {}
        _ => return Err(words.unknown("ok, already, fenced or gap")),
    }
    let next = words.next_text()?.parse().map_err(CallError::Unexpected)?;
    let rows = words.next();
    let entries = taken_over(rows, words.next_number()?)?;
    Ok(Answer::Recovered { entries, next })
}

/// Entries that were claimed before, each with its holder, its line and, where no lease guards it, how often; `now` is the Redis clock (ms).
pub(crate) fn taken_over(rows: Value, now: u64) -> Result<Vec<Entry>, CallError> {
    let rows = reply::list(rows, "entries that were claimed before")?;
    let mut entries = Vec::with_capacity(rows.len());
    for row in rows {
        let mut row = reply::list(row, "an entry that was claimed before")?.into_iter();
        let mut next = || row.next().unwrap_or(Value::Nil);
        let (place, fields, holder, state, claim) = (next(), next(), next(), next(), next());
        if let Some(mut entry) = entry::read(place, fields)? {
            entry.recovered = reply::bytes(holder)? != HANDED_BACK.as_bytes();
            entry.state = JobState::parse(&reply::bytes(state)?, now);
            if claim != Value::Nil {
                entry.claim = reply::number(claim)?;
            }
            entries.push(entry);
        }
    }
    Ok(entries)
}
