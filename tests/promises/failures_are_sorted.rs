//! Each answer of a handler has its own end: snoozed uncharged, discarded without a trace, stopped at its limit and charged,
//! tried again as often, as long and as fast as its queue affords, and then a letter that tells what happened.

use gristmill_broker::state::Why;
use gristmill_job::{DeadReason, NewJob, UnixMillis};
use gristmill_testkit::eventually;
use gristmill_testkit::history::now_us;
use gristmill_testkit::seed::seed;
use gristmill_testkit::server::ServerOptions;
use gristmill_tests::fleet::{Fleet, SOON};
use gristmill_tests::script::{LIMITED, Script};
use gristmill_tests::servers::{on_every_flavor, on_servers};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

/// V15: put back without a charge, it must not be answered from its first turn for ever.
#[test]
fn a_snoozed_job_runs_again_uncharged_and_before_the_next_of_its_key() {
    let mut fleet = Fleet::start(ServerOptions::new());
    let _node = fleet.node();
    let snoozes = Script { snooze_ms: 50, ..effect() };
    let jobs = vec![Fleet::job("a:1", "a", 1, &snoozes), Fleet::job("a:2", "a", 2, &effect())];
    fleet.enqueue(jobs.clone());
    fleet.wait_settled();
    fleet.assert_effects(&jobs);
    let attempts: Vec<u32> = fleet.runs_of("a:1").iter().map(|run| run.attempt).collect();
    assert_eq!(attempts, [1, 1], "a snooze is no attempt");
}

#[test]
fn a_discarded_job_leaves_no_effect_and_no_letter_and_its_id_may_come_again() {
    let mut fleet = Fleet::start(ServerOptions::new());
    let mut node = fleet.node();
    let discards = Script { discard: true, ..effect() };
    fleet.expect_settled_otherwise(&["a:1"]);
    let jobs = vec![Fleet::job("a:1", "a", 1, &discards), Fleet::job("a:2", "a", 2, &effect())];
    fleet.enqueue(jobs);
    fleet.wait_settled();
    assert_eq!(fleet.dead().len(), 0);
    assert_eq!(fleet.entity("a").map(|entity| (entity.version, entity.changes)), Some((2, 1)));
    let again = fleet.enqueue(vec![Fleet::job("a:1", "a", 3, &effect())]);
    assert_eq!(again[0].duplicate_of, None, "an id that was discarded starts anew");
    fleet.wait_settled();
    assert_eq!(fleet.entity("a").map(|entity| (entity.version, entity.changes)), Some((3, 2)));
    assert_eq!(fleet.drain(&mut node).counts.of("discarded"), 1);
}

