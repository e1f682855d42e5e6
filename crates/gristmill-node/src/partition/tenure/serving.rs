//! What a tenure does while all is well: start, claim, listen, forward; and how it leaves.

use super::{Action, End, Now, Outbox, Phase, Tenure, Why};
use crate::partition::calls::Calls;
use crate::partition::lanes::weight;
use gristmill_broker::call::{MAX_BYTES_PER_CALL, MAX_JOBS_PER_CALL};
use gristmill_broker::{Call, Entry};
use gristmill_job::Place;
use std::time::{Duration, Instant};

/// How long a full window may stand still.
const LONG_FULL: Duration = Duration::from_millis(50);
/// Until it is looked again whether runs wait for a slot.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// Jobs of the first claim, and of the first slice of recover, of this process.
const FIRST_JOBS: usize = 8;

impl Tenure {
    /// Begins to leave: nothing starts, nothing is claimed, what has not started is withdrawn.
    pub(super) fn give_up(&mut self, why: Why, now: Now, actions: &mut Vec<Action>) {
        match self.phase {
            Phase::Idle => {}
            // A wish that comes while draining does not make a hand-over of it: that could be given up.
            Phase::Acquiring | Phase::Recovering { .. } | Phase::Taking
                if self.yield_after == Some(Why::Drain) => {}
            Phase::Acquiring | Phase::Recovering { .. } | Phase::Taking => self.yield_after = Some(why),
            Phase::Serving => {
                self.phase = Phase::Yielding { why, since: now.instant };
                actions.push(Action::Withdraw);
                self.listen(false, actions);
                self.ask_no_more(now, actions);
                if why == Why::Handover {
                    actions.push(Action::WakeAt(now.instant + self.bounds.handover_wait));
                }
            }
            Phase::Yielding { since, .. } if why == Why::Drain => self.phase = Phase::Yielding { why, since },
            Phase::Releasing { .. } if why == Why::Drain => self.phase = Phase::Releasing { why },
            Phase::Yielding { .. } | Phase::Releasing { .. } => {}
        }
    }

    pub(super) fn claimed(&mut self, call: &Call, entries: Vec<Entry>, now: Now) {
        self.claiming = false;
        self.short_tenures = 0;
        self.weigh(&entries);
        if let Call::Claim { count } = call {
            self.backlog = entries.len() >= *count;
            self.news |= self.backlog;
        }
        self.push(entries, now);
        self.rung = self.rung.filter(|place| *place > self.lanes.highest());
    }

    pub(super) fn serve(&mut self, now: Now, actions: &mut Vec<Action>) {
        self.lanes.wake_due(now.instant);
        self.reopen(now, actions);
        if self.lanes.has_ready() && now.trusted {
            self.start_heads(now, actions);
        }
        let most = self.jobs_per_answer();
        for (lane, places) in self.lanes.take_loads(most) {
            actions.push(Action::Load(lane, places));
        }
        if let Some(due) = self.lanes.next_due() {
            actions.push(Action::WakeAt(due));
        }
        if self.outbox == Outbox::News {
            self.outbox = Outbox::UnderWay { more: false };
            actions.push(Action::Forward);
        }
        let count = if self.pauses.queue() {
            0
        } else {
            self.make_room(now, actions);
            self.room()
        };
        if (self.news || self.rung.is_some()) && !self.claiming && count > 0 {
            self.claiming = true;
            (self.news, self.rung) = (false, None);
            self.send(Call::Claim { count }, Vec::new(), actions);
        }
        self.listen(count > 0 && !self.backlog, actions);
    }

    /// Where the window stays full and nothing of it ends, the jobs that wait behind slow ones of their keys are parked. While
    /// jobs end, they make room by themselves, and reading followers again would cost more, on a busy machine so much more that
    /// the window would not get ahead of its reads; while runs wait for a slot, other keys would only wait with them.
    fn make_room(&mut self, now: Now, actions: &mut Vec<Action>) {
        if self.room() > 0 || self.claiming {
            self.full_since = None;
            return;
        }
        let ends = self.settling_calls > 0 || !self.to_settle.is_empty();
        if now.waits || ends {
            self.full_since = None;
            actions.push(Action::WakeAt(now.instant + LOOK_AGAIN));
            return;
        }
        let since = *self.full_since.get_or_insert(now.instant);
        if now.instant >= since + LONG_FULL {
            self.full_since = None;
            self.lanes.park_followers();
            self.lanes.park_limited();
            self.news = true;
        } else {
            actions.push(Action::WakeAt(since + LONG_FULL));
        }
    }

