//! The JSON in which a handler may say more than done: effects, jobs to emit, a snooze, or another outcome.
//!
//! A line of a process that stays is such an object by itself. In the body of an HTTP answer and in the last line of
//! standard output it is the member `gristmill` of an object, so that what a handler says anyway means nothing here.

use crate::outcome::{Outcome, Said};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use gristmill_handler::HandlerError;
use gristmill_job::{ContentType, Due, Effects, EntityChange, Limits, NewJob, QueueName, UnixMillis};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest wait that an answer may ask for; more is cut to it.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(24 * 3600);

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    id: Option<String>,
    outcome: Option<String>,
    error: Option<String>,
    retry_after_ms: Option<u64>,
    snooze_ms: Option<u64>,
    #[serde(borrow)]
    state: Option<&'a RawValue>,
    state_base64: Option<String>,
    #[serde(default)]
    delete: bool,
    #[serde(borrow, default)]
    emit: Vec<Emitted<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Emitted<'a> {
    queue: String,
    kind: String,
    key: String,
    #[serde(default)]
    version: u64,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    max_attempts: Option<u32>,
    at: Option<At>,
    in_ms: Option<u64>,
}

/// When an emitted job is due.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a time such as 2026-12-24T08:00:00Z, or Unix ms")]
enum At {
    Ms(u64),
    Text(String),
}

/// The object in which `gristmill` is looked for; other members are the handler's own.
#[derive(Deserialize)]
struct Wrapped<'a> {
    #[serde(borrow)]
    gristmill: Option<&'a RawValue>,
}

/// What a body or a last line says. JSON without a member `gristmill` says nothing: done. So does what is no JSON,
/// unless it was to be (`must_parse`) or speaks of us.
pub(crate) fn wrapped(text: &[u8], must_parse: bool) -> Result<Effects, HandlerError> {
    let text = text.trim_ascii();
    let parsed = match text.first() {
        // A list would be read as the members in order.
        Some(b'{') => serde_json::from_slice::<Wrapped<'_>>(text).map(|wrapped| wrapped.gristmill),
        _ => serde_json::from_slice::<&RawValue>(text).map(|_| None),
    };
    match parsed {
        Ok(None) => Ok(Effects::none()),
        Err(_) if text.is_empty() => Ok(Effects::none()),
        Err(error) if must_parse || text.windows(11).any(|part| part == b"\"gristmill\"") => {
            Err(refused(&format!("JSON, got {} bytes that are none: {error}", text.len())))
        }
        Err(_) => Ok(Effects::none()),
        Ok(Some(inner)) => read(inner.get().as_bytes()).and_then(|(id, answer)| match id {
            None => answer,
            Some(_) => Err(refused("no member `id`, which belongs to lines")),
        }),
    }
}

/// What the line of a process that stays says to the job `id`.
///
/// # Errors
/// The outer error: the process and this program are out of step, and it must not be asked again.
pub(crate) fn line(text: &[u8], id: &str) -> Result<Result<Effects, HandlerError>, Said> {
    let out_of_step = |got: String| {
        Said::new(format!(
            "the process answered out of step: expected a line of JSON whose id is {id:?}, got {got}"
        ))
    };
    #[derive(Deserialize)]
    struct Named {
        id: Option<String>,
    }
    if text.trim_ascii().first() != Some(&b'{') {
        return Err(out_of_step(format!("{} bytes that are no object", text.len())));
    }
    match serde_json::from_slice::<Named>(text) {
        Err(error) => Err(out_of_step(format!("{} bytes that are none: {error}", text.len()))),
        Ok(Named { id: None }) => Err(out_of_step("one without id".into())),
        Ok(Named { id: Some(other) }) if other != id => {
            Err(out_of_step(format!("{:?}", other.chars().take(300).collect::<String>())))
        }
        Ok(_) => Ok(read(text).and_then(|(_, answer)| answer)),
    }
}

type Answered = Result<Effects, HandlerError>;

