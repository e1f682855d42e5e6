//! release_key: a person lets the lane of a key go on. Needs no lease; the owner hears of it with its next renewal.

use crate::error::CallError;
use crate::keys::PartitionKeys;
use crate::link::Connection;
use crate::reply::Words;
use crate::script::RELEASE_KEY;
use gristmill_job::{Key, Place};

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleasedKey {
    /// Its lane no longer waits for this dead letter, which stays dead.
    Released {
        /// The letter's id.
        letter: String,
    },
    /// Its first job no longer waits: it is due.
    Woken,
    /// The key is not held, and no such job waits.
    Nothing,
}

impl Connection {
    /// Ends the hold of a key; where it has none, makes the job at `waits` due, which the caller found waiting.
    ///
    /// # Errors
    /// [`CallError`]; where the answer is unknown, look and ask again.
    pub async fn release_key(
        &self,
        keys: &PartitionKeys,
        key: &Key,
        waits: Option<Place>,
    ) -> Result<ReleasedKey, CallError> {
        let mut script = RELEASE_KEY.call(&[
            keys.lease.as_bytes(),
            keys.stream.as_bytes(),
            keys.state.as_bytes(),
            keys.held.as_bytes(),
        ]);
        script.arg(key.as_bytes()).arg(waits.map_or_else(String::new, |place| place.to_string()));
        let mut words = Words::read(self.one(script).await?, "the answer of release_key")?;
        match words.tag() {
            "released" => Ok(ReleasedKey::Released { letter: words.next_text()? }),
            "woken" => Ok(ReleasedKey::Woken),
            "nothing" => Ok(ReleasedKey::Nothing),
            _ => Err(words.unknown("released, woken or nothing")),
        }
    }
}
