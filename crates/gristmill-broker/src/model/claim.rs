//! claim, load, hand back, forward: as the scripts of these names.

use super::lease::Guarded;
use super::partition::{Job, Partition};
use crate::call::{Answer, Guard};
use crate::entry::Entry;
use crate::fence::Refusal;
use crate::keys::HANDED_BACK;
use crate::state::{JobState, StateLine};
use gristmill_job::Place;

impl Partition {
    /// The guard and the read behind it. Whatever the guard says, what the open gate lets through is read and pending:
    /// the caller drops it, and the next tenure recovers it.
    pub(super) fn claim(&mut self, now_ms: u64, guard: Guard<'_>, count: usize) -> Answer {
        let guarded = self.guard(guard);
        let consumer = guard.fence.consumer();
        let open = self.gates.contains(&consumer);
        let read = if open { self.stream.read_new(now_ms, &consumer, count) } else { Vec::new() };
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

    pub(super) fn load(&self, now_ms: u64, places: &[Place]) -> Vec<(Place, Option<Entry>)> {
        let read = |place: &Place| {
            let state = || self.state_of(now_ms, *place);
            let entry = match (self.stream.entries().get(place), self.returned.get(place)) {
                (Some(job), _) => Some(entry(*place, job.clone(), state(), false)),
                (None, Some((_, job))) => {
                    Some(Entry { returned: true, ..entry(*place, job.clone(), state(), false) })
                }
                (None, None) => None,
            };
            (*place, entry)
        };
        places.iter().map(read).collect()
    }

    pub(super) fn hand_back(
        &mut self,
        now_ms: u64,
        guard: Guard<'_>,
        places: &[Place],
        claims: &[u64],
        stopped: usize,
    ) -> Answer {
        match self.admit(guard) {
            Guarded::Refused(refusal) => return Answer::Refused(refusal),
            Guarded::Already => return Answer::Done,
            Guarded::Fresh => {}
        }
        // What is not claimed is named in vain; its line is not looked for where nobody owns it.
        let moves = |(n, place): &(usize, &Place)| {
            let is_it = || self.stream.deliveries(**place) == claims.get(*n).copied();
            !guard.is_unordered() || (self.is_claimed(guard, **place) && is_it())
        };
        let moving: Vec<(usize, Place)> =
            places.iter().enumerate().filter(moves).map(|(n, place)| (n, *place)).collect();
        for (n, place) in moving {
            self.stream.give(now_ms, HANDED_BACK, place);
            let line = self.state.get(&place).cloned().unwrap_or_default();
            if line.mark.is_some() {
                let interrupted = line.interrupted || n < stopped;
                self.write_state(place, StateLine { mark: None, interrupted, ..line });
            }
        }
        Answer::Done
    }

    pub(super) fn forward(&mut self, guard: Guard<'_>, ids: &[Place]) -> Answer {
        match self.admit(guard) {
            Guarded::Refused(refusal) => return Answer::Refused(refusal),
            Guarded::Already => {}
            Guarded::Fresh => ids.iter().for_each(|id| self.outbox.delete(*id)),
        }
        Answer::Done
    }
}

pub(super) fn entry(place: Place, job: Job, state: JobState, recovered: bool) -> Entry {
    Entry {
        place,
        id: job.id,
        key: job.key,
        envelope: job.envelope,
        state,
        recovered,
        returned: false,
        claim: 1,
    }
}
