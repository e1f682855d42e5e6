//! What is stored about a job beside itself, by its place: one line of words in the hash `state`.
//!
//! Most jobs never have a line. One that was put back, suspected, marked or asked has, until its verdict:
//! `<turn> <attempts> <due ms> <why> <suspicion> <interrupted> <mark> <crashes> <replays> <request> <history>`. The
//! scripts read and write the same words (`lua/state.lua`).

use crate::fence::{Epoch, Fence, Incarnation};
pub use crate::said::Said;
use bytes::Bytes;
use gristmill_job::UnixMillis;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

/// Why a job waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Why {
    /// It does not.
    #[default]
    Nothing,
    /// Its last run failed.
    Retry,
    /// Its handler asked for it.
    Snooze,
    /// It is due, but the queue's retry budget is used up.
    Budget,
    /// No handler of the node that holds it serves its kind.
    Kind,
}

/// How far a job is suspected to kill the process that runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub enum Suspicion {
    /// Not at all.
    #[default]
    None,
    /// It may have been running when a node died: it runs beside others, under a start mark.
    Weak,
    /// It was running under a start mark when a node died: it runs alone.
    Strong,
}

/// What a person asked of a job that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Give it up: it becomes a dead letter, and its lane goes on.
    Skip,
    /// End it without a run.
    Cancel(Said),
}

/// A run is under way, of this tenure: written before it starts, removed by every settle and hand back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartMark {
    /// Whose.
    pub fence: Fence,
    /// Whether nothing else ran in the process.
    pub alone: bool,
}

/// A death of a process that is charged to the job that ran alone in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crash {
    /// Whose tenure ended with it.
    pub fence: Fence,
    /// Which turn ran.
    pub turn: u32,
    /// When it was found, by the Redis clock.
    pub at: UnixMillis,
}

/// A whole line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StateLine {
    /// How often the job was put back.
    pub turn: u32,
    /// Attempts that ended with an answer.
    pub attempts: u32,
    /// Not before then, by the Redis clock (ms).
    pub due_ms: u64,
    /// Why it waits.
    pub why: Why,
    /// Whether it kills processes.
    pub suspicion: Suspicion,
    /// Whether a run of it was interrupted, so that nobody knows whether its effect happened.
    pub interrupted: bool,
    /// The run that is under way.
    pub mark: Option<StartMark>,
    /// Deaths charged to it, oldest first.
    pub crashes: Vec<Crash>,
    /// How often it came back from the dead.
    pub replays: u32,
    /// What a person asked.
    pub request: Option<Request>,
    /// Its attempts ([`gristmill_job::History`]), opaque here.
    pub history: Bytes,
}

impl Why {
    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "-",
            Self::Retry => "retry",
            Self::Snooze => "snooze",
            Self::Budget => "budget",
            Self::Kind => "kind",
        }
    }
}

impl Suspicion {
    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "-",
            Self::Weak => "weak",
            Self::Strong => "strong",
        }
    }

    /// One step further.
    #[must_use]
    pub fn raised(self) -> Self {
        match self {
            Self::None => Self::Weak,
            Self::Weak | Self::Strong => Self::Strong,
        }
    }
}

/// Reads `<incarnation>#<epoch>`.
fn fence(text: &str) -> Option<Fence> {
    let (incarnation, epoch) = text.rsplit_once('#')?;
    Some(Fence { incarnation: Incarnation::from_stored(incarnation), epoch: Epoch(epoch.parse().ok()?) })
}

/// The ten words of a line and what follows them, exactly as the scripts' pattern matches.
fn words(line: &[u8]) -> Option<([&[u8]; 10], &[u8])> {
    let (mut words, mut rest) = ([&b""[..]; 10], line);
    for (n, word) in words.iter_mut().enumerate() {
        if n > 0 {
            rest = rest.strip_prefix(b" ")?;
        }
        let end = rest.iter().position(|byte| b" \t\n\x0b\x0c\r".contains(byte)).unwrap_or(rest.len());
        (*word, rest) = rest.split_at(end);
        if word.is_empty() {
            return None;
        }
    }
    Some((words, rest.strip_prefix(b" ").unwrap_or(rest)))
}

