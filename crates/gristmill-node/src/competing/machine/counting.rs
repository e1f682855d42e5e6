//! Now and then Redis removes what is stored of jobs that are gone: any node asks for it, since nobody owns the partition.

use super::claiming::around;
use super::{AGAIN, For, Machine};
use crate::competing::events::{Action, Now};
use gristmill_broker::Call;
use gristmill_broker::census::Census;
use std::time::Instant;

/// When the next slice is looked at, and where it goes on.
#[derive(Debug, Default)]
pub(super) struct Counting {
    next: Option<Instant>,
    cursors: (u64, u64),
    under_way: bool,
}

impl Machine {
    pub(super) fn count(&mut self, now: Now<'_>, actions: &mut Vec<Action>) {
        let first = now.instant + around(self.bounds.census_every, now.random);
        let due = *self.counting.next.get_or_insert(first);
        if now.instant >= due && !self.counting.under_way {
            self.counting.under_way = true;
            self.send(Call::Census { cursors: self.counting.cursors }, For::Census, actions);
        }
    }

    pub(super) fn counted(&mut self, census: Option<Census>, now: Now<'_>, actions: &mut Vec<Action>) {
        let wait = if census.is_some() { self.bounds.census_every } else { AGAIN };
        self.counting.under_way = false;
        self.counting.next = Some(now.instant + around(wait, now.random));
        let Some(census) = census else { return };
        self.counting.cursors = census.cursors;
        let repaired = census.holds_removed + census.lines_removed;
        if repaired > 0 {
            actions.push(Action::Repaired(repaired));
        }
    }
}
