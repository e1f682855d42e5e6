//! Waiting for a state: poll a condition until it holds or a deadline passes, and say what was waited for.

use crate::Error;
use std::{
    thread,
    time::{Duration, Instant},
};

/// How long the polling helpers pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A moment after which waiting is given up. Made from a `Duration` wherever one is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    start: Instant,
    end: Instant,
}

impl Deadline {
    /// A deadline this long from now.
    pub fn after(duration: Duration) -> Self {
        let start = Instant::now();
        // A duration without end, such as `Duration::MAX`, is cut to a year.
        let end = start.checked_add(duration).unwrap_or(start + Duration::from_secs(365 * 24 * 3600));
        Self { start, end }
    }

    /// What is left; zero when it has passed.
    pub fn remaining(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Whether it has passed.
    pub fn passed(&self) -> bool {
        self.remaining().is_zero()
    }

    /// Time since the deadline was set.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Polls until `look` finds something.
    ///
    /// # Errors
    /// [`Error::Timeout`] naming `what` when the deadline passes first. `look` is called at least once, and once more
    /// after the deadline.
    pub fn poll<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, Error> {
        loop {
            let last = self.passed();
            if let Some(found) = look() {
                return Ok(found);
            }
            if last {
                return Err(self.timeout(what, String::new()));
            }
            thread::sleep(LOOK_EVERY.min(self.remaining()));
        }
    }

    pub(crate) fn timeout(&self, what: impl Into<String>, detail: String) -> Error {
        Error::Timeout { what: what.into(), waited: self.elapsed(), detail }
    }
}

impl From<Duration> for Deadline {
    fn from(duration: Duration) -> Self {
        Self::after(duration)
    }
}

/// Polls until `look` finds something, for use in tests.
///
/// # Panics
/// When the deadline passes first; the message names `what` and the time waited.
#[track_caller]
pub fn eventually<T>(deadline: impl Into<Deadline>, what: &str, look: impl FnMut() -> Option<T>) -> T {
    match deadline.into().poll(what, look) {
        Ok(found) => found,
        Err(error) => panic!("{error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_until_it_is_there() {
        let mut looks = 0;
        let found = eventually(Duration::from_secs(5), "the third look", || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found, 3);
    }

    #[test]
    #[should_panic(expected = "for a thing that never comes, in vain")]
    fn panics_with_what_was_waited_for() {
        eventually(Duration::from_millis(20), "a thing that never comes", || None::<()>);
    }

    #[test]
    fn looks_once_even_when_already_late() {
        assert_eq!(Deadline::after(Duration::ZERO).poll("now", || Some(1)).unwrap(), 1);
    }
}
