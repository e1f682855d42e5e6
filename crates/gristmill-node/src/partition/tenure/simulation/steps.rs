//! What may happen next in the world: one small step each, in any order.

use super::world::{KEYS, TRUST, TTL, VERSIONS, World};
use crate::partition::pauses::Pauses;
use crate::partition::tenure::*;
use crate::worker::slot::Slot;
use gristmill_broker::admit::Admitted;
use gristmill_broker::cancel::{Cancel, Stands};
use gristmill_broker::lease::renew::{Renew, Renewed};
use gristmill_broker::pause::{Pause, Target};
use gristmill_broker::replay::{Replay, Replayed};
use gristmill_broker::skip::{Skip, WaitsFor};
use gristmill_broker::state::Said;
use gristmill_handler::{Answer as RunAnswer, Facts};
use gristmill_job::{DeadReason, Effects, ErrorClass, Failure};
use std::time::Duration;

fn version_of(run: &Run) -> u64 {
    gristmill_job::Envelope::decode(&run.entry.envelope, 1 << 20).unwrap().version
}

/// Whether a person brings such a letter back.
pub(super) fn comes_back(reason: DeadReason) -> bool {
    matches!(reason, DeadReason::Permanent | DeadReason::Review | DeadReason::Skipped)
}

pub(super) fn ended(run: Run, ran: Ran) -> Ended {
    let Run { epoch, lane, entry, turn, .. } = run;
    Ended { epoch, lane, entry, turn, ran, attempt: None }
}

impl World {
    pub(super) fn step_request(&mut self, n: usize) {
        let Some(request) = self.nodes[n].requests.pop_front() else { return };
        let answer = self.execute(&request);
        let lost = self.faults.lost && self.rng.one_in(10);
        let result = if lost { Err(CallError::Unknown) } else { Ok(answer) };
        self.nodes[n].answers.push_back((request.fence.epoch, request.number, result));
    }

    pub(super) fn step_answer(&mut self, n: usize) {
        let Some((epoch, number, result)) = self.nodes[n].answers.pop_front() else { return };
        if self.nodes[n].tenure.epoch() != epoch {
            return;
        }
        if result.as_ref().is_ok_and(|answer| !matches!(answer, Answer::Refused(_))) {
            self.nodes[n].answered = self.nodes[n].answered.max(number);
        }
        self.tell(n, Event::Answered(number, result));
    }

    /// A plain read of parked jobs is answered, in any order with the calls.
    pub(super) fn step_load(&mut self, n: usize) {
        if self.nodes[n].loads.is_empty() {
            return;
        }
        let at = usize::try_from(self.rng.below(self.nodes[n].loads.len() as u64)).unwrap();
        let (epoch, lane, places) = self.nodes[n].loads.remove(at);
        let loaded = self.model.load(&self.keys, &places);
        if self.nodes[n].tenure.epoch() == epoch {
            self.loads += 1;
            self.tell(n, Event::Loaded(lane, loaded));
        }
    }

    /// The limit of a kind answers one that asked, or does not.
    pub(super) fn step_limit(&mut self, n: usize) {
        if self.nodes[n].asking.is_empty() {
            return;
        }
        let at = usize::try_from(self.rng.below(self.nodes[n].asking.len() as u64)).unwrap();
        let (epoch, asking) = self.nodes[n].asking.remove(at);
        let wait = Duration::from_millis(self.rng.below(100));
        let said = match self.rng.below(6) {
            _ if !self.faults.limits => Some(Admitted::Slot),
            0 => Some(Admitted::Full(1)),
            1 => Some(Admitted::Until(wait)),
            2 => Some(Admitted::KeyUntil(wait)),
            3 => None,
            _ => Some(Admitted::Slot),
        };
        asking.permit.answered(said, self.at(self.now + TRUST), 0.5);
        if self.nodes[n].tenure.epoch() == epoch {
            self.tell(n, Event::Admitted(vec![(asking, said)]));
        }
    }

