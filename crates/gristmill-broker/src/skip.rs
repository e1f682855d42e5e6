//! skip: a person gives up what the lane of a key waits for. Needs no lease; the owner hears of it with its next renewal.

use crate::error::CallError;
use crate::keys::PartitionKeys;
use crate::link::Connection;
use crate::reply::Words;
use crate::script::SKIP;
use gristmill_job::{JobId, Key, Place};

/// What a lane waits for, as the caller found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip {
    /// The key.
    pub key: Key,
    /// What it waits for.
    pub waits_for: WaitsFor,
}

/// See [`Skip`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitsFor {
    /// A dead letter holds the key.
    Letter {
        /// Its id.
        letter: String,
        /// The place of its job, as the hold names it.
        place: Place,
        /// The id of its job. `None` where its record is gone or unreadable: then the mark, if there is one, goes on
        /// naming a letter that is no longer there.
        job: Option<JobId>,
    },
    /// The job at this place waits to be due.
    Job(Place),
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Skipped {
    /// The letter is discarded, and the lane goes on.
    Discarded {
        /// Its id.
        letter: String,
    },
    /// The owner will make the job a dead letter, and the lane goes on.
    Asked,
    /// Another letter holds the key: look again.
    Changed {
        /// Its id.
        letter: String,
    },
    /// There is no such hold, and no such job waits.
    Nothing,
}

impl Connection {
    /// Gives up what the caller found a key to wait for. The mark of a letter's job stays for `seen_window_ms`.
    ///
    /// # Errors
    /// [`CallError`]; where the answer is unknown, look and ask again.
    pub async fn skip(
        &self,
        keys: &PartitionKeys,
        seen_window_ms: u64,
        skip: &Skip,
    ) -> Result<Skipped, CallError> {
        let (letter, place, job) = match &skip.waits_for {
            WaitsFor::Letter { letter, place, job } => (letter.as_str(), place, job.as_ref()),
            WaitsFor::Job(place) => ("", place, None),
        };
        let seen = keys.seen(job.map(JobId::as_bytes).unwrap_or_default());
        let mut script = SKIP.call(&[
            keys.lease.as_bytes(),
            keys.stream.as_bytes(),
            keys.state.as_bytes(),
            keys.held.as_bytes(),
            keys.dead.as_bytes(),
            keys.dead_bodies.as_bytes(),
            keys.originals.as_bytes(),
            &seen,
        ]);
        // Redis refuses an expiry of 0.
        script.arg(skip.key.as_bytes()).arg(seen_window_ms.max(1)).arg(letter).arg(place.to_string());
        let mut words = Words::read(self.one(script).await?, "the answer of skip")?;
        match words.tag() {
            "discarded" => Ok(Skipped::Discarded { letter: words.next_text()? }),
            "asked" => Ok(Skipped::Asked),
            "changed" => Ok(Skipped::Changed { letter: words.next_text()? }),
            "nothing" => Ok(Skipped::Nothing),
            _ => Err(words.unknown("discarded, asked, changed or nothing")),
        }
    }
}
