//! Figures from samples: rates without the ends, medians, percentiles.

use std::time::{Duration, Instant};

/// How many jobs were through at which moment.
#[derive(Debug)]
pub(crate) struct Samples(Vec<(Instant, u64)>);

impl Samples {
    /// None are through now.
    pub(crate) fn start() -> Self {
        Self(vec![(Instant::now(), 0)])
    }

    /// So many are through now.
    pub(crate) fn total(&mut self, total: u64) {
        self.0.push((Instant::now(), total));
    }

    /// So many more are through now.
    pub(crate) fn more(&mut self, jobs: u64) {
        let before = self.last();
        self.total(before + jobs);
    }

    /// How many are through.
    pub(crate) fn last(&self) -> u64 {
        self.0.last().map_or(0, |(_, total)| *total)
    }

    /// From the start to the last sample.
    pub(crate) fn whole(&self) -> Duration {
        let (first, last) = (self.0.first(), self.0.last());
        first.zip(last).map_or(Duration::ZERO, |(first, last)| last.0 - first.0)
    }

    /// Jobs per second between the tenth and the ninth tenth of `jobs`; over everything where there are too few samples.
    pub(crate) fn rate(&self, jobs: u64) -> f64 {
        let at = |bound: u64| self.0.iter().find(|(_, total)| *total >= bound).copied();
        let middle = at(jobs.div_ceil(10)).zip(at(jobs * 9 / 10)).filter(|(from, to)| from.1 < to.1);
        let all = self.0.first().copied().zip(self.0.last().copied());
        let Some((from, to)) = middle.or(all) else { return 0.0 };
        let seconds = (to.0 - from.0).max(Duration::from_micros(1)).as_secs_f64();
        (to.1 - from.1) as f64 / seconds
    }
}

/// The middle one; the mean of the two in the middle of an even number; 0 of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// The value that `share` (0 to 1) of the values do not exceed; 0 of none.
pub(crate) fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_run_do_not_count() {
        let start = Instant::now();
        let at = |ms: u64, total: u64| (start + Duration::from_millis(ms), total);
        // A slow start and a slow end around 800 jobs in 800 ms.
        let samples = Samples(vec![at(0, 0), at(5000, 100), at(5400, 500), at(5800, 900), at(9000, 1000)]);
        assert!((samples.rate(1000) - 1000.0).abs() < 1e-6);
        assert_eq!(samples.whole(), Duration::from_millis(9000));
        let few = Samples(vec![at(0, 0), at(500, 1000)]);
        assert!((few.rate(1000) - 2000.0).abs() < 1e-6);
    }

    #[test]
    fn medians_and_percentiles() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
        let mut values: Vec<f64> = (1..=100).map(f64::from).rev().collect();
        assert_eq!((percentile(&mut values, 0.5), percentile(&mut values, 0.99)), (50.0, 99.0));
        assert_eq!(percentile(&mut [], 0.5), 0.0);
    }
}
