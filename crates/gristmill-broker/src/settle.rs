//! settle: writes verdicts. Effects, outbox, acknowledgement and deletion of a job in one step of one script.

use crate::call::{Answer, Guard, single};
use crate::error::CallError;
use crate::lease::acquire::millis;
use crate::reply::{self, Words};
use crate::script::SETTLE;
use crate::state::Why;
use bytes::Bytes;
use gristmill_job::{DeadReason, EncodedJob, EntityChange, JobId, Key, Place, QueueName, UnixMillis};
use redis::{Pipeline, Value};
use std::time::Duration;

/// The verdict on one job, and which of its turns it answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Settle {
    /// The job's place.
    pub place: Place,
    /// The turn that ran.
    pub turn: u32,
    /// Its id.
    pub id: JobId,
    /// Its key.
    pub key: Key,
    /// Whether its id is a producer's and so has a mark in `seen`.
    pub marked: bool,
    /// What becomes of it.
    pub verdict: Verdict,
}

/// What becomes of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Acknowledged and deleted, with its effects.
    Done {
        /// The producer's number; an entity changes only if it is strictly newer.
        version: u64,
        /// The change of the job's own entity.
        entity: Option<EntityChange>,
        /// Jobs for the outbox.
        emits: Vec<Emit>,
    },
    /// Stays at the head of its lane, one turn further.
    Retry {
        /// Attempts so far.
        attempts: u32,
        /// How long it waits, by the Redis clock.
        delay: Duration,
        /// Why it waits.
        why: Why,
        /// Whether it is still not known how an interrupted run of it ended.
        interrupted: bool,
        /// Its attempts so far ([`gristmill_job::History`]), opaque here.
        history: Bytes,
    },
    /// Acknowledged and deleted without effect, since its handler said so.
    Discard,
    /// Acknowledged and deleted without effect: an earlier run of it had its effect, elsewhere than in Redis.
    Duplicate,
    /// Acknowledged and deleted without effect: its version is not newer than what is there, elsewhere than in Redis.
    Stale,
    /// Acknowledged and deleted without a run: a person asked for that.
    Cancelled,
    /// Acknowledged and deleted without a run: it was not to start so late.
    Expired,
    /// Kept as a dead letter.
    Dead {
        /// The letter's own id.
        dead_id: String,
        /// When, by the node's clock.
        at: UnixMillis,
        /// Why.
        reason: DeadReason,
        /// The record ([`gristmill_job::DeadLetter`]), opaque here.
        body: Bytes,
        /// Whether the lane of its key waits for a person from here on.
        hold: bool,
        /// Whether it is a job that was acknowledged before its run: there is no claim to be asked for.
        acknowledged: bool,
    },
}

/// A job on its way to another partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emit {
    /// Where it goes.
    pub queue: QueueName,
    /// The job, named after its parent and position.
    pub job: EncodedJob,
}

/// What became of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// Acknowledged, effects written.
    Done,
    /// Acknowledged; its version was not newer, no effect.
    Stale,
    /// Acknowledged; another copy of its id had applied, no effect.
    Duplicate,
    /// Acknowledged without effect, as its handler said.
    Discarded,
    /// Acknowledged without effect: a person asked for that.
    Cancelled,
    /// Acknowledged without effect: it was too late for it.
    Expired,
    /// Put back, one turn further.
    Retried,
    /// Now a dead letter.
    Dead,
    /// Not claimed any more. In answer to a repeat: the first call took effect.
    Gone,
    /// Still claimed, at this turn.
    AtTurn(u32),
    /// Its writes were refused; it is still claimed, nothing of it was written.
    Rejected(String),
}

impl Settle {
    /// Acknowledged without anything else to look at or write.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(&self.verdict, Verdict::Done { entity: None, emits, .. }
            if self.turn == 0 && !self.marked && emits.is_empty())
    }

    fn write(&self, keys: &mut Vec<Vec<u8>>, arguments: &mut redis::Cmd, guard: &Guard<'_>) {
        let word = match &self.verdict {
            Verdict::Done { .. } => "done",
            Verdict::Retry { .. } => "retry",
            Verdict::Discard => "discard",
            Verdict::Duplicate => "duplicate",
            Verdict::Stale => "stale",
            Verdict::Cancelled => "cancelled",
            Verdict::Expired => "expired",
            Verdict::Dead { acknowledged: true, .. } => "bury",
            Verdict::Dead { .. } => "dead",
        };
        arguments.arg(word).arg(self.place.to_string()).arg(self.turn);
        let unordered = guard.is_unordered();
        if self.marked && (unordered || !matches!(self.verdict, Verdict::Retry { .. })) {
            keys.push(guard.keys.seen(self.id.as_bytes()));
        }
        let marked = if self.marked { "1" } else { "0" };
        match &self.verdict {
            Verdict::Done { version, entity, emits } => {
                let (change, state): (&str, &[u8]) = match entity {
                    None => ("", b""),
                    Some(EntityChange::Delete) => ("delete", b""),
                    Some(EntityChange::Put(state)) => ("put", state),
                };
                if entity.is_some() {
                    keys.push(guard.keys.entity(self.key.as_bytes()));
                }
                arguments.arg(marked).arg(change).arg(format!("{version:020}")).arg(state).arg(emits.len());
                for emit in emits {
                    arguments.arg(emit.queue.as_str()).arg(emit.job.id.as_bytes());
                    arguments.arg(emit.job.key.as_bytes()).arg(emit.job.envelope.as_ref());
                    arguments.arg(emit.job.due.to_string());
                }
            }
            Verdict::Retry { attempts, delay, why, interrupted, history } => {
                // Only where it moves, its mark is written.
                arguments
                    .arg(if unordered { marked } else { "0" })
                    .arg(*attempts)
                    .arg(millis(*delay))
                    .arg(why.as_str());
                arguments.arg(if *interrupted { "1" } else { "0" }).arg(history.as_ref());
            }
            Verdict::Discard
            | Verdict::Duplicate
            | Verdict::Stale
            | Verdict::Cancelled
            | Verdict::Expired => {
                arguments.arg(marked);
            }
            Verdict::Dead { dead_id, at, body, hold, .. } => {
                arguments.arg(marked).arg(dead_id).arg(at.0).arg(if *hold { "1" } else { "0" });
                arguments.arg(self.key.as_bytes()).arg(body.as_ref());
            }
        }
    }
}

