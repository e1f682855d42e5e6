//! Every response there is: a status, a code for programs and words for people. `openapi.json` lists the same.

use bytes::Bytes;
use gristmill_broker::{CallError, EnqueueError};
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::events::others::{RequestFailed, RequestUnanswered};
use http_body_util::Full;
use hyper::header::{
    ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// After so many seconds a queue that is full may have room.
const FULL_RETRY_SECONDS: u16 = 1;
/// After so many seconds Redis may be back.
const AWAY_RETRY_SECONDS: u16 = 2;

pub(crate) type Answer = Response<Full<Bytes>>;

/// A JSON document with a status.
pub(crate) fn json(status: StatusCode, body: String) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Why something was not done.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    more: Map<String, Value>,
}

impl Refusal {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), headers: Vec::new(), more: Map::new() }
    }

    fn header(mut self, name: HeaderName, value: impl Into<HeaderValue>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// With a member beside `error`.
    pub(crate) fn with(mut self, name: &str, value: Value) -> Self {
        self.more.insert(name.into(), value);
        self
    }

    pub(crate) fn unknown_path() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "unknown_path",
            "there is nothing here; GET /v1/openapi.json tells what there is",
        )
    }

    pub(crate) fn wrong_method(allowed: &'static str) -> Self {
        let message = format!("here only {allowed} is known");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message)
            .header(ALLOW, HeaderValue::from_static(allowed))
    }

    pub(crate) fn unauthorized() -> Self {
        let message = "expected `Authorization: Bearer TOKEN` with a token of this server";
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
            .header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
    }

    pub(crate) fn unknown_queue(name: &str) -> Self {
        let message = format!("there is no queue {name:?}; a node that serves it makes it");
        Self::new(StatusCode::NOT_FOUND, "unknown_queue", message)
    }

    pub(crate) fn unknown_job(message: String) -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown_job", message)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    pub(crate) fn broken_body(what: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "broken_body", format!("the body broke off: {what}"))
            .header(CONNECTION, HeaderValue::from_static("close"))
    }

    pub(crate) fn bad_jobs(bad: usize, reasons: Vec<Value>) -> Self {
        let message = format!("{bad} of the jobs cannot be; none was enqueued");
        Self::new(StatusCode::BAD_REQUEST, "bad_jobs", message)
            .with("bad", json!(bad))
            .with("reasons", Value::Array(reasons))
    }

    pub(crate) fn slow_body(time: Duration) -> Self {
        let message = format!("the body was not whole within {} ms", time.as_millis());
        Self::new(StatusCode::REQUEST_TIMEOUT, "slow_body", message)
            .header(CONNECTION, HeaderValue::from_static("close"))
    }

    pub(crate) fn body_too_large(limit: usize) -> Self {
        let message = format!("a body may have {limit} bytes; send fewer jobs at a time");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
            .header(CONNECTION, HeaderValue::from_static("close"))
    }

    pub(crate) fn too_many_jobs(limit: usize) -> Self {
        let message = format!("a request may carry {limit} jobs; none was enqueued");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_many_jobs", message)
    }

    pub(crate) fn wrong_type(got: &str) -> Self {
        let message = format!(
            "expected application/json (a job, or an array of jobs) or application/x-ndjson (a job on each line), in UTF-8 \
             and not compressed, got {got}"
        );
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "wrong_type", message)
    }

    pub(crate) fn busy() -> Self {
        let message = "too many other requests are under way; nothing was done";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message).header(RETRY_AFTER, FULL_RETRY_SECONDS)
    }

    /// Redis did not do what it was asked to.
    pub(crate) fn of_call(error: &CallError, telemetry: &Telemetry) -> Self {
        match error {
            CallError::OutOfMemory(_) => {
                Self::away("out_of_memory", "Redis is out of memory; try again when the backlog is less")
            }
            CallError::Unexpected(_) | CallError::NoGroup(_) => {
                telemetry.tell(&RequestFailed { error });
                Self::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "unexpected",
                    "Redis answered what cannot be; the log of this server says more",
                )
            }
            _ => {
                telemetry.tell(&RequestUnanswered { error });
                Self::away("redis_away", "Redis does not answer; try again")
            }
        }
    }

    /// Jobs were not enqueued, or may not have been.
    pub(crate) fn of_enqueue(error: &EnqueueError, telemetry: &Telemetry) -> Self {
        match error {
            EnqueueError::NoQueue(queue) => Self::unknown_queue(queue.as_str()),
            EnqueueError::Full { .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", error.to_string())
                    .header(RETRY_AFTER, FULL_RETRY_SECONDS)
            }
            EnqueueError::Differs { .. } => {
                Self::away("queue_changed", "the queue was made again with other partitions; try again")
            }
            EnqueueError::TooFar { .. } => Self::bad_request(error.to_string()),
            EnqueueError::Encode { error, .. } => Self::bad_request(error.to_string()),
            EnqueueError::Call(error) => Self::of_call(error, telemetry),
        }
    }

    fn away(code: &'static str, message: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message).header(RETRY_AFTER, AWAY_RETRY_SECONDS)
    }

    pub(crate) fn into_answer(self) -> Answer {
        let mut body = self.more;
        body.insert("error".into(), json!({ "code": self.code, "message": self.message }));
        let mut response = json(self.status, Value::Object(body).to_string());
        response.headers_mut().extend(self.headers);
        response
    }
}
