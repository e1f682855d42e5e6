//! From how a run ended to what becomes of its job. Pure: policy, clock and dice are brought by the caller.

use crate::partition::tenure::Ran;
use bytes::Bytes;
use gristmill_broker::state::Why;
use gristmill_broker::{Emit, Entry, Epoch, Settle, Verdict};
use gristmill_handler::{Answer, Facts};
use gristmill_job::{
    DeadLetter, DeadReason, Effects, ErrorClass, Failure, JobId, JobLimits, RetryPolicy, UnixMillis,
};
use std::time::Duration;

/// Longest error text kept with a job that waits for its next attempt, in bytes.
const ERROR_BYTES: usize = 300;

pub(crate) struct Judge<'a> {
    pub(crate) retry: &'a RetryPolicy,
    pub(crate) node: &'a str,
    pub(crate) partition: u16,
    pub(crate) epoch: Epoch,
    pub(crate) wall: UnixMillis,
    /// Uniform in `[0, 1)`.
    pub(crate) random: f64,
}

impl Judge<'_> {
    /// The verdict on a run that was answered or refused. `attempts` is how many had failed before it.
    pub(crate) fn settle(&self, entry: &Entry, turn: u32, attempts: u32, ran: Ran) -> Settle {
        let (verdict, facts) = match ran {
            Ran::Answered(Answer::Done(effects), facts) => (self.done(entry, effects, &facts), facts),
            Ran::Answered(Answer::Failed(failure), facts) => {
                (self.failed(entry, turn, attempts + 1, failure, &facts), facts)
            }
            // Put back like a failure, one turn further, but nothing is charged.
            Ran::Answered(Answer::Snoozed(wait), facts) => {
                (Verdict::Retry { attempts, delay: wait, why: Why::Snooze, history: Bytes::new() }, facts)
            }
            Ran::Answered(Answer::Discarded(_), facts) => (Verdict::Discard, facts),
            Ran::Answered(Answer::RunAgain, facts) => (
                Verdict::Retry { attempts, delay: Duration::ZERO, why: Why::Retry, history: Bytes::new() },
                facts,
            ),
            Ran::Answered(Answer::Review(reason), facts) => {
                let failure = Failure::new(ErrorClass::Permanent, vec![reason]);
                (self.dead(entry, turn, attempts + 1, DeadReason::Review, &failure), facts)
            }
            Ran::Refused(reason, error, facts) => {
                let failure = Failure::new(ErrorClass::Permanent, vec![error]);
                (self.dead(entry, turn, attempts, reason, &failure), facts)
            }
            // Not judged: the caller puts such a job back where it stood.
            Ran::Hung(error, facts) => {
                let failure = Failure::new(ErrorClass::Timeout, vec![error]);
                (self.failed(entry, turn, attempts + 1, failure, &facts), facts)
            }
            Ran::NotStarted | Ran::Stopped => {
                let failure = Failure::new(ErrorClass::Unknown, vec!["not run".into()]);
                let facts = Facts { version: 0, own_id: true, max_attempts: None, kind: None, options: None };
                (self.dead(entry, turn, attempts, DeadReason::Other, &failure), facts)
            }
        };
        Settle {
            place: entry.place,
            turn,
            id: entry.id.clone(),
            key: entry.key.clone(),
            marked: facts.own_id,
            verdict,
        }
    }

    fn done(&self, entry: &Entry, effects: Effects, facts: &Facts) -> Verdict {
        if effects.is_empty() {
            return Verdict::Done { version: facts.version, entity: None, emits: Vec::new() };
        }
        let mut emits = Vec::with_capacity(effects.emit.len());
        for (position, (queue, mut job)) in effects.emit.into_iter().enumerate() {
            // Named after parent and position, so that a rerun emits the same ids.
            job.id = Some(JobId::emitted_by(&entry.id, position));
            match job.encode(self.wall, JobLimits::default()) {
                Ok(job) => emits.push(Emit { queue, job }),
                Err(error) => {
                    let chain = vec![format!("the job emitted at position {position}: {error}")];
                    let failure = Failure::new(ErrorClass::Permanent, chain);
                    return self.dead(
                        entry,
                        entry.state.turn(),
                        entry.state.attempts() + 1,
                        DeadReason::Permanent,
                        &failure,
                    );
                }
            }
        }
        Verdict::Done { version: facts.version, entity: effects.entity, emits }
    }

    fn failed(&self, entry: &Entry, turn: u32, attempts: u32, failure: Failure, facts: &Facts) -> Verdict {
        if failure.class == ErrorClass::Permanent {
            return self.dead(entry, turn, attempts, DeadReason::Permanent, &failure);
        }
        let retry = facts.options.as_ref().and_then(|options| options.retry_policy()).unwrap_or(self.retry);
        if !retry.allows(attempts, facts.max_attempts) {
            return self.dead(entry, turn, attempts, DeadReason::Exhausted, &failure);
        }
        let delay = retry.wait(attempts, self.random).max(failure.retry_after.unwrap_or_default());
        Verdict::Retry { attempts, delay, why: Why::Retry, history: shortened(&failure).into() }
    }

    fn dead(
        &self,
        entry: &Entry,
        turn: u32,
        attempts: u32,
        reason: DeadReason,
        failure: &Failure,
    ) -> Verdict {
        let letter = DeadLetter {
            job: entry.id.as_bytes().to_vec(),
            key: entry.key.as_bytes().to_vec(),
            envelope: entry.envelope.to_vec(),
            place: entry.place.to_string(),
            turn,
            reason,
            error: failure.chain.clone(),
            class: Some(failure.class.as_str().to_owned()),
            attempts,
            node: self.node.to_owned(),
            at: self.wall,
            ..DeadLetter::default()
        };
        Verdict::Dead {
            // Its own id: a place may come again after a failover, in another epoch.
            dead_id: format!("{}-{}-{}-{}", self.partition, entry.place, turn, self.epoch),
            at: self.wall,
            reason,
            body: Bytes::from(letter.encode().unwrap_or_default()),
            hold: false,
            acknowledged: false,
        }
    }

    /// The verdict on a job whose first one Redis refused to write.
    pub(crate) fn rejected(&self, entry: &Entry, settle: &Settle, attempts: u32, why: &str) -> Settle {
        let chain = vec![format!("Redis refused to write what the job asked for: {why}")];
        let failure = Failure::new(ErrorClass::Permanent, chain);
        let verdict = self.dead(entry, settle.turn, attempts + 1, DeadReason::Rejected, &failure);
        // Its mark may be what cannot be written.
        Settle { verdict, marked: false, ..settle.clone() }
    }
}

fn shortened(failure: &Failure) -> String {
    let mut text = failure.chain.join(": ");
    if text.len() > ERROR_BYTES {
        let end = (0..=ERROR_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
