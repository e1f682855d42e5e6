//! What may happen next in the world: one small step each, in any order.

use super::kinds::Seen;
use super::{Heard, JOBS, Request, SLOTS, World, ended};
use crate::competing::events::Event;
use crate::partition::pauses::Pauses;
use crate::partition::tenure::Ran;
use crate::worker::slot::Slot;
use gristmill_broker::pause::{Pause, Target};
use gristmill_broker::state::{Request as Asked, Said};
use gristmill_broker::{Call, CallError};
use gristmill_handler::{Answer as RunAnswer, Facts};
use gristmill_job::{Effects, ErrorClass, Failure, Place, UnixMillis};
use std::sync::Arc;

impl World {
    pub(super) fn answer(&mut self, n: usize, sent: u64, request: Request, heard: Option<Heard>) {
        let unknown = || CallError::Unknown;
        let at = self.at(sent);
        let claims = self.nodes[n].claims.clone();
        let event = match (request, heard) {
            (Request::Grab(call, ..), Some(Heard::Grabbed(grabbed))) => {
                if let gristmill_broker::grab::Grabbed::Jobs { entries, .. } = &grabbed {
                    claims.add(entries.iter().map(|entry| entry.place), at);
                }
                Event::Grabbed(call, Ok(grabbed))
            }
            (Request::Reclaim(call, _), Some(Heard::Reclaimed(reclaimed))) => {
                if let gristmill_broker::reclaim::Reclaimed::Slice { entries, .. } = &reclaimed {
                    claims.add(entries.iter().map(|entry| entry.place), at);
                }
                Event::Reclaimed(call, Ok(reclaimed))
            }
            (Request::Send(number, _), Some(Heard::Answer(answer))) => Event::Answered(number, Ok(answer)),
            (Request::Promote(_), Some(Heard::Promoted(promoted))) => Event::Promoted(Ok(promoted)),
            (Request::Extend(places), Some(Heard::Extended(lost, cancelled))) => {
                let lost = claims.extended(&places, &lost, at);
                self.tell(n, Event::Lost(lost));
                Event::Cancelled(cancelled)
            }
            (Request::Grab(call, ..), _) => Event::Grabbed(call, Err(unknown())),
            (Request::Reclaim(call, _), _) => Event::Reclaimed(call, Err(unknown())),
            (Request::Send(number, _), _) => Event::Answered(number, Err(unknown())),
            (Request::Promote(_), _) => Event::Promoted(Err(unknown())),
            (Request::Extend(_), _) => return,
        };
        self.tell(n, event);
    }

    fn begin(&mut self, n: usize) {
        if self.nodes[n].queued.is_empty() {
            return;
        }
        let at = usize::try_from(self.rng.below(self.nodes[n].queued.len() as u64)).unwrap();
        let run = self.nodes[n].queued.remove(at);
        let place = run.entry.place;
        let now = self.at(self.store.now);
        let trusted = run.acknowledged || self.nodes[n].claims.trusts(place, now);
        let let_in = run.slot.as_ref().is_none_or(|slot| slot.may_begin(now));
        if !trusted || !let_in || (self.faults && self.rng.one_in(15)) {
            return self.tell(n, ended(run, Ran::NotStarted));
        }
        if self.faults && self.rng.one_in(20) && !run.acknowledged && !run.reconcile {
            return self.tell(n, ended(run, Ran::Expired));
        }
        if run.first.is_some() {
            return self.asks_first(n, run);
        }
        let mine = run.acknowledged || self.store.owner(place) == Some(self.nodes[n].name.as_str());
        assert!(mine || self.ended_late.contains(&place), "it starts what it does not claim: {run:?}");
        assert!(run.slot.is_some() || run.alone, "a run without a slot: {run:?}");
        let asked = run.entry.state.line().and_then(|line| line.request.as_ref());
        assert!(run.reconcile || !asked.is_some_and(Asked::is_cancel), "cancelled, and tried again: {run:?}");
        assert!(!run.alone || self.nodes[n].running.is_empty(), "not alone: {run:?}");
        self.begins(n, &run);
        self.nodes[n].running.push(run);
        assert!(self.nodes[n].running.len() <= SLOTS, "more runs than slots");
    }

    fn end(&mut self, n: usize) {
        if self.nodes[n].running.is_empty() {
            return;
        }
        let at = usize::try_from(self.rng.below(self.nodes[n].running.len() as u64)).unwrap();
        let run = self.nodes[n].running.remove(at);
        let facts = Facts { version: 1, own_id: false, max_attempts: None, kind: None, options: None };
        let failed = |class| RunAnswer::Failed(Failure::new(class, vec!["x".into()]));
        let ran = match self.rng.below(8) {
            0..3 if run.reconcile => {
                self.found_undone(&run);
                Ran::Answered(RunAnswer::RunAgain, facts)
            }
            3 if run.reconcile => Ran::Answered(RunAnswer::Review("nobody knows".into()), facts),
            _ if !self.faults => Ran::Answered(RunAnswer::Done(Effects::default()), facts),
            0 | 1 => Ran::Answered(failed(ErrorClass::Transient), facts),
            2 => Ran::Answered(failed(ErrorClass::Permanent), facts),
            3 => Ran::Stopped,
            4 => Ran::Hung("it holds its thread".into(), facts),
            _ => Ran::Answered(RunAnswer::Done(Effects::default()), facts),
        };
        self.tell(n, ended(run, ran));
    }

    /// The heartbeat: what is not trusted is lost, and what is due is extended.
    fn beat(&mut self, n: usize) {
        let now = self.at(self.store.now);
        let stale = self.nodes[n].claims.distrust(now);
        if !stale.is_empty() {
            self.tell(n, Event::Lost(stale));
        }
        let due = self.nodes[n].claims.due(now);
        if !due.is_empty() {
            self.nodes[n].requests.push_front((self.store.now, Request::Extend(due)));
        }
    }

