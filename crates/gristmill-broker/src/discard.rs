//! discard: removes dead letters of one partition for good. Needs no lease.

use crate::call::MAX_JOBS_PER_CALL;
use crate::error::CallError;
use crate::keys::PartitionKeys;
use crate::link::Connection;
use crate::reply::{self, Words};
use crate::script::DISCARD;
use bytes::Bytes;
use gristmill_job::{DeadLetter, JobId, Key, Place};

/// A letter to be discarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discard {
    /// Its own id.
    pub letter: Bytes,
    /// Its job, so that the mark which names this letter becomes `discarded`, and a hold that names it ends. `None` where
    /// its record is gone or unreadable: then the mark, if there is one, goes on naming a letter that is no longer there,
    /// and a hold ends with the owner's next census.
    pub job: Option<Whose>,
}

/// Whose letter it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whose {
    /// The job's id.
    pub id: JobId,
    /// Its key.
    pub key: Key,
    /// Its place; `None` where the record names none.
    pub place: Option<Place>,
}

impl Whose {
    /// As the letter's record says.
    #[must_use]
    pub fn of(record: DeadLetter) -> Self {
        Self {
            id: JobId::from_stored(record.job.into()),
            key: Key::from_stored(record.key.into()),
            place: Place::parse(record.place.as_bytes()),
        }
    }
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
        let mut script = DISCARD.call_sized(6 + jobs().count(), 1 + 4 * letters.len(), 128 * letters.len());
        script.arg(&keys.stream).arg(&keys.dead).arg(&keys.dead_bodies);
        script.arg(&keys.lease).arg(&keys.held).arg(&keys.originals);
        for job in jobs() {
            script.arg(keys.seen(job.id.as_bytes()));
        }
        // Redis refuses an expiry of 0.
        script.arg(seen_window_ms.max(1));
        for letter in letters {
            script.arg(letter.letter.as_ref());
            match &letter.job {
                None => script.arg("0").arg("").arg(""),
                Some(Whose { key, place, .. }) => {
                    let place = place.map_or_else(String::new, |place| place.to_string());
                    script.arg("1").arg(key.as_bytes()).arg(place)
                }
            };
        }
        let mut words = Words::read(self.one(script).await?, "the answer of discard")?;
        if words.tag() != "ok" {
            return Err(words.unknown("ok"));
        }
        words.next_answers(letters.len(), answer)
    }
}

fn answer(value: redis::Value) -> Result<Discarded, CallError> {
    match reply::text(value)?.as_str() {
        "discarded" => Ok(Discarded::Discarded),
        "gone" => Ok(Discarded::Gone),
        other => Err(CallError::Unexpected(format!("expected discarded or gone, got {other:?}"))),
    }
}
