//! When jobs that cannot wait in memory come again: one after another, about as often as one can begin.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// Most that are counted: whoever puts back more lets them come a little sooner.
const COUNTED: usize = 1 << 16;

/// Jobs that were put back and have not come again, by when they do.
#[derive(Debug, Default)]
pub(crate) struct Turns(BinaryHeap<Reverse<Instant>>);

impl Turns {
    /// How long the next one waits: `least`, and so long for each that waits already, of which there are so many: for all of them
    /// no more than `most`.
    pub(crate) fn next(
        &mut self,
        least: Duration,
        apart: Duration,
        most: impl FnOnce(u32) -> Duration,
        now: Instant,
    ) -> Duration {
        self.come(now);
        let before = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        let wait = least + apart.saturating_mul(before).min(most(before));
        if self.0.len() >= COUNTED {
            self.0.pop();
        }
        self.0.push(Reverse(now + wait));
        wait
    }

    /// Whether none waits.
    pub(crate) fn is_over(&mut self, now: Instant) -> bool {
        self.come(now);
        self.0.is_empty()
    }

    fn come(&mut self, now: Instant) {
        while self.0.peek().is_some_and(|Reverse(at)| *at <= now) {
            self.0.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_behind_those_that_wait_and_none_later_than_the_longest_time() {
        let (mut turns, now, ms) = (Turns::default(), Instant::now(), Duration::from_millis);
        assert!(turns.is_over(now));
        let mut next = |least, at| turns.next(ms(least), ms(40), |_| ms(100), now + ms(at));
        let waits: Vec<Duration> = (0..5).map(|_| next(10, 0)).collect();
        assert_eq!(waits, [ms(10), ms(50), ms(90), ms(110), ms(110)]);
        assert_eq!(next(10, 95), ms(90), "three have come");
        assert_eq!(next(10, 300), ms(10), "all have");
        assert!(!turns.is_over(now + ms(309)) && turns.is_over(now + ms(310)));
    }
}