#[test]
fn a_run_past_its_hard_limit_is_stopped_and_charged_and_its_key_goes_on() {
    let mut fleet = Fleet::start(ServerOptions::new());
    let _node = fleet.node();
    let endless = Script { wait_ms: 600_000, ..effect() };
    let heeds = Script { wait_ms: 600_000, heeds_cancel: true, ..effect() };
    fleet.expect_settled_otherwise(&["a:1"]);
    fleet.enqueue(vec![
        Fleet::job_of(LIMITED, "a:1", "a", &endless),
        Fleet::job("a:2", "a", 2, &effect()),
        Fleet::job_of(LIMITED, "b:1", "b", &heeds),
    ]);
    fleet.wait_settled();
    let letters = fleet.dead();
    assert_eq!(letters.len(), 1);
    let letter = letters[0].letter.as_ref().unwrap();
    assert_eq!((letter.reason, letter.attempts), (DeadReason::Exhausted, 2), "the kind allows two attempts");
    assert_eq!(letter.class.as_deref(), Some("timeout"));
    assert_eq!(fleet.entity("a").map(|entity| entity.version), Some(2), "the next of its key goes on");
    assert_eq!(fleet.entity("b").map(|entity| entity.version), Some(1), "asked to stop, it finished tidily");
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn wall() -> UnixMillis {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    UnixMillis(u64::try_from(since.as_millis()).unwrap())
}

/// The letter tells each attempt: when, where, and how it ended; also those of a node that is gone.
#[test]
fn a_letter_tells_every_attempt_with_its_time_and_node() {
    on_every_flavor(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let policy = ["--max-attempts", "4", "--backoff-ms", "1500"];
        let mut first = fleet.node_with(&policy);
        let began = wall();
        let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let job = Fleet::job("a:1", "a", 7, &Script { fail_until: 99, ..effect() });
        fleet.enqueue(vec![job.with_header("traceparent", &traceparent)]);
        fleet.expect_settled_otherwise(&["a:1"]);
        fleet.wait_line("a", "two attempts", |line| line.attempts == 2);
        fleet.kill(&mut first);
        let second = fleet.node_with(&policy);
        let (view, letter) = fleet.wait_letter("a:1");
        assert_eq!((letter.reason, letter.attempts, letter.replays), (DeadReason::Exhausted, 4, 0));
        assert_eq!((letter.version, letter.kind.as_deref()), (Some(7), Some("scripted")));
        assert_eq!(letter.traces, [TRACE]);
        assert!(letter.crashes.is_empty());
        let attempts: Vec<u32> = letter.history.iter().map(|record| record.attempt).collect();
        assert_eq!(attempts, [1, 2, 3, 4]);
        for record in &letter.history {
            let by = if record.attempt <= 2 { &first.name } else { &second.name };
            assert!(record.node.starts_with(&format!("{by}~")), "{record:?}");
            assert_eq!(record.class, "transient");
            assert_eq!(record.error, format!("as the job's script says, at attempt {}", record.attempt));
        }
        let mut times: Vec<UnixMillis> = letter.history.iter().map(|record| record.at).collect();
        times.insert(0, UnixMillis(began.0.saturating_sub(5)));
        times.push(UnixMillis(view.at.0 + 5));
        assert!(times.is_sorted(), "{times:?}");
        fleet.assert_promises();
    });
}

/// However often it was tried, what is kept is bounded: the first attempt, and the newest.
#[test]
fn a_letter_keeps_the_first_attempt_and_the_newest_nineteen() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let _node = fleet.node_with(&["--max-attempts", "30", "--backoff-ms", "1", "--backoff-cap-ms", "5"]);
        fleet.enqueue(vec![Fleet::job("a:1", "a", 1, &Script { fail_until: 99, ..effect() })]);
        let letter = fleet.wait_letter("a:1").1;
        let attempts: Vec<u32> = letter.history.iter().map(|record| record.attempt).collect();
        assert_eq!(attempts, [1].into_iter().chain(12..=30).collect::<Vec<u32>>());
        assert_eq!(letter.attempts, 30);
    });
}

#[test]
fn a_panic_keeps_its_words_and_its_place() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let _node = fleet.node_with(&["--max-attempts", "2"]);
        fleet.enqueue(vec![Fleet::job("a:1", "a", 1, &Script { panic_until: 99, ..effect() })]);
        let letter = fleet.wait_letter("a:1").1;
        assert_eq!((letter.reason, letter.class.as_deref()), (DeadReason::Exhausted, Some("panic")));
        let errors = letter.history.iter().map(|record| &record.error).chain(&letter.error);
        assert_eq!(letter.history.len(), 2);
        for error in errors {
            assert!(error.contains("tests/src/handlers.rs:"), "where: {error}");
            assert!(error.contains("as the job's script says"), "its words: {error}");
        }
    });
}

#[test]
fn a_job_that_fails_past_its_age_is_dead_though_it_has_attempts_left() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let policy = ["--max-age-ms", "1500", "--max-attempts", "100000", "--backoff-ms", "100"];
        let _node = fleet.node_with(&policy);
        let fails = Script { fail_until: 100_000, ..effect() };
        let jobs = vec![Fleet::job("a:1", "a", 1, &fails), Fleet::job("a:2", "a", 2, &effect())];
        fleet.enqueue(jobs.clone());
        let (view, letter) = fleet.wait_letter("a:1");
        assert_eq!(letter.reason, DeadReason::TooOld);
        let became: u64 = letter.place.split('-').next().unwrap().parse().unwrap();
        let age = view.at.0 - became;
        assert!(age >= 1500, "dead at the age of {age} ms");
        let attempts = fleet.runs_of("a:1").len();
        assert_eq!(letter.attempts as usize, attempts, "it was tried until then");
        assert!(attempts > 1);
        fleet.wait_settled();
        fleet.expect_settled_otherwise(&["a:1"]);
        fleet.assert_effects(&jobs);
    });
}

