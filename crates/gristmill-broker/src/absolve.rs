//! absolve: a node that lives takes back what the loss of its lease made of a run that was alone.

use crate::error::CallError;
use crate::fence::Fence;
use crate::keys::PartitionKeys;
use crate::link::Connection;
use crate::reply::Words;
use crate::script::ABSOLVE;
use gristmill_job::Place;

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absolved {
    /// The mark or the charge is gone.
    Absolved,
    /// Neither was there.
    Nothing,
    /// No charge is there, and the lease is this incarnation's again: its mark stays.
    Mine,
}

impl Connection {
    /// Removes the mark of this run, or the charge that names it. Repeating it is harmless.
    ///
    /// # Errors
    /// [`CallError`]; ask again where the answer is unknown.
    pub async fn absolve(
        &self,
        keys: &PartitionKeys,
        run: &Fence,
        turn: u32,
        place: Place,
    ) -> Result<Absolved, CallError> {
        let mut script =
            ABSOLVE.call(&[keys.lease.as_bytes(), keys.stream.as_bytes(), keys.state.as_bytes()]);
        script.arg(run.incarnation.as_str()).arg(run.epoch.0).arg(turn).arg(place.to_string());
        let words = Words::read(self.timed("absolve", self.one(script)).await?, "the answer of absolve")?;
        match words.tag() {
            "absolved" => Ok(Absolved::Absolved),
            "nothing" => Ok(Absolved::Nothing),
            "mine" => Ok(Absolved::Mine),
            _ => Err(words.unknown("absolved, nothing or mine")),
        }
    }
}
