//! Each answer of a handler has its own end: snoozed uncharged, discarded without a trace, stopped at its limit and charged.

use gristmill_job::DeadReason;
use gristmill_testkit::server::ServerOptions;
use gristmill_tests::fleet::Fleet;
use gristmill_tests::script::{LIMITED, Script};

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
