//! The same for queues with ordering none: several consumers, none of whom owns anything, and time that passes.
//!
//! * `acts`: what needs no claim: time passes, a job is deleted by hand, a letter comes back, a run is absolved.
//! * `plan`: what may be asked, and how it is drawn.
//! * `standing`: compares what lies there after each call.

mod acts;
pub(crate) mod plan;
mod standing;

use crate::both::{Both, Outcome, agree, incarnation, time};
use crate::heard;
use crate::plan::{ACTORS, Call, Operation as Ordered, Settle, Span, Which};
use gristmill_broker::call::Guard;
use gristmill_broker::extend::Extended;
use gristmill_broker::grab::Grabbed;
use gristmill_broker::locate::ClaimView;
use gristmill_broker::reclaim::{Reclaim, Reclaimed};
use gristmill_broker::state::Suspicion;
use gristmill_broker::{Entry, Fence};
use gristmill_job::{Place, UnixMillis};
use plan::{Job, Operation};
use std::collections::BTreeSet;

/// Every word that must have been heard for the run to mean something.
pub(crate) const WORDS: &[&str] = &[
    "grab:grabbed",
    "grab_new:grabbed",
    "grab:nothing",
    "grab:differs",
    "grab:more for later",
    "grabbed:new",
    "grabbed:taken up",
    "grabbed:turned",
    "grabbed:suspected",
    "extend:lost",
    "extend:cancelled",
    "extend:kept all",
    "reclaim:differs",
    "reclaim:took",
    "reclaim:looked",
    "reclaim:more",
    "reclaim:left",
    "reclaim:handed back",
    "reclaim:marked still",
    "reclaim:charged",
    "reclaim:unsuspected",
    "reclaim:weak",
    "settled:done",
    "settled:stale",
    "settled:duplicate",
    "settled:discarded",
    "settled:cancelled",
    "settled:expired",
    "settled:retried",
    "settled:dead",
    "settled:gone",
    "settled:at_turn",
    "settled:rejected",
    "settle:late",
    "hand_back:done",
    "hand_back:late",
    "hand_back:of a claim before",
    "marked:started",
    "marked:gone",
    "marked:at_turn",
    "census:counted",
    "census:lines removed",
    "forward:done",
    "promote:moved",
    "promote:moved many",
    "promote:more",
    "promote:next",
    "promote:nothing",
    "absolve:absolved",
    "absolve:nothing",
    "cancel:cancelled",
    "cancel:asked",
    "cancel:not_waiting",
    "cancel:delayed",
    "purge:purged",
    "purge:gone",
    "replay:replayed",
    "replay:gone",
    "accepted:at",
    "accepted:at, anew",
    "accepted:delayed",
    "accepted:before",
    "enqueue:full",
    "enqueue:no_queue",
    "load:there",
    "load:nowhere",
    "deleted, and claimed",
    "passed",
];

impl Both {
    pub(crate) async fn begin_unordered(&mut self) -> Outcome {
        self.forget()?;
        self.put_unordered(&Operation::Create).await
    }

    /// One question to both; what takes a moment is over when this returns.
    pub(crate) async fn ask_unordered(&mut self, operation: &Operation) -> Outcome {
        let told = |difference| format!("{operation:?}: {difference}");
        self.model.set_now(UnixMillis(crate::both::clock()));
        self.put_unordered(operation).await.map_err(told)?;
        if operation.is_momentary() {
            self.wait_a_moment();
        }
        self.stand_alike().map_err(told)
    }

