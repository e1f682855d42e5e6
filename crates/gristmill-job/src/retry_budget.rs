//! How many retries a node affords: a share of its first runs, and some per second. Keeps a dependency that fails from
//! being asked many times as often as one that works. Pure: the caller brings the time.

use std::time::Duration;

/// For how long what is not used is saved.
const SAVED_SECONDS: f64 = 10.0;
/// What first runs may save at least; else what they earned in the last ten to twenty seconds.
const EARNED_AT_LEAST: f64 = 100.0;
/// A sum of shares may miss a whole one by a rounding.
const NEARLY_ONE: f64 = 1.0 - 1e-9;

/// What a queue affords on one node.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryBudget {
    /// Retries per first run: 0.2 is one for five.
    pub share: f64,
    /// Retries per second besides.
    pub per_second: f64,
}

impl Default for RetryBudget {
    /// One retry for five first runs, and 10 per second.
    fn default() -> Self {
        Self { share: 0.2, per_second: 10.0 }
    }
}

impl RetryBudget {
    /// What is wrong with it. Without any retry per second, jobs that all wait for their retry would wait for ever.
    #[must_use]
    pub fn fault(&self) -> Option<&'static str> {
        if !(self.share.is_finite() && self.share >= 0.0) {
            return Some("the share of a retry budget must be a number from 0");
        }
        if !(self.per_second.is_finite() && self.per_second > 0.0) {
            return Some("the retries per second of a retry budget must be more than 0");
        }
        None
    }
}

/// What is left of a budget. Times are since any one moment; one that lies before an earlier one counts as that.
#[derive(Debug, Clone, PartialEq)]
pub struct Bucket {
    settings: RetryBudget,
    /// Retries that time has given; used first, because time gives no more to a full one.
    given: f64,
    /// Retries that first runs have earned.
    earned: f64,
    last: Duration,
    /// First runs since `since`, and in the ten seconds before.
    runs: (f64, f64),
    since: Duration,
}

impl Bucket {
    /// Ten seconds' worth of [`RetryBudget::per_second`].
    #[must_use]
    pub fn new(settings: RetryBudget, now: Duration) -> Self {
        let given = most_given(settings);
        Self { settings, given, earned: 0.0, last: now, runs: (0.0, 0.0), since: now }
    }

    /// A job ran for the first time: adds the share.
    pub fn ran(&mut self, now: Duration) {
        self.refill(now);
        self.runs.0 += 1.0;
        self.earned += self.settings.share;
        self.cut();
    }

    /// What was earned long ago is not saved.
    fn cut(&mut self) {
        let lately = self.settings.share * (self.runs.0 + self.runs.1);
        let most = EARNED_AT_LEAST.max(SAVED_SECONDS * self.settings.per_second).max(lately);
        self.earned = self.earned.min(most);
    }

    /// Whether a retry may run now; it is taken off then.
    #[must_use]
    pub fn take(&mut self, now: Duration) -> bool {
        self.refill(now);
        if self.given + self.earned < NEARLY_ONE {
            return false;
        }
        let of_time = self.given.min(1.0);
        self.given -= of_time;
        self.earned = (self.earned - (1.0 - of_time)).max(0.0);
        true
    }

    fn refill(&mut self, now: Duration) {
        let gone = now.saturating_sub(self.last).as_secs_f64();
        self.given = (self.given + gone * self.settings.per_second).min(most_given(self.settings));
        self.last = self.last.max(now);
        let gone = self.last.saturating_sub(self.since).as_secs_f64();
        if gone >= SAVED_SECONDS {
            let before = if gone < 2.0 * SAVED_SECONDS { self.runs.0 } else { 0.0 };
            (self.runs, self.since) = ((0.0, before), self.last);
            self.cut();
        }
    }
}