    pub(super) fn step_start(&mut self, n: usize) {
        if self.nodes[n].queued.is_empty() {
            return;
        }
        let at = usize::try_from(self.rng.below(self.nodes[n].queued.len() as u64)).unwrap();
        // While a job asked to be alone, or is, no other starts.
        let next = &self.nodes[n].queued[at];
        if self.nodes[n].alone.is_some() && !next.alone && next.slot.is_none() {
            return;
        }
        let run = self.nodes[n].queued.remove(at);
        let trusted = self.now < self.nodes[n].trusted_until;
        let let_in = run.slot.as_ref().is_none_or(|slot| slot.may_begin(self.at(self.now)));
        if self.nodes[n].gate != Some(run.epoch) || !trusted || !let_in {
            self.tell(n, Event::Ended(vec![ended(run, Ran::NotStarted)]));
            return;
        }
        // It starts too late: one of the key whose ids are its producer's.
        let own = run.entry.id.to_string().starts_with("0:");
        if self.faults.expires && own && !run.acknowledged && self.rng.one_in(12) {
            self.expired.insert(run.entry.id.to_string());
            self.tell(n, Event::Ended(vec![ended(run, Ran::Expired)]));
            return;
        }
        if let Some(first) = run.first {
            let slot = Slot::none();
            self.nodes[n].slots.push(Arc::downgrade(&slot));
            self.tell(n, Event::Ended(vec![ended(run, Ran::Asks(first, slot))]));
            return;
        }
        // One whose mark is written has begun.
        let stopped = self.nodes[n].pauses.stop(&run.entry.key, &run.entry.envelope, 1 << 20);
        assert!(!stopped || run.slot.is_some() || run.alone, "started although paused: {run:?}");
        let mut alive = self.nodes[n].running.iter().chain(&self.nodes[n].hung);
        let beside = alive.find(|other| other.entry.key == run.entry.key);
        assert!(beside.is_none(), "two runs of {} in one process: {beside:?} and {run:?}", run.entry.key);
        if !self.failed_over {
            let view = &self.model.partitions(&self.queue)[0];
            let owner = (view.owner.as_str(), view.epoch);
            assert_eq!(owner, (self.nodes[n].incarnation.as_str(), run.epoch.0), "a start without the lease");
        }
        self.starts += 1;
        let kind = gristmill_job::Envelope::decode(&run.entry.envelope, 1 << 20).unwrap().kind.to_owned();
        let limited = self.faults_at_first.limits && kind == "k";
        assert!(
            !limited || self.nodes[n].limited.holds() > 0 && run.slot.is_some(),
            "without a slot: {run:?}"
        );
        if self.faults_at_first.asks && kind == "asks" {
            let first = self.once.insert((run.entry.place, run.turn));
            assert!(first, "run twice without a person: {run:?}\n{}", self.log.join("\n"));
        }
        if run.alone {
            assert!(
                self.nodes[n].running.is_empty(),
                "not alone: {run:?} beside {:?}",
                self.nodes[n].running
            );
        }
        if self.poison.contains(&(run.entry.key.to_string(), version_of(&run))) {
            self.deaths += 1;
            self.die(n);
            return;
        }
        self.nodes[n].running.push(run);
    }

    /// A person brings a letter back, twice; and lets a key go on whose job killed its processes.
    pub(super) fn step_person(&mut self) {
        let letters = self.model.dead_letters(&self.queue, 0, 0, 1000);
        let dead: Vec<_> = letters.into_iter().map(|view| (view.id, view.letter.unwrap())).collect();
        for (_, letter) in dead.iter().filter(|(_, letter)| letter.reason == DeadReason::Crashed) {
            let key = gristmill_job::Key::from_stored(letter.key.clone().into());
            self.model.release_key(&self.keys, &key, None);
        }
        if self.faults.acts {
            self.act();
        }
        if self.faults.pauses {
            self.pause_some();
        }
        if self.faults.cancels {
            self.cancel_one();
        }
        let dead = dead.into_iter();
        let mut mine: Vec<_> = dead.filter(|(_, letter)| comes_back(letter.reason)).collect();
        if !mine.is_empty() {
            let at = usize::try_from(self.rng.below(mine.len() as u64)).unwrap();
            let (id, letter) = mine.swap_remove(at);
            self.log.push(format!("{} a person replays {id}", self.now));
            let replay = Replay::of(id.into(), letter).unwrap();
            assert_eq!(self.model.replay(&self.keys, std::slice::from_ref(&replay)), [Replayed::Replayed]);
            assert_eq!(self.model.replay(&self.keys, &[replay]), [Replayed::Gone]);
        }
    }

    /// A job that waits is to run now; or is passed over, where nothing newer of its key could overtake it then.
    fn act(&mut self) {
        let now = self.now;
        let states = self.model.states(&self.keys);
        let Some((place, _)) = states.into_iter().find(|(_, line)| line.due_ms > now) else { return };
        let key = gristmill_job::Key::new("nobody").unwrap();
        let last = place.seq >= (VERSIONS - 1) * KEYS as u64;
        let done = if last && self.rng.one_in(2) {
            let skip = Skip { key, waits_for: WaitsFor::Job(place) };
            format!("{:?}", self.model.skip(&self.keys, 1_000_000, &skip))
        } else {
            format!("{:?}", self.model.release_key(&self.keys, &key, Some(place)))
        };
        self.log.push(format!("{now} a person acts on {place}: {done}"));
    }

    /// Other things are paused than before, or none.
    fn pause_some(&mut self) {
        let mut all = Vec::new();
        let key = gristmill_job::Key::new("key1").unwrap();
        for (odds, target) in [(4, Target::Queue), (2, Target::Kind("k".into())), (2, Target::Key(key))] {
            if self.rng.one_in(odds) {
                let (since, said) = (gristmill_job::UnixMillis(self.now), Said::default());
                all.push(Pause { target, since, until: None, said });
            }
        }
        self.pauses = std::sync::Arc::new(Pauses::of(&all));
        self.log.push(format!("{} a person pauses {all:?}", self.now));
    }

