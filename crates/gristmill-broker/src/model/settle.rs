//! settle: as `lua/settle.lua`, jobs that are plain first, like there.

use super::lease::Guarded;
use super::partition::{Entity, Hold, Mark, Partition, Standing};
use crate::call::{Answer, Guard};
use crate::delayed::Member;
use crate::lease::acquire::millis;
use crate::settle::{Emit, Settle, Settled, Verdict};
use crate::state::{Request, StateLine};
use gristmill_job::{Due, EntityChange, Place, UnixMillis};
use std::collections::BTreeSet;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

impl Partition {
    pub(super) fn settle(&mut self, now_ms: u64, guard: Guard<'_>, jobs: &[Settle]) -> Answer {
        let first = match self.admit(guard) {
            Guarded::Refused(refusal) => return Answer::Refused(refusal),
            Guarded::Already => false,
            Guarded::Fresh => true,
        };
        let plain: Vec<Place> = jobs.iter().filter(|job| job.is_plain()).map(|job| job.place).collect();
        let gone = match guard.is_unordered() {
            true => self.settle_plain_unordered(guard, plain),
            false => self.settle_plain(first, plain),
        };
        let had_lines = !self.state.is_empty();
        let mut answers = Vec::with_capacity(jobs.len());
        for job in jobs {
            answers.push(match job.is_plain() {
                true if gone.contains(&job.place) => Settled::Gone,
                true if first => Settled::Done,
                true => Settled::AtTurn(0),
                false if matches!(job.verdict, Verdict::Dead { acknowledged: true, .. }) => {
                    self.bury(first, guard, job)
                }
                false if !first || self.turn_of(job.place) != job.turn => self.standing(guard, job.place),
                false => self.settle_one(now_ms, guard, job, had_lines),
            });
        }
        Answer::Settled { jobs: answers, first }
    }

    /// Settles those that are claimed at turn 0; the others are gone, as far as their sender is concerned.
    fn settle_plain(&mut self, first: bool, places: Vec<Place>) -> BTreeSet<Place> {
        let mut gone = BTreeSet::new();
        for place in places {
            let back = self.returned.contains_key(&place);
            if first && self.turn_of(place) == 0 {
                self.state.remove(&place);
            }
            let stands = match first {
                false => self.is_there(place),
                true => self.turn_of(place) == 0 && (back || self.stream.acknowledge(place)),
            };
            match stands {
                true if first => {
                    if self.returned.remove(&place).is_some() {
                        self.originals.remove(&place);
                    } else {
                        self.stream.delete(place);
                    }
                }
                true => {}
                false => drop(gone.insert(place)),
            }
        }
        gone
    }

    /// Those that this incarnation claims.
    fn settle_plain_unordered(&mut self, guard: Guard<'_>, places: Vec<Place>) -> BTreeSet<Place> {
        let mut gone = BTreeSet::new();
        for place in places {
            if !self.is_claimed(guard, place) || self.turn_of(place) != 0 {
                gone.insert(place);
                continue;
            }
            self.state.remove(&place);
            self.stream.acknowledge(place);
            self.stream.delete(place);
        }
        gone
    }

    fn standing(&self, guard: Guard<'_>, place: Place) -> Settled {
        match self.is_claimed(guard, place) {
            true => Settled::AtTurn(self.turn_of(place)),
            false => Settled::Gone,
        }
    }

    fn settle_one(&mut self, now_ms: u64, guard: Guard<'_>, job: &Settle, had_lines: bool) -> Settled {
        if !self.is_claimed(guard, job.place) {
            return Settled::Gone;
        }
        let settled = match &job.verdict {
            Verdict::Retry { attempts, delay, why, interrupted, history } => {
                let before = self.state.get(&job.place).cloned().unwrap_or_default();
                let line = StateLine {
                    turn: job.turn.saturating_add(1),
                    attempts: *attempts,
                    due_ms: now_ms.saturating_add(millis(*delay)),
                    why: *why,
                    interrupted: *interrupted,
                    mark: None,
                    request: before.request.clone().filter(Request::is_cancel),
                    history: history.clone(),
                    ..before
                };
                if !guard.is_unordered() {
                    self.write_state(job.place, line);
                    return Settled::Retried;
                }
                self.put_back_for_later(now_ms, job, line)
            }
            Verdict::Done { version, entity, emits } => {
                self.apply(now_ms, guard.seen_window_ms, job, *version, entity.as_ref(), emits)
            }
            Verdict::Discard => {
                self.leave_mark(
                    job,
                    Standing::Discarded,
                    Some(now_ms.saturating_add(guard.seen_window_ms.max(1))),
                );
                Settled::Discarded
            }
            Verdict::Duplicate | Verdict::Stale => {
                let (standing, settled) = match job.verdict {
                    Verdict::Duplicate => (Standing::Applied, Settled::Duplicate),
                    _ => (Standing::Stale, Settled::Stale),
                };
                self.leave_mark(job, standing, Some(now_ms.saturating_add(guard.seen_window_ms.max(1))));
                settled
            }
            Verdict::Cancelled | Verdict::Expired => {
                let request = self.state.get(&job.place).and_then(|line| line.request.clone());
                let (standing, settled) = match (&job.verdict, request) {
                    (Verdict::Expired, _) => (Standing::Expired, Settled::Expired),
                    (_, Some(Request::Cancel(said))) => (Standing::Cancelled(Some(said)), Settled::Cancelled),
                    _ => (Standing::Cancelled(None), Settled::Cancelled),
                };
                self.leave_mark(job, standing, Some(now_ms.saturating_add(guard.seen_window_ms.max(1))));
                settled
            }
            Verdict::Dead { .. } => self.write_letter(job),
        };
        if !guard.is_unordered() && self.returned.contains_key(&job.place) {
            if !matches!(settled, Settled::Rejected(_)) {
                self.returned.remove(&job.place);
                self.state.remove(&job.place);
                if settled != Settled::Dead {
                    self.originals.remove(&job.place);
                }
            }
        } else if matches!(settled, Settled::Rejected(_)) {
            let deliveries = self.stream.deliveries(job.place).filter(|_| guard.is_unordered());
            self.stream.give_back(now_ms, &guard.fence.consumer(), job.place, deliveries);
        } else {
            self.stream.acknowledge(job.place);
            self.stream.delete(job.place);
            self.state.remove(&job.place);
            if guard.is_unordered() && had_lines && settled != Settled::Dead {
                self.originals.remove(&job.place);
            }
        }
        settled
    }

