//! `dead show`: one letter in full.

use super::{lossy, payload};
use crate::exit::{End, Failure};
use crate::history;
use crate::output::{self, Lines, age};
use crate::settings::Settings;
use bytes::Bytes;
use clap::Args;
use gristmill_broker::dead::DeadFound;
use gristmill_broker::{Connection, QueueDefinition};
use gristmill_job::{DeadLetter, Envelope, UnixMillis};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use std::time::SystemTime;

#[derive(Args)]
pub(crate) struct ShowArguments {
    /// The letter's id, as `dead list` shows it
    id: String,
    /// Only look in this queue
    #[arg(long)]
    queue: Option<String>,
    /// Nothing but the bytes of its envelope, as they are
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Fields of the record that are shown under their own names; others are of a newer release.
const KNOWN: &[&str] = &[
    "job", "key", "envelope", "place", "turn", "reason", "error", "class", "attempts", "node", "at",
    "history", "crashes", "replays", "traces", "kind", "version",
];

/// The command.
pub(crate) async fn command(settings: &Settings, arguments: &ShowArguments) -> Result<End, Failure> {
    let connection = crate::connect(settings).await?;
    let queues = super::queues(&connection, arguments.queue.as_deref()).await?;
    let id = &arguments.id;
    let Some(found) = super::find(&connection, &queues, id).await? else {
        return Err(Failure::Failed(super::none_has(id, "`gristmill dead list` shows those there are")));
    };
    if arguments.raw {
        return match &found.letter {
            Ok(letter) => {
                output::write(&letter.envelope)?;
                Ok(End::Done)
            }
            Err(why) => Err(Failure::Failed(format!("letter {id} has no envelope to show: {why}"))),
        };
    }
    let now = UnixMillis::from_system(SystemTime::now());
    let original = original(&connection, &queues, &found).await?;
    let original = original.as_deref();
    let text = if arguments.json { as_json(&found, original)? } else { as_text(&found, original, now)? };
    output::print(&text)?;
    Ok(End::Done)
}

/// The envelope it had before a person edited it.
async fn original(
    connection: &Connection,
    queues: &[QueueDefinition],
    found: &DeadFound,
) -> Result<Option<Bytes>, Failure> {
    let place = found.letter.as_ref().ok().and_then(|letter| letter.place.parse().ok());
    let queue = queues.iter().find(|queue| queue.name == found.position.queue);
    let (Some(place), Some(queue)) = (place, queue) else { return Ok(None) };
    Ok(connection.original(&queue.partition(found.position.partition), place).await?)
}

/// The record's fields that this release has no name for, and its words as they stand there.
fn record(found: &DeadFound) -> Map<String, Value> {
    match payload::from_messagepack(&found.record) {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// The reason as written, also where it is a word of a newer release.
fn reason(letter: &DeadLetter, record: &Map<String, Value>) -> String {
    record.get("reason").and_then(Value::as_str).unwrap_or(letter.reason.as_str()).to_owned()
}

fn as_json(found: &DeadFound, original: Option<&[u8]>) -> Result<String, Failure> {
    let position = &found.position;
    let mut shown = Object::default();
    shown.put("id", &lossy(&position.id))?;
    shown.put("queue", &position.queue.as_str())?;
    shown.put("partition", &position.partition)?;
    shown.put("at_ms", &position.at.0)?;
    let letter = match &found.letter {
        Ok(letter) => letter,
        Err(why) => {
            shown.put("unreadable", why)?;
            if !found.record.is_empty() {
                shown.put("record", &payload::hex(&found.record))?;
            }
            return Ok(shown.text());
        }
    };
    let record = record(found);
    shown.put("job", &lossy(&letter.job))?;
    shown.put("key", &lossy(&letter.key))?;
    shown.put("reason", &reason(letter, &record))?;
    shown.put("class", &letter.class)?;
    shown.put("error", &letter.error)?;
    shown.put("attempts", &letter.attempts)?;
    shown.put("turn", &letter.turn)?;
    shown.put("place", &letter.place)?;
    shown.put("node", &letter.node)?;
    shown.put("replays", &letter.replays)?;
    shown.put("history", &history::attempts_json(&letter.history))?;
    shown.put("crashes", &history::crashes_json(&letter.crashes))?;
    shown.put("traces", &letter.traces)?;
    for (name, value) in record.iter().filter(|(name, _)| !KNOWN.contains(&name.as_str())) {
        shown.put(name, value)?;
    }
    shown.put("envelope", &inside_of(&letter.envelope)?)?;
    match original {
        Some(original) => shown.put("original_envelope", &inside_of(original)?)?,
        None => shown.put("original_envelope", &Value::Null)?,
    }
    Ok(shown.text())
}

/// An envelope, its payload decoded.
fn inside_of(bytes: &[u8]) -> Result<Box<RawValue>, Failure> {
    let mut inside = Object::default();
    inside.put("bytes", &bytes.len())?;
    match Envelope::decode(bytes, usize::MAX) {
        Ok(envelope) => {
            inside.put("kind", &envelope.kind)?;
            inside.put("version", &envelope.version)?;
            inside.put("enqueued_at_ms", &envelope.enqueued_at.0)?;
            inside.put("own_id", &envelope.own_id)?;
            inside.put("max_attempts", &envelope.limits.max_attempts)?;
            let headers = envelope.headers.iter().map(|(name, value)| json!([name, value]));
            inside.put("headers", &headers.collect::<Vec<_>>())?;
            let payload = payload::show(envelope.payload, envelope.content_type).map_err(unwritable)?;
            inside.put("payload_bytes", &envelope.payload.len())?;
            inside.put("payload_form", &payload.form)?;
            inside.put("payload", &payload.value)?;
        }
        Err(why) => {
            inside.put("undecodable", &why.to_string())?;
            inside.put("hex", &payload::hex(bytes))?;
        }
    }
    inside.raw()
}

fn as_text(found: &DeadFound, original: Option<&[u8]>, now: UnixMillis) -> Result<String, Failure> {
    let position = &found.position;
    let mut lines = Lines::default();
    let ago = |at: UnixMillis| format!("{at} ms ({} ago)", age(at.age_at(now)));
    lines.put("letter", &lossy(&position.id));
    lines.put("queue", &format!("{}, partition {}", position.queue, position.partition));
    lines.put("died at", &ago(position.at));
    let letter = match &found.letter {
        Ok(letter) => letter,
        Err(why) => {
            lines.put("unreadable", why);
            if !found.record.is_empty() {
                lines.put("record", &payload::hex(&found.record));
            }
            return Ok(lines.text());
        }
    };
    let record = record(found);
    lines.put("job", &lossy(&letter.job));
    lines.put("key", &lossy(&letter.key));
    lines.put("reason", &reason(letter, &record));
    lines.put("class", letter.class.as_deref().unwrap_or("-"));
    for (n, error) in letter.error.iter().enumerate() {
        lines.put(if n == 0 { "error" } else { "  because" }, error);
    }
    lines.put("attempts", &letter.attempts.to_string());
    lines.put("turn", &letter.turn.to_string());
    lines.put("place", &letter.place);
    lines.put("node", &letter.node);
    if letter.replays > 0 {
        lines.put("replays", &letter.replays.to_string());
    }
    for line in history::attempts_text(&letter.history, now) {
        lines.put("attempt", &line);
    }
    for line in history::crashes_text(&letter.crashes, now) {
        lines.put("crash", &line);
    }
    for trace in &letter.traces {
        lines.put("trace", trace);
    }
    for (name, value) in record.iter().filter(|(name, _)| !KNOWN.contains(&name.as_str())) {
        lines.put(name, &value.to_string());
    }
    match Envelope::decode(&letter.envelope, usize::MAX) {
        Ok(envelope) => {
            lines.put("kind", envelope.kind);
            lines.put("version", &envelope.version.to_string());
            lines.put("enqueued at", &ago(envelope.enqueued_at));
            lines.put("id is", if envelope.own_id { "the producer's" } else { "ours" });
            if let Some(most) = envelope.limits.max_attempts {
                lines.put("at most", &format!("{most} attempts"));
            }
            for (name, value) in &envelope.headers {
                lines.put("header", &format!("{name}: {value}"));
            }
            let payload = payload::show(envelope.payload, envelope.content_type).map_err(unwritable)?;
            lines.put("payload", &format!("{} bytes, {}", envelope.payload.len(), payload.form));
            lines.block(&pretty(payload.form, &payload.value));
        }
        Err(why) => {
            lines.put("envelope", &format!("{} bytes; {why}", letter.envelope.len()));
            lines.block(&payload::hex(&letter.envelope));
        }
    }
    let Some(original) = original else { return Ok(lines.text()) };
    match Envelope::decode(original, usize::MAX) {
        Ok(envelope) => {
            let payload = payload::show(envelope.payload, envelope.content_type).map_err(unwritable)?;
            lines.put(
                "edited",
                &format!("its first payload: {} bytes, {}", envelope.payload.len(), payload.form),
            );
            lines.block(&pretty(payload.form, &payload.value));
        }
        Err(why) => {
            lines.put("edited", &format!("its first envelope: {} bytes; {why}", original.len()));
            lines.block(&payload::hex(original));
        }
    }
    Ok(lines.text())
}

/// MessagePack laid out; JSON as it came, and hex, stay as they are.
fn pretty(form: &str, value: &RawValue) -> String {
    let parsed = || serde_json::from_str::<Value>(value.get());
    match (form, parsed()) {
        ("messagepack", Ok(value)) => {
            serde_json::to_string_pretty(&value).unwrap_or_else(|_| value.to_string())
        }
        ("bytes", Ok(Value::String(hex))) => hex,
        _ => value.get().to_owned(),
    }
}

fn unwritable(error: serde_json::Error) -> Failure {
    Failure::Failed(format!("the payload cannot be shown: {error}; --raw shows its envelope's bytes"))
}

/// An object whose fields stay in the order in which they were put.
#[derive(Default)]
struct Object(String);

impl Object {
    fn put(&mut self, name: &str, value: &(impl serde::Serialize + ?Sized)) -> Result<(), Failure> {
        let value = to_raw_value(value).map_err(unwritable)?;
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.0.push_str(&format!("{}:{}", Value::from(name), value.get()));
        Ok(())
    }

    fn text(self) -> String {
        self.0 + "}"
    }

    fn raw(self) -> Result<Box<RawValue>, Failure> {
        RawValue::from_string(self.text()).map_err(unwritable)
    }
}
