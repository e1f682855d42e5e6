use super::*;
use crate::stage;
use crate::worker::attempt::Began;
use bytes::Bytes;
use gristmill_broker::{Epoch, JobState};
use gristmill_job::{AttemptRecord, ContentType, ErrorClass, JobLimits, NewJob, UnixMillis};
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::tally;
use gristmill_telemetry::trace::Tracing;
use gristmill_telemetry::trace::span::Value;
use std::sync::Arc;
use std::time::SystemTime;

const PRODUCER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn queue() -> QueueName {
    QueueName::new("orders").unwrap()
}

fn entry(line: StateLine) -> Entry {
    let job = NewJob::from_bytes("k", "key", "secret payload", ContentType::Json).unwrap();
    let job = job.with_version(9).with_header("traceparent", PRODUCER).with_header("tracestate", "a=b");
    let envelope = job.encode(UnixMillis(1), JobLimits::default()).unwrap().envelope;
    Entry { envelope, state: JobState::of(line, 0), ..stage::entry(1, "key") }
}

fn of_turn(turn: u32) -> TraceContext {
    let (queue, entry) = (queue(), stage::entry(1, "key"));
    let attempt = AttemptOf { queue: &queue, partition: 3, place: entry.place, job: &entry.id, turn };
    TraceContext::of_attempt(&attempt, 1.0)
}

fn attempt(line: StateLine) -> Attempt {
    let turn = line.turn;
    let began = Began { context: of_turn(turn), at: SystemTime::now(), instant: Instant::now() };
    let told = tally::Attempt {
        kind: "k",
        waited: Some(Duration::from_millis(70)),
        ran: Duration::from_millis(5),
        class: None,
    };
    let traced = Traced {
        began,
        entry: Arc::new(entry(line)),
        epoch: Epoch(7),
        turn,
        attempt: 2,
        reconcile: false,
        effect: "put",
        emitted: 2,
        error: None,
    };
    Attempt { told, traced: Some(Box::new(traced)) }
}

fn spans(attempt: &Attempt, outcome: Outcome) -> Vec<Span> {
    let telemetry = Telemetry::default();
    telemetry.trace(Tracing { share: 1.0, slow: Duration::from_secs(10), room: 8 });
    let traces = telemetry.traces().unwrap();
    let (queue, incarnation) = (queue(), Incarnation::of("n", 1));
    let words = Words::new(&queue, 3, &incarnation);
    let ground = Ground { queue: &queue, partition: 3, words: &words };
    ground.trace(traces, attempt, (outcome, None), Instant::now() + Duration::from_millis(9));
    traces.take(8, Duration::ZERO).spans
}

fn linked(line: StateLine) -> Vec<(String, &'static str)> {
    let links = spans(&attempt(line), Outcome::Done).remove(0).links;
    links.into_iter().map(|link| (link.context.to_string(), link.relation)).collect()
}

fn shows(span: &Span, name: &str, value: impl Into<Value>) -> bool {
    span.attributes
        .contains(&(words::ATTRIBUTES.iter().find(|(known, ..)| *known == name).unwrap().0, value.into()))
}

#[test]
fn a_run_whose_verdict_is_written_is_the_span_of_its_attempt() {
    let spans = spans(&attempt(StateLine::default()), Outcome::Done);
    let [span] = spans.as_slice() else { panic!("{spans:?}") };
    assert_eq!((span.name.as_str(), span.kind, span.parent), ("process orders", Kind::Consumer, None));
    assert_eq!((span.context, span.error.as_deref()), (of_turn(0), None));
    assert!(shows(span, "messaging.message.id", "id1".to_owned()));
    assert!(shows(span, "messaging.destination.partition.id", Arc::<str>::from("3")));
    assert!(shows(span, "gristmill.job.wait_ms", 70_u64) && shows(span, "gristmill.run_ms", 5_u64));
    assert!(shows(span, "gristmill.job.version", 9_u64) && shows(span, "gristmill.effect", "put"));
    assert!(shows(span, "gristmill.emitted", 2_u64) && shows(span, "gristmill.outcome", "done"));
    let events: Vec<&str> = span.events.iter().map(|event| event.name).collect();
    assert_eq!(events, ["answered", "settled"]);
    assert!(span.began < span.events[0].at && span.events[0].at <= span.ended);
    let all = format!("{spans:?}");
    assert!(!all.contains("secret") && !all.contains("\"key\""), "{all}");
}

#[test]
fn runs_that_end_without_a_verdict_are_beside_it_in_the_same_trace() {
    let interrupted = attempt(StateLine::default());
    let handed_back = spans(&interrupted, Outcome::HandedBack);
    let lost = spans(&interrupted, Outcome::Lost);
    assert_eq!((handed_back.len(), lost.len()), (1, 2));
    for span in handed_back.iter().chain(&lost) {
        assert_eq!(span.context.trace_id, of_turn(0).trace_id);
        assert_ne!(span.context.span_id, of_turn(0).span_id);
    }
    let settle = &lost[1];
    assert_eq!(
        (settle.name.as_str(), settle.kind, settle.parent),
        ("settle orders", Kind::Client, Some(lost[0].context.span_id))
    );
    assert!(settle.error.is_some() && shows(settle, "error.type", "lost"));
}

#[test]
fn links_lead_to_the_producer_and_to_the_attempt_before() {
    let creation = (PRODUCER.to_owned(), "creation");
    let line = StateLine::default;
    assert_eq!(linked(line()), std::slice::from_ref(&creation));
    let retried = StateLine { turn: 2, attempts: 1, why: Why::Retry, ..line() };
    let before = (of_turn(1).to_string(), "previous_attempt");
    assert_eq!(linked(retried.clone()), [creation.clone(), before.clone()]);
    assert_eq!(linked(StateLine { why: Why::Snooze, ..retried.clone() }), [creation.clone(), before.clone()]);
    let replayed = StateLine { turn: 2, replays: 1, ..line() };
    assert_eq!(linked(replayed), [creation.clone(), (of_turn(1).to_string(), "replay_of")]);
    // Put back without a run since: the history tells which one was the last.
    let mut history = History::default();
    let trace = Some(of_turn(4).trace_id());
    history.push(AttemptRecord {
        attempt: 1,
        trace,
        class: ErrorClass::Unknown.as_str().into(),
        ..AttemptRecord::default()
    });
    let history = Bytes::from(history.encode());
    let budget = StateLine { turn: 9, attempts: 1, why: Why::Budget, history, ..line() };
    assert_eq!(linked(budget.clone()), [creation.clone(), (of_turn(4).to_string(), "previous_attempt")]);
    assert_eq!(linked(StateLine { history: Bytes::new(), ..budget }), [creation]);
}
