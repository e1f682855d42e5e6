//! How much of a kind may run across the whole fleet: so many at a time, and so many in a stretch of time.

use std::fmt;
use std::time::Duration;

/// Most that may be said for runs at a time, or runs in a stretch of time.
pub const MAX_LIMIT: u32 = 100_000;
/// Most that a burst may be.
pub const MAX_BURST: u32 = 1_000_000;

/// Of what a rate is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RatePer {
    /// All runs of the kind together.
    #[default]
    Kind,
    /// The runs of each key by themselves.
    Key,
}

impl RatePer {
    /// The word used in settings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kind => "kind",
            Self::Key => "key",
        }
    }

    /// By its word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Kind, Self::Key].into_iter().find(|per| per.as_str() == word)
    }
}

/// So many runs in a stretch of time, evenly spread but for a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Runs, 1 to [`MAX_LIMIT`].
    pub runs: u32,
    /// In this stretch of time.
    pub every: Duration,
    /// So many may start at once where nothing ran for a while, 1 to [`MAX_BURST`].
    pub burst: u32,
    /// Of what they are counted.
    pub per: RatePer,
}

impl Rate {
    /// So many a second, and as many at once.
    #[must_use]
    pub fn per_second(runs: u32) -> Self {
        Self { runs, every: Duration::from_secs(1), burst: runs, per: RatePer::Kind }
    }

    /// So many a minute, and as many at once.
    #[must_use]
    pub fn per_minute(runs: u32) -> Self {
        Self { every: Duration::from_secs(60), ..Self::per_second(runs) }
    }

    /// With another burst.
    #[must_use]
    pub fn burst(self, burst: u32) -> Self {
        Self { burst, ..self }
    }

    /// Counted for each key by itself.
    #[must_use]
    pub fn per_key(self) -> Self {
        Self { per: RatePer::Key, ..self }
    }

    /// `100/s`, `5/m` or `20/h`; `None` for anything else. The burst is as many.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (runs, unit) = text.split_once('/')?;
        let digits = !runs.is_empty() && runs.bytes().all(|byte| byte.is_ascii_digit());
        let runs = runs.parse().ok().filter(|_| digits)?;
        let every = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            _ => return None,
        };
        Some(Self { every: Duration::from_secs(every), ..Self::per_second(runs) })
    }

    /// Time between two runs that keep it exactly, in µs.
    #[must_use]
    pub fn interval_us(&self) -> f64 {
        self.every.as_secs_f64() * 1e6 / f64::from(self.runs.max(1))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.every.as_secs() {
            1 => write!(f, "{}/s", self.runs)?,
            60 => write!(f, "{}/m", self.runs)?,
            3600 => write!(f, "{}/h", self.runs)?,
            _ => write!(f, "{} in {} ms", self.runs, self.every.as_millis())?,
        }
        match self.per {
            RatePer::Kind => Ok(()),
            RatePer::Key => f.write_str(" per key"),
        }
    }
}

/// What a kind is limited to, in each queue, across all nodes that serve it. Nothing said is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Limit {
    /// Runs at a time, 1 to [`MAX_LIMIT`].
    pub max_running: Option<u32>,
    /// Runs in a stretch of time.
    pub rate: Option<Rate>,
}

impl Limit {
    /// Whether it limits nothing.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// What is wrong with it.
    #[must_use]
    pub fn fault(&self) -> Option<&'static str> {
        if self.max_running.is_some_and(|most| !(1..=MAX_LIMIT).contains(&most)) {
            return Some("its limit of runs at a time must be 1 to 100000");
        }
        let rate = self.rate?;
        if !(1..=MAX_LIMIT).contains(&rate.runs) {
            return Some("its rate must be 1 to 100000 runs");
        }
        if !(1..=MAX_BURST).contains(&rate.burst) {
            return Some("the burst of its rate must be 1 to 1000000");
        }
        let legal = Duration::from_secs(1)..=Duration::from_secs(86_400);
        (!legal.contains(&rate.every)).then_some("its rate must be one in a second up to a day")
    }

    /// As nodes and scripts write it: `<runs at a time, 0 = any> <µs between runs, 0 = any> <burst> <kind or key>`.
    #[must_use]
    pub fn stored(&self) -> String {
        let most = self.max_running.unwrap_or(0);
        match &self.rate {
            Some(rate) => format!("{most} {:.3} {} {}", rate.interval_us(), rate.burst, rate.per.as_str()),
            None => format!("{most} 0 1 kind"),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.max_running, self.rate) {
            (Some(most), Some(rate)) => write!(f, "{most} at a time, {rate}"),
            (Some(most), None) => write!(f, "{most} at a time"),
            (None, Some(rate)) => write!(f, "{rate}"),
            (None, None) => f.write_str("no limit"),
        }
    }
}

