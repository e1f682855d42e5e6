//! When slots are: cron in a time zone, or an interval.
//!
//! Time zones come with the program and not from the machine, so that all nodes of one release know the same ones.
//!
//! What happens when clocks change (croner follows Vixie cron, and tests here hold it to that): a time of day, with one
//! second, one minute and one hour, that does not exist comes at the first moment after the gap, and one that exists twice
//! comes once, at its first. Any other pattern (a wildcard, a step, a range or a list in one of the three) goes by what the
//! clock on the wall shows: it has no slots in a gap, and comes twice in an hour that comes twice.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use gristmill_job::UnixMillis;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Longest cron text, in bytes.
pub const MAX_CRON_BYTES: usize = 128;
/// Longest name of a time zone, in bytes.
pub const MAX_ZONE_BYTES: usize = 64;
/// Shortest interval.
pub const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
/// Longest interval: ten years.
pub const LONGEST_INTERVAL: Duration = Duration::from_secs(3660 * 24 * 3600);

/// Why a text says no timing: what was expected, what came.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// No cron text.
    #[error(
        "expected cron of 5 fields (minute hour day month weekday), or 6 with the second first, in at most \
         {MAX_CRON_BYTES} characters, such as \"30 2 * * MON-FRI\", got {got:?}: {why}"
    )]
    Cron {
        /// What came.
        got: String,
        /// What is wrong with it.
        why: String,
    },
    /// No time zone.
    #[error("expected a time zone of the IANA database, such as UTC or Europe/Berlin, got {0:?}")]
    Zone(String),
    /// No interval.
    #[error("expected a number and ms, s, m, h or d, from 1s to 3660d, such as \"90s\", got {0:?}")]
    Interval(String),
    /// No moment.
    #[error("expected a moment with its offset, such as 2026-01-31T06:00:00Z, got {0:?}")]
    Anchor(String),
}

/// When slots are.
#[derive(Debug, Clone, PartialEq)]
pub enum Timing {
    /// By the clock on a wall.
    Cron(CronTiming),
    /// At the anchor, and every so often before and after it.
    Every {
        /// From slot to slot, in ms.
        every_ms: u64,
        /// A moment that is a slot, or would be.
        anchor: UnixMillis,
    },
}

/// A cron text in its time zone.
#[derive(Debug, Clone)]
pub struct CronTiming {
    text: String,
    cron: Arc<Cron>,
    zone: TimeZone,
}

impl PartialEq for CronTiming {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.zone_name() == other.zone_name()
    }
}

impl CronTiming {
    /// The text, as it was said but for spaces.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The time zone, as the database spells it.
    #[must_use]
    pub fn zone_name(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }
}

impl Timing {
    /// Reads a cron text and the name of a time zone.
    ///
    /// # Errors
    /// [`TimingError::Cron`], also for one that never comes (30 February); [`TimingError::Zone`].
    pub fn cron(text: &str, zone: &str) -> Result<Self, TimingError> {
        let cut = |text: &str| text.chars().take(MAX_CRON_BYTES).collect::<String>();
        let wrong = |why: String| TimingError::Cron { got: cut(text), why };
        if text.len() > MAX_CRON_BYTES || !text.is_ascii() {
            return Err(wrong(format!("{} bytes, or other letters than ASCII", text.len())));
        }
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let cron = parser.parse(text).map_err(|error| wrong(error.to_string()))?;
        let zone = zone_of(zone)?;
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let timing = Self::Cron(CronTiming { text, cron: Arc::new(cron), zone });
        match timing.next_after(UnixMillis(0)) {
            Some(_) => Ok(timing),
            None => Err(wrong("it never comes".into())),
        }
    }

    /// Reads an interval and its anchor; without one, that is the start of 1970.
    ///
    /// # Errors
    /// [`TimingError::Interval`], [`TimingError::Anchor`].
    pub fn every(interval: &str, anchor: Option<&str>) -> Result<Self, TimingError> {
        let every = interval_of(interval).ok_or_else(|| TimingError::Interval(short(interval)))?;
        let anchor = match anchor {
            None => UnixMillis(0),
            Some(text) => moment_of(text).ok_or_else(|| TimingError::Anchor(short(text)))?,
        };
        Ok(Self::Every { every_ms: u64::try_from(every.as_millis()).unwrap_or(u64::MAX), anchor })
    }

