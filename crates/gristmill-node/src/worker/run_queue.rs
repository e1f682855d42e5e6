//! Runs that wait for a worker, per partition, and the slots that bound how many handlers run at a time. Whose turn it is,
//! [`Turns`] says.
//!
//! While the process is closed for a lone run ([`Alone`](super::alone::Alone)), workers get nothing but that one.

use crate::partition::shared::Shared;
use crate::partition::tenure::{Ended, Ran, Run};
use crate::worker::Wake;
use crate::worker::stealable;
use crate::worker::turns::{Plenty, Turns};
use crate::worker::watched::Watched;
use gristmill_broker::Epoch;
use gristmill_job::{JobId, Place, QueueName, UnixMillis};
use ractor::ActorRef;
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

#[derive(Default)]
struct Seat {
    awake: AtomicBool,
    worker: Mutex<Option<ActorRef<Wake>>>,
    watched: Mutex<Arc<Watched>>,
}

/// What a participant starts when it has its turn.
enum Start {
    Run(Run),
    /// It claims with up to so many slots, and starts what it gets.
    Claim(usize),
}

#[derive(Default)]
pub(super) struct Line {
    pub(super) turns: Turns<Arc<Shared>>,
    /// Who would claim, and waits for more slots or for the end of a claim. Not among those with a turn.
    pub(super) deferred: VecDeque<Arc<Shared>>,
    /// Whose lone run may start.
    lent_to: Option<Arc<Shared>>,
    lone: Option<Run>,
    /// Runs that have their slot already.
    admitted: VecDeque<(Arc<Shared>, Run)>,
}

/// A run that holds its thread and was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hung {
    pub(crate) queue: QueueName,
    pub(crate) partition: u16,
    pub(crate) place: Place,
    pub(crate) epoch: Epoch,
    pub(crate) kind: String,
    pub(crate) job: JobId,
    /// Since when it holds its thread, on the Redis clock.
    pub(crate) since: UnixMillis,
    /// The batch it is handled with: its jobs hold one thread together.
    pub(crate) batch: Option<usize>,
}

pub(crate) struct RunQueue {
    pub(super) line: Mutex<Line>,
    /// Nothing starts but the lone run of whom it is lent to.
    closed: AtomicBool,
    pub(super) waiting: AtomicUsize,
    admitted: AtomicUsize,
    pub(super) slots: usize,
    pub(super) free_slots: AtomicUsize,
    /// Claims that hold slots, and were not answered.
    pub(super) claims: AtomicUsize,
    /// How many are deferred.
    pub(super) deferred: AtomicUsize,
    all_free: Notify,
    seats: Vec<Seat>,
    hung: Mutex<Vec<Hung>>,
}

impl RunQueue {
    pub(crate) fn new(slots: usize, workers: usize) -> Self {
        Self {
            line: Mutex::default(),
            closed: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            admitted: AtomicUsize::new(0),
            slots,
            free_slots: AtomicUsize::new(slots),
            claims: AtomicUsize::new(0),
            deferred: AtomicUsize::new(0),
            all_free: Notify::new(),
            seats: (0..workers.max(1)).map(|_| Seat::default()).collect(),
            hung: Mutex::default(),
        }
    }

    /// How many workers there are.
    pub(crate) fn workers(&self) -> usize {
        self.seats.len()
    }

    /// Slots that are free.
    pub(crate) fn free_slots(&self) -> usize {
        self.free_slots.load(Ordering::Relaxed)
    }

    /// Waits until no run is alive.
    pub(crate) async fn quiet(&self) {
        loop {
            let mut freed = pin!(self.all_free.notified());
            freed.as_mut().enable();
            if self.free_slots.load(Ordering::SeqCst) >= self.slots {
                return;
            }
            freed.await;
        }
    }

    fn give_back(&self) {
        if self.free_slots.fetch_add(1, Ordering::SeqCst) + 1 >= self.slots {
            self.all_free.notify_waiters();
        }
    }

    /// The worker of a seat, also after a restart; and by what the watchdog sees it.
    pub(crate) fn register(&self, index: usize, worker: ActorRef<Wake>) -> Arc<Watched> {
        let watched = Arc::new(Watched::default());
        if let Some(seat) = self.seats.get(index) {
            *lock(&seat.worker) = Some(worker);
            *lock(&seat.watched) = watched.clone();
            seat.awake.store(false, Ordering::SeqCst);
            self.wake_one();
        }
        watched
    }

