//! The queues of a node: made in Redis, and with what is said of each for its partitions.

use super::NodeError;
use crate::config::{AfterDeadLetter, NodeConfig, QueueConfig};
use crate::counters::Counters;
use crate::keeper::{Keeper, Kept};
use crate::limits::Limits;
use crate::limits::gate::Gate;
use crate::limits::releaser::{Releaser, ToReleaser};
use crate::partition::Message;
use crate::partition::lanes::Memory;
use crate::partition::policy::{Budget, Policy, Rules};
use crate::partition::shared::Shared;
use crate::partition::tenure::Bounds;
use crate::partition::told::Told;
use crate::scheduler::Scheduled;
use crate::supervisor::Served;
use crate::worker::turns::Share;
use gristmill_broker::create::CreateError;
use gristmill_broker::{Incarnation, Link, Mode, QueueDefinition};
use gristmill_handler::Registry;
use gristmill_schedule::Schedule;
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::events::node::{BatchCapped, QueuesNotPrepared};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

/// Waits for Redis, refuses one that would evict, and makes the queues.
pub(super) async fn prepare(
    link: &Link,
    queues: &[QueueConfig],
    telemetry: &Telemetry,
) -> Result<Vec<QueueDefinition>, NodeError> {
    let definitions: Vec<QueueDefinition> = queues.iter().map(QueueConfig::definition).collect();
    'connected: loop {
        let connection = link.connected().await;
        match connection.eviction_policy().await {
            Ok(Some(policy)) if policy != "noeviction" => return Err(NodeError::Eviction(policy)),
            // A server that does not tell is asked again by `gristmill doctor`.
            Ok(_) => {}
            Err(error) => {
                again(&error.to_string(), telemetry).await;
                continue;
            }
        }
        for (definition, queue) in definitions.iter().zip(queues) {
            match connection.create(definition).await {
                Ok(()) => {}
                Err(error @ CreateError::Differs { .. }) => return Err(NodeError::Queue(error)),
                Err(error) => {
                    again(&error.to_string(), telemetry).await;
                    continue 'connected;
                }
            }
            if let Err(error) = connection.set_length_limit(definition, queue.length_limit).await {
                again(&error.to_string(), telemetry).await;
                continue 'connected;
            }
        }
        return Ok(definitions);
    }
}

async fn again(why: &str, telemetry: &Telemetry) {
    telemetry.tell(&QueuesNotPrepared { why });
    tokio::time::sleep(Duration::from_millis(500)).await;
}

/// Jobs of one key that are in memory; the others are parked.
const LANE_JOBS: usize = 32;
/// A key that waits for longer is parked as a whole.
pub(crate) const LONGEST_WAIT_IN_MEMORY: Duration = Duration::from_secs(2);
/// Parked jobs per partition, remembered by 16 bytes each, beyond which nothing is claimed.
const PARKED_JOBS: usize = 250_000;

pub(super) fn keeper(
    config: &NodeConfig,
    served: &[Served],
    link: &Link,
    incarnation: &Incarnation,
    counters: &Arc<Counters>,
) -> Keeper {
    let kept = |(queue, served): (&QueueConfig, &Served)| {
        let (definition, partitions) = (served.definition.clone(), served.partitions.clone());
        let seen_window = queue.seen_window.unwrap_or(config.seen_window);
        queue.dead_max_age.map(|max_age| Kept { queue: definition, max_age, seen_window, partitions })
    };
    Keeper {
        link: link.clone(),
        incarnation: incarnation.clone(),
        counters: counters.clone(),
        telemetry: config.telemetry.clone(),
        queues: config.queues.iter().zip(served).filter_map(kept).collect(),
    }
}

/// The schedules whose queues are served here: those of others are fired by their nodes.
pub(super) fn scheduled(config: &NodeConfig, definitions: &[QueueDefinition]) -> Vec<Scheduled> {
    let with_queue = |schedule: &Schedule| {
        let queue = definitions.iter().find(|queue| &queue.name == schedule.queue())?;
        Some(Scheduled { schedule: schedule.clone(), queue: queue.clone() })
    };
    config.schedules.iter().filter_map(with_queue).collect()
}

