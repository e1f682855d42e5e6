//! `schedules pause`, `resume`, `trigger` and `remove`: done by one call each, and noted in the audit log before and after.

use super::find::{self, Target};
use crate::audit::Act;
use crate::dead::choice::said;
use crate::exit::{End, Failure};
use crate::output::{self, when};
use crate::settings::Settings;
use clap::Args;
use gristmill_broker::schedule::pause_schedule::PausedSchedule;
use gristmill_broker::schedule::remove_schedule::RemovedSchedule;
use gristmill_broker::{Broker, Connection};
use gristmill_job::{JobId, NewJob};
use gristmill_schedule::Schedule;
use serde_json::json;

#[derive(Args)]
pub(crate) struct NameArguments {
    /// The schedule
    name: String,
    /// Its queue, where several have one of this name
    #[arg(long)]
    queue: Option<String>,
    /// Why, for the audit log and, of a pause, for `schedules list`; pause needs it
    #[arg(long, value_name = "TEXT", value_parser = said)]
    reason: Option<String>,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// The result as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct PauseArguments {
    #[command(flatten)]
    of: NameArguments,
}

#[derive(Args)]
pub(crate) struct TriggerArguments {
    #[command(flatten)]
    of: NameArguments,
}

#[derive(Args)]
pub(crate) struct RemoveArguments {
    #[command(flatten)]
    of: NameArguments,
    /// Needed to remove: where nodes still define it, its slots begin anew, now
    #[arg(long)]
    yes: bool,
}

impl NameArguments {
    async fn target(&self, settings: &Settings) -> Result<(Connection, Target), Failure> {
        let connection = crate::connect(settings).await?;
        let target = find::one(&connection, settings, &self.name, self.queue.as_deref()).await?;
        Ok((connection, target))
    }

    fn act(&self, what: &str, target: &Target) -> Act {
        let filter = format!("queue={} schedule={}", target.found.queue_name(), self.name);
        Act::new(what, filter, self.reason.as_deref().unwrap_or_default())
    }

    /// The result: a word for programs, words for people; bad where nothing was done.
    fn told(&self, target: &Target, result: &str, text: &str, job: Option<&JobId>) -> Result<End, Failure> {
        match self.json {
            true => {
                let told = json!({
                    "schedule": self.name,
                    "queue": target.found.queue_name(),
                    "result": result,
                    "text": text,
                    "job": job.map(ToString::to_string),
                });
                output::print(&told.to_string())?;
            }
            false => output::print(text)?,
        }
        Ok(if result == "nothing" { End::Bad } else { End::Done })
    }
}

pub(super) async fn pause(
    settings: &Settings,
    PauseArguments { of }: &PauseArguments,
) -> Result<End, Failure> {
    let Some(reason) = &of.reason else {
        return Err(Failure::Usage("say why: --reason TEXT; `schedules list` shows it to others".into()));
    };
    let (connection, target) = of.target(settings).await?;
    if let Some(pause) = target.found.view.as_ref().and_then(|view| view.pause.as_ref()) {
        let since = when(pause.since, target.now);
        let text =
            format!("schedule {} is paused already, by {} {since}: {}", of.name, pause.who, pause.reason);
        return of.told(&target, "nothing", &text, None);
    }
    if of.dry_run {
        let text = format!("schedule {} would be paused", of.name);
        return of.told(&target, "would_pause", &text, None);
    }
    let act = of.act("schedules pause", &target);
    act.begin(&connection).await?;
    let done = connection.pause_schedule(&target.keys, &of.name, act.who(), reason).await;
    let count = u64::from(matches!(done, Ok(PausedSchedule::Paused(_))));
    act.end(&connection, count, done.is_ok()).await;
    let text = match done? {
        PausedSchedule::Paused(_) => {
            format!("paused: no slot of schedule {} is fired until it is resumed", of.name)
        }
        PausedSchedule::Already(pause) => {
            let text = format!("schedule {} was just paused by {}: {}", of.name, pause.who, pause.reason);
            return of.told(&target, "nothing", &text, None);
        }
    };
    of.told(&target, "paused", &text, None)
}

