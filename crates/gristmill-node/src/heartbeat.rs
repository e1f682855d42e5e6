//! Renews every lease, on a thread and runtime of its own: a handler that hogs the node's runtime does not lose it its
//! partitions. Announces the node to the others in the same beat. `prolonging`: what is prolonged beside leases.

mod prolonging;

use crate::counters::Counters;
use crate::lease_manager::{self, Message as ToManager};
use crate::limits::gate::Gate;
use crate::partition::Message as ToPartition;
use crate::partition::pauses::Board;
use crate::partition::shared::Shared;
use crate::partition::tenure::{End, Event};
use crate::worker::run_queue::{Hung, lock};
use crate::worker::watch::{LOOK_EVERY, Watch};
use gristmill_broker::announce::Member;
use gristmill_broker::hung::HungRun;
use gristmill_broker::lease::renew::{Renew, Renewed};
use gristmill_broker::pause::Pause;
use gristmill_broker::{Connection, Fence, Incarnation, Link, RedisConfig, Refusal};
use gristmill_job::QueueName;
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::events::node::QueuePauses;
use ractor::ActorRef;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};
use tokio::time::MissedTickBehavior;

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
    /// What is paused, by queue.
    pauses: HashMap<QueueName, Arc<Board>>,
    draining: AtomicBool,
    /// Beat at once: something the others should know has changed.
    soon: Notify,
    stop: Notify,
    manager: Mutex<Option<ActorRef<ToManager>>>,
    counters: Arc<Counters>,
    telemetry: Telemetry,
    watch: OnceLock<Arc<Watch>>,
    /// Partitions without an order, whose claims are extended.
    unordered: OnceLock<Vec<Arc<Shared>>>,
    gates: OnceLock<Vec<Arc<Gate>>>,
    /// The hung runs that Redis may know of.
    named: Mutex<Vec<(QueueName, HungRun)>>,
    /// The node cannot go on: nothing is renewed any more.
    halted: AtomicBool,
}

impl Heartbeat {
    pub(crate) fn new(rhythm: Rhythm, counters: Arc<Counters>, telemetry: Telemetry) -> Self {
        let pauses = rhythm.queues.iter().map(|queue| (queue.clone(), Arc::default())).collect();
        Self {
            rhythm,
            pauses,
            leases: Mutex::default(),
            draining: AtomicBool::new(false),
            soon: Notify::new(),
            stop: Notify::new(),
            manager: Mutex::default(),
            counters,
            telemetry,
            watch: OnceLock::new(),
            unordered: OnceLock::new(),
            gates: OnceLock::new(),
            named: Mutex::default(),
            halted: AtomicBool::new(false),
        }
    }

    /// Lets this watchdog look from the heartbeat's thread; said before [`Heartbeat::start`].
    pub(crate) fn keep_watch(&self, watch: Arc<Watch>) {
        let _ = self.watch.set(watch);
    }

    /// Extends the claims of these partitions, which have no lease; said before [`Heartbeat::start`].
    pub(crate) fn extend_claims(&self, unordered: Vec<Arc<Shared>>) {
        let _ = self.unordered.set(unordered);
    }

    /// Starts the thread. The receiver is answered when it has left.
    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<oneshot::Receiver<()>> {
        let (left, leaving) = oneshot::channel();
        let heartbeat = self.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("gristmill-heartbeat".into()).spawn(move || {
            runtime.block_on(async {
                // An answer that stays away must leave time for another try before trust runs out.
                let mut redis = heartbeat.rhythm.redis.clone();
                redis.response_timeout = redis.response_timeout.min(heartbeat.rhythm.ttl / 4);
                let link = Link::start(redis, "heartbeat");
                tokio::select! {
                    () = heartbeat.beat(&link) => {}
                    () = heartbeat.look() => {}
                    () = heartbeat.extend(&link) => {}
                }
            });
            let _ = left.send(());
        })?;
        Ok(leaving)
    }

    pub(crate) fn register_manager(&self, manager: ActorRef<ToManager>) {
        *lock(&self.manager) = Some(manager);
        self.soon.notify_one();
    }

    /// The pauses of a queue that is served.
    pub(crate) fn pauses(&self, queue: &QueueName) -> Option<&Arc<Board>> {
        self.pauses.get(queue)
    }

