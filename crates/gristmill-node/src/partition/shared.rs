//! What a partition's actor shares with workers, heartbeat and doorbell. It outlives tenures and restarts of the actor.

use crate::competing::claims::Claims;
use crate::partition::Message;
use crate::partition::tenure::{Ended, Run};
use crate::partition::told::StandsAt;
use crate::worker::run_queue::lock;
use crate::worker::stealable;
use crate::worker::turns::Share;
use crate::worker::watched::Watched;
use gristmill_broker::{Epoch, PartitionKeys};
use gristmill_handler::Cancellation;
use gristmill_job::{Place, QueueName, UnixMillis};
use ractor::ActorRef;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// As good as never.
const NO_HARD_STOP: Duration = Duration::from_secs(365 * 24 * 3600);

/// A run that went on as a task.
struct Running {
    cancellation: Cancellation,
    abort: Option<AbortHandle>,
    watched: Arc<Watched>,
    /// Its kind may not simply be repeated, so that it is stopped only where nothing else helps.
    spared: bool,
}

pub(crate) struct Shared {
    pub(crate) queue: QueueName,
    pub(crate) partition: u16,
    pub(crate) keys: Arc<PartitionKeys>,
    /// How many jobs it may hold, 0 for any number: written again where a flush took the queue.
    pub(crate) length_limit: u64,
    /// How long after it became ready a job may start that says nothing of that, nor its kind.
    pub(crate) expires_in: Option<Duration>,
    /// How long ids absorb their repeats after the verdict.
    pub(crate) seen_window_ms: u64,
    /// Which of the node's queues it belongs to, and that one's weight at the slots.
    pub(crate) share: Share,
    /// Runs that wait for a worker. Locked after the run queue's line, never before.
    pub(crate) queued: Mutex<VecDeque<Run>>,
    /// So many slots are asked for, to claim with. Locked as `queued` is.
    pub(crate) asked: Mutex<usize>,
    /// Where the ordering is none.
    pub(crate) claims: Option<Claims>,
    /// The epoch whose runs may start; 0 for none.
    gate: AtomicU64,
    /// Nothing more starts but what was acknowledged.
    leaving: AtomicBool,
    trusted_until_us: AtomicU64,
    /// The Redis clock when this process's monotonic clock stood at 0, in µs; 0 before the first renewal. For ages, which
    /// decide nothing that must be exact.
    redis_origin_us: AtomicU64,
    /// The highest number of this tenure that was answered.
    pub(crate) answered: AtomicU64,
    ended: Mutex<Vec<Ended>>,
    told: AtomicBool,
    running: Mutex<HashMap<(Place, Epoch), Running>>,
    alive: AtomicUsize,
    pub(crate) stands: StandsAt,
    actor: Mutex<Option<ActorRef<Message>>>,
}

/// Microseconds of this process's monotonic clock.
pub(crate) fn micros(instant: Instant) -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let origin = *ORIGIN.get_or_init(Instant::now);
    // An instant before the origin is as good as the origin.
    u64::try_from(instant.saturating_duration_since(origin).as_micros()).unwrap_or(u64::MAX)
}

impl Shared {
    pub(crate) fn new(queue: QueueName, partition: u16, keys: PartitionKeys) -> Self {
        Self {
            queue,
            partition,
            keys: Arc::new(keys),
            length_limit: 0,
            expires_in: None,
            seen_window_ms: 60_000,
            share: Share::default(),
            queued: Mutex::default(),
            asked: Mutex::default(),
            claims: None,
            gate: AtomicU64::new(0),
            leaving: AtomicBool::new(false),
            trusted_until_us: AtomicU64::new(0),
            redis_origin_us: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            ended: Mutex::default(),
            told: AtomicBool::new(false),
            running: Mutex::default(),
            alive: AtomicUsize::new(0),
            stands: StandsAt::default(),
            actor: Mutex::default(),
        }
    }

    /// As a partition without an order.
    pub(crate) fn unordered(self, visibility_timeout: Duration) -> Self {
        Self { claims: Some(Claims::new(visibility_timeout)), ..self }
    }

    /// As a partition of this queue of the node.
    pub(crate) fn sharing(self, share: Share) -> Self {
        Self { share, ..self }
    }

    /// With another longest time from ready to start.
    pub(crate) fn expiring(self, expires_in: Option<Duration>) -> Self {
        Self { expires_in, ..self }
    }

    /// With ids that absorb their repeats for so long.
    pub(crate) fn remembering(self, seen_window: Duration) -> Self {
        Self { seen_window_ms: u64::try_from(seen_window.as_millis()).unwrap_or(u64::MAX), ..self }
    }

    /// With a limit of jobs.
    pub(crate) fn limited_to(self, length_limit: u64) -> Self {
        Self { length_limit, ..self }
    }

    pub(crate) fn register(&self, actor: ActorRef<Message>) {
        *lock(&self.actor) = Some(actor);
    }

    /// Sends a message to the partition's actor, whichever it is now.
    pub(crate) fn cast(&self, message: Message) {
        if let Some(actor) = &*lock(&self.actor) {
            // An actor that is gone is started again and rebuilds everything from Redis.
            let _ = actor.cast(message);
            stealable::woke();
        }
    }

    /// Opens the gate for runs of this epoch, or closes it.
    pub(crate) fn open_gate(&self, epoch: Option<Epoch>) {
        self.gate.store(epoch.map_or(0, |epoch| epoch.0), Ordering::SeqCst);
        self.leaving.store(false, Ordering::SeqCst);
    }