    /// How many jobs may be claimed: none while the window is fuller than one claim leaves it worth while.
    pub(super) fn room(&self) -> usize {
        let each = self.job_bytes.unwrap_or(0).max(512);
        let jobs = self.bounds.window_jobs.saturating_sub(self.lanes.jobs());
        let bytes = self.bounds.window_bytes.saturating_sub(self.lanes.bytes()) / each;
        if self.lanes.parked() >= self.bounds.window_parked {
            return 0;
        }
        let room = jobs.min(bytes).min(self.bounds.claim_jobs);
        // An empty lane set may always take one job, however large.
        let least = if self.lanes.jobs() == 0 {
            1
        } else {
            let window = self.bounds.window_jobs.min(self.bounds.window_bytes / each);
            self.bounds.claim_jobs.min(window / 2).max(1)
        };
        let room = if room >= least { room } else { usize::from(self.lanes.jobs() == 0) };
        room.min(self.jobs_per_answer())
    }

    /// How many jobs one answer may carry: a claim or recover whose answer takes longer than the response timeout ends the
    /// tenure, and so would the next. A few, as long as nothing is known about their size.
    pub(super) fn jobs_per_answer(&self) -> usize {
        self.job_bytes.map_or(FIRST_JOBS, |each| (MAX_BYTES_PER_CALL / each.max(1)).max(1))
    }

    /// Remembers what a job weighs lately: quick to rise, slow to fall.
    pub(super) fn weigh(&mut self, entries: &[Entry]) {
        if !entries.is_empty() {
            let each = entries.iter().map(weight).sum::<usize>() / entries.len();
            self.job_bytes = Some(self.job_bytes.map_or(each, |before| each.max((before * 7 + each) / 8)));
        }
    }

    pub(super) fn listen(&mut self, on: bool, actions: &mut Vec<Action>) {
        if on != self.listening {
            self.listening = on;
            actions.push(Action::Listen(on.then(|| self.lanes.highest())));
        }
    }

    pub(super) fn leave(&mut self, why: Why, since: Instant, now: Now, actions: &mut Vec<Action>) {
        let quiet = self.to_settle.is_empty() && self.to_mark.is_empty() && self.calls.is_empty();
        let runs = self.lanes.active() > 0 || !self.leftovers.is_empty();
        if !runs && quiet {
            self.release(why, actions);
        } else if why == Why::Handover && now.instant >= since + self.bounds.handover_wait && runs {
            // A run that takes long stops the hand-over, not the partition.
            self.phase = Phase::Serving;
            self.long_runs = self.lanes.running().map(|job| job.entry.place).collect();
            self.long_runs.extend(self.leftovers.values().map(|leftover| leftover.place));
            self.news = true;
            actions.push(Action::Hold(self.epoch));
            self.serve(now, actions);
        }
    }

    /// Hands back what is claimed and gives the partition up.
    pub(super) fn release(&mut self, why: Why, actions: &mut Vec<Action>) {
        let (places, mut stopped) = self.lanes.places();
        for chunk in places.chunks(MAX_JOBS_PER_CALL) {
            let stopped_here = stopped.min(chunk.len());
            stopped -= stopped_here;
            let call = Call::HandBack { places: chunk.to_vec(), claims: Vec::new(), stopped: stopped_here };
            self.send(call, Vec::new(), actions);
        }
        if !places.is_empty() {
            actions.push(Action::HandedBack(places.len()));
        }
        let unstarted = self.lanes.unstarted();
        if unstarted > 0 {
            actions.push(Action::Unstarted(unstarted));
        }
        self.phase = Phase::Releasing { why };
        self.send(Call::Release, Vec::new(), actions);
    }

    /// The last act before exit: lays everything down and releases, also what still runs (it cannot be stopped).
    pub(crate) fn abandon(&mut self, actions: &mut Vec<Action>) -> usize {
        let alive = self.leftovers.values().filter(|leftover| leftover.result.is_none()).count();
        let running = self.lanes.running().count() + alive;
        if matches!(self.phase, Phase::Serving | Phase::Yielding { .. }) {
            self.lanes.stop_running();
            self.release(Why::Drain, actions);
        }
        running
    }

    pub(super) fn done(&mut self, call: &Call, actions: &mut Vec<Action>) {
        match (call, self.phase) {
            (Call::Release, Phase::Releasing { why }) => {
                self.phase = Phase::Idle;
                let end = if why == Why::Drain { End::Drain } else { End::Handover };
                self.lanes.clear();
                self.calls = Calls::default();
                self.yield_after = None;
                actions.push(Action::Drop);
                actions.push(Action::Idle { end: Some(end), released: true });
            }
            (Call::Forward(_), _) => {
                self.outbox = match self.outbox {
                    Outbox::UnderWay { more: true } => Outbox::News,
                    _ => Outbox::Empty,
                };
            }
            _ => {}
        }
    }

    pub(super) fn forwarded(&mut self, ids: Vec<Place>, more: bool, actions: &mut Vec<Action>) {
        if !matches!(self.phase, Phase::Serving | Phase::Yielding { .. }) {
            return;
        }
        if ids.is_empty() {
            self.outbox = if more { Outbox::News } else { Outbox::Empty };
            return;
        }
        if let Outbox::UnderWay { more: before } = self.outbox {
            self.outbox = Outbox::UnderWay { more: before || more };
        }
        self.send(Call::Forward(ids), Vec::new(), actions);
    }
}
