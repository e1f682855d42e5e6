//! The watchdog over handlers that hold their thread: they cannot be stopped, so they are given up. It looks from the
//! heartbeat's own thread.
//!
//! A worker that is held is replaced first. A run that is given up: its partition is told, its slot is free again, `doctor`
//! names it, and what it comes to in the end is refused. The runtime has [`SPARE_THREADS`] for such runs. When they are used up, or nothing moves
//! any more, the node ends: its leases are renewed no more, so that others go on.

use crate::counters::Counters;
use crate::partition::shared::{Shared, micros};
use crate::partition::tenure::{Ended, Ran};
use crate::supervisor::Message as ToSupervisor;
use crate::worker::run_queue::{Hung, RunQueue, lock};
use crate::worker::watched::{Limits, Live, Watched};
use gristmill_handler::{Answer, Polls};
use gristmill_job::{ErrorClass, Failure, UnixMillis};
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::events::job::HandlerGivenUp;
use gristmill_telemetry::events::node::NodeEnds;
use gristmill_telemetry::pulse::Pulse;
use ractor::ActorRef;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc;

/// Threads that the runtime of a node should have beside one per core: as many handlers may hold theirs.
pub const SPARE_THREADS: usize = 8;
/// How long a handler may hold its worker before another takes its seat.
const WORKER_HELD: Duration = Duration::from_secs(1);
/// How often it looks.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Between two looks that are further apart the process was suspended, and so were its handlers.
const SUSPENDED: Duration = Duration::from_secs(2);

pub(crate) struct Watch {
    runs: Arc<RunQueue>,
    partitions: Vec<Arc<Shared>>,
    blocked_after: Duration,
    supervisor: Mutex<Option<ActorRef<ToSupervisor>>>,
    /// When the supervisor moved last, in [`micros`].
    moved_us: AtomicU64,
    counters: Arc<Counters>,
    failed: mpsc::UnboundedSender<String>,
    looks: Mutex<Looks>,
    telemetry: Telemetry,
    pulse: Pulse,
}

struct Looks {
    last: Instant,
    awake_since: Instant,
    /// What workers poll that have been replaced.
    replaced: Vec<Arc<Watched>>,
}

impl Watch {
    pub(crate) fn new(
        runs: Arc<RunQueue>,
        partitions: Vec<Arc<Shared>>,
        blocked_after: Duration,
        counters: Arc<Counters>,
        failed: mpsc::UnboundedSender<String>,
        telemetry: Telemetry,
    ) -> Self {
        let now = Instant::now();
        Self {
            runs,
            partitions,
            blocked_after,
            supervisor: Mutex::default(),
            moved_us: AtomicU64::new(micros(now)),
            counters,
            failed,
            pulse: telemetry.pulse("supervisor"),
            telemetry,
            looks: Mutex::new(Looks { last: now, awake_since: now, replaced: Vec::new() }),
        }
    }

    /// From now on workers are replaced by it, and it must move.
    pub(crate) fn supervise(&self, supervisor: ActorRef<ToSupervisor>) {
        self.moved(Instant::now());
        *lock(&self.supervisor) = Some(supervisor);
    }

    /// The supervisor moves.
    pub(crate) fn moved(&self, now: Instant) {
        self.moved_us.store(micros(now), Ordering::SeqCst);
        self.pulse.tick(now);
    }

    /// Runs that were given up and have not ended.
    pub(crate) fn hung(&self) -> Vec<Hung> {
        self.runs.hung()
    }

    /// Gives up what hangs. False if the node cannot go on; it has been told.
    pub(crate) fn look(&self, now: Instant) -> bool {
        let awake_since = {
            let mut looks = lock(&self.looks);
            if now.duration_since(looks.last) > SUSPENDED {
                looks.awake_since = now;
            }
            looks.last = now;
            looks.awake_since
        };
        let limits = Limits { now, awake_since, blocked_after: self.blocked_after };
        self.replace_workers(&limits);
        for watched in self.partitions.iter().flat_map(|shared| shared.watched()) {
            self.judge(&watched, &limits);
        }
        // Also the kick that lets another thread look after timers and connections: the one that did may be held.
        self.tell_supervisor(ToSupervisor::Tick);
        match self.end(&limits) {
            None => true,
            Some(why) => {
                self.telemetry.tell(&NodeEnds { why: &why });
                let _ = self.failed.send(why);
                false
            }
        }
    }

