//! What one line says: a job, or why it is bad. The first form is the one that is sent by HTTP, too.

use crate::args::EnqueueArguments;
use gristmill_ingest::described;
use gristmill_job::{Due, EncodedJob, JobLimits, NewJob, UnixMillis};
use gristmill_telemetry::trace::sending::Sending;
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// How lines are read, and when their jobs are due where they do not say so themselves.
#[derive(Debug, Clone)]
pub(super) struct Form {
    pub(super) shape: Shape,
    pub(super) due: Due,
    /// How long after they became ready they may start.
    pub(super) expires_in: Option<Duration>,
}

/// What a line is.
#[derive(Debug, Clone)]
pub(super) enum Shape {
    /// `{id, key, version, kind, payload}`.
    Envelope,
    /// The whole line is the payload; id, key and version are fields of it.
    Payload { kind: String, id: Option<String>, key: String, version: Option<String> },
}

impl Form {
    pub(super) fn of(arguments: &EnqueueArguments) -> Self {
        let shape = match (&arguments.kind, &arguments.key) {
            (Some(kind), Some(key)) => Shape::Payload {
                kind: kind.clone(),
                id: arguments.id.clone(),
                key: key.clone(),
                version: arguments.version.clone(),
            },
            _ => Shape::Envelope,
        };
        let due = match (arguments.due_in, arguments.at) {
            (Some(delay), _) => Due::In(delay),
            (_, Some(at)) => Due::At(at),
            _ => Due::Now,
        };
        Self { shape, due, expires_in: arguments.expires_in }
    }

    pub(super) fn is_payload(&self) -> bool {
        matches!(self.shape, Shape::Payload { .. })
    }

    /// The job of one line, which holds no line end.
    ///
    /// # Errors
    /// Why the line is bad.
    pub(super) fn job(
        &self,
        line: &[u8],
        now: UnixMillis,
        limits: JobLimits,
        mut traced: impl FnMut(&mut NewJob) -> Option<Sending>,
    ) -> Result<(EncodedJob, Option<Sending>), String> {
        let text = std::str::from_utf8(line)
            .map_err(|error| format!("not UTF-8 text: a wrong byte at column {}", error.valid_up_to() + 1))?;
        let mut job = match &self.shape {
            Shape::Envelope => described::job(text),
            Shape::Payload { kind, id, key, version } => {
                described::object(text)?;
                let wanted = [id.as_deref(), Some(key.as_str()), version.as_deref()];
                named(text, wanted, kind)
            }
        }?;
        if job.due == Due::Now {
            job.due = self.due;
        }
        if let Some(limit) = self.expires_in.filter(|_| job.limits.expires_in_ms.is_none()) {
            job = job.expires_in(limit);
        }
        let sending = traced(&mut job);
        Ok((job.encode(now, limits).map_err(|error| error.to_string())?, sending))
    }
}

fn named(text: &str, wanted: [Option<&str>; 3], kind: &str) -> Result<NewJob, String> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let found = Wanted(wanted)
        .deserialize(&mut reader)
        .and_then(|found| reader.end().map(|()| found))
        .map_err(described::spoken)?;
    let field = |which: usize, what: &str| match (wanted[which], found[which]) {
        (None, _) => Ok(None),
        (Some(name), Some(raw)) => Ok(Some((raw, name))),
        (Some(name), None) => Err(format!("no field `{name}`, which is to hold the {what}")),
    };
    let key = field(1, "key")?.ok_or("no field is named for the key")?;
    described::built(kind, field(0, "id")?, key, field(2, "version")?, text)
}

/// A name, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Picks some fields of an object and reads past the others.
struct Wanted<'w>([Option<&'w str>; 3]);

impl<'de> DeserializeSeed<'de> for Wanted<'_> {
    type Value = [Option<&'de RawValue>; 3];

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Wanted<'_> {
    type Value = [Option<&'de RawValue>; 3];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; 3];
        while let Some(Text(name)) = map.next_key()? {
            let wanted = self.0.map(|wanted| wanted == Some(&*name));
            if !wanted.contains(&true) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value: &RawValue = map.next_value()?;
            for (at, _) in wanted.iter().enumerate().filter(|(_, wanted)| **wanted) {
                if found[at].replace(value).is_some() {
                    return Err(de::Error::custom(format_args!("the field `{name}` is there twice")));
                }
            }
        }
        Ok(found)
    }
}
