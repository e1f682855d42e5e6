//! Whose turn it is at the slots: queues by weight, and within a queue one participant after the other. Pure.
//!
//! A participant is whatever has something to start: a partition with runs, and whoever else joins. It joins when it gets
//! something, and leaves by itself when it has nothing left.
//!
//! No queue starves: from the moment it joins, at most `takes × (weights of the others)` starts pass before its own turn,
//! where `takes` is [`Plenty::takes`]. While slots are free, a participant keeps its turn for a while, since starts of one
//! partition settle together; while every slot is taken as soon as it is free, each start is another participant's.

use std::collections::VecDeque;

/// Most that a queue's weight may be.
pub(crate) const MAX_WEIGHT: u32 = 100;

/// Whether a slot is left after the next start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plenty {
    /// Slots are free.
    Free,
    /// It takes the last one.
    Scarce,
}

impl Plenty {
    /// Starts in a row of a queue of weight 1.
    pub(crate) fn takes(self) -> u32 {
        match self {
            Self::Free => 16,
            Self::Scarce => 1,
        }
    }

    /// Starts in a row of one participant, out of its queue's.
    fn burst(self) -> u32 {
        match self {
            Self::Free => 128,
            Self::Scarce => 1,
        }
    }
}

/// Which queue of the node, and what it weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) queue: usize,
    /// 1 to [`MAX_WEIGHT`].
    pub(crate) weight: u32,
}

impl Default for Share {
    fn default() -> Self {
        Self { queue: 0, weight: 1 }
    }
}

#[derive(Debug)]
struct OfQueue<P> {
    weight: u32,
    participants: VecDeque<P>,
    /// Starts in a row of the first participant.
    burst: u32,
}

/// The participants with something to start.
#[derive(Debug)]
pub(crate) struct Turns<P> {
    queues: Vec<OfQueue<P>>,
    /// Queues with participants; the first has its turn.
    round: VecDeque<usize>,
    /// Starts in a row of the first queue.
    used: u32,
}

impl<P> Default for Turns<P> {
    fn default() -> Self {
        Self { queues: Vec::new(), round: VecDeque::new(), used: 0 }
    }
}

impl<P: Clone> Turns<P> {
    /// A participant of a queue has got something to start; behind the others of its queue, and its queue, unless it has
    /// others, behind the other queues.
    pub(crate) fn join(&mut self, share: Share, participant: P) {
        if self.queues.len() <= share.queue {
            let empty = || OfQueue { weight: 1, participants: VecDeque::new(), burst: 0 };
            self.queues.resize_with(share.queue + 1, empty);
        }
        let Some(queue) = self.queues.get_mut(share.queue) else { return };
        queue.weight = share.weight.clamp(1, MAX_WEIGHT);
        if queue.participants.is_empty() {
            self.round.push_back(share.queue);
        }
        queue.participants.push_back(participant);
    }

    /// The next start. `take` takes it from the participant whose turn it is, and says whether that one has more; one that
    /// gives nothing leaves.
    pub(crate) fn next<T>(
        &mut self,
        plenty: Plenty,
        mut take: impl FnMut(&P) -> (Option<T>, bool),
    ) -> Option<(P, T)> {
        loop {
            let queue = self.queues.get_mut(*self.round.front()?)?;
            let Some(participant) = queue.participants.front().cloned() else {
                self.leave();
                continue;
            };
            let (taken, more) = take(&participant);
            queue.burst += 1;
            if taken.is_none() || !more || queue.burst >= plenty.burst() {
                queue.burst = 0;
                queue.participants.pop_front();
                if taken.is_some() && more {
                    queue.participants.push_back(participant.clone());
                }
            }
            let (is_empty, takes) = (queue.participants.is_empty(), plenty.takes() * queue.weight);
            self.used += u32::from(taken.is_some());
            if is_empty {
                self.leave();
            } else if self.used >= takes {
                self.used = 0;
                self.round.rotate_left(1);
            }
            if let Some(taken) = taken {
                return Some((participant, taken));
            }
        }
    }

    /// The first queue has nothing left.
    fn leave(&mut self) {
        self.round.pop_front();
        self.used = 0;
    }
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;
