//! Errors with a class, and the chain that a dead letter keeps.
//!
//! `?` turns any error into a [`HandlerError`] of class `Unknown`: tried again, then dead. Where the place knows better, it says so
//! with `.transient()?` or `.permanent()?` ([`WithClass`]). Where the error knows better, its type implements
//! [`Classify`] once, and `Registry::classify::<E>()` makes every plain `?` heed it.

use crate::delivery::Answer;
use gristmill_job::{ErrorClass, Failure};
use std::error::Error;
use std::fmt::{self, Write};
use std::time::Duration;

/// How many errors of a chain are kept.
pub const MAX_CHAIN: usize = 16;
/// How much of each error is kept, in bytes of UTF-8.
pub const MAX_ERROR_BYTES: usize = 1024;

type Boxed = Box<dyn Error + Send + Sync>;

/// An error of a handler: what happened, and whether trying again can help.
///
/// Not an [`Error`] itself, so that `?` can take every error there is.
pub struct HandlerError {
    class: ErrorClass,
    error: Boxed,
    retry_after: Option<Duration>,
    instead: Instead,
}

/// What a handler asks for that is no failure.
enum Instead {
    Nothing,
    Snooze(Duration),
    Discard,
    Duplicate,
    Stale,
    Review,
}

impl HandlerError {
    /// Will pass by itself: tried again with backoff.
    pub fn transient(error: impl Into<Boxed>) -> Self {
        Self::of(ErrorClass::Transient, error.into())
    }

    /// Will not pass: a dead letter at once.
    pub fn permanent(error: impl Into<Boxed>) -> Self {
        Self::of(ErrorClass::Permanent, error.into())
    }

    /// Nobody knows: tried again until its attempts are used. What `?` makes.
    pub fn unknown(error: impl Into<Boxed>) -> Self {
        Self::of(ErrorClass::Unknown, error.into())
    }

    /// What was to answer did not in time, and was given up: an attempt like any other.
    pub fn timeout(error: impl Into<Boxed>) -> Self {
        Self::of(ErrorClass::Timeout, error.into())
    }

    /// Of the class that the error itself names.
    pub fn classified<E: Classify>(error: E) -> Self {
        Self::of(error.class(), error.into())
    }

    fn of(class: ErrorClass, error: Boxed) -> Self {
        Self { class, error, retry_after: None, instead: Instead::Nothing }
    }

    /// Not now: the job waits at the head of its key for `wait` and runs again. Nothing is charged.
    #[must_use]
    pub fn snooze(wait: Duration) -> Self {
        let error = format!("snoozed for {} ms", wait.as_millis());
        Self { instead: Instead::Snooze(wait), ..Self::transient(error) }
    }

    /// Never: the job is done without effect, for this reason. It is counted and logged, and leaves no dead letter.
    pub fn discard(reason: impl Into<Boxed>) -> Self {
        Self { instead: Instead::Discard, ..Self::permanent(reason) }
    }

    /// Its effect is there already, by an earlier run of the same id: done without effect, counted as `duplicate`.
    #[must_use]
    pub fn duplicate() -> Self {
        Self { instead: Instead::Duplicate, ..Self::permanent("an earlier run of this job had its effect") }
    }

    /// Its version is not newer than what is there: done without effect, counted as `stale`.
    pub fn stale(reason: impl Into<Boxed>) -> Self {
        Self { instead: Instead::Stale, ..Self::permanent(reason) }
    }

    /// Nobody knows whether its effect happened: a dead letter `review` with this reason, for a person. For a call that
    /// was sent and never answered, where sending it again is worse than asking.
    pub fn review(reason: impl Into<Boxed>) -> Self {
        Self { instead: Instead::Review, ..Self::permanent(reason) }
    }

