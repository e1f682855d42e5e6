//! What becomes of the heads of lanes.

use super::{Head, Lane, LaneId, LaneJob, Lanes, weight};
use gristmill_broker::Entry;
use gristmill_broker::state::JobState;
use std::cmp::Reverse;
use std::time::Instant;

impl Lanes {
    /// Its start mark is being written.
    pub(crate) fn marking(&mut self, id: LaneId) {
        self.set(id, Head::Marking);
    }

    /// It runs: nothing had to be written before.
    pub(crate) fn begin(&mut self, id: LaneId) {
        self.set(id, Head::Running);
    }

    /// It waits until nothing else runs.
    pub(crate) fn alone(&mut self, id: LaneId) {
        self.set(id, Head::Alone);
    }

    /// Its start mark stands: it runs.
    pub(crate) fn marked(&mut self, id: LaneId) {
        self.set(id, Head::Running);
        if let Some(job) = self.head_mut(id) {
            job.marked = true;
        }
    }

    /// The head is being run by this process already (adopted from an earlier tenure).
    pub(crate) fn adopt(&mut self, id: LaneId) {
        let state = self.look(id).map(|lane| lane.state);
        if matches!(state, Some(Head::Ready | Head::Blocked)) {
            self.set(id, Head::Running);
        }
    }

    /// Its run has answered, or it needs none; the verdict is on its way.
    pub(crate) fn settling(&mut self, id: LaneId) {
        if self.look(id).is_some_and(|lane| lane.state == Head::Running) {
            self.set(id, Head::Settling);
        }
    }

    /// The head was not run, or not to an answer: it is ready again.
    pub(crate) fn not_run(&mut self, id: LaneId, now: Instant) {
        if self.look(id).is_some_and(|lane| lane.state.is_active() || lane.state == Head::Alone) {
            self.set(id, Head::Ready);
            self.next_head(id, now);
        }
    }

    /// The head is settled and gone; the next job of the key is the head.
    pub(crate) fn settled(&mut self, id: LaneId, now: Instant) {
        let Some(lane) = self.lane(id) else { return };
        let was_active = lane.state.is_active();
        let Some(job) = lane.jobs.pop_front() else { return };
        let (left, parked) = (lane.jobs.len(), lane.parked.len());
        self.active -= usize::from(was_active);
        self.acknowledged -= usize::from(job.acknowledged);
        self.jobs -= 1;
        self.bytes -= weight(&job.entry);
        if left == 0 && parked == 0 {
            self.close(id);
            return;
        }
        if left <= self.memory.jobs_per_lane / 4 {
            self.load(id);
        }
        self.next_head(id, now);
    }

    /// The head was put back: it stands as `state` says, and waits.
    pub(crate) fn put_back(&mut self, id: LaneId, state: JobState, now: Instant, until: Instant) {
        self.set(id, Head::Ready);
        if let Some(head) = self.head_mut(id) {
            let entry = Entry { state, ..Entry::clone(&head.entry) };
            *head = LaneJob { due: Some(until), ..LaneJob::new(entry, now) };
        }
        self.next_head(id, now);
    }

    /// The head waits without having been put back.
    pub(crate) fn wait(&mut self, id: LaneId, now: Instant, until: Instant) {
        self.set(id, Head::Ready);
        if let Some(head) = self.head_mut(id) {
            head.due = Some(until);
        }
        self.next_head(id, now);
    }

    /// Makes the heads ready whose wait is over.
    pub(crate) fn wake_due(&mut self, now: Instant) {
        while let Some(Reverse((until, id, place))) = self.due.peek().copied() {
            if until > now {
                break;
            }
            self.due.pop();
            let waits = |lane: &Lane| lane.place() == Some(place) && lane.state == (Head::Backoff { until });
            if self.look(id).is_some_and(waits) {
                if let Some(lane) = self.lane(id) {
                    lane.state = Head::Ready;
                    lane.due = Some(until);
                }
                self.ready.push_back(id);
            }
        }
    }

    /// When the next head is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.peek().map(|due| due.0.0)
    }
}
