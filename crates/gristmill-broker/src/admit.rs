//! admit: lets runs of a limited kind begin, as far as its limits allow.

use crate::error::CallError;
use crate::fence::Incarnation;
use crate::keys;
use crate::lease::acquire::millis;
use crate::limit::{Asked, SlotName};
use crate::link::Connection;
use crate::reply::{self, Words};
use crate::script::ADMIT;
use gristmill_job::{JobId, Key, Limit, QueueName};
use std::time::Duration;

/// A run that would begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admit {
    /// The claim of its job.
    pub name: SlotName,
    /// Under what it asks.
    pub asked: Asked,
    /// Its job.
    pub job: JobId,
    /// The job's key.
    pub key: Key,
}

/// What all of a call have in common.
#[derive(Debug, Clone, Copy)]
pub struct Admission<'a> {
    /// Their queue.
    pub queue: &'a QueueName,
    /// Their kind.
    pub kind: &'a str,
    /// What it is limited to, where nothing is written yet.
    pub limit: &'a Limit,
    /// Whose runs.
    pub incarnation: &'a Incarnation,
    /// How long a slot stands without being kept.
    pub ttl: Duration,
    /// Whether this node has no slot of the kind: once it has asked in vain for a second, one is left for it.
    pub has_none: bool,
}

/// What the limits say to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admitted {
    /// It may begin, and holds a slot.
    Slot,
    /// It may begin; the kind has no limit of runs at a time.
    Passed,
    /// So many runs hold all the slots there are.
    Full(u64),
    /// The kind's rate has its next token then.
    Until(Duration),
    /// The rate of its key has its next token then.
    KeyUntil(Duration),
    /// A younger epoch runs this job.
    Fenced,
}

impl Admitted {
    fn read(word: &str) -> Option<Self> {
        let number = |text: &str| text.parse().ok();
        Some(match word.split_once(' ') {
            None if word == "admitted" => Self::Slot,
            None if word == "passed" => Self::Passed,
            None if word == "fenced" => Self::Fenced,
            Some(("full", runs)) => Self::Full(number(runs)?),
            Some(("until", ms)) => Self::Until(Duration::from_millis(number(ms)?)),
            Some(("key_until", ms)) => Self::KeyUntil(Duration::from_millis(number(ms)?)),
            _ => return None,
        })
    }
}

impl Connection {
    /// Asks for these runs of one kind, at most [`MAX_JOBS_PER_CALL`](crate::call::MAX_JOBS_PER_CALL); each is answered. A
    /// slot stands for `ttl` unless it is kept; a token is used up.
    ///
    /// # Errors
    /// [`CallError`]: it is not known which of them have slots. A repeat holds them, and may use up another token.
    pub async fn admit(&self, admission: &Admission<'_>, runs: &[Admit]) -> Result<Vec<Admitted>, CallError> {
        let Admission { queue, kind, limit, incarnation, ttl, has_none } = admission;
        let mut script = ADMIT.call_sized(5 + runs.len(), 5 + 3 * runs.len(), 128 * runs.len());
        script.arg(keys::limits(queue)).arg(keys::holders(queue, kind)).arg(keys::owners(queue, kind));
        script.arg(keys::rate(queue, kind)).arg(keys::waiters(queue, kind));
        for run in runs {
            script.arg(keys::rate_of_key(queue, kind, run.key.as_bytes()));
        }
        script.arg(*kind).arg(incarnation.as_str()).arg(millis(*ttl)).arg(limit.stored());
        script.arg(if *has_none { "1" } else { "0" });
        for run in runs {
            script.arg(run.name.stored()).arg(run.asked.to_string()).arg(run.job.as_bytes());
        }
        let mut words = Words::read(self.timed("admit", self.one(script)).await?, "the answer of admit")?;
        if words.tag() != "ok" {
            return Err(words.unknown("ok"));
        }
        words.next_answers(runs.len(), |answer| {
            let word = reply::text(answer)?;
            let unknown = || CallError::Unexpected(format!("expected an answer of admit, got {word:?}"));
            Admitted::read(&word).ok_or_else(unknown)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_and_no_other() {
        let ms = Duration::from_millis;
        for (word, read) in [
            ("admitted", Some(Admitted::Slot)),
            ("passed", Some(Admitted::Passed)),
            ("fenced", Some(Admitted::Fenced)),
            ("full 5", Some(Admitted::Full(5))),
            ("until 7", Some(Admitted::Until(ms(7)))),
            ("key_until 8", Some(Admitted::KeyUntil(ms(8)))),
            ("full", None),
            ("full x", None),
            ("admitted 1", None),
        ] {
            assert_eq!(Admitted::read(word), read, "{word}");
        }
    }
}
