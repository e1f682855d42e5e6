//! What a partition's actor counts and tells of what its state machine decided.

use super::State;
use super::shared::Shared;
use super::spans::{Ground, Words};
use super::surroundings::Surroundings;
use super::tenure::{Became, End};
use super::told::Told;
use crate::worker::attempt::Attempt;
use gristmill_broker::{Entry, Epoch, Settled};
use gristmill_job::{DeadReason, Envelope, TraceContext};
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::events::job::{
    JobCancelled, JobDead, JobExpired, JobRejected, JobSettled, JobsHandedBack, JobsHandedBackInDrain,
    JobsPromoted, JobsRepaired, JobsUnstarted, JobsWithoutBody,
};
use gristmill_telemetry::events::node::{LeaseLost, PartitionHandedOver, PartitionRecovered};
use gristmill_telemetry::tally::Tally;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A tenure that lasted so long did not end of a large answer.
const LONG_TENURE: Duration = Duration::from_secs(60);

/// What is counted and told of the jobs of one partition, whatever its ordering.
pub(crate) struct Notes {
    shared: Arc<Shared>,
    around: Arc<Surroundings>,
    tally: Tally,
    words: Words,
}

impl Notes {
    pub(crate) fn new(shared: Arc<Shared>, around: Arc<Surroundings>, told: &Told) -> Self {
        let words = Words::new(&shared.queue, shared.partition, &around.incarnation);
        Self { shared, around, tally: told.tally(), words }
    }

    /// What became of runs.
    pub(crate) fn ran(&mut self, runs: Vec<(Attempt, Became)>) {
        for (attempt, (outcome, _)) in &runs {
            self.tally.count(&attempt.told, *outcome);
        }
        let telemetry = &self.around.telemetry;
        self.tally.flush(telemetry.metrics());
        if let Some(traces) = telemetry.traces() {
            let (ground, now) = (self.ground(), Instant::now());
            runs.iter().for_each(|(attempt, became)| ground.trace(traces, attempt, *became, now));
        }
    }

    fn ground(&self) -> Ground<'_> {
        Ground { queue: &self.shared.queue, partition: self.shared.partition, words: &self.words }
    }

    pub(crate) fn outcome(&self, entry: &Entry, settled: &Settled, reason: Option<DeadReason>) {
        self.around.counters.settled(settled);
        let (queue, partition) = (self.shared.queue.as_str(), u64::from(self.shared.partition));
        let trace_id = &TraceOf { entry, ground: self.ground(), telemetry: &self.around.telemetry };
        let (job, place) = (&entry.id, &entry.place);
        let attempt = u64::from(entry.state.attempts()) + 1;
        let telemetry = &self.around.telemetry;
        match (settled, reason) {
            // Gone: the first call wrote it, and its answer was lost.
            (Settled::Dead | Settled::Gone, Some(reason)) => {
                let reason = reason.as_str();
                telemetry.tell(&JobDead { queue, partition, job, place, attempt, trace_id, reason });
            }
            (Settled::Cancelled, _) => {
                telemetry.tell(&JobCancelled { queue, partition, job, place, attempt, trace_id });
            }
            (Settled::Expired, _) => {
                telemetry.tell(&JobExpired { queue, partition, job, place, attempt, trace_id });
            }
            (Settled::Rejected(why), _) => {
                telemetry.tell(&JobRejected { queue, partition, job, place, attempt, trace_id, why });
            }
            _ => {
                let settled = word(settled);
                telemetry.tell(&JobSettled { queue, partition, job, place, attempt, trace_id, settled });
            }
        }
    }

    pub(crate) fn repaired(&self, things: u64) {
        self.around.counters.repaired(things);
        let (queue, partition) = (self.shared.queue.as_str(), u64::from(self.shared.partition));
        self.around.telemetry.tell(&JobsRepaired { queue, partition, things });
    }

    pub(crate) fn promoted(&self, moved: u64, late: Duration, lost: u64) {
        let (queue, partition) = (self.shared.queue.as_str(), u64::from(self.shared.partition));
        if moved > 0 {
            self.around.telemetry.tell(&JobsPromoted { queue, partition, jobs: moved, late_ms: late });
        }
        if lost > 0 {
            self.around.telemetry.tell(&JobsWithoutBody { queue, partition, jobs: lost });
        }
    }

    pub(crate) fn unstarted(&self, jobs: usize) {
        self.around.counters.unstarted(jobs);
        let (queue, partition) = (self.shared.queue.as_str(), u64::from(self.shared.partition));
        self.around.telemetry.tell(&JobsUnstarted { queue, partition, jobs: jobs as u64 });
    }

    pub(crate) fn handed_back(&self, jobs: usize) {
        self.around.counters.handed_back(jobs);
        let (queue, partition) = (self.shared.queue.as_str(), u64::from(self.shared.partition));
        let (telemetry, jobs) = (&self.around.telemetry, jobs as u64);
        if self.around.heartbeat.is_draining() {
            telemetry.tell(&JobsHandedBackInDrain { queue, partition, jobs });
        } else {
            telemetry.tell(&JobsHandedBack { queue, partition, jobs });
        }
    }
}

