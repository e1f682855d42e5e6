//! From a run whose end is known to its span, and the links to the spans it has to do with.

use crate::worker::attempt::{Attempt, Traced};
use gristmill_broker::state::{StateLine, Why};
use gristmill_broker::{Entry, Incarnation};
use gristmill_job::trace::{AttemptOf, TRACESTATE, TraceContext, parse_trace_id};
use gristmill_job::{DeadReason, Envelope, History, QueueName};
use gristmill_telemetry::tally::Outcome;
use gristmill_telemetry::trace::Traces;
use gristmill_telemetry::trace::span::{Attributes, Kind, Link, Span, SpanEvent};
use gristmill_telemetry::trace::words;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest `tracestate` that is passed on, as the W3C asks for at least.
const MAX_TRACESTATE_BYTES: usize = 512;

/// Where runs end.
pub(crate) struct Ground<'a> {
    pub(crate) queue: &'a QueueName,
    pub(crate) partition: u16,
    pub(crate) words: &'a Words,
}

/// What all spans of a partition share.
#[derive(Debug)]
pub(crate) struct Words {
    destination: Arc<str>,
    partition: Arc<str>,
    client: Arc<str>,
}

impl Words {
    pub(crate) fn new(queue: &QueueName, partition: u16, incarnation: &Incarnation) -> Self {
        let (destination, client) = (queue.as_str().into(), incarnation.as_str().into());
        Self { destination, partition: partition.to_string().into(), client }
    }
}