impl StateLine {
    /// Reads a line. `None` for one that is not ours: the job then counts as never put back, and runs rather than never.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        let (words, history) = words(line)?;
        let text = |n: usize| std::str::from_utf8(words[n]).unwrap_or_default();
        let digits = |n: usize| words[n].iter().all(u8::is_ascii_digit).then(|| text(n));
        let count = |n: usize| digits(n).filter(|digits| digits.len() < 10)?.parse().ok();
        let (turn, attempts, replays) = (count(0)?, count(1)?, count(8)?);
        let due_ms = digits(2)?.parse().unwrap_or(u64::MAX);
        let why = match text(3) {
            "retry" => Why::Retry,
            "snooze" => Why::Snooze,
            "budget" => Why::Budget,
            "kind" => Why::Kind,
            _ => Why::Nothing,
        };
        let suspicion = match text(4) {
            "weak" => Suspicion::Weak,
            "strong" => Suspicion::Strong,
            _ => Suspicion::None,
        };
        let interrupted = digits(5).filter(|digit| digit.len() == 1)? == "1";
        let mark = text(6)
            .split_once('/')
            .and_then(|(how, whose)| Some(StartMark { fence: fence(whose)?, alone: how == "alone" }));
        let crashes = text(7).split(',').filter_map(Crash::parse).collect();
        let request = Request::parse(text(9));
        let history = Bytes::copy_from_slice(history);
        Some(Self {
            turn,
            attempts,
            due_ms,
            why,
            suspicion,
            interrupted,
            mark,
            crashes,
            replays,
            request,
            history,
        })
    }

    /// The line as it is stored.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut text = format!(
            "{} {} {} {} {} {} ",
            self.turn,
            self.attempts,
            self.due_ms,
            self.why.as_str(),
            self.suspicion.as_str(),
            u8::from(self.interrupted)
        );
        match &self.mark {
            None => text.push('-'),
            Some(mark) => {
                let how = if mark.alone { "alone" } else { "beside" };
                let _ = write!(text, "{how}/{}", mark.fence.consumer());
            }
        }
        text.push(' ');
        let crashes: Vec<String> = self.crashes.iter().map(Crash::to_string).collect();
        text.push_str(if crashes.is_empty() { "-" } else { "" });
        text.push_str(&crashes.join(","));
        let request = self.request.as_ref().map_or_else(|| "-".to_owned(), Request::to_string);
        let _ = write!(text, " {} {request} ", self.replays);
        let mut line = text.into_bytes();
        line.extend_from_slice(&self.history);
        line
    }
}

impl Request {
    /// Whether it is to be ended without a run.
    #[must_use]
    pub fn is_cancel(&self) -> bool {
        matches!(self, Self::Cancel(_))
    }

    fn parse(word: &str) -> Option<Self> {
        match word.split_once('/') {
            None => (word == "skip").then_some(Self::Skip),
            Some(("cancel", said)) => Some(Self::Cancel(Said::parse(said))),
            Some(_) => None,
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skip => f.write_str("skip"),
            Self::Cancel(said) => write!(f, "cancel/{said}"),
        }
    }
}

impl Crash {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.rsplitn(3, '/');
        let at = UnixMillis(parts.next()?.parse().ok()?);
        let turn = parts.next()?.parse().ok()?;
        Some(Self { fence: fence(parts.next()?)?, turn, at })
    }
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.fence.consumer(), self.turn, self.at.0)
    }
}

/// What an owner was told about a job: its line, if it has one, and how long it still waits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobState {
    line: Option<Arc<StateLine>>,
    /// How long it still waits.
    pub due_in: Duration,
}

