//! What a node counts. Read as a snapshot; exported as metrics by later layers.

use crate::partition::tenure::End;
use gristmill_broker::Settled;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Counters {
    done: AtomicU64,
    stale: AtomicU64,
    duplicate: AtomicU64,
    retried: AtomicU64,
    discarded: AtomicU64,
    cancelled: AtomicU64,
    expired: AtomicU64,
    dead: AtomicU64,
    rejected: AtomicU64,
    fenced: AtomicU64,
    handed_back: AtomicU64,
    ends: [AtomicU64; 10],
    heartbeat_late_ms: AtomicU64,
    restarts: AtomicU64,
    repaired: AtomicU64,
    unstarted: AtomicU64,
    expired_letters: AtomicU64,
    hung: AtomicU64,
    claims_lost: AtomicU64,
}

/// A snapshot of what a node has counted since it started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Jobs acknowledged with their effects.
    pub done: u64,
    /// Jobs acknowledged without effect, since their version was not newer.
    pub stale: u64,
    /// Jobs acknowledged without effect, since another copy of their id had applied.
    pub duplicate: u64,
    /// Jobs put back for another attempt.
    pub retried: u64,
    /// Jobs acknowledged without effect, since their handler said so.
    pub discarded: u64,
    /// Jobs that were claimed, and ended since a person had cancelled them.
    pub cancelled: u64,
    /// Jobs that ended unrun, since it was too late for them.
    pub expired: u64,
    /// Jobs that became dead letters.
    pub dead: u64,
    /// Jobs whose writes Redis refused.
    pub rejected: u64,
    /// Answers that told a stale owner so.
    pub fenced: u64,
    /// Jobs handed back while leaving.
    pub handed_back: u64,
    /// Tenures that ended, by cause.
    pub tenure_ends: Vec<(&'static str, u64)>,
    /// How late the heartbeat has been at worst, in ms.
    pub heartbeat_late_ms: u64,
    /// Actors that failed and were started again.
    pub restarts: u64,
    /// Jobs and keys that waited for nothing, or were lost sight of, and were found.
    pub repaired: u64,
    /// Jobs that may run at most once, acknowledged and never started.
    pub unstarted: u64,
    /// Dead letters that were discarded, since they were beyond the age that was configured.
    pub expired_letters: u64,
    /// Runs that held their thread and were given up.
    pub hung: u64,
    /// Claims, of queues with ordering none, that were lost before their job was settled.
    pub claims_lost: u64,
}

impl Counts {
    /// Tenures that ended by a fault: every cause but a hand-over and a drain.
    #[must_use]
    pub fn tenures_lost(&self) -> u64 {
        let lost = self.tenure_ends.iter().filter(|(cause, _)| !matches!(*cause, "handover" | "drain"));
        lost.map(|(_, count)| count).sum()
    }
}

const ENDS: [End; 10] = [
    End::Handover,
    End::Drain,
    End::Fenced,
    End::Gap,
    End::Connection,
    End::Unknown,
    End::Trust,
    End::Disagreement,
    End::Census,
    End::Error,
];

impl Counters {
    pub(crate) fn done(&self, jobs: usize) {
        self.done.fetch_add(jobs as u64, Ordering::Relaxed);
    }

    pub(crate) fn settled(&self, settled: &Settled) {
        let counter = match settled {
            Settled::Done | Settled::Gone => &self.done,
            Settled::Stale => &self.stale,
            Settled::Duplicate => &self.duplicate,
            Settled::Retried | Settled::AtTurn(_) => &self.retried,
            Settled::Discarded => &self.discarded,
            Settled::Cancelled => &self.cancelled,
            Settled::Expired => &self.expired,
            Settled::Dead => &self.dead,
            Settled::Rejected(_) => &self.rejected,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn tenure_ended(&self, end: End) {
        if let Some(at) = ENDS.iter().position(|known| *known == end) {
            self.ends[at].fetch_add(1, Ordering::Relaxed);
        }
        if end == End::Fenced {
            self.fenced.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn handed_back(&self, jobs: usize) {
        self.handed_back.fetch_add(jobs as u64, Ordering::Relaxed);
    }

    pub(crate) fn heartbeat_late(&self, ms: u64) {
        self.heartbeat_late_ms.fetch_max(ms, Ordering::Relaxed);
    }

    pub(crate) fn repaired(&self, things: u64) {
        self.repaired.fetch_add(things, Ordering::Relaxed);
    }

    pub(crate) fn unstarted(&self, jobs: usize) {
        self.unstarted.fetch_add(jobs as u64, Ordering::Relaxed);
    }

    pub(crate) fn restarted(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn expired_letters(&self, letters: u64) {
        self.expired_letters.fetch_add(letters, Ordering::Relaxed);
    }

    pub(crate) fn hung(&self) {
        self.hung.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn claims_lost(&self, claims: usize) {
        self.claims_lost.fetch_add(claims as u64, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            done: read(&self.done),
            stale: read(&self.stale),
            duplicate: read(&self.duplicate),
            retried: read(&self.retried),
            discarded: read(&self.discarded),
            cancelled: read(&self.cancelled),
            expired: read(&self.expired),
            dead: read(&self.dead),
            rejected: read(&self.rejected),
            fenced: read(&self.fenced),
            handed_back: read(&self.handed_back),
            tenure_ends: ENDS
                .iter()
                .zip(&self.ends)
                .map(|(end, count)| (end.as_str(), read(count)))
                .collect(),
            heartbeat_late_ms: read(&self.heartbeat_late_ms),
            restarts: read(&self.restarts),
            repaired: read(&self.repaired),
            unstarted: read(&self.unstarted),
            expired_letters: read(&self.expired_letters),
            hung: read(&self.hung),
            claims_lost: read(&self.claims_lost),
        }
    }
}
