//! What a worker thread of the runtime woke last lies where no other thread can take it, until the poll under way ends. A
//! worker polls many handlers in one poll of its own, and one of them may hold the thread: what was woken before, such as a
//! partition that is told of an end, would wait as long as it. So, before user code is polled, another task is put there,
//! and what lay there goes to the queue from which others steal.

use std::cell::Cell;

thread_local! {
    /// Whether something was woken on this thread since user code was polled last.
    static WOKE: Cell<bool> = const { Cell::new(false) };
}

/// Something was woken here.
pub(crate) fn woke() {
    WOKE.set(true);
}

/// Whatever was woken here may be taken by other threads from now on.
pub(crate) fn make() {
    if WOKE.replace(false) {
        drop(tokio::spawn(async {}));
    }
}
