//! Traces as OpenTelemetry's conventions for messaging have them: `send` spans of producers, `process` spans of attempts,
//! which link to each other and are no parents of each other, since a job may wait for days.
//!
//! ```text
//!   send orders ◀──creation── process orders (attempt 1) ◀──previous_attempt── process orders (attempt 2) ◀──replay_of── …
//! ```
//!
//! * [`span`]: a span, finished: there are no others, so that none is open while a job waits;
//! * [`words`]: the names of attributes, with what they mean;
//! * [`sending`]: the span of a producer;
//! * this file: which are kept, and the queue from which an exporter takes them.
//!
//! Whether an attempt is kept is decided at its end: errors, slow runs and what was interrupted always, others by share. The
//! queue is bounded and never waited for: what does not fit is dropped, and counted.

pub mod sending;
pub mod span;
pub mod words;

use crate::metrics::Metrics;
use crate::metrics::series::Counter;
use crate::tally::Outcome;
use gristmill_job::TraceContext;
use span::Span;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What is traced, and how much of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tracing {
    /// The share of attempts, and of enqueues, that are kept where nothing is remarkable: 0 to 1.
    pub share: f64,
    /// A run that takes as long is always kept.
    pub slow: Duration,
    /// Spans that wait for the exporter at most.
    pub room: usize,
}

/// Where spans go. All clones of one are the same.
#[derive(Debug, Clone)]
pub struct Traces(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    tracing: Tracing,
    waiting: Mutex<Waiting>,
    /// As many as wait, to be looked at without the lock.
    count: AtomicUsize,
    came: Condvar,
    dropped: Arc<Counter>,
    exported: Arc<Counter>,
}

#[derive(Debug, Default)]
struct Waiting {
    spans: VecDeque<Span>,
    closed: bool,
}

/// What an exporter is handed.
#[derive(Debug)]
pub struct Batch {
    /// Never more than it asked for.
    pub spans: Vec<Span>,
    /// No more will come.
    pub last: bool,
}

impl Traces {
    pub(crate) fn new(tracing: Tracing, metrics: &Metrics) -> Self {
        Self(Arc::new(Inner {
            tracing,
            waiting: Mutex::default(),
            count: AtomicUsize::new(0),
            came: Condvar::new(),
            dropped: metrics.spans_dropped_total.one(),
            exported: metrics.spans_exported_total.one(),
        }))
    }

    /// The share that is kept of what is not remarkable.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.0.tracing.share
    }

    /// Whether an attempt is kept. Asked before its span is made: most are not.
    #[must_use]
    pub fn keeps(&self, context: &TraceContext, outcome: Outcome, ran: Duration) -> bool {
        let remarkable =
            matches!(outcome, Outcome::Retry | Outcome::Dead | Outcome::HandedBack | Outcome::Lost);
        context.sampled || remarkable || ran >= self.0.tracing.slow
    }

    /// Whether there is room for a span; where there is none it counts as dropped, and need not be made.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let room = self.0.count.load(Ordering::Relaxed) < self.0.tracing.room;
        if !room {
            self.0.dropped.add(1);
        }
        room
    }

    /// A span is finished. Never waits.
    pub fn finished(&self, span: Span) {
        let mut waiting = self.lock();
        if waiting.closed || waiting.spans.len() >= self.0.tracing.room {
            drop(waiting);
            return self.0.dropped.add(1);
        }
        waiting.spans.push_back(span);
        let count = waiting.spans.len();
        drop(waiting);
        self.0.count.store(count, Ordering::Relaxed);
        // Before that the exporter's own rhythm does.
        if count >= self.0.tracing.room / 4 {
            self.0.came.notify_one();
        }
    }

    /// For an exporter: waits until many spans are there or `rhythm` is over, and takes at most `most` of them.
    #[must_use]
    pub fn take(&self, most: usize, rhythm: Duration) -> Batch {
        let until = Instant::now() + rhythm;
        let many = most.min(self.0.tracing.room / 4).max(1);
        let mut waiting = self.lock();
        while !waiting.closed && waiting.spans.len() < many {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            waiting = self.0.came.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let take = waiting.spans.len().min(most);
        let spans: Vec<Span> = waiting.spans.drain(..take).collect();
        self.0.count.store(waiting.spans.len(), Ordering::Relaxed);
        Batch { last: waiting.closed && waiting.spans.is_empty(), spans }
    }

    /// A collector took so many.
    pub fn exported(&self, spans: usize) {
        self.0.exported.add(spans as u64);
    }

    /// So many are lost on their way.
    pub fn dropped(&self, spans: usize) {
        self.0.dropped.add(spans as u64);
    }

    /// No more spans come: the exporter is handed what is there, and then told that it was the last.
    pub fn close(&self) {
        self.lock().closed = true;
        self.0.came.notify_all();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Telemetry;
    use crate::metrics::Role;
    use span::Kind;
    use std::time::SystemTime;

    fn traced(room: usize) -> Telemetry {
        let telemetry = Telemetry::new(Role::Node);
        telemetry.trace(Tracing { share: 0.0, slow: Duration::from_secs(10), room });
        telemetry
    }

    fn span() -> Span {
        let context = TraceContext::new([1; 16], [1; 8], true).unwrap();
        Span::new(context, "send q".into(), Kind::Producer, SystemTime::now())
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted() {
        let telemetry = traced(4);
        let traces = telemetry.traces().unwrap();
        for _ in 0..6 {
            traces.finished(span());
        }
        assert!(!traces.has_room());
        let dropped = || telemetry.metrics().spans_dropped_total.one().get();
        assert_eq!(dropped(), 3);
        let batch = traces.take(3, Duration::ZERO);
        assert_eq!((batch.spans.len(), batch.last), (3, false));
        assert!(traces.has_room());
        traces.close();
        traces.finished(span());
        assert_eq!(dropped(), 4);
        let batch = traces.take(3, Duration::from_secs(60));
        assert_eq!((batch.spans.len(), batch.last), (1, true));
    }

    #[test]
    fn errors_and_slow_runs_are_kept_and_others_by_their_share() {
        let telemetry = traced(4);
        let traces = telemetry.traces().unwrap();
        let of = |sampled| TraceContext::new([1; 16], [1; 8], sampled).unwrap();
        let second = Duration::from_secs(1);
        for outcome in Outcome::ALL {
            let well = matches!(
                outcome,
                Outcome::Done
                    | Outcome::Duplicate
                    | Outcome::Stale
                    | Outcome::Discarded
                    | Outcome::Cancelled
                    | Outcome::Expired
                    | Outcome::Snoozed
            );
            assert_eq!(traces.keeps(&of(false), outcome, second), !well, "{outcome:?}");
            assert!(
                traces.keeps(&of(false), outcome, 10 * second) && traces.keeps(&of(true), outcome, second)
            );
        }
    }
}
