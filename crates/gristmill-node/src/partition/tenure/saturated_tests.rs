//! A window that is full, step by step: of slow keys, or of runs that wait for a slot.

use super::leaving_tests::{Played, told};
use super::*;
use crate::stage;
use bytes::Bytes;
use std::time::Duration;

const WINDOW: usize = 512;

/// A full window of so many keys; the runs of their heads.
fn full(keys: u64) -> (Played, Vec<Run>) {
    let mut played = Played::new();
    played.tenure.bounds.window_jobs = WINDOW;
    played.tenure.bounds.claim_jobs = 200;
    played.tenure.lanes =
        crate::partition::lanes::Lanes::new(played.tenure.bounds.memory).within(WINDOW, 1 << 20);
    played.tell(Duration::ZERO, Event::Serve);
    played.granted();
    let entries = (0..WINDOW as u64).map(|n| Entry {
        recovered: true,
        key: Key::from_stored(Bytes::from(format!("k{}", n % keys))),
        ..stage::entry(n, "")
    });
    let answer = Answer::Recovered { entries: entries.collect(), next: Place::ZERO };
    played.tell(Duration::ZERO, Event::Answered(1, Ok(answer)));
    let mut runs = Vec::new();
    for action in played.taken() {
        if let Action::Start(started) = action {
            runs.extend(started);
        }
    }
    assert_eq!(runs.len() as u64, keys);
    (played, runs)
}

fn claims(actions: &[Action]) -> bool {
    actions.iter().any(|a| matches!(a, Action::Send(_, call) if matches!(**call, Call::Claim { .. })))
}

#[test]
fn sixteen_slow_keys_stop_no_other() {
    let (mut played, _) = full(16);
    let actions =
        played.tell(Duration::from_secs(1), Event::Renewed { wanted: false, changes: 0, due: None });
    assert!(claims(&actions), "nothing is claimed: {actions:?}; {} held", played.tenure.lanes.jobs());
}

#[test]
fn what_waits_for_a_slot_is_not_parked_and_as_soon_as_all_of_it_runs_other_keys_are_let_in() {
    let (mut played, _) = full(16);
    played.waits = true;
    let mut at = Duration::ZERO;
    for _ in 0..100 {
        at += Duration::from_millis(100);
        let actions = played.tell(at, Event::Renewed { wanted: false, changes: 0, due: None });
        assert!(!claims(&actions), "{actions:?}");
        assert!(actions.iter().any(|action| matches!(action, Action::WakeAt(_))), "nobody looks again");
    }
    assert_eq!((played.tenure.lanes.jobs(), played.tenure.lanes.parked()), (WINDOW, 0));
    played.waits = false;
    played.tell(at, Event::Tick);
    let actions = played.tell(at + Duration::from_millis(50), Event::Tick);
    assert!(claims(&actions) && played.tenure.lanes.parked() > 0, "{actions:?}");
}

/// A busy server answers late; what ended frees its place with the answer.
#[test]
fn nothing_is_parked_while_a_settle_is_under_way() {
    let (mut played, runs) = full(16);
    let facts =
        gristmill_handler::Facts { version: 0, own_id: false, max_attempts: None, kind: None, options: None };
    let answered = Ran::Answered(gristmill_handler::Answer::Done(Default::default()), facts);
    let actions = played.tell(Duration::ZERO, told(&runs[0], answered));
    let settle = actions.iter().find_map(|action| match action {
        Action::Send(number, call) if matches!(**call, Call::Settle(_)) => Some(*number),
        _ => None,
    });
    let mut at = Duration::ZERO;
    for _ in 0..100 {
        at += Duration::from_millis(100);
        let actions = played.tell(at, Event::Renewed { wanted: false, changes: 0, due: None });
        assert!(!claims(&actions), "{actions:?}");
    }
    assert_eq!((played.tenure.lanes.jobs(), played.tenure.lanes.parked()), (WINDOW, 0));
    let done = Answer::Settled { jobs: vec![gristmill_broker::Settled::Done], first: true };
    played.tell(at, Event::Answered(settle.unwrap(), Ok(done)));
    let actions = played.tell(at + Duration::from_millis(50), Event::Tick);
    assert!(claims(&actions) && played.tenure.lanes.parked() > 0, "{actions:?}");
}