    async fn put_unordered(&mut self, operation: &Operation) -> Outcome {
        let is_there = self.model.definition(&self.queue.name).is_some();
        match operation {
            Operation::Create => self.ordered(Ordered::Create { partitions: 1 }).await,
            Operation::Flush { made_again } => {
                self.ordered(Ordered::Flush).await?;
                if *made_again { self.ordered(Ordered::Create { partitions: 1 }).await } else { Ok(()) }
            }
            Operation::Enqueue { repeat_last_call, jobs } => {
                let (repeat_last_call, jobs) = (*repeat_last_call, jobs.clone());
                self.ordered(Ordered::Enqueue { repeat_last_call, partitions: 1, jobs }).await
            }
            Operation::Grab { who, count, new } => self.grab(*who, *count, *new).await,
            Operation::Reclaim { who, timeout, go_on, count } => {
                let cursors = [0, 1].map(|side: usize| self.given[side].cursors[*who]);
                let cursors = if *go_on { cursors } else { [Place::ZERO; 2] };
                let timeout = timeout.time();
                self.reclaim(*who, cursors.map(|cursor| Reclaim { timeout, cursor, count: *count })).await
            }
            _ if !is_there => Ok(()), // Whatever reads the stream is told that there is none: tests/contract/unordered.
            Operation::Extend { who, jobs } => self.extend(self.who(*who), jobs).await,
            Operation::Settle { who, window, jobs } => {
                let who = self.who(*who);
                let named: Vec<Job> = jobs.iter().map(|(job, _)| *job).collect();
                let mut settles = Vec::new();
                for (n, index) in self.named(who, &named) {
                    let (_, plan::Settle { turn, wrong_mark, verdict }) = jobs[n].clone();
                    settles.push(Settle { job: self.newest(index), turn, wrong_mark, verdict });
                }
                self.hear_late(who, &named, "settle:late");
                self.unleased(who, &Call::Settle { window: *window, jobs: settles }).await
            }
            Operation::HandBack { who, jobs, first, stopped } => {
                // Late, where one claims again what it claimed before.
                let again = if *first { self.claimed_again() } else { None };
                let who = again.map_or_else(|| self.who(*who), |(who, _)| who);
                self.hear_late(who, jobs, "hand_back:late");
                let mut named = self.named(who, jobs);
                named.retain(|(_, index)| again.is_none_or(|(_, again)| again != *index));
                named.extend(again.map(|(_, index)| (0, index)));
                let claims = named.iter().map(|(_, index)| self.claim_of(who, *index, *first)).collect();
                let jobs = named.into_iter().map(|(_, index)| self.newest(index)).collect();
                self.heard.extend(again.map(|_| "hand_back:of a claim before"));
                self.unleased(who, &Call::HandBack { jobs, claims, stopped: *stopped }).await
            }
            Operation::Start { who, starts } => {
                let who = self.who(*who);
                let named: Vec<Job> = starts.iter().map(|(job, ..)| *job).collect();
                let named = self.named(who, &named).into_iter();
                let starts = named.map(|(n, index)| (self.newest(index), starts[n].1, starts[n].2)).collect();
                self.unleased(who, &Call::Start { starts }).await
            }
            Operation::Census { who } => self.unleased(self.who(*who), &Call::Census).await,
            Operation::Forward { who, entries } => {
                self.unleased(self.who(*who), &Call::Forward { entries: entries.clone() }).await
            }
            Operation::Promote { who, count } => self.promote(*who, *count).await,
            Operation::Pass => self.pass(),
            Operation::Absolve { who, job } => self.absolve_unordered(*who, *job).await,
            Operation::Cancel { job, named, window } => {
                let Some(index) = self.job(0, *job) else { return Ok(()) };
                self.cancel(self.newest(index), *named, *window).await
            }
            Operation::CancelDelayed { nth } => self.cancel_delayed(*nth, Span::Hour).await,
            Operation::Purge { jobs, nth } => {
                let jobs: Vec<Which> =
                    self.named(0, jobs).into_iter().map(|(_, index)| self.newest(index)).collect();
                self.purge(&jobs, *nth, true, true).await
            }
            Operation::Replay { letters, edited, strong } => self.replay(letters, *edited, *strong).await,
            Operation::Delete { job } => self.delete(*job),
            Operation::Load { jobs } => {
                let jobs: Vec<Which> =
                    self.named(0, jobs).into_iter().map(|(_, index)| self.newest(index)).collect();
                self.load(&jobs).await
            }
            Operation::SpoilEntity { key } => self.ordered(Ordered::SpoilEntity { key: *key }).await,
            Operation::Limit { jobs } => self.ordered(Ordered::Limit { jobs: *jobs }).await,
        }
    }

    async fn ordered(&mut self, operation: Ordered) -> Outcome {
        self.put(&operation).await
    }

    fn who(&self, who: usize) -> usize {
        let Some(nth) = who.checked_sub(ACTORS) else { return who };
        let claims = self.model.claims(&self.keys);
        let holder =
            claims.get(nth.checked_rem(claims.len()).unwrap_or_default()).map(|(_, claim)| &claim.holder);
        let is_holder = |who: &usize| holder == Some(&Fence::unordered(&incarnation(*who)).consumer());
        (0..ACTORS).find(is_holder).unwrap_or(who % ACTORS)
    }

