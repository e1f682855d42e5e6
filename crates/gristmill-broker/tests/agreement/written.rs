//! A planned call as each side is sent it, with the places that side gave.

use crate::both::{Both, Known, key, time};
use crate::plan::{self, Which};
use bytes::Bytes;
use gristmill_broker::call::Call;
use gristmill_broker::delayed::Member;
use gristmill_broker::start::Start;
use gristmill_broker::{Emit, Settle, Verdict};
use gristmill_job::{
    DeadLetter, DeadReason, Due, EncodedJob, EntityChange, JobId, Place, QueueName, UnixMillis,
};

impl Both {
    /// The call with each side's own places. `None` where it has nothing to name.
    pub(crate) async fn written(&self, who: usize, call: &plan::Call) -> Result<Option<[Call; 2]>, String> {
        let places = |jobs: &[Which], side: usize| {
            jobs.iter().filter_map(|job| self.given[side].places.get(self.which(*job)?).copied()).collect()
        };
        let calls = match call {
            plan::Call::Claim { count } => [0, 1].map(|_| Call::Claim { count: *count }),
            plan::Call::Recover { go_on, count } => [0, 1].map(|side: usize| {
                let cursor = if *go_on { self.given[side].cursors[who] } else { Place::ZERO };
                Call::Recover { cursor, count: *count }
            }),
            plan::Call::Settle { jobs, .. } => [0, 1].map(|side| {
                Call::Settle(
                    jobs.iter().filter_map(|job| self.settle(side, self.which(job.job)?, job)).collect(),
                )
            }),
            plan::Call::HandBack { jobs, claims, stopped } => [0, 1].map(|side| {
                let places: Vec<Place> = places(jobs, side);
                let stopped = (*stopped).min(places.len());
                Call::HandBack { places, claims: claims.clone(), stopped }
            }),
            plan::Call::Take { go_on, count } => [0, 1].map(|side: usize| {
                let after = if *go_on { self.given[side].taken[who] } else { 0 };
                Call::Take { after, count: *count, cursor: (!*go_on).then_some(0) }
            }),
            plan::Call::Start { starts } => [0, 1].map(|side| {
                let start = |(job, turn, how): &(Which, Option<u32>, _)| {
                    let index = self.which(*job)?;
                    let place = *self.given[side].places.get(index)?;
                    Some(Start { place, turn: turn.unwrap_or_else(|| self.turn(index)), how: *how })
                };
                Call::Start(starts.iter().filter_map(start).collect())
            }),
            plan::Call::Census => [0, 1].map(|_| Call::Census { cursors: (0, 0) }),
            plan::Call::Forward { entries } => {
                let real = self.connection.outbox(&self.keys, 100).await.map_err(|e| e.to_string())?;
                let model = self.model.outbox(&self.keys, 100);
                [real, model].map(|outbox| {
                    let ids = entries.iter().filter_map(|n| outbox.get(*n)).map(|(id, _)| *id);
                    Call::Forward(ids.collect())
                })
            }
            plan::Call::Promote { go_on, count } => {
                let slice = self.slice(Some(who).filter(|_| *go_on), *count);
                [Call::Promote(slice.clone()), Call::Promote(slice)]
            }
            plan::Call::Release => [Call::Release, Call::Release],
        };
        Ok(match &calls[0] {
            Call::Settle(jobs) if jobs.is_empty() => None,
            Call::Start(starts) if starts.is_empty() => None,
            _ => Some(calls),
        })
    }

    /// What this actor was told is due; or whatever is there, due or not, and one that is not.
    pub(crate) fn slice(&self, who: Option<usize>, count: usize) -> Vec<Member> {
        match who {
            Some(who) => self.given[0].due[who].iter().take(count).cloned().collect(),
            None => {
                let gone = Member::new(1, true, &crate::both::id(0));
                let there = self.model.delayed(&self.keys).into_iter().map(|job| job.0);
                there.take(count).chain([gone]).collect()
            }
        }
    }

