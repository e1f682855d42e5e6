//! Heads of limited kinds, step by step.

use super::super::*;
use crate::limits::Limits;
use crate::limits::gate::Gate;
use crate::stage;
use crate::worker::slot::Slot;
use gristmill_broker::admit::Admitted;
use gristmill_job::{ContentType, JobLimits, Limit, NewJob, QueueName, UnixMillis};
use std::time::Duration;
use tokio::sync::mpsc;

struct Played {
    tenure: Tenure,
    gate: Arc<Gate>,
    now: Instant,
    _freed: mpsc::UnboundedReceiver<crate::limits::releaser::ToReleaser>,
}

impl Played {
    fn new() -> Self {
        let (freeing, freed) = mpsc::unbounded_channel();
        let gate = Arc::new(Gate::new(QueueName::new("q").unwrap(), "k", Limit::default(), freeing));
        let mut bounds = stage::bounds();
        bounds.policy.limits = Limits::of_gate(gate.clone());
        let tenure = Tenure::new(bounds, "n~1".into(), 0);
        Self { tenure, gate, now: Instant::now(), _freed: freed }
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        let (wall, redis) = (UnixMillis(1), UnixMillis(1));
        let now = Now { instant: self.now, wall, redis, trusted: true, waits: false, random: 0.5 };
        let mut actions = Vec::new();
        self.tenure.decide(event, now, &mut actions);
        actions
    }

    /// Serves, with these jobs; what it does about them.
    fn serves(&mut self, jobs: Vec<Entry>) -> Vec<Action> {
        self.tell(Event::Serve);
        self.tell(Event::Acquired(Ok(Epoch(1))));
        self.tell(Event::Answered(1, Ok(Answer::Recovered { entries: jobs, next: Place::ZERO })));
        self.tell(Event::Answered(2, Ok(Answer::Taken(super::super::large_jobs_tests::nothing_beside()))))
    }

    /// A worker pulls the run and keeps the slot.
    fn pulls(&mut self, run: Run) -> Vec<Asking> {
        let Run { epoch, lane, entry, turn, first, .. } = run;
        let ran = Ran::Asks(first.expect("it asks"), Slot::none());
        let actions = self.tell(Event::Ended(vec![Ended { epoch, lane, entry, turn, ran, attempt: None }]));
        actions.into_iter().find_map(asking).unwrap()
    }

    fn says(&mut self, asking: Asking, said: Option<Admitted>) -> Vec<Action> {
        asking.permit.answered(said, self.now + Duration::from_secs(3), 0.5);
        self.tell(Event::Admitted(vec![(asking, said)]))
    }
}

fn asking(action: Action) -> Option<Vec<Asking>> {
    if let Action::Admit(asking) = action { Some(asking) } else { None }
}

fn started(actions: Vec<Action>) -> Vec<Run> {
    let runs = |action| if let Action::Start(runs) = action { runs } else { Vec::new() };
    actions.into_iter().flat_map(runs).collect()
}

fn job(seq: u64, kind: &str, key: &str) -> Entry {
    let job = NewJob::from_bytes(kind, key, vec![1], ContentType::Json).unwrap();
    let job = job.encode(UnixMillis(0), JobLimits::default()).unwrap();
    Entry { envelope: job.envelope, ..stage::entry(seq, key) }
}

#[test]
fn one_asks_and_runs_and_its_slot_is_held_until_its_settle_is_answered() {
    let mut played = Played::new();
    let mut runs = started(played.serves(vec![job(1, "k", "a"), job(2, "k", "b"), job(3, "free", "c")]));
    assert_eq!(runs.len(), 2, "one of the kind asks, and what is not limited runs");
    assert_eq!(runs[1].first, None);
    let asking = played.pulls(runs.remove(0)).remove(0);
    let mut runs = started(played.says(asking, Some(Admitted::Slot)));
    let run = runs.remove(0);
    assert!(run.first.is_none() && run.slot.as_ref().is_some_and(|slot| slot.may_begin(played.now)));
    assert_eq!(runs.len(), 1, "the next of the kind may ask");
    let Run { epoch, lane, entry, turn, .. } = run;
    let facts =
        gristmill_handler::Facts { version: 0, own_id: false, max_attempts: None, kind: None, options: None };
    let ran = Ran::Answered(gristmill_handler::Answer::Done(Default::default()), facts);
    let actions = played.tell(Event::Ended(vec![Ended { epoch, lane, entry, turn, ran, attempt: None }]));
    let number = actions.iter().find_map(|action| match action {
        Action::Send(number, call) if matches!(**call, Call::Settle(_)) => Some(*number),
        _ => None,
    });
    assert_eq!(played.gate.holds(), 1, "settled is not yet answered");
    let answer = Answer::Settled { jobs: vec![gristmill_broker::Settled::Done], first: true };
    played.tell(Event::Answered(number.unwrap(), Ok(answer)));
    assert_eq!(played.gate.holds(), 0);
}

