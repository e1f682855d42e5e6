//! The body of a request as jobs, or what is wrong with each; and what became of them.

use crate::config::IngestConfig;
use crate::described;
use crate::response::{Answer, Refusal, json};
use gristmill_broker::{EnqueueError, Enqueued};
use gristmill_job::{EncodedJob, QueueName, TraceContext, UnixMillis};
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::trace::sending::Sending;
use hyper::StatusCode;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::fmt;
use std::time::SystemTime;

/// Bad jobs that are told one by one; more are counted.
const REASONS_TOLD: usize = 100;

/// How jobs lie in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// One object, or an array of them.
    Json,
    /// An object on each line.
    Lines,
}

impl Form {
    /// What the headers say.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        if let Some(coding) = headers.get(CONTENT_ENCODING)
            && !coding.as_bytes().eq_ignore_ascii_case(b"identity")
        {
            return Err(Refusal::wrong_type(&format!("Content-Encoding: {}", shown(coding.as_bytes()))));
        }
        let Some(given) = headers.get(CONTENT_TYPE) else {
            return Err(Refusal::wrong_type("no Content-Type"));
        };
        let wrong = || Refusal::wrong_type(&format!("Content-Type: {}", shown(given.as_bytes())));
        let text = given.to_str().map_err(|_| wrong())?.to_ascii_lowercase();
        let mut parts = text.split(';').map(str::trim);
        let form = match parts.next() {
            Some("application/json") => Self::Json,
            Some(
                "application/x-ndjson"
                | "application/ndjson"
                | "application/jsonl"
                | "application/x-jsonlines",
            ) => Self::Lines,
            _ => return Err(wrong()),
        };
        let utf8 = |part: &str| match part.split_once('=') {
            Some(("charset", set)) => matches!(set.trim_matches('"'), "utf-8" | "utf8"),
            _ => true,
        };
        if parts.all(utf8) { Ok(form) } else { Err(wrong()) }
    }
}

fn shown(bytes: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(bytes).chars().take(80).collect();
    format!("{text:?}")
}

/// Where a job stands in its body.
#[derive(Clone, Copy)]
enum At {
    Line(usize),
    Item(usize),
}

/// What was read so far.
struct Reading<'a> {
    config: &'a IngestConfig,
    target: Target<'a>,
    now: UnixMillis,
    read: Read,
    bad: usize,
    reasons: Vec<Value>,
}

/// Where the jobs go, and what their coming is a part of.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) queue: &'a QueueName,
    pub(crate) around: Option<TraceContext>,
}

/// Jobs that are ready to be enqueued, and their spans, where they are traced.
#[derive(Default)]
pub(crate) struct Read {
    pub(crate) jobs: Vec<EncodedJob>,
    pub(crate) sendings: Vec<Option<Sending>>,
}

/// The jobs of a body, all of them good.
pub(crate) fn read(
    form: Form,
    body: &[u8],
    config: &IngestConfig,
    target: Target<'_>,
) -> Result<Read, Refusal> {
    let now = UnixMillis::from_system(SystemTime::now());
    let mut reading = Reading { config, target, now, read: Read::default(), bad: 0, reasons: Vec::new() };
    match form {
        Form::Lines => reading.lines(body)?,
        Form::Json => reading.document(body)?,
    }
    match (reading.bad, reading.read.jobs.is_empty()) {
        (0, true) => Err(Refusal::bad_request("expected at least one job, got none")),
        (0, false) => Ok(reading.read),
        (bad, _) => Err(Refusal::bad_jobs(bad, reading.reasons)),
    }
}

impl Reading<'_> {
    fn lines(&mut self, body: &[u8]) -> Result<(), Refusal> {
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        for (at, line) in body.split(|byte| *byte == b'\n').enumerate() {
            if !line.trim_ascii().is_empty() {
                self.room()?;
                self.take(At::Line(at + 1), text(line.trim_ascii()));
            }
        }
        Ok(())
    }

    fn document(&mut self, body: &[u8]) -> Result<(), Refusal> {
        let text = text(body).map_err(Refusal::bad_request)?.trim_ascii();
        if !text.starts_with('[') {
            if !text.is_empty() {
                self.take(At::Item(1), Ok(text));
            }
            return Ok(());
        }
        let mut reader = serde_json::Deserializer::from_str(text);
        let items = reader
            .deserialize_seq(Items { most: self.config.max_jobs })
            .and_then(|items| reader.end().map(|()| items))
            .map_err(|error| Refusal::bad_request(described::spoken(error)))?;
        for (at, item) in items.iter().enumerate() {
            self.room()?;
            self.take(At::Item(at + 1), Ok(item.get()));
        }
        Ok(())
    }

    fn room(&self) -> Result<(), Refusal> {
        let most = self.config.max_jobs;
        if self.read.jobs.len() + self.bad < most { Ok(()) } else { Err(Refusal::too_many_jobs(most)) }
    }

    fn take(&mut self, at: At, text: Result<&str, String>) {
        let encoded = text.and_then(|text| {
            let mut job = described::job(text)?;
            let Target { queue, around } = self.target;
            let traces = self.config.telemetry.traces();
            let sending =
                traces.and_then(|traces| traces.send(queue, job.kind.as_str(), &mut job.headers, around));
            let job = job.encode(self.now, self.config.job_limits).map_err(|error| error.to_string())?;
            Ok((job, sending))
        });
        let reason = match encoded {
            Ok((job, sending)) => {
                self.read.jobs.push(job);
                return self.read.sendings.push(sending);
            }
            Err(reason) => reason,
        };
        self.bad += 1;
        if self.reasons.len() < REASONS_TOLD {
            self.reasons.push(match at {
                At::Line(line) => json!({ "line": line, "reason": reason }),
                At::Item(item) => json!({ "item": item, "reason": reason }),
            });
        }
    }
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes)
        .map_err(|error| format!("not UTF-8 text: a wrong byte at column {}", error.valid_up_to() + 1))
}

