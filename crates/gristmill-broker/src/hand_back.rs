//! hand_back: lays claims down for whoever owns the partition next, uncharged.

use crate::call::{Answer, Guard, done, single};
use crate::error::CallError;
use crate::script::HAND_BACK;
use gristmill_job::Place;
use redis::{Pipeline, Value};

/// `stopped`: how many of the places, the first ones, had a run that was stopped hard. A claim that is not named is none.
pub(crate) fn write(guard: Guard<'_>, places: &[Place], claims: &[u64], stopped: usize) -> Pipeline {
    let Guard { keys, fence, number, .. } = guard;
    let mut script = HAND_BACK.call(&[keys.lease.as_bytes(), keys.stream.as_bytes(), keys.state.as_bytes()]);
    script.arg(fence.incarnation.as_str()).arg(fence.epoch.0).arg(number).arg(stopped);
    debug_assert!(!guard.is_unordered() || claims.len() == places.len());
    for (n, place) in places.iter().enumerate() {
        script.arg(place.to_string());
        if guard.is_unordered() {
            script.arg(claims.get(n).copied().unwrap_or_default());
        }
    }
    single(script)
}

pub(crate) fn read(value: Value) -> Result<Answer, CallError> {
    done(value, "the answer of hand_back")
}
