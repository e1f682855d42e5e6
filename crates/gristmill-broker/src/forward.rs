//! forward: removes outbox entries whose jobs are in their queues. [`crate::Connection::outbox`] reads them.

use crate::call::{Answer, Guard, done, single};
use crate::error::CallError;
use crate::script::FORWARD;
use gristmill_job::Place;
use redis::{Pipeline, Value};

pub(crate) fn write(guard: Guard<'_>, ids: &[Place]) -> Pipeline {
    let Guard { keys, fence, number, .. } = guard;
    let mut script = FORWARD.call(&[keys.lease.as_bytes(), keys.stream.as_bytes(), keys.outbox.as_bytes()]);
    script.arg(fence.incarnation.as_str()).arg(fence.epoch.0).arg(number);
    for place in ids {
        script.arg(place.to_string());
    }
    single(script)
}

pub(crate) fn read(value: Value) -> Result<Answer, CallError> {
    done(value, "the answer of forward")
}
