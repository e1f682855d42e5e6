//! From how a run ended, or why there was none, to what becomes of its job. Pure: policy, clock and dice are brought by the
//! caller.

use crate::partition::lanes::LaneJob;
use crate::partition::policy::Policy;
use crate::partition::tenure::Ran;
use crate::partition::way::Unrun;
use bytes::Bytes;
use gristmill_broker::state::{StateLine, Why};
use gristmill_broker::{Emit, Entry, Epoch, Settle, Verdict};
use gristmill_handler::{Answer, Facts};
use gristmill_job::envelope::MAX_HEADERS;
use gristmill_job::trace::{AttemptOf, TRACEPARENT, TraceContext};
use gristmill_job::{
    AttemptRecord, CrashRecord, DeadLetter, DeadReason, Effects, Envelope, ErrorClass, Failure, History,
    JobId, JobLimits, UnixMillis,
};
use std::sync::LazyLock;
use std::time::Duration;

/// Between two looks whether a handler for its kind is here, at most.
const KIND_WAIT: Duration = Duration::from_secs(30);
/// Shortest wait of a retry that the budget does not afford, up to doubled by the dice: each is a write. Longer than a head
/// is held in memory while it waits, so that such heads are parked and fill no window.
const OVER_BUDGET_WAIT: Duration = Duration::from_millis(2500);
/// The class under which the history notes that no handler was there.
const NO_HANDLER: &str = "no_handler";

pub(crate) struct Judge<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) node: &'a str,
    pub(crate) partition: u16,
    pub(crate) epoch: Epoch,
    /// For emitted jobs, by this machine's clock.
    pub(crate) wall: UnixMillis,
    /// The Redis clock, about: for ages and for what people read.
    pub(crate) redis: UnixMillis,
    /// Uniform in `[0, 1)`.
    pub(crate) random: f64,
}

/// The job that is judged, and how it stood when it ran.
struct Case<'a> {
    entry: &'a Entry,
    line: &'a StateLine,
    facts: Facts,
    acknowledged: bool,
}

