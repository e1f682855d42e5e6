//! One POST per run: the payload as body, the rest in headers, the outcome from the status.
//!
//! ```text
//!   send ─▶ head ─┬─ 307, 308 to the same host ─▶ send there (at most 3 times)
//!                 ├─ done  ─▶ body, if it is JSON ─▶ answer
//!                 └─ other ─▶ a bit of the body, for the error
//! ```

mod client;
mod retry_after;
pub mod signature;
pub mod status;

use crate::answer;
use crate::config::{HttpConfig, Wrong};
use crate::outcome::{Outcome, Said};
use crate::serve::Job;
use crate::told::Told;
use bytes::Bytes;
use client::Client;
use gristmill_handler::HandlerError;
use gristmill_job::Effects;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::response;
use hyper::{Method, Request, StatusCode, Uri};
use signature::Signer;
use status::StatusTable;
use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often a redirect is followed.
const MAX_REDIRECTS: usize = 3;
/// How much of an answer that is no success is kept with the error.
const KEPT_BYTES: usize = 1000;
/// How long a body is read that decides nothing, so that its connection can be used again.
const LEFTOVER: Duration = Duration::from_secs(1);

/// One kind's address and connections.
pub(crate) struct Http {
    url: Uri,
    client: Client,
    token: Option<HeaderValue>,
    signer: Signer,
    status: StatusTable,
    max_answer_bytes: usize,
}

impl Http {
    pub(crate) fn new(config: &HttpConfig, max_answer_bytes: usize) -> Result<Self, Wrong> {
        let url = address(&config.url).map_err(|expected| {
            // What was meant as an address may hold a password.
            let got =
                if config.url.contains('@') { "one with `@`".into() } else { format!("{:?}", config.url) };
            ("http", expected.to_owned(), got)
        })?;
        let token = config.token.as_ref().map(|token| {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| ("token_file", "visible ASCII".to_owned(), "other bytes".to_owned()))?;
            value.set_sensitive(true);
            Ok::<_, Wrong>(value)
        });
        if config.secrets.iter().any(|secret| secret.len() < signature::MIN_SECRET_BYTES) {
            return Err(("secret_file", "secrets of at least 16 bytes".into(), "a shorter one".into()));
        }
        Ok(Self {
            client: client::new(config, &url)?,
            url,
            token: token.transpose()?,
            signer: Signer::new(&config.secrets),
            status: config.status.clone(),
            max_answer_bytes,
        })
    }

    /// One run, within its hard limit. Dropped, it closes its connection or its stream.
    pub(crate) async fn run(&self, job: Job) -> Result<Effects, HandlerError> {
        let hard = job.limits.hard;
        match tokio::time::timeout(hard, self.ask(&job)).await {
            Ok(answer) => answer,
            Err(_) => {
                let text = format!(
                    "{}: no whole answer within the hard limit of {} ms",
                    self.place(),
                    hard.as_millis()
                );
                Err(HandlerError::timeout(Said::new(text)))
            }
        }
    }

    async fn ask(&self, job: &Job) -> Result<Effects, HandlerError> {
        let mut url = self.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let request = self.request(&url, &job.told, &job.payload)?;
            let (head, body) =
                self.client.request(request).await.map_err(|e| self.no_answer(&e))?.into_parts();
            if !matches!(head.status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT) {
                return self.answered(&head, body).await;
            }
            match same_host(&url, head.headers.get(header::LOCATION)) {
                Some(next) => url = next,
                None => return self.answered(&head, body).await,
            }
            leftover(body, self.max_answer_bytes).await;
        }
        let text = format!("{}: more than {MAX_REDIRECTS} redirects", self.place());
        Err(HandlerError::unknown(Said::new(text)))
    }

    fn request(&self, url: &Uri, told: &Told, body: &Bytes) -> Result<Request<Full<Bytes>>, HandlerError> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(url)
            .header(header::CONTENT_TYPE, told.content_type)
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, concat!("gristmill/", env!("CARGO_PKG_VERSION")))
            .header("idempotency-key", &told.idempotency_key);
        if let Some(headers) = request.headers_mut() {
            self.add_headers(headers, told, body);
        }
        let built = request.body(Full::new(body.clone()));
        built.map_err(|error| {
            HandlerError::permanent(Said::new("the request cannot be made").because(error.to_string()))
        })
    }

    fn add_headers(&self, headers: &mut HeaderMap, told: &Told, body: &Bytes) {
        let mut add = |name: &str, value: &str| {
            // Both are visible ASCII by now; what were not would be left out rather than cut a request in two.
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                headers.insert(name, value);
            }
        };
        for (name, value) in told.fields() {
            add(&format!("gristmill-{name}"), &value);
        }
        for (name, value) in [("traceparent", &told.traceparent), ("tracestate", &told.tracestate)] {
            if let Some(value) = value {
                add(name, value);
            }
        }
        let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        // The dots of what is signed must be told from those of an id.
        let id = told.idempotency_key.replace('.', "%2E");
        if let Some(signature) = self.signer.sign(&id, timestamp, body) {
            add("webhook-id", &id);
            add("webhook-timestamp", &timestamp.to_string());
            add("webhook-signature", &signature);
        }
        if let Some(token) = &self.token {
            headers.insert(header::AUTHORIZATION, token.clone());
        }
    }

    async fn answered(&self, head: &response::Parts, body: Incoming) -> Result<Effects, HandlerError> {
        let outcome = self.status.outcome(head.status.as_u16());
        if outcome == Outcome::Done {
            return self.done(head, body).await;
        }
        let mut text = format!("{} answered {}", self.place(), head.status);
        if head.status.is_redirection()
            && let Some(to) = head.headers.get(header::LOCATION)
        {
            let to: String = String::from_utf8_lossy(to.as_bytes()).chars().take(300).collect();
            text = format!("{text}, a redirect to {to:?}, which is not followed: name the address itself");
        }
        let wait = head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let wait = wait.and_then(|value| retry_after::wait(value, SystemTime::now()));
        let said = Said::new(text).because(excerpt(body).await);
        outcome.end(said, wait)
    }

    async fn done(&self, head: &response::Parts, body: Incoming) -> Result<Effects, HandlerError> {
        if !is_json(&head.headers) {
            leftover(body, self.max_answer_bytes).await;
            return Ok(Effects::none());
        }
        let mut text = Vec::new();
        let mut body = body;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                // Its work is done, but what it asked for is not known: the same request again tells.
                let what = format!("{} answered {}, and its body broke off", self.place(), head.status);
                HandlerError::transient(Said::new(what).because(causes(&error)))
            })?;
            if let Ok(data) = frame.into_data() {
                if text.len() + data.len() > self.max_answer_bytes {
                    let limit = self.max_answer_bytes;
                    let what =
                        format!("{} answered {} with more than {limit} bytes", self.place(), head.status);
                    return Err(HandlerError::permanent(Said::new(what)));
                }
                text.extend_from_slice(&data);
            }
        }
        answer::wrapped(&text, true)
    }

    fn no_answer(&self, error: &hyper_util::client::legacy::Error) -> HandlerError {
        let what = if error.is_connect() { "no connection to" } else { "no answer from" };
        HandlerError::transient(Said::new(format!("{what} {}", self.place())).because(causes(error)))
    }

    /// Without query, which may hold what is nobody's business.
    fn place(&self) -> String {
        let part = |part: Option<&str>| part.unwrap_or_default().to_owned();
        let authority = part(self.url.authority().map(|authority| authority.as_str()));
        format!("{}://{authority}{}", part(self.url.scheme_str()), self.url.path())
    }
}

