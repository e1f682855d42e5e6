//! enqueue: as `lua/enqueue.lua`.

use super::partition::{Job, Mark, Partition, Standing};
use crate::delayed::Member;
use crate::enqueue::{Accepted, CALL_MARK_LIFE, EnqueueAnswer};
use crate::lease::acquire::millis;
use crate::state::StateLine;
use gristmill_job::{Due, EncodedJob};

impl Partition {
    pub(super) fn enqueue(
        &mut self,
        now_ms: u64,
        partitions: u16,
        call_id: &str,
        jobs: &[EncodedJob],
    ) -> EnqueueAnswer {
        let Some(meta) = &self.meta else { return EnqueueAnswer::NoQueue };
        if meta.partitions != partitions {
            return EnqueueAnswer::Differs { partitions: meta.partitions.to_string() };
        }
        if self.calls.get(call_id).is_some_and(|expires| *expires > now_ms) {
            return EnqueueAnswer::Accepted(vec![Accepted::Before; jobs.len()]);
        }
        for (n, job) in jobs.iter().enumerate() {
            if due_at(now_ms, job.due) > now_ms + FARTHEST_MS {
                return EnqueueAnswer::TooFar { job: n as u64 + 1, due: job.due.to_string() };
            }
        }
        // What is a duplicate takes no room.
        let new = jobs.iter().filter(|job| self.absorbed_by(now_ms, job).is_none()).count();
        let there = self.stream.entries().len() + self.delayed.len();
        if meta.limit > 0 && new > 0 && (there + new) as u64 > meta.limit {
            return EnqueueAnswer::Full { limit: meta.limit.to_string() };
        }
        let accepted: Vec<Accepted> = jobs.iter().map(|job| self.accept(now_ms, job)).collect();
        if accepted.iter().any(|answer| matches!(answer, Accepted::At(_) | Accepted::Delayed(_))) {
            self.calls.insert(call_id.to_owned(), now_ms + millis(CALL_MARK_LIFE));
        }
        EnqueueAnswer::Accepted(accepted)
    }

    /// How the job stands whose duplicate this one is.
    fn absorbed_by(&self, now_ms: u64, job: &EncodedJob) -> Option<&Standing> {
        let absorbs =
            |standing: &&Standing| !matches!(standing, Standing::Discarded | Standing::Cancelled(_));
        self.mark(now_ms, &job.id).filter(absorbs).filter(|_| job.own_id)
    }

    fn accept(&mut self, now_ms: u64, job: &EncodedJob) -> Accepted {
        if let Some(standing) = self.absorbed_by(now_ms, job) {
            return Accepted::Duplicate { standing: standing.to_string() };
        }
        let entry = Job { id: job.id.clone(), key: job.key.clone(), envelope: job.envelope.clone() };
        let due_ms = due_at(now_ms, job.due);
        // Also what is over, behind jobs that were due before it and are not ready yet.
        let first = self.delayed.keys().next().map_or(u64::MAX, |(due, _)| *due);
        let waits = due_ms > now_ms || (job.due != Due::Now && first <= due_ms);
        let (standing, accepted) = if waits {
            let member = self.delay(due_ms, entry, job.own_id);
            (Standing::Delayed(member.clone()), Accepted::Delayed(member))
        } else {
            let place = self.stream.add(now_ms, entry);
            (Standing::Waiting(place), Accepted::At(place))
        };
        if job.own_id {
            self.seen.insert(job.id.clone(), Mark { standing, expires_ms: None });
        }
        accepted
    }

    fn delay(&mut self, due_ms: u64, job: Job, own_id: bool) -> Member {
        let seq = self.meta.as_mut().map_or(0, |meta| {
            meta.delayed_seq += 1;
            meta.delayed_seq
        });
        let member = Member::new(seq, own_id, &job.id);
        self.delayed.insert((due_ms, member.clone()), (job, StateLine::default()));
        member
    }
}

/// Beyond what the script takes.
const FARTHEST_MS: u64 = 11 * 366 * 86_400_000;

fn due_at(now_ms: u64, due: Due) -> u64 {
    match due {
        Due::Now => 0,
        Due::At(at) => at.0,
        Due::In(delay) => now_ms.saturating_add(millis(delay)),
    }
}
