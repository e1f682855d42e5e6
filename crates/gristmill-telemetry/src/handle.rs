//! The handle.

use crate::events::Event;
use crate::events::others::{RedisConnected, RedisLost, RedisUnreachable};
use crate::metrics::series::{Gauge, Histogram};
use crate::metrics::{Metrics, Role};
use crate::pulse::Pulse;
use crate::trace::{Traces, Tracing};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Where events go. A cheap clone; all clones of one are the same.
#[derive(Clone)]
pub struct Telemetry(Arc<Inner>);

struct Inner {
    metrics: Metrics,
    redis_up: Arc<Gauge>,
    calls: RwLock<BTreeMap<&'static str, Arc<Histogram>>>,
    /// Asked before metrics are read.
    sources: Mutex<Vec<Box<Source>>>,
    pulses: Mutex<Vec<Pulse>>,
    stage: AtomicU8,
    /// Whether what becomes of runs is counted.
    counts: bool,
    traces: OnceLock<Traces>,
}

/// How far a process has come. It never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It has not reached Redis yet, or not looked for work.
    Starting,
    /// It has, once; whether Redis answers now is another question.
    Ready,
    /// It leaves.
    Leaving,
}

type Source = dyn Fn(&Metrics) + Send + Sync;

impl Telemetry {
    /// Of a process that does this.
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self::counting(role, true)
    }

    /// Of a node that does not count what becomes of runs: to measure what counting costs.
    #[must_use]
    pub fn off() -> Self {
        Self::counting(Role::Node, false)
    }

    fn counting(role: Role, counts: bool) -> Self {
        let metrics = Metrics::new(role);
        let redis_up = metrics.redis_up.one();
        redis_up.set(0.0);
        if role == Role::Node {
            metrics.node_draining.one().set(0.0);
            metrics.drain_duration_seconds.one().set(0.0);
        }
        metrics.build_info.with(&[env!("CARGO_PKG_VERSION")]).set(1.0);
        Self(Arc::new(Inner {
            metrics,
            redis_up,
            calls: RwLock::default(),
            sources: Mutex::default(),
            pulses: Mutex::default(),
            stage: AtomicU8::new(Stage::Starting as u8),
            counts,
            traces: OnceLock::new(),
        }))
    }

    /// Something happened.
    pub fn tell<E: Event>(&self, event: &E) {
        event.log();
        event.count(&self.0.metrics);
    }

    /// Whether what becomes of runs is counted.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.0.counts
    }

    /// From now on attempts and enqueues are traced; said before anything happens, and once.
    pub fn trace(&self, tracing: Tracing) {
        let _ = self.0.traces.set(Traces::new(tracing, &self.0.metrics));
    }

    /// Where spans go; `None` where nothing is traced.
    #[must_use]
    pub fn traces(&self) -> Option<&Traces> {
        self.0.traces.get()
    }

    /// It has come so far.
    pub fn reach(&self, stage: Stage) {
        self.0.stage.fetch_max(stage as u8, Ordering::SeqCst);
    }

    /// How far it has come.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match self.0.stage.load(Ordering::SeqCst) {
            0 => Stage::Starting,
            1 => Stage::Ready,
            _ => Stage::Leaving,
        }
    }

    /// What was counted, for whoever counts what is no event.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Asks this before metrics are read: for gauges that are known elsewhere. It must not wait.
    pub fn ask(&self, source: impl Fn(&Metrics) + Send + Sync + 'static) {
        self.0.sources.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(source));
    }

    /// Metrics as of now.
    #[must_use]
    pub fn read(&self) -> &Metrics {
        for source in &*self.0.sources.lock().unwrap_or_else(PoisonError::into_inner) {
            source(&self.0.metrics);
        }
        let stalled = self.stalled(Instant::now());
        self.0.metrics.runtime_stalled_seconds.one().set(stalled.as_secs_f64());
        &self.0.metrics
    }

    /// A new pulse, by which something shows that it moves.
    #[must_use]
    pub fn pulse(&self, what: &'static str) -> Pulse {
        let pulse = Pulse::new(what, Instant::now());
        self.0.pulses.lock().unwrap_or_else(PoisonError::into_inner).push(pulse.clone());
        pulse
    }

    /// Whether anything shows that it moves.
    #[must_use]
    pub fn has_pulse(&self) -> bool {
        !self.0.pulses.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The pulse that has been still for longest, and for how long.
    #[must_use]
    pub fn stillest(&self, now: Instant) -> Option<(&'static str, Duration)> {
        let pulses = self.0.pulses.lock().unwrap_or_else(PoisonError::into_inner);
        pulses
            .iter()
            .filter_map(|pulse| Some((pulse.what(), pulse.still(now)?)))
            .max_by_key(|(_, still)| *still)
    }

    fn stalled(&self, now: Instant) -> Duration {
        self.stillest(now).map(|(_, still)| still).unwrap_or_default()
    }

    /// Redis answered a call after this time.
    pub fn called(&self, operation: &'static str, took: Duration) {
        let calls = self.0.calls.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(histogram) = calls.get(operation) {
            return histogram.observe(took);
        }
        drop(calls);
        let histogram = self.0.metrics.redis_call_duration_seconds.with(&[operation]);
        histogram.observe(took);
        self.0.calls.write().unwrap_or_else(PoisonError::into_inner).insert(operation, histogram);
    }

    /// A connection was made.
    pub fn connected(&self, event: &RedisConnected<'_>) {
        self.tell(event);
        if speaks_for_redis(event.role) {
            self.0.redis_up.set(1.0);
        }
    }

    /// A connection was given up.
    pub fn lost(&self, event: &RedisLost<'_>) {
        self.tell(event);
        if speaks_for_redis(event.role) {
            self.0.redis_up.set(0.0);
        }
    }

    /// No connection can be made.
    pub fn unreachable(&self, event: &RedisUnreachable<'_>) {
        self.tell(event);
        if speaks_for_redis(event.role) {
            self.0.redis_up.set(0.0);
        }
    }
}

/// Whether this connection tells that Redis is there: it is used all the time, and stands for the others.
fn speaks_for_redis(role: &str) -> bool {
    matches!(role, "heartbeat" | "producer" | "monitor")
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Telemetry({})", self.0.metrics.role().as_str())
    }
}

impl Default for Telemetry {
    /// Of a node whose metrics nobody reads.
    fn default() -> Self {
        Self::new(Role::Node)
    }
}

/// Where events go is no part of what a thing is told.
impl PartialEq for Telemetry {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Telemetry {}
