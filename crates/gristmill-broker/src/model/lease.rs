//! acquire, want, renew, release, and the guard of every numbered call.

use super::partition::{Lease, Partition};
use crate::call::{Answer, Guard};
use crate::fence::{Epoch, Fence, Incarnation, Refusal};
use crate::keys::Mode;
use crate::lease::acquire::{Acquire, Acquired, Before, millis};
use crate::lease::renew::{Renew, Renewed};
use crate::lease::want::Wanted;
use gristmill_job::UnixMillis;
use std::time::Duration;

/// What the head of every numbered script decides. The number is written when it is fresh.
pub(super) enum Guarded {
    Fresh,
    Already,
    Refused(Refusal),
}

impl Lease {
    fn is(&self, fence: &Fence) -> bool {
        self.owner == fence.incarnation.as_str() && self.epoch == Some(fence.epoch.0)
    }

    fn wanted_at(&self, now_ms: u64) -> Option<Incarnation> {
        let (who, until) = self.wanted.as_ref()?;
        (*until > now_ms).then(|| Incarnation::from_stored(who))
    }

    fn epoch_text(&self) -> String {
        self.epoch.map_or_else(String::new, |epoch| epoch.to_string())
    }
}

impl Partition {
    /// As [`Partition::guard`], for the calls that are made under number 0 too, where there is no lease.
    pub(super) fn admit(&mut self, guard: Guard<'_>) -> Guarded {
        if guard.is_unordered() { Guarded::Fresh } else { self.guard(guard) }
    }

    pub(super) fn guard(&mut self, guard: Guard<'_>) -> Guarded {
        let lease = &mut self.lease;
        if !lease.is(guard.fence) {
            return Guarded::Refused(Refusal::Fenced { owner: lease.owner.clone() });
        }
        if guard.number <= lease.number {
            return Guarded::Already;
        }
        if guard.number != lease.number + 1 {
            return Guarded::Refused(Refusal::Gap { last: lease.number });
        }
        lease.number = guard.number;
        Guarded::Fresh
    }

    pub(super) fn acquire(&mut self, now_ms: u64, acquire: &Acquire<'_>) -> Acquired {
        match &self.meta {
            None => return Acquired::NoQueue,
            Some(meta) if meta.mode == Mode::None => return Acquired::Unordered,
            Some(meta) if meta.partitions != acquire.queue.partitions => {
                return Acquired::Differs { partitions: meta.partitions.to_string() };
            }
            Some(_) => {}
        }
        let lease = &mut self.lease;
        let me = acquire.incarnation.as_str();
        let left = lease.expires_ms.saturating_sub(now_ms);
        // Of before the clock was set back.
        let left = match lease.ttl_ms {
            Some(ttl_ms) if !lease.owner.is_empty() && left > ttl_ms => {
                lease.expires_ms = now_ms + ttl_ms;
                ttl_ms
            }
            _ => left,
        };
        if !lease.owner.is_empty() && lease.owner != me && left > 0 {
            return Acquired::Held {
                owner: Incarnation::from_stored(&lease.owner),
                epoch: Epoch(lease.epoch.unwrap_or_default()),
                left: Duration::from_millis(left),
                wanted_by: lease.wanted_at(now_ms),
            };
        }
        let least = (lease.epoch.unwrap_or_default() + 1).max(now_ms);
        let before = acquire.before;
        let epoch = acquire.epoch();
        if lease.owner != before.owner || lease.epoch_text() != before.epoch || epoch.0 < least {
            return Acquired::Changed(Before {
                owner: lease.owner.clone(),
                epoch: lease.epoch_text(),
                least,
            });
        }
        let closes = Fence {
            incarnation: Incarnation::from_stored(&lease.owner),
            epoch: Epoch(lease.epoch.unwrap_or_default()),
        };
        self.gates.remove(&closes.consumer());
        self.gates.insert(Fence { incarnation: acquire.incarnation.clone(), epoch }.consumer());
        self.lease = Lease {
            owner: me.to_owned(),
            epoch: Some(epoch.0),
            number: 0,
            expires_ms: now_ms + millis(acquire.ttl),
            ttl_ms: Some(millis(acquire.ttl)),
            wanted: None,
            changes: lease.changes,
        };
        Acquired::Granted(epoch)
    }

    pub(super) fn want(&mut self, now_ms: u64, incarnation: &Incarnation, stands_for_ms: u64) -> Wanted {
        let lease = &mut self.lease;
        if lease.owner.is_empty() || lease.expires_ms <= now_ms {
            return Wanted::Free;
        }
        if lease.owner == incarnation.as_str() {
            return Wanted::Mine;
        }
        match lease.wanted_at(now_ms) {
            Some(other) if other != *incarnation => Wanted::By(other),
            _ => {
                lease.wanted = Some((incarnation.as_str().to_owned(), now_ms + stands_for_ms));
                Wanted::Noted
            }
        }
    }

    pub(super) fn renew(&mut self, now_ms: u64, renew: &Renew, ttl_ms: u64) -> Renewed {
        let due = self.delayed.keys().next().map(|(due, _)| UnixMillis(*due));
        let lease = &mut self.lease;
        if !lease.is(&renew.fence) {
            return Renewed::Refused(Refusal::Fenced { owner: lease.owner.clone() });
        }
        if lease.number < renew.answered {
            return Renewed::Refused(Refusal::Gap { last: lease.number });
        }
        (lease.expires_ms, lease.ttl_ms) = (now_ms + ttl_ms, Some(ttl_ms));
        let now = UnixMillis(now_ms);
        Renewed::Ok { wanted_by: lease.wanted_at(now_ms), changes: lease.changes, now, due }
    }

    /// Refused by another's fence means that it is released.
    pub(super) fn release(&mut self, guard: Guard<'_>) -> Answer {
        match self.guard(guard) {
            Guarded::Refused(Refusal::Fenced { .. }) | Guarded::Already => Answer::Done,
            Guarded::Refused(refusal) => Answer::Refused(refusal),
            Guarded::Fresh => {
                self.lease.owner.clear();
                self.lease.expires_ms = 0;
                self.gates.remove(&guard.fence.consumer());
                Answer::Done
            }
        }
    }
}
