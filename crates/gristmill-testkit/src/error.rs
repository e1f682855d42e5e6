//! The one error of this crate: what was expected, what came, what to do.

use std::{io, path::PathBuf, time::Duration};

/// Why something in the testkit did not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A server program is not on this machine.
    #[error("MISSING SERVER: {flavor} is needed, but {found}. Install it with `cargo xtask servers`{hint}.")]
    MissingServer {
        /// Which server.
        flavor: &'static str,
        /// What was looked at and not found.
        found: String,
        /// Another way to provide it.
        hint: &'static str,
    },
    /// The library by which a server's clock is set is not on this machine.
    #[error(
        "MISSING libfaketime: {found}. `cargo xtask test` fetches it; or install the package `libfaketime`."
    )]
    MissingFaketime {
        /// What was looked at and not found.
        found: String,
    },
    /// A program given to [`crate::process::Process::spawn`] is not there.
    #[error("cannot start `{program}`: no such executable file (searched PATH where it has no slash)")]
    MissingProgram {
        /// The program as it was given.
        program: String,
    },
    /// A server ended or stayed silent while it was being started.
    #[error("{what} did not start: {reason}\n--- its last output ---\n{output}")]
    StartFailed {
        /// Which program.
        what: String,
        /// What was seen instead of an answer.
        reason: String,
        /// The end of its log.
        output: String,
    },
    /// TLS was asked of a server program that was built without it.
    #[error(
        "{what} was built without TLS: take another flavor, or a program built with it (`BUILD_TLS=yes`)"
    )]
    NoTls {
        /// Which program.
        what: String,
    },
    /// The deadline passed before the state was reached.
    #[error("waited {waited:?} for {what}, in vain{detail}")]
    Timeout {
        /// The state that was waited for.
        what: String,
        /// How long.
        waited: Duration,
        /// What was there instead; empty or starting with a separator.
        detail: String,
    },
    /// The server answered a command with an error.
    #[error("the server refused `{command}`: {message}")]
    Refused {
        /// The command's name (never its arguments: they may hold a password).
        command: String,
        /// The server's message.
        message: String,
    },
    /// A reply had another shape than the caller needs.
    #[error("expected {expected} as a reply, got {got}")]
    UnexpectedReply {
        /// What would have been right.
        expected: &'static str,
        /// What came.
        got: String,
    },
    /// The operation needs a running server or process, and it is not running.
    #[error("{what} is not running{hint}")]
    NotRunning {
        /// Which one.
        what: String,
        /// What to do; empty or starting with a separator.
        hint: &'static str,
    },
    /// An option does not fit the others or the server.
    #[error("{0}")]
    BadOption(String),
    /// Certificates could not be made.
    #[error("cannot make certificates: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A signal could not be sent.
    #[error("cannot signal process {pid}: {source}")]
    Signal {
        /// The target.
        pid: u32,
        /// The system's answer.
        source: nix::errno::Errno,
    },
    /// A history file holds something that is not an event.
    #[error("{file}:{line}: not a history event: {reason}", file = file.display())]
    BadHistory {
        /// The file.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The system refused a file, socket or process operation.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err`: says what was tried.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
