//! `schedules list`: how they stand.

use super::find::{self, Found};
use crate::exit::{End, Failure};
use crate::output::{self, Table, cut, when};
use crate::settings::Settings;
use clap::Args;
use gristmill_broker::schedule::ScheduleView;
use gristmill_job::UnixMillis;
use gristmill_schedule::decide;
use gristmill_schedule::decide::ON_TIME;
use gristmill_schedule::timing::{Timing, moment_text};
use serde_json::{Value, json};

#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct ListArguments {
    /// Only schedules of this queue
    #[arg(long)]
    queue: Option<String>,
    /// How many of the next slots to tell, with --json
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=100))]
    next: u8,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Shown are the schedules that Redis keeps something of, by the definition that stands, and those of the settings here. \
Times are in UTC.";

/// Longest text of a state in a table, in characters; `--json` has all of it.
const STATE_SHOWN: usize = 100;

/// The command.
pub(super) async fn command(settings: &Settings, arguments: &ListArguments) -> Result<End, Failure> {
    let connection = crate::connect(settings).await?;
    let (now, found) = find::all(&connection, settings, arguments.queue.as_deref()).await?;
    if arguments.json {
        let all: Vec<Value> = found.iter().map(|found| as_json(found, now, arguments.next)).collect();
        output::print(&json!({ "now_ms": now.0, "schedules": all }).to_string())?;
    } else if found.is_empty() {
        output::complain("there are no schedules: neither here in the settings, nor kept by nodes in Redis");
    } else {
        output::print(&table(&found, now))?;
    }
    Ok(End::Done)
}

/// A word for programs, words for people.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    word: &'static str,
    text: String,
}

fn state(found: &Found, now: UnixMillis) -> State {
    let state = |word, text: String| State { word, text };
    let Some(view) = &found.view else {
        return state("new", "no node has defined it yet".into());
    };
    if let Some(pause) = &view.pause {
        let text = format!("paused by {} {}: {}", pause.who, when(pause.since, now), pause.reason);
        return state("paused", text);
    }
    let Some(record) = &view.record else {
        return state(
            "unknown",
            "its record cannot be read, or was removed; the nodes that define it make it anew".into(),
        );
    };
    let schedule = match &found.stands {
        Some(Ok(schedule)) => schedule,
        Some(Err(why)) => return state("unknown", format!("its definition is of another release: {why}")),
        None => return state("unknown", "its definition was removed".into()),
    };
    if !view.is_defined(now) {
        let since = when(record.confirmed, now);
        return state("left", format!("no living node defines it; the last did {since}"));
    }
    if !schedule.enabled() {
        return state("disabled", "disabled".into());
    }
    let overdue = overdue(view, schedule.timing(), now);
    if overdue > ON_TIME.as_millis() as u64 {
        let late = output::age(std::time::Duration::from_millis(overdue));
        return state(
            "overdue",
            format!("overdue for {late}: its nodes do not get to it; is its queue full?"),
        );
    }
    match found.differs() {
        true => state(
            "other",
            "fires; the settings here define it otherwise, and nodes have the one before".into(),
        ),
        false => state("fires", "fires".into()),
    }
}

/// How long the oldest slot that nobody dealt with has been due, in ms.
pub(crate) fn overdue(view: &ScheduleView, timing: &Timing, now: UnixMillis) -> u64 {
    let next = view.record.as_ref().and_then(|record| timing.next_after(record.after));
    next.map_or(0, |next| now.0.saturating_sub(next.0))
}

/// The next slots, none where it is paused or disabled.
fn next(found: &Found, now: UnixMillis, count: usize) -> Vec<UnixMillis> {
    let paused = found.view.as_ref().is_some_and(|view| view.pause.is_some());
    let Some(schedule) = found.schedule().filter(|schedule| schedule.enabled() && !paused) else {
        return Vec::new();
    };
    let after = found.view.as_ref().and_then(|view| view.record.as_ref()).map_or(now, |record| record.after);
    let plan = decide(schedule.timing(), schedule.rules(), after, now);
    let later = std::iter::successors(plan.next, |slot| schedule.timing().next_after(*slot));
    plan.due.into_iter().chain(later).take(count).collect()
}

fn last(found: &Found) -> Option<UnixMillis> {
    let record = found.view.as_ref()?.record.as_ref()?;
    (record.fired.0 > 0).then_some(record.fired)
}

fn zone(timing: &Timing) -> &str {
    match timing {
        Timing::Cron(cron) => cron.zone_name(),
        Timing::Every { .. } => "-",
    }
}

fn table(all: &[Found], now: UnixMillis) -> String {
    let mut table = Table::new(&["name", "queue", "kind", "when", "zone", "last", "next", "state"]);
    for found in all {
        let schedule = found.schedule();
        let said = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        table.row(vec![
            found.name.clone(),
            found.queue_name(),
            said(schedule.map(|schedule| schedule.kind().as_str().to_owned())),
            said(schedule.map(|schedule| schedule.timing().to_string())),
            said(schedule.map(|schedule| zone(schedule.timing()).to_owned())),
            said(last(found).map(|slot| when(slot, now))),
            said(
                next(found, now, 1)
                    .first()
                    .map(|slot| format!("{} ({})", moment_text(*slot), when(*slot, now))),
            ),
            cut(&state(found, now).text, STATE_SHOWN),
        ]);
    }
    table.render()
}

fn as_json(found: &Found, now: UnixMillis, count: u8) -> Value {
    let State { word, text } = state(found, now);
    let (schedule, view) = (found.schedule(), found.view.as_ref());
    let record = view.and_then(|view| view.record.as_ref());
    let pause = view.and_then(|view| view.pause.as_ref());
    let next: Vec<u64> = next(found, now, usize::from(count)).iter().map(|slot| slot.0).collect();
    let definition = schedule.and_then(|schedule| serde_json::from_str::<Value>(&schedule.stored()).ok());
    json!({
        "name": found.name,
        "queue": found.queue_name(),
        "partition": found.partition,
        "definition": definition,
        "state": word,
        "why": text,
        "last_ms": last(found).map(|slot| slot.0),
        "last_job": last(found).map(|slot| format!("{}@{slot}", found.name)),
        "next_ms": next,
        "confirmed_ms": record.map(|record| record.confirmed.0),
        "paused": pause.map(|pause| json!({
            "by": pause.who, "since_ms": pause.since.0, "reason": pause.reason,
        })),
        "defined_here": found.here.is_some(),
        "differs_here": found.differs(),
    })
}