    /// The number of a job, in the order in which they were accepted.
    pub(super) fn job(&self, who: usize, job: Job) -> Option<usize> {
        let me = Fence::unordered(&incarnation(who)).consumer();
        let claims = self.model.claims(&self.keys);
        let claimed = |mine: bool| claims.iter().filter(move |(_, claim)| !mine || claim.holder == me);
        let nth = |places: Vec<Place>, n: usize| {
            let place = *places.get(n.checked_rem(places.len())?)?;
            self.given[1].places.iter().position(|given| *given == place)
        };
        match job {
            Job::Mine(n) => nth(claimed(true).map(|(place, _)| *place).collect(), n)
                .or_else(|| self.job(who, Job::Claimed(n))),
            Job::Claimed(n) => nth(claims.iter().map(|(place, _)| *place).collect(), n),
            Job::Lost(n) => {
                let mine: BTreeSet<Place> = claimed(true).map(|(place, _)| *place).collect();
                let lost =
                    self.held[who].iter().rev().map(|(place, _)| place).filter(|place| !mine.contains(place));
                nth(lost.copied().collect(), n)
            }
            Job::Any(n) => self.jobs.len().checked_sub(n + 1),
        }
    }

    /// Those of these that there are, each once, with its number among them.
    fn named(&self, who: usize, jobs: &[Job]) -> Vec<(usize, usize)> {
        let mut known = BTreeSet::new();
        let found = jobs.iter().enumerate().filter_map(|(n, job)| Some((n, self.job(who, *job)?)));
        found.filter(|(_, index)| known.insert(*index)).collect()
    }

    /// The claim that a call names: the first or the last that its sender was given, or whatever stands where it was given none.
    fn claim_of(&self, who: usize, index: usize, first: bool) -> u64 {
        let place = self.given[1].places[index];
        let mut given = self.held[who].iter().filter(|(held, _)| *held == place).map(|(_, claim)| *claim);
        let named = if first { given.next() } else { given.next_back() };
        let stands = || self.model.claims(&self.keys).into_iter().find(|(claimed, _)| *claimed == place);
        named.or_else(|| Some(stands()?.1.deliveries)).unwrap_or_default()
    }

    fn newest(&self, index: usize) -> Which {
        Which::Any(self.jobs.len() - 1 - index)
    }

    /// A call that names a job which its sender has lost, and somebody else claims.
    fn hear_late(&mut self, who: usize, jobs: &[Job], word: &'static str) {
        let claims = self.model.claims(&self.keys);
        let lost = jobs.iter().filter(|job| matches!(job, Job::Lost(_)));
        let mut lost = lost.filter_map(|job| self.job(who, *job)).map(|index| self.given[1].places[index]);
        if lost.any(|place| claims.iter().any(|(claimed, _)| *claimed == place)) {
            self.heard.push(word);
        }
    }

    /// Who claims a job that it had claimed before, and which.
    fn claimed_again(&self) -> Option<(usize, usize)> {
        let is_again = |(place, claim): &(Place, ClaimView)| {
            let me = |who: &usize| Fence::unordered(&incarnation(*who)).consumer() == claim.holder;
            let who = (0..ACTORS).find(me)?;
            let index = self.given[1].places.iter().position(|given| given == place)?;
            (self.claim_of(who, index, true) < claim.deliveries).then_some((who, index))
        };
        self.model.claims(&self.keys).iter().find_map(is_again)
    }

    fn holds(&mut self, who: usize, entries: &[Entry]) {
        self.held[who].extend(entries.iter().map(|entry| (entry.place, entry.claim)));
    }

    async fn unleased(&mut self, who: usize, call: &Call) -> Outcome {
        let Some(calls) = self.written(who, call).await? else { return Ok(()) };
        let fence = Fence::unordered(&incarnation(who));
        let window = match call {
            Call::Settle { window, .. } => time(*window).as_millis() as u64,
            _ => 0,
        };
        let keys = self.keys.clone();
        let guard = Guard::unordered(&keys, &fence, window);
        let real = self.connection.call(&calls[0], guard).await.map_err(|e| e.to_string())?;
        let model = self.model.call(&calls[1], guard);
        let answer = agree(self.given[0].answer(real), self.given[1].answer(model))?;
        heard::words(call, &answer, &mut self.heard);
        Ok(())
    }

