//! promote: as `lua/promote.lua`.

use super::lease::Guarded;
use super::partition::{Mark, Partition, Standing};
use crate::call::{Answer, Guard, MAX_BYTES_PER_CALL, MAX_JOBS_PER_CALL};
use crate::delayed::Member;
use crate::promote::Promoted;
use gristmill_job::UnixMillis;
use std::time::Duration;

impl Partition {
    pub(super) fn promote(&mut self, now_ms: u64, guard: Option<Guard<'_>>, slice: &[Member]) -> Answer {
        let fresh = match guard.map(|guard| self.guard(guard)) {
            Some(Guarded::Refused(refusal)) => return Answer::Refused(refusal),
            Some(Guarded::Already) => false,
            Some(Guarded::Fresh) | None => true,
        };
        let (mut moved, mut late, mut bytes) = (0, 0, 0);
        for member in slice.iter().filter(|_| fresh) {
            let due = self.delayed.keys().find(|(due, it)| it == member && *due <= now_ms).cloned();
            let Some(due) = due else { continue };
            let size = self.delayed.get(&due).map_or(0, |(job, _)| job.envelope.len());
            bytes += size;
            if bytes > MAX_BYTES_PER_CALL && moved > 0 {
                break;
            }
            let Some((job, line)) = self.delayed.remove(&due) else { continue };
            let id = job.id.clone();
            let place = self.stream.add(now_ms, job);
            self.write_state(place, line);
            let mine = Standing::Delayed(member.clone());
            if member.id().1 && self.mark(now_ms, &id).is_none_or(|standing| *standing == mine) {
                self.seen.insert(id, Mark { standing: Standing::Waiting(place), expires_ms: None });
            }
            (moved, late) = (moved + 1, late.max(now_ms - due.0));
        }
        let late = Duration::from_millis(late);
        let due = self.delayed.keys().take_while(|(due, _)| *due <= now_ms).take(MAX_JOBS_PER_CALL);
        let due: Vec<Member> = due.map(|(_, member)| member.clone()).collect();
        let next = self.delayed.keys().next().filter(|_| due.is_empty()).map(|(due, _)| UnixMillis(*due));
        Answer::Promoted(Promoted { moved, late, lost: 0, due, next, now: UnixMillis(now_ms) })
    }
}