impl State {
    pub(super) fn ended(&mut self, end: End) {
        self.unheard = match end {
            End::Unknown if self.held_since.elapsed() < LONG_TENURE => self.unheard + 1,
            End::Unknown => 1,
            _ => 0,
        };
        self.around.counters.tenure_ended(end);
        self.yields_since = None;
        let (queue, partition) = (self.queue.name.as_str(), u64::from(self.shared.partition));
        let (epoch, cause) = (&self.machine.epoch(), end.as_str());
        self.around.telemetry.tell(&LeaseLost { queue, partition, epoch, cause });
    }

    /// The partition is given up.
    pub(super) fn left(&mut self, end: End) {
        let since = self.yields_since.take();
        if end == End::Handover {
            let (queue, partition) = (self.queue.name.as_str(), u64::from(self.shared.partition));
            let (epoch, took_ms) = (&self.machine.epoch(), since.map(|at| at.elapsed()).unwrap_or_default());
            self.around.telemetry.tell(&PartitionHandedOver { queue, partition, epoch, took_ms });
        }
    }

    /// The lease is granted; whoever held it before may have let it run out.
    pub(super) fn taken_over(&self, epoch: Epoch) {
        let owner = self.before.owner.as_str();
        if !owner.is_empty() && owner != self.around.incarnation.as_str() {
            let (queue, partition) = (self.queue.name.as_str(), u64::from(self.shared.partition));
            self.around.telemetry.tell(&PartitionRecovered { queue, partition, epoch: &epoch, owner });
        }
    }
}

fn word(settled: &Settled) -> &'static str {
    match settled {
        Settled::Done => "done",
        Settled::Stale => "stale",
        Settled::Duplicate => "duplicate",
        Settled::Discarded => "discarded",
        Settled::Cancelled => "cancelled",
        Settled::Expired => "expired",
        Settled::Dead => "dead",
        Settled::Retried => "put_back",
        Settled::AtTurn(_) => "at_turn",
        Settled::Gone => "gone",
        Settled::Rejected(_) => "rejected",
    }
}

/// The trace of an attempt where attempts are traced, else the one that the job's producer named. Looked for only where it
/// is shown.
struct TraceOf<'a> {
    entry: &'a Entry,
    ground: Ground<'a>,
    telemetry: &'a Telemetry,
}

impl fmt::Display for TraceOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(traces) = self.telemetry.traces() {
            let attempt = self.ground.attempt_of(self.entry, self.entry.state.turn());
            return f.write_str(&TraceContext::of_attempt(&attempt, traces.share()).trace_id());
        }
        let envelope = Envelope::decode(&self.entry.envelope, usize::MAX).ok();
        f.write_str(envelope.as_ref().and_then(Envelope::trace_id).unwrap_or("-"))
    }
}
