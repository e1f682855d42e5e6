//! pause_schedule: a person pauses a schedule. Needs no lease; nodes hear of it when they fire, or within seconds.

use crate::error::CallError;
use crate::keys::PartitionKeys;
use crate::link::Connection;
use crate::reply::{self, Words};
use crate::schedule::Pause;
use crate::script::PAUSE_SCHEDULE;
use gristmill_job::UnixMillis;

/// Longest text of a pause, in bytes; what is longer is cut.
const MAX_TEXT_BYTES: usize = 1000;

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PausedSchedule {
    /// It is paused, since now.
    Paused(UnixMillis),
    /// It was, and stays as it was.
    Already(Pause),
}

impl Connection {
    /// Pauses a schedule of this name in this partition, whether there is one yet or not.
    ///
    /// # Errors
    /// [`CallError`]; a repeat finds it paused.
    pub async fn pause_schedule(
        &self,
        keys: &PartitionKeys,
        name: &str,
        who: &str,
        reason: &str,
    ) -> Result<PausedSchedule, CallError> {
        let mut script = PAUSE_SCHEDULE.call(&[keys.stream.as_bytes(), keys.schedules_paused.as_bytes()]);
        script.arg(name).arg(on_one_line(who)).arg(on_one_line(reason));
        let mut words = Words::read(self.one(script).await?, "the answer of pause_schedule")?;
        match words.tag() {
            "paused" => Ok(PausedSchedule::Paused(UnixMillis(words.next_number()?))),
            "already" => Ok(PausedSchedule::Already(Pause::parse(&reply::bytes(words.next())?))),
            _ => Err(words.unknown("paused or already")),
        }
    }
}

/// Control characters are spaces; no longer than is kept.
fn on_one_line(text: &str) -> String {
    let mut line = String::new();
    for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if line.len() + c.len_utf8() > MAX_TEXT_BYTES {
            break;
        }
        line.push(c);
    }
    line
}
