//! What each side was given, and its answers with that replaced by the order in which it was given.

use crate::both::clock;
use crate::plan::ACTORS;
use gristmill_broker::call::Answer;
use gristmill_broker::delayed::Member;
use gristmill_broker::lease::acquire::{Acquired, Before};
use gristmill_broker::promote::Promoted;
use gristmill_broker::state::{Request, Said};
use gristmill_broker::{Entry, Epoch, JobState, Settled, StateLine};
use gristmill_job::{Place, UnixMillis};
use std::time::Duration;

/// What each side was given, in the order it was given.
#[derive(Default)]
pub(crate) struct Given {
    pub(crate) places: Vec<Place>,
    epochs: Vec<Epoch>,
    pub(crate) before: [Before; ACTORS],
    pub(crate) cursors: [Place; ACTORS],
    pub(crate) taken: [u64; ACTORS],
    /// The members that the last promote of each named.
    pub(crate) due: [Vec<Member>; ACTORS],
}

impl Given {
    /// The same for both sides if it was given at the same step.
    pub(crate) fn place(&self, place: Place) -> Place {
        match self.places.iter().position(|known| *known == place) {
            Some(index) => Place { ms: 0, seq: index as u64 + 1 },
            None => place,
        }
    }

    pub(crate) fn epoch(&self, epoch: Epoch) -> Epoch {
        self.epochs.iter().position(|known| *known == epoch).map_or(epoch, |index| Epoch(index as u64 + 1))
    }

    /// The epoch that was given as this one in order.
    pub(crate) fn epoch_given(&self, order: Epoch) -> Epoch {
        let index = usize::try_from(order.0).unwrap_or_default().checked_sub(1);
        index.and_then(|index| self.epochs.get(index)).copied().unwrap_or(order)
    }

    /// An epoch that came by another way than acquire.
    pub(crate) fn give_epoch(&mut self, epoch: Epoch) {
        self.epochs.push(epoch);
    }

    /// `waiting <place>` and `incarnation#epoch` with what was given replaced by its order.
    pub(crate) fn text(&self, text: &str) -> String {
        if let Some((who, epoch)) = text.split_once('#') {
            return format!("{who}#{}", epoch.parse().map_or(0, |epoch| self.epoch(Epoch(epoch)).0));
        }
        match text.split_once(' ') {
            Some(("waiting", place)) => format!("waiting {}", self.place_text(place)),
            Some(("cancelled", said)) => format!("cancelled {}", lately(Said::parse(said))),
            _ => text.to_owned(),
        }
    }

    pub(crate) fn place_text(&self, place: &str) -> String {
        place.parse().map_or_else(|_| place.to_owned(), |place| self.place(place).to_string())
    }

    /// Where to go on: behind how many of the places.
    pub(crate) fn cursor(&self, cursor: Place) -> Place {
        let before = self.places.iter().filter(|place| **place < cursor).count() as u64;
        if cursor == Place::ZERO { cursor } else { Place { ms: 1, seq: before } }
    }

    pub(crate) fn entry(&self, mut entry: Entry) -> Entry {
        entry.place = self.place(entry.place);
        if let Some(line) = entry.state.line() {
            let now_ms = line.due_ms.saturating_sub(entry.state.due_in.as_millis() as u64);
            entry.state = JobState::of(self.line(line.clone(), now_ms), 0);
        }
        entry
    }

    /// A line with whose runs it tells, and with times as they are from now: what waits no more waits for 0.
    pub(crate) fn line(&self, mut line: StateLine, now_ms: u64) -> StateLine {
        let millis = |time| rounded(time).as_millis() as u64;
        line.due_ms = millis(Duration::from_millis(line.due_ms.saturating_sub(now_ms)));
        if let Some(Request::Cancel(said)) = &mut line.request {
            *said = lately(said.clone());
        }
        if let Some(mark) = &mut line.mark {
            mark.fence.epoch = self.epoch(mark.fence.epoch);
        }
        for crash in &mut line.crashes {
            crash.fence.epoch = self.epoch(crash.fence.epoch);
            // Found a moment ago, since a sequence does not take longer.
            let ago = UnixMillis(clock().abs_diff(crash.at.0));
            crash.at = UnixMillis(millis(Duration::from_millis(ago.0)));
        }
        line
    }

    pub(crate) fn answer(&self, answer: Answer) -> Answer {
        match answer {
            Answer::Claimed(entries) => Answer::Claimed(entries.into_iter().map(|e| self.entry(e)).collect()),
            Answer::Recovered { entries, next } => Answer::Recovered {
                entries: entries.into_iter().map(|e| self.entry(e)).collect(),
                next: self.place(next),
            },
            Answer::Taken(mut taken) => {
                taken.entries = taken.entries.into_iter().map(|e| self.entry(e)).collect();
                taken.held.sort_unstable();
                for (asked, line) in &mut taken.asked {
                    asked.place = self.place(asked.place);
                    *line = self.line(line.clone(), clock());
                }
                Answer::Taken(taken)
            }
            Answer::Settled { jobs, first } => {
                let job = |job| match job {
                    // The servers' words differ between releases.
                    Settled::Rejected(why) => Settled::Rejected(why.chars().take(9).collect()),
                    other => other,
                };
                Answer::Settled { jobs: jobs.into_iter().map(job).collect(), first }
            }
            Answer::Promoted(promoted) => Answer::Promoted(without_clock(promoted)),
            other => other,
        }
    }

    pub(crate) fn acquired(&mut self, who: usize, acquired: Acquired) -> Acquired {
        match acquired {
            Acquired::Granted(epoch) => {
                self.epochs.push(epoch);
                Acquired::Granted(self.epoch(epoch))
            }
            Acquired::Held { owner, epoch, left, wanted_by } => {
                Acquired::Held { owner, epoch: self.epoch(epoch), left: rounded(left), wanted_by }
            }
            Acquired::Changed(before) => {
                self.before[who] = before.clone();
                let epoch = before.epoch.parse().map_or(before.epoch, |e| self.epoch(Epoch(e)).to_string());
                Acquired::Changed(Before { owner: before.owner, epoch, least: 0 })
            }
            other => other,
        }
    }
}

/// What was said a moment ago, since a sequence does not take longer.
fn lately(said: Said) -> Said {
    let ago = rounded(Duration::from_millis(clock().abs_diff(said.at.0)));
    said.at(UnixMillis(ago.as_millis() as u64))
}

/// With the next due time as it is from now.
pub(crate) fn without_clock(promoted: Promoted) -> Promoted {
    let next = promoted.next.map(|next| UnixMillis(rounded(promoted.now.age_at(next)).as_secs()));
    Promoted { next, now: UnixMillis(0), late: rounded(promoted.late), ..promoted }
}

/// An hour from a moment ago is an hour.
pub(crate) fn rounded(time: Duration) -> Duration {
    Duration::from_secs((time.as_secs() + 300) / 600 * 600)
}
