//! What is prolonged beside leases: the claims of queues without an order, and the slots of limited kinds.

use super::{Heartbeat, Rhythm};
use crate::competing;
use crate::competing::claims::Claims;
use crate::partition::Message as ToPartition;
use crate::partition::shared::Shared;
use gristmill_broker::call::MAX_JOBS_PER_CALL;
use gristmill_broker::extend::Extended;
use gristmill_broker::{Connection, Link};
use gristmill_telemetry::events::node::SlotLost;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio::time::MissedTickBehavior;

/// Looks for claims that are to be extended, in the shortest visibility timeout: each is extended when a third of its own is
/// over, so that two extensions may fail.
const EXTEND_LOOKS: u32 = 8;

impl Heartbeat {
    /// Extends claims. Never ends.
    pub(super) async fn extend(&self, link: &Link) {
        let unordered = self.unordered.get().map(Vec::as_slice).unwrap_or_default();
        let timeouts = unordered.iter().filter_map(|shared| shared.claims.as_ref().map(Claims::timeout));
        let Some(shortest) = timeouts.min() else { return std::future::pending().await };
        let mut looks = tokio::time::interval(shortest / EXTEND_LOOKS);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            if let Some(connection) = link.current().filter(|_| !self.halted.load(Ordering::SeqCst)) {
                let extends = unordered.iter().map(|shared| self.extend_partition(shared, &connection));
                futures_util::future::join_all(extends).await;
            }
            let now = Instant::now();
            for shared in unordered {
                let lost = shared.claims.as_ref().map(|claims| claims.distrust(now)).unwrap_or_default();
                if !lost.is_empty() {
                    shared.cast(ToPartition::Competing(competing::Event::Lost(lost)));
                }
            }
        }
    }

    async fn extend_partition(&self, shared: &Shared, connection: &Connection) {
        let Some(claims) = &shared.claims else { return };
        for places in claims.due(Instant::now()).chunks(MAX_JOBS_PER_CALL) {
            let sent = Instant::now();
            // What is not answered is due with the next look.
            let answered = connection.extend(&shared.keys, &self.rhythm.incarnation, places).await;
            let Ok(Extended { lost, cancelled, now }) = answered else { return };
            shared.redis_clock(now, sent);
            let extended = (places.len() - lost.len().min(places.len())) as u64;
            self.telemetry.metrics().claims_extended_total.one().add(extended);
            let lost = claims.extended(places, &lost, sent);
            if !lost.is_empty() {
                shared.cast(ToPartition::Competing(competing::Event::Lost(lost)));
            }
            if !cancelled.is_empty() {
                shared.cast(ToPartition::Competing(competing::Event::Cancelled(cancelled)));
            }
        }
    }

    /// Prolongs the slots of limited kinds. One that is lost is told once; its run goes on.
    pub(super) async fn keep(&self, connection: &Connection) {
        for gate in self.gates.get().into_iter().flatten() {
            for permits in gate.held().chunks(MAX_JOBS_PER_CALL) {
                let held: Vec<_> = permits.iter().map(|permit| permit.held()).collect();
                let Rhythm { incarnation, ttl, .. } = &self.rhythm;
                let sent = Instant::now();
                let kept = connection.keep(&gate.queue, gate.kind, incarnation, *ttl, &held).await;
                for (permit, kept) in permits.iter().zip(kept.unwrap_or_default()) {
                    if kept {
                        permit.kept(sent + self.trust());
                    } else if permit.lost() {
                        let (queue, kind) = (gate.queue.as_str(), gate.kind);
                        self.telemetry.tell(&SlotLost { queue, kind, job: permit.job() });
                    }
                }
            }
        }
    }
}
