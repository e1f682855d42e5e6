//! Renews every lease, on a thread and runtime of its own: a handler that hogs the node's runtime does not lose it its
//! partitions. Announces the node to the others in the same beat.

use crate::counters::Counters;
use crate::lease_manager::{self, Message as ToManager};
use crate::partition::Message as ToPartition;
use crate::partition::shared::Shared;
use crate::partition::tenure::{End, Event};
use crate::worker::run_queue::lock;
use gristmill_broker::announce::Member;
use gristmill_broker::lease::renew::{Renew, Renewed};
use gristmill_broker::{Connection, Fence, Incarnation, Link, RedisConfig, Refusal};
use gristmill_job::QueueName;
use ractor::ActorRef;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// What the heartbeat is told.
#[derive(Clone)]
pub(crate) struct Rhythm {
    pub(crate) redis: RedisConfig,
    pub(crate) incarnation: Incarnation,
    pub(crate) queues: Vec<QueueName>,
    /// What it says of the kinds it serves, as JSON; empty to say nothing.
    pub(crate) kinds: Arc<str>,
    pub(crate) ttl: Duration,
    pub(crate) renewal: Duration,
    pub(crate) margin: Duration,
}

struct Lease {
    fence: Fence,
    shared: Arc<Shared>,
}

/// The leases to renew. Shared by the partitions and the thread.
pub(crate) struct Heartbeat {
    rhythm: Rhythm,
    leases: Mutex<HashMap<(QueueName, u16), Lease>>,
    draining: AtomicBool,
    /// Beat at once: something the others should know has changed.
    soon: Notify,
    stop: Notify,
    manager: Mutex<Option<ActorRef<ToManager>>>,
    counters: Arc<Counters>,
}

impl Heartbeat {
    pub(crate) fn new(rhythm: Rhythm, counters: Arc<Counters>) -> Self {
        Self {
            rhythm,
            leases: Mutex::default(),
            draining: AtomicBool::new(false),
            soon: Notify::new(),
            stop: Notify::new(),
            manager: Mutex::default(),
            counters,
        }
    }

    /// Starts the thread. The receiver is answered when it has left.
    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<oneshot::Receiver<()>> {
        let (left, leaving) = oneshot::channel();
        let heartbeat = self.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("gristmill-heartbeat".into()).spawn(move || {
            runtime.block_on(heartbeat.beat());
            let _ = left.send(());
        })?;
        Ok(leaving)
    }

    pub(crate) fn register_manager(&self, manager: ActorRef<ToManager>) {
        *lock(&self.manager) = Some(manager);
        self.soon.notify_one();
    }

    /// Renews this lease from now on. It was granted to a call sent at `sent`.
    pub(crate) fn hold(&self, shared: &Arc<Shared>, fence: Fence, sent: Instant) {
        shared.trust_until(sent + self.rhythm.ttl.saturating_sub(self.rhythm.margin));
        let key = (shared.queue.clone(), shared.partition);
        lock(&self.leases).insert(key, Lease { fence, shared: shared.clone() });
    }

    /// Does not renew it any more.
    pub(crate) fn drop_lease(&self, shared: &Shared) {
        lock(&self.leases).remove(&(shared.queue.clone(), shared.partition));
    }

