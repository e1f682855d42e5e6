//! Jobs of limited kinds: they ask before they start, in a slot of the node. See [`crate::limits`].
//!
//! ```text
//!   claimed, with a slot ──▶ may ask? ──▶ asks ──let in──▶ starts
//!        its slot serves another │ no        │ no
//!                                ▼           ▼
//!               Limited: waits here, its claim is extended ──its turn──▶ asks, in a slot of its own
//!                                │ more than the node has free slots, paused, cancelled
//!                                ▼
//!               put back, uncharged, until about its turn
//! ```
//!
//! A few wait at the node, so that a slot of the limit that is freed is used at once. They wait only as long as the node has a free
//! slot for each of them: one that runs jobs of other kinds in all its slots keeps no job from a node that idles.

use super::{Held, Machine, Phase, Settling, Stage};
use crate::competing::events::{Action, Now};
use crate::limits::gate::Gate;
use crate::limits::permit::Permit;
use crate::limits::turns::Turns;
use crate::partition::lanes::{LaneId, LaneJob};
use crate::partition::tenure::{Asking, First, Next, Run};
use crate::worker::slot::Slot;
use gristmill_broker::Epoch;
use gristmill_broker::admit::Admitted;
use gristmill_broker::limit::SlotName;
use gristmill_job::Place;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After so long, up to doubled by the dice, a paused job is looked at again, …
const PAUSED: Duration = Duration::from_secs(2);
/// … one so long behind the other, since each is a write; all within this time.
const PAUSED_APART: Duration = Duration::from_millis(5);
const PAUSED_LONGEST: Duration = Duration::from_secs(30);
/// How long a job waits that a younger epoch has overtaken: its claim is about to be lost.
const OVERTAKEN: Duration = Duration::from_secs(1);
/// So long there may be no slot for what waits here: longer than a node is busy that has room again and again.
const BUSY: Duration = Duration::from_millis(250);
/// Of a kind, most that wait at a node, and so many where fewer run at a time.
const MOST: usize = 64;
const FEW: usize = 8;

/// What there is of limits in a partition.
#[derive(Debug, Default)]
pub(super) struct Limited {
    /// Jobs that wait, by kind, in turn.
    waiting: BTreeMap<&'static str, (Arc<Gate>, VecDeque<Place>)>,
    /// Runs that wait for a slot of the node, and since when.
    queued: BTreeMap<Place, Instant>,
    /// Since when more wait than there are slots.
    crowded_since: Option<Instant>,
    paused: Turns,
}

impl Limited {
    /// A run without a slot was given to the workers.
    pub(super) fn queued(&mut self, place: Place, now: Instant) {
        self.queued.insert(place, now);
    }

    /// It was pulled, or came back.
    pub(super) fn pulled(&mut self, place: Place) {
        self.queued.remove(&place);
    }
}

/// Most jobs of a kind that wait at this node.
fn most(gate: &Gate, free_slots: usize) -> usize {
    let running = gate.limit.max_running.map_or(MOST, |most| usize::try_from(most).unwrap_or(MOST));
    running.saturating_mul(2).clamp(FEW, MOST).min(free_slots)
}

impl Machine {
    /// The gate that this job has to pass, if any.
    pub(super) fn gate_of(&self, job: &LaneJob) -> Option<Arc<Gate>> {
        // A person's word waits for no limit: it is settled without a run.
        if job.acknowledged || job.entry.state.line().is_some_and(|line| line.request.is_some()) {
            return None;
        }
        self.bounds.policy.limits.of(&job.entry.envelope).cloned()
    }

    /// A job of a limited kind: it asks, waits, or is put back. `first`: it has had its turn, or may have begun before.
    pub(super) fn limit(
        &mut self,
        (gate, job): (Arc<Gate>, LaneJob),
        slot: Option<Arc<Slot>>,
        first: bool,
        now: Now<'_>,
        actions: &mut Vec<Action>,
    ) {
        let others = self.limited.waiting.get(gate.kind).is_some_and(|(_, waiting)| !waiting.is_empty());
        if others && !first {
            // It waits without a slot.
            drop(slot);
            return self.wait_for(&gate, job, false, now);
        }
        let place = job.entry.place;
        let name = SlotName { partition: self.partition, place };
        // By the clock of Redis, about: whoever claims it later asks in a younger epoch.
        match (gate.enter(name, Epoch(now.redis.0), &job.entry.id, now.instant), slot) {
            (Ok(permit), Some(slot)) => self.ask_limit(job, (slot, permit), actions),
            (Ok(permit), None) => {
                let run = Run { first: Some(First::Admit(Next::Run)), ..self.run(&job, None) };
                self.starts.push(run);
                self.limited.queued(place, now.instant);
                let permit = Some(permit);
                self.held.insert(place, Held { job, stage: Stage::Running, permit, cancelled: false });
            }
            (Err(_), slot) => {
                drop(slot);
                self.wait_for(&gate, job, first, now);
            }
        }
    }

