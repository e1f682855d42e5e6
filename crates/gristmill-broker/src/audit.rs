//! audit: what people did. Each act is noted before it begins and after it ended, under one name, so that an act that
//! was cut short is seen. Advisory: it lies in another slot than what is acted on, and is bounded.

use crate::error::CallError;
use crate::keys::AUDIT;
use crate::lease::acquire::millis;
use crate::link::Connection;
use crate::reply::{self, Words};
use crate::script::AUDIT_NOTE;
use bytes::Bytes;
use gristmill_job::Place;
use redis::Value;
use std::time::Duration;

/// Most entries that are kept; an act has two.
pub const MAX_ENTRIES: usize = 10_000;
/// How long an entry is kept, by the Redis clock.
pub const MAX_AGE: Duration = Duration::from_secs(400 * 24 * 3600);
/// Longest text of one field, in bytes; what is longer is cut.
pub const MAX_TEXT_BYTES: usize = 1000;

/// Longest copy of what an act replaced, in bytes; of what is longer, the beginning.
pub const MAX_ORIGINAL_BYTES: usize = 4096;

/// How far an act had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditStep {
    /// It is about to be done. Where nothing follows, nobody knows how far it came.
    Begun,
    /// It was done.
    Done,
    /// It ended early; what was done until then is counted.
    Failed,
    /// A word of a newer release.
    Other,
}

impl AuditStep {
    /// The word stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Other => "other",
        }
    }

    fn parse(word: &str) -> Self {
        let known = [Self::Begun, Self::Done, Self::Failed];
        known.into_iter().find(|step| step.as_str() == word).unwrap_or(Self::Other)
    }
}

/// One step of an act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// The act's name, the same in all of its steps.
    pub act: String,
    /// Which step.
    pub step: AuditStep,
    /// Who: `user@host`, as that machine says.
    pub who: String,
    /// What: the name of the operation.
    pub what: String,
    /// On what: ids, or the filter.
    pub filter: String,
    /// Why, in that person's words.
    pub reason: String,
    /// How many it was done to, so far.
    pub count: u64,
    /// What it replaced, where it replaced something.
    pub original: Option<Original>,
}

/// Bytes that an act replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Original {
    /// Their beginning, at most [`MAX_ORIGINAL_BYTES`].
    pub start: Bytes,
    /// How many they are.
    pub whole_bytes: u64,
}

impl Original {
    /// As much of them as is kept.
    #[must_use]
    pub fn of(whole: &Bytes) -> Self {
        Self { start: whole.slice(..whole.len().min(MAX_ORIGINAL_BYTES)), whole_bytes: whole.len() as u64 }
    }
}

impl Connection {
    /// Notes a step; answers where it stands in the log. Works when memory is full.
    ///
    /// # Errors
    /// [`CallError`]; a repeat stands there twice.
    pub async fn note(&self, entry: &AuditEntry) -> Result<Place, CallError> {
        let mut script = AUDIT_NOTE.call(&[AUDIT.as_bytes()]);
        script.arg(MAX_ENTRIES).arg(millis(MAX_AGE));
        let texts = [
            ("act", entry.act.as_str()),
            ("step", entry.step.as_str()),
            ("who", entry.who.as_str()),
            ("what", entry.what.as_str()),
            ("filter", entry.filter.as_str()),
            ("reason", entry.reason.as_str()),
        ];
        for (name, text) in texts {
            script.arg(name).arg(cut(text));
        }
        script.arg("count").arg(entry.count);
        if let Some(original) = &entry.original {
            script.arg("original").arg(original.start.as_ref());
            script.arg("original_bytes").arg(original.whole_bytes);
        }
        let mut words = Words::read(self.one(script).await?, "the answer of audit")?;
        if words.tag() != "ok" {
            return Err(words.unknown("ok"));
        }
        let id = words.next_text()?;
        Place::parse(id.as_bytes())
            .ok_or_else(|| CallError::Unexpected(format!("expected a stream id, got {id:?}")))
    }

    /// At most `count` steps, newest first; those before `before`, where it is given. A field that is missing is
    /// empty.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn audit_log(
        &self,
        before: Option<Place>,
        count: usize,
    ) -> Result<Vec<(Place, AuditEntry)>, CallError> {
        let mut range = redis::cmd("XREVRANGE");
        range.arg(AUDIT).arg(before.map_or("+".to_owned(), |before| format!("({before}"))).arg("-");
        range.arg("COUNT").arg(count.max(1));
        reply::list(self.one(range).await?, "audit entries")?.into_iter().map(read).collect()
    }
}

fn read(row: Value) -> Result<(Place, AuditEntry), CallError> {
    let mut row = reply::list(row, "an audit entry")?.into_iter();
    let id = reply::text(row.next().unwrap_or(Value::Nil))?;
    let place = Place::parse(id.as_bytes())
        .ok_or_else(|| CallError::Unexpected(format!("expected a stream id, got {id:?}")))?;
    let mut entry = AuditEntry {
        act: String::new(),
        step: AuditStep::Other,
        who: String::new(),
        what: String::new(),
        filter: String::new(),
        reason: String::new(),
        count: 0,
        original: None,
    };
    let (mut start, mut whole_bytes) = (None, 0);
    let mut fields = reply::list(row.next().unwrap_or(Value::Nil), "fields")?.into_iter();
    while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
        let (name, value) = (reply::bytes(name)?, reply::bytes(value)?);
        if name.as_ref() == b"original" {
            start = Some(value);
            continue;
        }
        let value = String::from_utf8_lossy(&value).into_owned();
        match name.as_ref() {
            b"original_bytes" => whole_bytes = value.parse().unwrap_or(0),
            b"act" => entry.act = value,
            b"step" => entry.step = AuditStep::parse(&value),
            b"who" => entry.who = value,
            b"what" => entry.what = value,
            b"filter" => entry.filter = value,
            b"reason" => entry.reason = value,
            b"count" => entry.count = value.parse().unwrap_or(0),
            _ => {}
        }
    }
    entry.original = start.map(|start| Original { start, whole_bytes });
    Ok((place, entry))
}

/// Whole characters, at most [`MAX_TEXT_BYTES`].
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]
}
