//! One process per run: the payload on standard input, the rest in the environment, the outcome from the exit code.
//!
//! ```text
//!   start ─▶ runs ──soft limit, drain: SIGTERM──▶ ends by itself ─┐
//!              │ └──────────────────────────────────────────────┤ exit code ─▶ outcome
//!              └──hard limit: SIGKILL──▶ timeout                └─ 0: last line of stdout ─▶ answer
//! ```
//!
//! Signals go to the whole process group; what a command leaves running when it ends is killed.

pub mod exit;
pub(crate) mod group;
pub(crate) mod tail;

use crate::answer;
use crate::config::{ExecConfig, Limits, Wrong};
use crate::outcome::{Outcome, Said};
use crate::serve::Job;
use crate::told::Told;
use exit::ExitTable;
use gristmill_handler::{Context, HandlerError};
use gristmill_job::Effects;
use group::{Group, Streams};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;
use tail::Tail;
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStderr, Command};
use tokio::time::{Instant, sleep_until};

/// How much of standard error is kept; an error of a dead letter has about so much room.
const STDERR_BYTES: usize = 1000;
/// Variables of the node that a command does not see: they may hold the password of Redis.
const SETTINGS: &str = "GRISTMILL__";

/// One kind's command.
pub(crate) struct Exec {
    program: PathBuf,
    arguments: Vec<String>,
    folder: Option<PathBuf>,
    exit: ExitTable,
    kind: Arc<str>,
    pub(crate) max_answer_bytes: usize,
}

/// Why a process did not end by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Nobody asked it to.
    No,
    /// By its soft limit.
    Limit,
    /// The node drains, or the job is cancelled.
    Drain,
}

/// What the limits of a run ask for.
pub(crate) enum Act {
    Terminate,
    Kill,
}

impl Exec {
    pub(crate) fn new(config: &ExecConfig, kind: &str, max_answer_bytes: usize) -> Result<Self, Wrong> {
        let Some((program, arguments)) =
            config.command.split_first().filter(|(program, _)| !program.is_empty())
        else {
            return Err(("exec", "a program and its arguments".into(), "nothing".into()));
        };
        if config.command.iter().any(|part| part.contains('\0')) {
            return Err(("exec", "text without NUL".into(), format!("{:?}", config.command)));
        }
        if let Some(folder) = config.folder.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(("folder", "a folder that is there".into(), format!("{:?}", folder.display())));
        }
        let found = find(program, config.folder.as_deref()).ok_or_else(|| {
            let expected = "a program on PATH, or the path of an executable file".to_owned();
            ("exec", expected, format!("{program:?}"))
        })?;
        Ok(Self {
            program: found,
            arguments: arguments.to_vec(),
            folder: config.folder.clone(),
            exit: config.exit.clone(),
            kind: kind.into(),
            max_answer_bytes,
        })
    }

    pub(crate) async fn run(&self, job: Job) -> Result<Effects, HandlerError> {
        let mut command = self.command();
        for (name, value) in job.told.fields() {
            command.env(format!("GRISTMILL_{}", name.to_uppercase().replace('-', "_")), value);
        }
        for (name, value) in variables(&job.told) {
            command.env(name, value);
        }
        let (mut group, streams) = self.start(command)?;
        let Streams { mut stdin, stdout, stderr } = streams;
        let (stdout, mut stderr) = (Tail::of(stdout, self.max_answer_bytes, None), self.stderr(stderr));
        let payload = job.payload.clone();
        // A command may end without reading all of it.
        let feeding = tokio::spawn(async move { drop(stdin.write_all(&payload).await) });
        let feeding = AbortOnDrop(feeding);
        let mut patience = Patience::of(&job);
        let status = loop {
            tokio::select! {
                status = group.ended() => break status,
                act = patience.next() => match act {
                    Act::Terminate => group.terminate(),
                    Act::Kill => group.kill(),
                },
            }
        };
        drop(feeding);
        let status = status.map_err(|error| {
            HandlerError::transient(Said::new("cannot wait for it").because(error.to_string()))
        })?;
        match self.ended(status, &patience) {
            Ok(()) => {
                stderr.logged().await;
                self.answer(stdout.end().await)
            }
            Err(Ended { text, outcome }) => {
                let said = Said::new(text).because(tail::text(stderr.end().await));
                match outcome {
                    Some(outcome) => outcome.end(said, None),
                    None => Err(HandlerError::timeout(said)),
                }
            }
        }
    }

    /// The program with its arguments, its folder, and the node's environment without settings.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with(SETTINGS) {
                command.env_remove(name);
            }
        }
        command
    }

    pub(crate) fn start(&self, command: Command) -> Result<(Group, Streams), HandlerError> {
        Group::start(command).map_err(|error| {
            // Memory, processes and files come back; a program that was there at the start may, too.
            HandlerError::transient(
                Said::new(format!("cannot start {}", self.name())).because(error.to_string()),
            )
        })
    }

    /// The end of what it says on standard error, for an error; all of it is logged at level debug.
    pub(crate) fn stderr(&self, stream: ChildStderr) -> Tail {
        Tail::of(stream, STDERR_BYTES, Some(Arc::clone(&self.kind)))
    }

    /// What the end of a process means; nothing where it ended well.
    pub(crate) fn ended(&self, status: ExitStatus, patience: &Patience) -> Result<(), Ended> {
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("{} ended with exit code {}", self.name(), exit::named(low(code))),
            (None, signal) => format!("{} was killed by signal {}", self.name(), signal.unwrap_or_default()),
        };
        // One that was done just before is done.
        if patience.killed && !status.success() {
            let limit = patience.limits.hard.as_millis();
            return Err(Ended {
                text: format!("{} was killed at its hard limit of {limit} ms", self.name()),
                outcome: None,
            });
        }
        let outcome = status.code().map_or(Outcome::Unknown, |code| self.exit.outcome(low(code)));
        match (outcome, patience.asked) {
            (Outcome::Done, _) => Ok(()),
            (Outcome::Unknown | Outcome::Transient, Asked::Limit) => {
                let limit = patience.limits.soft.unwrap_or_default().as_millis();
                Err(Ended {
                    text: format!("{how}, asked to end at its soft limit of {limit} ms"),
                    outcome: None,
                })
            }
            (Outcome::Unknown, Asked::Drain) => {
                Err(Ended { text: format!("{how}, asked to stop"), outcome: Some(Outcome::Transient) })
            }
            (outcome, _) => Err(Ended { text: how, outcome: Some(outcome) }),
        }
    }

    /// What the last line of standard output says.
    fn answer(&self, (bytes, cut): (Vec<u8>, bool)) -> Result<Effects, HandlerError> {
        let text = bytes.trim_ascii_end();
        let line = text.iter().rposition(|byte| *byte == b'\n').map(|at| &text[at + 1..]);
        match line {
            None if cut => {
                let text =
                    format!("the last line of {} has more than {} bytes", self.name(), self.max_answer_bytes);
                Err(HandlerError::permanent(Said::new(text)))
            }
            None => answer::wrapped(text, false),
            Some(line) => answer::wrapped(line, false),
        }
    }

    pub(crate) fn name(&self) -> String {
        self.program.file_name().unwrap_or(self.program.as_os_str()).to_string_lossy().into_owned()
    }
}

