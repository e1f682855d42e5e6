//! What the scripts do for a queue without order, in memory, and what must be true of it.

use super::kinds::{self, Holders};
use crate::competing::events::Which;
use crate::stage;
use gristmill_broker::census::Census;
use gristmill_broker::delayed::Member;
use gristmill_broker::grab::Grabbed;
use gristmill_broker::promote::Promoted;
use gristmill_broker::reclaim::{Reclaim, Reclaimed};
use gristmill_broker::start::{How, Marked};
use gristmill_broker::state::{JobState, Request, Said, StartMark, StateLine, Suspicion};
use gristmill_broker::{Answer, Call, Entry, Epoch, Fence, Incarnation, Settle, Settled, Verdict};
use gristmill_job::{JobId, Place, UnixMillis};
use std::collections::BTreeMap;
use std::time::Duration;

/// What the store does wrongly, so that it is known that the checks see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    None,
    /// A settle takes effect whoever claims the job.
    SettlesOfAnybody,
    /// A settle takes effect although the job is gone.
    SettlesTwice,
    /// An extension takes claims from others.
    ExtendSteals,
    /// A job for later stays there once it was moved.
    PromotesTwice,
    /// More jobs than were asked for.
    GrabsMore,
    /// A limit of one lets several run.
    AdmitsMore,
    /// A job that may run at most once stays although it was acknowledged.
    KeepsAcknowledged,
    /// That a run was interrupted is not noted by whoever takes the job over.
    ForgetsInterruption,
    /// A job whose effect could not be written is gone.
    LosesRejected,
}

#[derive(Clone)]
struct Claim {
    owner: String,
    since: u64,
}

#[derive(Clone)]
struct Job {
    id: JobId,
    envelope: bytes::Bytes,
    line: Option<StateLine>,
    claim: Option<Claim>,
    /// How often it was claimed at its place.
    claims: u64,
}

pub(super) struct Store {
    pub(super) now: u64,
    pub(super) mistake: Mistake,
    stream: BTreeMap<Place, Job>,
    delayed: BTreeMap<Member, (u64, Job)>,
    /// By job, how it ended: once.
    pub(super) ended: BTreeMap<String, Vec<&'static str>>,
    /// Letters of jobs that were acknowledged before they ran.
    buried: BTreeMap<String, String>,
    /// Of the kind that is limited.
    pub(super) holders: Holders,
    last: u64,
    /// Lines of jobs that somebody deleted.
    pub(super) litter: u64,
}

const HANDED_BACK: &str = "handed-back";

impl Store {
    pub(super) fn new(jobs: u64, mistake: Mistake) -> Self {
        let mut store = Self {
            now: 1_000_000,
            mistake,
            stream: BTreeMap::new(),
            delayed: BTreeMap::new(),
            ended: BTreeMap::new(),
            buried: BTreeMap::new(),
            holders: Holders::default(),
            last: 0,
            litter: 0,
        };
        for n in 0..jobs {
            let id = JobId::new(&format!("job{n}")).unwrap();
            store.add(Job { id, envelope: kinds::envelope(n), line: None, claim: None, claims: 0 });
        }
        store
    }

    fn add(&mut self, job: Job) {
        self.last += 1;
        self.stream.insert(Place { ms: 1, seq: self.last }, job);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.stream.is_empty() && self.delayed.is_empty() && self.litter == 0
    }

    pub(super) fn owner(&self, place: Place) -> Option<&str> {
        self.stream.get(&place)?.claim.as_ref().map(|claim| claim.owner.as_str())
    }

    /// Whether the kind of this job is limited.
    pub(super) fn is_scarce(&self, place: Place) -> bool {
        self.stream.get(&place).is_some_and(|job| kinds::kind(&job.envelope) == "scarce")
    }

    /// How many jobs this one claims.
    pub(super) fn claims_of(&self, owner: &str) -> usize {
        self.stream.keys().filter(|place| self.owner(**place) == Some(owner)).count()
    }

    /// A new claim.
    fn take(&mut self, place: Place, owner: &str) -> Entry {
        self.stream.get_mut(&place).unwrap().claims += 1;
        self.pass(place, owner)
    }

    /// The same claim, as of now.
    fn pass(&mut self, place: Place, owner: &str) -> Entry {
        let now = self.now;
        let job = self.stream.get_mut(&place).unwrap();
        job.claim = Some(Claim { owner: owner.into(), since: now });
        let state = job.line.clone().map_or_else(JobState::default, |line| JobState::of(line, now));
        let (id, envelope, claim) = (job.id.clone(), job.envelope.clone(), job.claims);
        Entry { place, id, envelope, state, claim, ..stage::entry(place.seq, "k") }
    }