    /// Where the ordering is none, a retry leaves the stream: its line goes with it, and its mark.
    fn put_back_for_later(&mut self, now_ms: u64, job: &Settle, line: StateLine) -> Settled {
        let Some(entry) = self.stream.entries().get(&job.place).cloned() else { return Settled::Gone };
        let seq = self.meta.as_mut().map_or(0, |meta| {
            meta.delayed_seq += 1;
            meta.delayed_seq
        });
        let member = Member::new(seq, job.marked, &entry.id);
        self.delayed.insert((line.due_ms, member.clone()), (entry, line));
        if self.mark(now_ms, &job.id).is_none_or(|mark| *mark == Standing::Waiting(job.place)) {
            self.leave_mark(job, Standing::Delayed(member), None);
        }
        Settled::Retried
    }

    /// A dead letter of a job that was acknowledged before its run.
    fn bury(&mut self, first: bool, guard: Guard<'_>, job: &Settle) -> Settled {
        let Verdict::Dead { dead_id, .. } = &job.verdict else { return Settled::Gone };
        let known = self.dead_bodies.contains_key(dead_id);
        match first {
            true if !(guard.is_unordered() && known) => self.write_letter(job),
            _ if known => Settled::Gone,
            _ => Settled::AtTurn(job.turn),
        }
    }

    fn write_letter(&mut self, job: &Settle) -> Settled {
        let Verdict::Dead { dead_id, at, body, hold, .. } = &job.verdict else { return Settled::Gone };
        self.dead.retain(|(_, id)| id != dead_id);
        self.dead.insert((*at, dead_id.clone()));
        self.dead_bodies.insert(dead_id.clone(), body.clone());
        if *hold {
            let hold = Hold { letter: dead_id.clone(), since_ms: at.0, place: job.place };
            self.held.insert(job.key.clone(), hold);
        }
        self.leave_mark(job, Standing::Dead(dead_id.clone()), None);
        Settled::Dead
    }

    fn apply(
        &mut self,
        now_ms: u64,
        window_ms: u64,
        job: &Settle,
        version: u64,
        change: Option<&EntityChange>,
        emits: &[Emit],
    ) -> Settled {
        let entity = change.and_then(|_| self.entities.get(&job.key));
        let (before, changes) = match entity {
            Some(Entity::Spoiled) => return Settled::Rejected(WRONG_TYPE.to_owned()),
            Some(Entity::Is { version, changes, .. }) => (Some(*version), *changes),
            None => (None, 0),
        };
        let mark = self.mark(now_ms, &job.id).filter(|_| job.marked);
        if mark.is_some_and(|standing| matches!(standing, Standing::Applied | Standing::Stale)) {
            return Settled::Duplicate;
        }
        let until = Some(now_ms.saturating_add(window_ms.max(1)));
        if before.is_some_and(|before| version <= before) {
            self.leave_mark(job, Standing::Stale, until);
            return Settled::Stale;
        }
        if let Some(change) = change {
            let (state, deleted) = match change {
                EntityChange::Put(state) => (state.clone(), false),
                EntityChange::Delete => (bytes::Bytes::new(), true),
            };
            let entity = Entity::Is { version, state, deleted, changes: changes + 1 };
            self.entities.insert(job.key.clone(), entity);
        }
        for emit in emits {
            let mut emit = emit.clone();
            // Counted from the settle.
            if let Due::In(delay) = emit.job.due {
                emit.job.due = Due::At(UnixMillis(now_ms.saturating_add(millis(delay))));
            }
            self.outbox.add(now_ms, emit);
        }
        self.leave_mark(job, Standing::Applied, until);
        Settled::Done
    }

    fn leave_mark(&mut self, job: &Settle, standing: Standing, expires_ms: Option<u64>) {
        if job.marked {
            self.seen.insert(job.id.clone(), Mark { standing, expires_ms });
        }
    }
}
