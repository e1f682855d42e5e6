//! Slots for claims: who would claim without holding a job asks here, and is granted slots in its turn.
//!
//! Few slots are granted only where no other claim is under way. While jobs are cheap, all slots are free again with every answer;
//! granted one by one as they come free, they would end in as many claims and settles of one job each. Where jobs take long, no claim is
//! under way but for moments, and a single free slot is used at once.

use crate::competing::Event;
use crate::partition::Message;
use crate::partition::shared::Shared;
use crate::worker::run_queue::{Line, RunQueue, lock};
use crate::worker::slot::Slot;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A share of the slots that is worth a claim beside others.
const WORTH_A_CLAIM: usize = 4;

/// Slots to claim with. To be dropped when the claim is answered, or not made.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) slots: Vec<Arc<Slot>>,
    _under_way: UnderWay,
}

impl Grant {
    /// Of slots that no queue waits for.
    #[cfg(test)]
    pub(crate) fn of(slots: Vec<Arc<Slot>>) -> Self {
        Self { slots, _under_way: UnderWay(None) }
    }
}

/// A claim with slots that is under way.
struct UnderWay(Option<Arc<RunQueue>>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(queue) = self.0.take() {
            queue.claims.fetch_sub(1, Ordering::SeqCst);
            queue.recall();
        }
    }
}

impl fmt::Debug for UnderWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnderWay")
    }
}

impl RunQueue {
    /// A partition would claim with up to so many slots: they come with [`Granted`](crate::competing::Event::Granted), fewer
    /// where fewer are free, once it has its turn. One that asks again asks for this number instead; for 0, no more.
    pub(crate) fn ask(&self, partition: &Arc<Shared>, slots: usize) {
        let mut line = lock(&self.line);
        self.rejoin(&mut line, |of| Arc::ptr_eq(of, partition));
        let queued = lock(&partition.queued);
        let before = std::mem::replace(&mut *lock(&partition.asked), slots);
        match (before, slots) {
            (0, 0) => return,
            (0, _) => {
                if queued.is_empty() {
                    line.turns.join(partition.share, partition.clone());
                }
                self.waiting.fetch_add(1, Ordering::SeqCst);
            }
            (_, 0) => drop(self.waiting.fetch_sub(1, Ordering::SeqCst)),
            (..) => return,
        }
        drop((queued, line));
        self.wake_one();
    }

    /// Whether who would claim with so many waits: few are free, of which one is taken already, and another claim is under way.
    /// If it does not wait, its claim is.
    pub(super) fn defers(&self, asked: usize) -> bool {
        let free = self.free_slots.load(Ordering::SeqCst) + 1;
        let defers = free < asked.min(self.slots / WORTH_A_CLAIM) && self.claims.load(Ordering::SeqCst) > 0;
        if !defers {
            self.claims.fetch_add(1, Ordering::SeqCst);
        }
        defers
    }

    pub(super) fn defer(&self, line: &mut Line, deferred: Vec<Arc<Shared>>) {
        if !deferred.is_empty() {
            self.waiting.fetch_sub(deferred.len(), Ordering::SeqCst);
            self.deferred.fetch_add(deferred.len(), Ordering::SeqCst);
            line.deferred.extend(deferred);
        }
    }

    /// Those of the deferred have their turn again.
    pub(super) fn rejoin(&self, line: &mut Line, which: impl Fn(&Arc<Shared>) -> bool) {
        if self.deferred.load(Ordering::SeqCst) == 0 {
            return;
        }
        for at in (0..line.deferred.len()).rev() {
            if line.deferred.get(at).is_some_and(&which)
                && let Some(partition) = line.deferred.remove(at)
            {
                self.deferred.fetch_sub(1, Ordering::SeqCst);
                self.waiting.fetch_add(1, Ordering::SeqCst);
                line.turns.join(partition.share, partition);
            }
        }
    }

    /// A claim was answered: who waited for that may try.
    fn recall(&self) {
        if self.deferred.load(Ordering::SeqCst) > 0 {
            self.rejoin(&mut lock(&self.line), |_| true);
        }
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.wake_one();
        }
    }

    /// A slot is free: with it there may be enough of them.
    pub(super) fn reconsider(&self) {
        let enough = || self.free_slots.load(Ordering::SeqCst) >= self.slots / WORTH_A_CLAIM;
        if self.deferred.load(Ordering::SeqCst) > 0 && enough() {
            self.rejoin(&mut lock(&self.line), |_| true);
        }
    }

    /// With the slot of its turn, and as many of the free ones as it can use.
    pub(super) fn grant(self: &Arc<Self>, partition: &Shared, asked: usize) {
        let mut slots = vec![Slot::of(self.clone())];
        while slots.len() < asked {
            let free = |free: usize| free.checked_sub(1);
            if self.free_slots.fetch_update(Ordering::SeqCst, Ordering::SeqCst, free).is_err() {
                break;
            }
            slots.push(Slot::of(self.clone()));
        }
        let grant = Grant { slots, _under_way: UnderWay(Some(self.clone())) };
        partition.cast(Message::Competing(Event::Granted(grant)));
    }
}

#[cfg(test)]
#[path = "grant_tests.rs"]
mod tests;
