//! What a node tidies, once a minute, in the partitions that it owns: dead letters beyond the age that was configured are
//! discarded. Where none was, they are kept until a person acts.
//!
//! In pages, so that neither Redis nor the node ever holds many. Discarding needs no lease, and twice is once: a partition
//! that changes hands meanwhile does not matter. Counted, logged, and noted in the audit log as the node's act.

use crate::counters::Counters;
use crate::partition::shared::Shared;
use gristmill_broker::audit::{AuditEntry, AuditStep};
use gristmill_broker::dead::{DeadFound, DeadRange, DeadWalk, SLICE};
use gristmill_broker::discard::{Discard, Discarded, Whose};
use gristmill_broker::{CallError, Connection, Incarnation, Link, QueueDefinition};
use gristmill_job::{JobId, UnixMillis};
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::events::job::{LettersExpired, LettersNotExpired, LettersNotNoted};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(60);

/// A queue whose dead letters expire.
pub(crate) struct Kept {
    pub(crate) queue: QueueDefinition,
    pub(crate) max_age: Duration,
    pub(crate) seen_window: Duration,
    pub(crate) partitions: Vec<Arc<Shared>>,
}

pub(crate) struct Keeper {
    pub(crate) link: Link,
    pub(crate) incarnation: Incarnation,
    pub(crate) counters: Arc<Counters>,
    pub(crate) telemetry: Telemetry,
    pub(crate) queues: Vec<Kept>,
}

impl Keeper {
    /// Never ends.
    pub(crate) async fn run(self) {
        let mut looks = tokio::time::interval_at(tokio::time::Instant::now() + EVERY, EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            // Without a connection the next look does it.
            let Some(connection) = self.link.current() else { continue };
            for kept in &self.queues {
                self.expire(&connection, kept).await;
            }
        }
    }

    async fn expire(&self, connection: &Connection, kept: &Kept) {
        let served: Vec<&Arc<Shared>> = kept.partitions.iter().filter(|shared| shared.is_served()).collect();
        let clock = served.iter().find_map(|shared| shared.redis_now(Instant::now()));
        let Some(UnixMillis(now)) = clock else { return };
        let max_age_ms = u64::try_from(kept.max_age.as_millis()).unwrap_or(u64::MAX);
        let Some(until) = now.checked_sub(max_age_ms).map(UnixMillis) else { return };
        let partitions: Vec<(QueueDefinition, u16)> =
            served.iter().map(|shared| (kept.queue.clone(), shared.partition)).collect();
        let range = DeadRange { until: Some(until), ..DeadRange::default() };
        let mut walk = DeadWalk::new(connection.clone(), &partitions, range);
        let mut act = Act::new(&self.incarnation, kept);
        let whole = self.pages(connection, kept, &mut walk, &mut act).await;
        let (queue, count) = (kept.queue.name.as_str(), act.entry.count);
        if let Err(error) = &whole {
            self.telemetry.tell(&LettersNotExpired { queue, count, error });
        } else if count > 0 {
            self.telemetry.tell(&LettersExpired { queue, count, max_age_ms });
        }
        act.end(connection, whole.is_ok(), &self.telemetry).await;
    }

    async fn pages(
        &self,
        connection: &Connection,
        kept: &Kept,
        walk: &mut DeadWalk,
        act: &mut Act,
    ) -> Result<(), CallError> {
        loop {
            let found = walk.next(SLICE).await?;
            if found.is_empty() {
                return Ok(());
            }
            // Before anything is done: what cannot be noted is not done.
            act.begin(connection).await?;
            let gone = discard(connection, kept, found).await?;
            act.entry.count += gone;
            self.counters.expired_letters(gone);
        }
    }
}

/// How many of them were there.
async fn discard(connection: &Connection, kept: &Kept, found: Vec<DeadFound>) -> Result<u64, CallError> {
    let window_ms = u64::try_from(kept.seen_window.as_millis()).unwrap_or(u64::MAX);
    let mut batches: BTreeMap<u16, Vec<Discard>> = BTreeMap::new();
    for DeadFound { position, letter, .. } in found {
        let job = letter.ok().map(Whose::of);
        batches.entry(position.partition).or_default().push(Discard { letter: position.id, job });
    }
    let mut gone = 0;
    for (partition, batch) in batches {
        let answers = connection.discard(&kept.queue.partition(partition), window_ms, &batch).await?;
        gone += answers.iter().filter(|answer| **answer == Discarded::Discarded).count() as u64;
    }
    Ok(gone)
}

/// One look's entry in the audit log; none where there was nothing to do.
struct Act {
    entry: AuditEntry,
    begun: bool,
}

impl Act {
    fn new(incarnation: &Incarnation, kept: &Kept) -> Self {
        let entry = AuditEntry {
            act: JobId::generate().to_string(),
            step: AuditStep::Begun,
            who: incarnation.to_string(),
            what: "expire".into(),
            filter: format!("queue={} older than {} ms", kept.queue.name, kept.max_age.as_millis()),
            reason: "beyond dead_max_age_ms".into(),
            count: 0,
            original: None,
        };
        Self { entry, begun: false }
    }

    async fn begin(&mut self, connection: &Connection) -> Result<(), CallError> {
        if !self.begun {
            connection.note(&self.entry).await?;
            self.begun = true;
        }
        Ok(())
    }

    async fn end(mut self, connection: &Connection, whole: bool, telemetry: &Telemetry) {
        self.entry.step = if whole { AuditStep::Done } else { AuditStep::Failed };
        if self.begun
            && let Err(error) = connection.note(&self.entry).await
        {
            let count = self.entry.count;
            telemetry.tell(&LettersNotNoted { count, error: &error });
        }
    }
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
