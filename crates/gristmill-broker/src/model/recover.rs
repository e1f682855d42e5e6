//! recover, take, start, absolve, census: as the scripts of these names. Everything that touches suspicion.

use super::claim::entry;
use super::lease::Guarded;
use super::partition::Partition;
use super::stream::{Over, TakenOver};
use crate::absolve::Absolved;
use crate::call::{Answer, Guard};
use crate::cancel::Asked;
use crate::census::Census;
use crate::entry::Entry;
use crate::fence::{Fence, Incarnation};
use crate::keys::HANDED_BACK;
use crate::start::{How, Marked, Start};
use crate::state::{Crash, StartMark, StateLine, Suspicion};
use crate::take::Taken;
use gristmill_job::{Key, Place, UnixMillis};
use std::collections::BTreeSet;

/// Jobs to be cancelled that are named per slice.
const MOST_ASKED: usize = 100;

/// A start mark of another incarnation without a settle; see `lua/state.lua`.
pub(super) fn found_marked(line: &mut StateLine, me: &Incarnation, now_ms: u64) -> bool {
    let Some(mark) = line.mark.take_if(|mark| mark.fence.incarnation != *me) else { return false };
    if mark.alone {
        line.crashes.push(Crash { fence: mark.fence, turn: line.turn, at: UnixMillis(now_ms) });
        line.suspicion = Suspicion::Strong;
    } else {
        line.suspicion = line.suspicion.raised();
    }
    line.interrupted = true;
    true
}

impl Partition {
    pub(super) fn recover(&mut self, now_ms: u64, guard: Guard<'_>, cursor: Place, count: usize) -> Answer {
        match self.guard(guard) {
            Guarded::Refused(refusal) => return Answer::Refused(refusal),
            Guarded::Already => return Answer::Already,
            Guarded::Fresh => {}
        }
        let me = &guard.fence.incarnation;
        let over = Over { timeout_ms: 0, cursor };
        let TakenOver { entries: taken, next, .. } =
            self.stream.take_over(now_ms, &guard.fence.consumer(), over, count);
        let (mut entries, mut known) = (Vec::with_capacity(taken.len()), BTreeSet::<Key>::new());
        for (place, job, holder) in taken {
            let mut line = self.state.get(&place).cloned().unwrap_or_default();
            let another = holder.rsplit_once('#').is_some_and(|(holder, _)| holder != me.as_str());
            let first = known.insert(job.key.clone());
            if found_marked(&mut line, me, now_ms) {
                self.write_state(place, line);
            } else if another && first && line.suspicion == Suspicion::None && line.mark.is_none() {
                self.write_state(place, StateLine { suspicion: Suspicion::Weak, ..line });
            }
            entries.push(entry(place, job, self.state_of(now_ms, place), holder != HANDED_BACK));
        }
        Answer::Recovered { entries, next }
    }

    pub(super) fn take(
        &mut self,
        now_ms: u64,
        guard: Guard<'_>,
        after: u64,
        count: usize,
        cursor: Option<u64>,
    ) -> Answer {
        match self.guard(guard) {
            Guarded::Refused(refusal) => return Answer::Refused(refusal),
            Guarded::Already => return Answer::Already,
            Guarded::Fresh => {}
        }
        let mut later: Vec<(u64, Place)> = self
            .returned
            .iter()
            .filter(|(_, (came_at, _))| *came_at > after)
            .map(|(place, (came_at, _))| (*came_at, *place))
            .collect();
        later.sort_unstable();
        later.truncate(count);
        let (mut entries, mut last) = (Vec::with_capacity(later.len()), after);
        for (came_at, place) in later {
            last = came_at;
            let mut line = self.state.get(&place).cloned().unwrap_or_default();
            if found_marked(&mut line, &guard.fence.incarnation, now_ms) {
                self.write_state(place, line);
            }
            let Some((_, job)) = self.returned.get(&place).cloned() else { continue };
            entries.push(Entry { returned: true, ..entry(place, job, self.state_of(now_ms, place), false) });
        }
        let more = entries.len() == count;
        let held = if cursor.is_some() { self.held.keys().cloned().collect() } else { Vec::new() };
        let named = self.asked.len().min(MOST_ASKED);
        let asked: Vec<Asked> = self.asked.drain(..named).collect();
        let lines = asked.into_iter().filter_map(|asked| {
            let line = self.state.get(&asked.place)?.clone();
            Some((asked, line))
        });
        let asked = lines.collect();
        let (changes, more_asked) = (self.lease.changes, !self.asked.is_empty());
        Answer::Taken(Taken { changes, entries, last, more, cursor: 0, held, asked, more_asked })
    }

