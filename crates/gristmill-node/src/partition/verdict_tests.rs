use super::*;
use crate::partition::lanes::{Lanes, Memory};
use gristmill_broker::JobState;
use gristmill_broker::state::Crash;
use gristmill_broker::{Fence, Incarnation};
use gristmill_handler::KindOptions;
use gristmill_job::{ContentType, Key, NewJob, Place, QueueName, RetryPolicy};
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
        claim: 1,
    }
}

fn facts() -> Facts {
    Facts { version: 3, own_id: true, max_attempts: None, kind: Some("kind"), options: None }
}

fn policy() -> Policy {
    Policy::with(RetryPolicy { jitter: false, ..RetryPolicy::exponential(SECOND) })
}

fn judge(policy: &Policy) -> Judge<'_> {
    let (wall, redis) = (UnixMillis(11), UnixMillis(100_000));
    Judge { policy, node: "n~1", partition: 7, epoch: Epoch(9), wall, redis, random: 0.5 }
}

/// The job, as it stands in its lane.
fn job(line: StateLine) -> LaneJob {
    let now = std::time::Instant::now();
    let mut lanes = Lanes::new(Memory { jobs_per_lane: 4, longest_wait: SECOND });
    lanes.insert(Entry { state: JobState::of(line, 0), ..entry() }, now);
    lanes.start_next().unwrap().1
}

fn behind(attempts: u32) -> StateLine {
    StateLine { turn: 2, attempts, ..StateLine::default() }
}

