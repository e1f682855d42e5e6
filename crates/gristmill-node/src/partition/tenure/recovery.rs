//! How a tenure begins and ends, and what outlives it: the one repair path for whatever is unknown.

use super::looking::Looking;
use super::promoting::Promoting;
use super::{Action, Became, End, Ended, Leftover, Now, Outbox, Phase, Ran, Settling, Tenure};
use crate::partition::calls::{Calls, OnAnswer};
use crate::partition::lanes::{LaneId, LaneJob};
use crate::worker::attempt::Attempt;
use gristmill_broker::{Call, Entry, Epoch, Settle, Verdict};
use gristmill_job::{Key, Place};
use gristmill_telemetry::tally::Outcome;
use std::sync::Arc;
use std::time::Duration;

/// Between tenures that end before anything was claimed, so that an error of Redis makes no hot loop.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

impl Tenure {
    pub(super) fn acquire(&mut self, actions: &mut Vec<Action>) {
        self.phase = Phase::Acquiring;
        let pause = match self.short_tenures {
            0 | 1 => Duration::ZERO,
            n => (FIRST_PAUSE * (1 << n.min(10))).min(LONGEST_PAUSE),
        };
        actions.push(Action::Acquire { highest: self.epoch, pause });
    }

    pub(super) fn acquired(&mut self, answer: Result<Epoch, ()>, now: Now, actions: &mut Vec<Action>) {
        if self.phase != Phase::Acquiring {
            return;
        }
        match answer {
            Ok(epoch) => {
                self.epoch = epoch;
                self.calls = Calls::default();
                self.looking = Looking::default();
                self.promoting = Promoting::default();
                self.forget_cancels();
                self.phase = Phase::Recovering { cursor: Place::ZERO };
                actions.push(Action::Hold(epoch));
            }
            Err(()) => {
                self.phase = Phase::Idle;
                self.yield_after = None;
                // Nobody will ask for them, and one may hold the process closed.
                self.drop_results(now, actions);
                actions.push(Action::Idle { end: None, released: false });
            }
        }
    }

    /// Ends the tenure and begins the next: drop the lanes, acquire again.
    pub(super) fn end(&mut self, end: End, actions: &mut Vec<Action>) {
        self.short_tenures = self.short_tenures.saturating_add(1);
        let leaving = match self.phase {
            Phase::Yielding { why, .. } | Phase::Releasing { why } => Some(why),
            _ => self.yield_after,
        };
        self.alone_at_the_end(actions);
        let left_over = |job: &LaneJob| {
            let entry = job.entry.clone();
            Leftover {
                place: entry.place,
                turn: job.turn(),
                acknowledged: job.acknowledged,
                result: None,
                attempt: None,
                entry,
            }
        };
        let leftovers: Vec<Leftover> = self.lanes.running().map(left_over).collect();
        // The verdict on a run that was given up comes behind the run itself, which lives.
        let judged =
            self.judged().into_iter().filter(|judged| !self.leftovers.contains_key(&judged.entry.key));
        for leftover in leftovers.into_iter().chain(judged.collect::<Vec<_>>()) {
            self.lanes.block(leftover.entry.key.clone());
            self.leftovers.insert(leftover.entry.key.clone(), leftover);
        }
        let unstarted = self.lanes.unstarted();
        if unstarted > 0 {
            actions.push(Action::Unstarted(unstarted));
        }
        let not_begun = self.lanes.not_begun().map(|job| (job.entry.key.clone(), job.entry.place));
        self.not_begun.extend(not_begun);
        self.lanes.clear();

        let unsettled = self.to_settle.drain(..).filter_map(|settling| settling.attempt);
        lost(unsettled.chain(self.calls.take_attempts()), actions);
        self.to_mark.clear();
        self.wait_no_more();
        self.calls = Calls::default();
        (self.news, self.rung, self.claiming, self.settling_calls) = (false, None, false, 0);
        self.outbox = Outbox::Empty;
        (self.backlog, self.full_since) = (false, None);
        self.long_runs.clear();
        self.listen(false, actions);
        actions.push(Action::Drop);
        actions.push(Action::Ended(end));
        self.yield_after = leaving;
        self.acquire(actions);
    }

