//! Gives back the slots of runs that are settled, many at a time, and says at the start what the kinds are limited to.

use super::Limits;
use super::gate::Gate;
use gristmill_broker::call::MAX_JOBS_PER_CALL;
use gristmill_broker::limit::{Asked, SlotName};
use gristmill_broker::{Incarnation, Link};
use gristmill_job::{Limit, QueueName};
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::events::node::{LimitChanged, LimitsUnsaid};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

/// Between two tries to say or free.
const AGAIN: Duration = Duration::from_millis(100);

/// What the releaser is told.
#[derive(Debug)]
pub(crate) enum ToReleaser {
    Freed(Freed),
    /// Answered when everything that was told before is freed.
    Flush(oneshot::Sender<()>),
}

/// A slot that nobody needs any more.
#[derive(Debug)]
pub(crate) struct Freed {
    pub(crate) gate: Arc<Gate>,
    pub(crate) name: SlotName,
    pub(crate) asked: Asked,
}

pub(crate) struct Releaser {
    pub(crate) link: Link,
    pub(crate) incarnation: Incarnation,
    /// How long a slot stands without being kept: after so long there is nothing left to free.
    pub(crate) ttl: Duration,
    pub(crate) telemetry: Telemetry,
    pub(crate) queues: Vec<(QueueName, Limits)>,
    pub(crate) told: UnboundedReceiver<ToReleaser>,
}

impl Releaser {
    /// Until the node is gone.
    pub(crate) async fn run(mut self) {
        self.say().await;
        let mut told = Vec::new();
        while self.told.recv_many(&mut told, MAX_JOBS_PER_CALL).await > 0 {
            let (mut freed, mut flushed) = (Vec::new(), Vec::new());
            for told in told.drain(..) {
                match told {
                    ToReleaser::Freed(one) => freed.push(one),
                    ToReleaser::Flush(answer) => flushed.push(answer),
                }
            }
            self.free(freed).await;
            for answer in flushed {
                // Who asked may be gone.
                let _ = answer.send(());
            }
        }
    }

    /// What the kinds are limited to, until it is written; whoever asks before writes it, too.
    async fn say(&self) {
        for (queue, limits) in &self.queues {
            let said: Vec<(&str, Limit)> = limits.gates().map(|gate| (gate.kind, gate.limit)).collect();
            for said in said.chunks(MAX_JOBS_PER_CALL) {
                loop {
                    let connection = self.link.connected().await;
                    match connection.limit(queue, said, self.incarnation.as_str()).await {
                        Ok(before) => {
                            self.changed(queue, said, &before);
                            break;
                        }
                        Err(error) => {
                            self.telemetry.tell(&LimitsUnsaid { queue: queue.as_str(), error: &error });
                            // not a wait for a state: a pause between tries
                            tokio::time::sleep(AGAIN).await;
                        }
                    }
                }
            }
        }
    }

    fn changed(&self, queue: &QueueName, said: &[(&str, Limit)], before: &[String]) {
        for ((kind, limit), before) in said.iter().zip(before) {
            if !before.is_empty() && !before.starts_with(&format!("{} ", limit.stored())) {
                self.telemetry.tell(&LimitChanged { queue: queue.as_str(), kind, limit, before });
            }
        }
    }

    /// Until Redis answers, or they have lapsed.
    async fn free(&self, freed: Vec<Freed>) {
        let lapsed = Instant::now() + self.ttl;
        let mut of_gates: HashMap<(QueueName, &'static str), Vec<Freed>> = HashMap::new();
        for one in freed {
            of_gates.entry((one.gate.queue.clone(), one.gate.kind)).or_default().push(one);
        }
        for ((queue, kind), freed) in of_gates {
            let slots: Vec<(SlotName, Asked)> = freed.iter().map(|one| (one.name, one.asked)).collect();
            let free = async {
                loop {
                    let connection = self.link.connected().await;
                    match connection.free(&queue, kind, &self.incarnation, &slots).await {
                        Ok(_) => return,
                        // not a wait for a state: a pause between tries
                        Err(_) => tokio::time::sleep(AGAIN).await,
                    }
                }
            };
            let _ = tokio::time::timeout_at(lapsed.into(), free).await;
            if let Some(one) = freed.first() {
                one.gate.opened(freed.len(), Instant::now());
            }
        }
    }
}
