//! Ticks by which a runtime or an actor shows that it moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often something that has a pulse ticks, or more often.
pub const TICK_EVERY: Duration = Duration::from_millis(500);

/// A cheap clone; all clones of one are the same.
#[derive(Debug, Clone)]
pub struct Pulse(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    what: &'static str,
    origin: Instant,
    last_us: AtomicU64,
    over: AtomicBool,
}

impl Pulse {
    pub(crate) fn new(what: &'static str, now: Instant) -> Self {
        Self(Arc::new(Inner { what, origin: now, last_us: AtomicU64::new(0), over: AtomicBool::new(false) }))
    }

    /// Whose.
    #[must_use]
    pub fn what(&self) -> &'static str {
        self.0.what
    }

    /// It moves.
    pub fn tick(&self, now: Instant) {
        let us = u64::try_from(now.saturating_duration_since(self.0.origin).as_micros()).unwrap_or(u64::MAX);
        self.0.last_us.fetch_max(us, Ordering::Relaxed);
    }

    /// It has ended, and may be still.
    pub fn end(&self) {
        self.0.over.store(true, Ordering::Relaxed);
    }

    /// For how long it has been still beyond its rhythm; `None` once it has ended.
    #[must_use]
    pub fn still(&self, now: Instant) -> Option<Duration> {
        if self.0.over.load(Ordering::Relaxed) {
            return None;
        }
        let last = self.0.origin + Duration::from_micros(self.0.last_us.load(Ordering::Relaxed));
        Some(now.saturating_duration_since(last).saturating_sub(TICK_EVERY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pulse_is_still_from_its_rhythm_on_and_not_once_it_has_ended() {
        let began = Instant::now();
        let pulse = Pulse::new("it", began);
        let second = Duration::from_secs(1);
        assert_eq!(pulse.still(began + TICK_EVERY), Some(Duration::ZERO));
        pulse.tick(began + second);
        pulse.tick(began);
        assert_eq!(pulse.still(began + second + TICK_EVERY + second), Some(second));
        pulse.end();
        assert_eq!(pulse.still(began + 9 * second), None);
    }
}
