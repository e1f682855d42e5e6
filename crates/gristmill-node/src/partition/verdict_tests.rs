use super::*;
use gristmill_broker::JobState;
use gristmill_handler::KindOptions;
use gristmill_job::{ContentType, Key, NewJob, Place, QueueName};
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn entry() -> Entry {
    Entry {
        place: Place { ms: 5, seq: 1 },
        id: JobId::new("parent").unwrap(),
        key: Key::new("k").unwrap(),
        envelope: Bytes::from_static(b"raw"),
        state: JobState::default(),
        recovered: false,
        returned: false,
    }
}

fn facts() -> Facts {
    Facts { version: 3, own_id: true, max_attempts: None, kind: Some("kind"), options: None }
}

/// What becomes of a job with `attempts` behind it.
fn judged(attempts: u32, answer: Answer, facts: Facts) -> Verdict {
    let retry = RetryPolicy { jitter: false, ..RetryPolicy::exponential(SECOND) };
    let judge = Judge {
        retry: &retry,
        node: "n~1",
        partition: 7,
        epoch: Epoch(9),
        wall: UnixMillis(11),
        random: 0.5,
    };
    judge.settle(&entry(), 2, attempts, Ran::Answered(answer, facts)).verdict
}

fn failed(class: ErrorClass) -> Failure {
    Failure::new(class, vec!["outer".into(), "inner".into()])
}

fn letter(verdict: Verdict) -> (DeadReason, DeadLetter, String) {
    match verdict {
        Verdict::Dead { reason, body, dead_id, .. } => (reason, DeadLetter::decode(&body).unwrap(), dead_id),
        other => panic!("{other:?}"),
    }
}

#[test]
fn classes_decide_whether_a_failure_is_tried_again() {
    for class in [ErrorClass::Transient, ErrorClass::Unknown, ErrorClass::Panic, ErrorClass::Timeout] {
        let verdict = judged(2, Answer::Failed(failed(class)), facts());
        let waits = matches!(verdict, Verdict::Retry { attempts: 3, delay, why: Why::Retry, .. } if delay == SECOND * 4);
        assert!(waits, "{class:?}: {verdict:?}");
    }
    let (reason, record, id) = letter(judged(0, Answer::Failed(failed(ErrorClass::Permanent)), facts()));
    assert_eq!((reason, record.attempts, record.turn), (DeadReason::Permanent, 1, 2));
    assert_eq!(record.envelope, b"raw");
    assert_eq!(id, "7-5-1-2-9");
    let (reason, record, _) = letter(judged(9, Answer::Failed(failed(ErrorClass::Transient)), facts()));
    assert_eq!((reason, record.attempts), (DeadReason::Exhausted, 10));
    assert_eq!(record.error, ["outer", "inner"]);
}

#[test]
fn the_kinds_policy_and_the_jobs_own_limit_come_before_the_queues() {
    let policy = RetryPolicy::fixed(SECOND * 9).with_max_attempts(2);
    let options = Arc::new(KindOptions::new().retry(RetryPolicy { jitter: false, ..policy }));
    let own = Facts { options: Some(options), ..facts() };
    let verdict = judged(0, Answer::Failed(failed(ErrorClass::Unknown)), own.clone());
    assert!(matches!(verdict, Verdict::Retry { delay, .. } if delay == SECOND * 9), "{verdict:?}");
    assert_eq!(
        letter(judged(1, Answer::Failed(failed(ErrorClass::Unknown)), own.clone())).0,
        DeadReason::Exhausted
    );
    let more = Facts { max_attempts: Some(5), ..own };
    assert!(matches!(judged(3, Answer::Failed(failed(ErrorClass::Unknown)), more), Verdict::Retry { .. }));
}

#[test]
fn a_dependency_may_ask_for_a_longer_wait_and_not_for_a_shorter_one() {
    let asked = |wait| {
        let failure = Failure { retry_after: Some(wait), ..failed(ErrorClass::Transient) };
        match judged(0, Answer::Failed(failure), facts()) {
            Verdict::Retry { delay, .. } => delay,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(asked(SECOND * 30), SECOND * 30);
    assert_eq!(asked(Duration::from_millis(1)), SECOND);
}

#[test]
fn a_snooze_is_not_charged_and_a_discard_is_no_dead_letter() {
    let snoozed = judged(9, Answer::Snoozed(SECOND * 60), facts());
    let waits = matches!(snoozed, Verdict::Retry { attempts: 9, delay, why: Why::Snooze, .. } if delay == SECOND * 60);
    assert!(waits, "{snoozed:?}");
    assert_eq!(judged(9, Answer::Discarded("why".into()), facts()), Verdict::Discard);
}

#[test]
fn emitted_jobs_are_named_after_parent_and_position_whatever_id_they_had() {
    let job = NewJob::from_bytes("kind", "k", vec![1], ContentType::Json).unwrap().with_id("own").unwrap();
    let queue = QueueName::new("mail").unwrap();
    let effects = Effects::none().and_emit(queue.clone(), job.clone()).and_emit(queue, job);
    match judged(0, Answer::Done(effects), facts()) {
        Verdict::Done { emits, version: 3, .. } => {
            let ids: Vec<String> = emits.iter().map(|emit| emit.job.id.to_string()).collect();
            assert_eq!(ids, ["parent:0", "parent:1"]);
        }
        other => panic!("{other:?}"),
    }
}
