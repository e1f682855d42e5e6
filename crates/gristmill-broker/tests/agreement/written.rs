//! A planned call as each side is sent it, with the places that side gave.

use crate::both::{Both, Known, key, time};
use crate::plan::{self, Which};
use bytes::Bytes;
use gristmill_broker::call::Call;
use gristmill_broker::state::Why;
use gristmill_broker::{Emit, Settle, Verdict};
use gristmill_job::{DeadLetter, DeadReason, EncodedJob, EntityChange, JobId, Place, QueueName, UnixMillis};

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
            plan::Call::HandBack { jobs } => [0, 1].map(|side| Call::hand_back(places(jobs, side))),
            plan::Call::Forward { entries } => {
                let real = self.connection.outbox(&self.keys, 100).await.map_err(|e| e.to_string())?;
                let model = self.model.outbox(&self.keys, 100);
                [real, model].map(|outbox| {
                    let ids = entries.iter().filter_map(|n| outbox.get(*n)).map(|(id, _)| *id);
                    Call::Forward(ids.collect())
                })
            }
            plan::Call::Release => [Call::Release, Call::Release],
        };
        Ok(match &calls[0] {
            Call::Settle(jobs) if jobs.is_empty() => None,
            _ => Some(calls),
        })
    }

    /// The number of a job, in the order in which they were accepted.
    fn which(&self, which: Which) -> Option<usize> {
        match which {
            Which::Any(back) => self.jobs.len().checked_sub(back + 1),
            Which::Claimed(n) => {
                let jobs = self.model.jobs(&self.keys).into_iter();
                let claimed: Vec<Place> =
                    jobs.filter(|(.., holder)| holder.is_some()).map(|job| job.0).collect();
                let place = claimed.get(n.checked_rem(claimed.len())?)?;
                self.given[1].places.iter().position(|given| given == place)
            }
        }
    }

    fn settle(&self, side: usize, index: usize, settle: &plan::Settle) -> Option<Settle> {
        let known = self.jobs.get(index)?;
        let place = *self.given[side].places.get(index)?;
        let stored = self.model.state(&self.keys, *self.given[1].places.get(index)?);
        let turn = settle.turn.unwrap_or_else(|| stored.map_or(0, |line| line.turn));
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
            plan::Verdict::Retry { attempts, delay } => Verdict::Retry {
                attempts: *attempts,
                delay: time(*delay),
                why: Why::Retry,
                history: Bytes::from_static(b"any \xff bytes\nhere "),
            },
            plan::Verdict::Discard => Verdict::Discard,
            plan::Verdict::Dead { letter, at_ms } => Verdict::Dead {
                dead_id: format!("letter{letter}"),
                at: UnixMillis(*at_ms),
                reason: DeadReason::Exhausted,
                body: letter_of(index, known, turn),
                hold: false,
                acknowledged: false,
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
