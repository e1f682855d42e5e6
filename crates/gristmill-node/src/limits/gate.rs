//! How many runs of a limited kind may ask at a time, and when again.
//!
//! The first asks alone. Who is let in lets twice as many ask next time; who is told that the kind is full, or that the next
//! token comes at T, closes the gate for a while. A slot that this node frees opens it at once. So a full kind costs Redis a
//! question or two in half a second from each node, however many of its jobs wait.

use super::permit::Permit;
use super::releaser::{Freed, ToReleaser};
use crate::worker::run_queue::lock;
use gristmill_broker::Epoch;
use gristmill_broker::admit::Admitted;
use gristmill_broker::limit::{Asked, SlotName};
use gristmill_job::{JobId, Limit, QueueName};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// Most that ask at a time.
const WIDEST: usize = 64;
/// How long a full kind is not asked for, the first time; doubled up to the longest, half of it at random.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);
/// Where nothing else wakes a lane that waits.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct State {
    /// Runs that may ask, or have asked and are not answered.
    asking: usize,
    width: usize,
    closed_until: Option<Instant>,
    /// Times in a row that it was full.
    full: u32,
    /// Partitions with lanes that wait, in turn.
    waiting: VecDeque<u16>,
}

/// Of one kind in one queue, at this node.
pub(crate) struct Gate {
    pub(crate) queue: QueueName,
    pub(crate) kind: &'static str,
    pub(crate) limit: Limit,
    state: Mutex<State>,
    /// The slots that this node holds, by the number under which they were asked for.
    held: Mutex<HashMap<u64, Weak<Permit>>>,
    /// Heads that wait, by partition.
    heads: Mutex<HashMap<u16, usize>>,
    freed: UnboundedSender<ToReleaser>,
    wake: OnceLock<Box<dyn Fn(u16) + Send + Sync>>,
}

/// Numbers of askings, of this process.
static ASKED: AtomicU64 = AtomicU64::new(1);

impl Gate {
    pub(crate) fn new(
        queue: QueueName,
        kind: &'static str,
        limit: Limit,
        freed: UnboundedSender<ToReleaser>,
    ) -> Self {
        let state = State { asking: 0, width: 1, closed_until: None, full: 0, waiting: VecDeque::new() };
        let (state, held, heads) = (Mutex::new(state), Mutex::default(), Mutex::default());
        Self { queue, kind, limit, state, held, heads, freed, wake: OnceLock::new() }
    }

