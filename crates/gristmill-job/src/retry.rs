//! How long a job that failed waits, and how often it is tried. Pure: the caller brings the random number.

use std::time::Duration;

/// Exponential backoff with full jitter above a floor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Wait before the second attempt, before jitter; doubled with every further attempt.
    pub base: Duration,
    /// Longest wait, before jitter.
    pub cap: Duration,
    /// Shortest wait, whatever the jitter says.
    pub floor: Duration,
    /// How many attempts a job has in all.
    pub max_attempts: u32,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            base: Duration::from_secs(1),
            cap: Duration::from_secs(300),
            floor: Duration::from_millis(100),
            max_attempts: 10,
        }
    }
}

impl RetryPolicy {
    /// The wait after `attempts` failed attempts (1 or more): uniform between the floor and `base * 2^(attempts-1)`,
    /// capped. `random` is uniform in `[0, 1)`.
    #[must_use]
    pub fn backoff(&self, attempts: u32, random: f64) -> Duration {
        let doublings = attempts.saturating_sub(1).min(31);
        let ceiling = self.base.saturating_mul(1 << doublings).min(self.cap);
        let span = ceiling.saturating_sub(self.floor);
        self.floor + span.mul_f64(random.clamp(0.0, 1.0))
    }

    /// Whether a job that has failed `attempts` times is tried again, under its own limit if it has one.
    #[must_use]
    pub fn allows(&self, attempts: u32, own_limit: Option<u32>) -> bool {
        attempts < own_limit.unwrap_or(self.max_attempts).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_to_its_cap_and_never_falls_under_its_floor() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.backoff(1, 0.0), policy.floor);
        assert_eq!(policy.backoff(1, 1.0), Duration::from_secs(1));
        assert_eq!(policy.backoff(4, 1.0), Duration::from_secs(8));
        assert_eq!(policy.backoff(u32::MAX, 1.0), policy.cap);
    }

    #[test]
    fn a_floor_above_the_ceiling_wins() {
        let policy = RetryPolicy { base: Duration::from_millis(1), ..RetryPolicy::default() };
        assert_eq!(policy.backoff(1, 1.0), policy.floor);
    }

    #[test]
    fn the_last_attempt_is_the_limit_and_a_job_has_at_least_one() {
        let policy = RetryPolicy { max_attempts: 3, ..RetryPolicy::default() };
        assert!(policy.allows(2, None));
        assert!(!policy.allows(3, None));
        assert!(policy.allows(3, Some(5)));
        assert!(policy.allows(0, Some(0)) && !policy.allows(1, Some(0)));
    }
}
