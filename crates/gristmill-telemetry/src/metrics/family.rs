//! All series of one metric, by the values of its labels.

use super::series::{Counter, Gauge, Histogram};
use super::{About, Sort};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Series that one metric may have. Label values come from settings and fixed words, so that no run comes near; what came
/// beyond would be counted together under [`OTHER`].
pub const MOST_SERIES: usize = 20_000;
/// The value of every label of what is beyond [`MOST_SERIES`].
pub const OTHER: &str = "other";

/// What may be a series.
pub trait Series: Sized {
    /// Which sort of metric it belongs to.
    const SORT: Sort;

    /// One that was not moved yet.
    fn new(about: &About) -> Self;

    /// What it shows now.
    fn shown(&self) -> Shown;
}

/// What a series shows.
#[derive(Debug, Clone, PartialEq)]
pub enum Shown {
    /// Of a counter.
    Count(u64),
    /// Of a gauge.
    Value(f64),
    /// Of a histogram.
    Held(super::series::Held),
}

impl Series for Counter {
    const SORT: Sort = Sort::Counter;

    fn new(_: &About) -> Self {
        Self::default()
    }

    fn shown(&self) -> Shown {
        Shown::Count(self.get())
    }
}

impl Series for Gauge {
    const SORT: Sort = Sort::Gauge;

    fn new(_: &About) -> Self {
        Self::default()
    }

    fn shown(&self) -> Shown {
        Shown::Value(self.get())
    }
}

impl Series for Histogram {
    const SORT: Sort = Sort::Histogram;

    fn new(about: &About) -> Self {
        Self::new(about.bounds_us)
    }

    fn shown(&self) -> Shown {
        Shown::Held(self.held())
    }
}

/// One metric.
#[derive(Debug)]
pub struct Family<S> {
    about: &'static About,
    series: RwLock<BTreeMap<Vec<String>, Arc<S>>>,
}

impl<S: Series> Family<S> {
    pub(crate) fn new(about: &'static About) -> Self {
        Self { about, series: RwLock::default() }
    }

    /// The series with these values, in the order of its labels; it is there from then on. Whoever moves it often keeps it.
    #[must_use]
    pub fn with(&self, values: &[&str]) -> Arc<S> {
        debug_assert_eq!(values.len(), self.about.labels.len(), "{}", self.about.name);
        let key: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        if let Some(found) = self.series.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return found.clone();
        }
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        let is_full = series.len() >= MOST_SERIES && !series.contains_key(&key);
        let key = if is_full { vec![OTHER.to_owned(); values.len()] } else { key };
        series.entry(key).or_insert_with(|| Arc::new(S::new(self.about))).clone()
    }

    /// The only series of a metric without labels.
    #[must_use]
    pub fn one(&self) -> Arc<S> {
        self.with(&[])
    }

    /// Keeps the series whose values are of these, where what they tell of may be gone.
    pub fn retain(&self, kept: impl Fn(&[String]) -> bool) {
        self.series.write().unwrap_or_else(PoisonError::into_inner).retain(|values, _| kept(values));
    }
}

/// A metric, whatever its sort.
pub(crate) trait AnyFamily {
    fn about(&self) -> &'static About;

    /// Every series, in the order of its values.
    fn all(&self) -> Vec<(Vec<String>, Shown)>;

    /// Makes the only series of a counter or histogram without labels: what never happened happened 0 times, while a gauge
    /// that nobody set tells nothing.
    fn show_one(&self);
}

impl<S: Series> AnyFamily for Family<S> {
    fn about(&self) -> &'static About {
        self.about
    }

    fn all(&self) -> Vec<(Vec<String>, Shown)> {
        let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
        series.iter().map(|(values, series)| (values.clone(), series.shown())).collect()
    }

    fn show_one(&self) {
        if self.about.labels.is_empty() && S::SORT != Sort::Gauge {
            drop(self.one());
        }
    }
}
