//! `pause`, `resume`, `pauses`: nothing of a queue, a kind or a key starts until somebody resumes it, or an end has come. Noted in
//! the audit log.

use crate::audit::Act;
use crate::dead::choice::said;
use crate::dead::filter::duration;
use crate::exit::{End, Failure};
use crate::keys::{act::key_of, shown, typed};
use crate::output::{self, Table, when};
use crate::reason::Reason;
use crate::settings::Settings;
use clap::Args;
use gristmill_broker::pause::{MAX_PAUSE, MAX_PAUSES, Pause, Paused, Target};
use gristmill_broker::said::Said;
use gristmill_job::{Kind, QueueName, UnixMillis};
use serde_json::{Value, json};
use std::time::Duration;

/// Longest reason in a table, in characters; `--json` has all of it.
const WHY_SHOWN: usize = 80;

#[derive(Args)]
pub(crate) struct Of {
    /// The queue
    queue: String,
    /// Only jobs of this kind
    #[arg(long, value_name = "NAME", conflicts_with = "key")]
    kind: Option<String>,
    /// Only jobs of this key
    #[arg(long)]
    key: Option<String>,
    /// KEY is given in hex digits: for keys that are no text
    #[arg(long, requires = "key")]
    key_hex: bool,
}

#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct PauseArguments {
    #[command(flatten)]
    of: Of,
    /// Why; `explain`, `pauses` and the audit log show it
    #[arg(long, value_name = "TEXT", value_parser = said)]
    reason: String,
    /// For how long, such as 90s, 15m or 2h; without it until somebody resumes it
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    length: Option<Duration>,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// The result as one JSON object
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Every node hears of it within a beat (lease.renewal_ms), and before it starts anything after a restart, a take-over or a \
reconnect. What runs goes on; what is paused does not start, and jobs are accepted. Of a paused queue nothing is claimed. A job \
of a paused kind that stands first of its key stops its key, and no other. An end comes by the clock of Redis. Paused once more: \
the end and the reason are the new ones.";

#[derive(Args)]
pub(crate) struct ResumeArguments {
    #[command(flatten)]
    of: Of,
    /// Why, for the audit log
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
pub(crate) struct PausesArguments {
    /// Only of this queue
    queue: Option<String>,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

impl Of {
    /// # Errors
    /// What was expected, and what came.
    fn target(&self) -> Result<Target, Failure> {
        match (&self.kind, &self.key) {
            (Some(kind), _) => match Kind::new(kind) {
                Ok(kind) => Ok(Target::Kind(kind.as_str().to_owned())),
                Err(error) => Err(Failure::Usage(format!("--kind: {error}"))),
            },
            (None, Some(key)) => Ok(Target::Key(key_of(key, self.key_hex)?)),
            (None, None) => Ok(Target::Queue),
        }
    }

