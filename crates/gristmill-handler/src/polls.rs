//! Work of a run that is polled elsewhere than in its own future, such as the batch it is handled with: whoever watches for
//! handlers that hold their threads sees it through the run.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::sync::Notify;

/// The polls of one such piece of work. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Polls(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// When the poll under way began.
    since: Mutex<Option<Instant>>,
    ended: Notify,
}

impl Polls {
    /// When the poll under way began; `None` where none is.
    #[must_use]
    pub fn since(&self) -> Option<Instant> {
        *self.lock()
    }

    /// Tells works apart, as long as they live.
    #[must_use]
    pub fn number(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Resolves at a moment at which no poll is under way. Safe to drop and to call again.
    pub async fn idle(&self) {
        loop {
            // Made before the look: from here on it hears every `notify_waiters`, polled or not.
            let ended = self.0.ended.notified();
            if self.since().is_none() {
                return;
            }
            ended.await;
        }
    }

    /// A future whose polls are seen.
    pub(crate) fn of<F: Future + Unpin>(self, future: F) -> Seen<F> {
        Seen { polls: self, future }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Seen<F> {
    polls: Polls,
    future: F,
}

impl<F: Future + Unpin> Future for Seen<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        /// Also where the poll panics.
        struct Over(Polls);
        impl Drop for Over {
            fn drop(&mut self) {
                *self.0.lock() = None;
                self.0.0.ended.notify_waiters();
            }
        }
        *self.polls.lock() = Some(Instant::now());
        let _over = Over(self.polls.clone());
        Pin::new(&mut self.future).poll(cx)
    }
}
