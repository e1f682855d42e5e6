//! From a reason to claim to jobs: slots first, then a grab, or a slice of what is over.

use super::{AGAIN, Machine, Phase};
use crate::competing::events::{Action, Now, Which};
use crate::worker::grant::Grant;
use crate::worker::slot::Slot;
use gristmill_broker::call::MAX_BYTES_PER_CALL;
use gristmill_broker::grab::Grabbed;
use gristmill_broker::reclaim::{Reclaim, Reclaimed};
use gristmill_broker::{CallError, Entry};
use gristmill_job::Place;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Slots that are asked for while nothing is known about what comes.
const FIRST_JOBS: usize = 8;
/// Between two looks for what nobody rang for: what was handed back, or a bell that was missed.
const LOOK: Duration = Duration::from_secs(2);
/// Looks for claims that are over, in a visibility timeout.
const SCANS: u32 = 2;
/// Until a queue that is made otherwise than this node was told is looked at again.
const DIFFERS_WAIT: Duration = Duration::from_secs(5);

/// A call that claims; one at a time.
#[derive(Debug)]
enum UnderWay {
    Grab(Grant),
    /// The cursor, and the slots; none where it only looks.
    Reclaim(Place, Option<Grant>),
}

#[derive(Debug)]
pub(super) struct Claiming {
    /// Slots are asked for.
    asked: bool,
    under_way: Option<(u64, UnderWay)>,
    /// Something may be there to claim.
    news: bool,
    /// The last grab got as many as it asked for: the next one asks for what is new alone, until the next look.
    backlog: bool,
    /// How many jobs are asked for next.
    wish: usize,
    /// What a job has weighed lately, in bytes.
    job_bytes: usize,
    /// The last place that anybody claimed, as far as is known.
    delivered: Place,
    listening: Option<Place>,
    look_at: Instant,
    /// Nothing is claimed before then: Redis did not take the last call.
    pause_until: Option<Instant>,
    settle_from: Option<Instant>,
    /// The next look for claims that are over.
    scan_at: Instant,
    /// Where this one goes on.
    scan: Option<Place>,
    /// Claims are over at its cursor: it goes on with slots.
    over: bool,
    worst: Duration,
    making: bool,
}

impl Claiming {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            asked: false,
            under_way: None,
            news: true,
            backlog: false,
            wish: FIRST_JOBS,
            job_bytes: 0,
            delivered: Place::ZERO,
            listening: None,
            look_at: now + LOOK,
            pause_until: None,
            settle_from: None,
            scan_at: now,
            scan: None,
            over: false,
            worst: Duration::ZERO,
            making: false,
        }
    }

    pub(super) fn rung(&mut self, place: Place) {
        self.news |= place > self.delivered;
    }

    /// Something may be there.
    pub(super) fn look(&mut self) {
        self.news = true;
    }

    /// Settles wait until then.
    pub(super) fn settle_from(&mut self, at: Instant, actions: &mut Vec<Action>) {
        self.settle_from = Some(at);
        actions.push(Action::WakeAt(at));
    }

    pub(super) fn may_settle(&mut self, now: Instant) -> bool {
        self.settle_from = self.settle_from.filter(|at| *at > now);
        self.settle_from.is_none()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_none()
    }

    /// Whether slots were asked for; they are not any more.
    pub(super) fn stop_asking(&mut self) -> bool {
        std::mem::take(&mut self.asked)
    }

    fn weigh(&mut self, entries: &[Entry]) {
        if !entries.is_empty() {
            let bytes = |entry: &Entry| entry.envelope.len() + entry.key.as_bytes().len() + 64;
            let each = entries.iter().map(bytes).sum::<usize>() / entries.len();
            self.job_bytes = each.max((self.job_bytes * 7 + each) / 8);
        }
    }

    fn most(&self, claim_jobs: usize) -> usize {
        (MAX_BYTES_PER_CALL / self.job_bytes.max(1)).clamp(1, claim_jobs.max(1))
    }

    fn pause(&mut self, pause: Duration, now: Now<'_>) {
        self.pause_until = Some(now.instant + around(pause, now.random));
    }
}

/// About this time: a quarter less or more, so that nodes do not move in step.
pub(super) fn around(time: Duration, random: f64) -> Duration {
    time.mul_f64(0.75 + random / 2.0)
}

