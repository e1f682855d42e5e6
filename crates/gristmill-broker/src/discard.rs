//! discard: removes dead letters of one partition for good. Needs no lease.

use crate::call::MAX_JOBS_PER_CALL;
use crate::error::CallError;
use crate::keys::PartitionKeys;
use crate::link::Connection;
use crate::reply::{self, Words};
use crate::script::DISCARD;
use bytes::Bytes;
use gristmill_job::JobId;

/// A letter to be discarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discard {
    /// Its own id.
    pub letter: Bytes,
    /// The id of its job, so that the mark which names this letter becomes `discarded`. `None` where its record is gone
    /// or unreadable: then the mark, if there is one, goes on naming a letter that is no longer there.
    pub job: Option<JobId>,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discarded {
    /// Removed, letter and record.
    Discarded,
    /// There is no such letter in this partition, or no longer.
    Gone,
}

impl Connection {
    /// Discards at most [`MAX_JOBS_PER_CALL`] letters of one partition; one answer per letter, in order. The marks of
    /// their jobs' ids stay for `seen_window_ms`.
    ///
    /// # Errors
    /// [`CallError`]; where the answer is unknown, ask again: what was discarded is then gone.
    pub async fn discard(
        &self,
        keys: &PartitionKeys,
        seen_window_ms: u64,
        letters: &[Discard],
    ) -> Result<Vec<Discarded>, CallError> {
        debug_assert!(letters.len() <= MAX_JOBS_PER_CALL);
        let jobs = || letters.iter().filter_map(|letter| letter.job.as_ref());
        let mut script = DISCARD.call_sized(3 + jobs().count(), 1 + 2 * letters.len(), 64 * letters.len());
        script.arg(&keys.stream).arg(&keys.dead).arg(&keys.dead_bodies);
        for job in jobs() {
            script.arg(keys.seen(job.as_bytes()));
        }
        // Redis refuses an expiry of 0.
        script.arg(seen_window_ms.max(1));
        for letter in letters {
            script.arg(letter.letter.as_ref()).arg(if letter.job.is_some() { "1" } else { "0" });
        }
        let mut words = Words::read(self.one(script).await?, "the answer of discard")?;
        if words.tag() != "ok" {
            return Err(words.unknown("ok"));
        }
        let answers = reply::list(words.next(), "an answer per letter")?;
        let answers = answers.into_iter().map(answer).collect::<Result<Vec<_>, _>>()?;
        if answers.len() != letters.len() {
            let (came, sent) = (answers.len(), letters.len());
            return Err(CallError::Unexpected(format!("expected {sent} answers of discard, got {came}")));
        }
        Ok(answers)
    }
}

fn answer(value: redis::Value) -> Result<Discarded, CallError> {
    match reply::text(value)?.as_str() {
        "discarded" => Ok(Discarded::Discarded),
        "gone" => Ok(Discarded::Gone),
        other => Err(CallError::Unexpected(format!("expected discarded or gone, got {other:?}"))),
    }
}