    /// The first polls of the workers, seat by seat.
    pub(crate) fn seats(&self) -> Vec<Arc<Watched>> {
        self.seats.iter().map(|seat| lock(&seat.watched).clone()).collect()
    }

    /// A run was given up. Its slot is given back apart.
    pub(crate) fn gave_up(&self, hung: Hung) {
        lock(&self.hung).push(hung);
    }

    /// A run that had been given up has ended.
    pub(crate) fn came_back(&self, partition: &Shared, place: Place, epoch: Epoch) {
        lock(&self.hung).retain(|hung| {
            (&hung.queue, hung.partition, hung.place, hung.epoch)
                != (&partition.queue, partition.partition, place, epoch)
        });
    }

    /// Runs that were given up and have not ended.
    pub(crate) fn hung(&self) -> Vec<Hung> {
        lock(&self.hung).clone()
    }

    /// From now on nothing starts.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.lend_to(None);
    }

    /// A lone run of this partition may start, and nothing else.
    pub(crate) fn lend(&self, partition: &Arc<Shared>) {
        self.lend_to(Some(partition.clone()));
    }

    /// Everything may start again.
    pub(crate) fn open(&self) {
        self.lend_to(None);
        self.closed.store(false, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.wake_one();
        }
    }

    fn lend_to(&self, partition: Option<Arc<Shared>>) {
        let left = {
            let mut line = lock(&self.line);
            let before = std::mem::replace(&mut line.lent_to, partition);
            before.zip(line.lone.take())
        };
        if let Some((partition, run)) = left {
            not_started(&partition, run);
        }
    }

    /// A lone run starts only while the process is lent to its partition.
    fn push_lone(&self, partition: &Arc<Shared>, run: Run) {
        let left = {
            let mut line = lock(&self.line);
            match &line.lent_to {
                Some(holder) if Arc::ptr_eq(holder, partition) => line.lone.replace(run),
                _ => Some(run),
            }
        };
        match left {
            Some(run) => not_started(partition, run),
            None => self.wake_one(),
        }
    }

    /// Adds runs of a partition and wakes a worker.
    pub(crate) fn push(&self, partition: &Arc<Shared>, mut runs: Vec<Run>) {
        for lone in runs.extract_if(.., |run| run.alone) {
            self.push_lone(partition, lone);
        }
        for run in runs.extract_if(.., |run| run.slot.is_some()) {
            self.admitted.fetch_add(1, Ordering::SeqCst);
            lock(&self.line).admitted.push_back((partition.clone(), run));
            self.wake_one();
        }
        if runs.is_empty() {
            return;
        }
        self.waiting.fetch_add(runs.len(), Ordering::SeqCst);
        {
            let mut line = lock(&self.line);
            self.rejoin(&mut line, |of| Arc::ptr_eq(of, partition));
            let mut queued = lock(&partition.queued);
            if queued.is_empty() && *lock(&partition.asked) == 0 {
                line.turns.join(partition.share, partition.clone());
            }
            queued.extend(runs);
        }
        self.wake_one();
    }

    /// Takes back what has not started of a partition.
    pub(crate) fn withdraw(&self, partition: &Shared) -> Vec<Run> {
        let mut runs: Vec<Run> = lock(&partition.queued).drain(..).collect();
        self.waiting.fetch_sub(runs.len(), Ordering::SeqCst);
        let mut line = lock(&self.line);
        let mine = |of: &Arc<Shared>| std::ptr::eq(Arc::as_ptr(of), partition);
        let (left, theirs): (VecDeque<_>, VecDeque<_>) =
            line.admitted.drain(..).partition(|(of, _)| mine(of));
        line.admitted = theirs;
        self.admitted.fetch_sub(left.len(), Ordering::SeqCst);
        runs.extend(left.into_iter().map(|(_, run)| run));
        let lent = line.lent_to.as_ref().is_some_and(|holder| std::ptr::eq(Arc::as_ptr(holder), partition));
        if lent {
            runs.extend(line.lone.take());
        }
        runs
    }

    /// The next run, with a slot taken for it. One that has its slot comes first, also while the process is closed: that it
    /// ends is waited for.
    pub(crate) fn pull(self: &Arc<Self>) -> Option<(Arc<Shared>, Run)> {
        loop {
            match self.pull_one()? {
                (partition, Start::Run(run)) => return Some((partition, run)),
                (partition, Start::Claim(slots)) => self.grant(&partition, slots),
            }
        }
    }

    fn pull_one(&self) -> Option<(Arc<Shared>, Start)> {
        if self.admitted.load(Ordering::SeqCst) > 0
            && let Some((partition, run)) = lock(&self.line).admitted.pop_front()
        {
            if self.admitted.fetch_sub(1, Ordering::SeqCst) > 1 {
                self.wake_one();
            }
            return Some((partition, Start::Run(run)));
        }
        let free = |free: usize| free.checked_sub(1);
        let before = self.free_slots.fetch_update(Ordering::SeqCst, Ordering::SeqCst, free).ok()?;
        let plenty = if before > 1 { Plenty::Free } else { Plenty::Scarce(Instant::now()) };
        // Behind the slot: who closes looks at the slots after it, and one of both sees the other.
        let closed = self.closed.load(Ordering::SeqCst);
        let found = if closed { self.next_lone() } else { self.next(plenty) };
        match &found {
            Some(_) if closed => {}
            Some(_) if self.waiting.fetch_sub(1, Ordering::SeqCst) > 1 => self.wake_one(),
            Some(_) => {}
            None => self.give_back(),
        }
        found
    }

    fn next_lone(&self) -> Option<(Arc<Shared>, Start)> {
        let mut line = lock(&self.line);
        let run = Start::Run(line.lone.take()?);
        line.lent_to.clone().map(|partition| (partition, run))
    }

    fn next(&self, plenty: Plenty) -> Option<(Arc<Shared>, Start)> {
        let mut deferred = Vec::new();
        let mut line = lock(&self.line);
        let next = line.turns.next(plenty, |partition| {
            let mut queued = lock(&partition.queued);
            let mut asked = lock(&partition.asked);
            match queued.pop_front() {
                Some(run) => (Some(Start::Run(run)), !queued.is_empty() || *asked > 0),
                None if *asked == 0 => (None, false),
                None if self.defers(*asked) => {
                    deferred.push(partition.clone());
                    (None, false)
                }
                None => (Some(Start::Claim(std::mem::take(&mut *asked))), false),
            }
        });
        self.defer(&mut line, deferred);
        next
    }

    /// Gives a slot back.
    pub(crate) fn free_slot(&self) {
        self.give_back();
        self.reconsider();
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.wake_one();
        }
    }

    /// A worker found nothing to pull. True if it may sleep; false if something came meanwhile.
    pub(crate) fn sleep(&self, index: usize) -> bool {
        let Some(seat) = self.seats.get(index) else { return true };
        seat.awake.store(false, Ordering::SeqCst);
        let work = match self.closed.load(Ordering::SeqCst) {
            true => lock(&self.line).lone.is_some(),
            false => self.waiting.load(Ordering::SeqCst) > 0,
        };
        let work = work && self.free_slots.load(Ordering::SeqCst) > 0;
        let work = work || self.admitted.load(Ordering::SeqCst) > 0;
        !work || seat.awake.swap(true, Ordering::SeqCst)
    }

    pub(super) fn wake_one(&self) {
        for seat in &self.seats {
            if seat.awake.load(Ordering::SeqCst) || seat.awake.swap(true, Ordering::SeqCst) {
                continue;
            }
            match &*lock(&seat.worker) {
                // A worker that is being restarted registers again and finds the runs.
                Some(worker) if worker.cast(Wake).is_ok() => {
                    stealable::woke();
                    return;
                }
                _ => seat.awake.store(false, Ordering::SeqCst),
            }
        }
    }
}

/// What became of a run that nobody pulled.
fn not_started(partition: &Shared, run: Run) {
    let Run { epoch, lane, entry, turn, .. } = run;
    partition.tell(Ended { epoch, lane, entry, turn, ran: Ran::NotStarted, attempt: None });
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