/// The dependency said when to come again.
#[test]
fn a_job_waits_as_long_as_its_error_says() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let _node = fleet.node_with(&["--backoff-ms", "1"]);
        let script = Script { fail_until: 2, retry_after_ms: 800, ..effect() };
        let jobs = vec![Fleet::job("a:1", "a", 1, &script)];
        fleet.enqueue(jobs.clone());
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        let runs = fleet.runs_of("a:1");
        assert_eq!(runs.len(), 3);
        for pair in runs.windows(2) {
            let waited = pair[1].started_us - pair[0].ended.unwrap().0;
            assert!(waited >= 800_000, "tried again after {waited} us");
        }
    });
}

/// A dependency that is down is asked by retries as often as the budget affords, and by first runs as ever; what waits for
/// the budget says so, and is charged nothing for it.
#[test]
fn a_failing_dependency_is_not_hammered() {
    on_every_flavor(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        fleet.switch("down", true);
        let (share, per_second) = (0.1, 10.0);
        let more = ["--retry-share", "0.1", "--retry-per-second", "10", "--max-attempts", "1000"];
        let _node = fleet.node_with(&[&more[..], &["--backoff-ms", "50"]].concat());
        let fails = Script { fail_until: 1000, fails_while: Some("down".into()), ..effect() };
        let jobs: Vec<NewJob> =
            (0..60).map(|n| Fleet::job(&format!("d{n}"), &format!("d{n}"), 1, &fails)).collect();
        let began = now_us();
        fleet.enqueue(jobs.clone());
        let over = |fleet: &Fleet| fleet.lines().iter().filter(|line| line.line.why == Why::Budget).count();
        eventually(SOON, "most of them wait for the budget", || (over(&fleet) > 30).then_some(()));

        let retries = |fleet: &Fleet| fleet.history().runs.iter().filter(|run| run.attempt > 1).count();
        let (before, from) = (retries(&fleet), now_us());
        // not a wait: the interval that is measured
        std::thread::sleep(Duration::from_secs(3));
        let (after, to) = (retries(&fleet), now_us());
        let seconds = |from: u64, to: u64| (to - from) as f64 / 1e6;
        let afforded = per_second * seconds(from, to) + 2.0;
        assert!(((after - before) as f64) <= afforded, "{} retries, {afforded} afforded", after - before);
        assert!(after > before, "it is still asked");
        // What was saved before, what first runs earned, and what time gave.
        let in_all = 10.0 * per_second + share * jobs.len() as f64 + per_second * seconds(began, to) + 2.0;
        assert!((after as f64) <= in_all, "{after} retries in all, {in_all} afforded");

        let good = Fleet::versions(20, 3, &effect());
        fleet.enqueue(good.clone());
        let began = now_us();
        let keys: Vec<Vec<u8>> = (0..20).map(|k| format!("key{k}").into_bytes()).collect();
        eventually(SOON, "first runs go on", || {
            let at = |entity: &Option<_>| {
                entity.as_ref().is_some_and(|e: &gristmill_broker::inspect::EntityView| e.version == 3)
            };
            fleet.entities(&keys).iter().all(at).then_some(())
        });
        assert!(seconds(began, now_us()) < 3.0, "first runs waited for retries");

        fleet.switch("down", false);
        fleet.wait_settled();
        fleet.assert_effects(&[jobs, good].concat());
        assert_eq!(fleet.dead().len(), 0);
        // No attempt but those that ran was counted.
        let runs = fleet.history().runs;
        let ids: BTreeSet<&str> = runs.iter().map(|run| run.job.id.as_str()).collect();
        for id in ids {
            let attempts: Vec<u32> =
                runs.iter().filter(|run| run.job.id == id).map(|run| run.attempt).collect();
            let counted: Vec<u32> = (1..).take(attempts.len()).collect();
            assert_eq!(attempts, counted, "{id}");
        }
    });
}
