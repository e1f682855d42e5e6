//! A run as the watchdog sees it: when the poll under way began, and the run itself, held here so that whoever comes first
//! ends it: the worker when its handler answered, or the watchdog when it holds its thread for too long.
//!
//! ```text
//!   Nothing ──begin──▶ Alive ──finish──▶ Nothing
//!                        └──give_up──▶ GivenUp ──finish (late: refused)──▶ Nothing
//! ```
//!
//! A worker has one of these for first polls and uses it again and again; a run that goes on as a task gets its own.

use crate::partition::shared::{Shared, micros};
use crate::partition::tenure::Run;
use crate::worker::attempt::{Attempt, Began, Traced};
use crate::worker::panics::poll_caught;
use crate::worker::run_queue::lock;
use gristmill_broker::{Entry, Epoch};
use gristmill_handler::{Answer, Cancellation, Facts, Polls, RunFuture};
use gristmill_job::TraceContext;
use gristmill_telemetry::tally;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// No poll is under way.
const IDLE: u64 = 0;
/// The poll under way was given up.
const GIVEN_UP: u64 = u64::MAX;
/// How much later than at its hard limit a run is given up, and how long its poll must have taken then: one that is polled
/// as it should is stopped by its limit.
const BEHIND_HARD_LIMIT: Duration = Duration::from_secs(1);

pub(crate) struct Live {
    pub(crate) partition: Arc<Shared>,
    pub(crate) run: Run,
    pub(crate) facts: Facts,
    pub(crate) started_at: Instant,
    /// How long its job had waited then.
    pub(crate) waited: Option<Duration>,
    /// Where it is traced.
    pub(crate) began: Option<Began>,
    pub(crate) cancellation: Cancellation,
}

impl Live {
    /// What is to be told of the run, once it has ended: with this answer, or stopped.
    pub(crate) fn attempt(&self, answer: Option<&Answer>) -> Option<Attempt> {
        let kind = self.facts.kind?;
        let class = match answer {
            Some(Answer::Failed(failure)) => Some(failure.class),
            _ => None,
        };
        let told = tally::Attempt { kind, waited: self.waited, ran: self.started_at.elapsed(), class };
        Some(Attempt { told, traced: self.began.map(|began| Traced::new(began, &self.run, answer)) })
    }
}

/// What the task of a run needs to know of it.
pub(crate) struct Going {
    pub(crate) partition: Arc<Shared>,
    pub(crate) entry: Arc<Entry>,
    pub(crate) epoch: Epoch,
    /// Soft and hard.
    pub(crate) limits: (Option<Duration>, Option<Duration>),
    pub(crate) started_at: Instant,
    /// For the log lines of its handler.
    pub(crate) current: (Arc<Entry>, u32, Option<TraceContext>),
}

#[derive(Default)]
pub(crate) enum Hold {
    #[default]
    Nothing,
    Alive(Live),
    GivenUp(Arc<Shared>, Run),
}

#[derive(Default)]
pub(crate) struct Watched {
    /// When the poll under way began, in [`micros`].
    since_us: AtomicU64,
    hold: Mutex<Hold>,
    /// Another worker has the seat.
    replaced: AtomicBool,
}

/// What a poll came to.
pub(crate) enum Polled {
    Answered(Answer),
    Pending,
    /// It was given up meanwhile: whatever it came to is refused.
    TooLate,
}

impl Watched {
    pub(crate) fn begin(&self, live: Live) {
        *lock(&self.hold) = Hold::Alive(live);
    }

    /// What is held, and is to be ended by the caller.
    pub(crate) fn finish(&self) -> Hold {
        std::mem::take(&mut *lock(&self.hold))
    }

    /// What is held moves to one of its own.
    pub(crate) fn split(&self) -> Arc<Self> {
        Arc::new(Self { hold: Mutex::new(self.finish()), ..Self::default() })
    }

    /// What the task of a run needs to know; `None` where nothing is alive.
    pub(crate) fn going(&self) -> Option<Going> {
        let hold = lock(&self.hold);
        let Hold::Alive(Live { partition, run, facts, started_at, began, .. }) = &*hold else { return None };
        Some(Going {
            partition: partition.clone(),
            entry: run.entry.clone(),
            epoch: run.epoch,
            limits: facts.options.as_ref().map_or((None, None), |options| options.limits()),
            started_at: *started_at,
            current: (run.entry.clone(), run.attempt, began.map(|began| began.context)),
        })
    }

    /// Polls user code once, from `now` on in sight of the watchdog.
    pub(crate) fn poll(&self, future: &mut RunFuture, cx: &mut Context<'_>, now: Instant) -> Polled {
        self.since_us.store(micros(now).max(1), Ordering::SeqCst);
        let polled = poll_caught(future, cx);
        if self.since_us.swap(IDLE, Ordering::SeqCst) == GIVEN_UP {
            return Polled::TooLate;
        }
        match polled {
            Poll::Ready(answer) => Polled::Answered(answer),
            Poll::Pending => Polled::Pending,
        }
    }

    /// For how long the poll under way has taken; `None` where none is, or it was given up.
    pub(crate) fn held(&self, limits: &Limits) -> Option<Duration> {
        match self.since_us.load(Ordering::SeqCst) {
            IDLE | GIVEN_UP => None,
            since => Some(limits.held(since)),
        }
    }

    /// Says that another worker has the seat; true the first time.
    pub(crate) fn replace(&self) -> bool {
        !self.replaced.swap(true, Ordering::SeqCst)
    }

    /// Whether another worker has the seat.
    pub(crate) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::SeqCst)
    }

    /// Gives the run up if its poll has taken too long, and tells how it was. `told` runs before the run can end.
    pub(crate) fn give_up(&self, limits: &Limits, told: impl FnOnce(&Live, Duration)) -> bool {
        let own = self.since_us.load(Ordering::SeqCst);
        if own == GIVEN_UP {
            return false;
        }
        let mut hold = lock(&self.hold);
        let Hold::Alive(live) = &*hold else { return false };
        let since = match own {
            // Its own future only waits for the batch that it is handled with.
            IDLE => live.cancellation.elsewhere().and_then(Polls::since).map(micros),
            own => Some(own),
        };
        let Some(held) = since.map(|since| limits.held(since)) else { return false };
        if !limits.exceeded(live, held) {
            return false;
        }
        let ends = |own| self.since_us.compare_exchange(own, GIVEN_UP, Ordering::SeqCst, Ordering::SeqCst);
        if own != IDLE && ends(own).is_err() {
            return false;
        }
        told(live, held);
        *hold = Hold::GivenUp(live.partition.clone(), live.run.clone());
        true
    }
}

/// From when on a poll takes too long.
pub(crate) struct Limits {
    pub(crate) now: Instant,
    /// Since when the process has not been suspended.
    pub(crate) awake_since: Instant,
    pub(crate) blocked_after: Duration,
}

impl Limits {
    fn held(&self, since_us: u64) -> Duration {
        let since_us = since_us.max(micros(self.awake_since));
        Duration::from_micros(micros(self.now).saturating_sub(since_us))
    }

    fn exceeded(&self, live: &Live, held: Duration) -> bool {
        match live.facts.options.as_ref().and_then(|options| options.limits().1) {
            None => held >= self.blocked_after,
            Some(hard) => held >= BEHIND_HARD_LIMIT && self.now >= live.started_at + hard + BEHIND_HARD_LIMIT,
        }
    }
}
