//! release: gives a partition up; its epoch stays.

use crate::call::{Answer, Guard, done, single};
use crate::error::CallError;
use crate::fence::Refusal;
use crate::script::RELEASE;
use redis::{Pipeline, Value};

pub(crate) fn write(guard: Guard<'_>) -> Pipeline {
    let Guard { keys, fence, number, .. } = guard;
    let gate = keys.gate(fence);
    let mut script = RELEASE.call(&[keys.lease.as_bytes(), keys.stream.as_bytes(), &gate]);
    script.arg(fence.incarnation.as_str()).arg(fence.epoch.0).arg(number);
    single(script)
}

/// `fenced` in answer to a release means that the lease is not ours any more, which is what was asked for.
pub(crate) fn read(value: Value) -> Result<Answer, CallError> {
    match done(value, "the answer of release")? {
        Answer::Refused(Refusal::Fenced { .. }) => Ok(Answer::Done),
        other => Ok(other),
    }
}
