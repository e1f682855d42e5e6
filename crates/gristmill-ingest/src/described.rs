//! A job as JSON: `{id, key, version, kind, payload, at, in_ms, expires_in_ms}`, of which `id`, `version`, when it is due and when it expires may be missing. The
//! payload stays as it was written, byte for byte.

use gristmill_job::{ContentType, Due, NewJob, UnixMillis};
use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::time::Duration;

/// A field that is there with `null` is there.
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
    #[serde(borrow, default, deserialize_with = "present")]
    at: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    in_ms: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    expires_in_ms: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// A value as it was written, and the name of its field.
pub type Field<'a> = (&'a RawValue, &'a str);

/// The job that one JSON object describes.
///
/// # Errors
/// What is wrong with it, in words for its producer.
pub fn job(text: &str) -> Result<NewJob, String> {
    object(text)?;
    let job: Described<'_> = serde_json::from_str(text).map_err(spoken)?;
    let missing = |field: &str| {
        format!(
            "no field `{field}`; a job has key, kind and payload, and may have id, version, at or in_ms, and expires_in_ms"
        )
    };
    let kind = job.kind.ok_or_else(|| missing("kind"))?;
    let key = job.key.ok_or_else(|| missing("key"))?;
    let payload = job.payload.ok_or_else(|| missing("payload"))?;
    let (id, version) = (job.id.map(|raw| (raw, "id")), job.version.map(|raw| (raw, "version")));
    let mut built = built(&kind, id, (key, "key"), version, payload.get())?;
    built.due = match (job.at, job.in_ms) {
        (None, None) => Due::Now,
        (Some(at), None) => Due::At(time((at, "at"))?),
        (None, Some(delay)) => Due::In(Duration::from_millis(whole((delay, "in_ms"), "ms from now")?)),
        (Some(_), Some(_)) => return Err("`at` and `in_ms` both say when it is due: leave one out".into()),
    };
    if let Some(limit) = job.expires_in_ms {
        built.limits.expires_in_ms = Some(whole((limit, "expires_in_ms"), "ms")?);
    }
    Ok(built)
}

/// Unix ms, or RFC 3339.
fn time((raw, name): Field<'_>) -> Result<UnixMillis, String> {
    let text = words((raw, name))?;
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return whole((raw, name), "Unix ms").map(UnixMillis);
    }
    UnixMillis::from_rfc3339(&text).map_err(|error| format!("`{name}`: {error}"))
}

fn whole((raw, name): Field<'_>, what: &str) -> Result<u64, String> {
    let digits = words((raw, name))?;
    let number = digits.parse().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()));
    number.ok_or_else(|| {
        format!("`{name}` is {what}: expected a whole number of 0 or more, got {}", cut(raw.get(), 40))
    })
}

/// Whether it begins as an object does; the parser would say the same in the words of its code.
///
/// # Errors
/// What came instead.
pub fn object(text: &str) -> Result<(), String> {
    match text.trim_ascii_start().starts_with('{') {
        true => Ok(()),
        false => Err(format!("expected a JSON object, got {:?}", cut(text, 40))),
    }
}

/// A job of parts, its payload JSON.
///
/// # Errors
/// What is wrong with a part, by its name.
pub fn built(
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
        job = job.with_version(whole((raw, name), "the version")?);
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

/// The parser's words; a single line is its reader's to count.
#[must_use]
pub fn spoken(error: serde_json::Error) -> String {
    let text = error.to_string().replace(" at line 1 column ", " at column ");
    let what = if error.is_data() { "" } else { "not JSON: " };
    cut(&format!("{what}{text}"), 200)
}

/// At most `limit` characters, the last of them an ellipsis where something was cut.
fn cut(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some(_) => text.chars().take(limit.saturating_sub(1)).chain(['…']).collect(),
        None => text.to_owned(),
    }
}