/// The items of an array as they were written: no more than one beyond `most` is kept, since that is refused anyway.
struct Items {
    most: usize,
}

impl<'de> Visitor<'de> for Items {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of jobs")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut kept = Vec::new();
        while kept.len() <= self.most {
            match items.next_element()? {
                Some(item) => kept.push(item),
                None => return Ok(kept),
            }
        }
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(kept)
    }
}

/// One answer for each job, in their order; the status is that of the first that failed.
pub(crate) fn told(
    queue: &QueueName,
    answers: &[Result<Enqueued, EnqueueError>],
    telemetry: &Telemetry,
) -> Answer {
    for answer in answers {
        telemetry.metrics().ingest_jobs_total.with(&[queue.as_str(), status(answer)]).add(1);
    }
    let jobs: Vec<Value> = answers.iter().map(one).collect();
    let enqueued = answers.iter().flatten().filter(|answer| answer.duplicate_of.is_none()).count();
    let duplicates = answers.iter().flatten().count() - enqueued;
    match answers.iter().find_map(|answer| answer.as_ref().err()) {
        None => {
            let body = json!({
                "queue": queue.as_str(),
                "enqueued": enqueued,
                "duplicates": duplicates,
                "jobs": jobs,
            });
            json(StatusCode::OK, body.to_string())
        }
        Some(error) => Refusal::of_enqueue(error, telemetry).with("jobs", Value::Array(jobs)).into_answer(),
    }
}

fn one(answer: &Result<Enqueued, EnqueueError>) -> Value {
    match answer {
        Ok(Enqueued { id, delayed: Some(member), duplicate_of: None, .. }) => {
            json!({ "status": status(answer), "id": id.to_string(), "place": null, "delayed": member.to_string() })
        }
        Ok(Enqueued { id, place, duplicate_of: None, .. }) => {
            json!({ "status": status(answer), "id": id.to_string(), "place": place.map(|place| place.to_string()) })
        }
        Ok(Enqueued { id, duplicate_of: Some(standing), .. }) => {
            let (word, name) = match standing.split_once(' ') {
                Some((word, name)) => (word, Some(name)),
                None => (standing.as_str(), None),
            };
            json!({ "status": status(answer), "id": id.to_string(), "first": { "standing": word, "name": name } })
        }
        Err(_) => json!({ "status": status(answer) }),
    }
}

/// What became of a job, in a word.
fn status(answer: &Result<Enqueued, EnqueueError>) -> &'static str {
    match answer {
        Ok(Enqueued { duplicate_of: None, .. }) => "enqueued",
        Ok(_) => "duplicate",
        Err(EnqueueError::Call(_)) => "unknown",
        Err(_) => "refused",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn config() -> IngestConfig {
        IngestConfig { max_jobs: 3, ..IngestConfig::new(([127, 0, 0, 1], 0).into()) }
    }

    fn form(content_type: &str) -> Option<Form> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_str(content_type).unwrap());
        Form::of(&headers).ok()
    }

    #[test]
    fn content_types_are_told_apart() {
        assert_eq!(form("application/json"), Some(Form::Json));
        assert_eq!(form("Application/JSON; charset=\"UTF-8\""), Some(Form::Json));
        assert_eq!(form("application/x-ndjson"), Some(Form::Lines));
        for other in ["", "text/plain", "application/json5", "application/json; charset=latin1"] {
            assert_eq!(form(other), None, "{other}");
        }
        assert!(Form::of(&HeaderMap::new()).is_err());
    }

    #[test]
    fn an_array_is_kept_only_as_far_as_it_may_go() {
        let many = format!("[{}1]", "1,".repeat(100_000));
        let mut reader = serde_json::Deserializer::from_str(&many);
        assert_eq!(reader.deserialize_seq(Items { most: 3 }).unwrap().len(), 4);
    }

    #[test]
    fn the_same_jobs_are_read_from_every_form() {
        let job =
            |n: usize| format!("{{\"id\":\"{n}\",\"key\":\"k\",\"kind\":\"x\",\"payload\":[{n}, 1.0]}}");
        let ids = |form, body: &str| {
            let queue = QueueName::new("q").unwrap();
            let target = Target { queue: &queue, around: None };
            let read = read(form, body.as_bytes(), &config(), target).ok().unwrap();
            read.jobs.iter().map(|job| job.id.to_string()).collect::<Vec<_>>().join(",")
        };
        assert_eq!(ids(Form::Json, &format!(" {}\n", job(1))), "1");
        assert_eq!(ids(Form::Json, &format!("[\n{},\n{}]", job(1), job(2))), "1,2");
        assert_eq!(ids(Form::Lines, &format!("\u{feff}{}\r\n\n{}", job(1), job(2))), "1,2");
    }
}