    /// The dependency said when to come again: the next attempt waits at least so long.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Whether trying again can help.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        self.class
    }

    /// Whether it says [`HandlerError::stale`].
    #[must_use]
    pub fn is_stale(&self) -> bool {
        matches!(self.instead, Instead::Stale)
    }

    /// With the class that `classifier` knows for it or one of its sources, outermost first, unless it has one.
    #[must_use]
    pub fn classified_by(mut self, classifier: Classifier) -> Self {
        if self.class == ErrorClass::Unknown {
            self.class = self.known_to(&[classifier]);
        }
        self
    }

    fn known_to(&self, classifiers: &[Classifier]) -> ErrorClass {
        self.sources()
            .take(MAX_CHAIN)
            .find_map(|error| classifiers.iter().find_map(|classifier| classifier(error)))
            .unwrap_or(ErrorClass::Unknown)
    }

    /// What the node hears.
    pub(crate) fn into_answer(self, classifiers: &[Classifier]) -> Answer {
        match self.instead {
            Instead::Nothing => Answer::Failed(self.into_failure(classifiers)),
            Instead::Snooze(wait) => Answer::Snoozed(wait),
            Instead::Discard => Answer::Discarded(self.chain().join(": ")),
            Instead::Duplicate => Answer::Duplicate,
            Instead::Stale => Answer::Stale(self.chain().join(": ")),
            Instead::Review => Answer::Review(self.chain().join(": ")),
        }
    }

    /// What settle writes. An error without a class is shown to `classifiers`, outermost first.
    pub(crate) fn into_failure(self, classifiers: &[Classifier]) -> Failure {
        let class = match self.class {
            ErrorClass::Unknown => self.known_to(classifiers),
            said => said,
        };
        Failure { class, chain: self.chain(), retry_after: self.retry_after }
    }

    /// The error and its sources, outermost first: at most [`MAX_CHAIN`], each of about [`MAX_ERROR_BYTES`] at most.
    #[must_use]
    pub fn chain(&self) -> Vec<String> {
        let mut sources = self.sources();
        let mut chain: Vec<String> = sources.by_ref().take(MAX_CHAIN).map(capped).collect();
        if sources.next().is_some() {
            chain.pop();
            chain.push(format!("… and more than {} errors under it", MAX_CHAIN - 1));
        }
        chain
    }

    fn sources(&self) -> impl Iterator<Item = &(dyn Error + 'static)> {
        let outermost: &(dyn Error + 'static) = self.error.as_ref();
        std::iter::successors(Some(outermost), |&error| error.source())
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::unknown(error)
    }
}

/// Gives up the class; how an error that has one gets another through [`WithClass`].
impl From<HandlerError> for Boxed {
    fn from(error: HandlerError) -> Self {
        error.error
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerError").field("class", &self.class).field("chain", &self.chain()).finish()
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} error: {}", self.class.as_str(), self.chain().join(": "))
    }
}

/// An error type that knows whether trying again can help.
///
/// Implement it once, then either name the type with `Registry::classify::<E>()`, after which `?` and
/// `Result<_, E>` heed it everywhere, or convert at the place with [`WithClass::classified`].
pub trait Classify: Error + Send + Sync + 'static {
    /// Its class.
    fn class(&self) -> ErrorClass;
}

/// Asks an error of unknown type for its class.
pub type Classifier = fn(&(dyn Error + 'static)) -> Option<ErrorClass>;

pub(crate) fn classifier<E: Classify>(error: &(dyn Error + 'static)) -> Option<ErrorClass> {
    error.downcast_ref::<E>().map(Classify::class)
}

/// Says the class of an error where it happens: `load(id).await.transient()?`. A class it had is replaced.
pub trait WithClass<T, E>: Sized {
    /// Will pass by itself.
    ///
    /// # Errors
    /// The error, of class `Transient`.
    fn transient(self) -> Result<T, HandlerError>
    where
        E: Into<Box<dyn Error + Send + Sync>>;

    /// Will not pass.
    ///
    /// # Errors
    /// The error, of class `Permanent`.
    fn permanent(self) -> Result<T, HandlerError>
    where
        E: Into<Box<dyn Error + Send + Sync>>;

    /// As the error itself says.
    ///
    /// # Errors
    /// The error, of the class it names.
    fn classified(self) -> Result<T, HandlerError>
    where
        E: Classify;
}

impl<T, E> WithClass<T, E> for Result<T, E> {
    fn transient(self) -> Result<T, HandlerError>
    where
        E: Into<Boxed>,
    {
        self.map_err(HandlerError::transient)
    }

    fn permanent(self) -> Result<T, HandlerError>
    where
        E: Into<Boxed>,
    {
        self.map_err(HandlerError::permanent)
    }

    fn classified(self) -> Result<T, HandlerError>
    where
        E: Classify,
    {
        self.map_err(HandlerError::classified)
    }
}

/// Text of at most [`MAX_ERROR_BYTES`] and an ellipsis. The rest is not even formatted.
pub(crate) fn capped(text: impl fmt::Display) -> String {
    struct Capped(String);
    impl Write for Capped {
        fn write_str(&mut self, more: &str) -> fmt::Result {
            let room = MAX_ERROR_BYTES.saturating_sub(self.0.len());
            if more.len() <= room {
                self.0.push_str(more);
                return Ok(());
            }
            self.0.push_str(&more[..more.floor_char_boundary(room)]);
            self.0.push('…');
            Err(fmt::Error)
        }
    }
    let mut kept = Capped(String::new());
    // An error is how the cap stops the formatting; what came until then is kept either way.
    let _ = write!(kept, "{text}");
    kept.0
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
