//! `keys release` and `keys skip`: looked up, done by one script each, and noted in the audit log before and after.

use super::{blocked, shown};
use crate::audit::Act;
use crate::dead::choice::said;
use crate::exit::{End, Failure};
use crate::output::{self, when};
use crate::settings::Settings;
use clap::Args;
use gristmill_broker::release_key::ReleasedKey;
use gristmill_broker::skip::{Skip, Skipped, WaitsFor};
use gristmill_broker::state::Request;
use gristmill_broker::waiting::HeldKey;
use gristmill_broker::{Connection, PartitionKeys, QueueDefinition, StateLine};
use gristmill_job::{JobId, Key, Place, UnixMillis, partition_of};
use serde_json::json;

#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct ActArguments {
    /// The queue
    queue: String,
    /// The key, as `keys` shows it
    key: String,
    /// KEY is given in hex digits: for keys that are no text
    #[arg(long)]
    key_hex: bool,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT", value_parser = said)]
    reason: Option<String>,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Needed to skip: what is skipped is given up
    #[arg(long)]
    yes: bool,
    /// The result as one JSON object
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
A held key: `release` lets it go on and its letter stays dead, to be replayed or discarded; `skip` discards the letter \
too. A key whose first job waits to be due: `release` makes it due now; `skip` makes it a dead letter, and the jobs \
behind it go on. The node that owns the partition does so within a second. What waits for nothing is left (exit code 1).";

/// A key as it stands.
struct Lane {
    queue: QueueDefinition,
    partition: u16,
    keys: PartitionKeys,
    key: Key,
    hold: Option<HeldKey>,
    /// Its first job that waits to be due.
    waits: Option<(Place, StateLine)>,
    /// Who owns the partition now.
    owner: Option<String>,
    now: UnixMillis,
}

impl Lane {
    async fn look(connection: &Connection, arguments: &ActArguments) -> Result<Self, Failure> {
        let queue = super::queue(connection, &arguments.queue).await?;
        let key = arguments.key()?;
        let partition = partition_of(key.as_bytes(), queue.partitions);
        let keys = queue.partition(partition);
        let hold = connection.hold_of(&keys, &key).await?;
        let (mut waits, mut cursor): (Option<(Place, StateLine)>, u64) = (None, 0);
        loop {
            let slice = connection.stored_lines(&keys, cursor).await?;
            for stored in slice.items {
                let is_it = stored.key.as_ref() == Some(&key)
                    && blocked::waits(&stored.line, slice.now)
                    && (stored.line.due_ms > slice.now.0 || stored.line.request.is_some());
                if is_it && waits.as_ref().is_none_or(|(place, _)| stored.place < *place) {
                    waits = Some((stored.place, stored.line));
                }
            }
            cursor = slice.next;
            if cursor == 0 {
                break;
            }
        }
        let views = connection.partitions(&queue).await?;
        let view = views.into_iter().find(|view| view.partition == partition).unwrap_or_default();
        let owner = (!view.owner.is_empty() && view.expires > view.now).then_some(view.owner);
        Ok(Self { queue, partition, keys, key, hold, waits, owner, now: view.now })
    }

    /// What happens next, and by whom.
    fn next(&self, what: &str) -> String {
        let partition = self.partition;
        match &self.owner {
            Some(owner) => format!("node {owner}, which owns partition {partition}, {what} within a second"),
            None => format!("nobody owns partition {partition} now: whoever takes it {what} then"),
        }
    }

    fn nothing(&self) -> String {
        format!(
            "key {} of queue {} is not held, and no job of it waits to be due; `gristmill keys {}` lists those that are",
            shown(&self.key),
            self.queue.name,
            self.queue.name
        )
    }
}

impl ActArguments {
    /// # Errors
    /// What was expected, and what came.
    fn key(&self) -> Result<Key, Failure> {
        key_of(&self.key, self.key_hex)
    }

