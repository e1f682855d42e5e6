//! reclaim: takes claims whose visibility timeout is over, in a queue with ordering none, in slices along a cursor.

use crate::entry::Entry;
use crate::error::CallError;
use crate::fence::{Fence, Incarnation};
use crate::keys::PartitionKeys;
use crate::lease::acquire::millis;
use crate::link::Connection;
use crate::recover;
use crate::reply::Words;
use crate::script::RECLAIM;
use gristmill_job::{Place, UnixMillis};
use redis::Value;
use std::time::Duration;

/// What a slice answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reclaimed {
    /// One slice.
    Slice {
        /// What was taken; claims of this incarnation now.
        entries: Vec<Entry>,
        /// Where to go on; [`Place::ZERO`] at the end.
        next: Place,
        /// Claims of the slice that are over and were not taken.
        left: u64,
        /// By how much the oldest of those is over.
        worst: Duration,
        /// Jobs in the outbox.
        outbox: u64,
        /// The Redis clock.
        now: UnixMillis,
    },
    /// The queue has another ordering, here in its word, or does not exist (the empty word).
    Differs(String),
}

/// What to look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reclaim {
    /// Claims that were not extended for so long are over.
    pub timeout: Duration,
    /// Where to go on; [`Place::ZERO`] first.
    pub cursor: Place,
    /// Most jobs to take, at most [`MAX_JOBS_PER_CALL`](crate::call::MAX_JOBS_PER_CALL); 0 only looks.
    pub count: usize,
}

impl Connection {
    /// One slice.
    ///
    /// # Errors
    /// [`CallError`]; what a call without an answer took comes back when its visibility timeout is over.
    pub async fn reclaim(
        &self,
        keys: &PartitionKeys,
        incarnation: &Incarnation,
        reclaim: Reclaim,
    ) -> Result<Reclaimed, CallError> {
        let gate = keys.open_gate();
        let mut script = RECLAIM.call(&[
            keys.meta.as_bytes(),
            keys.stream.as_bytes(),
            keys.state.as_bytes(),
            keys.outbox.as_bytes(),
            &gate,
        ]);
        script.arg(Fence::unordered(incarnation).consumer()).arg(millis(reclaim.timeout));
        script.arg(reclaim.cursor.to_string()).arg(reclaim.count);
        read(self.timed("reclaim", self.one(script)).await?)
    }
}

fn read(value: Value) -> Result<Reclaimed, CallError> {
    let mut words = Words::read(value, "the answer of reclaim")?;
    match words.tag() {
        "ok" => {}
        "differs" => return Ok(Reclaimed::Differs(words.next_text()?)),
        _ => return Err(words.unknown("ok or differs")),
    }
    let next = words.next_text()?.parse().map_err(CallError::Unexpected)?;
    let rows = words.next();
    let now = words.next_number()?;
    let entries = recover::taken_over(rows, now)?;
    let (left, worst) = (words.next_number()?, Duration::from_millis(words.next_number()?));
    let outbox = words.next_number()?;
    Ok(Reclaimed::Slice { entries, next, left, worst, outbox, now: UnixMillis(now) })
}