    /// Waits at this node, or is put back where enough wait.
    fn wait_for(&mut self, gate: &Arc<Gate>, job: LaneJob, first: bool, now: Now<'_>) {
        let place = job.entry.place;
        if !first && gate.waiting() >= most(gate, (now.free_slots)()) {
            let wait = gate.comes_again(now.instant);
            return self.put_off(job, wait, now);
        }
        let (_, waiting) =
            self.limited.waiting.entry(gate.kind).or_insert_with(|| (gate.clone(), VecDeque::new()));
        match first {
            true => waiting.push_front(place),
            false => waiting.push_back(place),
        }
        gate.waits(self.partition, waiting.len());
        self.held.insert(place, Held { job, stage: Stage::Limited, permit: None, cancelled: false });
    }

    /// It may not start now: put back, uncharged.
    pub(super) fn put_off(&mut self, job: LaneJob, wait: Duration, now: Now<'_>) {
        let place = job.entry.place;
        let settle = self.judge(now).paused(&job, wait);
        self.to_settle.push(Settling::of(job.entry.clone(), settle));
        self.held.insert(place, Held { job, stage: Stage::Settling, permit: None, cancelled: false });
    }

    /// It is paused, or its key or kind is.
    pub(super) fn put_off_paused(&mut self, job: LaneJob, now: Now<'_>) {
        let least = PAUSED.mul_f64(1.0 + now.random);
        let wait = self.limited.paused.next(least, PAUSED_APART, |_| PAUSED_LONGEST, now.instant);
        self.put_off(job, wait, now);
    }

    fn ask_limit(
        &mut self,
        job: LaneJob,
        (slot, permit): (Arc<Slot>, Arc<Permit>),
        actions: &mut Vec<Action>,
    ) {
        let (entry, turn) = (job.entry.clone(), job.turn());
        let permit_of = Some(permit.clone());
        self.held
            .insert(entry.place, Held { job, stage: Stage::Marking, permit: permit_of, cancelled: false });
        let (lane, next) = (LaneId::NONE, Next::Run);
        self.asking += 1;
        actions.push(Action::Admit(vec![Asking { lane, entry, turn, next, slot, permit }]));
    }

    /// The run of one that waited holds a slot of the node now.
    pub(super) fn asks_limit(&mut self, place: Place, slot: Arc<Slot>, actions: &mut Vec<Action>) {
        let Some(held) = self.held.remove(&place) else { return };
        match held.permit.clone() {
            Some(permit) => self.ask_limit(held.job, (slot, permit), actions),
            None => drop(self.held.insert(place, held)),
        }
    }

    /// Redis said which may begin; nothing of those that got no answer.
    pub(super) fn admitted(
        &mut self,
        answers: Vec<(Asking, Option<Admitted>)>,
        now: Now<'_>,
        actions: &mut Vec<Action>,
    ) {
        for (asking, said) in answers {
            self.asking = self.asking.saturating_sub(1);
            let Asking { entry, turn, slot, permit, .. } = asking;
            let place = entry.place;
            let held = self.held.get(&place);
            let waits = held.is_some_and(|held| held.stage == Stage::Marking && held.job.turn() == turn);
            let Some(held) = self.held.remove(&place).filter(|_| waits) else { continue };
            if self.phase != Phase::Serving {
                self.held.insert(place, held);
                self.hand_back(place, false, actions);
                continue;
            }
            match said {
                Some(Admitted::Slot | Admitted::Passed) => {
                    slot.permitted(&permit);
                    self.start(held.job, Some(slot), Some(permit), now, actions);
                }
                Some(Admitted::Full(_) | Admitted::Until(_)) | None => {
                    // It waits without a slot.
                    drop(slot);
                    self.wait_for(&permit.gate, held.job, true, now);
                }
                Some(Admitted::KeyUntil(wait)) => {
                    let wait = permit.gate.comes_again_for(&held.job.entry.key, wait, now.instant);
                    self.put_off(held.job, wait, now);
                }
                Some(Admitted::Fenced) => self.put_off(held.job, OVERTAKEN, now),
            }
        }
        self.flush_starts(now, actions);
    }