    async fn grab(&mut self, who: usize, count: usize, new: bool) -> Outcome {
        let handed_back =
            self.model.claims(&self.keys).into_iter().filter(|(_, claim)| claim.holder == "handed-back");
        let handed_back: BTreeSet<Place> = handed_back.map(|(place, _)| self.given[1].place(place)).collect();
        let (keys, who_asks) = (self.keys.clone(), incarnation(who));
        let real = match new {
            true => self.connection.grab_new(&keys, &who_asks, count).await,
            false => self.connection.grab(&keys, &who_asks, count).await,
        };
        let model = match new {
            true => self.model.grab_new(&keys, &who_asks, count),
            false => self.model.grab(&keys, &who_asks, count),
        };
        if let Grabbed::Jobs { entries, .. } = &model {
            self.holds(who, entries);
        }
        let shown = |side: usize, grabbed| match grabbed {
            Grabbed::Jobs { entries, delivered, next_due, now } => Grabbed::Jobs {
                entries: entries.into_iter().map(|entry| self.given[side].entry(entry)).collect(),
                delivered: delivered.map(|place| self.given[side].place(place)),
                next_due: next_due.map(|due| UnixMillis(crate::given::rounded(now.age_at(due)).as_secs())),
                now: UnixMillis(0),
            },
            differs @ Grabbed::Differs(_) => differs,
        };
        let answer = agree(shown(0, real.map_err(|e| e.to_string())?), shown(1, model))?;
        let Grabbed::Jobs { entries, next_due, .. } = answer else { return self.hear("grab:differs") };
        self.heard.push(match (entries.is_empty(), new) {
            (true, _) => "grab:nothing",
            (false, true) => "grab_new:grabbed",
            (false, false) => "grab:grabbed",
        });
        self.heard.extend(next_due.map(|_| "grab:more for later"));
        for entry in entries {
            let line = entry.state.line().cloned().unwrap_or_default();
            let back = handed_back.contains(&entry.place);
            self.heard.push(if back { "grabbed:taken up" } else { "grabbed:new" });
            self.heard.extend((line.turn > 0).then_some("grabbed:turned"));
            self.heard.extend((line.suspicion != Suspicion::None).then_some("grabbed:suspected"));
        }
        Ok(())
    }

    async fn extend(&mut self, who: usize, jobs: &[Job]) -> Outcome {
        let mut indexes: Vec<usize> = self.named(who, jobs).into_iter().map(|(_, index)| index).collect();
        indexes.sort_unstable_by_key(|index| self.given[0].places[*index]);
        let places = [0, 1].map(|side: usize| {
            indexes.iter().map(|index| self.given[side].places[*index]).collect::<Vec<Place>>()
        });
        let real = self.connection.extend(&self.keys, &incarnation(who), &places[0]).await;
        let model = self.model.extend(&self.keys, &incarnation(who), &places[1]);
        let shown = |side: usize, extended: Extended| {
            let of = |places: Vec<Place>| {
                places.into_iter().map(|place| self.given[side].place(place)).collect::<Vec<_>>()
            };
            (of(extended.lost), of(extended.cancelled))
        };
        let (lost, cancelled) = agree(shown(0, real.map_err(|e| e.to_string())?), shown(1, model))?;
        self.heard.extend((!lost.is_empty()).then_some("extend:lost"));
        self.heard.extend((!cancelled.is_empty()).then_some("extend:cancelled"));
        self.heard.extend((!indexes.is_empty() && lost.is_empty()).then_some("extend:kept all"));
        Ok(())
    }

    async fn reclaim(&mut self, who: usize, [real, model]: [Reclaim; 2]) -> Outcome {
        let looks = real.count == 0;
        let real = self.connection.reclaim(&self.keys, &incarnation(who), real).await;
        let model = self.model.reclaim(&self.keys, &incarnation(who), model);
        let real = real.map_err(|e| e.to_string())?;
        for (answer, given) in [&real, &model].into_iter().zip(&mut self.given) {
            if let Reclaimed::Slice { next, .. } = answer {
                given.cursors[who] = *next;
            }
        }
        if let Reclaimed::Slice { entries, .. } = &model {
            self.holds(who, entries);
        }
        let shown = |side: usize, reclaimed| match reclaimed {
            Reclaimed::Slice { entries, next, left, worst, outbox, now: _ } => Reclaimed::Slice {
                entries: entries.into_iter().map(|entry| self.given[side].entry(entry)).collect(),
                next: self.given[side].cursor(next),
                left,
                worst: crate::given::rounded(worst),
                outbox,
                now: UnixMillis(0),
            },
            differs @ Reclaimed::Differs(_) => differs,
        };
        let answer = agree(shown(0, real), shown(1, model))?;
        let Reclaimed::Slice { entries, next, left, .. } = answer else {
            return self.hear("reclaim:differs");
        };
        self.heard.extend(looks.then_some("reclaim:looked"));
        self.heard.extend((!entries.is_empty()).then_some("reclaim:took"));
        self.heard.extend((next != Place::ZERO).then_some("reclaim:more"));
        self.heard.extend((left > 0).then_some("reclaim:left"));
        self.heard.extend(entries.iter().map(heard::reclaimed));
        Ok(())
    }
}
