//! How late recurring jobs are.

use gristmill_broker::schedule::ScheduleView;
use gristmill_broker::{CallError, Connection, QueueDefinition};
use gristmill_schedule::Schedule;
use gristmill_telemetry::metrics::Metrics;
use std::time::Duration;

/// How long the oldest slot of each schedule has been overdue; paused and disabled ones have none.
pub(super) type Overdue = Vec<(String, Duration)>;

pub(super) async fn look(connection: &Connection, queue: &QueueDefinition) -> Result<Overdue, CallError> {
    let (now, views) = connection.schedules(queue).await?;
    let late = |view: &ScheduleView| {
        let schedule = Schedule::from_stored(&view.name, &view.definition).ok();
        let fires = schedule.filter(|schedule| schedule.enabled() && view.pause.is_none());
        let late = fires.map_or(0, |schedule| crate::schedules::overdue(view, schedule.timing(), now));
        (view.name.clone(), Duration::from_millis(late))
    };
    Ok(views.iter().map(late).collect())
}

pub(super) fn tell(metrics: &Metrics, queue: &str, overdue: &Overdue) {
    let is_kept = |name: &str| overdue.iter().any(|(schedule, _)| schedule == name);
    // One that was removed has no number.
    metrics.schedule_overdue_seconds.retain(|values| {
        values.first().is_none_or(|of| of != queue) || values.get(1).is_none_or(|name| is_kept(name))
    });
    for (schedule, late) in overdue {
        metrics.schedule_overdue_seconds.with(&[queue, schedule]).set(late.as_secs_f64());
    }
}
