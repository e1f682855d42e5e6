//! One series of a metric: plain atomics, moved from anywhere.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// So many more.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Counted elsewhere, and only growing: takes that number.
    pub fn reach(&self, count: u64) {
        self.0.fetch_max(count, Ordering::Relaxed);
    }

    /// Counted elsewhere: takes that number, also where it is less (what was counted was made anew).
    pub fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// How many.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// It is so much now.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// So much more, or less.
    pub fn add(&self, value: f64) {
        let added = |bits| Some((f64::from_bits(bits) + value).to_bits());
        // Never refuses.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
    }

    /// How much.
    #[must_use]
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// A histogram of durations, in µs.
#[derive(Debug)]
pub struct Histogram {
    bounds_us: &'static [u64],
    /// One for each bound, and one for what is beyond the last.
    buckets: Box<[AtomicU64]>,
    sum_us: AtomicU64,
}

/// What a histogram holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Upper ends, in µs.
    pub bounds_us: &'static [u64],
    /// How many lie in each bucket alone; one more than there are bounds.
    pub counts: Vec<u64>,
    /// All of them together, in µs.
    pub sum_us: u64,
}

impl Histogram {
    /// An empty one, with these upper ends.
    #[must_use]
    pub fn new(bounds_us: &'static [u64]) -> Self {
        let buckets = (0..=bounds_us.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds_us, buckets, sum_us: AtomicU64::new(0) }
    }

    /// One more.
    pub fn observe(&self, took: Duration) {
        self.observe_us(micros(took));
    }

    /// The same, in µs.
    pub fn observe_us(&self, us: u64) {
        self.add(bucket_of(self.bounds_us, us), 1);
        self.add_sum(us);
    }

    /// So many more in this bucket; their sum comes apart.
    pub(crate) fn add(&self, bucket: usize, count: u64) {
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(count, Ordering::Relaxed);
        }
    }

    pub(crate) fn add_sum(&self, us: u64) {
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// What it holds.
    #[must_use]
    pub fn held(&self) -> Held {
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        Held { bounds_us: self.bounds_us, counts, sum_us: self.sum_us.load(Ordering::Relaxed) }
    }
}

/// Which bucket a value belongs to. Most values are small, so it is looked for from below.
pub(crate) fn bucket_of(bounds_us: &[u64], us: u64) -> usize {
    bounds_us.iter().position(|bound| us <= *bound).unwrap_or(bounds_us.len())
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_in_the_first_bucket_that_holds_it() {
        let histogram = Histogram::new(&[10, 20]);
        for us in [0, 10, 11, 20, 21, 1000] {
            histogram.observe_us(us);
        }
        assert_eq!(histogram.held().counts, [2, 2, 2]);
        assert_eq!(histogram.held().sum_us, 1062);
    }

    #[test]
    fn a_gauge_goes_both_ways() {
        let gauge = Gauge::default();
        gauge.set(2.5);
        gauge.add(-1.0);
        assert!((gauge.get() - 1.5).abs() < f64::EPSILON);
    }
}
