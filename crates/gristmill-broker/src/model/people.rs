//! What people do: replay, discard, release_key, skip, cancel, purge, as the scripts of these names.

use super::partition::{Job, Mark, Partition, Standing};
use crate::cancel::{Asked, Cancel, Cancelled, Stands};
use crate::discard::{Discard, Discarded};
use crate::keys::Mode;
use crate::purge::{LeaseSeen, Purge, Purged};
use crate::release_key::ReleasedKey;
use crate::replay::{Replay, Replayed};
use crate::skip::{Skip, Skipped, WaitsFor};
use crate::state::{Request, Said, StateLine};
use gristmill_job::{JobId, Key, Place, UnixMillis};

impl Partition {
    pub(super) fn replay(&mut self, now_ms: u64, letters: &[Replay]) -> Vec<Replayed> {
        letters.iter().map(|letter| self.replay_one(now_ms, letter)).collect()
    }

    fn replay_one(&mut self, now_ms: u64, replay: &Replay) -> Replayed {
        let letter = String::from_utf8_lossy(&replay.letter).into_owned();
        if !self.dead_bodies.contains_key(&letter) {
            return Replayed::Gone;
        }
        if self.returned.contains_key(&replay.place) {
            return Replayed::Waits;
        }
        self.dead_bodies.remove(&letter);
        self.dead.retain(|(_, id)| *id != letter);
        self.lease.changes += 1;
        let job = Job { id: replay.job.clone(), key: replay.key.clone(), envelope: replay.envelope.clone() };
        let place = if self.meta.as_ref().is_some_and(|meta| meta.mode == Mode::None) {
            let first = self.originals.remove(&replay.place);
            let place = self.stream.add(now_ms, job);
            self.originals.extend(first.map(|first| (place, first)));
            place
        } else {
            self.returned.insert(replay.place, (self.lease.changes, job));
            replay.place
        };
        let line = StateLine {
            turn: replay.turn.saturating_add(1),
            suspicion: replay.suspicion,
            replays: replay.replays.saturating_add(1),
            ..StateLine::default()
        };
        self.write_state(place, line);
        if let Some(original) = replay.original.as_ref().filter(|original| !original.is_empty()) {
            self.originals.entry(place).or_insert_with(|| original.clone());
        }
        if self.mark(now_ms, &replay.job) == Some(&Standing::Dead(letter.clone())) {
            let mark = Mark { standing: Standing::Waiting(place), expires_ms: None };
            self.seen.insert(replay.job.clone(), mark);
        }
        self.end_hold(&replay.key, &letter);
        Replayed::Replayed
    }

    pub(super) fn discard(&mut self, now_ms: u64, window_ms: u64, letters: &[Discard]) -> Vec<Discarded> {
        letters.iter().map(|letter| self.discard_one(now_ms, window_ms, letter)).collect()
    }

    fn discard_one(&mut self, now_ms: u64, window_ms: u64, discard: &Discard) -> Discarded {
        let letter = String::from_utf8_lossy(&discard.letter).into_owned();
        if !self.remove_letter(&letter) {
            return Discarded::Gone;
        }
        if let Some(job) = &discard.job {
            self.mark_discarded(now_ms, window_ms, &job.id, &letter);
            if let Some(place) = job.place {
                self.originals.remove(&place);
            }
            self.lease.changes += u64::from(self.end_hold(&job.key, &letter));
        }
        Discarded::Discarded
    }

    pub(super) fn release_key(&mut self, now_ms: u64, key: &Key, waits: Option<Place>) -> ReleasedKey {
        if let Some(hold) = self.held.remove(key) {
            self.lease.changes += 1;
            return ReleasedKey::Released { letter: hold.letter };
        }
        let line = waits.and_then(|place| self.state.get_mut(&place));
        match line.filter(|line| line.due_ms > now_ms) {
            None => ReleasedKey::Nothing,
            Some(line) => {
                line.due_ms = now_ms;
                self.lease.changes += 1;
                ReleasedKey::Woken
            }
        }
    }

    pub(super) fn skip(&mut self, now_ms: u64, window_ms: u64, skip: &Skip) -> Skipped {
        let held = self.held.get(&skip.key).map(|hold| hold.letter.clone());
        match (held, &skip.waits_for) {
            (Some(held), WaitsFor::Letter { letter, place, job }) if held == *letter => {
                self.lease.changes += 1;
                self.held.remove(&skip.key);
                self.remove_letter(letter);
                self.originals.remove(place);
                if let Some(job) = job {
                    self.mark_discarded(now_ms, window_ms, job, letter);
                }
                Skipped::Discarded { letter: held }
            }
            (Some(letter), _) => Skipped::Changed { letter },
            (None, WaitsFor::Letter { .. }) => Skipped::Nothing,
            (None, WaitsFor::Job(place)) => match self.state.get_mut(place) {
                Some(line) if line.request.is_some() => Skipped::Asked,
                Some(line) if line.due_ms > now_ms => {
                    line.due_ms = now_ms;
                    line.request = Some(Request::Skip);
                    self.lease.changes += 1;
                    Skipped::Asked
                }
                _ => Skipped::Nothing,
            },
        }
    }