pub(super) fn serve(
    config: &NodeConfig,
    registry: &Registry,
    definitions: Vec<QueueDefinition>,
    freed: &UnboundedSender<ToReleaser>,
) -> Vec<Served> {
    let (asked, most) = (registry.clone(), config.max_envelope_bytes);
    let rules = match registry.has_rules() {
        true => Rules::new(move |envelope| asked.rule(envelope, most)),
        false => Rules::default(),
    };
    let partitions: usize = definitions.iter().map(|queue| usize::from(queue.partitions)).sum();
    // The node's bytes are shared by its partitions, but each may hold at least one job of the largest size.
    let window_bytes = (config.window_bytes / partitions.max(1)).max(config.max_envelope_bytes);
    let serve_one = |(at, (definition, queue)): (usize, (QueueDefinition, &QueueConfig))| Served {
        partitions: (0..definition.partitions)
            .map(|p| Shared::new(definition.name.clone(), p, definition.partition(p)))
            .map(|shared| shared.expiring(queue.expires_in).limited_to(queue.length_limit))
            .map(|shared| shared.remembering(queue.seen_window.unwrap_or(config.seen_window)))
            .map(|shared| shared.sharing(Share { queue: at, weight: queue.weight }))
            .map(|shared| match definition.mode {
                Mode::Key => shared,
                Mode::None => shared.unordered(queue.visibility_timeout),
            })
            .map(Arc::new)
            .collect(),
        told: Told::new(&config.telemetry, &definition.name, registry.kinds()),
        definition,
        visibility_timeout: queue.visibility_timeout,
        bounds: Bounds {
            window_jobs: config.window_jobs,
            window_parked: PARKED_JOBS,
            memory: Memory { jobs_per_lane: LANE_JOBS, longest_wait: LONGEST_WAIT_IN_MEMORY },
            window_bytes,
            claim_jobs: gristmill_broker::call::MAX_JOBS_PER_CALL.min(config.window_jobs),
            recover_jobs: 100,
            handover_wait: config.handover_wait,
            census_every: config.census_every,
            policy: Policy {
                retry: queue.retry.clone(),
                crash_budget: queue.crash_budget,
                hold: queue.after_dead_letter == AfterDeadLetter::Hold,
                unknown_kind_wait: queue.unknown_kind_wait,
                max_envelope_bytes: config.max_envelope_bytes,
                budget: Budget::new(queue.retry_budget, Instant::now()),
                rules: rules.clone(),
                limits: Limits::new(&queue.name, registry, config.max_envelope_bytes, freed),
                traced: config.telemetry.traces().map(|traces| (queue.name.clone(), traces.share())),
            },
        },
    };
    definitions.into_iter().zip(&config.queues).enumerate().map(serve_one).collect()
}

/// The gates of all queues; each wakes the partitions of its own.
pub(super) fn gates(served: &[Served]) -> Vec<Arc<Gate>> {
    let mut gates = Vec::new();
    for queue in served {
        for gate in queue.bounds.policy.limits.gates() {
            let partitions = queue.partitions.clone();
            gate.wakes(move |partition| {
                if let Some(shared) = partitions.get(usize::from(partition)) {
                    shared.cast(Message::Opened);
                }
            });
            gates.push(gate.clone());
        }
    }
    gates
}

pub(super) fn releaser(
    config: &NodeConfig,
    served: &[Served],
    link: &Link,
    incarnation: &Incarnation,
    told: UnboundedReceiver<ToReleaser>,
) -> Releaser {
    let limits = |queue: &Served| (queue.definition.name.clone(), queue.bounds.policy.limits.clone());
    Releaser {
        link: link.clone(),
        incarnation: incarnation.clone(),
        ttl: config.lease_ttl,
        telemetry: config.telemetry.clone(),
        queues: served.iter().map(limits).collect(),
        told,
    }
}

/// Slots and waits of limited kinds are counted where they are, whenever somebody asks.
pub(super) fn told_of_limits(telemetry: &Telemetry, gates: Vec<Arc<Gate>>) {
    if gates.is_empty() {
        return;
    }
    telemetry.ask(move |metrics| {
        for gate in &gates {
            let labels = [gate.queue.as_str(), gate.kind];
            metrics.limit_slots.with(&labels).set(gate.holds() as f64);
            metrics.limit_waiting.with(&labels).set(gate.waiting() as f64);
        }
    });
}

/// Batches are no larger than this node can run, and are counted.
pub(super) fn batches(registry: &Registry, slots: usize, telemetry: &Telemetry) {
    for (kind, max_jobs) in registry.cap_batches(slots) {
        telemetry.tell(&BatchCapped { kind, max_jobs: max_jobs as u64, slots: slots as u64 });
    }
    let metrics = telemetry.clone();
    registry.observe_batches(move |kind, jobs| {
        metrics.metrics().batches_total.with(&[kind]).add(1);
        metrics.metrics().batch_jobs_total.with(&[kind]).add(jobs as u64);
    });
}
