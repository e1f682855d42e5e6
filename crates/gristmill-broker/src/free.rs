//! free: gives back the slots of runs that ended and are settled.

use crate::error::CallError;
use crate::fence::Incarnation;
use crate::keys;
use crate::limit::{Asked, SlotName};
use crate::link::Connection;
use crate::reply::{self, Words};
use crate::script::FREE;
use gristmill_job::QueueName;

impl Connection {
    /// Gives these slots of one kind back, at most [`MAX_JOBS_PER_CALL`](crate::call::MAX_JOBS_PER_CALL). Answers for each
    /// whether it was held.
    ///
    /// # Errors
    /// [`CallError`]; a repeat frees nothing. What is never freed lapses.
    pub async fn free(
        &self,
        queue: &QueueName,
        kind: &str,
        incarnation: &Incarnation,
        slots: &[(SlotName, Asked)],
    ) -> Result<Vec<bool>, CallError> {
        let names = [keys::holders(queue, kind), keys::owners(queue, kind)];
        let mut script = FREE.call(&[names[0].as_bytes(), names[1].as_bytes()]);
        script.arg(incarnation.as_str());
        for (name, asked) in slots {
            script.arg(name.stored()).arg(asked.to_string());
        }
        let mut words = Words::read(self.timed("free", self.one(script)).await?, "the answer of free")?;
        if words.tag() != "ok" {
            return Err(words.unknown("ok"));
        }
        words.next_answers(slots.len(), |answer| match reply::text(answer)?.as_str() {
            "freed" => Ok(true),
            "not_held" => Ok(false),
            other => Err(CallError::Unexpected(format!("expected freed or not_held, got {other:?}"))),
        })
    }
}
