//! Where the Redis clock stands, as answers have told it. It decides when to ask, never what is due: the script does.

use gristmill_job::UnixMillis;
use std::time::{Duration, Instant};

/// An answer that took longer than this is believed only where there is no better one.
const OLD: Duration = Duration::from_secs(30);
/// By so much may an answer differ from what was expected, beyond the time it took, before the clock counts as set.
const SET: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct RedisClock(Option<Heard>);

#[derive(Debug)]
struct Heard {
    redis: UnixMillis,
    at: Instant,
    took: Duration,
}

impl RedisClock {
    /// An answer told the time. It was told between sending and hearing; the middle is off by half of that at most.
    pub(super) fn heard(&mut self, redis: UnixMillis, sent: Instant, heard: Instant) {
        let took = heard.saturating_duration_since(sent);
        let at = sent + took / 2;
        let believed = match &self.0 {
            None => true,
            Some(before) => {
                let expected = before.shows(at);
                let off = Duration::from_millis(expected.0.abs_diff(redis.0));
                let is_set = off > SET + took + before.took;
                is_set || took <= before.took * 2 || heard.saturating_duration_since(before.at) > OLD
            }
        };
        if believed {
            self.0 = Some(Heard { redis, at, took });
        }
    }

    /// What it shows then; `None` before the first answer.
    pub(super) fn at(&self, instant: Instant) -> Option<UnixMillis> {
        self.0.as_ref().map(|heard| heard.shows(instant))
    }
}

impl Heard {
    fn shows(&self, instant: Instant) -> UnixMillis {
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        match instant.checked_duration_since(self.at) {
            Some(since) => UnixMillis(self.redis.0.saturating_add(ms(since))),
            None => UnixMillis(self.redis.0.saturating_sub(ms(self.at - instant))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn it_goes_by_the_quickest_answer_and_follows_a_clock_that_is_set() {
        let (start, mut clock) = (Instant::now(), RedisClock::default());
        assert_eq!(clock.at(start), None);
        clock.heard(UnixMillis(10_000), start, start + ms(2));
        assert_eq!(clock.at(start + ms(1)), Some(UnixMillis(10_000)));
        assert_eq!(clock.at(start + ms(501)), Some(UnixMillis(10_500)));
        assert_eq!(clock.at(start), Some(UnixMillis(9_999)));
        // Slow, and as good as what is known: no news.
        clock.heard(UnixMillis(11_000), start + ms(1000), start + ms(1090));
        assert_eq!(clock.at(start + ms(1001)), Some(UnixMillis(11_000)));
        // Set back by an hour, told slowly.
        clock.heard(UnixMillis(3), start + ms(2000), start + ms(2090));
        assert_eq!(clock.at(start + ms(2045)), Some(UnixMillis(3)));
        // After a while a slow one is better than an old one.
        clock.heard(UnixMillis(40_003), start + ms(42_000), start + ms(42_090));
        clock.heard(UnixMillis(40_100), start + ms(42_100), start + ms(42_500));
        assert_eq!(clock.at(start + ms(42_045)), Some(UnixMillis(40_003)));
    }
}