    fn filter(&self, target: &Target) -> String {
        match target {
            Target::Queue => format!("queue={}", self.queue),
            Target::Kind(kind) => format!("queue={} kind={kind}", self.queue),
            Target::Key(key) => format!("queue={} key={}", self.queue, shown(key)),
        }
    }
}

/// What is paused, as people say it.
fn words(queue: &QueueName, target: &Target) -> String {
    match target {
        Target::Queue => format!("queue {queue}"),
        Target::Kind(kind) => format!("kind {kind} of queue {queue}"),
        Target::Key(key) => format!("key {} of queue {queue}", shown(key)),
    }
}

/// The command that ends a pause.
pub(crate) fn resume_with(queue: &QueueName, target: &Target) -> String {
    match target {
        Target::Queue => format!("gristmill resume {queue}"),
        Target::Kind(kind) => format!("gristmill resume {queue} --kind {kind}"),
        Target::Key(key) => format!("gristmill resume {queue} --key {}", typed(key)),
    }
}

/// Why a job that this pause stops does not start.
pub(crate) fn reason(queue: &QueueName, pause: &Pause, now: UnixMillis) -> Reason {
    let text = format!("{}; `{}`", stands(queue, pause, now), resume_with(queue, &pause.target));
    Reason { until: pause.until, ..Reason::new("paused", text) }
}

/// What is paused, by whom, until when, and why.
pub(crate) fn stands(queue: &QueueName, pause: &Pause, now: UnixMillis) -> String {
    let Pause { target, since, until, said } = pause;
    let ends = until.map_or_else(
        || "until somebody resumes it".into(),
        |until| format!("until {} ms ({})", until.0, when(until, now)),
    );
    let why = if said.why.is_empty() { String::new() } else { format!(", because: {}", said.why) };
    format!(
        "{} is paused by {} since {} ms ({}), {ends}{why}",
        words(queue, target),
        said.who,
        since.0,
        when(*since, now)
    )
}

/// A pause as JSON.
pub(crate) fn as_json(queue: &QueueName, pause: &Pause) -> Value {
    let (what, name) = match &pause.target {
        Target::Queue => ("queue", None),
        Target::Kind(kind) => ("kind", Some(kind.clone())),
        Target::Key(key) => ("key", Some(shown(key))),
    };
    json!({
        "queue": queue.as_str(),
        "what": what,
        "name": name,
        "since_ms": pause.since.0,
        "until_ms": pause.until.map(|until| until.0),
        "who": pause.said.who,
        "reason": pause.said.why,
    })
}

/// `pause`.
pub(crate) async fn pause(settings: &Settings, arguments: &PauseArguments) -> Result<End, Failure> {
    let PauseArguments { of, reason, length, dry_run, json } = arguments;
    let target = of.target()?;
    if length.is_some_and(|length| length.is_zero() || length > MAX_PAUSE) {
        let most = MAX_PAUSE.as_secs() / 86400;
        return Err(Failure::Usage(format!("--for: expected more than 0 and at most {most}d")));
    }
    let connection = crate::connect(settings).await?;
    let queue = crate::keys::queue(&connection, &of.queue).await?.name;
    let what = words(&queue, &target);
    if *dry_run {
        let (now, pauses) = connection.pauses(&queue).await?;
        let before = pauses.iter().find(|pause| pause.target == target);
        if *json {
            let before = before.map(|pause| as_json(&queue, pause));
            output::print(&json!({ "result": "would_pause", "paused_now": before }).to_string())?;
        } else {
            let stands = before
                .map_or_else(String::new, |pause| format!("; now {}", self::reason(&queue, pause, now).text));
            output::print(&output::visible(&format!("{what} would be paused{stands}")))?;
        }
        return Ok(End::Done);
    }
    let act = Act::new("pause", of.filter(&target), reason);
    let said = Said::new(act.who(), reason);
    act.begin(&connection).await?;
    let done = connection.pause(&queue, &target, *length, &said).await;
    let count = u64::from(matches!(done, Ok(Paused::Paused { .. })));
    act.end(&connection, count, done.is_ok()).await;
    let Paused::Paused { since, until, again } = done? else {
        return Err(Failure::Failed(format!(
            "queue {queue} has {MAX_PAUSES} pauses, and every node reads all of them all the time: resume some, or pause a kind"
        )));
    };
    if *json {
        let pause = Pause { target, since, until, said };
        let mut told = as_json(&queue, &pause);
        if let Value::Object(told) = &mut told {
            told.insert("result".into(), json!("paused"));
            told.insert("again".into(), json!(again));
        }
        output::print(&told.to_string())?;
    } else {
        let ends = until.map_or_else(
            || format!("until `{}`", resume_with(&queue, &target)),
            |until| format!("until {} ms by the clock of Redis", until.0),
        );
        let before = if again { ", as it was before" } else { "" };
        output::print(&output::visible(&format!(
            "paused: {what}{before}, {ends}; nodes heed it within a beat, what runs goes on"
        )))?;
    }
    Ok(End::Done)
}

/// `resume`.
pub(crate) async fn resume(settings: &Settings, arguments: &ResumeArguments) -> Result<End, Failure> {
    let ResumeArguments { of, reason, dry_run, json } = arguments;
    let target = of.target()?;
    let connection = crate::connect(settings).await?;
    let queue = crate::keys::queue(&connection, &of.queue).await?.name;
    let what = words(&queue, &target);
    let (result, pause) = if *dry_run {
        let (_, pauses) = connection.pauses(&queue).await?;
        ("would_resume", pauses.into_iter().find(|pause| pause.target == target))
    } else {
        let act = Act::new("resume", of.filter(&target), reason.as_deref().unwrap_or_default());
        act.begin(&connection).await?;
        let done = connection.resume(&queue, &target).await;
        act.end(&connection, u64::from(matches!(done, Ok(Some(_)))), done.is_ok()).await;
        ("resumed", done?)
    };
    let result = if pause.is_some() { result } else { "nothing" };
    if *json {
        let was = pause.as_ref().map(|pause| as_json(&queue, pause));
        output::print(&json!({ "result": result, "was": was }).to_string())?;
    }
    match pause {
        Some(pause) if !*json => {
            let (who, why) = (&pause.said.who, &pause.said.why);
            let word = if *dry_run { "would be resumed" } else { "is resumed" };
            output::print(&output::visible(&format!("{what} {word}; {who} had paused it, because: {why}")))?;
        }
        Some(_) => {}
        None => {
            output::complain(&output::visible(&format!(
                "{what} is not paused; `gristmill pauses {queue}` lists what is"
            )));
            return Ok(End::Bad);
        }
    }
    Ok(End::Done)
}

/// `pauses`.
pub(crate) async fn pauses(settings: &Settings, arguments: &PausesArguments) -> Result<End, Failure> {
    let connection = crate::connect(settings).await?;
    let queues = crate::dead::queues(&connection, arguments.queue.as_deref()).await?;
    let (mut all, mut table) =
        (Vec::new(), Table::new(&["queue", "what", "name", "since", "until", "who", "reason"]));
    for queue in queues {
        let (now, pauses) = connection.pauses(&queue.name).await?;
        for pause in pauses {
            let json = as_json(&queue.name, &pause);
            let text = |field: &str| json[field].as_str().unwrap_or("-").to_owned();
            table.row(vec![
                queue.name.to_string(),
                text("what"),
                text("name"),
                when(pause.since, now),
                pause.until.map_or_else(|| "resumed".into(), |until| when(until, now)),
                text("who"),
                output::cut(&text("reason"), WHY_SHOWN),
            ]);
            all.push(json);
        }
    }
    if arguments.json {
        output::print(&json!({ "pauses": all }).to_string())?;
    } else if all.is_empty() {
        output::complain("nothing is paused");
    } else {
        output::print(&table.render())?;
    }
    Ok(End::Done)
}