    /// Verdicts whose settle was not answered. Where it took effect, the job is gone or at another turn; else they still hold.
    fn judged(&self) -> Vec<Leftover> {
        let mut judged: Vec<(&Arc<Entry>, &Settle)> = Vec::new();
        for sent in self.calls.under_way() {
            let Call::Settle(settles) = &*sent.call else { continue };
            // What is in no lane is found again by what is asked of it.
            let runs_yet = |on_answer: &&OnAnswer| on_answer.slot.is_none() && on_answer.lane != LaneId::NONE;
            judged.extend(
                sent.lanes.iter().zip(settles).filter(|(on, _)| runs_yet(on)).map(|(on, s)| (&on.entry, s)),
            );
        }
        let in_lane = |settling: &&Settling| settling.acknowledges.is_none() && settling.lane != LaneId::NONE;
        let waiting = self.to_settle.iter().filter(in_lane);
        judged.extend(waiting.map(|settling| (&settling.entry, &settling.settle)));
        let left_over = |(entry, settle): (&Arc<Entry>, &Settle)| Leftover {
            place: settle.place,
            turn: settle.turn,
            acknowledged: matches!(settle.verdict, Verdict::Dead { acknowledged: true, .. }),
            result: Some(Ran::Judged(Box::new(settle.clone()))),
            attempt: None,
            entry: entry.clone(),
        };
        judged.into_iter().map(left_over).collect()
    }

    pub(super) fn recovered_slice(&mut self, entries: Vec<Entry>, next: Place, now: Now) {
        self.weigh(&entries);
        self.look_for_cancels(&entries);
        // Slices come in order of place.
        self.push(entries, now);
        if next != Place::ZERO {
            self.phase = Phase::Recovering { cursor: next };
            return;
        }
        self.phase = Phase::Taking;
    }

    pub(super) fn push(&mut self, entries: Vec<Entry>, now: Now) {
        for entry in entries {
            self.lanes.push(entry, now.instant);
        }
    }

    /// A run of an earlier tenure has ended, and nothing is made of it: its key is free.
    pub(super) fn drop_leftover(&mut self, key: &Key, now: Now, actions: &mut Vec<Action>) {
        let Some(leftover) = self.leftovers.get_mut(key) else { return };
        let place = leftover.place;
        lost(leftover.attempt.take(), actions);
        // One that was given up lives, and is told once more when it has ended.
        if !matches!(leftover.result.take(), Some(Ran::Hung(..))) {
            self.leftovers.remove(key);
            self.lanes.unblock(key, now.instant);
        }
        self.alone_over(place, actions);
    }

    /// Takes over runs and results of earlier tenures whose jobs stand exactly where they stood.
    pub(super) fn adopt(&mut self, now: Now, actions: &mut Vec<Action>) {
        for (key, place) in std::mem::take(&mut self.not_begun) {
            let head = self.lanes.find(&key).and_then(|lane| self.lanes.head_mut(lane));
            if let Some(job) = head.filter(|job| job.entry.place == place) {
                job.not_interrupted();
            }
        }
        // Redis knows these no more; whatever is not well with them can still be told.
        for leftover in self.leftovers.values().filter(|leftover| leftover.acknowledged) {
            self.lanes.seat_again((*leftover.entry).clone(), now.instant);
        }
        let mut adopted = Vec::new();
        for (key, leftover) in &self.leftovers {
            let Some(lane) = self.lanes.find(key) else { continue };
            let stands = self.lanes.head_of(lane);
            if stands.is_some_and(|job| job.entry.place == leftover.place && job.turn() == leftover.turn) {
                if let Some(job) = self.lanes.head_mut(lane) {
                    job.not_interrupted();
                }
                self.lanes.adopt(lane);
                self.lanes.unblock(key, now.instant);
                adopted.push((key.clone(), lane));
            }
        }
        for (key, lane) in adopted {
            let finished = self.leftovers.get_mut(&key).and_then(|leftover| leftover.result.take());
            if let Some(ran) = finished
                && let Some(leftover) = self.leftovers.remove(&key)
            {
                let Leftover { entry, turn, attempt, .. } = leftover;
                let run = Ended { epoch: self.epoch, lane, entry, turn, ran, attempt };
                self.ended(run, now, actions);
            }
        }
        self.drop_results(now, actions);
    }

    /// A result that fits no head is dropped, and its key is free.
    fn drop_results(&mut self, now: Now, actions: &mut Vec<Action>) {
        let free: Vec<Key> =
            self.leftovers.iter().filter(|(_, l)| l.result.is_some()).map(|(key, _)| key.clone()).collect();
        for key in free {
            self.drop_leftover(&key, now, actions);
        }
    }
}

/// The results of these runs are not known to be written.
pub(super) fn lost(attempts: impl IntoIterator<Item = Attempt>, actions: &mut Vec<Action>) {
    let lost: Vec<(Attempt, Became)> =
        attempts.into_iter().map(|attempt| (attempt, (Outcome::Lost, None))).collect();
    if !lost.is_empty() {
        actions.push(Action::Ran(lost));
    }
}