    pub(super) fn cancel(&mut self, now_ms: u64, window_ms: u64, cancel: &Cancel) -> Cancelled {
        let Cancel { stands, id, key, own_id, said } = cancel;
        let said = said.clone().at(UnixMillis(now_ms));
        let place = match stands {
            Stands::At(place) => place,
            Stands::Delayed(member) => {
                let there = self.delayed.len();
                self.delayed.retain(|(_, it), _| it != member);
                if self.delayed.len() == there {
                    return Cancelled::NotWaiting;
                }
                if *own_id && self.mark(now_ms, id) == Some(&Standing::Delayed(member.clone())) {
                    self.mark_cancelled(now_ms, window_ms, id, said);
                }
                return Cancelled::Cancelled;
            }
        };
        match self.stream.entries().get(place).map(|job| job.id == *id) {
            Some(false) => return Cancelled::NotWaiting,
            Some(true) if !self.stream.is_pending(*place) => {
                self.stream.delete(*place);
                self.state.remove(place);
                if *own_id && self.mark(now_ms, id) == Some(&Standing::Waiting(*place)) {
                    self.mark_cancelled(now_ms, window_ms, id, said);
                }
                return Cancelled::Cancelled;
            }
            None if !self.returned.contains_key(place) => return Cancelled::NotWaiting,
            Some(true) | None => {}
        }
        let mut line = self.state.get(place).cloned().unwrap_or_default();
        if line.request.as_ref().is_some_and(Request::is_cancel) {
            return Cancelled::Asked;
        }
        line.request = Some(Request::Cancel(said));
        self.write_state(*place, line);
        // Where nobody ever owned it, whoever does next reads the line itself.
        if self.lease.epoch.is_some() {
            self.asked.push_back(Asked { place: *place, id: id.clone(), key: key.clone(), own_id: *own_id });
        }
        self.lease.changes += 1;
        Cancelled::Asked
    }

    pub(super) fn purge(&mut self, now_ms: u64, lease: &LeaseSeen, jobs: &[Purge]) -> Purged {
        let epoch = self.lease.epoch.map_or_else(String::new, |epoch| epoch.to_string());
        let stands = LeaseSeen { owner: self.lease.owner.clone(), epoch };
        if stands != *lease {
            return Purged::Changed(stands);
        }
        let mut held = false;
        let jobs = jobs.iter().map(|job| self.purge_one(now_ms, job, &mut held)).collect();
        let tenure_ended = held && !self.lease.owner.is_empty();
        if tenure_ended {
            self.lease.epoch = self.lease.epoch.map(|epoch| epoch + 1);
            self.lease.number = 0;
            self.gates.remove(&format!("{}#{}", stands.owner, stands.epoch));
        }
        Purged::Done { jobs, tenure_ended }
    }

    fn purge_one(&mut self, now_ms: u64, job: &Purge, held: &mut bool) -> bool {
        let (purged, id, standing) = match job {
            Purge::Later(member) => {
                let there = self.delayed.len();
                self.delayed.retain(|(_, it), _| it != member);
                (self.delayed.len() < there, member.id().0, Standing::Delayed(member.clone()))
            }
            Purge::At(place, id) => {
                let purged = match self.stream.entries().get(place).map(|job| job.id == *id) {
                    Some(true) => {
                        *held |= self.stream.acknowledge(*place);
                        self.stream.delete(*place);
                        true
                    }
                    Some(false) => false,
                    None => {
                        let back = self.returned.remove(place).is_some();
                        *held |= back;
                        back
                    }
                };
                if purged {
                    self.state.remove(place);
                    self.originals.remove(place);
                }
                (purged, id.clone(), Standing::Waiting(*place))
            }
        };
        if purged && self.mark(now_ms, &id) == Some(&standing) {
            self.seen.remove(&id);
        }
        purged
    }

    fn mark_cancelled(&mut self, now_ms: u64, window_ms: u64, id: &JobId, said: Said) {
        let expires_ms = Some(now_ms.saturating_add(window_ms.max(1)));
        self.seen.insert(id.clone(), Mark { standing: Standing::Cancelled(Some(said)), expires_ms });
    }

    /// Whether there was anything of it.
    fn remove_letter(&mut self, letter: &str) -> bool {
        let listed = self.dead.len();
        self.dead.retain(|(_, dead)| dead != letter);
        self.dead_bodies.remove(letter).is_some() || self.dead.len() < listed
    }

    fn mark_discarded(&mut self, now_ms: u64, window_ms: u64, job: &JobId, letter: &str) {
        if self.mark(now_ms, job) == Some(&Standing::Dead(letter.to_owned())) {
            let expires_ms = Some(now_ms.saturating_add(window_ms.max(1)));
            self.seen.insert(job.clone(), Mark { standing: Standing::Discarded, expires_ms });
        }
    }

    /// Whether this letter held the key.
    fn end_hold(&mut self, key: &Key, letter: &str) -> bool {
        let holds = self.held.get(key).is_some_and(|hold| hold.letter == letter);
        if holds {
            self.held.remove(key);
        }
        holds
    }
}
