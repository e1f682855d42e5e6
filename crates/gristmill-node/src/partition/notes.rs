//! What a partition's actor counts and logs of what its state machine decided.

use super::State;
use super::tenure::End;
use gristmill_broker::{Entry, Settled};
use gristmill_job::DeadReason;
use std::time::Duration;

/// A tenure that lasted so long did not end of a large answer.
const LONG_TENURE: Duration = Duration::from_secs(60);

impl State {
    pub(super) fn outcome(&self, entry: &Entry, settled: &Settled, reason: Option<DeadReason>) {
        self.around.counters.settled(settled);
        let (queue, partition) = (self.queue.name.as_str(), self.shared.partition);
        let (job, place) = (&entry.id, &entry.place);
        match (settled, reason) {
            (Settled::Dead, reason) => {
                let reason = reason.map_or("unknown", DeadReason::as_str);
                tracing::warn!(queue, partition, %job, %place, reason, "a job is now a dead letter");
            }
            (Settled::Rejected(why), _) => {
                tracing::warn!(queue, partition, %job, %place, why, "Redis refused to write what a job asked for");
            }
            _ => tracing::debug!(queue, partition, %job, %place, ?settled, "settled"),
        }
    }

    pub(super) fn repaired(&self, things: u64) {
        self.around.counters.repaired(things);
        let (queue, partition) = (self.queue.name.as_str(), self.shared.partition);
        tracing::error!(
            queue,
            partition,
            things,
            "found jobs or keys that waited for nothing, and repaired them"
        );
    }

    pub(super) fn unstarted(&self, jobs: usize) {
        self.around.counters.unstarted(jobs);
        let (queue, partition) = (self.queue.name.as_str(), self.shared.partition);
        tracing::error!(
            queue,
            partition,
            jobs,
            "jobs that may run at most once were acknowledged, and are lost unrun"
        );
    }

    pub(super) fn ended(&mut self, end: End) {
        self.unheard = match end {
            End::Unknown if self.held_since.elapsed() < LONG_TENURE => self.unheard + 1,
            End::Unknown => 1,
            _ => 0,
        };
        self.around.counters.tenure_ended(end);
        let (queue, partition) = (self.queue.name.as_str(), self.shared.partition);
        tracing::warn!(queue, partition, epoch = %self.machine.epoch(), cause = end.as_str(), "a tenure ended; lanes are rebuilt");
    }
}
