//! What stops whole lanes: a run of their key that has not ended in this process, a dead letter that waits for a person, and a
//! pause.

use super::{Head, LaneId, Lanes};
use gristmill_job::Key;
use std::collections::HashSet;
use std::time::Instant;

impl Lanes {
    /// A run of this key has not ended: nothing of it starts. Its lane's head goes on where it stands.
    pub(crate) fn block(&mut self, key: Key) {
        self.blocked.insert(key);
    }

    /// That run has ended.
    pub(crate) fn unblock(&mut self, key: &Key, now: Instant) {
        self.blocked.remove(key);
        if let Some(id) = self.find(key).filter(|id| self.stands(*id, Head::Blocked)) {
            self.next_head(id, now);
        }
    }

    /// A person must say how this key goes on.
    pub(crate) fn hold(&mut self, key: &Key, now: Instant) {
        // A copy of its own: the key of an entry holds on to the whole entry.
        self.held.insert(Key::from_stored(bytes::Bytes::copy_from_slice(key.as_bytes())));
        self.stop_if_idle(key, now);
    }

    /// These keys wait for a person, and no others.
    pub(crate) fn set_held(&mut self, held: HashSet<Key>, now: Instant) {
        let before = std::mem::replace(&mut self.held, held);
        let released: Vec<Key> = before.difference(&self.held).cloned().collect();
        let stopped: Vec<Key> = self.held.difference(&before).cloned().collect();
        for key in released {
            if let Some(id) = self.find(&key).filter(|id| self.stands(*id, Head::Held)) {
                self.next_head(id, now);
            }
        }
        for key in stopped {
            self.stop_if_idle(&key, now);
        }
    }

    /// The head that was to start is paused.
    pub(crate) fn pause(&mut self, id: LaneId) {
        self.set(id, Head::Paused);
        self.park(id);
    }

    /// Something is paused no more: every head that waits for that may try.
    pub(crate) fn resume(&mut self, now: Instant) {
        for at in 0..self.slots.len() {
            let id = LaneId(u32::try_from(at).unwrap_or(u32::MAX));
            if self.stands(id, Head::Paused) {
                self.next_head(id, now);
            }
        }
    }

    /// A head that runs is settled first; one that is being read, or waits to run alone, is stopped when it comes.
    fn stop_if_idle(&mut self, key: &Key, now: Instant) {
        let Some(id) = self.find(key) else { return };
        let idle = |state| matches!(state, Head::Ready | Head::Backoff { .. } | Head::Limited);
        if self.look(id).is_some_and(|lane| idle(lane.state)) {
            self.next_head(id, now);
        }
    }

    fn stands(&self, id: LaneId, state: Head) -> bool {
        self.look(id).is_some_and(|lane| lane.state == state)
    }
}
