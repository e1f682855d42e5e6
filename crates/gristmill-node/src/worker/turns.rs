//! Whose turn it is at the slots: queues by weight, and within a queue one participant after the other. Pure.
//!
//! A participant is whatever has something to start: a partition with runs, and whoever else joins. It joins when it gets
//! something, and leaves by itself when it has nothing left.
//!
//! No queue starves: from the moment it joins, at most `takes × (weights of the others)` starts pass before its own turn,
//! where `takes` is [`Plenty::takes`]. A participant keeps its turn for [`BURST`] starts, since what starts together settles
//! together: run by run, each settle would be of one job, which is twice the work of Redis and half as much again of the
//! node's where 16 slots are always full. While slots are scarce a turn ends after [`TURN`] too, so that slow runs of one
//! partition do not keep those of others waiting.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Most that a queue's weight may be.
pub(crate) const MAX_WEIGHT: u32 = 100;

/// Starts in a row of one participant, out of its queue's.
const BURST: u32 = 128;
/// How long a turn of one participant may last while slots are scarce.
const TURN: Duration = Duration::from_millis(10);

/// Whether a slot is left after the next start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plenty {
    /// Slots are free.
    Free,
    /// It takes the last one, at this time.
    Scarce(Instant),
}

impl Plenty {
    /// Starts in a row of a queue of weight 1.
    pub(crate) fn takes(self) -> u32 {
        match self {
            Self::Free => 16,
            Self::Scarce(_) => 1,
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
    /// Starts in a row of the first participant, and since when slots have been scarce in its turn.
    burst: u32,
    since: Option<Instant>,
}

impl<P> OfQueue<P> {
    /// A start of the first participant: whether its turn is over.
    fn is_over(&mut self, plenty: Plenty) -> bool {
        self.burst += 1;
        let long = match plenty {
            Plenty::Free => false,
            Plenty::Scarce(now) => now.duration_since(*self.since.get_or_insert(now)) >= TURN,
        };
        long || self.burst >= BURST
    }
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
            let empty = || OfQueue { weight: 1, participants: VecDeque::new(), burst: 0, since: None };
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
            if queue.is_over(plenty) || taken.is_none() || !more {
                (queue.burst, queue.since) = (0, None);
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
