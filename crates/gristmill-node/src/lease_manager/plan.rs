//! What to do about each partition of a queue, as a pure state machine: what is seen goes in, what to ask comes out.

use crate::lease_manager::assignment::assign;
use gristmill_broker::Incarnation;
use gristmill_broker::announce::Member;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What a partition's actor, or a look at Redis, told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Look {
    /// It is mine.
    Mine,
    /// Another holds it.
    Held { owner: Incarnation, left: Duration, wanted_by: Option<Incarnation> },
    /// Not served here any more; free if `released`.
    Idle { end: Option<crate::partition::tenure::End>, released: bool },
    /// Runs of a failed actor are still alive.
    Busy,
}

/// What to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Try to own it.
    Serve(u16),
    /// Ask its owner to hand it over.
    Want(u16),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Status {
    /// Not looked at since, nothing known.
    Unknown,
    /// Asked for; the answer is on its way.
    Asked,
    Mine,
    Held(Incarnation),
}

#[derive(Debug)]
struct Seen {
    status: Status,
    next_look: Instant,
    /// Since when it is known to be without an owner.
    free_since: Option<Instant>,
    /// From whom it is wanted, and since when.
    wanted: Option<(Incarnation, Instant)>,
}

impl Seen {
    /// Whether it moves: wanted from this owner, and not for so long that a run must be in the way.
    fn moves_from(&self, owner: &Incarnation, now: Instant) -> bool {
        self.wanted.as_ref().is_some_and(|(from, since)| from == owner && now < *since + MOVE_PATIENCE)
    }
}

/// How long an answer may stay away before it is asked again.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// Between two looks at a partition that is wanted.
const WANTED_LOOK: Duration = Duration::from_millis(100);
/// Longest between two looks at a partition that should be mine.
const LONGEST_LOOK: Duration = Duration::from_millis(400);
/// Before a partition that was handed over is looked at again: whoever wanted it has looked at it twice by then. If the wish was
/// void (its maker left, or is not meant to have it any more), it would lie unserved for longer.
const RELEASED_LOOK: Duration = Duration::from_millis(1000);
/// Partitions of one owner that move at a time.
const MOVES_PER_OWNER: usize = 8;
/// How long a partition counts as moving; one that a long run holds back does not keep others from moving.
const MOVE_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Plan {
    me: Incarnation,
    ttl: Duration,
    partitions: Vec<Seen>,
    members: Vec<Member>,
    /// Whether there was an answer to an announcement at all.
    known: bool,
    /// Assigned to me among all who live, and among those who have been there for a lease time.
    mine_of_all: Vec<bool>,
    mine_of_stable: Vec<bool>,
    draining: bool,
}

impl Plan {
    pub(crate) fn new(me: Incarnation, ttl: Duration, partitions: u16, now: Instant) -> Self {
        let unseen = || Seen { status: Status::Unknown, next_look: now, free_since: None, wanted: None };
        let none = vec![false; usize::from(partitions)];
        Self {
            me,
            ttl,
            partitions: (0..partitions).map(|_| unseen()).collect(),
            members: Vec::new(),
            known: false,
            mine_of_all: none.clone(),
            mine_of_stable: none,
            draining: false,
        }
    }

    /// Whether the others have been seen once.
    pub(crate) fn is_known(&self) -> bool {
        self.known
    }

    /// Who serves the queue now.
    pub(crate) fn members(&mut self, members: Vec<Member>) {
        let staying: Vec<&Member> = members.iter().filter(|member| !member.draining).collect();
        let all: Vec<Incarnation> = staying.iter().map(|member| member.incarnation.clone()).collect();
        let stable = staying.iter().filter(|member| member.since >= self.ttl);
        let stable: Vec<Incarnation> = stable.map(|member| member.incarnation.clone()).collect();
        self.mine_of_all = self.mine(&all);
        self.mine_of_stable = self.mine(&stable);
        self.members = members;
        self.known = true;
    }

    fn mine(&self, nodes: &[Incarnation]) -> Vec<bool> {
        let count = self.partitions.len();
        let mut mine: Vec<bool> = assign(u16::try_from(count).unwrap_or(u16::MAX), nodes)
            .iter()
            .map(|node| *node == self.me)
            .collect();
        mine.resize(count, false);
        mine
    }