impl JobState {
    /// From a line; `now_ms` is the Redis clock of the same answer.
    #[must_use]
    pub fn of(line: StateLine, now_ms: u64) -> Self {
        let due_in = Duration::from_millis(line.due_ms.saturating_sub(now_ms));
        Self { line: Some(Arc::new(line)), due_in }
    }

    /// From the bytes that Redis holds, empty where it holds none. A line that is not ours counts as none.
    #[must_use]
    pub fn parse(line: &[u8], now_ms: u64) -> Self {
        StateLine::parse(line).map_or_else(Self::default, |line| Self::of(line, now_ms))
    }

    /// How often it was put back.
    #[must_use]
    pub fn turn(&self) -> u32 {
        self.line.as_ref().map_or(0, |line| line.turn)
    }

    /// Attempts that ended with an answer.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.line.as_ref().map_or(0, |line| line.attempts)
    }

    /// As it stands after a settle that put the job back; the settle script writes the same.
    #[must_use]
    pub fn put_back(&self, attempts: u32, why: Why, interrupted: bool, history: Bytes) -> Self {
        let before = self.line.as_deref().cloned().unwrap_or_default();
        let turn = before.turn.saturating_add(1);
        let (mark, request) = (None, before.request.clone().filter(Request::is_cancel));
        let line =
            StateLine { turn, attempts, due_ms: 0, why, interrupted, mark, request, history, ..before };
        Self { line: Some(Arc::new(line)), due_in: Duration::ZERO }
    }

    /// With another note whether a run of it was interrupted.
    #[must_use]
    pub fn noted(&self, interrupted: bool) -> Self {
        let before = self.line.as_deref().cloned().unwrap_or_default();
        Self { line: Some(Arc::new(StateLine { interrupted, ..before })), due_in: self.due_in }
    }

    /// As it stands since a person asked something of it.
    #[must_use]
    pub fn asked(&self, request: Request) -> Self {
        let before = self.line.as_deref().cloned().unwrap_or_default();
        let line = StateLine { request: Some(request), ..before };
        Self { line: Some(Arc::new(line)), due_in: self.due_in }
    }

    /// The line, where there is one.
    #[must_use]
    pub fn line(&self) -> Option<&StateLine> {
        self.line.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> StateLine {
        let fence = Fence { incarnation: Incarnation::of("n-1", 7), epoch: Epoch(12) };
        StateLine {
            turn: 3,
            attempts: 2,
            due_ms: 1500,
            why: Why::Budget,
            suspicion: Suspicion::Strong,
            interrupted: true,
            mark: Some(StartMark { fence: fence.clone(), alone: true }),
            crashes: vec![
                Crash { fence: fence.clone(), turn: 1, at: UnixMillis(9) },
                Crash { fence, turn: 2, at: UnixMillis(10) },
            ],
            replays: 4,
            request: Some(Request::Cancel(Said::new("me@home", "no more, please").at(UnixMillis(7)))),
            history: Bytes::from_static(b"any \xff bytes\nat all "),
        }
    }

    #[test]
    fn a_line_survives_its_writing() {
        for line in [
            full(),
            StateLine::default(),
            StateLine { request: Some(Request::Skip), ..full() },
            StateLine { mark: None, crashes: Vec::new(), ..full() },
        ] {
            assert_eq!(StateLine::parse(&line.write()).unwrap(), line);
        }
    }

    #[test]
    fn a_line_of_another_hand_counts_as_none() {
        for bad in [&b""[..], b"x", b"1 2", b"-1 0 0 - - 0 - - 0 - ", b"\xff \xff", b"2 1 1500 boom now"] {
            assert_eq!(JobState::parse(bad, 0), JobState::default(), "{bad:?}");
        }
        let state = JobState::parse(&full().write(), 1000);
        assert_eq!((state.turn(), state.attempts(), state.due_in), (3, 2, Duration::from_millis(500)));
    }
}