    pub(super) fn grab(&mut self, me: &str, count: usize, which: Which) -> Grabbed {
        let count = if self.mistake == Mistake::GrabsMore { count + 1 } else { count };
        let places = |wanted: Option<&str>| -> Vec<Place> {
            self.stream.keys().copied().filter(|place| self.owner(*place) == wanted).collect()
        };
        let mut places = match which {
            Which::All => [places(Some(HANDED_BACK)), places(None)].concat(),
            Which::New => places(None),
        };
        places.truncate(count);
        let entries: Vec<Entry> = places.into_iter().map(|place| self.take(place, me)).collect();
        let unclaimed = self.stream.iter().find(|(_, job)| job.claim.is_none()).map(|(place, _)| place.seq);
        let seq = unclaimed.map_or(self.last, |first| first - 1);
        let delivered = (which == Which::All && entries.len() < count).then_some(Place { ms: 1, seq });
        let next_due = self.delayed.values().map(|(due, _)| UnixMillis(*due)).min();
        Grabbed::Jobs { entries, delivered, next_due, now: UnixMillis(self.now) }
    }

    pub(super) fn reclaim(&mut self, me: &str, reclaim: Reclaim) -> Reclaimed {
        let timeout = u64::try_from(reclaim.timeout.as_millis()).unwrap();
        let now = self.now;
        let is_over = |job: &Job| job.claim.as_ref().is_some_and(|claim| now - claim.since >= timeout);
        let over = self.stream.range(reclaim.cursor..).filter(|(_, job)| is_over(job));
        let mut over: Vec<Place> = over.map(|(place, _)| *place).collect();
        let left = over.split_off(reclaim.count.min(over.len()));
        let mut entries = Vec::new();
        for place in over {
            let job = self.stream.get_mut(&place).unwrap();
            let holder = job.claim.as_ref().unwrap().owner.clone();
            let another = holder != HANDED_BACK && holder != me;
            let mut line = job.line.clone().unwrap_or_default();
            if another && line.suspicion == Suspicion::None && line.mark.is_none() {
                line.suspicion = Suspicion::Weak;
                job.line = Some(line);
            } else if another && line.mark.take().is_some() {
                line.suspicion = line.suspicion.raised();
                line.interrupted |= self.mistake != Mistake::ForgetsInterruption;
                job.line = Some(line);
            }
            entries.push(self.take(place, me));
        }
        let (left, now) = (left.len() as u64, UnixMillis(now));
        Reclaimed::Slice { entries, next: Place::ZERO, left, worst: Duration::ZERO, outbox: 0, now }
    }

    /// Those that are lost, and those that a person cancelled.
    pub(super) fn extend(&mut self, me: &str, places: &[Place]) -> (Vec<Place>, Vec<Place>) {
        let (mut lost, mut cancelled) = (Vec::new(), Vec::new());
        for place in places {
            let steals = self.mistake == Mistake::ExtendSteals && self.stream.contains_key(place);
            if self.owner(*place) == Some(me) || steals {
                let entry = self.pass(*place, me);
                let line = entry.state.line();
                if line.and_then(|line| line.request.as_ref()).is_some_and(Request::is_cancel) {
                    cancelled.push(*place);
                }
            } else {
                lost.push(*place);
            }
        }
        (lost, cancelled)
    }

    /// A person cancels the nth of what is there.
    pub(super) fn cancel(&mut self, nth: u64) {
        let stream = self.stream.values_mut();
        let jobs = stream.chain(self.delayed.values_mut().map(|(_, job)| job));
        if let Some(job) = jobs.into_iter().nth(usize::try_from(nth).unwrap()) {
            job.line.get_or_insert_default().request = Some(Request::Cancel(Said::new("me", "")));
        }
    }

    pub(super) fn promote(&mut self, members: &[Member]) -> Promoted {
        let mut moved = 0;
        for member in members {
            let found = if self.mistake == Mistake::PromotesTwice {
                self.delayed.get(member).cloned()
            } else {
                self.delayed.remove(member)
            };
            if let Some((_, job)) = found {
                self.add(job);
                moved += 1;
            }
        }
        let due = self.delayed.iter().filter(|(_, (due, _))| *due <= self.now);
        let due: Vec<Member> = due.map(|(member, _)| member.clone()).collect();
        let next = self.delayed.values().map(|(due, _)| UnixMillis(*due)).min().filter(|_| due.is_empty());
        Promoted { moved, late: Duration::ZERO, lost: 0, due, next, now: UnixMillis(self.now) }
    }

