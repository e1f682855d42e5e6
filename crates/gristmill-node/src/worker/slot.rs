//! A slot that was taken for a run before it may begin.

use crate::worker::run_queue::RunQueue;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Gives its slot back when it is dropped, whatever became of the run; or hands it to the run that begins.
pub(crate) struct Slot {
    queue: Option<Arc<RunQueue>>,
    taken: AtomicBool,
}

impl Slot {
    /// A slot of this queue that was taken.
    pub(crate) fn of(queue: Arc<RunQueue>) -> Arc<Self> {
        Arc::new(Self { queue: Some(queue), taken: AtomicBool::new(false) })
    }

    /// A slot that is nobody's.
    #[cfg(test)]
    pub(crate) fn none() -> Arc<Self> {
        Arc::new(Self { queue: None, taken: AtomicBool::new(false) })
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
