//! Limits of kinds, as this node heeds them: which of the runs that wait may ask Redis for a slot or a token, and what becomes
//! of the slots they get.
//!
//! ```text
//!   head is ready ──▶ Gate: may it ask? ──▶ its run pulls a slot of the node ──▶ admit ──▶ runs ──▶ settled ──▶ free
//!                        │ no                                                    │ full, or until T
//!                        └── its lane waits, in memory ◀────────────────────────┘
//! ```
//!
//! * [`gate`]: of one kind of one queue: how many may ask at a time, and when again. Pure but for its lock.
//! * [`permit`]: what a run has from the moment it may ask until its settle was answered. Dropping it frees its slot.
//! * [`turns`]: when what cannot wait in memory comes again.
//! * [`releaser`]: the task that frees slots, and says at the start what the kinds are limited to.
//!
//! Redis decides how many run; a gate only saves questions. Where nothing is limited there are no gates, and nothing here
//! is ever called. A slot that is not freed (the process died, Redis was away) lapses like a lease.

pub(crate) mod gate;
pub(crate) mod permit;
pub(crate) mod releaser;
pub(crate) mod turns;

use gate::Gate;
use gristmill_handler::Registry;
use gristmill_job::{Envelope, QueueName};
use releaser::ToReleaser;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;

/// The gates of one queue, by kind.
#[derive(Clone, Default)]
pub(crate) struct Limits(Option<Arc<Inner>>);

struct Inner {
    gates: BTreeMap<&'static str, Arc<Gate>>,
    max_envelope_bytes: usize,
}

impl Limits {
    /// What the kinds of this registry say, for a queue.
    pub(crate) fn new(
        queue: &QueueName,
        registry: &Registry,
        max_envelope_bytes: usize,
        freed: &UnboundedSender<ToReleaser>,
    ) -> Self {
        let gate = |(kind, limit)| (kind, Arc::new(Gate::new(queue.clone(), kind, limit, freed.clone())));
        let gates: BTreeMap<&'static str, Arc<Gate>> = registry.limits().map(gate).collect();
        Self((!gates.is_empty()).then(|| Arc::new(Inner { gates, max_envelope_bytes })))
    }

    /// The gate that the job of this envelope has to pass.
    pub(crate) fn of(&self, envelope: &[u8]) -> Option<&Arc<Gate>> {
        let inner = self.0.as_ref()?;
        inner.gates.get(Envelope::kind_of(envelope, inner.max_envelope_bytes)?)
    }

    /// One gate for one kind.
    #[cfg(test)]
    pub(crate) fn of_gate(gate: Arc<Gate>) -> Self {
        let gates = BTreeMap::from([(gate.kind, gate)]);
        Self(Some(Arc::new(Inner { gates, max_envelope_bytes: 1 << 20 })))
    }

    /// All of them.
    pub(crate) fn gates(&self) -> impl Iterator<Item = &Arc<Gate>> {
        self.0.iter().flat_map(|inner| inner.gates.values())
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.gates().map(|gate| gate.kind)).finish()
    }
}