    /// A job of the key whose ids are its producer's is taken back, wherever it stands.
    fn cancel_one(&mut self) {
        let there = self.model.jobs(&self.keys).into_iter().map(|(place, id, _)| (place, id));
        let back = self.model.returned(&self.keys).into_iter().map(|(place, _, job)| (place, job.id));
        let mine: Vec<_> = there.chain(back).filter(|(_, id)| id.to_string().starts_with("0:")).collect();
        if mine.is_empty() {
            return;
        }
        let at = usize::try_from(self.rng.below(mine.len() as u64)).unwrap();
        let (place, id) = mine[at].clone();
        let key = gristmill_job::Key::new("key0").unwrap();
        let stands = Stands::At(place);
        let cancel = Cancel { stands, id: id.clone(), key, own_id: true, said: Said::new("me", "") };
        let done = self.model.cancel(&self.keys, 1_000_000_000, &cancel);
        self.log.push(format!("{} a person cancels {id} at {place}: {done:?}", self.now));
        self.cancelled.insert(id.to_string());
    }

    /// Nothing runs any more: whoever asked to be alone may run.
    pub(super) fn step_alone(&mut self, n: usize) {
        if let Some((place, false)) = self.nodes[n].alone
            && self.nodes[n].running.is_empty()
            && self.nodes[n].slots.iter().all(|slot| slot.strong_count() == 0)
        {
            self.nodes[n].alone = Some((place, true));
            self.tell(n, Event::Alone(place));
        }
    }

    /// The process is gone; another starts under its name.
    pub(super) fn die(&mut self, n: usize) {
        let fresh = self.fresh_node(n as u64);
        let gone = std::mem::replace(&mut self.nodes[n], fresh);
        self.late.extend(gone.requests);
    }

    pub(super) fn step_end(&mut self, n: usize) {
        if !self.nodes[n].hung.is_empty() && self.rng.one_in(5) {
            let run = self.nodes[n].hung.remove(0);
            return self.tell(n, Event::Ended(vec![ended(run, Ran::Stopped)]));
        }
        if self.nodes[n].running.is_empty() {
            return;
        }
        let at = usize::try_from(self.rng.below(self.nodes[n].running.len() as u64)).unwrap();
        let run = self.nodes[n].running.remove(at);
        let envelope = gristmill_job::Envelope::decode(&run.entry.envelope, 1 << 20).unwrap();
        let facts = Facts {
            version: envelope.version,
            own_id: envelope.own_id,
            max_attempts: None,
            kind: None,
            options: None,
        };
        let asked = self.nodes[n].asked_to_stop.contains(&run.entry.place);
        let ran = if self.faults.hangs && self.rng.one_in(10) {
            self.nodes[n].hung.push(run.clone());
            Ran::Hung("it holds its thread".into(), facts)
        } else if self.faults.dies && self.rng.one_in(8) {
            Ran::Answered(RunAnswer::Failed(Failure::new(ErrorClass::Permanent, vec!["x".into()])), facts)
        } else if self.faults.retry && self.rng.one_in(4) {
            Ran::Answered(RunAnswer::Failed(Failure::new(ErrorClass::Transient, vec!["x".into()])), facts)
        } else if (asked && self.rng.one_in(2)) || (self.faults.retry && self.rng.one_in(10)) {
            Ran::Stopped
        } else {
            Ran::Answered(RunAnswer::Done(Effects::put(envelope.version.to_string())), facts)
        };
        self.tell(n, Event::Ended(vec![ended(run, ran)]));
    }

    pub(super) fn step_renew(&mut self, n: usize) {
        let Some(fence) = self.nodes[n].fence.clone() else { return };
        let lease = Renew { keys: self.keys.clone(), fence: fence.clone(), answered: self.nodes[n].answered };
        let answer = self.model.renew(&[lease], TTL).remove(0);
        if self.faults.lost && self.rng.one_in(6) {
            return;
        }
        let wanted = self.faults.handover && self.rng.one_in(6);
        match answer {
            Renewed::Ok { changes, due, .. } => {
                self.nodes[n].trusted_until = self.now + TRUST;
                self.tell(n, Event::Renewed { wanted, changes, due });
                if self.nodes[n].pauses != self.pauses {
                    let pauses = self.pauses.clone();
                    self.nodes[n].pauses = pauses.clone();
                    self.tell(n, Event::Pauses(pauses));
                }
            }
            Renewed::Refused(Refusal::Gap { .. }) => self.tell(n, Event::Lost(End::Gap)),
            Renewed::Refused(_) => self.tell(n, Event::Lost(End::Fenced)),
        }
    }
}
