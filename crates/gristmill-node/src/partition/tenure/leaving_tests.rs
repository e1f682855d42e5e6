//! Leaving in the middle of a repair, step by step: what the simulation's random walks meet too seldom.

use super::*;
use crate::stage;
use gristmill_broker::{JobState, StateLine};
use gristmill_job::UnixMillis;
use std::time::Duration;

const HANDOVER_WAIT: Duration = Duration::from_secs(5);

pub(super) struct Played {
    pub(super) tenure: Tenure,
    start: Instant,
    epochs: u64,
    /// Runs wait for a slot.
    pub(super) waits: bool,
}

impl Played {
    pub(super) fn new() -> Self {
        let bounds = Bounds { handover_wait: HANDOVER_WAIT, ..stage::bounds() };
        Self { tenure: Tenure::new(bounds, "n~1".into(), 0), start: Instant::now(), epochs: 0, waits: false }
    }

    pub(super) fn tell(&mut self, after: Duration, event: Event) -> Vec<Action> {
        let now = Now {
            instant: self.start + after,
            wall: UnixMillis(1),
            redis: UnixMillis(1),
            trusted: true,
            waits: self.waits,
            random: 0.5,
        };
        let mut actions = Vec::new();
        self.tenure.decide(event, now, &mut actions);
        actions
    }

    pub(super) fn granted(&mut self) {
        self.epochs += 1;
        self.tell(Duration::ZERO, Event::Acquired(Ok(Epoch(self.epochs))));
    }

    /// Recover finds one job; what is started then.
    fn recovered(&mut self) -> Vec<Action> {
        let entry = job(StateLine::default());
        let answer = Answer::Recovered { entries: vec![entry], next: Place::ZERO };
        self.tell(Duration::ZERO, Event::Answered(1, Ok(answer)));
        self.taken()
    }

    /// Nothing lies beside the stream; what is started then.
    pub(super) fn taken(&mut self) -> Vec<Action> {
        let taken = Answer::Taken(super::large_jobs_tests::nothing_beside());
        self.tell(Duration::ZERO, Event::Answered(2, Ok(taken)))
    }
}

fn starts(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Start(_)))
}

#[test]
fn a_wish_during_the_repair_of_a_drain_does_not_end_the_drain() {
    let mut played = Played::new();
    played.tell(Duration::ZERO, Event::Serve);
    played.granted();
    assert!(starts(&played.recovered()), "the job runs, and for long");
    played.tell(Duration::ZERO, Event::Yield(Why::Drain));
    played.tell(Duration::ZERO, Event::Lost(End::Connection));
    played.granted();
    // Every other node wants what a draining node holds.
    played.tell(Duration::ZERO, Event::Renewed { wanted: true, changes: 0, due: None });
    assert!(!starts(&played.recovered()));
    for seconds in 1..20 {
        let actions = played.tell(Duration::from_secs(seconds), Event::Tick);
        let goes_on = actions.iter().any(|action| matches!(action, Action::Hold(_) | Action::Send(..)));
        assert!(!goes_on, "after {seconds} s a draining node goes on with the partition: {actions:?}");
    }
}

#[test]
fn a_drain_that_meets_a_release_under_way_stays_a_drain() {
    let mut played = Played::new();
    played.tell(Duration::ZERO, Event::Serve);
    played.granted();
    let answer = Answer::Recovered { entries: Vec::new(), next: Place::ZERO };
    played.tell(Duration::ZERO, Event::Answered(1, Ok(answer)));
    played.taken();
    played.tell(Duration::ZERO, Event::Answered(3, Ok(Answer::Claimed(Vec::new()))));
    played.tell(Duration::ZERO, Event::Forwarded { ids: Vec::new(), more: false });
    let actions = played.tell(Duration::ZERO, Event::Yield(Why::Handover));
    assert!(actions.iter().any(|action| matches!(action, Action::Send(_, call) if **call == Call::Release)));
    played.tell(Duration::ZERO, Event::Yield(Why::Drain));
    let actions = played.tell(Duration::ZERO, Event::Answered(4, Ok(Answer::Done)));
    let drained = |action: &Action| matches!(action, Action::Idle { end: Some(End::Drain), released: true });
    assert!(actions.iter().any(drained), "{actions:?}");
}

fn job(line: StateLine) -> Entry {
    Entry { state: JobState::of(line, 0), recovered: true, ..stage::entry(1, "key") }
}

fn started(actions: &[Action]) -> Run {
    let run = actions.iter().find_map(|action| match action {
        Action::Start(runs) => runs.first().cloned(),
        _ => None,
    });
    run.unwrap_or_else(|| panic!("nothing starts: {actions:?}"))
}

pub(super) fn told(run: &Run, ran: Ran) -> Event {
    let Run { epoch, lane, entry, turn, .. } = run.clone();
    Event::Ended(vec![Ended { epoch, lane, entry, turn, ran, attempt: None }])
}

#[test]
fn a_process_is_not_kept_closed_by_a_lone_run_that_ended_while_its_lease_was_lost() {
    use gristmill_broker::state::{StateLine, Suspicion};
    let mut played = Played::new();
    played.tell(Duration::ZERO, Event::Serve);
    played.granted();
    let strong = job(StateLine { suspicion: Suspicion::Strong, ..StateLine::default() });
    let place = strong.place;
    let answer = Answer::Recovered { entries: vec![strong], next: Place::ZERO };
    played.tell(Duration::ZERO, Event::Answered(1, Ok(answer)));
    assert!(played.taken().iter().any(|action| matches!(action, Action::AskAlone(_))));
    let actions = played.tell(Duration::ZERO, Event::Alone(place));
    let sent = actions.iter().find_map(|action| match action {
        Action::Send(number, call) if matches!(**call, Call::Start(_)) => Some(*number),
        _ => None,
    });
    let marked = Answer::Started(vec![gristmill_broker::start::Marked::Started]);
    let run = started(&played.tell(Duration::ZERO, Event::Answered(sent.unwrap(), Ok(marked))));
    assert!(run.alone);
    // Redis is away for longer than the lease; the run ends meanwhile; another node is faster.
    let mut actions = played.tell(Duration::ZERO, Event::Lost(End::Connection));
    actions.extend(played.tell(Duration::ZERO, told(&run, Ran::Stopped)));
    assert!(!actions.iter().any(|action| matches!(action, Action::AloneOver)), "it may be adopted yet");
    let actions = played.tell(Duration::ZERO, Event::Acquired(Err(())));
    assert!(actions.iter().any(|action| matches!(action, Action::AloneOver)), "{actions:?}");
    assert_eq!(played.tenure.abandon(&mut Vec::new()), 0, "nothing of it is alive");
}

#[test]
fn a_slot_is_not_kept_by_a_run_whose_tenure_ended_before_it_began() {
    let mut played = Played::new();
    played.tell(Duration::ZERO, Event::Serve);
    played.granted();
    let run = started(&played.recovered());
    played.tell(Duration::ZERO, Event::Lost(End::Connection));
    let slot = crate::worker::slot::Slot::none();
    let kept = Arc::downgrade(&slot);
    played.tell(Duration::ZERO, told(&run, Ran::Asks(First::Acknowledge, slot)));
    assert_eq!(kept.strong_count(), 0);
}
