//! Two fleets at a time: more of them on one machine would only make each other slow.

use std::sync::{Condvar, Mutex, PoisonError};

const BERTHS: usize = 2;

static TAKEN: Mutex<usize> = Mutex::new(0);
static LEFT: Condvar = Condvar::new();

/// A place for one fleet, free again when it is dropped.
#[derive(Debug)]
pub struct Berth(());

impl Berth {
    /// Waits until there is a place.
    #[must_use]
    pub fn take() -> Self {
        let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken =
            LEFT.wait_while(taken, |taken| *taken >= BERTHS).unwrap_or_else(PoisonError::into_inner);
        *taken += 1;
        Self(())
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        LEFT.notify_one();
    }
}
