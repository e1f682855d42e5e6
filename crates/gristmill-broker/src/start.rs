//! start: writes start marks before runs begin, so that the process's death under them is seen.

use crate::call::{Answer, Guard, single};
use crate::error::CallError;
use crate::reply::{self, Words};
use crate::script::START;
use gristmill_job::Place;
use redis::{Pipeline, Value};

/// How a run starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Others run in the process.
    Beside,
    /// Nothing else runs in the process until it is settled.
    Alone,
    /// Beside others, and only looks what became of an interrupted run, which stays noted as interrupted.
    Look,
    /// Both.
    LookAlone,
    /// Not after all: the mark goes.
    Not,
    /// It did, but was stopped before it answered: the mark goes, and the job is noted as interrupted.
    Interrupted,
}

/// One mark to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The job's place.
    pub place: Place,
    /// Its turn.
    pub turn: u32,
    /// How it will run.
    pub how: How,
}

/// What became of one mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marked {
    /// Written, now or by an earlier call of the same number: it may run.
    Started,
    /// The job is claimed no more.
    Gone,
    /// It stands at another turn.
    AtTurn(u32),
}

pub(crate) fn write(guard: Guard<'_>, starts: &[Start]) -> Pipeline {
    let Guard { keys, fence, number, .. } = guard;
    let fixed = [&keys.lease, &keys.stream, &keys.state, &keys.returned];
    let mut script = START.call_sized(fixed.len(), 3 + 3 * starts.len(), 40 * starts.len());
    for key in fixed {
        script.arg(key);
    }
    script.arg(fence.incarnation.as_str()).arg(fence.epoch.0).arg(number);
    for start in starts {
        script.arg(start.place.to_string()).arg(start.turn).arg(match start.how {
            How::Beside => "beside",
            How::Alone => "alone",
            How::Look => "look",
            How::LookAlone => "look_alone",
            How::Not => "not",
            How::Interrupted => "interrupted",
        });
    }
    single(script)
}

pub(crate) fn read(starts: &[Start], value: Value) -> Result<Answer, CallError> {
    let mut words = Words::read(value, "the answer of start")?;
    if let Some(refusal) = words.refusal()? {
        return Ok(Answer::Refused(refusal));
    }
    if !matches!(words.tag(), "ok" | "already") {
        return Err(words.unknown("ok, already, fenced or gap"));
    }
    words.next_answers(starts.len(), marked).map(Answer::Started)
}

fn marked(value: Value) -> Result<Marked, CallError> {
    let word = reply::text(value)?;
    let turn = || word.strip_prefix("at_turn ").and_then(|turn| turn.parse().ok());
    match (word.as_str(), turn()) {
        ("started", _) => Ok(Marked::Started),
        ("gone", _) => Ok(Marked::Gone),
        (_, Some(turn)) => Ok(Marked::AtTurn(turn)),
        _ => Err(CallError::Unexpected(format!("expected started, gone or at_turn, got {word:?}"))),
    }
}
