//! When a job is due, as its producer says it.

use crate::time::UnixMillis;
use std::fmt;
use std::time::Duration;

/// How far away a job may be due: ten years.
pub const MAX_DELAY: Duration = Duration::from_secs(3653 * 86_400);

/// When a job becomes ready. Until then it lies beside the stream and has no place. Redis' clock decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Due {
    /// At once.
    #[default]
    Now,
    /// Then; a time that is over means at once.
    At(UnixMillis),
    /// So long after it was enqueued.
    In(Duration),
}

/// A time further away than [`MAX_DELAY`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a due time within ten years, got {due}; times are in milliseconds (since 1970, if absolute)"
)]
pub struct TooFar {
    /// What was asked for.
    pub due: Due,
}

impl Due {
    /// Whether it is within [`MAX_DELAY`] of `now`. The clock is a label: it tells a unit that was mistaken, and the script
    /// that enqueues looks once more, by the clock of Redis.
    ///
    /// # Errors
    /// [`TooFar`].
    pub fn within_bounds(self, now: UnixMillis) -> Result<Self, TooFar> {
        let delay = match self {
            Self::Now => Duration::ZERO,
            Self::At(at) => now.age_at(at),
            Self::In(delay) => delay,
        };
        if delay <= MAX_DELAY { Ok(self) } else { Err(TooFar { due: self }) }
    }
}

/// As it is sent: nothing, milliseconds since 1970, or `+` and milliseconds from now. A part of a millisecond is a whole one.
impl fmt::Display for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now => Ok(()),
            Self::At(at) => write!(f, "{at}"),
            Self::In(delay) => write!(f, "+{}", delay.as_nanos().div_ceil(1_000_000)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_due_time_is_sent_as_the_script_reads_it_and_never_too_early() {
        assert_eq!(Due::Now.to_string(), "");
        assert_eq!(Due::At(UnixMillis(5)).to_string(), "5");
        assert_eq!(Due::In(Duration::from_micros(1001)).to_string(), "+2");
        assert_eq!(Due::In(Duration::ZERO).to_string(), "+0");
    }

    #[test]
    fn what_is_further_away_than_ten_years_was_meant_in_another_unit() {
        let now = UnixMillis(1_800_000_000_000);
        let far = u64::try_from(MAX_DELAY.as_millis()).unwrap();
        for due in [Due::Now, Due::At(UnixMillis(0)), Due::At(UnixMillis(now.0 + far)), Due::In(MAX_DELAY)] {
            assert_eq!(due.within_bounds(now), Ok(due));
        }
        let microseconds = Due::At(UnixMillis(now.0 * 1000));
        for due in
            [Due::At(UnixMillis(now.0 + far + 1)), Due::In(MAX_DELAY + Duration::from_nanos(1)), microseconds]
        {
            assert!(due.within_bounds(now).is_err(), "{due}");
        }
    }
}