impl Ground<'_> {
    /// The spans of a run, if it is kept and there is room for them.
    pub(crate) fn trace(
        &self,
        traces: &Traces,
        attempt: &Attempt,
        became: (Outcome, Option<DeadReason>),
        now: Instant,
    ) {
        let Some(traced) = &attempt.traced else { return };
        let (outcome, _) = became;
        if traces.keeps(&traced.began.context, outcome, attempt.told.ran) && traces.has_room() {
            for span in self.spans(traced, attempt, became, now) {
                traces.finished(span);
            }
        }
    }

    fn spans(
        &self,
        traced: &Traced,
        attempt: &Attempt,
        (outcome, reason): (Outcome, Option<DeadReason>),
        now: Instant,
    ) -> Vec<Span> {
        let Traced { began, entry, .. } = traced;
        // The attempt's own span is that of the run whose verdict is written; there is one of them.
        let settled = !matches!(outcome, Outcome::HandedBack | Outcome::Lost);
        let context = match settled {
            true => began.context,
            false => began
                .context
                .sibling(traced.epoch.0 ^ u64::try_from(attempt.told.ran.as_nanos()).unwrap_or(0)),
        };
        let mut span = Span::new(context, format!("process {}", self.queue), Kind::Consumer, began.at);
        let answered = began.at + attempt.told.ran;
        span.ended = (began.at + now.saturating_duration_since(began.instant)).max(answered);
        span.attributes = self.common("process", entry);
        let envelope = Envelope::decode(&entry.envelope, usize::MAX).ok();
        let nothing = StateLine::default();
        let line = entry.state.line().unwrap_or(&nothing);
        span.set(words::KIND, attempt.told.kind);
        span.set(words::PLACE, entry.place.to_string());
        span.set(words::ATTEMPT, traced.attempt);
        span.set(words::TURN, traced.turn);
        span.set(words::RECOVERED, entry.recovered);
        span.set(words::OUTCOME, outcome.as_str());
        span.set(words::RUN_MS, ms(attempt.told.ran));
        span.set(words::EFFECT, traced.effect);
        if let Some(waited) = attempt.told.waited {
            span.set(words::WAIT_MS, ms(waited));
        }
        if let Some(envelope) = &envelope {
            span.set(words::VERSION, envelope.version);
        }
        if line.replays > 0 {
            span.set(words::REPLAYS, line.replays);
        }
        if traced.reconcile {
            span.set(words::RECONCILE, true);
        }
        if traced.emitted > 0 {
            span.set(words::EMITTED, traced.emitted as u64);
        }
        if let Some(reason) = reason.filter(|_| outcome == Outcome::Dead) {
            span.set(words::REASON, reason.as_str());
        }
        if let Some(class) = attempt.told.class {
            span.set(words::ERROR_TYPE, class.as_str());
        }
        span.error.clone_from(&traced.error);
        if outcome == Outcome::Dead && span.error.is_none() {
            span.error = Some("the job is a dead letter".into());
        }
        span.events.push(SpanEvent { name: words::ANSWERED, at: answered, attributes: Vec::new() });
        span.links = links(&self.attempt_of(entry, traced.turn), line, envelope.as_ref());
        if settled {
            let attributes = vec![(words::OUTCOME, outcome.as_str().into())];
            span.events.push(SpanEvent { name: words::SETTLED, at: span.ended, attributes });
            return vec![span];
        }
        if outcome == Outcome::HandedBack {
            return vec![span];
        }
        // A settle that failed is seen for itself.
        let mut settle =
            Span::new(context.sibling(1), format!("settle {}", self.queue), Kind::Client, answered);
        settle.parent = Some(context.span_id);
        settle.ended = span.ended;
        settle.attributes = self.common("settle", entry);
        settle.set(words::ERROR_TYPE, "lost");
        settle.error = Some("the verdict is not known to be written".into());
        vec![span, settle]
    }

    pub(crate) fn attempt_of<'a>(&'a self, entry: &'a Entry, turn: u32) -> AttemptOf<'a> {
        AttemptOf { queue: self.queue, partition: self.partition, place: entry.place, job: &entry.id, turn }
    }

    fn common(&self, operation: &'static str, entry: &Entry) -> Attributes {
        vec![
            (words::SYSTEM, words::GRISTMILL.into()),
            (words::OPERATION_NAME, operation.into()),
            (words::OPERATION_TYPE, operation.into()),
            (words::DESTINATION, self.words.destination.clone().into()),
            (words::PARTITION, self.words.partition.clone().into()),
            (words::GROUP, words::WORKERS.into()),
            (words::CLIENT_ID, self.words.client.clone().into()),
            (words::MESSAGE_ID, entry.id.to_string().into()),
        ]
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The span that made the job, and the attempt before this one.
fn links(attempt: &AttemptOf<'_>, line: &StateLine, envelope: Option<&Envelope<'_>>) -> Vec<Link> {
    let mut links = Vec::new();
    if let Some(context) = envelope.and_then(Envelope::trace_context) {
        let state = envelope.and_then(|envelope| envelope.header(TRACESTATE)).unwrap_or_default();
        let state = if state.len() <= MAX_TRACESTATE_BYTES { state.to_owned() } else { String::new() };
        links.push(Link { context, state, relation: words::CREATION });
    }
    let Some(turn) = attempt.turn.checked_sub(1) else { return links };
    let derived = || TraceContext::of_attempt(&AttemptOf { turn, ..*attempt }, 1.0);
    let before = match line.why {
        Why::Retry | Why::Snooze => Some((derived(), words::PREVIOUS_ATTEMPT)),
        Why::Nothing if line.replays > 0 && line.attempts == 0 => Some((derived(), words::REPLAY_OF)),
        Why::Nothing => None,
        // It was put back without a run: the history knows the last that failed.
        Why::Budget | Why::Kind => last_of(&line.history).map(|context| (context, words::PREVIOUS_ATTEMPT)),
    };
    links.extend(before.map(|(context, relation)| Link { context, state: String::new(), relation }));
    links
}

fn last_of(history: &[u8]) -> Option<TraceContext> {
    let history = History::decode(history);
    let trace = history.records().iter().rev().find_map(|record| record.trace.as_deref())?;
    Some(TraceContext::root_of(parse_trace_id(trace)?, 1.0))
}

#[cfg(test)]
#[path = "spans_tests.rs"]
mod tests;
