//! What a run of a limited kind has, from the moment it may ask until its settle was answered.
//!
//! ```text
//!   may ask ──▶ admitted: has a slot, or needs none ──▶ dropped: the slot is freed
//!      │   └──▶ no answer came: may have one ─────────▶ dropped: the same
//!      └──────▶ refused, or never asked ──────────────▶ dropped: another may ask
//! ```

use super::gate::Gate;
use crate::partition::shared::micros;
use gristmill_broker::admit::{Admit, Admitted};
use gristmill_broker::keep::Held;
use gristmill_broker::limit::{Asked, SlotName};
use gristmill_job::{JobId, Key};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

const ASKS: u8 = 0;
const HOLDS: u8 = 1;
const NOTHING: u8 = 2;

pub(crate) struct Permit {
    pub(crate) gate: Arc<Gate>,
    pub(super) name: SlotName,
    pub(super) asked: Asked,
    job: JobId,
    stands: AtomicU8,
    /// Until when the slot surely stands, in [`micros`]; for one that needs none, for ever.
    trusted_until_us: AtomicU64,
    revoked: AtomicBool,
    told_lost: AtomicBool,
}

impl Permit {
    pub(super) fn new(gate: Arc<Gate>, name: SlotName, asked: Asked, job: JobId) -> Self {
        let (stands, trusted_until_us) = (AtomicU8::new(ASKS), AtomicU64::new(0));
        let (revoked, told_lost) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { gate, name, asked, job, stands, trusted_until_us, revoked, told_lost }
    }

    /// What it asks Redis.
    pub(crate) fn asks(&self, key: Key) -> Admit {
        Admit { name: self.name, asked: self.asked, job: self.job.clone(), key }
    }

    /// What is kept of it.
    pub(crate) fn held(&self) -> Held {
        Held { name: self.name, asked: self.asked, job: self.job.clone() }
    }

    /// Redis answered, or did not (`None`); a slot is surely held until `until`.
    pub(crate) fn answered(self: &Arc<Self>, said: Option<Admitted>, until: Instant, random: f64) {
        let stands = match said {
            // Not known: what may be held is kept from no one, and freed.
            None | Some(Admitted::Slot) => HOLDS,
            Some(_) => NOTHING,
        };
        if stands == HOLDS {
            self.gate.hold(self);
        }
        let until = match said {
            Some(Admitted::Passed) => u64::MAX,
            Some(Admitted::Slot) => micros(until),
            _ => 0,
        };
        self.trusted_until_us.store(until, Ordering::SeqCst);
        self.stands.store(stands, Ordering::SeqCst);
        self.gate.answered(said, Instant::now(), random);
    }

    /// Its slot was kept: it surely stands until then.
    pub(crate) fn kept(&self, until: Instant) {
        self.trusted_until_us.fetch_max(micros(until), Ordering::SeqCst);
    }

    /// Its slot is not held any more. True the first time, and where it is still needed.
    pub(crate) fn lost(self: &Arc<Self>) -> bool {
        // One that is being freed just now has no other owner than who asks.
        Arc::strong_count(self) > 1 && !self.told_lost.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn job(&self) -> &JobId {
        &self.job
    }

    /// The claim of its job was lost, if only for a moment: another node may have inherited its slot, and freed it. Nothing begins
    /// with it any more.
    pub(crate) fn revoke(&self) {
        self.revoked.store(true, Ordering::SeqCst);
    }

    /// Whether a run may begin with it.
    pub(crate) fn trusted(&self, now: Instant) -> bool {
        !self.revoked.load(Ordering::SeqCst) && micros(now) < self.trusted_until_us.load(Ordering::SeqCst)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        match self.stands.load(Ordering::SeqCst) {
            ASKS => self.gate.left(Instant::now()),
            HOLDS => self.gate.release(self.name, self.asked),
            _ => {}
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permit({} {})", self.gate.kind, self.name.stored())
    }
}