    /// Tells the others that this node leaves.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.soon.notify_one();
    }

    /// Leaves the registry and ends the thread.
    pub(crate) fn stop(&self) {
        self.stop.notify_one();
    }

    async fn beat(&self) {
        // An answer that stays away must leave time for another try before trust runs out.
        let mut redis = self.rhythm.redis.clone();
        redis.response_timeout = redis.response_timeout.min(self.rhythm.ttl / 4);
        let link = Link::start(redis, "heartbeat");
        let mut due = tokio::time::Instant::now();
        loop {
            let late = due.elapsed();
            self.counters.heartbeat_late(u64::try_from(late.as_millis()).unwrap_or(u64::MAX));
            if let Some(connection) = link.current() {
                // A beat that takes longer than its interval is given up; the next one tells.
                let limit = self.rhythm.ttl.saturating_sub(self.rhythm.margin);
                let renewed = tokio::time::timeout(limit, self.renew(&connection)).await;
                // Where nothing is answered, the next renewal comes before everything else.
                if renewed == Ok(true) {
                    let _ = tokio::time::timeout(limit, self.announce(&connection, self.rhythm.ttl)).await;
                }
            }
            self.distrust();
            due = tokio::time::Instant::now() + self.rhythm.renewal;
            let mut connected = link.watch();
            let wait_for_link = link.current().is_none();
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                _ = connected.wait_for(Option::is_some), if wait_for_link => due = tokio::time::Instant::now(),
                () = self.soon.notified() => due = tokio::time::Instant::now(),
                () = self.stop.notified() => break,
            }
        }
        if let Some(connection) = link.current() {
            let _ = tokio::time::timeout(Duration::from_secs(1), self.announce(&connection, Duration::ZERO))
                .await;
        }
    }

    /// Whether Redis answered, or there was nothing to ask.
    async fn renew(&self, connection: &Connection) -> bool {
        let (renewals, shared): (Vec<Renew>, Vec<Arc<Shared>>) = lock(&self.leases)
            .values()
            .map(|lease| {
                let renew = Renew {
                    keys: lease.shared.keys.clone(),
                    fence: lease.fence.clone(),
                    answered: lease.shared.answered.load(Ordering::SeqCst),
                };
                (renew, lease.shared.clone())
            })
            .unzip();
        if renewals.is_empty() {
            return true;
        }
        let sent = Instant::now();
        let Ok(answers) = connection.renew(&renewals, self.rhythm.ttl).await else { return false };
        for ((answer, shared), renew) in answers.into_iter().zip(shared).zip(renewals) {
            match answer {
                Renewed::Ok { wanted_by, changes, now } => {
                    if !self.holds(&shared, &renew.fence) {
                        continue;
                    }
                    shared.trust_until(sent + self.rhythm.ttl.saturating_sub(self.rhythm.margin));
                    shared.redis_clock(now, sent);
                    let wanted = wanted_by.is_some_and(|by| by != self.rhythm.incarnation);
                    shared.cast(ToPartition::Event(renew.fence.epoch, Event::Renewed { wanted, changes }));
                }
                Renewed::Refused(refusal) => {
                    let end = match refusal {
                        Refusal::Gap { .. } => End::Gap,
                        Refusal::Fenced { .. } | Refusal::Overtaken => End::Fenced,
                    };
                    shared.cast(ToPartition::Event(renew.fence.epoch, Event::Lost(end)));
                }
            }
        }
        true
    }

    /// A renewal may come back after its tenure ended; it must not bring trust to the next one.
    pub(crate) fn holds(&self, shared: &Shared, fence: &Fence) -> bool {
        let leases = lock(&self.leases);
        leases.get(&(shared.queue.clone(), shared.partition)).is_some_and(|lease| lease.fence == *fence)
    }

    /// Ends the tenures whose trust ran out while nothing was renewed.
    fn distrust(&self) {
        let now = Instant::now();
        for lease in lock(&self.leases).values() {
            if !lease.shared.trusted(now) {
                lease.shared.cast(ToPartition::Event(lease.fence.epoch, Event::Lost(End::Trust)));
            }
        }
    }

    async fn announce(&self, connection: &Connection, ttl: Duration) {
        let draining = self.draining.load(Ordering::SeqCst);
        for queue in &self.rhythm.queues {
            let Rhythm { incarnation, kinds, .. } = &self.rhythm;
            let announced = connection.announce(queue, incarnation, ttl, draining, kinds).await;
            let manager = lock(&self.manager).clone();
            if let (Ok(members), Some(manager)) = (announced, manager) {
                tell(&manager, queue, members);
            }
        }
    }
}

fn tell(manager: &ActorRef<ToManager>, queue: &QueueName, members: Vec<Member>) {
    // A manager that is gone is started again and told with the next beat.
    let _ = manager.cast(lease_manager::Message::Members(queue.clone(), members));
}