    pub(super) fn start(&mut self, guard: Guard<'_>, starts: &[Start]) -> Answer {
        let fresh = match self.admit(guard) {
            Guarded::Refused(refusal) => return Answer::Refused(refusal),
            Guarded::Already => false,
            Guarded::Fresh => true,
        };
        let mut answers = Vec::with_capacity(starts.len());
        for start in starts {
            let line = self.state.get(&start.place).cloned().unwrap_or_default();
            if !self.is_claimed(guard, start.place) {
                answers.push(Marked::Gone);
                continue;
            }
            if line.turn != start.turn {
                answers.push(Marked::AtTurn(line.turn));
                continue;
            }
            if fresh {
                let interrupted = match start.how {
                    How::Beside | How::Alone => false,
                    How::Look | How::LookAlone | How::Not => line.interrupted,
                    How::Interrupted => true,
                };
                let mark = StartMark {
                    fence: guard.fence.clone(),
                    alone: matches!(start.how, How::Alone | How::LookAlone),
                };
                let mark = (!matches!(start.how, How::Not | How::Interrupted)).then_some(mark);
                self.write_state(start.place, StateLine { interrupted, mark, ..line });
            }
            answers.push(Marked::Started);
        }
        Answer::Started(answers)
    }

    pub(super) fn absolve(&mut self, run: &Fence, turn: u32, place: Place) -> Absolved {
        let mine = self.lease.owner == run.incarnation.as_str();
        let unchanged = if mine { Absolved::Mine } else { Absolved::Nothing };
        let Some(mut line) = self.state.get(&place).cloned() else { return unchanged };
        let marked = line.mark.take_if(|mark| !mine && mark.alone && mark.fence == *run).is_some();
        let charges = line.crashes.len();
        line.crashes.retain(|crash| (&crash.fence, crash.turn) != (run, turn));
        if !marked && line.crashes.len() == charges {
            return unchanged;
        }
        self.write_state(place, line);
        Absolved::Absolved
    }

    /// In one slice: the model's hashes are small.
    pub(super) fn census(&mut self, guard: Guard<'_>) -> Answer {
        match self.admit(guard) {
            Guarded::Refused(refusal) => return Answer::Refused(refusal),
            Guarded::Already => return Answer::Counted(None),
            Guarded::Fresh => {}
        }
        let (holds, lines) = (self.held.len(), self.state.len());
        let bodies = &self.dead_bodies;
        self.held.retain(|_, hold| bodies.contains_key(&hold.letter));
        let holds_removed = (holds - self.held.len()) as u64;
        self.lease.changes += u64::from(holds_removed > 0);
        let (returned, stream) = (&self.returned, &self.stream);
        self.state.retain(|place, _| {
            returned.contains_key(place) || stream.is_pending(*place) || stream.entries().contains_key(place)
        });
        Answer::Counted(Some(Census {
            claimed: self.stream.pending().len() as u64,
            returned: self.returned.len() as u64,
            cursors: (0, 0),
            holds_removed,
            lines_removed: (lines - self.state.len()) as u64,
            changes: self.lease.changes,
        }))
    }
}
