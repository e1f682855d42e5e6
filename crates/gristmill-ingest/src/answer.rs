//! The table of paths, who may ask, and one response for every request.

use crate::body;
use crate::config::IngestConfig;
use crate::explain::{Explain, ExplainError};
use crate::jobs::{self, Form};
use crate::response::{Answer, Refusal, json};
use crate::tokens::Tokens;
use gristmill_broker::Broker;
use gristmill_job::trace::TRACEPARENT;
use gristmill_job::{QueueName, TraceContext};
use hyper::body::{Body, Incoming};
use hyper::header::{AUTHORIZATION, EXPECT, HeaderMap};
use hyper::{Method, Request, StatusCode};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Bodies that may be in memory at a time, all as large as they may be.
const LARGEST_BODIES: usize = 16;
/// What room is counted in.
const ROOM_BYTES: usize = 1024;
/// Explanations that are looked for at a time: each may read much.
const EXPLANATIONS: usize = 4;

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) config: IngestConfig,
    pub(crate) broker: Broker,
    pub(crate) tokens: Option<Tokens>,
    explain: Arc<dyn Explain>,
    room: Semaphore,
    explanations: Semaphore,
}

impl Shared {
    pub(crate) fn new(
        config: IngestConfig,
        broker: Broker,
        tokens: Option<Tokens>,
        explain: Arc<dyn Explain>,
    ) -> Self {
        let room = Semaphore::new(LARGEST_BODIES * rooms(config.max_body_bytes) as usize);
        Self { config, broker, tokens, explain, room, explanations: Semaphore::new(EXPLANATIONS) }
    }
}

fn rooms(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(ROOM_BYTES).max(1)).unwrap_or(u32::MAX)
}

enum Path {
    Jobs { queue: String },
    Job { id: String },
    OpenApi,
}

impl Path {
    fn of(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.strip_prefix("/v1/")?.split('/').collect();
        match parts[..] {
            ["queues", queue, "jobs"] => Some(Self::Jobs { queue: decoded(queue)? }),
            ["jobs", id] if !id.is_empty() => Some(Self::Job { id: decoded(id)? }),
            ["openapi.json"] => Some(Self::OpenApi),
            _ => None,
        }
    }

    fn method(&self) -> (Method, &'static str) {
        match self {
            Self::Jobs { .. } => (Method::POST, "POST"),
            Self::Job { .. } | Self::OpenApi => (Method::GET, "GET"),
        }
    }
}

/// The response to a request, whatever it is.
pub(crate) async fn answer(shared: &Shared, request: Request<Incoming>) -> Answer {
    let (head, mut body) = request.into_parts();
    let answered = async {
        let path = Path::of(head.uri.path()).ok_or_else(Refusal::unknown_path)?;
        let (method, allowed) = path.method();
        if head.method != method {
            return Err(Refusal::wrong_method(allowed));
        }
        match path {
            Path::OpenApi => Ok(json(StatusCode::OK, crate::OPENAPI.to_owned())),
            Path::Jobs { queue } => {
                authorized(shared, &head.headers)?;
                post(shared, &queue, &head.headers, &mut body).await
            }
            Path::Job { id } => {
                authorized(shared, &head.headers)?;
                explain(shared, id, head.uri.query()).await
            }
        }
    };
    match answered.await {
        Ok(answer) => answer,
        Err(refusal) => {
            // A sender that waits to be asked for its body is not asked.
            if !head.headers.contains_key(EXPECT) {
                body::past(&mut body).await;
            }
            refusal.into_answer()
        }
    }
}

fn authorized(shared: &Shared, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(tokens) = &shared.tokens else { return Ok(()) };
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let token = given.next().and_then(|value| match value.as_bytes().split_at_checked(7) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => Some(token.trim_ascii()),
        _ => None,
    });
    match (token, given.next()) {
        (Some(token), None) if tokens.allow(token) => Ok(()),
        _ => Err(Refusal::unauthorized()),
    }
}

async fn post(
    shared: &Shared,
    queue: &str,
    headers: &HeaderMap,
    body: &mut Incoming,
) -> Result<Answer, Refusal> {
    let queue = QueueName::new(queue).map_err(|_| Refusal::unknown_queue(queue))?;
    let form = Form::of(headers)?;
    let limit = shared.config.max_body_bytes;
    let declared = body.size_hint().exact().map_or(Ok(limit), usize::try_from);
    let bytes =
        declared.ok().filter(|bytes| *bytes <= limit).ok_or_else(|| Refusal::body_too_large(limit))?;
    let _room = shared.room.try_acquire_many(rooms(bytes)).map_err(|_| Refusal::busy())?;
    let bytes = body::whole(body, limit, shared.config.body_timeout).await?;
    let around = headers.get(TRACEPARENT).and_then(|value| TraceContext::parse(value.to_str().ok()?));
    let jobs::Read { jobs, sendings } =
        jobs::read(form, &bytes, &shared.config, jobs::Target { queue: &queue, around })?;
    drop(bytes);
    let answers = shared.broker.enqueue_each(&queue, jobs).await;
    let answers = answers.map_err(|error| Refusal::of_enqueue(&error, &shared.config.telemetry))?;
    shared.broker.sent(sendings, &answers);
    Ok(jobs::told(&queue, &answers, &shared.config.telemetry))
}

async fn explain(shared: &Shared, job: String, query: Option<&str>) -> Result<Answer, Refusal> {
    let queue = match query {
        None | Some("") => None,
        Some(query) => match query.split_once('=').map(|(name, value)| (name, decoded(value))) {
            Some(("queue", Some(name))) => {
                Some(QueueName::new(&name).map_err(|_| Refusal::unknown_queue(&name))?)
            }
            _ => return Err(Refusal::bad_request("expected no query, or ?queue=NAME")),
        },
    };
    let _one = shared.explanations.try_acquire().map_err(|_| Refusal::busy())?;
    match shared.explain.explain(job, queue).await {
        Ok(told) => Ok(json(StatusCode::OK, told.to_string())),
        Err(ExplainError::NoQueue(queue)) => Err(Refusal::unknown_queue(queue.as_str())),
        Err(ExplainError::Question(why)) => Err(Refusal::bad_request(why)),
        Err(ExplainError::NotFound(why)) => Err(Refusal::unknown_job(why)),
        Err(ExplainError::Call(error)) => Err(Refusal::of_call(&error, &shared.config.telemetry)),
    }
}

/// A part of a path with its `%XX` read; `None` where they are none, or the text is not UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_read_and_broken_ones_are_none() {
        assert_eq!(decoded("a%2Fb%c3%A9+"), Some("a/b\u{e9}+".into()));
        for bad in ["%", "%2", "%zz", "%ff", "a%+1"] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
    }

    #[test]
    fn room_is_counted_upwards() {
        assert_eq!((rooms(0), rooms(1), rooms(1024), rooms(1025)), (1, 1, 1, 2));
    }
}
