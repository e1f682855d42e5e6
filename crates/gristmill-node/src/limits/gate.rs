//! How many runs of a limited kind may ask at a time, and when again.
//!
//! The first asks alone. Who is let in lets twice as many ask next time; who is told that the kind is full, or that the next
//! token comes at T, closes the gate for a while. A slot that this node frees opens it at once. So a full kind costs Redis a
//! question or two in half a second from each node, however many of its jobs wait.

use super::permit::Permit;
use super::releaser::{Freed, ToReleaser};
use super::turns::Turns;
use crate::worker::run_queue::lock;
use gristmill_broker::Epoch;
use gristmill_broker::admit::Admitted;
use gristmill_broker::limit::{Asked, SlotName};
use gristmill_job::{JobId, Key, Limit, QueueName, RatePer};
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
/// Shortest time after which a job that is put back comes again.
const COMES_AGAIN: Duration = Duration::from_millis(250);
/// Between two that come again, where nothing is known.
const APART: Duration = Duration::from_millis(10);
/// What is put back comes again within so long, …
const SOON_ENOUGH: Duration = Duration::from_secs(2);
/// … or within so long for each: no node puts back more of a kind than two hundred in a second.
const WRITES_APART: Duration = Duration::from_millis(5);
/// The same for a key, whose tokens come when they come.
const OF_KEY: Duration = Duration::from_secs(60);
/// Keys of which it is known what waits.
const KEYS: usize = 4096;

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
    /// Since when none was let in that asked.
    refused_since: Option<Instant>,
    /// How long it took lately until one was let in, once one had been refused.
    let_in_after: Option<Duration>,
    /// Those that were put back; of a rate per key by key.
    put_back: Turns,
    of_keys: HashMap<Key, Turns>,
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
        let state = State {
            asking: 0,
            width: 1,
            closed_until: None,
            full: 0,
            waiting: VecDeque::new(),
            refused_since: None,
            let_in_after: None,
            put_back: Turns::default(),
            of_keys: HashMap::new(),
        };
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
    pub(crate) fn answered(&self, said: Option<Admitted>, now: Instant, random: f64) {
        let mut state = lock(&self.state);
        state.asking = state.asking.saturating_sub(1);
        state.learn(said, now);
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
            0 => {
                waiting.remove(&partition);
                drop(waiting);
                lock(&self.state).waiting.retain(|waits| *waits != partition);
            }
            _ => {
                waiting.insert(partition, heads);
                drop(waiting);
                lock(&self.state).wait(partition);
            }
        }
    }

    /// After how long a job comes again that is put back: behind those that were put back before it, as often as one was let in
    /// lately. It does not come so late that a slot stands empty for long where that guess is wrong, nor so often that it costs.
    pub(crate) fn comes_again(&self, now: Instant) -> Duration {
        let mut state = lock(&self.state);
        let closed = state.closed_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        let apart = state.apart(now);
        let most = |before| SOON_ENOUGH.max(WRITES_APART * before);
        state.put_back.next(COMES_AGAIN.max(closed), apart, most, now)
    }

    /// The same for a job whose key has its next token after `wait`: behind those of its key.
    pub(crate) fn comes_again_for(&self, key: &Key, wait: Duration, now: Instant) -> Duration {
        let rate = self.limit.rate.filter(|rate| rate.per == RatePer::Key);
        let apart = rate.map_or(Duration::ZERO, |rate| rate.every / rate.runs.max(1));
        let of_keys = &mut lock(&self.state).of_keys;
        if of_keys.len() >= KEYS {
            of_keys.retain(|_, turns| !turns.is_over(now));
        }
        match of_keys.len() < KEYS || of_keys.contains_key(key) {
            true => of_keys.entry(key.clone()).or_default().next(wait, apart, |_| OF_KEY, now),
            false => wait,
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
    /// How often one is let in, as far as a node can see.
    fn learn(&mut self, said: Option<Admitted>, now: Instant) {
        match said {
            Some(Admitted::Slot | Admitted::Passed) => {
                let Some(since) = self.refused_since.take() else { return };
                let after = now.saturating_duration_since(since);
                self.let_in_after = Some(self.let_in_after.map_or(after, |before| (before + after) / 2));
            }
            Some(Admitted::Full(_) | Admitted::Until(_)) => drop(self.refused_since.get_or_insert(now)),
            Some(Admitted::KeyUntil(_) | Admitted::Fenced) | None => {}
        }
    }

    /// Between two that come again.
    fn apart(&self, now: Instant) -> Duration {
        let refused = self.refused_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.let_in_after.unwrap_or(APART).max(refused)
    }

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
