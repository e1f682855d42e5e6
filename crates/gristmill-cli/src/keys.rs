//! `keys`: keys whose lanes wait, and what a person can do about it.
//!
//! * `blocked`: which keys wait, read slice by slice;
//! * `act`: `keys release` and `keys skip`, noted in the audit log.

pub(crate) mod act;
mod blocked;

use crate::exit::{End, Failure};
use crate::output::{self, Table, when};
use crate::settings::Settings;
use act::ActArguments;
use blocked::{Blocked, Found};
use clap::{Args, Subcommand};
use gristmill_broker::{Mode, QueueDefinition};
use gristmill_job::Key;
use serde_json::{Value, json};

/// Longest reason in a table, in characters; `--json` has all of it.
const WHY_SHOWN: usize = 120;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = AFTER)]
pub(crate) struct KeysArguments {
    #[command(subcommand)]
    pub(crate) act: Option<KeysCommand>,
    /// The queue
    #[arg(required = true)]
    queue: Option<String>,
    /// How many keys at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=1000))]
    limit: u64,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Shown are keys that are held for a person after a dead letter, and keys whose first job was put back, is suspected, or \
came back by a replay; and what is paused of the queue. A key that is not text is shown as 0x… and given with --key-hex. Jobs are counted in a bounded \
part of the partition: `10+` means that there are at least so many.";

#[derive(Subcommand)]
pub(crate) enum KeysCommand {
    /// Let a held key go on, or its first job run now
    Release(ActArguments),
    /// Give up what a key waits for: discard the letter that holds it, or make its first job a dead letter
    Skip(ActArguments),
}

/// A key as people type it.
pub(crate) fn shown(key: &Key) -> String {
    match std::str::from_utf8(key.as_bytes()) {
        Ok(text) => text.to_owned(),
        Err(_) => crate::dead::payload::hex(key.as_bytes()),
    }
}

/// A key as it is typed into a shell, with the flag it needs.
pub(crate) fn typed(key: &Key) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:@%+=,".contains(c);
    match std::str::from_utf8(key.as_bytes()) {
        Ok(text)
            if !text.is_empty() && text.chars().all(|c| plain(c) || c == '-') && !text.starts_with('-') =>
        {
            text.to_owned()
        }
        Ok(text) if !text.is_empty() && !text.starts_with('-') && !text.chars().any(char::is_control) => {
            format!("'{}'", text.replace('\'', "'\\''"))
        }
        _ => {
            let hex: String = key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex} --key-hex")
        }
    }
}

/// The queue of this name.
pub(crate) async fn queue(
    connection: &gristmill_broker::Connection,
    name: &str,
) -> Result<QueueDefinition, Failure> {
    let found = crate::dead::queues(connection, Some(name)).await?.pop();
    found.ok_or_else(|| Failure::Failed(format!("there is no queue {name}; `gristmill queues` lists them")))
}

/// The command.
pub(crate) async fn command(settings: &Settings, arguments: &KeysArguments) -> Result<End, Failure> {
    match &arguments.act {
        Some(KeysCommand::Release(act)) => return act::release(settings, act).await,
        Some(KeysCommand::Skip(act)) => return act::skip(settings, act).await,
        None => {}
    }
    let connection = crate::connect(settings).await?;
    let queue = queue(&connection, arguments.queue.as_deref().unwrap_or_default()).await?;
    let limit = usize::try_from(arguments.limit).unwrap_or(usize::MAX);
    let found = Found::look(&connection, &queue, limit).await?;
    let (now, pauses) = connection.pauses(&queue.name).await?;
    if arguments.json {
        let keys: Vec<Value> = found.keys.iter().map(|key| as_json(key, &found)).collect();
        let paused: Vec<Value> =
            pauses.iter().map(|pause| crate::pause::as_json(&queue.name, pause)).collect();
        let told =
            json!({ "queue": queue.name.as_str(), "keys": keys, "more": found.more, "paused": paused });
        output::print(&told.to_string())?;
        return Ok(End::Done);
    }
    for pause in &pauses {
        output::print(&output::visible(&crate::pause::reason(&queue.name, pause, now).text))?;
    }
    match found.keys.is_empty() {
        true if queue.mode == Mode::None => output::complain(&format!(
            "queue {} keeps no order, so no key of it waits; `gristmill explain JOB` says what a job waits for",
            queue.name
        )),
        true => output::complain(&format!(
            "no key of queue {} waits for anything but {}its turn",
            queue.name,
            if pauses.is_empty() { "" } else { "the end of a pause or " }
        )),
        false => output::print(&table(&found))?,
    }
    if found.more > 0 {
        output::complain(&format!("about {} more keys wait; --limit shows more", found.more));
    }
    Ok(End::Done)
}

fn table(found: &Found) -> String {
    let mut table = Table::new(&["key", "#part", "since", "until", "first place", "#jobs", "why"]);
    for key in &found.keys {
        let since = key.since().map_or_else(|| "-".into(), |since| when(since, found.now));
        let until = match (&key.hold, key.until(found.now)) {
            (Some(_), _) => "a person acts".into(),
            (None, until) => until.map_or_else(|| "-".into(), |until| when(until, found.now)),
        };
        let why: Vec<String> = key.reasons(found.now).into_iter().map(|reason| reason.text).collect();
        table.row(vec![
            shown(&key.key),
            key.partition.to_string(),
            since,
            until,
            key.first().map_or_else(|| "-".into(), |place| place.to_string()),
            format!("{}{}", key.jobs, if key.at_least { "+" } else { "" }),
            output::cut(&why.join("; "), WHY_SHOWN),
        ]);
    }
    table.render()
}

fn as_json(key: &Blocked, found: &Found) -> Value {
    let why: Vec<Value> = key.reasons(found.now).iter().map(crate::reason::Reason::as_json).collect();
    json!({
        "key": shown(&key.key),
        "key_hex": key.key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
        "partition": key.partition,
        "letter": key.hold.as_ref().map(|hold| hold.letter.as_str()),
        "since_ms": key.since().map(|at| at.0),
        "until_ms": key.until(found.now).map(|at| at.0),
        "first_place": key.first().map(|place| place.to_string()),
        "jobs": key.jobs,
        "jobs_at_least": key.at_least,
        "why": why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_typed_so_that_a_shell_takes_it() {
        let of = |bytes: &[u8]| typed(&Key::from_stored(bytes.to_vec().into()));
        for (key, expected) in [
            ("order-7/a:b@c", "order-7/a:b@c"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$(rm)", "'$(rm)'"),
            ("-x", "2d78 --key-hex"),
            ("a\nb", "610a62 --key-hex"),
        ] {
            assert_eq!(of(key.as_bytes()), expected);
        }
        assert_eq!(of(&[0xff, 1]), "ff01 --key-hex");
    }
}
