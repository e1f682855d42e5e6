//! `schedules`: recurring jobs, as Redis knows them and as the settings here define them.
//!
//! * `find`: what is kept of each, and where;
//! * `list`: how they stand;
//! * `act`: `pause`, `resume`, `trigger` and `remove`, noted in the audit log.

mod act;
mod find;
mod list;

use crate::exit::{End, Failure};
use crate::settings::Settings;
use act::{NameArguments, PauseArguments, RemoveArguments, TriggerArguments};
use clap::Subcommand;
use gristmill_job::{Envelope, UnixMillis};
use gristmill_schedule::timing::moment_text;
use gristmill_schedule::{SCHEDULE_HEADER, SLOT_HEADER, slot_of_job};
use list::ListArguments;
pub(crate) use list::overdue;

#[derive(Subcommand)]
pub(crate) enum SchedulesCommand {
    /// All of them: when they are due, what they did last, whether they are paused, and by whom
    List(ListArguments),
    /// Fire no slot of a schedule until it is resumed
    Pause(PauseArguments),
    /// Let a paused schedule go on; slots of the time while it was paused are not made up
    Resume(NameArguments),
    /// Enqueue a job of a schedule now, beside its slots
    Trigger(TriggerArguments),
    /// Remove what is kept of a schedule that no node defines any more; its jobs stay
    Remove(RemoveArguments),
}

/// The command.
pub(crate) async fn command(settings: &Settings, command: &SchedulesCommand) -> Result<End, Failure> {
    match command {
        SchedulesCommand::List(arguments) => list::command(settings, arguments).await,
        SchedulesCommand::Pause(arguments) => act::pause(settings, arguments).await,
        SchedulesCommand::Resume(arguments) => act::resume(settings, arguments).await,
        SchedulesCommand::Trigger(arguments) => act::trigger(settings, arguments).await,
        SchedulesCommand::Remove(arguments) => act::remove(settings, arguments).await,
    }
}

/// A job of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recurring {
    pub(crate) schedule: String,
    pub(crate) slot: UnixMillis,
    pub(crate) triggered: bool,
}

impl Recurring {
    /// By the headers of its envelope; where there is none any more, by its id.
    pub(crate) fn of(id: &[u8], envelope: Option<&[u8]>) -> Option<Self> {
        let by_id = slot_of_job(id).map(|(name, slot)| (name.to_string(), slot));
        let Some(envelope) = envelope else {
            return by_id.map(|(schedule, slot)| Self { schedule, slot, triggered: false });
        };
        let envelope = Envelope::decode(envelope, usize::MAX).ok()?;
        let header = |name: &str| {
            envelope.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let (schedule, slot) = (header(SCHEDULE_HEADER)?, header(SLOT_HEADER)?.parse().ok()?);
        Some(Self { schedule, slot: UnixMillis(slot), triggered: by_id.is_none() })
    }

    pub(crate) fn text(&self) -> String {
        let at = moment_text(self.slot);
        match self.triggered {
            true => format!("{}, triggered by hand at {at}", self.schedule),
            false => format!("{}, slot {at}", self.schedule),
        }
    }

    pub(crate) fn as_json(&self) -> serde_json::Value {
        let Self { schedule, slot, triggered } = self;
        serde_json::json!({ "name": schedule, "slot_ms": slot.0, "triggered": triggered })
    }
}
