//! What a tenure learns beside its claims: jobs that came back from the dead, keys that wait for a person, what people ask
//! of jobs that wait, and whether Redis holds what the lanes hold.

use super::{Action, End, Event, Now, Outbox, Phase, Tenure};
use gristmill_broker::census::Census;
use gristmill_broker::take::Taken;
use gristmill_broker::{Call, Entry};
use gristmill_job::Key;
use std::collections::HashSet;
use std::time::Instant;

/// Jobs that came back, per slice.
const TAKE_JOBS: usize = 100;
/// Heads that wait and are read again at a time, after a person's act.
const READ_AGAIN: usize = 512;

/// How far the partition has been looked through.
#[derive(Debug, Default)]
pub(super) struct Looking {
    /// Jobs that came back until then are in the lanes.
    after: u64,
    /// Where the held keys go on.
    cursor: u64,
    /// The value of `changes` when this look began, and when it had read the held keys to their end.
    told: Option<u64>,
    until: Option<u64>,
    /// Held keys found so far, and the number of the call that began to look for them.
    held: HashSet<Key>,
    since: u64,
    /// The value of `changes` that the last whole look saw, and the highest that was heard of.
    seen: Option<u64>,
    heard: u64,
    under_way: bool,
    /// The lane from which heads are to be read again, and whether a person acted since that pass began: then it is made
    /// once more, but first to its end, so that the last lanes have their turn however often people act.
    read_again: Option<usize>,
    once_more: bool,
    next_census: Option<Instant>,
    cursors: (u64, u64),
    counting: bool,
}

impl Tenure {
    /// A renewal told how often people have acted.
    pub(super) fn heard(&mut self, changes: u64) {
        self.looking.heard = self.looking.heard.max(changes);
    }

    /// Looks through what lies beside the stream, where a person acted since the last look.
    pub(super) fn look(&mut self, actions: &mut Vec<Action>) {
        if !self.looking.under_way && self.looking.seen.is_none_or(|seen| seen < self.looking.heard) {
            self.looking.under_way = true;
            self.take(actions);
        }
        if let Some(from) = self.looking.read_again.take() {
            self.looking.read_again = self.lanes.read_again(from, READ_AGAIN);
            if self.looking.read_again.is_none() && std::mem::take(&mut self.looking.once_more) {
                self.looking.read_again = Some(0);
            }
        }
    }

    pub(super) fn take(&mut self, actions: &mut Vec<Action>) {
        let after = self.looking.after;
        let cursor = self.looking.until.is_none().then_some(self.looking.cursor);
        let count = TAKE_JOBS.min(self.jobs_per_answer());
        let number = self.send(Call::Take { after, count, cursor }, Vec::new(), actions);
        if self.looking.told.is_none() {
            self.looking.since = number;
        }
    }

    /// One slice of both. First the held keys are read to their end, then what came back until then: so no key goes on before
    /// what came back of it is in its lane, and a look ends however fast people act. What they did meanwhile is for the next.
    pub(super) fn taken(&mut self, taken: Taken, now: Now, actions: &mut Vec<Action>) {
        self.weigh(&taken.entries);
        self.look_for_cancels(&taken.entries);
        for entry in taken.entries {
            self.lanes.insert(entry, now.instant);
        }
        if self.phase != Phase::Taking {
            self.cancel_found(now, actions);
        }
        for (asked, line) in taken.asked {
            match self.phase {
                // The lanes may be half built; a run of an earlier tenure may be adopted.
                Phase::Taking => self.cancelling.found(asked, line),
                _ => self.cancel(asked, line, now, actions),
            }
        }
        let looking = &mut self.looking;
        looking.after = taken.last;
        let began = *looking.told.get_or_insert(taken.changes);
        if looking.until.is_none() {
            looking.held.extend(taken.held);
            looking.cursor = taken.cursor;
            if taken.cursor != 0 {
                return self.take(actions);
            }
            looking.until = Some(taken.changes);
        }
        if taken.more && looking.until.is_some_and(|until| looking.after < until) {
            return self.take(actions);
        }
        if taken.more_asked {
            return self.take(actions);
        }
        (looking.under_way, looking.told, looking.until) = (false, None, None);
        // At the first look nothing was in memory that could have been asked for since.
        if looking.seen.replace(began).is_some() {
            if looking.read_again.is_some() {
                looking.once_more = true;
            } else {
                looking.read_again = self.lanes.read_again(0, READ_AGAIN);
            }
        }
        looking.heard = looking.heard.max(taken.changes);
        let held = std::mem::take(&mut looking.held);
        self.lanes.set_held(held, now.instant);
        if self.phase == Phase::Taking {
            self.begin(now, actions);
        }
    }

    /// Everything is in the lanes: serves.
    fn begin(&mut self, now: Now, actions: &mut Vec<Action>) {
        self.phase = Phase::Serving;
        self.news = true;
        self.outbox = Outbox::News;
        self.promoting.look();
        self.adopt(now, actions);
        self.cancel_found(now, actions);
        if let Some(why) = self.yield_after.take() {
            self.give_up(why, now, actions);
        }
    }

    /// A dead letter was written that holds its key, by the call of this number. A look that began before it may have
    /// passed its key; one that began after it knows better, for a person may have let the key go.
    pub(super) fn holds(&mut self, number: u64, entry: &Entry, now: Now) {
        self.lanes.hold(&entry.key, now.instant);
        if self.looking.under_way && number > self.looking.since {
            self.looking.held.insert(entry.key.clone());
        }
    }

    /// Counts what the partition holds, now and then.
    pub(super) fn count(&mut self, now: Now, actions: &mut Vec<Action>) {
        let first = now.instant + self.bounds.census_every;
        let due = *self.looking.next_census.get_or_insert(first);
        if now.instant >= due && !self.looking.counting && !self.looking.under_way {
            self.looking.counting = true;
            self.send(Call::Census { cursors: self.looking.cursors }, Vec::new(), actions);
        }
    }

    /// What Redis holds for this tenure is in its lanes, or the tenure has lost sight of a job: then it ends, and the next
    /// finds it. Only where every call before was answered, so that both are counts of the same moment.
    pub(super) fn counted(
        &mut self,
        number: u64,
        census: Option<Census>,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        self.looking.counting = false;
        self.looking.next_census = Some(now.instant + self.bounds.census_every);
        let Some(census) = census else { return };
        self.looking.cursors = census.cursors;
        let repaired = census.holds_removed + census.lines_removed;
        if repaired > 0 {
            actions.push(Action::Repaired(repaired));
        }
        let known = u64::try_from(self.lanes.known() + self.withdrawn()).unwrap_or(u64::MAX);
        // What came back meanwhile is not in the lanes yet.
        let same = self.looking.seen == Some(census.changes) && !self.looking.under_way;
        if same && self.calls.all_behind(number) && known != census.claimed + census.returned {
            actions.push(Action::Repaired(1));
            self.end(End::Census, actions);
        }
    }
}

/// Whether an event is the beat of the slow looks.
pub(super) fn is_beat(event: &Event) -> bool {
    matches!(event, Event::Renewed { .. })
}