    /// How a partition is told that a lane of it may ask; said once, before anything runs.
    pub(crate) fn wakes(&self, wake: impl Fn(u16) + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// How many lanes of a partition may ask now. None: when it is worth another look; until then it may be woken.
    pub(crate) fn room(&self, partition: u16, now: Instant) -> Result<usize, Instant> {
        let mut state = lock(&self.state);
        match (state.closed_until, state.width.saturating_sub(state.asking)) {
            (Some(until), _) if until > now => Err(state.until(partition, until)),
            (_, 0) => Err(state.until(partition, now + LOOK_AGAIN)),
            (_, room) => {
                // Others wait, too.
                let others = state.waiting.iter().filter(|waits| **waits != partition).count();
                Ok((room / (others + 1)).max(1))
            }
        }
    }

    /// Lets this job ask; or says when to look again.
    pub(crate) fn enter(
        self: &Arc<Self>,
        name: SlotName,
        epoch: Epoch,
        job: &JobId,
        now: Instant,
    ) -> Result<Arc<Permit>, Instant> {
        self.room(name.partition, now)?;
        lock(&self.state).asking += 1;
        let asked = Asked { epoch, number: ASKED.fetch_add(1, Ordering::Relaxed) };
        Ok(Arc::new(Permit::new(self.clone(), name, asked, job.clone())))
    }

    /// What Redis said to one that asked; `None` where no answer came. `random` in `[0, 1)`.
    pub(super) fn answered(&self, said: Option<Admitted>, now: Instant, random: f64) {
        let mut state = lock(&self.state);
        state.asking = state.asking.saturating_sub(1);
        match said {
            Some(Admitted::Slot | Admitted::Passed) => {
                state.width = (state.width * 2).min(WIDEST);
                state.full = 0;
            }
            // Many asked together, and were told the same.
            Some(Admitted::Full(_)) | None if state.closed_until.is_some_and(|until| until > now) => {}
            Some(Admitted::Full(_)) | None => {
                let pause = (FIRST_PAUSE * (1 << state.full.min(10))).min(LONGEST_PAUSE);
                state.full = state.full.saturating_add(1);
                state.width = 1;
                let until = now + pause.mul_f64(0.5 + random / 2.0);
                state.closed_until = Some(until);
            }
            Some(Admitted::Until(wait)) => {
                state.width = 1;
                state.closed_until = state.closed_until.max(Some(now + wait));
            }
            Some(Admitted::KeyUntil(_) | Admitted::Fenced) => {}
        }
        self.wake_some(state, now);
    }

    /// One that might have asked does not.
    pub(super) fn left(&self, now: Instant) {
        let mut state = lock(&self.state);
        state.asking = state.asking.saturating_sub(1);
        self.wake_some(state, now);
    }

    /// So many slots are free that were not.
    pub(crate) fn opened(&self, slots: usize, now: Instant) {
        let mut state = lock(&self.state);
        if state.full > 0 {
            (state.full, state.closed_until) = (0, None);
        }
        state.width = state.width.max(slots.min(WIDEST));
        self.wake_some(state, now);
    }

    /// Wakes as many partitions as lanes may ask.
    fn wake_some(&self, mut state: std::sync::MutexGuard<'_, State>, now: Instant) {
        if state.closed_until.is_some_and(|until| until > now) {
            return;
        }
        let room = state.width.saturating_sub(state.asking).min(state.waiting.len());
        let woken: Vec<u16> = state.waiting.drain(..room).collect();
        drop(state);
        if let Some(wake) = self.wake.get() {
            woken.into_iter().for_each(wake);
        }
    }

    pub(super) fn hold(&self, permit: &Arc<Permit>) {
        lock(&self.held).insert(permit.asked.number, Arc::downgrade(permit));
    }

    /// The slot of one that is dropped is given back by the releaser.
    pub(super) fn release(self: &Arc<Self>, name: SlotName, asked: Asked) {
        lock(&self.held).remove(&asked.number);
        // Where the releaser is gone, the node is: the slot lapses.
        let _ = self.freed.send(ToReleaser::Freed(Freed { gate: self.clone(), name, asked }));
    }

    /// The slots that this node holds, or may hold.
    pub(crate) fn held(&self) -> Vec<Arc<Permit>> {
        // Not under the lock: the last of a permit may be dropped here, and takes it.
        let held: Vec<Weak<Permit>> = lock(&self.held).values().cloned().collect();
        held.iter().filter_map(Weak::upgrade).collect()
    }

    /// So many heads of a partition wait for this limit, for whoever counts them.
    pub(crate) fn waits(&self, partition: u16, heads: usize) {
        let mut waiting = lock(&self.heads);
        match heads {
            0 => drop(waiting.remove(&partition)),
            _ => {
                waiting.insert(partition, heads);
                drop(waiting);
                lock(&self.state).wait(partition);
            }
        }
    }

    /// How many heads of all partitions wait.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.heads).values().sum()
    }

    /// How many slots this node holds.
    pub(crate) fn holds(&self) -> usize {
        lock(&self.held).len()
    }
}

impl State {
    fn wait(&mut self, partition: u16) {
        if !self.waiting.contains(&partition) {
            self.waiting.push_back(partition);
        }
    }

    fn until(&mut self, partition: u16, until: Instant) -> Instant {
        self.wait(partition);
        until
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("queue", &self.queue.as_str())
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