fn read(text: &[u8]) -> Result<(Option<String>, Answered), HandlerError> {
    if text.first() != Some(&b'{') {
        return Err(refused("an object"));
    }
    let wire: Wire<'_> = serde_json::from_slice(text).map_err(|error| refused(&error.to_string()))?;
    let id = wire.id.clone();
    Ok((id, end(wire)))
}

fn end(wire: Wire<'_>) -> Answered {
    let word = wire.outcome.as_deref().unwrap_or("done");
    let outcome = Outcome::parse(word)
        .ok_or_else(|| refused(&format!("`outcome` to be {}, got {word:?}", Outcome::WORDS)))?;
    let has_effects =
        wire.state.is_some() || wire.state_base64.is_some() || wire.delete || !wire.emit.is_empty();
    let wait = |ms: u64| Duration::from_millis(ms).min(MAX_WAIT);
    if let Some(ms) = wire.snooze_ms {
        if has_effects || wire.outcome.is_some() || wire.error.is_some() || wire.retry_after_ms.is_some() {
            return Err(refused("`snooze_ms` alone: a job that runs again has no outcome and no effect yet"));
        }
        return Err(HandlerError::snooze(wait(ms)));
    }
    if outcome != Outcome::Done {
        if has_effects {
            return Err(refused(&format!(
                "no effects beside the outcome {word}: they are written with `done` alone"
            )));
        }
        let said = Said::new(format!("the handler says {word}")).because(wire.error.unwrap_or_default());
        return outcome.end(said, wire.retry_after_ms.map(wait));
    }
    if wire.error.is_some() || wire.retry_after_ms.is_some() {
        return Err(refused("`error` and `retry_after_ms` beside another outcome than done"));
    }
    let state = match (wire.state, wire.state_base64, wire.delete) {
        (None, None, false) => None,
        (Some(json), None, false) => Some(EntityChange::Put(Bytes::copy_from_slice(json.get().as_bytes()))),
        (None, Some(text), false) => {
            let bytes =
                STANDARD.decode(text).map_err(|e| refused(&format!("`state_base64` to be base64: {e}")))?;
            Some(EntityChange::Put(bytes.into()))
        }
        (None, None, true) => Some(EntityChange::Delete),
        _ => return Err(refused("one of `state`, `state_base64` and `delete`")),
    };
    let emit = wire
        .emit
        .into_iter()
        .enumerate()
        .map(|(at, emitted)| job(emitted).map_err(|why| refused(&format!("`emit`, number {at}: {why}"))));
    Ok(Effects { entity: state, emit: emit.collect::<Result<_, _>>()? })
}

fn job(emitted: Emitted<'_>) -> Result<(QueueName, NewJob), String> {
    let text = |error: gristmill_job::NameError| error.to_string();
    let queue = QueueName::new(&emitted.queue).map_err(text)?;
    let payload = emitted.payload.map_or("null", RawValue::get).as_bytes().to_vec();
    let mut job = NewJob::from_bytes(&emitted.kind, &emitted.key, payload, ContentType::Json)
        .map_err(|error| error.to_string())?
        .with_version(emitted.version);
    job.headers = emitted.headers.into_iter().collect();
    job.limits = Limits { max_attempts: emitted.max_attempts, ..Limits::default() };
    job.due = match (emitted.at, emitted.in_ms) {
        (None, None) => Due::Now,
        (Some(At::Ms(ms)), None) => Due::At(UnixMillis(ms)),
        (Some(At::Text(text)), None) => {
            Due::At(UnixMillis::from_rfc3339(&text).map_err(|error| format!("`at`: {error}"))?)
        }
        (None, Some(ms)) => Due::In(Duration::from_millis(ms)),
        (Some(_), Some(_)) => return Err("one of `at` and `in_ms`".to_owned()),
    };
    Ok((queue, job))
}

/// The handler ran, and would say the same again.
fn refused(expected: &str) -> HandlerError {
    HandlerError::permanent(Said::new(format!("the handler's answer cannot be: expected {expected}")))
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