/// What becomes of a job with `attempts` behind it.
fn judged(attempts: u32, answer: Answer, facts: Facts) -> Verdict {
    judge(&policy()).settle(&job(behind(attempts)), Ran::Answered(answer, facts)).verdict
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

#[test]
fn a_letter_tells_every_attempt_and_who_made_it() {
    let policy = policy();
    let mut line = behind(0);
    for attempt in 1..=9 {
        let ran = Ran::Answered(Answer::Failed(failed(ErrorClass::Transient)), facts());
        match judge(&policy).settle(&job(line.clone()), ran).verdict {
            Verdict::Retry { attempts, history, .. } => {
                assert_eq!(attempts, attempt);
                line = StateLine { turn: line.turn + 1, attempts, history, ..line };
            }
            other => panic!("{other:?}"),
        }
    }
    let ran = Ran::Answered(Answer::Failed(failed(ErrorClass::Timeout)), facts());
    let (reason, record, _) = letter(judge(&policy).settle(&job(line), ran).verdict);
    assert_eq!((reason, record.history.len()), (DeadReason::Exhausted, 10));
    assert_eq!(record.history[0].class, "transient");
    let last = &record.history[9];
    assert_eq!(
        (last.attempt, last.at, &*last.node, &*last.class),
        (10, UnixMillis(100_000), "n~1", "timeout")
    );
    assert_eq!(last.error, "outer: inner");
}

#[test]
fn what_is_not_run_ends_with_its_own_reason_and_no_attempt() {
    let policy = Policy { hold: true, ..policy() };
    let fence = Fence { incarnation: Incarnation::of("b", 2), epoch: Epoch(4) };
    let crash = Crash { fence, turn: 2, at: UnixMillis(77) };
    let line = StateLine { crashes: vec![crash; 3], replays: 1, ..behind(4) };
    for (unrun, expected) in [
        (Unrun::Crashed, DeadReason::Crashed),
        (Unrun::Skipped, DeadReason::Skipped),
        (Unrun::Interrupted, DeadReason::Review),
    ] {
        let verdict = judge(&policy).unrun(&job(line.clone()), unrun).verdict;
        let holds = unrun != Unrun::Skipped;
        assert!(
            matches!(verdict, Verdict::Dead { hold, acknowledged: false, .. } if hold == holds),
            "the queue holds, but not behind what a person passed over: {verdict:?}"
        );
        let (reason, record, _) = letter(verdict);
        assert_eq!((reason, record.attempts, record.replays, record.crashes.len()), (expected, 4, 1, 3));
        assert_eq!(record.crashes[0].at, UnixMillis(77));
        assert!(record.history.is_empty());
    }
    let mut newer = line.clone();
    newer.crashes[1].at = UnixMillis(100_003);
    let (_, record, _) = letter(judge(&policy).unrun(&job(newer), Unrun::Crashed).verdict);
    assert_eq!(
        record.at,
        UnixMillis(100_003),
        "dead no earlier than its last crash, whatever the node believes"
    );
    for random in [0.0, 0.999] {
        let verdict = Judge { random, ..judge(&policy) }
            .unrun(&job(line.clone()), Unrun::OverBudget { turn: Duration::ZERO })
            .verdict;
        let Verdict::Retry { attempts: 4, delay, why: Why::Budget, .. } = verdict else {
            panic!("uncharged: {verdict:?}")
        };
        // Else a window full of them keeps the jobs of healthy keys out.
        assert!(delay > crate::node::LONGEST_WAIT_IN_MEMORY + SECOND / 10, "it is parked: {delay:?}");
    }
}

#[test]
fn a_job_past_its_age_is_tried_no_more() {
    let aged = |age| Policy { retry: policy().retry.with_max_age(age), ..policy() };
    let verdict = |policy: &Policy| {
        let ran = Ran::Answered(Answer::Failed(failed(ErrorClass::Transient)), facts());
        judge(policy).settle(&job(behind(0)), ran).verdict
    };
    // Its place says 5 ms, the clock 100 s.
    assert_eq!(letter(verdict(&aged(SECOND * 99))).0, DeadReason::TooOld);
    assert!(matches!(verdict(&aged(SECOND * 100)), Verdict::Retry { .. }));
    let ran = Ran::Answered(Answer::Failed(failed(ErrorClass::Transient)), facts());
    let back = job(StateLine { replays: 1, ..behind(0) });
    let verdict = judge(&aged(SECOND)).settle(&back, ran).verdict;
    assert!(matches!(verdict, Verdict::Retry { .. }), "a person brought it back: {verdict:?}");
}

#[test]
fn a_kind_without_a_handler_waits_uncharged_and_not_for_ever() {
    let policy = Policy { unknown_kind_wait: SECOND * 60, ..policy() };
    let refused = || Ran::Refused(DeadReason::UnknownKind, "nobody serves it".into(), facts());
    let mut line = behind(3);
    let verdict = judge(&policy).settle(&job(line.clone()), refused()).verdict;
    match verdict {
        Verdict::Retry { attempts: 3, why: Why::Kind, history, delay, .. } => {
            assert_eq!(delay, SECOND * 4, "it grows with the turns");
            line.history = history;
            line.why = Why::Kind;
        }
        other => panic!("{other:?}"),
    }
    let later = |seconds: u64| Judge { redis: UnixMillis(100_000 + seconds * 1000), ..judge(&policy) };
    let verdict = later(58).settle(&job(line.clone()), refused()).verdict;
    assert!(
        matches!(verdict, Verdict::Retry { delay, .. } if delay == SECOND * 2),
        "to the limit: {verdict:?}"
    );
    let served = StateLine { why: Why::Snooze, ..line.clone() };
    let verdict = later(60).settle(&job(served), refused()).verdict;
    assert!(matches!(verdict, Verdict::Retry { .. }), "it was served in between: {verdict:?}");
    let (reason, record, _) = letter(later(60).settle(&job(line), refused()).verdict);
    assert_eq!((reason, record.attempts), (DeadReason::UnknownKind, 3));
    let undecodable = Ran::Refused(DeadReason::Undecodable, "garbage".into(), facts());
    assert_eq!(
        letter(judge(&policy).settle(&job(behind(0)), undecodable).verdict).0,
        DeadReason::Undecodable
    );
}

#[test]
fn a_run_that_was_acknowledged_first_ends_well_or_as_a_letter() {
    let policy = policy();
    let judged = |ran| {
        let mut job = job(behind(0));
        job.acknowledged = true;
        judge(&policy).settle(&job, ran).verdict
    };
    let answered = |answer| judged(Ran::Answered(answer, facts()));
    assert!(matches!(answered(Answer::Done(Effects::none())), Verdict::Done { .. }));
    for (ran, expected) in [
        (Ran::Answered(Answer::Done(Effects::put("x")), facts()), DeadReason::Permanent),
        (Ran::Answered(Answer::Failed(failed(ErrorClass::Transient)), facts()), DeadReason::Exhausted),
        (Ran::Answered(Answer::Failed(failed(ErrorClass::Permanent)), facts()), DeadReason::Permanent),
        (Ran::Answered(Answer::Snoozed(SECOND), facts()), DeadReason::Permanent),
        (Ran::Stopped, DeadReason::Review),
        (Ran::Hung("hangs".into(), facts()), DeadReason::Exhausted),
        (Ran::Refused(DeadReason::UnknownKind, "nobody".into(), facts()), DeadReason::UnknownKind),
    ] {
        let verdict = judged(ran);
        assert!(matches!(verdict, Verdict::Dead { acknowledged: true, .. }), "{verdict:?}");
        assert_eq!(letter(verdict).0, expected);
    }
}

#[test]
fn a_look_that_fails_leaves_it_unknown_how_the_run_ended() {
    let line = StateLine { interrupted: true, ..behind(1) };
    let ran = Ran::Answered(Answer::Failed(failed(ErrorClass::Transient)), facts());
    let verdict = judge(&policy()).settle(&job(line), ran).verdict;
    assert!(matches!(verdict, Verdict::Retry { interrupted: true, attempts: 2, .. }), "{verdict:?}");
}
