//! resume_schedule: a person resumes a schedule; slots of the time while it was paused are not made up.

use crate::error::CallError;
use crate::keys::PartitionKeys;
use crate::link::Connection;
use crate::reply::{self, Words};
use crate::schedule::Pause;
use crate::script::RESUME_SCHEDULE;

impl Connection {
    /// Resumes a schedule; answers how it was paused, or nothing where it was not.
    ///
    /// # Errors
    /// [`CallError`]; a repeat finds nothing.
    pub async fn resume_schedule(
        &self,
        keys: &PartitionKeys,
        name: &str,
    ) -> Result<Option<Pause>, CallError> {
        let hashes = [&keys.stream, &keys.schedules_paused, &keys.schedules].map(|key| key.as_bytes());
        let mut script = RESUME_SCHEDULE.call(&hashes);
        script.arg(name);
        let mut words = Words::read(self.one(script).await?, "the answer of resume_schedule")?;
        match words.tag() {
            "resumed" => Ok(Some(Pause::parse(&reply::bytes(words.next())?))),
            "nothing" => Ok(None),
            _ => Err(words.unknown("resumed or nothing")),
        }
    }
}
