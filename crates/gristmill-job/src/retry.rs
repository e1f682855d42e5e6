//! How long a job that failed waits, how often it is tried, and until what age. Pure: the caller brings the random number.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How the wait grows with the attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backoff {
    /// `base * 2^(attempts - 1)`.
    Exponential {
        /// Before the second attempt.
        base: Duration,
    },
    /// `step * attempts`.
    Linear {
        /// What each attempt adds.
        step: Duration,
    },
    /// Always the same.
    Fixed {
        /// Before each further attempt.
        wait: Duration,
    },
    /// As a function says.
    Custom(CustomBackoff),
}

/// A function from failed attempts (1 or more) to a wait. Two are equal if they are the same function.
#[derive(Clone)]
pub struct CustomBackoff(Arc<dyn Fn(u32) -> Duration + Send + Sync>);

impl PartialEq for CustomBackoff {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CustomBackoff {}

impl fmt::Debug for CustomBackoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CustomBackoff")
    }
}

/// When a failed job is tried again, and when no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How the wait grows, before cap and jitter.
    pub backoff: Backoff,
    /// Longest wait.
    pub cap: Duration,
    /// Shortest wait, whatever the jitter says.
    pub floor: Duration,
    /// Spreads the wait evenly between floor and its full length, so that jobs that failed together do not come together.
    pub jitter: bool,
    /// How many attempts a job has in all.
    pub max_attempts: u32,
    /// Older than this, counted from when it was enqueued, a job is tried no more; no limit where nothing is said.
    pub max_age: Option<Duration>,
}

impl Default for RetryPolicy {
    /// Exponential from 1 s to 5 minutes with full jitter above 100 ms; 10 attempts, at any age.
    fn default() -> Self {
        Self {
            backoff: Backoff::Exponential { base: Duration::from_secs(1) },
            cap: Duration::from_secs(300),
            floor: Duration::from_millis(100),
            jitter: true,
            max_attempts: 10,
            max_age: None,
        }
    }
}

impl RetryPolicy {
    /// The default with another first wait.
    #[must_use]
    pub fn exponential(base: Duration) -> Self {
        Self { backoff: Backoff::Exponential { base }, ..Self::default() }
    }

    /// Waits that grow by `step`.
    #[must_use]
    pub fn linear(step: Duration) -> Self {
        Self { backoff: Backoff::Linear { step }, ..Self::default() }
    }

    /// The same wait every time, with jitter.
    #[must_use]
    pub fn fixed(wait: Duration) -> Self {
        Self { backoff: Backoff::Fixed { wait }, ..Self::default() }
    }

    /// Waits as `wait` says for so many failed attempts, without jitter; cap and floor still hold.
    #[must_use]
    pub fn custom(wait: impl Fn(u32) -> Duration + Send + Sync + 'static) -> Self {
        Self { backoff: Backoff::Custom(CustomBackoff(Arc::new(wait))), jitter: false, ..Self::default() }
    }

    /// With another limit of attempts.
    #[must_use]
    pub fn with_max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// With a limit of age.
    #[must_use]
    pub fn with_max_age(mut self, age: Duration) -> Self {
        self.max_age = Some(age);
        self
    }

    /// With other bounds of the wait.
    #[must_use]
    pub fn with_bounds(mut self, floor: Duration, cap: Duration) -> Self {
        (self.floor, self.cap) = (floor, cap);
        self
    }

    /// The wait after `attempts` failed attempts (1 or more). `random` is uniform in `[0, 1)`.
    #[must_use]
    pub fn wait(&self, attempts: u32, random: f64) -> Duration {
        let full = match &self.backoff {
            Backoff::Exponential { base } => base.saturating_mul(1 << attempts.saturating_sub(1).min(31)),
            Backoff::Linear { step } => step.saturating_mul(attempts),
            Backoff::Fixed { wait } => *wait,
            Backoff::Custom(wait) => (wait.0)(attempts),
        };
        let full = full.min(self.cap);
        if !self.jitter {
            return full.max(self.floor);
        }
        self.floor + full.saturating_sub(self.floor).mul_f64(random.clamp(0.0, 1.0))
    }

    /// Whether a job that has failed `attempts` times is tried again, under its own limit if it has one.
    #[must_use]
    pub fn allows(&self, attempts: u32, own_limit: Option<u32>) -> bool {
        attempts < own_limit.unwrap_or(self.max_attempts).max(1)
    }

    /// Whether a job of that age, counted from when it was enqueued, is tried no more.
    #[must_use]
    pub fn too_old(&self, age: Duration) -> bool {
        self.max_age.is_some_and(|most| age > most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn backoff_doubles_to_its_cap_and_never_falls_under_its_floor() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.wait(1, 0.0), policy.floor);
        assert_eq!(policy.wait(1, 1.0), SECOND);
        assert_eq!(policy.wait(4, 1.0), SECOND * 8);
        assert_eq!(policy.wait(u32::MAX, 1.0), policy.cap);
    }

    #[test]
    fn other_shapes_grow_as_they_say() {
        assert_eq!(RetryPolicy::linear(SECOND).wait(3, 1.0), SECOND * 3);
        assert_eq!(RetryPolicy::fixed(SECOND).wait(9, 1.0), SECOND);
        let squares = RetryPolicy::custom(|n| SECOND * n * n);
        assert_eq!((squares.wait(3, 0.1), squares.wait(3, 0.9)), (SECOND * 9, SECOND * 9));
        assert_eq!(squares.wait(100, 0.5), squares.cap);
        assert_eq!(squares, squares.clone());
        assert_ne!(squares, RetryPolicy::custom(|n| SECOND * n * n));
    }

    #[test]
    fn a_floor_above_the_full_wait_wins() {
        let policy = RetryPolicy::exponential(Duration::from_millis(1));
        assert_eq!(policy.wait(1, 1.0), policy.floor);
        let policy = RetryPolicy { jitter: false, ..policy };
        assert_eq!(policy.wait(1, 0.0), policy.floor);
    }

    #[test]
    fn the_last_attempt_is_the_limit_and_a_job_has_at_least_one() {
        let policy = RetryPolicy::default().with_max_attempts(3);
        assert!(policy.allows(2, None));
        assert!(!policy.allows(3, None));
        assert!(policy.allows(3, Some(5)));
        assert!(policy.allows(0, Some(0)) && !policy.allows(1, Some(0)));
    }

    #[test]
    fn a_job_is_too_old_only_under_a_limit_of_age() {
        assert!(!RetryPolicy::default().too_old(Duration::MAX));
        let policy = RetryPolicy::default().with_max_age(SECOND);
        assert!(!policy.too_old(SECOND) && policy.too_old(SECOND + Duration::from_millis(1)));
    }
}
