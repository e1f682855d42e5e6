//! keep: prolongs the slots that runs of a limited kind hold.

use crate::error::CallError;
use crate::fence::Incarnation;
use crate::keys;
use crate::lease::acquire::millis;
use crate::limit::{Asked, SlotName};
use crate::link::Connection;
use crate::reply::{self, Words};
use crate::script::KEEP;
use gristmill_job::{JobId, QueueName};
use std::time::Duration;

/// A slot that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The claim of its job.
    pub name: SlotName,
    /// Under what it was admitted.
    pub asked: Asked,
    /// Its job.
    pub job: JobId,
}

impl Connection {
    /// Prolongs these slots of one kind by `ttl`, at most [`MAX_JOBS_PER_CALL`](crate::call::MAX_JOBS_PER_CALL). Answers
    /// for each whether it is held; where it is not, another has it, or it lapsed and the kind is full.
    ///
    /// # Errors
    /// [`CallError`]; a repeat prolongs once more.
    pub async fn keep(
        &self,
        queue: &QueueName,
        kind: &str,
        incarnation: &Incarnation,
        ttl: Duration,
        held: &[Held],
    ) -> Result<Vec<bool>, CallError> {
        let names = [keys::limits(queue), keys::holders(queue, kind), keys::owners(queue, kind)];
        let mut script = KEEP.call(&[names[0].as_bytes(), names[1].as_bytes(), names[2].as_bytes()]);
        script.arg(kind).arg(incarnation.as_str()).arg(millis(ttl));
        for slot in held {
            script.arg(slot.name.stored()).arg(slot.asked.to_string()).arg(slot.job.as_bytes());
        }
        let mut words = Words::read(self.timed("keep", self.one(script)).await?, "the answer of keep")?;
        if words.tag() != "ok" {
            return Err(words.unknown("ok"));
        }
        words.next_answers(held.len(), |answer| match reply::text(answer)?.as_str() {
            "kept" => Ok(true),
            "lost" => Ok(false),
            other => Err(CallError::Unexpected(format!("expected kept or lost, got {other:?}"))),
        })
    }
}
