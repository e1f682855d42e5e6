//! hand_back: lays claims down for whoever owns the partition next, uncharged.

use crate::call::{Answer, Guard, done, single};
use crate::error::CallError;
use crate::script::HAND_BACK;
use gristmill_job::Place;
use redis::{Pipeline, Value};

pub(crate) fn write(guard: Guard<'_>, places: &[Place]) -> Pipeline {
    let Guard { keys, fence, number, .. } = guard;
    let mut script = HAND_BACK.call(&[keys.lease.as_bytes(), keys.stream.as_bytes()]);
    script.arg(fence.incarnation.as_str()).arg(fence.epoch.0).arg(number);
    for place in places {
        script.arg(place.to_string());
    }
    single(script)
}

pub(crate) fn read(value: Value) -> Result<Answer, CallError> {
    done(value, "the answer of hand_back")
}