    /// A worker whose first poll takes long is replaced long before its run is given up: so a handler that computes for
    /// seconds costs others nothing but its slot.
    fn replace_workers(&self, limits: &Limits) {
        let mut looks = lock(&self.looks);
        looks.replaced.retain(|watched| watched.held(limits).is_some());
        for (seat, watched) in self.runs.seats().into_iter().enumerate() {
            let long = watched.held(limits).is_some_and(|held| held >= WORKER_HELD);
            if long && looks.replaced.len() < SPARE_THREADS && watched.replace() {
                self.tell_supervisor(ToSupervisor::Replace(seat));
                looks.replaced.push(watched);
            } else {
                self.judge(&watched, limits);
            }
        }
        for watched in &looks.replaced {
            self.judge(watched, limits);
        }
    }

    fn end(&self, limits: &Limits) -> Option<String> {
        let hung = threads(&self.runs.hung());
        if hung > SPARE_THREADS {
            return Some(format!(
                "{hung} handlers hold their threads and cannot be stopped, and there are {SPARE_THREADS} spare ones: \
                 restart the node, and move what blocks into `tokio::task::spawn_blocking`"
            ));
        }
        let supervised = lock(&self.supervisor).is_some();
        let moved_us = self.moved_us.load(Ordering::SeqCst).max(micros(limits.awake_since));
        let still = Duration::from_micros(micros(limits.now).saturating_sub(moved_us));
        (supervised && still > self.blocked_after + LOOK_EVERY).then(|| {
            format!(
                "nothing has moved for {} s: handlers hold every thread of the runtime. Restart the node, and move what \
                 blocks into `tokio::task::spawn_blocking`",
                still.as_secs()
            )
        })
    }

    fn judge(&self, watched: &Watched, limits: &Limits) -> bool {
        watched.give_up(limits, |live, held| self.give_up(live, held, limits.now))
    }

    fn give_up(&self, live: &Live, held: Duration, now: Instant) {
        let Live { partition, run, facts, .. } = live;
        let kind = facts.kind.unwrap_or("-");
        let (queue, number, seconds) = (partition.queue.as_str(), partition.partition, held.as_secs());
        self.telemetry.tell(&HandlerGivenUp {
            queue,
            partition: u64::from(number),
            job: &run.entry.id,
            place: &run.entry.place,
            attempt: u64::from(run.attempt),
            trace_id: &live.began.map_or_else(|| "-".into(), |began| began.context.trace_id()),
            kind,
            seconds,
        });
        let words = format!(
            "the handler of kind {kind:?} held its thread for {seconds} s without an await and could not be stopped"
        );
        let wall = UnixMillis::from_system(SystemTime::now());
        let clock = partition.redis_now(now).unwrap_or(wall);
        self.counters.hung();
        self.runs.gave_up(Hung {
            queue: partition.queue.clone(),
            partition: number,
            place: run.entry.place,
            epoch: run.epoch,
            kind: kind.to_owned(),
            job: run.entry.id.clone(),
            since: UnixMillis(clock.0.saturating_sub(u64::try_from(held.as_millis()).unwrap_or(u64::MAX))),
            batch: live.cancellation.elsewhere().map(Polls::number),
        });
        let failure = Failure::new(ErrorClass::Timeout, vec![words.clone()]);
        partition.tell(Ended {
            epoch: run.epoch,
            lane: run.lane,
            entry: run.entry.clone(),
            turn: run.turn,
            ran: Ran::Hung(words, facts.clone()),
            attempt: live.attempt(Some(&Answer::Failed(failure))),
        });
        self.runs.free_slot();
    }

    fn tell_supervisor(&self, message: ToSupervisor) {
        if let Some(supervisor) = &*lock(&self.supervisor) {
            // One that is gone ends the node by itself.
            let _ = supervisor.cast(message);
        }
    }
}

/// How many threads they hold.
fn threads(hung: &[Hung]) -> usize {
    let batches: BTreeSet<usize> = hung.iter().filter_map(|hung| hung.batch).collect();
    hung.iter().filter(|hung| hung.batch.is_none()).count() + batches.len()
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
