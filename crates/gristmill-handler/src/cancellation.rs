//! Asking a run to stop, in two stages. One small shared allocation; no task, no timer.
//!
//! ```text
//! Running ──soft(hard stop at T)──▶ Soft ──hard()──▶ Hard      (hard() may come at once; nothing leads back)
//! ```

use crate::polls::Polls;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How far the stopping of a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Stage {
    /// Nobody asked it to stop.
    Running,
    /// It should come to a tidy end before its hard stop.
    Soft,
    /// Its time is over; its future is about to be dropped.
    Hard,
}

/// A handle by which a node stops a run, and by which the run learns of it. Clones share the same stage.
///
/// The handle keeps no time: whoever called [`Cancellation::soft`] calls [`Cancellation::hard`] when it is due.
#[derive(Debug, Clone, Default)]
pub struct Cancellation(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    stage: AtomicU8,
    hard_stop_at: Mutex<Option<Instant>>,
    moved: Notify,
    elsewhere: OnceLock<Polls>,
}

impl Cancellation {
    /// A handle of a run that nobody stops.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for a tidy end before `hard_stop_at`. Said twice, the earlier end counts; after [`Cancellation::hard`] it
    /// changes nothing.
    pub fn soft(&self, hard_stop_at: impl Into<Instant>) {
        let at = hard_stop_at.into();
        {
            let mut known = self.deadline();
            *known = Some(known.map_or(at, |earlier| earlier.min(at)));
        }
        self.move_to(Stage::Soft);
    }

    /// Says that the time is over.
    pub fn hard(&self) {
        self.move_to(Stage::Hard);
    }

    /// How far it has come.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match self.0.stage.load(Ordering::SeqCst) {
            0 => Stage::Running,
            1 => Stage::Soft,
            _ => Stage::Hard,
        }
    }

    /// Time until the hard stop: `None` while unlimited, zero once it has come.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        match self.stage() {
            Stage::Hard => Some(Duration::ZERO),
            Stage::Running | Stage::Soft => {
                self.deadline().map(|at| at.saturating_duration_since(Instant::now()))
            }
        }
    }

    /// Resolves once [`Stage::Soft`] or [`Stage::Hard`] is reached. Safe to drop and to call again.
    pub async fn wait_soft(&self) {
        self.wait(Stage::Soft).await;
    }

    /// Resolves once [`Stage::Hard`] is reached. Safe to drop and to call again.
    pub async fn wait_hard(&self) {
        self.wait(Stage::Hard).await;
    }

    /// The work of this run that is polled elsewhere than in its own future, where there is some.
    #[must_use]
    pub fn elsewhere(&self) -> Option<&Polls> {
        self.0.elsewhere.get()
    }

    /// Its work goes on there. Said once.
    pub(crate) fn goes_on_in(&self, polls: Polls) {
        let _ = self.0.elsewhere.set(polls);
    }

    async fn wait(&self, wanted: Stage) {
        loop {
            // Made before the look: from here on it hears every `notify_waiters`, polled or not.
            let moved = self.0.moved.notified();
            if self.stage() >= wanted {
                return;
            }
            moved.await;
        }
    }

    fn move_to(&self, stage: Stage) {
        if self.0.stage.fetch_max(stage as u8, Ordering::SeqCst) < stage as u8 {
            self.0.moved.notify_waiters();
        }
    }

    fn deadline(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.hard_stop_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "cancellation_tests.rs"]
mod tests;
