//! What is kept of schedules, and what the settings here say of them.

use crate::exit::Failure;
use crate::settings::Settings;
use gristmill_broker::schedule::ScheduleView;
use gristmill_broker::{Connection, PartitionKeys, QueueDefinition};
use gristmill_job::{UnixMillis, partition_of};
use gristmill_schedule::Schedule;

/// One schedule of one queue.
pub(super) struct Found {
    pub(super) name: String,
    /// `None` where the queue of the settings is not there yet.
    pub(super) queue: Option<QueueDefinition>,
    pub(super) partition: u16,
    /// What Redis keeps of it.
    pub(super) view: Option<ScheduleView>,
    /// The definition that stands, or why it cannot be read.
    pub(super) stands: Option<Result<Schedule, String>>,
    /// The definition of the settings here.
    pub(super) here: Option<Schedule>,
}

impl Found {
    /// The definition by which it goes, or will.
    pub(super) fn schedule(&self) -> Option<&Schedule> {
        let stands = self.stands.as_ref().and_then(|stands| stands.as_ref().ok());
        stands.or(self.here.as_ref())
    }

    pub(super) fn queue_name(&self) -> String {
        let of_settings = || self.here.as_ref().map(|here| here.queue().to_string()).unwrap_or_default();
        self.queue.as_ref().map_or_else(of_settings, |queue| queue.name.to_string())
    }

    /// Whether the settings here define it otherwise than it stands.
    pub(super) fn differs(&self) -> bool {
        match (&self.here, &self.stands) {
            (Some(here), Some(Ok(stands))) => here.fingerprint() != stands.fingerprint(),
            (Some(_), Some(Err(_))) => true,
            _ => false,
        }
    }
}

/// All of them, in order of name and queue, and the Redis clock.
pub(super) async fn all(
    connection: &Connection,
    settings: &Settings,
    queue: Option<&str>,
) -> Result<(UnixMillis, Vec<Found>), Failure> {
    let mut here: Vec<Schedule> = settings.schedules()?;
    here.retain(|schedule| queue.is_none_or(|queue| schedule.queue().as_str() == queue));
    let queues = crate::dead::queues(connection, None).await?;
    let (mut now, mut found) = (UnixMillis(0), Vec::new());
    for definition in queues.iter().filter(|known| queue.is_none_or(|queue| known.name.as_str() == queue)) {
        let (clock, views) = connection.schedules(definition).await?;
        now = clock;
        for view in views {
            let stands = (!view.definition.is_empty()).then(|| {
                Schedule::from_stored(&view.name, &view.definition).map_err(|error| error.to_string())
            });
            let is_it = |one: &Schedule| {
                one.name().as_str() == view.name
                    && one.queue() == &definition.name
                    && partition_of(one.key().as_bytes(), definition.partitions) == view.partition
            };
            let here = here.iter().position(is_it).map(|at| here.remove(at));
            found.push(Found {
                name: view.name.clone(),
                queue: Some(definition.clone()),
                partition: view.partition,
                view: Some(view),
                stands,
                here,
            });
        }
    }
    for schedule in here {
        let queue = queues.iter().find(|queue| &queue.name == schedule.queue()).cloned();
        let partitions = queue.as_ref().map_or(1, |queue| queue.partitions);
        found.push(Found {
            name: schedule.name().to_string(),
            partition: partition_of(schedule.key().as_bytes(), partitions),
            queue,
            view: None,
            stands: None,
            here: Some(schedule),
        });
    }
    found.sort_by_key(|found| (found.name.clone(), found.queue_name(), found.partition));
    Ok((now, found))
}

/// One that an act is meant for, with its partition.
pub(super) struct Target {
    pub(super) found: Found,
    pub(super) keys: PartitionKeys,
    pub(super) now: UnixMillis,
}

/// # Errors
/// There is none of this name, or several.
pub(super) async fn one(
    connection: &Connection,
    settings: &Settings,
    name: &str,
    queue: Option<&str>,
) -> Result<Target, Failure> {
    let (now, mut found) = all(connection, settings, queue).await?;
    found.retain(|found| found.name == name);
    if found.len() > 1 {
        let places: Vec<String> = found
            .iter()
            .map(|found| format!("queue {}, partition {}", found.queue_name(), found.partition))
            .collect();
        let places = places.join("; ");
        let advice = match queue {
            None => "say --queue",
            Some(_) => "it was defined with another key before: `gristmill schedules remove` the old one",
        };
        return Err(Failure::Usage(format!("schedule {name} is there more than once ({places}): {advice}")));
    }
    let none = || {
        Failure::Failed(format!(
            "there is no schedule {name}; `gristmill schedules list` shows those there are"
        ))
    };
    let found = found.pop().ok_or_else(none)?;
    let Some(queue) = &found.queue else {
        let queue = found.queue_name();
        return Err(Failure::Failed(format!("there is no queue {queue} yet; start a node that serves it")));
    };
    Ok(Target { keys: queue.partition(found.partition), found, now })
}