pub(crate) fn write(guard: Guard<'_>, jobs: &[Settle]) -> Pipeline {
    let mut plain: Vec<Place> = jobs.iter().filter(|job| job.is_plain()).map(|job| job.place).collect();
    plain.sort_unstable();
    let mut own_keys = Vec::new();
    let mut arguments = redis::Cmd::new();
    arguments.arg(guard.fence.incarnation.as_str()).arg(guard.fence.epoch.0).arg(guard.number);
    // Redis refuses an expiry of 0, and would do so after the effects were written.
    arguments.arg(guard.seen_window_ms.max(1)).arg(plain.len());
    for place in plain {
        arguments.arg(place.to_string());
    }
    for job in jobs.iter().filter(|job| !job.is_plain()) {
        job.write(&mut own_keys, &mut arguments, &guard);
    }
    let keys = guard.keys;
    let mut fixed = vec![
        &keys.lease,
        &keys.stream,
        &keys.state,
        &keys.dead,
        &keys.dead_bodies,
        &keys.outbox,
        &keys.returned,
        &keys.returned_bodies,
        &keys.originals,
        &keys.held,
    ];
    if guard.is_unordered() {
        fixed.extend([&keys.meta, &keys.delayed, &keys.delayed_bodies]);
    }
    let mut script = SETTLE.call_sized(fixed.len() + own_keys.len(), 8 + jobs.len(), 64 * jobs.len());
    for key in fixed {
        script.arg(key);
    }
    for key in own_keys {
        script.arg(key);
    }
    for argument in arguments.args_iter() {
        if let redis::Arg::Simple(bytes) = argument {
            script.arg(bytes);
        }
    }
    single(script)
}

pub(crate) fn read(jobs: &[Settle], value: Value) -> Result<Answer, CallError> {
    let mut words = Words::read(value, "the answer of settle")?;
    if let Some(refusal) = words.refusal()? {
        return Ok(Answer::Refused(refusal));
    }
    let first = match words.tag() {
        "ok" => true,
        "already" => false,
        _ => return Err(words.unknown("ok, already, fenced or gap")),
    };
    let mut gone = Vec::new();
    for place in reply::list(words.next(), "the places that are gone")? {
        let place = reply::bytes(place)?;
        gone.extend(Place::parse(&place));
    }
    let mut others = reply::list(words.next(), "an answer per job")?.into_iter();
    let mut settled = Vec::with_capacity(jobs.len());
    for job in jobs {
        settled.push(match job.is_plain() {
            // To a repeat, a plain job that is still claimed was not settled.
            true if gone.contains(&job.place) => Settled::Gone,
            true if first => Settled::Done,
            true => Settled::AtTurn(0),
            false => word(others.next().unwrap_or(Value::Nil))?,
        });
    }
    Ok(Answer::Settled { jobs: settled, first })
}

fn word(value: Value) -> Result<Settled, CallError> {
    let text = reply::text(value)?;
    Ok(match text.split_once(' ').unwrap_or((&text, "")) {
        ("done", _) => Settled::Done,
        ("stale", _) => Settled::Stale,
        ("duplicate", _) => Settled::Duplicate,
        ("discarded", _) => Settled::Discarded,
        ("cancelled", _) => Settled::Cancelled,
        ("expired", _) => Settled::Expired,
        ("retried", _) => Settled::Retried,
        ("dead", _) => Settled::Dead,
        ("gone", _) => Settled::Gone,
        ("at_turn", turn) => Settled::AtTurn(
            turn.parse().map_err(|_| CallError::Unexpected(format!("expected a turn, got {text:?}")))?,
        ),
        ("rejected", why) => Settled::Rejected(why.to_owned()),
        _ => return Err(CallError::Unexpected(format!("expected what became of a job, got {text:?}"))),
    })
}
