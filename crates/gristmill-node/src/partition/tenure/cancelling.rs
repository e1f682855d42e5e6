//! Jobs that a person cancelled: ended without a run wherever they wait, asked to stop where they run.

use super::{Action, Now, Settling, Tenure};
use crate::partition::lanes::{LaneId, LaneJob, Withdrawn};
use gristmill_broker::cancel::Asked;
use gristmill_broker::state::{JobState, Request};
use gristmill_broker::{Entry, Settle, StateLine, Verdict};
use gristmill_job::{Envelope, Place};
use std::collections::HashMap;
use std::sync::Arc;

/// What is asked and not settled.
#[derive(Debug, Default)]
pub(super) struct Cancelling {
    /// Of jobs that are in a lane: they run, or cannot be taken out of it now.
    noted: HashMap<Place, (Asked, StateLine)>,
    /// Jobs in no lane any more, whose settle is not answered.
    withdrawn: usize,
    /// Jobs that were read with such a request while the lanes were built.
    found: Vec<(Asked, StateLine)>,
}

impl Cancelling {
    /// It is ended once the lanes are built.
    pub(super) fn found(&mut self, asked: Asked, line: StateLine) {
        self.found.push((asked, line));
    }
}

impl Tenure {
    /// A tenure begins: what is asked stands in Redis.
    pub(super) fn forget_cancels(&mut self) {
        self.cancelling = Cancelling::default();
    }

    /// Jobs that Redis knows and no lane does.
    pub(super) fn withdrawn(&self) -> usize {
        self.cancelling.withdrawn
    }

    /// Jobs as they were recovered, or came back: those that are to be cancelled are ended once the lanes are built.
    pub(super) fn look_for_cancels(&mut self, entries: &[Entry]) {
        for entry in entries {
            let Some(line) = entry.state.line() else { continue };
            if line.request.as_ref().is_some_and(Request::is_cancel) {
                let own_id = Envelope::decode(&entry.envelope, self.bounds.policy.max_envelope_bytes).ok();
                let (place, id, key) = (entry.place, entry.id.clone(), entry.key.clone());
                let own_id = own_id.is_none_or(|envelope| envelope.own_id);
                self.cancelling.found.push((Asked { place, id, key, own_id }, line.clone()));
            }
        }
    }

    /// The lanes are built, or more came into them.
    pub(super) fn cancel_found(&mut self, now: Now, actions: &mut Vec<Action>) {
        for (asked, line) in std::mem::take(&mut self.cancelling.found) {
            self.cancel(asked, line, now, actions);
        }
    }

    /// A person wants a job to end; `line` is what is stored of it.
    pub(super) fn cancel(&mut self, asked: Asked, line: StateLine, now: Now, actions: &mut Vec<Action>) {
        if !line.request.as_ref().is_some_and(Request::is_cancel) {
            return;
        }
        let place = asked.place;
        // What becomes of an interrupted run is its kind's to say: it is met at the head.
        let withdrawn = match line.interrupted {
            true => Withdrawn::Later,
            false => self.lanes.withdraw(&asked.key, place, now.instant),
        };
        match withdrawn {
            Withdrawn::Idle(entry) => {
                let Asked { id, key, own_id, .. } = asked;
                let settle = Settle {
                    place,
                    turn: line.turn,
                    id: id.clone(),
                    key: key.clone(),
                    marked: own_id,
                    verdict: Verdict::Cancelled,
                };
                let entry = entry.unwrap_or_else(|| {
                    let (state, envelope) = (JobState::of(line, 0), bytes::Bytes::new());
                    Arc::new(Entry {
                        place,
                        id,
                        key,
                        envelope,
                        state,
                        recovered: false,
                        returned: false,
                        claim: 1,
                    })
                });
                self.cancelling.noted.remove(&place);
                self.cancelling.withdrawn += 1;
                let lane = LaneId::NONE;
                self.to_settle.push(Settling { lane, entry, settle, acknowledges: None, attempt: None });
                self.alone_over(place, actions);
            }
            Withdrawn::Active => {
                self.cancelling.noted.insert(place, (asked, line));
                actions.push(Action::Cancel(place));
            }
            Withdrawn::Later => {
                self.cancelling.noted.insert(place, (asked, line));
            }
            Withdrawn::Nowhere => {}
        }
    }

    /// Whether the job at this place is to end without another run.
    pub(super) fn is_cancelled(&self, place: Place) -> bool {
        !self.cancelling.noted.is_empty() && self.cancelling.noted.contains_key(&place)
    }

    /// The job with what is asked of it, where that came after it was read.
    pub(super) fn with_cancel(&self, mut job: LaneJob) -> LaneJob {
        let noted = self.cancelling.noted.get(&job.entry.place);
        if let Some(request) = noted.and_then(|(_, line)| line.request.clone()) {
            let entry = Entry { state: job.entry.state.asked(request), ..(*job.entry).clone() };
            job.entry = Arc::new(entry);
        }
        job
    }

    /// The verdict on a run that a person asked to stop: one that had finished stands, one that would be tried again ends.
    pub(super) fn judged_cancelled(&self, settle: Settle) -> Settle {
        let again = matches!(settle.verdict, Verdict::Retry { .. });
        match again && self.is_cancelled(settle.place) {
            true => Settle { verdict: Verdict::Cancelled, ..settle },
            false => settle,
        }
    }

    /// A job is settled for good.
    pub(super) fn cancel_over(&mut self, lane: LaneId, place: Place) {
        if lane == LaneId::NONE {
            self.cancelling.withdrawn = self.cancelling.withdrawn.saturating_sub(1);
        }
        if !self.cancelling.noted.is_empty() {
            self.cancelling.noted.remove(&place);
        }
    }

    /// A job was put back by a verdict that was on its way when a person asked for its end.
    pub(super) fn cancel_put_back(&mut self, place: Place, turn: u32, now: Now, actions: &mut Vec<Action>) {
        if let Some((asked, line)) = self.cancelling.noted.remove(&place) {
            self.cancel(asked, StateLine { turn, ..line }, now, actions);
        }
    }
}