    /// From now on nothing starts but what was acknowledged, until the gate is opened again.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
    }

    /// Whether runs of any epoch may start.
    pub(crate) fn is_served(&self) -> bool {
        self.gate.load(Ordering::SeqCst) != 0 && !self.leaving.load(Ordering::SeqCst)
    }

    /// Trusts the lease until then.
    pub(crate) fn trust_until(&self, until: Instant) {
        self.trusted_until_us.store(micros(until), Ordering::SeqCst);
    }

    /// The Redis clock showed `now` a moment after `sent`.
    pub(crate) fn redis_clock(&self, now: UnixMillis, sent: Instant) {
        self.redis_origin_us.store((now.0 * 1000).saturating_sub(micros(sent)), Ordering::SeqCst);
    }

    /// What the Redis clock shows about now; `None` before the first renewal.
    pub(crate) fn redis_now(&self, now: Instant) -> Option<UnixMillis> {
        let origin = self.redis_origin_us.load(Ordering::SeqCst);
        (origin > 0).then(|| UnixMillis((origin + micros(now)) / 1000))
    }

    /// Whether the lease is trusted at `now`.
    pub(crate) fn trusted(&self, now: Instant) -> bool {
        micros(now) < self.trusted_until_us.load(Ordering::SeqCst)
    }

    /// Whether this run may start at `now`.
    pub(crate) fn may_start(&self, run: &Run, now: Instant) -> bool {
        let left = self.leaving.load(Ordering::SeqCst) && !run.acknowledged;
        let trusted = match &self.claims {
            None => self.trusted(now),
            Some(claims) => run.acknowledged || claims.trusts(run.entry.place, now),
        };
        self.gate.load(Ordering::SeqCst) == run.epoch.0 && !left && trusted
    }

    /// Whether runs wait for a slot.
    pub(crate) fn waits(&self) -> bool {
        !lock(&self.queued).is_empty()
    }

    /// Tells the actor how a run ended; it is woken once for many.
    pub(crate) fn tell(&self, ended: Ended) {
        lock(&self.ended).push(ended);
        if !self.told.swap(true, Ordering::SeqCst) {
            self.cast(Message::Ended);
        }
    }

    /// What was told since the last look.
    pub(crate) fn take_ended(&self) -> Vec<Ended> {
        self.told.store(false, Ordering::SeqCst);
        std::mem::take(&mut *lock(&self.ended))
    }

    /// A run goes on as a task; `spared` if its kind may not simply be repeated.
    pub(crate) fn running(
        &self,
        place: Place,
        epoch: Epoch,
        cancellation: Cancellation,
        watched: Arc<Watched>,
        spared: bool,
    ) {
        let running = Running { cancellation, abort: None, watched, spared };
        lock(&self.running).insert((place, epoch), running);
    }

    /// The task of that run, unless it has ended already.
    pub(crate) fn stoppable(&self, place: Place, epoch: Epoch, abort: AbortHandle) {
        if let Some(running) = lock(&self.running).get_mut(&(place, epoch)) {
            running.abort = Some(abort);
        }
    }

    /// A run that went on as a task has ended.
    pub(crate) fn finished(&self, place: Place, epoch: Epoch) {
        lock(&self.running).remove(&(place, epoch));
    }

    /// The runs that went on as tasks, as the watchdog sees them.
    pub(crate) fn watched(&self) -> Vec<Arc<Watched>> {
        lock(&self.running).values().map(|running| running.watched.clone()).collect()
    }

    pub(crate) fn began_one(&self) {
        self.alive.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn ended_one(&self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }

    /// Runs that have begun and not ended, of whatever tenure.
    pub(crate) fn alive(&self) -> usize {
        self.alive.load(Ordering::SeqCst)
    }

    /// Asks every run to finish tidily before `hard_stop_at`.
    pub(crate) fn soft_cancel(&self, hard_stop_at: Instant) {
        for running in lock(&self.running).values() {
            running.cancellation.soft(hard_stop_at);
        }
    }

    /// Asks the run at this place to finish tidily, and at once: its result is refused.
    pub(crate) fn soft_cancel_at(&self, place: Place, hard_stop_at: Instant) {
        for ((at, _), running) in &*lock(&self.running) {
            if *at == place {
                running.cancellation.soft(hard_stop_at);
            }
        }
    }

    /// Asks the run of the job at this place to come to a tidy end; it has all the time its kind allows.
    pub(crate) fn cancel(&self, place: Place) {
        for (_, running) in lock(&self.running).iter().filter(|((of, _), _)| *of == place) {
            running.cancellation.soft(Instant::now() + NO_HARD_STOP);
        }
    }

    /// Stops every run at its next await.
    pub(crate) fn hard_stop(&self) {
        self.stop_where(|_| true);
    }

    /// Stops every run at its next await whose kind may be repeated.
    pub(crate) fn stop_repeatable(&self) {
        self.stop_where(|running| !running.spared);
    }

    fn stop_where(&self, stopped: impl Fn(&Running) -> bool) {
        // Not under the lock: an aborted task may be dropped here and now, and its guard takes the lock.
        let running = lock(&self.running);
        let stops: Vec<(Cancellation, Option<AbortHandle>)> = running
            .values()
            .filter(|r| stopped(r))
            .map(|r| (r.cancellation.clone(), r.abort.clone()))
            .collect();
        drop(running);
        for (cancellation, abort) in stops {
            cancellation.hard();
            if let Some(abort) = abort {
                abort.abort();
            }
        }
    }
}
