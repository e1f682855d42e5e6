//! Jobs for later: the owner moves them to the stream when they are due, a slice at a time.
//!
//! Each answer names the next slice, and other calls go in between: for each the partition waits for its turn among those of the
//! node. Where nothing is due it tells when the next is, and a wake
//! comes then: nothing is asked again and again. A new first job rings the bell; every renewal tells as well, in case the bell
//! was not heard.

use super::{Action, Now, Phase, Tenure};
use gristmill_broker::Call;
use gristmill_broker::delayed::Member;
use gristmill_broker::promote::Promoted;
use gristmill_job::UnixMillis;
use std::time::{Duration, Instant};

/// Longest wait until it is looked again: a due time may be years away.
const LONGEST: Duration = Duration::from_secs(3600);

/// What is known about jobs for later.
#[derive(Debug, Default)]
pub(super) struct Promoting {
    /// Due, as the last answer named them.
    slice: Vec<Member>,
    /// When the next is due, about.
    due: Option<Instant>,
    /// Something may be due that is not known of.
    look: bool,
    /// A turn is asked for, or a call is on its way.
    under_way: bool,
}

impl Promoting {
    /// There may be another first.
    pub(super) fn look(&mut self) {
        self.look = true;
    }

    /// A renewal told when the first is due.
    pub(super) fn told(&mut self, due: Option<UnixMillis>, now: Now) {
        let due = due.map(|due| now.instant + now.redis.age_at(due).min(LONGEST));
        self.due = [self.due, due].into_iter().flatten().min();
    }
}

impl Tenure {
    /// Asks for a turn where something is due, one call at a time.
    pub(super) fn promote(&mut self, now: Now, actions: &mut Vec<Action>) {
        let promoting = &mut self.promoting;
        if promoting.under_way {
            return;
        }
        let is_due = promoting.due.is_some_and(|due| due <= now.instant);
        if promoting.look || is_due || !promoting.slice.is_empty() {
            promoting.under_way = true;
            actions.push(Action::AskPromote);
        } else if let Some(due) = promoting.due {
            actions.push(Action::WakeAt(due));
        }
    }

    /// Its turn has come.
    pub(super) fn may_promote(&mut self, actions: &mut Vec<Action>) {
        if self.phase != Phase::Serving || !self.promoting.under_way {
            self.promoting.under_way = false;
            actions.push(Action::PromoteOver);
            return;
        }
        self.promoting.look = false;
        self.promoting.due = None;
        let slice = std::mem::take(&mut self.promoting.slice);
        self.send(Call::Promote(slice), Vec::new(), actions);
    }

    pub(super) fn promoted(&mut self, promoted: Promoted, now: Now, actions: &mut Vec<Action>) {
        let Promoted { moved, late, lost, due, next, now: told_at } = promoted;
        self.promoting.under_way = false;
        actions.push(Action::PromoteOver);
        self.promoting.slice = due;
        // By when it was answered: the clock of Redis stood there already. At the least a little later, so that a clock that
        // stands still makes no hot loop.
        let wait = |next: UnixMillis| told_at.age_at(next).clamp(Duration::from_millis(1), LONGEST);
        let next = next.map(|next| now.instant + wait(next));
        self.promoting.due = [self.promoting.due, next].into_iter().flatten().min();
        // Claimed at once, without waiting for the doorbell.
        self.news |= moved > 0;
        if moved > 0 || lost > 0 {
            actions.push(Action::Promoted { moved, late, lost });
        }
    }
}