pub(super) async fn resume(settings: &Settings, of: &NameArguments) -> Result<End, Failure> {
    let (connection, target) = of.target(settings).await?;
    let nothing = format!("schedule {} is not paused", of.name);
    if target.found.view.as_ref().is_none_or(|view| view.pause.is_none()) {
        return of.told(&target, "nothing", &nothing, None);
    }
    if of.dry_run {
        let text = format!("schedule {} would be resumed", of.name);
        return of.told(&target, "would_resume", &text, None);
    }
    let act = of.act("schedules resume", &target);
    act.begin(&connection).await?;
    let done = connection.resume_schedule(&target.keys, &of.name).await;
    act.end(&connection, u64::from(matches!(done, Ok(Some(_)))), done.is_ok()).await;
    let Some(pause) = done? else { return of.told(&target, "nothing", &nothing, None) };
    let since = when(pause.since, target.now);
    let text = format!(
        "resumed: schedule {} was paused by {} {since}; slots since then are not made up",
        of.name, pause.who
    );
    of.told(&target, "resumed", &text, None)
}

pub(super) async fn trigger(
    settings: &Settings,
    TriggerArguments { of }: &TriggerArguments,
) -> Result<End, Failure> {
    let (connection, target) = of.target(settings).await?;
    let Some(schedule) = target.found.schedule() else {
        return Err(Failure::Failed(format!("the definition of schedule {} cannot be read", of.name)));
    };
    let job = triggered(schedule, &target)?;
    if of.dry_run {
        let text = format!(
            "a job of kind {} would be enqueued in queue {} now",
            schedule.kind().as_str(),
            schedule.queue()
        );
        return of.told(&target, "would_trigger", &text, None);
    }
    let act = of.act("schedules trigger", &target);
    act.begin(&connection).await?;
    let broker = Broker::connect(settings.redis()?);
    let enqueued = broker.enqueue(schedule.queue(), job).await;
    act.end(&connection, u64::from(enqueued.is_ok()), enqueued.is_ok()).await;
    let id = enqueued.map_err(|error| Failure::Failed(error.to_string()))?.id;
    let text = format!("triggered: job {id}; `gristmill explain {id}` tells what becomes of it");
    of.told(&target, "triggered", &text, Some(&id))
}

/// Like the job of a slot that were now, under an id of its own.
fn triggered(schedule: &Schedule, target: &Target) -> Result<NewJob, Failure> {
    let job = schedule.job(target.now).map_err(|error| Failure::Failed(error.to_string()))?;
    let id = format!("{}@trigger-{}", schedule.name(), JobId::generate());
    job.with_id(&id).map_err(|error| Failure::Failed(error.to_string()))
}

pub(super) async fn remove(
    settings: &Settings,
    RemoveArguments { of, yes }: &RemoveArguments,
) -> Result<End, Failure> {
    if !yes && !of.dry_run {
        let why = "what is kept of a schedule is lost (its jobs stay): look with --dry-run, then say --yes";
        return Err(Failure::Usage(why.into()));
    }
    let (connection, target) = of.target(settings).await?;
    let Some(view) = &target.found.view else {
        let text = format!("nothing is kept of schedule {}: it stands in the settings here alone", of.name);
        return of.told(&target, "nothing", &text, None);
    };
    let again = match view.is_defined(target.now) {
        true => "; nodes define it still: its slots begin anew, now",
        false => "",
    };
    if of.dry_run {
        let text = format!("what is kept of schedule {} would be removed{again}", of.name);
        return of.told(&target, "would_remove", &text, None);
    }
    let act = of.act("schedules remove", &target);
    act.begin(&connection).await?;
    let done = connection.remove_schedule(&target.keys, &of.name, true).await;
    act.end(&connection, u64::from(done == Ok(RemovedSchedule::Removed)), done.is_ok()).await;
    match done? {
        RemovedSchedule::Removed => {
            let text = format!("removed: nothing is kept of schedule {} any more{again}", of.name);
            of.told(&target, "removed", &text, None)
        }
        RemovedSchedule::Stands { .. } | RemovedSchedule::Nothing => {
            let text = format!("nothing is kept of schedule {} any more", of.name);
            of.told(&target, "nothing", &text, None)
        }
    }
}
