//! What is said about a kind that is served from outside. [`Remote::new`](crate::Remote::new) refuses what cannot be.

use crate::exec::exit::ExitTable;
use crate::http::status::StatusTable;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// One kind and how it is served.
#[derive(Debug, Clone)]
pub struct KindConfig {
    /// The kind.
    pub kind: String,
    /// By whom.
    pub way: Way,
    /// How long a run may take.
    pub limits: Limits,
    /// How many runs of this kind at a time; as many as the node has slots where it says nothing. Runs above it wait,
    /// in slots of the node; their limits count from when they begin.
    pub concurrency: Option<usize>,
    /// Largest answer that is read, in bytes.
    pub max_answer_bytes: usize,
    /// Payloads in MessagePack are handed over as JSON.
    pub as_json: bool,
    /// After an interrupted run a person decides (`KindOptions::review`).
    pub review: bool,
}

/// How long a run may take, from when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Then a command is asked to end, by SIGTERM; an HTTP request is not told.
    pub soft: Option<Duration>,
    /// Then it is stopped: class `timeout`.
    pub hard: Duration,
}

/// By whom a kind is served.
#[derive(Debug, Clone)]
pub enum Way {
    /// By a request.
    Http(HttpConfig),
    /// By a command.
    Exec(ExecConfig),
}

/// How a request is made.
#[derive(Clone)]
pub struct HttpConfig {
    /// `http://` or `https://`; without user, password and fragment.
    pub url: String,
    /// Which versions may be spoken.
    pub version: HttpVersion,
    /// Longest wait for a TCP connection.
    pub connect_timeout: Duration,
    /// Certificate authorities to trust, in PEM form; the system's where it says nothing.
    pub ca_pem: Option<Vec<u8>>,
    /// Sent as `Authorization: Bearer …`.
    pub token: Option<String>,
    /// Each signs every request; more than one while secrets are changed. At least 16 bytes each.
    pub secrets: Vec<Vec<u8>>,
    /// What a status means.
    pub status: StatusTable,
}

/// Which versions of HTTP may be spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpVersion {
    /// With TLS as both sides agree, else 1.1.
    Auto,
    /// 1.1 only.
    One,
    /// 2 only, also without TLS.
    Two,
}

/// How a command is run.
#[derive(Debug, Clone)]
pub struct ExecConfig {
    /// The program (a path, or a name on PATH) and its arguments. No shell reads it.
    pub command: Vec<String>,
    /// The folder it runs in; the node's own where it says nothing.
    pub folder: Option<PathBuf>,
    /// Once per job, or for many.
    pub form: Form,
    /// What an exit code means.
    pub exit: ExitTable,
}

/// How long a process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A process per run: payload on standard input, the outcome from the exit code.
    Once,
    /// A process for many runs: one line of JSON in, one out.
    Lines,
}

impl fmt::Debug for HttpConfig {
    /// Without its secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConfig")
            .field("url", &self.url)
            .field("version", &self.version)
            .field("connect_timeout", &self.connect_timeout)
            .field("own_ca", &self.ca_pem.is_some())
            .field("token", &self.token.is_some())
            .field("secrets", &self.secrets.len())
            .field("status", &self.status)
            .finish()
    }
}

/// A kind that cannot be served as its configuration says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("kind {kind:?}, {setting}: expected {expected}, got {got}")]
pub struct ConfigError {
    /// The kind.
    pub kind: String,
    /// The field that is wrong.
    pub setting: &'static str,
    /// What was expected.
    pub expected: String,
    /// What came; secrets are left out.
    pub got: String,
}

/// What is wrong with one field: its name, what was expected, what came.
pub(crate) type Wrong = (&'static str, String, String);

impl KindConfig {
    /// What is wrong with it, apart from its way.
    pub(crate) fn fault(&self) -> Option<Wrong> {
        let Limits { soft, hard } = self.limits;
        let ms = |limit: Duration| format!("{} ms", limit.as_millis());
        if hard.is_zero() {
            return Some(("hard_limit_ms", "more than 0 ms".into(), ms(hard)));
        }
        if let Some(soft) = soft.filter(|soft| soft.is_zero() || *soft >= hard) {
            return Some(("soft_limit_ms", format!("less than hard_limit_ms ({})", ms(hard)), ms(soft)));
        }
        if self.max_answer_bytes == 0 {
            return Some(("max_answer_bytes", "more than 0 bytes".into(), "0 bytes".into()));
        }
        if let Err(error) = gristmill_job::Kind::new(&self.kind) {
            return Some(("kind", "a kind".into(), error.to_string()));
        }
        None
    }
}

/// Reads overrides such as `404=done`: what is left of `=` is given to `key`.
pub(crate) fn overrides<K>(
    texts: &[String],
    key: impl Fn(&str) -> Option<K>,
) -> Result<Vec<(K, crate::Outcome)>, String> {
    let read = |text: &String| {
        let (left, word) = text.split_once('=').unwrap_or((text, ""));
        key(left.trim()).zip(crate::Outcome::parse(word.trim())).ok_or_else(|| format!("{text:?}"))
    };
    texts.iter().map(read).collect()
}
