//! How a run ended, in six words, and what the node hears of it.

use gristmill_handler::HandlerError;
use gristmill_job::Effects;
use std::fmt;
use std::time::Duration;

/// How a run ended. The words are those of tables, overrides and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Well.
    Done,
    /// Never: done without effect.
    Discard,
    /// Not well, and it will pass: tried again.
    Transient,
    /// Not well, and nobody knows: tried again until its attempts are used.
    Unknown,
    /// Not well, and it will not pass: a dead letter at once.
    Permanent,
    /// Nobody knows whether its effect happened: a dead letter for a person.
    Review,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Done, Self::Discard, Self::Transient, Self::Unknown, Self::Permanent, Self::Review];
    /// What is expected where one is named.
    pub const WORDS: &'static str = "done, discard, transient, unknown, permanent or review";

    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Discard => "discard",
            Self::Transient => "transient",
            Self::Unknown => "unknown",
            Self::Permanent => "permanent",
            Self::Review => "review",
        }
    }

    /// The outcome of that word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == word)
    }

    /// What the node hears; `said` tells what happened where that is not done.
    pub(crate) fn end(self, said: Said, retry_after: Option<Duration>) -> Result<Effects, HandlerError> {
        let error = match self {
            Self::Done => return Ok(Effects::none()),
            Self::Discard => HandlerError::discard(said),
            Self::Transient => HandlerError::transient(said),
            Self::Unknown => HandlerError::unknown(said),
            Self::Permanent => HandlerError::permanent(said),
            Self::Review => HandlerError::review(said),
        };
        Err(match retry_after {
            Some(wait) => error.retry_after(wait),
            None => error,
        })
    }
}

/// What happened, and what the other side said of it, as links of an error chain: each is kept by itself.
#[derive(Debug)]
pub(crate) struct Said {
    text: String,
    under: Option<Box<Said>>,
}

impl Said {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), under: None }
    }

    /// With what the other side said; nothing where it said nothing.
    pub(crate) fn because(mut self, text: impl Into<String>) -> Self {
        let text = text.into();
        if !text.is_empty() {
            self.under = Some(Box::new(Self::new(text)));
        }
        self
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Said {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.under.as_ref().map(|under| &**under as _)
    }
}
