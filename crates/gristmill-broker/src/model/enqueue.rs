//! enqueue: as `lua/enqueue.lua`.

use super::partition::{Job, Mark, Partition, Standing};
use crate::enqueue::{Accepted, CALL_MARK_LIFE, EnqueueAnswer};
use crate::lease::acquire::millis;
use gristmill_job::EncodedJob;

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
        if meta.limit > 0 && (self.stream.entries().len() + jobs.len()) as u64 > meta.limit {
            return EnqueueAnswer::Full { limit: meta.limit.to_string() };
        }
        let accepted: Vec<Accepted> = jobs.iter().map(|job| self.accept(now_ms, job)).collect();
        if accepted.iter().any(|answer| matches!(answer, Accepted::At(_))) {
            self.calls.insert(call_id.to_owned(), now_ms + millis(CALL_MARK_LIFE));
        }
        EnqueueAnswer::Accepted(accepted)
    }

    fn accept(&mut self, now_ms: u64, job: &EncodedJob) -> Accepted {
        let mark = self.mark(now_ms, &job.id).filter(|standing| {
            !matches!(standing, Standing::Discarded | Standing::Cancelled(_))
        });
        if let Some(standing) = mark.filter(|_| job.own_id) {
            return Accepted::Duplicate { standing: standing.to_string() };
        }
        let entry = Job { id: job.id.clone(), key: job.key.clone(), envelope: job.envelope.clone() };
        let place = self.stream.add(now_ms, entry);
        if job.own_id {
            let mark = Mark { standing: Standing::Waiting(place), expires_ms: None };
            self.seen.insert(job.id.clone(), mark);
        }
        Accepted::At(place)
    }
}
