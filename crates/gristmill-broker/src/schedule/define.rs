//! define: a node says which definitions of schedules it has, and hears how they stand.

use crate::call::MAX_JOBS_PER_CALL;
use crate::error::CallError;
use crate::keys::PartitionKeys;
use crate::lease::acquire::millis;
use crate::link::Connection;
use crate::reply::{self, Words};
use crate::schedule::{DEFINITION_STANDS, RESTORED};
use crate::script::DEFINE;
use gristmill_job::UnixMillis;
use redis::Value;
use std::time::Duration;

/// One definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Define {
    /// The schedule's name.
    pub name: String,
    /// Fingerprint of its timing: hexadecimal digits.
    pub timing: String,
    /// Fingerprint of all of it.
    pub whole: String,
    /// The definition; empty where it was told before.
    pub definition: String,
    /// Up to which slot all was dealt with, where the node knows.
    pub known: Option<UnixMillis>,
}

/// How one stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Defined {
    /// It is the one that stands.
    Stands {
        /// Every slot up to this moment was dealt with.
        after: UnixMillis,
        /// The slot whose job was enqueued last; 0 where there was none.
        fired: UnixMillis,
        /// The call that dealt with a slot last; `-` for none.
        call: String,
        /// Whether a person paused it.
        paused: bool,
    },
    /// Another one stands, since nodes have it.
    Other {
        /// When one of them said so last.
        confirmed: UnixMillis,
    },
    /// It is to be said again, with its definition.
    Tell,
}

/// What a call answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DefineAnswer {
    /// The Redis clock, and one answer per definition, in order.
    Defined(UnixMillis, Vec<Defined>),
    /// The partition does not exist.
    NoQueue,
}

impl Connection {
    /// Says that a node lives that has these definitions, all of one partition, at most [`MAX_JOBS_PER_CALL`] of them. What
    /// another definition needs to take over: that nobody confirmed the one before for [`DEFINITION_STANDS`].
    ///
    /// # Errors
    /// [`CallError`]; a repeat confirms once more.
    pub async fn define(
        &self,
        keys: &PartitionKeys,
        definitions: &[Define],
    ) -> Result<DefineAnswer, CallError> {
        self.define_for(keys, definitions, DEFINITION_STANDS, RESTORED).await
    }

    /// The same with other times; for tests, which cannot wait.
    ///
    /// # Errors
    /// As [`Connection::define`].
    pub async fn define_for(
        &self,
        keys: &PartitionKeys,
        definitions: &[Define],
        stands: Duration,
        restored: Duration,
    ) -> Result<DefineAnswer, CallError> {
        debug_assert!(definitions.len() <= MAX_JOBS_PER_CALL);
        let bytes = definitions.iter().map(|one| one.definition.len() + one.name.len() + 96).sum();
        let mut script = DEFINE.call_sized(5, 2 + 5 * definitions.len(), bytes);
        script.arg(&keys.meta).arg(&keys.stream).arg(&keys.schedules);
        script.arg(&keys.schedule_definitions).arg(&keys.schedules_paused);
        script.arg(millis(stands)).arg(millis(restored));
        for Define { name, timing, whole, definition, known } in definitions {
            script.arg(name).arg(timing).arg(whole).arg(definition);
            script.arg(known.map_or_else(String::new, |known| known.to_string()));
        }
        let mut words = Words::read(self.timed("define", self.one(script)).await?, "the answer of define")?;
        match words.tag() {
            "ok" => {
                let now = UnixMillis(words.next_number()?);
                Ok(DefineAnswer::Defined(now, words.next_answers(definitions.len(), defined)?))
            }
            "no_queue" => Ok(DefineAnswer::NoQueue),
            _ => Err(words.unknown("ok or no_queue")),
        }
    }
}

fn defined(value: Value) -> Result<Defined, CallError> {
    let text = reply::text(value)?;
    let words: Vec<&str> = text.split(' ').collect();
    let time = |word: &str| word.parse().map(UnixMillis);
    match words.as_slice() {
        ["tell"] => return Ok(Defined::Tell),
        ["other", confirmed] => {
            if let Ok(confirmed) = time(confirmed) {
                return Ok(Defined::Other { confirmed });
            }
        }
        ["stands", after, fired, call, paused] => {
            if let (Ok(after), Ok(fired)) = (time(after), time(fired)) {
                let (call, paused) = ((*call).to_owned(), *paused == "1");
                return Ok(Defined::Stands { after, fired, call, paused });
            }
        }
        _ => {}
    }
    Err(CallError::Unexpected(format!("expected stands, other or tell, got {text:?}")))
}