    pub(super) fn call(&mut self, me: &str, call: &Call) -> Answer {
        match call {
            Call::Settle(jobs) => {
                let jobs = jobs.iter().map(|settle| self.settle(me, settle)).collect();
                Answer::Settled { jobs, first: true }
            }
            Call::Start(starts) => Answer::Started(
                starts.iter().map(|start| self.start(me, start.place, start.turn, start.how)).collect(),
            ),
            Call::HandBack { places, claims, stopped } => {
                for (n, place) in places.iter().enumerate() {
                    let is_newer = self.stream.get(place).is_some_and(|job| job.claims != claims[n]);
                    if is_newer || self.owner(*place) != Some(me) {
                        continue;
                    }
                    self.pass(*place, HANDED_BACK);
                    let line = self.stream.get_mut(place).and_then(|job| job.line.as_mut());
                    if let Some(line) = line
                        && line.mark.take().is_some()
                    {
                        line.interrupted |= n < *stopped;
                    }
                }
                Answer::Done
            }
            Call::Census { .. } => Answer::Counted(Some(Census {
                claimed: 0,
                returned: 0,
                cursors: (0, 0),
                holds_removed: 0,
                lines_removed: std::mem::take(&mut self.litter),
                changes: 0,
            })),
            other => panic!("{other:?} in a queue without order"),
        }
    }

    fn start(&mut self, me: &str, place: Place, turn: u32, how: How) -> Marked {
        if self.owner(place) != Some(me) {
            return Marked::Gone;
        }
        let line = self.stream.get_mut(&place).unwrap().line.get_or_insert_default();
        if line.turn != turn {
            return Marked::AtTurn(line.turn);
        }
        let fence = Fence { incarnation: Incarnation::from_stored(me), epoch: Epoch(0) };
        line.interrupted &= !matches!(how, How::Beside | How::Alone);
        line.mark = Some(StartMark { fence, alone: matches!(how, How::Alone | How::LookAlone) });
        Marked::Started
    }

    fn settle(&mut self, me: &str, settle: &Settle) -> Settled {
        let id = settle.id.to_string();
        if let Verdict::Dead { acknowledged: true, dead_id, .. } = &settle.verdict {
            if let Some(before) = self.buried.insert(id, dead_id.clone()) {
                assert_eq!(before, *dead_id, "two letters");
                return Settled::Gone;
            }
            return Settled::Dead;
        }
        let there = self.stream.get(&settle.place).cloned();
        let Some(job) = there else {
            if self.mistake == Mistake::SettlesTwice {
                self.ended.entry(id).or_default().push("done");
            }
            return Settled::Gone;
        };
        let turn = job.line.as_ref().map_or(0, |line| line.turn);
        let mine = self.owner(settle.place) == Some(me);
        if turn != settle.turn {
            return if mine { Settled::AtTurn(turn) } else { Settled::Gone };
        }
        if !mine && self.mistake != Mistake::SettlesOfAnybody {
            return Settled::Gone;
        }
        assert!(mine, "{me} settled what {:?} claims: {settle:?}", self.owner(settle.place));
        // Of some the effect cannot be written.
        let rejects = kinds::kind(&job.envelope) == "plain" && settle.place.seq.is_multiple_of(2);
        if rejects && matches!(settle.verdict, Verdict::Done { .. }) {
            if self.mistake == Mistake::LosesRejected {
                self.stream.remove(&settle.place);
            }
            return Settled::Rejected("it is full".into());
        }
        if self.mistake == Mistake::KeepsAcknowledged && kinds::kind(&job.envelope) == "once" {
            return Settled::Done;
        }
        self.stream.remove(&settle.place);
        let (word, settled) = match &settle.verdict {
            Verdict::Retry { attempts, delay, why, interrupted, history } => {
                let state =
                    job.line.clone().map_or_else(JobState::default, |line| JobState::of(line, self.now));
                let state = state.put_back(*attempts, *why, *interrupted, history.clone());
                let due = self.now + u64::try_from(delay.as_millis()).unwrap();
                self.last += 1;
                let member = Member::new(self.last, false, &job.id);
                self.delayed.insert(
                    member,
                    (due, Job { line: state.line().cloned(), claim: None, claims: 0, ..job }),
                );
                return Settled::Retried;
            }
            Verdict::Done { .. } => ("done", Settled::Done),
            Verdict::Cancelled => ("cancelled", Settled::Cancelled),
            Verdict::Expired => ("expired", Settled::Expired),
            Verdict::Dead { .. } => ("dead", Settled::Dead),
            other => panic!("{other:?}: no run here ends so"),
        };
        self.ended.entry(id).or_default().push(word);
        settled
    }
}