    fn act(&self, what: &str) -> Act {
        let hex = if self.key_hex { " key-hex" } else { "" };
        let filter = format!("queue={} key={}{hex}", self.queue, self.key);
        Act::new(what, filter, self.reason.as_deref().unwrap_or_default())
    }
}

/// A key as it was typed.
///
/// # Errors
/// What was expected, and what came.
pub(crate) fn key_of(typed: &str, hex: bool) -> Result<Key, Failure> {
    let usage = |why: String| Err(Failure::Usage(why));
    if typed.is_empty() {
        return usage("expected a key, got an empty text".into());
    }
    if !hex {
        return Ok(Key::from_stored(typed.to_owned().into_bytes().into()));
    }
    let digits = typed.strip_prefix("0x").unwrap_or(typed);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
    match bytes.filter(|_| digits.len().is_multiple_of(2) && digits.bytes().all(|b| b.is_ascii_hexdigit())) {
        Some(bytes) if !bytes.is_empty() => Ok(Key::from_stored(bytes.into())),
        _ => usage(format!("expected an even number of hex digits for --key-hex, got {typed:?}")),
    }
}

/// What became of an act, in both forms.
struct Told {
    result: &'static str,
    letter: Option<String>,
    place: Option<Place>,
    text: String,
}

impl Told {
    fn new(result: &'static str, text: String) -> Self {
        Self { result, letter: None, place: None, text }
    }

    fn print(self, lane: &Lane, json: bool) -> Result<End, Failure> {
        let end = if matches!(self.result, "nothing" | "changed") { End::Bad } else { End::Done };
        if json {
            let told = json!({
                "result": self.result,
                "letter": self.letter,
                "place": self.place.map(|place| place.to_string()),
                "partition": lane.partition,
                "owner": lane.owner,
            });
            output::print(&told.to_string())?;
        } else if end == End::Done {
            output::print(&output::visible(&self.text))?;
        }
        if end == End::Bad {
            output::complain(&output::visible(&self.text));
        }
        Ok(end)
    }
}

/// `keys release`.
pub(crate) async fn release(settings: &Settings, arguments: &ActArguments) -> Result<End, Failure> {
    arguments.key()?;
    let connection = crate::connect(settings).await?;
    let lane = Lane::look(&connection, arguments).await?;
    let (key, waits) = (shown(&lane.key), lane.waits.as_ref().map(|(place, _)| *place));
    if arguments.dry_run {
        let told = match (&lane.hold, &lane.waits) {
            (Some(hold), _) => Told {
                letter: Some(hold.letter.clone()),
                ..Told::new(
                    "would_release",
                    format!("key {key} would no longer wait for dead letter {}", hold.letter),
                )
            },
            (None, Some((place, line))) => {
                let due = when(UnixMillis(line.due_ms), lane.now);
                let text = format!("job {place} of key {key}, due {due}, would be due now");
                Told { place: Some(*place), ..Told::new("would_wake", text) }
            }
            (None, None) => Told::new("nothing", lane.nothing()),
        };
        return told.print(&lane, arguments.json);
    }
    let act = arguments.act("keys release");
    act.begin(&connection).await?;
    // A hold alone is ended where there is one: a repeat must not wake what waits behind it.
    let done = connection.release_key(&lane.keys, &lane.key, waits.filter(|_| lane.hold.is_none())).await;
    let count = u64::from(matches!(done, Ok(ReleasedKey::Released { .. } | ReleasedKey::Woken)));
    act.end(&connection, count, done.is_ok()).await;
    let told = match done? {
        ReleasedKey::Released { letter } => {
            let next = lane.next("goes on with it");
            let text = format!(
                "released: key {key} no longer waits for dead letter {letter}, which stays dead until it is replayed or \
                 discarded; {next}"
            );
            Told { letter: Some(letter), ..Told::new("released", text) }
        }
        ReleasedKey::Woken => {
            let place = waits.map_or_else(String::new, |place| place.to_string());
            let text = format!("woken: job {place} of key {key} is due; {}", lane.next("runs it"));
            Told { place: waits, ..Told::new("woken", text) }
        }
        ReleasedKey::Nothing => Told::new("nothing", lane.nothing()),
    };
    told.print(&lane, arguments.json)
}

