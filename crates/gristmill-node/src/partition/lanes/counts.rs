//! What is told of all lanes together.

use super::{Head, LaneJob, Lanes};
use gristmill_job::Place;

impl Lanes {
    /// Jobs held in memory.
    pub(crate) fn jobs(&self) -> usize {
        self.jobs
    }

    /// Jobs parked.
    pub(crate) fn parked(&self) -> usize {
        self.parked
    }

    /// Jobs that Redis knows as claimed or returned.
    pub(crate) fn known(&self) -> usize {
        self.jobs + self.parked - self.acknowledged
    }

    /// Bytes held, see [`weight`].
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Heads that run, are about to, or are being settled.
    pub(crate) fn active(&self) -> usize {
        self.active
    }

    /// The highest place of the stream ever put in.
    pub(crate) fn highest(&self) -> Place {
        self.highest
    }

    /// Every job that Redis knows, in memory or parked, in no order; those whose run was stopped hard first, and how many
    /// those are.
    pub(crate) fn places(&self) -> (Vec<Place>, usize) {
        let (mut places, mut others) = (Vec::new(), Vec::with_capacity(self.jobs + self.parked));
        for lane in self.slots.iter().flatten() {
            for job in lane.jobs.iter().filter(|job| !job.acknowledged) {
                if job.stopped { &mut places } else { &mut others }.push(job.entry.place);
            }
            others.extend(&lane.parked);
        }
        let stopped = places.len();
        places.append(&mut others);
        (places, stopped)
    }

    /// The heads that run, are about to, or are being settled.
    pub(crate) fn active_heads(&self) -> impl Iterator<Item = &LaneJob> {
        let active = self.slots.iter().flatten().filter(|lane| lane.state.is_active());
        active.filter_map(|lane| lane.jobs.front())
    }

    /// Heads whose start mark is written, or on its way, and whose run has not begun.
    pub(crate) fn not_begun(&self) -> impl Iterator<Item = &LaneJob> {
        let heads = self.slots.iter().flatten().filter_map(|lane| Some((lane.state, lane.jobs.front()?)));
        let waits = |(state, job): &(Head, &LaneJob)| match state {
            // Also where the mark of one that did not begin is being taken back.
            Head::Marking => !job.stopped,
            Head::Ready | Head::Alone => job.marked && !job.stopped,
            _ => false,
        };
        heads.filter(waits).map(|(_, job)| job)
    }

    /// The heads that run.
    pub(crate) fn running(&self) -> impl Iterator<Item = &LaneJob> {
        let running = self.slots.iter().flatten().filter(|lane| lane.state == Head::Running);
        running.filter_map(|lane| lane.jobs.front())
    }

    /// Runs that cannot be stopped, and are laid down all the same.
    pub(crate) fn stop_running(&mut self) {
        for lane in self.slots.iter_mut().flatten().filter(|lane| lane.state == Head::Running) {
            if let Some(job) = lane.jobs.front_mut() {
                job.stopped = true;
            }
        }
    }
}
