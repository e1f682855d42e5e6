//! remove_schedule: a person removes what is kept of a schedule.

use crate::error::CallError;
use crate::keys::PartitionKeys;
use crate::lease::acquire::millis;
use crate::link::Connection;
use crate::reply::Words;
use crate::schedule::DEFINITION_STANDS;
use crate::script::REMOVE_SCHEDULE;
use gristmill_job::UnixMillis;

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemovedSchedule {
    /// Record, definition and pause are gone.
    Removed,
    /// A node has it; nothing was done.
    Stands {
        /// When one said so last.
        confirmed: UnixMillis,
        /// The Redis clock.
        now: UnixMillis,
    },
    /// Nothing was kept of it.
    Nothing,
}

impl Connection {
    /// Removes what is kept of a schedule; `also_defined`: even while nodes have it, which make it anew, its slots beginning
    /// then.
    ///
    /// # Errors
    /// [`CallError`]; a repeat finds nothing.
    pub async fn remove_schedule(
        &self,
        keys: &PartitionKeys,
        name: &str,
        also_defined: bool,
    ) -> Result<RemovedSchedule, CallError> {
        let hashes = [&keys.stream, &keys.schedules, &keys.schedule_definitions, &keys.schedules_paused];
        let mut script = REMOVE_SCHEDULE.call(&hashes.map(|key| key.as_bytes()));
        script.arg(name).arg(millis(DEFINITION_STANDS)).arg(if also_defined { "1" } else { "0" });
        let mut words = Words::read(self.one(script).await?, "the answer of remove_schedule")?;
        match words.tag() {
            "removed" => Ok(RemovedSchedule::Removed),
            "stands" => {
                let confirmed = UnixMillis(words.next_number()?);
                Ok(RemovedSchedule::Stands { confirmed, now: UnixMillis(words.next_number()?) })
            }
            "nothing" => Ok(RemovedSchedule::Nothing),
            _ => Err(words.unknown("removed, stands or nothing")),
        }
    }
}