/// `keys skip`.
pub(crate) async fn skip(settings: &Settings, arguments: &ActArguments) -> Result<End, Failure> {
    arguments.key()?;
    if !arguments.yes && !arguments.dry_run {
        return Err(Failure::Usage(
            "what is skipped is given up: look with --dry-run, then say --yes".into(),
        ));
    }
    let connection = crate::connect(settings).await?;
    let lane = Lane::look(&connection, arguments).await?;
    let key = shown(&lane.key);
    let waits_for = match (&lane.hold, &lane.waits) {
        (Some(hold), _) => WaitsFor::Letter {
            letter: hold.letter.clone(),
            place: hold.place.unwrap_or_default(),
            job: whose(&connection, &lane, &hold.letter).await?,
        },
        (None, Some((place, _))) => WaitsFor::Job(*place),
        (None, None) => return Told::new("nothing", lane.nothing()).print(&lane, arguments.json),
    };
    if arguments.dry_run {
        let told = match &waits_for {
            WaitsFor::Letter { letter, .. } => Told {
                letter: Some(letter.clone()),
                ..Told::new(
                    "would_discard",
                    format!("dead letter {letter} would be discarded, and key {key} would go on"),
                )
            },
            WaitsFor::Job(place) => {
                let text =
                    format!("job {place} of key {key} would become a dead letter, and the key would go on");
                Told { place: Some(*place), ..Told::new("would_ask", text) }
            }
        };
        return told.print(&lane, arguments.json);
    }
    let act = arguments.act("keys skip");
    act.begin(&connection).await?;
    let asked_before = lane.waits.as_ref().is_some_and(|(_, line)| line.request == Some(Request::Skip));
    let skip = Skip { key: lane.key.clone(), waits_for };
    let window_ms = settings.seen_window_ms(&lane.queue.name);
    let done = connection.skip(&lane.keys, window_ms, &skip).await;
    let count = u64::from(matches!(done, Ok(Skipped::Discarded { .. } | Skipped::Asked)));
    act.end(&connection, count, done.is_ok()).await;
    let told = match done? {
        Skipped::Discarded { letter } => {
            let next = lane.next("goes on with the key");
            let text = format!("skipped: dead letter {letter} is discarded; {next}");
            Told { letter: Some(letter), ..Told::new("discarded", text) }
        }
        Skipped::Asked => {
            let place = lane.waits.as_ref().map(|(place, _)| *place);
            let before = if asked_before { " (somebody had asked before)" } else { "" };
            let shown = place.map_or_else(String::new, |place| place.to_string());
            let next = lane.next("makes it a dead letter and goes on");
            Told {
                place,
                ..Told::new("asked", format!("asked: job {shown} of key {key} is given up{before}; {next}"))
            }
        }
        Skipped::Changed { letter } => {
            let text = format!(
                "key {key} now waits for another dead letter, {letter}; look again, nothing was done"
            );
            Told { letter: Some(letter), ..Told::new("changed", text) }
        }
        Skipped::Nothing => Told::new("nothing", lane.nothing()),
    };
    told.print(&lane, arguments.json)
}

/// Whose letter it is; `None` where its record cannot tell.
async fn whose(connection: &Connection, lane: &Lane, letter: &str) -> Result<Option<JobId>, Failure> {
    let found = connection.dead_find(&lane.queue, letter.as_bytes()).await?;
    let found = found.into_iter().find(|found| found.position.partition == lane.partition);
    Ok(found.and_then(|found| found.letter.ok()).map(|letter| JobId::from_stored(letter.job.into())))
}