fn address(text: &str) -> Result<Uri, &'static str> {
    const FORM: &str = "http://host[:port]/path or https://…, without user, password and fragment";
    let url: Uri = text.parse().map_err(|_| FORM)?;
    let legal = matches!(url.scheme_str(), Some("http" | "https"))
        && url
            .authority()
            .is_some_and(|authority| !authority.as_str().contains('@') && !authority.host().is_empty())
        && !text.contains('#');
    if legal { Ok(url) } else { Err(FORM) }
}

/// Where a redirect leads, if that is the same scheme, host and port.
fn same_host(from: &Uri, location: Option<&HeaderValue>) -> Option<Uri> {
    let location = location?.to_str().ok()?;
    let to: Uri = location.parse().ok()?;
    let mut parts = to.into_parts();
    match (&parts.scheme, &parts.authority) {
        (None, None) if location.starts_with('/') && !location.starts_with("//") => {
            parts.scheme = from.scheme().cloned();
            parts.authority = from.authority().cloned();
        }
        (Some(scheme), Some(authority)) => {
            let port =
                |uri_port: Option<u16>, secure: bool| uri_port.unwrap_or(if secure { 443 } else { 80 });
            let secure = from.scheme_str() == Some("https");
            let same = Some(scheme.as_str()) == from.scheme_str()
                && !authority.as_str().contains('@')
                && from.host().is_some_and(|host| host.eq_ignore_ascii_case(authority.host()))
                && port(authority.port_u16(), secure) == port(from.port_u16(), secure);
            if !same {
                return None;
            }
        }
        _ => return None,
    }
    Uri::from_parts(parts).ok()
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || kind.ends_with("+json")
}

/// Reads what decides nothing, for a moment; a connection that says more is closed.
async fn leftover(mut body: Incoming, limit: usize) {
    let read = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, Bytes::len);
            if bytes > limit {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(LEFTOVER, read).await;
}

/// The beginning of a body, as far as it comes in a moment.
async fn excerpt(mut body: Incoming) -> String {
    let mut kept = Vec::new();
    let read = async {
        while kept.len() < KEPT_BYTES
            && let Some(Ok(frame)) = body.frame().await
        {
            kept.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        }
    };
    let _ = tokio::time::timeout(LEFTOVER, read).await;
    kept.truncate(KEPT_BYTES);
    String::from_utf8_lossy(&kept).trim().to_owned()
}

/// The error and what is under it, in one line.
fn causes(error: &(dyn Error + 'static)) -> String {
    let all = std::iter::successors(Some(error), |&error| error.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