#[test]
fn a_full_kind_lets_its_lanes_wait_in_turn_and_others_go_on() {
    let mut played = Played::new();
    let runs = started(played.serves(vec![job(1, "k", "a"), job(2, "k", "b"), job(3, "k", "c")]));
    let first = runs.into_iter().next().unwrap();
    let asking = played.pulls(first).remove(0);
    assert_eq!(started(played.says(asking, Some(Admitted::Full(1)))).len(), 0);
    assert_eq!(played.gate.waiting(), 3);
    assert_eq!(started(played.tell(Event::Tick)).len(), 0, "the gate is closed");
    // It has waited longest, and comes first.
    played.gate.opened(1, played.now);
    let runs = started(played.tell(Event::Tick));
    assert_eq!(runs.iter().map(|run| run.entry.place.seq).collect::<Vec<_>>(), [1]);
    assert_eq!((runs[0].turn, runs[0].attempt), (0, 1), "neither a turn nor an attempt");
    assert_eq!(played.gate.waiting(), 2);
}

#[test]
fn what_waits_is_woken_at_the_token_and_a_key_at_its_own() {
    let mut played = Played::new();
    let wait = Duration::from_secs(5);
    let first = started(played.serves(vec![job(1, "k", "a"), job(2, "k", "b")])).remove(0);
    let asking = played.pulls(first).remove(0);
    let actions = played.says(asking, Some(Admitted::KeyUntil(wait)));
    let until = played.now + wait;
    assert!(actions.iter().any(|action| matches!(action, Action::WakeAt(at) if *at == until)), "{actions:?}");
    let second = started(actions).remove(0);
    assert_eq!(second.entry.place.seq, 2, "another key does not wait");
    let asking = played.pulls(second).remove(0);
    let before = Instant::now() + wait;
    let actions = played.says(asking, Some(Admitted::Until(wait)));
    let wakes = |action: &Action| matches!(action, Action::WakeAt(at) if *at >= before);
    assert!(actions.iter().any(wakes), "{actions:?}");
    played.now += wait + Duration::from_secs(1);
    let runs = started(played.tell(Event::Tick));
    assert!(!runs.is_empty());
}

#[test]
fn a_partition_that_is_left_while_one_asks_runs_nothing_and_keeps_no_slot() {
    let mut played = Played::new();
    let first = started(played.serves(vec![job(1, "k", "a")])).remove(0);
    let asking = played.pulls(first).remove(0);
    let released = |actions: &[Action]| {
        actions.iter().any(|action| matches!(action, Action::Send(_, call) if **call == Call::Release))
    };
    played.tell(Event::Answered(3, Ok(Answer::Claimed(Vec::new()))));
    assert!(
        !released(&played.tell(Event::Yield(Why::Handover))),
        "it is not known yet whether it holds a slot"
    );
    let actions = played.says(asking, Some(Admitted::Slot));
    assert!(released(&actions), "{actions:?}");
    assert_eq!(started(actions).len(), 0);
    assert_eq!(played.gate.holds(), 0);
}

#[test]
fn waiting_lanes_are_parked_where_they_fill_the_window() {
    let mut played = Played::new();
    let jobs: Vec<Entry> = (1..=10).map(|n| job(n, "k", &format!("key{n}"))).collect();
    let first = started(played.serves(jobs)).remove(0);
    let asking = played.pulls(first).remove(0);
    played.says(asking, Some(Admitted::Until(Duration::from_secs(60))));
    assert_eq!(played.tenure.lanes.jobs(), 10, "the window is full");
    played.now += Duration::from_millis(60);
    played.tell(Event::Tick);
    assert_eq!((played.tenure.lanes.jobs(), played.tenure.lanes.parked()), (0, 10));
}