    /// What is paused was heard; the partitions are told where it is otherwise than before.
    pub(crate) fn hear_pauses(&self, queue: &QueueName, asked: Instant, pauses: &[Pause]) {
        let Some(board) = self.pauses(queue) else { return };
        if board.hear(asked, pauses) {
            for lease in lock(&self.leases).values().filter(|lease| lease.shared.queue == *queue) {
                lease.shared.cast(ToPartition::Pauses(board.now()));
            }
            let unordered = self.unordered.get().into_iter().flatten();
            for shared in unordered.filter(|shared| shared.queue == *queue) {
                shared.cast(ToPartition::Pauses(board.now()));
            }
            let targets = pauses.iter().map(|pause| pause.target.to_string()).collect::<Vec<_>>().join(", ");
            self.telemetry.tell(&QueuePauses {
                queue: queue.as_str(),
                pauses: pauses.len() as u64,
                targets: &targets,
            });
        }
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

    /// How long a grant is trusted, from when it was asked for.
    pub(crate) fn trust(&self) -> Duration {
        self.rhythm.ttl.saturating_sub(self.rhythm.margin)
    }

    /// Keeps the slots that runs hold behind these gates; said before [`Heartbeat::start`].
    pub(crate) fn keep_slots(&self, gates: Vec<Arc<Gate>>) {
        let _ = self.gates.set(gates);
    }

    /// Whether this node leaves.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Leaves the registry and ends the thread.
    pub(crate) fn stop(&self) {
        self.stop.notify_one();
    }

    /// Never ends.
    async fn look(&self) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let Some(watch) = self.watch.get() else { return std::future::pending().await };
            if !watch.look(Instant::now()) {
                self.halted.store(true, Ordering::SeqCst);
                return std::future::pending().await;
            }
        }
    }

    async fn beat(&self, link: &Link) {
        let mut due = tokio::time::Instant::now();
        let (metrics, mut worst) = (self.telemetry.metrics(), Duration::ZERO);
        loop {
            let late = due.elapsed();
            self.counters.heartbeat_late(u64::try_from(late.as_millis()).unwrap_or(u64::MAX));
            worst = worst.max(late);
            metrics.heartbeat_late_seconds.one().set(worst.as_secs_f64());
            let halted = self.halted.load(Ordering::SeqCst);
            if let Some(connection) = link.current().filter(|_| !halted) {
                // A beat that takes longer than its interval is given up; the next one tells.
                let limit = self.rhythm.ttl.saturating_sub(self.rhythm.margin);
                let renewed = tokio::time::timeout(limit, self.renew(&connection)).await;
                // Where nothing is answered, the next renewal comes before everything else.
                if renewed == Ok(true) {
                    let _ = tokio::time::timeout(limit, self.keep(&connection)).await;
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
        let metrics = self.telemetry.metrics();
        let renewed = answers.iter().filter(|answer| matches!(answer, Renewed::Ok { .. })).count() as u64;
        metrics.lease_renewals_total.one().add(renewed);
        let refused = answers.len() as u64 - renewed;
        if refused > 0 {
            metrics.fencing_rejections_total.with(&["renew"]).add(refused);
        }
        for ((answer, shared), renew) in answers.into_iter().zip(shared).zip(renewals) {
            match answer {
                Renewed::Ok { wanted_by, changes, now, due } => {
                    if !self.holds(&shared, &renew.fence) {
                        continue;
                    }
                    shared.trust_until(sent + self.rhythm.ttl.saturating_sub(self.rhythm.margin));
                    shared.redis_clock(now, sent);
                    let wanted = wanted_by.is_some_and(|by| by != self.rhythm.incarnation);
                    shared
                        .cast(ToPartition::Event(renew.fence.epoch, Event::Renewed { wanted, changes, due }));
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

    /// Names the runs that hold their threads; what cannot be written now is written with the next beat. None with `ttl`
    /// zero, to leave.
    async fn name_hung(&self, connection: &Connection, ttl: Duration) {
        let hung = self.watch.get().map(|watch| watch.hung()).unwrap_or_default();
        if hung.is_empty() && lock(&self.named).is_empty() {
            return;
        }
        for queue in &self.rhythm.queues {
            let of_queue = hung.iter().filter(|hung| hung.queue == *queue && !ttl.is_zero());
            let hung: Vec<HungRun> = of_queue.map(|hung| shown(hung, &self.rhythm.incarnation)).collect();
            let of_queue = |(named, _): &&(QueueName, HungRun)| named == queue;
            let before: Vec<HungRun> =
                lock(&self.named).iter().filter(of_queue).map(|(_, run)| run.clone()).collect();
            let ended: Vec<HungRun> = before.iter().filter(|run| !hung.contains(run)).cloned().collect();
            if hung.is_empty() && ended.is_empty() {
                continue;
            }
            // Before the call: it may be executed although its answer is lost.
            let new = hung.iter().filter(|run| !before.contains(run));
            lock(&self.named).extend(new.map(|run| (queue.clone(), run.clone())));
            if connection.name_hung(queue, &hung, &ended, self.rhythm.ttl * 2).await.is_ok() {
                lock(&self.named).retain(|(of, run)| of != queue || !ended.contains(run));
            }
        }
    }

    async fn announce(&self, connection: &Connection, ttl: Duration) {
        self.name_hung(connection, ttl).await;
        let draining = self.draining.load(Ordering::SeqCst);
        for queue in &self.rhythm.queues {
            let Rhythm { incarnation, kinds, .. } = &self.rhythm;
            let asked = Instant::now();
            let announced = connection.announce_and_hear(queue, incarnation, ttl, draining, kinds).await;
            let manager = lock(&self.manager).clone();
            let Ok((members, pauses)) = announced else { continue };
            if let Some(manager) = manager {
                tell(&manager, queue, members);
            }
            if let Some(pauses) = pauses {
                self.hear_pauses(queue, asked, &pauses);
            }
        }
    }
}

/// What people are shown of a run that was given up.
fn shown(hung: &Hung, incarnation: &Incarnation) -> HungRun {
    HungRun {
        incarnation: incarnation.clone(),
        partition: hung.partition,
        place: hung.place,
        kind: hung.kind.clone(),
        job: hung.job.clone(),
        since: hung.since,
    }
}

fn tell(manager: &ActorRef<ToManager>, queue: &QueueName, members: Vec<Member>) {
    // A manager that is gone is started again and told with the next beat.
    let _ = manager.cast(lease_manager::Message::Members(queue.clone(), members));
}