    /// No partition is asked for from here on.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
    }

    /// Partitions that are mine, or may be soon.
    pub(crate) fn busy(&self) -> usize {
        self.partitions.iter().filter(|seen| matches!(seen.status, Status::Mine | Status::Asked)).count()
    }

    /// What was seen of a partition.
    pub(crate) fn looked(&mut self, partition: u16, look: Look, now: Instant) {
        let Some(seen) = self.partitions.get_mut(usize::from(partition)) else { return };
        match look {
            Look::Mine => {
                seen.status = Status::Mine;
                (seen.free_since, seen.wanted) = (None, None);
            }
            Look::Held { owner, left, .. } => {
                // Never later than its expiry; sooner while it moves.
                let look = if seen.moves_from(&owner, now) { WANTED_LOOK } else { LONGEST_LOOK };
                seen.next_look = now + (left + Duration::from_millis(5)).min(look);
                seen.status = Status::Held(owner);
                seen.free_since = None;
            }
            Look::Idle { released, .. } => {
                // The answer to an acquire that found it held came just before and says more.
                if !matches!(seen.status, Status::Held(_)) || released {
                    seen.status = Status::Unknown;
                    seen.next_look = now + if released { RELEASED_LOOK } else { WANTED_LOOK };
                }
            }
            Look::Busy => {
                seen.status = Status::Unknown;
                seen.next_look = now + WANTED_LOOK;
            }
        }
    }

    /// A plain look at who owns what: partitions that nobody serves, whatever the assignment says.
    pub(crate) fn owners(&mut self, owned: &[bool], now: Instant) {
        for (seen, owned) in self.partitions.iter_mut().zip(owned) {
            match (owned, seen.free_since) {
                (true, _) => seen.free_since = None,
                (false, None) => seen.free_since = Some(now),
                (false, Some(_)) => {}
            }
        }
    }

    /// What to ask for now.
    pub(crate) fn ask(&mut self, now: Instant) -> Vec<Ask> {
        if self.draining || !self.known {
            return Vec::new();
        }
        let stable = self.members.iter().any(|m| m.incarnation == self.me && m.since >= self.ttl);
        let mut moving: HashMap<Incarnation, usize> = HashMap::new();
        for (from, _) in self
            .partitions
            .iter()
            .filter_map(|seen| seen.wanted.as_ref().filter(|(from, _)| seen.moves_from(from, now)))
        {
            *moving.entry(from.clone()).or_default() += 1;
        }
        let mut asks = Vec::new();
        for (index, seen) in self.partitions.iter_mut().enumerate() {
            let Ok(partition) = u16::try_from(index) else { continue };
            let orphan = seen.free_since.is_some_and(|since| now >= since + self.ttl * 2);
            let mine = self.mine_of_all[index] || self.mine_of_stable[index];
            if seen.status == Status::Mine || now < seen.next_look || !(mine || orphan) {
                continue;
            }
            if let Status::Held(owner) = &seen.status
                && stable
                && self.mine_of_stable[index]
                && self.members.iter().any(|m| m.incarnation == *owner)
            {
                let known = seen.wanted.as_ref().is_some_and(|(from, _)| from == owner);
                let moves = moving.entry(owner.clone()).or_default();
                if !known && *moves < MOVES_PER_OWNER {
                    *moves += 1;
                    seen.wanted = Some((owner.clone(), now));
                }
                // A wish that stands is made again with every look: it ends by itself.
                if seen.wanted.as_ref().is_some_and(|(from, _)| from == owner) {
                    asks.push(Ask::Want(partition));
                }
            }
            asks.push(Ask::Serve(partition));
            seen.status = Status::Asked;
            seen.next_look = now + ANSWER_WAIT;
        }
        asks
    }

    /// A wish was noted: look again soon.
    pub(crate) fn wanted(&mut self, partition: u16, now: Instant) {
        if let Some(seen) = self.partitions.get_mut(usize::from(partition)) {
            seen.next_look = seen.next_look.min(now + WANTED_LOOK);
        }
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