impl Machine {
    /// Asks for slots where there is a reason to claim, looks for what is over, and listens meanwhile.
    pub(super) fn claim(&mut self, now: Now<'_>, actions: &mut Vec<Action>) {
        let instant = now.instant;
        if self.pauses.as_ref().is_none_or(|pauses| pauses.queue()) {
            if self.claiming.stop_asking() {
                actions.push(Action::Ask(0));
            }
            return;
        }
        let claiming = &mut self.claiming;
        claiming.pause_until = claiming.pause_until.filter(|at| *at > instant);
        if let Some(until) = claiming.pause_until {
            actions.push(Action::WakeAt(until));
            return;
        }
        // One that waits for slots for long begins anew: what it waits for may be another's by now.
        let may_scan = claiming.scan.is_none() || claiming.over;
        if instant >= claiming.scan_at && claiming.under_way.is_none() && may_scan {
            self.scan(Place::ZERO, now, actions);
        }
        let claiming = &mut self.claiming;
        let wants = claiming.news || claiming.over || instant >= claiming.look_at;
        if wants && !claiming.asked && claiming.under_way.is_none() {
            claiming.asked = true;
            actions.push(Action::Ask(claiming.wish.min(claiming.most(self.bounds.claim_jobs))));
        }
        if claiming.listening != Some(claiming.delivered) {
            claiming.listening = Some(claiming.delivered);
            actions.push(Action::Listen(claiming.listening));
        }
        if claiming.under_way.is_none() {
            let next = if claiming.asked { claiming.scan_at } else { claiming.look_at.min(claiming.scan_at) };
            actions.push(Action::WakeAt(next));
        }
    }

    fn scan(&mut self, cursor: Place, now: Now<'_>, actions: &mut Vec<Action>) {
        let timeout = self.bounds.visibility_timeout;
        let claiming = &mut self.claiming;
        if cursor == Place::ZERO {
            claiming.scan_at = now.instant + around(timeout / SCANS, now.random);
            claiming.worst = Duration::ZERO;
        }
        (claiming.scan, claiming.over) = (Some(cursor), false);
        self.reclaim(cursor, None, actions);
    }

    fn reclaim(&mut self, cursor: Place, grant: Option<Grant>, actions: &mut Vec<Action>) {
        let count = grant.as_ref().map_or(0, |grant| grant.slots.len());
        let reclaim = Reclaim { timeout: self.bounds.visibility_timeout, cursor, count };
        self.last_call += 1;
        self.claiming.under_way = Some((self.last_call, UnderWay::Reclaim(cursor, grant)));
        actions.push(Action::Reclaim(self.last_call, reclaim));
    }

    /// Slots came: they are used at once, or given back.
    pub(super) fn granted(&mut self, mut grant: Grant, now: Now<'_>, actions: &mut Vec<Action>) {
        let claiming = &mut self.claiming;
        claiming.asked = false;
        let free = self.phase == Phase::Serving
            && self.pauses.as_ref().is_some_and(|pauses| !pauses.queue())
            && claiming.under_way.is_none()
            && claiming.pause_until.is_none_or(|at| at <= now.instant);
        if !free || grant.slots.is_empty() {
            return;
        }
        grant.slots.truncate(claiming.most(self.bounds.claim_jobs));
        if let (true, Some(cursor)) = (claiming.over, claiming.scan) {
            claiming.over = false;
            return self.reclaim(cursor, Some(grant), actions);
        }
        claiming.news = false;
        let which = if claiming.backlog && now.instant < claiming.look_at { Which::New } else { Which::All };
        if which == Which::All {
            claiming.look_at = now.instant + around(LOOK, now.random);
        }
        self.last_call += 1;
        actions.push(Action::Grab(self.last_call, grant.slots.len(), which));
        claiming.under_way = Some((self.last_call, UnderWay::Grab(grant)));
    }

