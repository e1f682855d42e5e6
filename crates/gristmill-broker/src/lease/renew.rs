//! renew: moves the expiry of leases, many partitions in one pipeline, on the heartbeat's own connection.

use crate::error::CallError;
use crate::fence::{Fence, Incarnation, Refusal};
use crate::keys::PartitionKeys;
use crate::lease::acquire::millis;
use crate::link::Connection;
use crate::promote;
use crate::reply::Words;
use crate::script::RENEW;
use gristmill_job::UnixMillis;
use redis::{Pipeline, Value};
use std::time::Duration;

/// One lease to renew.
#[derive(Debug, Clone)]
pub struct Renew {
    /// The partition.
    pub keys: std::sync::Arc<PartitionKeys>,
    /// Whose tenure.
    pub fence: Fence,
    /// The highest number of this tenure whose answer was seen: an older Redis is told apart.
    pub answered: u64,
}

/// What one renewal answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewed {
    /// Mine for another ttl, counted from when it was sent.
    Ok {
        /// Who wants the partition.
        wanted_by: Option<Incarnation>,
        /// Grows when a person changed something about its lanes.
        changes: u64,
        /// The Redis clock.
        now: UnixMillis,
        /// When the first job for later is due, or was; `None` if there is none.
        due: Option<UnixMillis>,
    },
    /// Not mine, or not on the history I know.
    Refused(Refusal),
}

impl Connection {
    /// Renews every lease of `leases`; one answer each, in order.
    ///
    /// # Errors
    /// [`CallError`] of the whole pipeline; no lease is known to be renewed then.
    pub async fn renew(&self, leases: &[Renew], ttl: Duration) -> Result<Vec<Renewed>, CallError> {
        let mut pipeline = Pipeline::with_capacity(leases.len());
        for lease in leases {
            let mut script = RENEW.call(&[
                lease.keys.lease.as_bytes(),
                lease.keys.stream.as_bytes(),
                lease.keys.delayed.as_bytes(),
            ]);
            script.arg(lease.fence.incarnation.as_str()).arg(lease.fence.epoch.0);
            script.arg(millis(ttl)).arg(lease.answered);
            pipeline.add_command(script);
        }
        self.timed("renew", self.many(pipeline, leases.len())).await?.into_iter().map(read).collect()
    }
}

fn read(value: Value) -> Result<Renewed, CallError> {
    let mut words = Words::read(value, "the answer of renew")?;
    if let Some(refusal) = words.refusal()? {
        return Ok(Renewed::Refused(refusal));
    }
    match words.tag() {
        "ok" => Ok(Renewed::Ok {
            wanted_by: Some(words.next_text()?)
                .filter(|w| !w.is_empty())
                .map(|w| Incarnation::from_stored(&w)),
            changes: words.next_number()?,
            now: UnixMillis(words.next_number()?),
            due: promote::due_time(words.next())?,
        }),
        _ => Err(words.unknown("ok, fenced or gap")),
    }
}