/// An end that is not well: what is said of it, and its outcome; a timeout where there is none.
pub(crate) struct Ended {
    pub(crate) text: String,
    pub(crate) outcome: Option<Outcome>,
}

/// The limits of a run, and what was done about them.
pub(crate) struct Patience<'a> {
    context: &'a Context,
    at: Instant,
    limits: Limits,
    pub(crate) asked: Asked,
    pub(crate) killed: bool,
}

impl<'a> Patience<'a> {
    pub(crate) fn of(job: &'a Job) -> Self {
        Self { context: &job.context, at: job.at, limits: job.limits, asked: Asked::No, killed: false }
    }

    /// Until something is to be done. Safe to drop and to call again.
    pub(crate) async fn next(&mut self) -> Act {
        if self.killed {
            return std::future::pending().await;
        }
        let soft = async {
            if self.asked != Asked::No {
                return std::future::pending().await;
            }
            tokio::select! {
                () = soft_limit(self.at, self.limits.soft) => Asked::Limit,
                () = self.context.cancelled() => Asked::Drain,
            }
        };
        tokio::select! {
            asked = soft => {
                self.asked = asked;
                Act::Terminate
            }
            () = sleep_until(self.at + self.limits.hard) => {
                self.killed = true;
                Act::Kill
            }
        }
    }
}

async fn soft_limit(at: Instant, limit: Option<Duration>) {
    match limit {
        Some(limit) => sleep_until(at + limit).await,
        None => std::future::pending().await,
    }
}

/// Variables without a prefix of ours, or beside the common ones.
fn variables(told: &Told) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("GRISTMILL_CONTENT_TYPE", told.content_type.to_owned()),
        ("GRISTMILL_IDEMPOTENCY_KEY", told.idempotency_key.clone()),
    ];
    // As OpenTelemetry names them; those of the node itself would be somebody else's trace.
    for (name, value) in [("TRACEPARENT", &told.traceparent), ("TRACESTATE", &told.tracestate)] {
        all.push((name, value.clone().unwrap_or_default()));
    }
    all
}

/// A task that ends with whoever waits for it.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Exit codes have eight bits.
fn low(code: i32) -> u8 {
    u8::try_from(code & 0xff).unwrap_or(u8::MAX)
}

/// As given where it has a slash (seen from the command's folder), else the first on PATH.
fn find(program: &str, folder: Option<&Path>) -> Option<PathBuf> {
    let executable = |path: &PathBuf| {
        path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        let path = folder.map_or_else(|| PathBuf::from(program), |folder| folder.join(program));
        return std::path::absolute(path).ok().filter(executable);
    }
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(program)).find(executable)
}
