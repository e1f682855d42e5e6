//! What one line says: a job, or why it is bad.

use crate::args::EnqueueArguments;
use crate::output::cut;
use gristmill_job::{ContentType, EncodedJob, JobLimits, NewJob, UnixMillis};
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// How lines are read.
#[derive(Debug, Clone)]
pub(super) enum Form {
    /// `{id, key, version, kind, payload}`.
    Envelope,
    /// The whole line is the payload; id, key and version are fields of it.
    Payload { kind: String, id: Option<String>, key: String, version: Option<String> },
}

/// A line of the first form. A field that is there with `null` is there.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Described<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    key: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    version: Option<&'a RawValue>,
    #[serde(borrow, default)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl Form {
    pub(super) fn of(arguments: &EnqueueArguments) -> Self {
        match (&arguments.kind, &arguments.key) {
            (Some(kind), Some(key)) => Self::Payload {
                kind: kind.clone(),
                id: arguments.id.clone(),
                key: key.clone(),
                version: arguments.version.clone(),
            },
            _ => Self::Envelope,
        }
    }

    pub(super) fn is_payload(&self) -> bool {
        matches!(self, Self::Payload { .. })
    }

    /// The job of one line, which holds no line end.
    ///
    /// # Errors
    /// Why the line is bad.
    pub(super) fn job(&self, line: &[u8], now: UnixMillis, limits: JobLimits) -> Result<EncodedJob, String> {
        let text = std::str::from_utf8(line)
            .map_err(|error| format!("not UTF-8 text: a wrong byte at column {}", error.valid_up_to() + 1))?;
        if !text.trim_ascii_start().starts_with('{') {
            return Err(format!("expected a JSON object, got {:?}", cut(text, 40)));
        }
        let job = match self {
            Self::Envelope => described(text),
            Self::Payload { kind, id, key, version } => {
                let wanted = [id.as_deref(), Some(key.as_str()), version.as_deref()];
                named(text, wanted, kind)
            }
        }?;
        job.encode(now, limits).map_err(|error| error.to_string())
    }
}

fn described(text: &str) -> Result<NewJob, String> {
    let line: Described<'_> = serde_json::from_str(text).map_err(spoken)?;
    let missing = |field: &str| {
        format!("no field `{field}`; a line has key, kind and payload, and may have id and version")
    };
    let kind = line.kind.ok_or_else(|| missing("kind"))?;
    let key = line.key.ok_or_else(|| missing("key"))?;
    let payload = line.payload.ok_or_else(|| missing("payload"))?;
    let (id, version) = (line.id.map(|raw| (raw, "id")), line.version.map(|raw| (raw, "version")));
    build(&kind, id, (key, "key"), version, payload.get())
}

fn named(text: &str, wanted: [Option<&str>; 3], kind: &str) -> Result<NewJob, String> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let found = Wanted(wanted)
        .deserialize(&mut reader)
        .and_then(|found| reader.end().map(|()| found))
        .map_err(spoken)?;
    let field = |which: usize, what: &str| match (wanted[which], found[which]) {
        (None, _) => Ok(None),
        (Some(name), Some(raw)) => Ok(Some((raw, name))),
        (Some(name), None) => Err(format!("no field `{name}`, which is to hold the {what}")),
    };
    let key = field(1, "key")?.ok_or("no field is named for the key")?;
    build(kind, field(0, "id")?, key, field(2, "version")?, text)
}

type Field<'a> = (&'a RawValue, &'a str);

fn build(
    kind: &str,
    id: Option<Field<'_>>,
    key: Field<'_>,
    version: Option<Field<'_>>,
    payload: &str,
) -> Result<NewJob, String> {
    let key = words(key)?;
    let mut job = NewJob::from_bytes(kind, key.as_bytes(), payload.as_bytes().to_vec(), ContentType::Json)
        .map_err(|error| error.to_string())?;
    if let Some(id) = id {
        job = job.with_id(&words(id)?).map_err(|error| error.to_string())?;
    }
    if let Some((raw, name)) = version {
        let digits = words((raw, name))?;
        let version = digits.parse().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()));
        let wrong = || {
            format!(
                "`{name}` is the version: expected a whole number of 0 or more, got {}",
                cut(raw.get(), 40)
            )
        };
        job = job.with_version(version.ok_or_else(wrong)?);
    }
    Ok(job)
}

/// A text, or a whole number as its digits.
fn words<'a>((raw, name): Field<'a>) -> Result<Cow<'a, str>, String> {
    let raw = raw.get();
    let digits = raw.strip_prefix('-').unwrap_or(raw);
    if raw.starts_with('"') {
        return serde_json::from_str::<Text<'_>>(raw).map(|text| text.0).map_err(spoken);
    }
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(Cow::Borrowed(raw));
    }
    Err(format!("`{name}`: expected a text or a whole number, got {}", cut(raw, 40)))
}

/// Borrowed where the text has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The parser's words; the line is ours to count.
fn spoken(error: serde_json::Error) -> String {
    let text = error.to_string().replace(" at line 1 column ", " at column ");
    let what = if error.is_data() { "" } else { "not JSON: " };
    cut(&format!("{what}{text}"), 200)
}

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
