//! claim: reads new jobs of a partition, never blocking. See `lua/claim.lua` for why it is fenced.

use crate::call::{Answer, Guard, single};
use crate::entry::{self, Entry};
use crate::error::CallError;
use crate::fence::Refusal;
use crate::keys::GROUP;
use crate::reply::{self, Words};
use crate::script::CLAIM;
use redis::{Pipeline, Value};

pub(crate) fn write(guard: Guard<'_>, count: usize) -> Pipeline {
    let Guard { keys, fence, number, .. } = guard;
    let mut script = CLAIM.call(&[keys.lease.as_bytes(), keys.stream.as_bytes()]);
    script.arg(fence.incarnation.as_str()).arg(fence.epoch.0).arg(number);
    let mut pipeline = single(script);
    let mut read = redis::cmd("XREADGROUP");
    read.arg("GROUP").arg(GROUP).arg(fence.consumer());
    read.arg("COUNT").arg(count);
    read.arg("STREAMS").arg(&keys.stream).arg(keys.gate(fence)).arg(">").arg(">");
    pipeline.add_command(read);
    pipeline
}

pub(crate) fn read(guard: Value, entries: Option<Value>) -> Result<Answer, CallError> {
    let mut words = Words::read(guard, "the answer of claim")?;
    if let Some(refusal) = words.refusal()? {
        return Ok(Answer::Refused(refusal));
    }
    match words.tag() {
        "already" => return Ok(Answer::Already),
        "ok" => {}
        _ => return Err(words.unknown("ok, already, fenced or gap")),
    }
    match entries {
        Some(Value::ServerError(error)) if error.code() == "NOGROUP" => {
            Ok(Answer::Refused(Refusal::Overtaken))
        }
        read => Ok(Answer::Claimed(self::entries(read.unwrap_or(Value::Nil))?)),
    }
}

/// What `XREADGROUP` delivered of the first stream that it named.
pub(crate) fn entries(read: Value) -> Result<Vec<Entry>, CallError> {
    // Nothing new: the reply names no stream.
    if read == Value::Nil {
        return Ok(Vec::new());
    }
    let mut streams = reply::list(read, "the streams of a claim")?;
    let Some(stream) = streams.pop() else { return Ok(Vec::new()) };
    entry::read_all(reply::list(stream, "a stream and its entries")?.pop().unwrap_or(Value::Nil))
}
