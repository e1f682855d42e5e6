//! A slot that was taken for a run before it may begin.

use crate::limits::permit::Permit;
use crate::worker::run_queue::RunQueue;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

/// Gives its slot back when it is dropped, whatever became of the run; or hands it to the run that begins.
pub(crate) struct Slot {
    queue: Option<Arc<RunQueue>>,
    taken: AtomicBool,
    /// That of a run of a limited kind.
    permit: OnceLock<Weak<Permit>>,
}

impl Slot {
    /// A slot of this queue that was taken.
    pub(crate) fn of(queue: Arc<RunQueue>) -> Arc<Self> {
        Arc::new(Self { queue: Some(queue), taken: AtomicBool::new(false), permit: OnceLock::new() })
    }

    /// A slot that is nobody's: a lone run takes its own when it begins.
    pub(crate) fn none() -> Arc<Self> {
        Arc::new(Self { queue: None, taken: AtomicBool::new(false), permit: OnceLock::new() })
    }

    /// The run of this slot was let in by this permit, and begins while that stands.
    pub(crate) fn permitted(&self, permit: &Arc<Permit>) {
        let _ = self.permit.set(Arc::downgrade(permit));
    }

    /// Whether its run may begin, as far as limits are concerned.
    pub(crate) fn may_begin(&self, now: Instant) -> bool {
        let stands = |permit: &Weak<Permit>| permit.upgrade().is_some_and(|permit| permit.trusted(now));
        self.permit.get().is_none_or(stands)
    }

    /// The run begins; whoever runs it gives the slot back.
    pub(crate) fn take(&self) {
        self.taken.store(true, Ordering::SeqCst);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take().filter(|_| !self.taken.load(Ordering::SeqCst)) {
            queue.free_slot();
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slot")
    }
}
