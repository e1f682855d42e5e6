//! Processes that stay: one line of JSON in, one line of JSON out, one job at a time each.
//!
//! ```text
//!   (none idle: start) ─▶ line in ─▶ line out ─▶ idle again
//!                           └─ ended, out of step, asked to end, killed, dropped ─▶ gone; the next run has another
//! ```

use crate::answer;
use crate::exec::group::{Group, Streams};
use crate::exec::tail::{self, Tail};
use crate::exec::{Act, Asked, Exec, Patience};
use crate::outcome::Said;
use crate::serve::Job;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gristmill_handler::HandlerError;
use gristmill_job::Effects;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::task::JoinHandle;

/// How long a process may take to leave once its standard input is closed.
const FAREWELL: Duration = Duration::from_secs(2);

pub(crate) struct Lines {
    exec: Exec,
    idle: Mutex<Vec<Process>>,
}

struct Process {
    group: Group,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    stderr: Tail,
}

/// A job on its line.
#[derive(Serialize)]
struct Wire<'a> {
    id: &'a str,
    kind: &'a str,
    queue: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    version: u64,
    attempt: u32,
    recovered: bool,
    deadline_ms: u64,
    idempotency_key: &'a str,
    /// Of this run, where the node traces; the producer's own is among the headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    headers: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

/// How an exchange ended otherwise than by an answer.
enum Broken {
    /// The process ended, or closed a stream.
    Ended,
    TooLong,
}

impl Lines {
    pub(crate) fn new(exec: Exec) -> Self {
        Self { exec, idle: Mutex::default() }
    }

    pub(crate) async fn run(&self, job: Job) -> Result<Effects, HandlerError> {
        let id = job.context.id().to_string();
        let line = line(&job, &id)?;
        let mut process = match self.take_idle() {
            Some(process) => process,
            None => self.start()?,
        };
        let mut patience = Patience::of(&job);
        let mut answer = Vec::new();
        let exchanged = {
            let Process { group, stdin, stdout, .. } = &mut process;
            let exchange = exchange(stdin, stdout, &line, &mut answer, self.exec.max_answer_bytes);
            let mut exchange = std::pin::pin!(exchange);
            loop {
                tokio::select! {
                    done = &mut exchange => break done,
                    act = patience.next() => match act {
                        Act::Terminate => group.terminate(),
                        Act::Kill => {
                            group.kill();
                            break Err(Broken::Ended);
                        }
                    },
                }
            }
        };
        match exchanged {
            Ok(()) => match answer::line(&answer, &id) {
                Ok(answer) => {
                    match patience.asked {
                        Asked::No => self.idle().push(process),
                        // It is about to; nobody waits for that.
                        Asked::Limit | Asked::Drain => drop(tokio::spawn(farewell(process))),
                    }
                    answer
                }
                Err(said) => Err(HandlerError::unknown(said.because(farewell(process).await.1))),
            },
            Err(Broken::TooLong) => {
                let (name, limit) = (self.exec.name(), self.exec.max_answer_bytes);
                Err(HandlerError::permanent(Said::new(format!(
                    "{name} answered with a line of more than {limit} bytes"
                ))))
            }
            Err(Broken::Ended) => {
                let (status, stderr) = farewell(process).await;
                let text = format!("{} closed its streams and did not end", self.exec.name());
                let ended = match status {
                    None => return Err(HandlerError::unknown(Said::new(text).because(stderr))),
                    Some(status) => self.exec.ended(status, &patience),
                };
                match ended {
                    // Whatever its code says, it did not answer.
                    Ok(()) => {
                        let text = format!("{} ended without an answer", self.exec.name());
                        Err(HandlerError::unknown(Said::new(text).because(stderr)))
                    }
                    Err(ended) => {
                        let said = Said::new(format!("{} and had not answered", ended.text)).because(stderr);
                        match ended.outcome {
                            Some(outcome) => outcome.end(said, None),
                            None => Err(HandlerError::timeout(said)),
                        }
                    }
                }
            }
        }
    }

    /// Says farewell to every idle process at once.
    pub(crate) fn dismiss(&self) -> Vec<JoinHandle<()>> {
        let farewell = |process| tokio::spawn(async move { drop(farewell(process).await) });
        self.idle().drain(..).map(farewell).collect()
    }

    fn start(&self) -> Result<Process, HandlerError> {
        let (group, Streams { stdin, stdout, stderr }) = self.exec.start(self.exec.command())?;
        Ok(Process { group, stdin, stdout: BufReader::new(stdout), stderr: self.exec.stderr(stderr) })
    }

    /// One that lives; those that ended while they were idle are dropped.
    fn take_idle(&self) -> Option<Process> {
        let mut idle = self.idle();
        while let Some(process) = idle.pop() {
            if !process.group.has_ended() {
                return Some(process);
            }
        }
        None
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Process>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn exchange(
    stdin: &mut ChildStdin,
    stdout: &mut BufReader<ChildStdout>,
    line: &[u8],
    answer: &mut Vec<u8>,
    limit: usize,
) -> Result<(), Broken> {
    let ended = |_: io::Error| Broken::Ended;
    stdin.write_all(line).await.map_err(ended)?;
    stdin.flush().await.map_err(ended)?;
    loop {
        let read = stdout.fill_buf().await.map_err(ended)?;
        if read.is_empty() {
            return Err(Broken::Ended);
        }
        let end = read.iter().position(|byte| *byte == b'\n');
        let count = end.unwrap_or(read.len());
        if answer.len() + count > limit {
            return Err(Broken::TooLong);
        }
        answer.extend_from_slice(&read[..count]);
        stdout.consume(count + usize::from(end.is_some()));
        if end.is_some() {
            return Ok(());
        }
    }
}

/// Closes its standard input, waits a moment for its end, and kills it then. Its status, and the end of what it said.
async fn farewell(process: Process) -> (Option<std::process::ExitStatus>, String) {
    let Process { mut group, stdin, stdout, stderr } = process;
    drop((stdin, stdout));
    let status = tokio::time::timeout(FAREWELL, group.ended()).await.ok().and_then(Result::ok);
    drop(group);
    (status, tail::text(stderr.end().await))
}

fn line(job: &Job, id: &str) -> Result<Vec<u8>, HandlerError> {
    let Job { told, payload, context, .. } = job;
    let (json, base64) = match told.json {
        false => (None, Some(STANDARD.encode(payload))),
        true => {
            let json = serde_json::from_slice::<&RawValue>(payload).map_err(|error| {
                let text =
                    format!("the payload is said to be JSON and is not: {} bytes: {error}", payload.len());
                HandlerError::permanent(Said::new(text))
            })?;
            (Some(json), None)
        }
    };
    let key = std::str::from_utf8(context.key().as_bytes()).ok();
    let wire = Wire {
        id,
        kind: context.kind(),
        queue: context.queue().as_str(),
        key,
        key_base64: key.is_none().then(|| STANDARD.encode(context.key().as_bytes())),
        version: told.version,
        attempt: told.attempt,
        recovered: told.recovered,
        deadline_ms: told.deadline_ms,
        idempotency_key: &told.idempotency_key,
        traceparent: told.traceparent.as_deref().filter(|_| context.trace().is_some()),
        headers: context.headers().iter().collect(),
        payload: json,
        payload_base64: base64,
    };
    let mut line = serde_json::to_vec(&wire).map_err(HandlerError::permanent)?;
    // In JSON a line end is nothing but a space: inside a text it is written otherwise.
    line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    line.push(b'\n');
    Ok(line)
}