    /// Those whose turn has come ask; those for which the node has no slot wait elsewhere.
    pub(super) fn reopen(&mut self, now: Now<'_>, actions: &mut Vec<Action>) {
        if self.limited.waiting.is_empty() && self.limited.queued.is_empty() {
            return;
        }
        let mut turns = Vec::new();
        let slots = (now.free_slots)().max(1);
        for (gate, waiting) in self.limited.waiting.values_mut() {
            waiting.retain(|place| self.held.get(place).is_some_and(|held| held.stage == Stage::Limited));
            if !waiting.is_empty() {
                match gate.room(self.partition, now.instant) {
                    Ok(room) => turns.extend(waiting.drain(..room.min(slots).min(waiting.len()))),
                    Err(at) => actions.push(Action::WakeAt(at)),
                }
            }
            gate.waits(self.partition, waiting.len());
        }
        for place in turns {
            let waits = self.held.remove(&place);
            if let Some(held) = waits {
                self.begin_again(held.job, now, actions);
            }
        }
        self.make_room(now, actions);
        self.limited.waiting.retain(|_, (_, waiting)| !waiting.is_empty());
        if !self.limited.waiting.is_empty() || !self.limited.queued.is_empty() {
            actions.push(Action::WakeAt(now.instant + BUSY));
        }
        self.flush_starts(now, actions);
    }

    /// More wait than the node has slots, for so long that it is not about to have them: others run them.
    fn make_room(&mut self, now: Now<'_>, actions: &mut Vec<Action>) {
        let slots = (now.free_slots)();
        let queued_since = self.limited.queued.values().min().copied();
        if queued_since.is_some_and(|since| slots == 0 && since + BUSY <= now.instant) {
            self.limited.queued.clear();
            actions.push(Action::Recall);
        }
        let waiting = |gate: &Gate| gate.waiting().saturating_sub(slots);
        let excess = self.limited.waiting.values().map(|(gate, _)| waiting(gate)).max().unwrap_or_default();
        if excess == 0 {
            self.limited.crowded_since = None;
            return;
        }
        if *self.limited.crowded_since.get_or_insert(now.instant) + BUSY > now.instant {
            return;
        }
        let mut leave = Vec::new();
        for (gate, waiting_here) in self.limited.waiting.values_mut() {
            let stay = waiting_here.len().saturating_sub(waiting(gate));
            leave.extend(waiting_here.drain(stay..).map(|place| (gate.clone(), place)));
            gate.waits(self.partition, stay);
        }
        for (gate, place) in leave {
            if let Some(held) = self.held.remove(&place) {
                let wait = gate.comes_again(now.instant);
                self.put_off(held.job, wait, now);
            }
        }
    }

    /// Something else is paused than before: what waits here and is stopped by it waits elsewhere.
    pub(super) fn heed_pauses(&mut self, now: Now<'_>) {
        let Some(pauses) = self.pauses.clone().filter(|pauses| !pauses.are_none()) else { return };
        let most = self.bounds.policy.max_envelope_bytes;
        let is_stopped = |held: &Held| {
            let entry = &held.job.entry;
            held.stage == Stage::Limited && pauses.stop(&entry.key, &entry.envelope, most)
        };
        let stopped = self.held.values().filter(|held| is_stopped(held));
        let places: Vec<Place> = stopped.map(|held| held.job.entry.place).collect();
        for place in places {
            if let Some(held) = self.held.remove(&place) {
                self.put_off_paused(held.job, now);
            }
        }
    }

    /// The node leaves: nothing waits here any more.
    pub(super) fn wait_no_more(&mut self) {
        self.limited.queued.clear();
        for (gate, _) in std::mem::take(&mut self.limited.waiting).into_values() {
            gate.waits(self.partition, 0);
        }
    }
}

#[cfg(test)]
#[path = "limiting_tests.rs"]
mod tests;
