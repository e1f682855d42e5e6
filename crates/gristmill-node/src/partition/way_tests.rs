use super::*;
use crate::partition::lanes::{Lanes, Memory};
use crate::partition::policy::{Budget, Rules};
use crate::stage;
use gristmill_broker::state::{Crash, JobState};
use gristmill_broker::{Entry, Epoch, Fence, Incarnation};
use gristmill_handler::Rule;
use gristmill_job::retry_budget::RetryBudget;
use gristmill_job::{RetryPolicy, UnixMillis};
use std::time::Duration;

fn policy(redelivery: Redelivery, delivery: DeliverySemantics) -> Policy {
    let rule = Rule { redelivery, delivery, served: true, crash_budget: None };
    let plain = redelivery == Redelivery::Rerun && delivery == DeliverySemantics::AtLeastOnce;
    Policy {
        retry: RetryPolicy::default(),
        crash_budget: 3,
        hold: false,
        max_envelope_bytes: 1 << 20,
        unknown_kind_wait: Duration::from_secs(60),
        budget: Budget::new(RetryBudget { share: 0.0, per_second: 0.1 }, Instant::now()),
        limits: crate::limits::Limits::default(),
        traced: None,
        rules: if plain { Rules::default() } else { Rules::new(move |_| rule) },
    }
}

fn way(line: Option<StateLine>, returned: bool, policy: &Policy) -> Way {
    let now = Instant::now();
    let mut lanes = Lanes::new(Memory { jobs_per_lane: 4, longest_wait: Duration::from_secs(1) });
    let state = line.map_or_else(JobState::default, |line| JobState::of(line, 0));
    let entry = Entry { state, returned, ..stage::entry(1, "key") };
    lanes.insert(entry, now);
    let (_, job) = lanes.start_next().unwrap();
    Way::of(&job, policy, "me~1", now)
}

fn suspected(suspicion: Suspicion) -> StateLine {
    StateLine { suspicion, ..StateLine::default() }
}

fn crash(incarnation: &str) -> Crash {
    let fence = Fence { incarnation: Incarnation::from_stored(incarnation), epoch: Epoch(1) };
    Crash { fence, turn: 0, at: UnixMillis(1) }
}

const PLAIN: (Redelivery, DeliverySemantics) = (Redelivery::Rerun, DeliverySemantics::AtLeastOnce);

#[test]
fn a_job_nobody_suspects_starts_at_once_and_suspicion_costs_marks_then_company() {
    let policy = policy(PLAIN.0, PLAIN.1);
    assert_eq!(way(None, false, &policy), Way::Run);
    assert_eq!(way(None, true, &policy), Way::Mark(How::Beside), "it is in no pending list");
    assert_eq!(way(Some(suspected(Suspicion::Weak)), false, &policy), Way::Mark(How::Beside));
    assert_eq!(way(Some(suspected(Suspicion::Strong)), false, &policy), Way::Alone(How::Alone));
}

#[test]
fn the_crash_budget_counts_true_charges_alone() {
    let policy = policy(PLAIN.0, PLAIN.1);
    let charged = |by: &[&str]| StateLine {
        crashes: by.iter().map(|by| crash(by)).collect(),
        ..suspected(Suspicion::Strong)
    };
    assert_eq!(way(Some(charged(&["a~1", "b~1"])), false, &policy), Way::Alone(How::Alone));
    assert_eq!(way(Some(charged(&["a~1", "b~1", "c~1"])), false, &policy), Way::Settle(Unrun::Crashed));
    let false_one = charged(&["a~1", "b~1", "me~1"]);
    assert_eq!(way(Some(false_one), false, &policy), Way::Alone(How::Alone), "this process lives");
}

#[test]
fn what_may_not_be_repeated_is_marked_and_an_interrupted_run_takes_its_kinds_way() {
    let interrupted = |suspicion| StateLine { interrupted: true, ..suspected(suspicion) };
    let review = policy(Redelivery::Review, DeliverySemantics::AtLeastOnce);
    assert_eq!(way(None, false, &review), Way::Mark(How::Beside));
    assert_eq!(way(Some(interrupted(Suspicion::Weak)), false, &review), Way::Settle(Unrun::Interrupted));
    let reconcile = policy(Redelivery::Reconcile, DeliverySemantics::AtLeastOnce);
    assert_eq!(way(None, false, &reconcile), Way::Mark(How::Beside));
    assert_eq!(way(Some(interrupted(Suspicion::Weak)), false, &reconcile), Way::Mark(How::Look));
    assert_eq!(way(Some(interrupted(Suspicion::Strong)), false, &reconcile), Way::Alone(How::LookAlone));
    let rerun = policy(PLAIN.0, PLAIN.1);
    assert_eq!(way(Some(interrupted(Suspicion::None)), false, &rerun), Way::Run);
    let once = policy(Redelivery::Rerun, DeliverySemantics::AtMostOnce);
    assert_eq!(way(None, false, &once), Way::Acknowledge);
    assert_eq!(way(Some(suspected(Suspicion::Strong)), false, &once), Way::Acknowledge);
}

/// How long the budget makes it wait.
fn turn(way: &Way) -> Option<Duration> {
    match way {
        Way::Settle(Unrun::OverBudget { turn }) => Some(*turn),
        _ => None,
    }
}

#[test]
fn a_person_comes_first_and_a_retry_asks_the_budget() {
    let policy = policy(PLAIN.0, PLAIN.1);
    let skipped =
        StateLine { request: Some(Request::Skip), crashes: vec![crash("a~1"); 9], ..StateLine::default() };
    assert_eq!(way(Some(skipped), false, &policy), Way::Settle(Unrun::Skipped));
    let retry = |why| StateLine { turn: 1, attempts: 1, why, ..StateLine::default() };
    let ways: Vec<Way> = (0..200).map(|_| way(Some(retry(Why::Retry)), false, &policy)).collect();
    let turns: Vec<Duration> = ways.iter().filter_map(turn).collect();
    assert!(ways.contains(&Way::Run) && turns.len() > 150, "{ways:?}");
    assert!(
        turns.is_sorted() && turns.last() == Some(&Duration::from_secs(60)),
        "at the budget's pace: {turns:?}"
    );
    assert!(turn(&way(Some(retry(Why::Budget)), false, &policy)).is_some());
    assert_eq!(way(Some(retry(Why::Snooze)), false, &policy), Way::Run, "a snooze is no retry");
}
