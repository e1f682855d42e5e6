//! Whose turn it is to promote: a few partitions of a node at a time, a slice each, in the order in which they asked.
//!
//! Jobs of all partitions may be due in the same moment. Each slice is short; all of them at once, one behind the other, would
//! keep everybody else from Redis until the last of them is done.
//!
//! Whoever has a turn says [`Promotions::over`] in the end, however its tenure ends.

use crate::partition::Message;
use crate::partition::shared::Shared;
use crate::partition::tenure::Event;
use crate::worker::run_queue::lock;
use gristmill_broker::Epoch;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Slices under way at once: while one is answered, Redis works at the other.
const AT_A_TIME: usize = 2;

#[derive(Default)]
struct Turns {
    held: Vec<Arc<Shared>>,
    waiting: VecDeque<(Arc<Shared>, Epoch)>,
}

#[derive(Default)]
pub(crate) struct Promotions {
    turns: Mutex<Turns>,
}

impl Promotions {
    /// Asks for a turn; [`Event::MayPromote`] answers. Asked again, what was asked for before is over.
    pub(crate) fn ask(&self, shared: &Arc<Shared>, epoch: Epoch) {
        let mut turns = lock(&self.turns);
        turns.leave(shared);
        turns.waiting.push_back((shared.clone(), epoch));
        turns.next();
    }

    /// Ends what that partition holds or asked for, if anything.
    pub(crate) fn over(&self, shared: &Shared) {
        let mut turns = lock(&self.turns);
        turns.leave(shared);
        turns.next();
    }
}

impl Turns {
    fn leave(&mut self, shared: &Shared) {
        let other = |it: &Arc<Shared>| !std::ptr::eq(Arc::as_ptr(it), shared);
        self.held.retain(other);
        self.waiting.retain(|(it, _)| other(it));
    }

    fn next(&mut self) {
        while self.held.len() < AT_A_TIME
            && let Some((shared, epoch)) = self.waiting.pop_front()
        {
            shared.cast(Message::Event(epoch, Event::MayPromote));
            self.held.push(shared);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_broker::PartitionKeys;
    use gristmill_job::QueueName;

    fn partition(number: u16) -> Arc<Shared> {
        let queue = QueueName::new("q").unwrap();
        let keys = PartitionKeys::new(&queue, number);
        Arc::new(Shared::new(queue, number, keys))
    }

    fn held(promotions: &Promotions) -> Vec<u16> {
        lock(&promotions.turns).held.iter().map(|shared| shared.partition).collect()
    }

    #[test]
    fn a_few_at_a_time_in_the_order_in_which_they_asked_and_nobody_keeps_a_turn_it_left() {
        let promotions = Promotions::default();
        let all: Vec<_> = (0..5).map(partition).collect();
        all.iter().for_each(|shared| promotions.ask(shared, Epoch(1)));
        assert_eq!(held(&promotions), [0, 1]);
        promotions.over(&all[0]);
        assert_eq!(held(&promotions), [1, 2]);
        promotions.over(&all[3]); // Its tenure ended while it waited.
        promotions.over(&all[3]);
        assert_eq!(held(&promotions), [1, 2]);
        promotions.ask(&all[1], Epoch(2)); // The next slice of it: behind the others.
        assert_eq!(held(&promotions), [2, 4]);
        promotions.over(&all[2]);
        promotions.over(&all[4]);
        assert_eq!(held(&promotions), [1]);
        promotions.over(&all[1]);
        assert!(held(&promotions).is_empty());
    }
}
