//! survey: looks through a partition's stream, slice by slice, for a job's id, and counts jobs by key. Plain reads, bounded
//! by the caller: a stream may be long.

use crate::error::CallError;
use crate::keys::PartitionKeys;
use crate::link::Connection;
use crate::reply::{self, Words};
use crate::script::SURVEY;
use gristmill_job::{JobId, Key, Place};
use redis::Value;

/// Most jobs a slice looks at.
pub const SLICE: usize = 1000;
/// A slice ends where the jobs it looked at weigh more than this, in bytes.
pub const SLICE_BYTES: usize = 4 * 1024 * 1024;

/// What to look for.
#[derive(Debug, Clone, Default)]
pub struct Sought {
    /// A job of this id: the survey ends where it stands.
    pub id: Option<JobId>,
    /// Jobs of these keys are counted.
    pub keys: Vec<Key>,
    /// Only jobs before this place.
    pub before: Option<Place>,
}

/// What was seen so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// Jobs looked at.
    pub jobs: u64,
    /// Where the id stands.
    pub found: Option<Place>,
    /// Of each key that was asked for: how many jobs.
    pub of_key: Vec<u64>,
    /// Of each key that was asked for: its first job.
    pub first: Vec<Option<Place>>,
    /// Whether the end was not reached: every count is `at least`.
    pub cut_short: bool,
}

impl Connection {
    /// Looks at the jobs of a partition in order of place, at most `most` of them.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn survey(&self, keys: &PartitionKeys, sought: &Sought, most: u64) -> Result<Seen, CallError> {
        let mut seen = Seen {
            of_key: vec![0; sought.keys.len()],
            first: vec![None; sought.keys.len()],
            ..Seen::default()
        };
        let mut from = "-".to_owned();
        loop {
            let left = usize::try_from(most.saturating_sub(seen.jobs)).unwrap_or(usize::MAX).min(SLICE);
            if left == 0 {
                seen.cut_short = true;
                return Ok(seen);
            }
            match self.survey_slice(keys, sought, &from, left, &mut seen).await? {
                Some(last) if seen.found.is_none() => from = format!("({last}"),
                _ => return Ok(seen),
            }
        }
    }

    /// The place to go on behind; `None` at the end.
    async fn survey_slice(
        &self,
        keys: &PartitionKeys,
        sought: &Sought,
        from: &str,
        most: usize,
        seen: &mut Seen,
    ) -> Result<Option<Place>, CallError> {
        let mut script = SURVEY.call(&[keys.stream.as_bytes()]);
        let to = sought.before.map_or_else(|| "+".to_owned(), |place| format!("({place}"));
        script.arg(from).arg(to).arg(most).arg(SLICE_BYTES);
        script.arg(sought.id.as_ref().map(JobId::as_bytes).unwrap_or_default());
        for key in &sought.keys {
            script.arg(key.as_bytes());
        }
        let mut words = Words::read(self.one(script).await?, "the answer of survey")?;
        if words.tag() != "ok" {
            return Err(words.unknown("ok"));
        }
        let last = place(words.next())?;
        seen.jobs += words.next_number()?;
        seen.found = place(words.next())?;
        let counts = reply::list(words.next(), "a count per key")?;
        let firsts = reply::list(words.next(), "a place per key")?;
        for (n, (count, first)) in counts.into_iter().zip(firsts).enumerate().take(sought.keys.len()) {
            seen.of_key[n] += reply::number(count)?;
            seen.first[n] = seen.first[n].or(place(first)?);
        }
        Ok(last)
    }
}

/// `None` for the empty word.
fn place(value: Value) -> Result<Option<Place>, CallError> {
    let text = reply::bytes(value)?;
    match Place::parse(&text) {
        None if !text.is_empty() => Err(CallError::Unexpected(format!("expected a stream id, got {text:?}"))),
        place => Ok(place),
    }
}