impl Judge<'_> {
    /// The verdict on a run that was answered, refused or given up.
    pub(crate) fn settle(&self, job: &LaneJob, ran: Ran) -> Settle {
        let (answer, facts) = match ran {
            Ran::Answered(answer, facts) => (Ok(answer), facts),
            Ran::Hung(error, facts) => {
                (Ok(Answer::Failed(Failure::new(ErrorClass::Timeout, vec![error]))), facts)
            }
            Ran::Refused(reason, error, facts) => (Err((reason, error)), facts),
            // Not judged: the caller puts such a job back where it stood.
            Ran::NotStarted | Ran::Expired | Ran::Asks(..) | Ran::Judged(_) | Ran::Stopped => (
                Ok(Answer::Review("it was stopped before it answered".into())),
                facts_of(&job.entry, self.policy.max_envelope_bytes),
            ),
        };
        let case = Case { entry: &job.entry, line: line_of(job), facts, acknowledged: job.acknowledged };
        let verdict = match answer {
            Ok(answer) if job.acknowledged => self.acknowledged(&case, answer),
            Ok(answer) => self.answered(&case, answer),
            Err((DeadReason::UnknownKind, error)) if !job.acknowledged => self.no_handler(&case, error),
            Err((reason, error)) => self.dead(&case, case.line.attempts, reason, &permanent(error)),
        };
        settle(&case, verdict)
    }

    /// The verdict on a job that is not run.
    pub(crate) fn unrun(&self, job: &LaneJob, why: Unrun) -> Settle {
        let case = Case { acknowledged: false, ..Case::unrun(job, self.policy) };
        let line = case.line;
        let verdict = match why {
            Unrun::OverBudget { turn } => {
                let least = OVER_BUDGET_WAIT.mul_f64(1.0 + self.random).max(turn);
                self.wait(&case, line.attempts, self.backoff(&case, line.attempts).max(least), Why::Budget)
            }
            Unrun::Cancelled => Verdict::Cancelled,
            Unrun::Expired => Verdict::Expired,
            Unrun::Skipped => self.gone(&case, DeadReason::Skipped, "a person passed over it"),
            Unrun::Crashed => {
                let deaths = line.crashes.len();
                let error = format!("{deaths} processes died while it ran alone in them");
                self.gone(&case, DeadReason::Crashed, &error)
            }
            Unrun::Interrupted => {
                let error = "a run of it was interrupted, and nobody knows whether its effect happened; look, then \
                    replay or discard it";
                self.gone(&case, DeadReason::Review, error)
            }
        };
        settle(&case, verdict)
    }

    /// The verdict on a job that may not start now, where there is no lane for it to wait in: put back, uncharged.
    pub(crate) fn paused(&self, job: &LaneJob, delay: Duration) -> Settle {
        let case = Case { acknowledged: false, ..Case::unrun(job, self.policy) };
        settle(&case, self.wait(&case, case.line.attempts, delay, case.line.why))
    }

    fn answered(&self, case: &Case<'_>, answer: Answer) -> Verdict {
        let attempts = case.line.attempts;
        match answer {
            Answer::Done(effects) => self.done(case, effects),
            Answer::Failed(failure) => self.failed(case, failure),
            Answer::Snoozed(wait) => self.wait(case, attempts, wait, Why::Snooze),
            // The caller starts it; put back at once where it cannot.
            Answer::RunAgain => self.wait(case, attempts, Duration::ZERO, Why::Nothing),
            Answer::Discarded(_) => Verdict::Discard,
            Answer::Duplicate => Verdict::Duplicate,
            Answer::Stale(_) => Verdict::Stale,
            Answer::Review(reason) => {
                let failure = Failure::new(ErrorClass::Unknown, vec![reason]);
                self.dead(case, attempts + 1, DeadReason::Review, &failure)
            }
        }
    }

    /// It was acknowledged before it ran, and cannot be put back: whatever is not well is a dead letter.
    fn acknowledged(&self, case: &Case<'_>, answer: Answer) -> Verdict {
        let says = |words: &str| self.dead(case, 1, DeadReason::Permanent, &permanent(words.into()));
        match answer {
            Answer::Done(effects) if effects.is_empty() => {
                Verdict::Done { version: case.facts.version, entity: None, emits: Vec::new() }
            }
            Answer::Done(_) => {
                says("a kind that is at_most_once has no effects: it was acknowledged before its run")
            }
            Answer::Discarded(_) => Verdict::Discard,
            Answer::Duplicate => Verdict::Duplicate,
            Answer::Stale(_) => Verdict::Stale,
            Answer::Snoozed(_) | Answer::RunAgain => {
                says("a kind that is at_most_once cannot run again: it was acknowledged before its run")
            }
            Answer::Failed(failure) => {
                let permanent = failure.class == ErrorClass::Permanent;
                let reason = if permanent { DeadReason::Permanent } else { DeadReason::Exhausted };
                self.dead(case, 1, reason, &failure)
            }
            Answer::Review(reason) => {
                self.dead(case, 1, DeadReason::Review, &Failure::new(ErrorClass::Unknown, vec![reason]))
            }
        }
    }

    fn done(&self, case: &Case<'_>, effects: Effects) -> Verdict {
        let version = case.facts.version;
        if effects.is_empty() {
            return Verdict::Done { version, entity: None, emits: Vec::new() };
        }
        let mut emits = Vec::with_capacity(effects.emit.len());
        let trace = self.trace(case).filter(|_| !effects.emit.is_empty());
        for (position, (queue, mut job)) in effects.emit.into_iter().enumerate() {
            // Named after parent and position, so that a rerun emits the same ids.
            job.id = Some(JobId::emitted_by(&case.entry.id, position));
            // Its attempt made it: links of its own runs lead here. A context of the handler's own stays.
            if let Some(context) = trace.filter(|context| context.sampled)
                && !job.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(TRACEPARENT))
                && job.headers.len() < MAX_HEADERS
            {
                job.headers.push((TRACEPARENT.to_owned(), context.to_string()));
            }
            match job.encode(self.wall, JobLimits::default()) {
                Ok(job) => emits.push(Emit { queue, job }),
                Err(error) => {
                    let failure = permanent(format!("the job emitted at position {position}: {error}"));
                    return self.dead(case, case.line.attempts + 1, DeadReason::Permanent, &failure);
                }
            }
        }
        Verdict::Done { version, entity: effects.entity, emits }
    }

    fn failed(&self, case: &Case<'_>, failure: Failure) -> Verdict {
        let attempts = case.line.attempts + 1;
        if failure.class == ErrorClass::Permanent {
            return self.dead(case, attempts, DeadReason::Permanent, &failure);
        }
        let retry = case.retry(self.policy);
        if !retry.allows(attempts, case.facts.max_attempts) {
            return self.dead(case, attempts, DeadReason::Exhausted, &failure);
        }
        let age = Duration::from_millis(self.redis.0.saturating_sub(case.entry.place.ms));
        // One that a person brought back is as old as it was; that is no reason to give it one attempt.
        if case.line.replays == 0 && retry.too_old(age) {
            return self.dead(case, attempts, DeadReason::TooOld, &failure);
        }
        let delay = self.backoff(case, attempts).max(failure.retry_after.unwrap_or_default());
        let history = self.history(case, attempts, &failure);
        let interrupted = case.line.interrupted;
        Verdict::Retry {
            attempts,
            delay,
            why: Why::Retry,
            interrupted,
            history: Bytes::from(history.encode()),
        }
    }

    fn backoff(&self, case: &Case<'_>, attempts: u32) -> Duration {
        case.retry(self.policy).wait(attempts.max(1), self.random)
    }

    /// Put back, one turn further, uncharged.
    fn wait(&self, case: &Case<'_>, attempts: u32, delay: Duration, why: Why) -> Verdict {
        let (interrupted, history) = (case.line.interrupted, case.line.history.clone());
        Verdict::Retry { attempts, delay, why, interrupted, history }
    }

    /// Waits for a node that serves its kind, which may be a newer release of this one; not for ever.
    fn no_handler(&self, case: &Case<'_>, error: String) -> Verdict {
        let mut history = History::decode(&case.line.history);
        // Since it waits for its kind in a row: what was served in between begins anew.
        let in_a_row = case.line.why == Why::Kind;
        let met = history.records().iter().rev().find(|record| in_a_row && record.class == NO_HANDLER);
        let met = met.map(|record| record.at);
        let waited = Duration::from_millis(self.redis.0.saturating_sub(met.unwrap_or(self.redis).0));
        let limit = self.policy.unknown_kind_wait;
        if waited >= limit {
            return self.dead(case, case.line.attempts, DeadReason::UnknownKind, &permanent(error));
        }
        if met.is_none() {
            history.push(self.record(case, case.line.attempts, NO_HANDLER, error));
        }
        let delay = KIND_WAIT.min(Duration::from_secs(1 << case.line.turn.min(5))).min(limit - waited);
        let (interrupted, history) = (case.line.interrupted, Bytes::from(history.encode()));
        Verdict::Retry { attempts: case.line.attempts, delay, why: Why::Kind, interrupted, history }
    }

    /// The attempt's own trace, where attempts are traced.
    fn trace(&self, case: &Case<'_>) -> Option<TraceContext> {
        let (queue, share) = self.policy.traced.as_ref()?;
        let Case { entry, line, .. } = case;
        let (partition, place, job) = (self.partition, entry.place, &entry.id);
        Some(TraceContext::of_attempt(&AttemptOf { queue, partition, place, job, turn: line.turn }, *share))
    }

    fn record(&self, case: &Case<'_>, attempt: u32, class: &str, error: String) -> AttemptRecord {
        let envelope = Envelope::decode(&case.entry.envelope, self.policy.max_envelope_bytes).ok();
        let own = self.trace(case).map(|context| context.trace_id());
        AttemptRecord {
            attempt,
            at: self.redis,
            node: self.node.to_owned(),
            class: class.to_owned(),
            error,
            trace: own.or_else(|| envelope.and_then(|envelope| envelope.trace_id().map(str::to_owned))),
        }
    }

    fn history(&self, case: &Case<'_>, attempt: u32, failure: &Failure) -> History {
        let mut history = History::decode(&case.line.history);
        history.push(self.record(case, attempt, failure.class.as_str(), failure.chain.join(": ")));
        history
    }

    /// Dead without a last run.
    fn gone(&self, case: &Case<'_>, reason: DeadReason, error: &str) -> Verdict {
        let history = History::decode(&case.line.history);
        self.letter(case, case.line.attempts, reason, vec![error.to_owned()], None, history)
    }

    fn dead(&self, case: &Case<'_>, attempts: u32, reason: DeadReason, failure: &Failure) -> Verdict {
        let history = match attempts > case.line.attempts {
            true => self.history(case, attempts, failure),
            false => History::decode(&case.line.history),
        };
        let class = Some(failure.class.as_str().to_owned());
        self.letter(case, attempts, reason, failure.chain.clone(), class, history)
    }

    fn letter(
        &self,
        case: &Case<'_>,
        attempts: u32,
        reason: DeadReason,
        error: Vec<String>,
        class: Option<String>,
        history: History,
    ) -> Verdict {
        let Case { entry, line, .. } = case;
        let envelope = Envelope::decode(&entry.envelope, self.policy.max_envelope_bytes).ok();
        let crash = |crash: &gristmill_broker::state::Crash| CrashRecord {
            node: crash.fence.incarnation.as_str().to_owned(),
            at: crash.at,
        };
        let mut traces: Vec<String> = Vec::new();
        let of_envelope = envelope.as_ref().and_then(Envelope::trace_id).map(str::to_owned);
        let of_attempts = history.records().iter().filter_map(|record| record.trace.clone());
        for trace in of_envelope.into_iter().chain(of_attempts) {
            if !traces.contains(&trace) {
                traces.push(trace);
            }
        }
        // The crashes were noted by the Redis clock itself, `redis` is its estimate here, which may be a moment behind.
        let at = line.crashes.iter().map(|crash| crash.at).max().unwrap_or(self.redis).max(self.redis);
        let letter = DeadLetter {
            job: entry.id.as_bytes().to_vec(),
            key: entry.key.as_bytes().to_vec(),
            envelope: entry.envelope.to_vec(),
            place: entry.place.to_string(),
            turn: line.turn,
            reason,
            error,
            class,
            attempts,
            node: self.node.to_owned(),
            at,
            history: history.into_records(),
            crashes: line.crashes.iter().map(crash).collect(),
            replays: line.replays,
            traces,
            kind: envelope.as_ref().map(|envelope| envelope.kind.to_owned()),
            version: envelope.as_ref().map(|envelope| envelope.version),
        };
        Verdict::Dead {
            // Its own id: a place may come again after a failover, in another epoch.
            dead_id: format!("{}-{}-{}-{}", self.partition, entry.place, line.turn, self.epoch),
            at,
            reason,
            body: Bytes::from(letter.encode().unwrap_or_default()),
            // Without a key there is no lane to hold; and whoever passes over a job wants its lane to go on.
            hold: self.policy.hold && !entry.key.as_bytes().is_empty() && reason != DeadReason::Skipped,
            acknowledged: case.acknowledged,
        }
    }

    /// The verdict on a job whose first one Redis refused to write.
    pub(crate) fn rejected(&self, job: &LaneJob, settle: &Settle, why: &str) -> Settle {
        let case = Case::unrun(job, self.policy);
        let failure = permanent(format!("Redis refused to write what the job asked for: {why}"));
        let verdict = self.dead(&case, case.line.attempts + 1, DeadReason::Rejected, &failure);
        // Its mark may be what cannot be written.
        Settle { verdict, marked: false, ..settle.clone() }
    }
}