    pub(super) fn grabbed(
        &mut self,
        call: u64,
        result: Result<Grabbed, CallError>,
        now: Now<'_>,
        actions: &mut Vec<Action>,
    ) {
        let under_way = self.claiming.under_way.take_if(|(number, _)| *number == call);
        let Some((_, UnderWay::Grab(Grant { slots, .. }))) = under_way else { return };
        match result {
            Ok(Grabbed::Jobs { entries, delivered, next_due, .. }) => {
                if let Some(due) = next_due {
                    self.is_due(due, now);
                }
                let (came, asked) = (entries.len(), slots.len());
                let claiming = &mut self.claiming;
                claiming.weigh(&entries);
                let highest = entries.iter().map(|entry| entry.place).max();
                claiming.delivered = claiming.delivered.max(highest.max(delivered).unwrap_or(Place::ZERO));
                claiming.backlog = came >= asked;
                claiming.news |= claiming.backlog;
                // How many were granted says how busy the node is, not how much is there.
                let more = claiming.wish.max(2 * asked);
                claiming.wish = if came >= asked { more } else { (2 * came).max(FIRST_JOBS) };
                self.take_in(entries, slots, now, actions);
            }
            Ok(Grabbed::Differs(mode)) => self.differs(mode, now, actions),
            Err(error) => self.not_claimed(&error, now, actions),
        }
    }

    pub(super) fn reclaimed(
        &mut self,
        call: u64,
        result: Result<Reclaimed, CallError>,
        now: Now<'_>,
        actions: &mut Vec<Action>,
    ) {
        let under_way = self.claiming.under_way.take_if(|(number, _)| *number == call);
        let Some((_, UnderWay::Reclaim(cursor, grant))) = under_way else { return };
        let slots = grant.map(|grant| grant.slots).unwrap_or_default();
        let (entries, next, left, worst, outbox) = match result {
            Ok(Reclaimed::Slice { entries, next, left, worst, outbox, .. }) => {
                (entries, next, left, worst, outbox)
            }
            Ok(Reclaimed::Differs(mode)) => return self.differs(mode, now, actions),
            Err(error) => {
                self.claiming.scan = None;
                return self.not_claimed(&error, now, actions);
            }
        };
        let looked = slots.is_empty();
        if !entries.is_empty() {
            actions.push(Action::Recovered(entries.len()));
        }
        self.claiming.weigh(&entries);
        self.take_in(entries, slots, now, actions);
        // Of a node that died before it had forwarded them.
        if outbox > 0 {
            self.outbox.news();
        }
        let claiming = &mut self.claiming;
        if left > 0 {
            claiming.worst = claiming.worst.max(worst);
        }
        if left > 0 && looked && self.phase == Phase::Serving {
            // What is over here is taken with slots, however long they take.
            claiming.over = true;
            actions.push(Action::Over(claiming.worst));
        } else if next > cursor && self.phase == Phase::Serving {
            self.scan(next, now, actions);
        } else {
            claiming.scan = None;
            actions.push(Action::Over(std::mem::take(&mut claiming.worst)));
        }
    }

    /// Each with its slot; what slots are left over are given back here.
    fn take_in(
        &mut self,
        entries: Vec<Entry>,
        slots: Vec<Arc<Slot>>,
        now: Now<'_>,
        actions: &mut Vec<Action>,
    ) {
        let mut slots = slots.into_iter();
        for entry in entries {
            self.arrived(entry, slots.next(), now, actions);
        }
        drop(slots);
        self.flush_starts(now, actions);
    }

    fn differs(&mut self, mode: String, now: Now<'_>, actions: &mut Vec<Action>) {
        (self.claiming.scan, self.claiming.over) = (None, false);
        if mode.is_empty() {
            return self.make(now, actions);
        }
        self.claiming.pause(DIFFERS_WAIT, now);
        actions.push(Action::Differs(mode));
    }

    fn not_claimed(&mut self, error: &CallError, now: Now<'_>, actions: &mut Vec<Action>) {
        self.claiming.over = false;
        if matches!(error, CallError::NoGroup(_)) {
            return self.make(now, actions);
        }
        self.claiming.news = true;
        self.claiming.pause(AGAIN, now);
    }

    /// Its stream or its group is gone, by a flush or by hand: made anew, by whoever meets it.
    pub(super) fn make(&mut self, now: Now<'_>, actions: &mut Vec<Action>) {
        if !std::mem::replace(&mut self.claiming.making, true) {
            actions.push(Action::Make);
        }
        self.claiming.pause(AGAIN, now);
    }

    pub(super) fn made(&mut self, made: bool, now: Now<'_>) {
        let claiming = &mut self.claiming;
        claiming.making = false;
        // A stream that was made anew may begin its places anew.
        (claiming.delivered, claiming.news, claiming.pause_until) = (Place::ZERO, true, None);
        if !made {
            claiming.pause(AGAIN, now);
        }
    }
}
