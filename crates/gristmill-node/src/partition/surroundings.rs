//! What the partitions of a node have in common.

use crate::counters::Counters;
use crate::doorbell::Doorbell;
use crate::heartbeat::Heartbeat;
use crate::lease_manager::Message as ToManager;
use crate::promotions::Promotions;
use crate::worker::alone::Alone;
use crate::worker::run_queue::{RunQueue, lock};
use gristmill_broker::{Broker, Incarnation, Link};
use gristmill_telemetry::Telemetry;
use ractor::ActorRef;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) struct Surroundings {
    pub(crate) incarnation: Incarnation,
    /// For what belongs to no tenure: wishes, looks, emitted jobs.
    pub(crate) link: Link,
    /// For tenures; each partition keeps to one of them.
    pub(crate) lines: Vec<Link>,
    pub(crate) broker: Broker,
    pub(crate) heartbeat: Arc<Heartbeat>,
    pub(crate) doorbell: Arc<Doorbell>,
    pub(crate) runs: Arc<RunQueue>,
    pub(crate) alone: Arc<Alone>,
    pub(crate) promotions: Promotions,
    pub(crate) counters: Arc<Counters>,
    pub(crate) telemetry: Telemetry,
    pub(crate) lease_ttl: Duration,
    pub(crate) manager: Mutex<Option<ActorRef<ToManager>>>,
}

impl Surroundings {
    /// The link that carries the tenures of this partition.
    pub(crate) fn line_of(&self, partition: u16) -> &Link {
        self.lines.get(usize::from(partition) % self.lines.len().max(1)).unwrap_or(&self.link)
    }

    pub(crate) fn tell_manager(&self, message: ToManager) {
        if let Some(manager) = &*lock(&self.manager) {
            // A manager that is gone is started again and looks at every partition anew.
            let _ = manager.cast(message);
        }
    }
}
