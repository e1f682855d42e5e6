//! grab: claims jobs of a queue with ordering none, as many as there are permits for. Needs no lease.

use crate::entry::{self, Entry};
use crate::error::CallError;
use crate::fence::{Fence, Incarnation};
use crate::keys::PartitionKeys;
use crate::link::Connection;
use crate::reply::{self, Words};
use crate::script::GRAB;
use crate::state::JobState;
use gristmill_job::{Place, UnixMillis};
use redis::Value;

/// What a grab answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grabbed {
    /// Claims, by this incarnation; those that were handed back first.
    Jobs {
        /// At most as many as were asked for.
        entries: Vec<Entry>,
        /// The last place that was ever claimed in this partition, where fewer jobs came than might; the doorbell waits for
        /// what comes behind it.
        delivered: Option<Place>,
        /// When the first job for later is due, by the Redis clock.
        next_due: Option<UnixMillis>,
        /// The Redis clock.
        now: UnixMillis,
    },
    /// The queue has another ordering, here in its word, or does not exist (the empty word). Nothing was claimed.
    Differs(String),
}

impl Fence {
    /// Under which an incarnation claims in queues with ordering none: it has no lease, and its epoch is 0.
    #[must_use]
    pub fn unordered(incarnation: &Incarnation) -> Self {
        Self { incarnation: incarnation.clone(), epoch: crate::fence::Epoch(0) }
    }
}

impl Connection {
    /// Claims up to `count` jobs, 1 to [`MAX_JOBS_PER_CALL`](crate::call::MAX_JOBS_PER_CALL).
    ///
    /// # Errors
    /// [`CallError`]; what a call without an answer claimed comes back when its visibility timeout is over.
    pub async fn grab(
        &self,
        keys: &PartitionKeys,
        incarnation: &Incarnation,
        count: usize,
    ) -> Result<Grabbed, CallError> {
        let gate = keys.open_gate();
        let mut script = GRAB.call(&[
            keys.meta.as_bytes(),
            keys.stream.as_bytes(),
            keys.state.as_bytes(),
            keys.delayed.as_bytes(),
            &gate,
        ]);
        script.arg(Fence::unordered(incarnation).consumer()).arg(count);
        read(self.timed("grab", self.one(script)).await?)
    }
}

fn read(value: Value) -> Result<Grabbed, CallError> {
    let mut words = Words::read(value, "the answer of grab")?;
    match words.tag() {
        "ok" => {}
        "differs" => return Ok(Grabbed::Differs(words.next_text()?)),
        _ => return Err(words.unknown("ok or differs")),
    }
    let rows = reply::list(words.next(), "entries")?;
    let now = words.next_number()?;
    let delivered = reply::bytes(words.next())?;
    let mut entries = Vec::with_capacity(rows.len());
    for row in rows {
        let mut row = reply::list(row, "an entry")?.into_iter();
        let mut next = || row.next().unwrap_or(Value::Nil);
        let (place, fields, state, claim) = (next(), next(), next(), next());
        if let Some(mut entry) = entry::read(place, fields)? {
            entry.state = JobState::parse(&reply::bytes(state)?, now);
            entry.claim = reply::number(claim)?;
            entries.push(entry);
        }
    }
    let next_due = due(words.next())?;
    Ok(Grabbed::Jobs { entries, delivered: Place::parse(&delivered), next_due, now: UnixMillis(now) })
}

/// A score of `delayed`, or nothing.
pub(crate) fn due(value: Value) -> Result<Option<UnixMillis>, CallError> {
    let text = reply::text(value)?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
    Ok(text.parse::<f64>().ok().map(|score| UnixMillis(score.ceil() as u64)))
}