/// A limit for people, from how it is [stored](Limit::stored): `5 at a time, 100/s per key (burst 100)`. What cannot be read is
/// shown as it is.
#[must_use]
pub fn shown(stored: &str) -> String {
    let mut words = stored.split(' ');
    let mut next = || words.next();
    let read = (|| {
        let most: u32 = next()?.parse().ok()?;
        let interval_us: f64 = next()?.parse().ok()?;
        Some((most, interval_us, next()?.to_owned(), next()? == "key"))
    })();
    let Some((most, interval_us, burst, per_key)) = read else { return stored.to_owned() };
    let mut parts = Vec::new();
    if most > 0 {
        parts.push(format!("{most} at a time"));
    }
    if interval_us > 0.0 {
        let (every, unit) = [(1e6, "s"), (6e7, "m"), (3.6e9, "h")]
            .into_iter()
            .find(|(every, _)| every / interval_us > 0.99)
            .unwrap_or((3.6e9, "h"));
        let per = if per_key { " per key" } else { "" };
        let runs = (every / interval_us * 100.0).round() / 100.0;
        parts.push(format!("{runs}/{unit}{per} (burst {burst})"));
    }
    if parts.is_empty() { "no limit".into() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_shown() {
        for text in ["100/s", "5/m", "20/h"] {
            assert_eq!(Rate::parse(text).unwrap().to_string(), text);
        }
        for wrong in ["", "100", "/s", "100/d", "-1/s", "+1/s", "1.5/s", "100/s ", "99999999999/s"] {
            assert_eq!(Rate::parse(wrong), None, "{wrong:?}");
        }
        let rate = Rate::parse("5/m").unwrap();
        assert_eq!((rate.burst, rate.interval_us()), (5, 12_000_000.0));
        assert_eq!(rate.per_key().to_string(), "5/m per key");
    }

    #[test]
    fn what_is_stored_is_shown_to_people() {
        let stored = |most, rate: Option<Rate>| shown(&Limit { max_running: most, rate }.stored());
        assert_eq!(stored(Some(5), None), "5 at a time");
        assert_eq!(stored(None, Some(Rate::per_second(300).per_key())), "300/s per key (burst 300)");
        assert_eq!(stored(Some(1), Some(Rate::per_minute(7).burst(2))), "1 at a time, 7/m (burst 2)");
        assert_eq!(stored(None, Rate::parse("20/h")), "20/h (burst 20)");
        assert_eq!(stored(None, None), "no limit");
        assert_eq!(shown("nonsense"), "nonsense");
    }

    #[test]
    fn limits_say_what_is_wrong_with_them_and_are_stored_in_one_line() {
        let limit = Limit { max_running: Some(5), rate: Some(Rate::per_second(300).burst(7).per_key()) };
        assert_eq!(limit.stored(), "5 3333.333 7 key");
        assert_eq!(Limit { max_running: Some(5), rate: None }.stored(), "5 0 1 kind");
        assert_eq!(limit.fault(), None);
        assert_eq!(limit.to_string(), "5 at a time, 300/s per key");
        assert!(Limit { max_running: Some(0), rate: None }.fault().is_some());
        assert!(Limit { max_running: Some(MAX_LIMIT + 1), rate: None }.fault().is_some());
        let rate = |rate| Limit { max_running: None, rate: Some(rate) }.fault().is_some();
        assert!(rate(Rate::per_second(0)) && rate(Rate::per_second(1).burst(0)));
        assert!(rate(Rate { every: Duration::from_millis(1), ..Rate::per_second(1) }));
    }
}
