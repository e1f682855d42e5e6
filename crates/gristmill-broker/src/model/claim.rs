//! claim, recover, hand back, forward: as the scripts of these names.

use super::lease::Guarded;
use super::partition::{Job, Partition};
use crate::call::{Answer, Guard};
use crate::entry::{Entry, JobState};
use crate::fence::Refusal;
use crate::keys::HANDED_BACK;
use gristmill_job::Place;

impl Partition {
    /// The guard and the read behind it. Whatever the guard says, what the open gate lets through is read and pending:
    /// the caller drops it, and the next tenure recovers it.
    pub(super) fn claim(&mut self, guard: Guard<'_>, count: usize) -> Answer {
        let guarded = self.guard(guard);
        let consumer = guard.fence.consumer();
        let open = self.gates.contains(&consumer);
        let read = if open { self.stream.read_new(&consumer, count) } else { Vec::new() };
        match guarded {
            Guarded::Refused(refusal) => Answer::Refused(refusal),
            Guarded::Already => Answer::Already,
            Guarded::Fresh if !open => Answer::Refused(Refusal::Overtaken),
            Guarded::Fresh => {
                let new = |(place, job)| entry(place, job, JobState::default(), false);
                Answer::Claimed(read.into_iter().map(new).collect())
            }
        }
    }

    pub(super) fn recover(&mut self, now_ms: u64, guard: Guard<'_>, cursor: Place, count: usize) -> Answer {
        match self.guard(guard) {
            Guarded::Refused(refusal) => return Answer::Refused(refusal),
            Guarded::Already => return Answer::Already,
            Guarded::Fresh => {}
        }
        let (taken, next) = self.stream.take_over(&guard.fence.consumer(), cursor, count);
        let recovered = |(place, job, holder): (Place, Job, String)| {
            let state = self.state.get(&place).map_or_else(JobState::default, |line| line.at(now_ms));
            entry(place, job, state, holder != HANDED_BACK)
        };
        Answer::Recovered { entries: taken.into_iter().map(recovered).collect(), next }
    }

    pub(super) fn load(&self, places: &[Place]) -> Vec<(Place, Option<Entry>)> {
        let read = |place: &Place| {
            let job = self.stream.entries().get(place).cloned();
            (*place, job.map(|job| entry(*place, job, JobState::default(), false)))
        };
        places.iter().map(read).collect()
    }

    pub(super) fn hand_back(&mut self, guard: Guard<'_>, places: &[Place]) -> Answer {
        match self.guard(guard) {
            Guarded::Refused(refusal) => return Answer::Refused(refusal),
            Guarded::Already => {}
            Guarded::Fresh => places.iter().for_each(|place| self.stream.give(HANDED_BACK, *place)),
        }
        Answer::Done
    }

    pub(super) fn forward(&mut self, guard: Guard<'_>, ids: &[Place]) -> Answer {
        match self.guard(guard) {
            Guarded::Refused(refusal) => return Answer::Refused(refusal),
            Guarded::Already => {}
            Guarded::Fresh => ids.iter().for_each(|id| self.outbox.delete(*id)),
        }
        Answer::Done
    }
}

fn entry(place: Place, job: Job, state: JobState, recovered: bool) -> Entry {
    Entry { place, id: job.id, key: job.key, envelope: job.envelope, state, recovered }
}