    /// The turn at which a job stands.
    pub(crate) fn turn(&self, index: usize) -> u32 {
        let place = self.given[1].places.get(index);
        place.and_then(|place| self.model.state(&self.keys, *place)).map_or(0, |line| line.turn)
    }

    /// The number of a job, in the order in which they were accepted.
    pub(crate) fn which(&self, which: Which) -> Option<usize> {
        match which {
            Which::Any(back) => self.jobs.len().checked_sub(back + 1),
            Which::Claimed(n) => {
                let jobs = self.model.jobs(&self.keys).into_iter();
                let claimed: Vec<Place> =
                    jobs.filter(|(.., holder)| holder.is_some()).map(|job| job.0).collect();
                let place = claimed.get(n.checked_rem(claimed.len())?)?;
                self.given[1].places.iter().position(|given| given == place)
            }
            Which::Returned(n) => {
                let returned = self.model.returned(&self.keys);
                let (place, ..) = returned.get(n.checked_rem(returned.len())?)?;
                self.given[1].places.iter().position(|given| given == place)
            }
        }
    }

    fn settle(&self, side: usize, index: usize, settle: &plan::Settle) -> Option<Settle> {
        let known = self.jobs.get(index)?;
        let place = *self.given[side].places.get(index)?;
        let turn = settle.turn.unwrap_or_else(|| self.turn(index));
        let verdict = match &settle.verdict {
            plan::Verdict::Done { version, entity, emits } => Verdict::Done {
                version: *version,
                entity: entity.map(|state| {
                    state.map_or(EntityChange::Delete, |n| {
                        EntityChange::Put(Bytes::from(format!("state {n}")))
                    })
                }),
                emits: (0..*emits).map(|position| emit(&known.id, position)).collect(),
            },
            plan::Verdict::Retry { attempts, delay, why, history } => Verdict::Retry {
                attempts: *attempts,
                delay: time(*delay),
                why: *why,
                // Any: an interrupted job may be put back as such.
                interrupted: *attempts % 2 == 1,
                history: history.clone().into(),
            },
            plan::Verdict::Discard => Verdict::Discard,
            plan::Verdict::Duplicate => Verdict::Duplicate,
            plan::Verdict::Stale => Verdict::Stale,
            plan::Verdict::Cancelled => Verdict::Cancelled,
            plan::Verdict::Expired => Verdict::Expired,
            plan::Verdict::Dead { letter, at_ms, hold, acknowledged } => Verdict::Dead {
                dead_id: format!("letter{letter}"),
                at: UnixMillis(*at_ms),
                reason: DeadReason::Exhausted,
                body: letter_of(index, known, turn),
                hold: *hold,
                acknowledged: *acknowledged,
            },
        };
        let marked = known.own_id != settle.wrong_mark;
        Some(Settle { place, turn, id: known.id.clone(), key: known.key.clone(), marked, verdict })
    }
}

fn emit(parent: &JobId, position: usize) -> Emit {
    let job = EncodedJob {
        id: JobId::emitted_by(parent, position),
        key: key(0),
        envelope: Bytes::from_static(b"emitted"),
        own_id: true,
        due: [Due::Now, Due::In(crate::both::time(crate::plan::Span::Hour)), Due::At(UnixMillis(5))]
            [position % 3],
    };
    Emit { queue: QueueName::new("next").unwrap(), job }
}

fn letter_of(index: usize, job: &Known, turn: u32) -> Bytes {
    let letter = DeadLetter {
        job: job.id.as_bytes().to_vec(),
        key: job.key.as_bytes().to_vec(),
        envelope: Vec::new(),
        place: index.to_string(),
        turn,
        reason: DeadReason::Exhausted,
        error: vec!["boom".to_owned()],
        class: None,
        attempts: turn,
        node: "a".to_owned(),
        at: UnixMillis(0),
        ..DeadLetter::default()
    };
    letter.encode().unwrap().into()
}