    fn fault(&mut self, n: usize) {
        match self.rng.below(7) {
            0 if self.kills < 6 => {
                self.kills += 1;
                self.revive(n);
            }
            1 => self.nodes[n].stopped = true,
            2 => self.store.now += 350,
            3 => self.tell(n, Event::Drain),
            4 => {
                let nth = self.rng.below(JOBS);
                self.store.cancel(nth);
            }
            5 => self.store.litter += 1,
            _ => {
                self.paused = !self.paused;
                self.hear_pauses();
            }
        }
    }

    fn hear_pauses(&mut self) {
        for n in 0..2 {
            let pause = Pause {
                target: Target::Queue,
                since: UnixMillis(self.store.now),
                until: None,
                said: Said::default(),
            };
            let all = if self.paused { vec![pause] } else { Vec::new() };
            self.tell(n, Event::Pauses(Arc::new(Pauses::of(&all))));
        }
    }

    /// The process is gone, or left; another starts.
    fn revive(&mut self, n: usize) {
        let fresh = self.fresh();
        let gone = std::mem::replace(&mut self.nodes[n], fresh);
        self.late.extend(gone.requests.into_iter().map(|(_, request)| (gone.name.clone(), request)));
        self.hear_pauses();
    }

    fn step(&mut self) {
        let n = usize::try_from(self.rng.below(2)).unwrap();
        if self.nodes[n].stopped {
            self.nodes[n].stopped = !self.rng.one_in(6);
            return;
        }
        if self.nodes[n].machine.has_left() {
            let name = self.nodes[n].name.clone();
            assert_eq!(self.free(n), SLOTS, "it left with slots");
            let late = self.late.iter().any(|(whose, _)| *whose == name);
            assert!(late || self.nodes[n].claims.due(self.at(self.store.now + 10_000)).is_empty());
            return self.revive(n);
        }
        match self.rng.below(11) {
            8 | 9 => self.step_limit(n),
            0 => {
                let count = self.nodes[n].asked.min(self.free(n));
                if count > 0 && self.nodes[n].alone.is_none() {
                    self.nodes[n].asked = 0;
                    let slots: Vec<Arc<Slot>> = (0..count).map(|_| Slot::none()).collect();
                    self.nodes[n].slots.extend(slots.iter().map(Arc::downgrade));
                    self.tell(n, Event::Granted(crate::worker::grant::Grant::of(slots)));
                }
            }
            1 | 2 => self.request(n),
            3 => self.begin(n),
            4 => self.end(n),
            5 | 6 => self.beat(n),
            7 => {
                self.step_alone(n);
                self.tell(n, Event::Tick);
            }
            _ => self.store.now += 1 + self.rng.below(20),
        }
    }

    fn execute_late(&mut self, me: &str, request: &Request) {
        let places: Vec<Place> = match request {
            Request::Send(_, call) => match &**call {
                Call::Settle(jobs) => jobs.iter().map(|job| job.place).collect(),
                _ => Vec::new(),
            },
            _ => Vec::new(),
        };
        self.ended_late.extend(places.into_iter().filter(|place| self.store.owner(*place) == Some(me)));
        self.execute(me, request);
    }

    pub(super) fn play(mut self) -> Seen {
        for _ in 0..1500 {
            self.step();
            if self.rng.one_in(40) {
                let n = usize::try_from(self.rng.below(2)).unwrap();
                self.fault(n);
            }
            if !self.late.is_empty() && self.rng.one_in(10) {
                let at = usize::try_from(self.rng.below(self.late.len() as u64)).unwrap();
                let (me, request) = self.late.remove(at);
                self.execute_late(&me, &request);
            }
        }
        (self.faults, self.paused) = (false, false);
        self.late.clear();
        self.hear_pauses();
        self.nodes.iter_mut().for_each(|node| node.stopped = false);
        let mut steps = 0;
        while !self.store.is_empty() && steps < 30_000 {
            self.step();
            steps += 1;
        }
        let tail = || self.log[self.log.len().saturating_sub(60)..].join("\n");
        assert!(self.store.is_empty(), "stuck: {}", tail());
        let once = self.store.ended.values().all(|ends| ends.len() == 1);
        assert!(once && self.store.ended.len() as u64 == JOBS, "{:?}\n{}", self.store.ended, tail());
        // Both leave, and hold nothing.
        for n in 0..2 {
            self.tell(n, Event::Drain);
            for _ in 0..30_000 {
                if self.nodes[n].machine.has_left() {
                    break;
                }
                self.step_of(n);
            }
            assert!(self.nodes[n].machine.has_left(), "it does not leave");
            assert_eq!(self.free(n), SLOTS, "slots are not given back");
            assert_eq!(self.store.claims_of(&self.nodes[n].name.clone()), 0);
        }
        self.nothing_is_limited();
        self.seen
    }

    /// Nothing runs, and no slot is taken: whoever asked to be alone may run.
    fn step_alone(&mut self, n: usize) {
        if let Some((place, false)) = self.nodes[n].alone
            && self.nodes[n].running.is_empty()
            && self.free(n) == SLOTS
        {
            self.nodes[n].alone = Some((place, true));
            self.tell(n, Event::Alone(place));
        }
    }

    fn step_of(&mut self, n: usize) {
        self.store.now += 5;
        self.beat(n);
        self.request(n);
        self.step_limit(n);
        self.begin(n);
        self.end(n);
        self.step_alone(n);
        self.tell(n, Event::Tick);
    }
}