    /// The first slot after this moment; `None` where none comes before the year 5000.
    #[must_use]
    pub fn next_after(&self, after: UnixMillis) -> Option<UnixMillis> {
        let next = match self {
            Self::Every { every_ms, anchor } => {
                let (every, anchor) = (i128::from((*every_ms).max(1)), i128::from(anchor.0));
                let since = (i128::from(after.0) - anchor).div_euclid(every);
                u64::try_from(anchor + (since + 1) * every).ok()?
            }
            Self::Cron(CronTiming { cron, zone, .. }) => {
                // Slots are whole seconds: those after 12:00:00.5 are those after 12:00:00.
                let second = i64::try_from(after.0 / 1000).ok()?;
                let from = Timestamp::from_second(second).ok()?.to_zoned(zone.clone());
                let next = cron.find_next_occurrence(&from, false).ok()?;
                u64::try_from(next.timestamp().as_millisecond()).ok()?
            }
        };
        // Whatever a library answers, a walk over slots goes forward.
        (next > after.0).then_some(UnixMillis(next))
    }

    /// The newest slot after `after` and not after `until`.
    #[must_use]
    pub fn latest(&self, after: UnixMillis, until: UnixMillis) -> Option<UnixMillis> {
        let comes = |from: u64| self.next_after(UnixMillis(from)).filter(|slot| *slot <= until);
        let mut found = comes(after.0)?;
        // Of the moments behind which a slot still comes, the last: found by halves, however many slots lie between.
        let (mut low, mut high) = (found.0, until.0);
        while low < high {
            let middle = low + (high - low) / 2;
            match comes(middle) {
                Some(slot) => (found, low) = (slot, slot.0),
                None => high = middle,
            }
        }
        Some(found)
    }

    /// Two timings with the same text have the same slots.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Cron(cron) => format!("cron {} in {}", cron.text, cron.zone_name()),
            Self::Every { every_ms, anchor } => format!("every {every_ms} ms from {anchor}"),
        }
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cron(cron) => f.write_str(&cron.text),
            Self::Every { every_ms, .. } => write!(f, "every {}", interval_text(*every_ms)),
        }
    }
}

fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

fn zone_of(name: &str) -> Result<TimeZone, TimingError> {
    let known = (name.len() <= MAX_ZONE_BYTES).then(|| TimeZone::get(name).ok()).flatten();
    known.filter(|zone| zone.iana_name().is_some()).ok_or_else(|| TimingError::Zone(short(name)))
}

/// `90s`, `1500ms`, `15m`, `6h`, `1d`: a number and its unit.
fn interval_of(text: &str) -> Option<Duration> {
    if text.len() > 24 {
        return None;
    }
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at_checked(digits)?;
    let unit_ms = UNITS.iter().find(|(known, _)| *known == unit)?.1;
    let every = Duration::from_millis(number.parse::<u64>().ok()?.checked_mul(unit_ms)?);
    (SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(&every).then_some(every)
}

const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// In the largest unit that says it whole.
#[must_use]
pub fn interval_text(every_ms: u64) -> String {
    let fits = UNITS.iter().find(|(_, unit_ms)| every_ms.is_multiple_of(*unit_ms));
    fits.map_or_else(|| format!("{every_ms}ms"), |(unit, unit_ms)| format!("{}{unit}", every_ms / unit_ms))
}

fn moment_of(text: &str) -> Option<UnixMillis> {
    if text.len() > 40 {
        return None;
    }
    let moment: Timestamp = text.parse().ok()?;
    u64::try_from(moment.as_millisecond()).ok().map(UnixMillis)
}

/// A moment as people read it, in UTC: `2026-01-31T06:00:00Z`.
#[must_use]
pub fn moment_text(at: UnixMillis) -> String {
    let stamp = i64::try_from(at.0).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    stamp.map_or_else(|| format!("{at} ms"), |stamp| stamp.to_string())
}

#[cfg(test)]
#[path = "timing_tests.rs"]
pub(crate) mod tests;