/// At least one, or a small rate would never come to a whole retry.
fn most_given(settings: RetryBudget) -> f64 {
    (SAVED_SECONDS * settings.per_second).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// How many it affords at once.
    fn taken(bucket: &mut Bucket, now: Duration) -> usize {
        (0..1_000_000).take_while(|_| bucket.take(now)).count()
    }

    #[test]
    fn it_begins_with_ten_seconds_and_time_gives_the_rest() {
        let mut bucket = Bucket::new(RetryBudget::default(), at(5_000));
        assert_eq!(taken(&mut bucket, at(5_000)), 100);
        assert_eq!(taken(&mut bucket, at(5_099)), 0);
        assert_eq!(taken(&mut bucket, at(5_100)), 1);
        assert_eq!(taken(&mut bucket, at(7_100)), 20);
        assert_eq!(taken(&mut bucket, at(3_600_000)), 100);
    }

    #[test]
    fn first_runs_earn_their_share() {
        let mut bucket = Bucket::new(RetryBudget { share: 0.1, per_second: 1.0 }, at(0));
        assert_eq!(taken(&mut bucket, at(0)), 10);
        (0..9).for_each(|_| bucket.ran(at(0)));
        assert!(!bucket.take(at(0)));
        bucket.ran(at(0));
        assert_eq!(taken(&mut bucket, at(0)), 1);
    }

    #[test]
    fn halves_of_time_and_of_runs_make_a_whole() {
        let mut bucket = Bucket::new(RetryBudget { share: 0.5, per_second: 1.0 }, at(0));
        assert_eq!(taken(&mut bucket, at(0)), 10);
        bucket.ran(at(500));
        assert_eq!(taken(&mut bucket, at(500)), 1);
        assert_eq!(taken(&mut bucket, at(1_400)), 0);
    }

    #[test]
    fn what_is_saved_is_bounded() {
        for (per_second, most) in [(1.0, 10 + 100), (50.0, 500 + 500)] {
            let mut bucket = Bucket::new(RetryBudget { share: 0.2, per_second }, at(0));
            (0..100_000).for_each(|_| bucket.ran(at(0)));
            assert_eq!(taken(&mut bucket, at(60_000)), most);
        }
    }

    #[test]
    fn a_fast_queue_saves_what_it_earned_lately() {
        let mut bucket = Bucket::new(RetryBudget { share: 0.2, per_second: 1.0 }, at(0));
        (0..100_000).for_each(|_| bucket.ran(at(0)));
        assert_eq!(taken(&mut bucket.clone(), at(1_000)), 20_000 + 10);
        assert_eq!(taken(&mut bucket.clone(), at(15_000)), 20_000 + 10);
        assert_eq!(taken(&mut bucket, at(30_000)), 100 + 10, "what was earned long ago is not saved");
    }

    #[test]
    fn a_fleet_that_only_fails_retries_no_more_than_its_share_and_its_rate() {
        let mut bucket = Bucket::new(RetryBudget::default(), at(0));
        let mut retries = 0;
        for ms in 0..60_000 {
            bucket.ran(at(ms));
            retries += taken(&mut bucket, at(ms));
        }
        assert!((12_700 - 1..=12_700).contains(&retries), "{retries}: 100 + 60 * 10 + 60 000 / 5");
    }

    #[test]
    fn a_small_rate_and_a_clock_that_goes_back() {
        let mut bucket = Bucket::new(RetryBudget { share: 0.0, per_second: 0.01 }, at(0));
        assert_eq!(taken(&mut bucket, at(0)), 1);
        assert_eq!(taken(&mut bucket, at(99_000)), 0);
        assert_eq!(taken(&mut bucket, at(100_000)), 1);
        assert_eq!(taken(&mut bucket, at(1)), 0);
        assert_eq!(taken(&mut bucket, at(150_000)), 0, "time that was counted is not given again");
    }

    #[test]
    fn what_is_no_budget_is_told() {
        assert_eq!(RetryBudget::default().fault(), None);
        for (share, per_second) in [
            (-0.1, 1.0),
            (f64::NAN, 1.0),
            (f64::INFINITY, 1.0),
            (0.2, 0.0),
            (0.2, f64::NAN),
            (0.2, f64::INFINITY),
        ] {
            assert!(RetryBudget { share, per_second }.fault().is_some(), "{share} {per_second}");
        }
    }
}