/// The acknowledgement of a job that may run at most once.
pub(crate) fn acknowledgement(job: &LaneJob, policy: &Policy) -> Settle {
    let case = Case { acknowledged: false, ..Case::unrun(job, policy) };
    let version = case.facts.version;
    settle(&case, Verdict::Done { version, entity: None, emits: Vec::new() })
}

impl<'j> Case<'j> {
    /// Of a job that has not run.
    fn unrun(job: &'j LaneJob, policy: &Policy) -> Self {
        let facts = facts_of(&job.entry, policy.max_envelope_bytes);
        Self { entry: &job.entry, line: line_of(job), facts, acknowledged: job.acknowledged }
    }

    fn retry<'a>(&'a self, policy: &'a Policy) -> &'a gristmill_job::RetryPolicy {
        self.facts.options.as_ref().and_then(|options| options.retry_policy()).unwrap_or(&policy.retry)
    }
}

fn settle(case: &Case<'_>, verdict: Verdict) -> Settle {
    Settle {
        place: case.entry.place,
        turn: case.line.turn,
        id: case.entry.id.clone(),
        key: case.entry.key.clone(),
        marked: case.facts.own_id,
        verdict,
    }
}

/// What is stored of a job; of one of which nothing is, that.
pub(crate) fn line_of(job: &LaneJob) -> &StateLine {
    static NOTHING: LazyLock<StateLine> = LazyLock::new(StateLine::default);
    job.entry.state.line().unwrap_or(&NOTHING)
}

fn permanent(error: String) -> Failure {
    Failure::new(ErrorClass::Permanent, vec![error])
}

/// What a settle needs to know of a job that did not run.
fn facts_of(entry: &Entry, max_bytes: usize) -> Facts {
    let envelope = Envelope::decode(&entry.envelope, max_bytes).ok();
    Facts {
        version: envelope.as_ref().map_or(0, |envelope| envelope.version),
        own_id: envelope.as_ref().is_none_or(|envelope| envelope.own_id),
        max_attempts: None,
        kind: None,
        options: None,
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
