//! Jobs for later that are due become ready. Any node may move them: all look at about the same time, and each job moves once.

use super::{AGAIN, Machine, Phase};
use crate::competing::events::{Action, Now};
use gristmill_broker::CallError;
use gristmill_broker::promote::Promoted;
use gristmill_job::UnixMillis;
use std::time::{Duration, Instant};

/// Nodes look up to so much later than a job is due, so that they do not all look at once.
const JITTER: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
pub(super) struct Promoting {
    under_way: bool,
    /// When the first job for later is due, as far as is known, on this process's clock.
    at: Option<Instant>,
}

impl Promoting {
    pub(super) fn is_idle(&self) -> bool {
        !self.under_way
    }
}

impl Machine {
    /// A job for later is due then, by the Redis clock.
    pub(super) fn is_due(&mut self, due: UnixMillis, now: Now<'_>) {
        let wait = Duration::from_millis(due.0.saturating_sub(now.redis.0));
        let at = now.instant + wait + JITTER.mul_f64(now.random);
        let known = self.promoting.at.get_or_insert(at);
        *known = (*known).min(at);
    }

    pub(super) fn promote(&mut self, now: Now<'_>, actions: &mut Vec<Action>) {
        let Some(at) = self.promoting.at else { return };
        if at > now.instant {
            actions.push(Action::WakeAt(at));
        } else if !self.promoting.under_way {
            self.promoting = Promoting { under_way: true, at: None };
            actions.push(Action::Promote(Vec::new()));
        }
    }

    pub(super) fn promoted(
        &mut self,
        result: Result<Promoted, CallError>,
        now: Now<'_>,
        actions: &mut Vec<Action>,
    ) {
        self.promoting.under_way = false;
        if let Ok(Promoted { moved, late, lost, .. }) = &result
            && moved + lost > 0
        {
            actions.push(Action::Promoted { moved: *moved, late: *late, lost: *lost });
        }
        match result {
            Ok(Promoted { due, .. }) if !due.is_empty() && self.phase == Phase::Serving => {
                self.promoting.under_way = true;
                actions.push(Action::Promote(due));
            }
            Ok(Promoted { next, .. }) => {
                if let Some(next) = next {
                    self.is_due(next, now);
                }
            }
            // The next look of a grab tells; it is looked sooner, since something was due.
            Err(_) => {
                let at = now.instant + AGAIN;
                self.promoting.at = Some(self.promoting.at.map_or(at, |known| known.min(at)));
            }
        }
    }
}
