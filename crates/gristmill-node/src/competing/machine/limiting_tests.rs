//! Jobs of a limited kind, step by step.

use super::super::*;
use super::{BUSY, FEW};
use crate::limits::Limits;
use crate::partition::tenure::{Asking, Ended, Ran, Run};
use crate::stage;
use gristmill_broker::admit::Admitted;
use gristmill_broker::grab::Grabbed;
use gristmill_broker::pause::{Pause, Target};
use gristmill_broker::said::Said;
use gristmill_broker::{Entry, Verdict};
use gristmill_job::{ContentType, JobLimits, Limit, NewJob, QueueName, UnixMillis};
use tokio::sync::mpsc;

struct Played {
    machine: Machine,
    gate: Arc<crate::limits::gate::Gate>,
    now: Instant,
    free_slots: usize,
    _freed: mpsc::UnboundedReceiver<crate::limits::releaser::ToReleaser>,
}

impl Played {
    /// It has claimed so many jobs of the limited kind; the first of them asks.
    fn new(jobs: u64, free_slots: usize) -> (Self, Asking) {
        let (freeing, freed) = mpsc::unbounded_channel();
        let limit = Limit { max_running: Some(1), rate: None };
        let queue = QueueName::new("q").unwrap();
        let gate = Arc::new(crate::limits::gate::Gate::new(queue, "scarce", limit, freeing));
        let policy = Policy { limits: Limits::of_gate(gate.clone()), ..stage::bounds().policy };
        let bounds = Bounds {
            claim_jobs: 100,
            visibility_timeout: Duration::from_secs(30),
            census_every: Duration::from_secs(30),
            policy,
        };
        let now = Instant::now();
        let machine = Machine::new(bounds, "n~1".into(), 0, Epoch(1), now);
        let mut played = Self { machine, gate, now, free_slots, _freed: freed };
        played.tell(Event::Pauses(Arc::default()));
        let slots: Vec<Arc<Slot>> = (0..jobs).map(|_| Slot::none()).collect();
        // Looking for claims that are over comes first.
        let slice = gristmill_broker::reclaim::Reclaimed::Slice {
            entries: Vec::new(),
            next: Place::ZERO,
            left: 0,
            worst: Duration::ZERO,
            outbox: 0,
            now: UnixMillis(1),
        };
        played.tell(Event::Reclaimed(1, Ok(slice)));
        played.tell(Event::Granted(crate::worker::grant::Grant::of(slots)));
        let entries = (1..=jobs).map(scarce).collect();
        let grabbed = Grabbed::Jobs { entries, delivered: None, next_due: None, now: UnixMillis(1) };
        let actions = played.tell(Event::Grabbed(2, Ok(grabbed)));
        let asking = asking(&actions);
        (played, asking)
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        let slots = self.free_slots;
        let now = Now {
            instant: self.now,
            wall: UnixMillis(1),
            redis: UnixMillis(1),
            random: 0.5,
            free_slots: &|| slots,
            trusts: &|_| true,
        };
        let mut actions = Vec::new();
        self.machine.decide(event, now, &mut actions);
        actions
    }

    fn says(&mut self, asking: Asking, said: Option<Admitted>) -> Vec<Action> {
        asking.permit.answered(said, self.now + Duration::from_secs(3), 0.5);
        self.tell(Event::Admitted(vec![(asking, said)]))
    }

    fn later(&mut self, wait: Duration) -> Vec<Action> {
        self.now += wait;
        self.tell(Event::Tick)
    }

    fn waits(&self) -> usize {
        self.machine.held.values().filter(|held| held.stage == Stage::Limited).count()
    }
}

fn scarce(seq: u64) -> Entry {
    let job = NewJob::from_bytes("scarce", "k", vec![1], ContentType::Json).unwrap();
    let envelope = job.encode(UnixMillis(0), JobLimits::default()).unwrap().envelope;
    Entry { envelope, ..stage::entry(seq, "k") }
}

fn asking(actions: &[Action]) -> Asking {
    let mut all = actions.iter().filter_map(|action| match action {
        Action::Admit(asking) => Some(asking),
        _ => None,
    });
    let one = &all.next().unwrap_or_else(|| panic!("nobody asks: {actions:?}"))[0];
    let Asking { lane, entry, turn, next, slot, permit } = one;
    Asking {
        lane: *lane,
        entry: entry.clone(),
        turn: *turn,
        next: *next,
        slot: slot.clone(),
        permit: permit.clone(),
    }
}

/// Runs that are given to the workers without a slot.
fn queued(actions: Vec<Action>) -> Vec<Run> {
    let runs = actions.into_iter().filter_map(|action| match action {
        Action::Start(runs) => Some(runs),
        _ => None,
    });
    runs.flatten().filter(|run| run.slot.is_none()).collect()
}

/// After how long each job that is put back comes again.
fn put_back(actions: &[Action]) -> Vec<Duration> {
    let settles = actions.iter().filter_map(|action| match action {
        Action::Send(_, call, _) => match &**call {
            Call::Settle(settles) => Some(settles.clone()),
            _ => None,
        },
        _ => None,
    });
    let delay = |settle: gristmill_broker::Settle| match settle.verdict {
        Verdict::Retry { delay, attempts: 0, .. } => delay,
        other => panic!("{other:?}"),
    };
    settles.flatten().map(delay).collect()
}

#[test]
fn a_few_wait_at_the_node_and_ask_in_turn_and_the_rest_comes_again() {
    let (mut played, first) = Played::new(20, 100);
    assert_eq!((played.waits(), played.gate.waiting()), (FEW, FEW), "of 19, with a limit of one");
    let actions = played.says(first, Some(Admitted::Slot));
    // Two may ask now: in their turn, and in slots that they do not have yet.
    let runs = queued(actions);
    let places: Vec<u64> = runs.iter().map(|run| run.entry.place.seq).collect();
    assert_eq!(places, [2, 3]);
    let Run { epoch, lane, entry, turn, first, .. } = runs.into_iter().next().unwrap();
    let ran = Ran::Asks(first.unwrap(), Slot::none());
    let actions = played.tell(Event::Ended(vec![Ended { epoch, lane, entry, turn, ran, attempt: None }]));
    let second = asking(&actions);
    played.says(second, Some(Admitted::Full(1)));
    assert_eq!(played.waits(), FEW - 1, "it waits again, before the others");
}

#[test]
fn no_more_wait_than_the_node_has_free_slots_and_they_leave_a_node_that_is_busy() {
    assert_eq!(Played::new(20, 3).0.waits(), 3);
    let (mut played, first) = Played::new(4, 3);
    played.says(first, Some(Admitted::Full(1)));
    assert_eq!(played.waits(), 4, "who had its turn keeps it");
    // The limit stays full, and other jobs take the slots: for a moment, and for good.
    played.gate.answered(Some(Admitted::Full(1)), played.now + BUSY, 1.0);
    played.free_slots = 1;
    assert!(put_back(&played.tell(Event::Tick)).is_empty());
    let left = put_back(&played.later(BUSY));
    assert_eq!((left.len(), played.waits()), (3, 1), "{left:?}");
    assert!(left.iter().all(|wait| *wait < Duration::from_secs(3)), "{left:?}");
}

#[test]
fn a_run_that_finds_no_slot_is_called_back_for_others() {
    let (mut played, first) = Played::new(2, 3);
    let runs = queued(played.says(first, Some(Admitted::Slot)));
    assert_eq!(runs.len(), 1);
    played.free_slots = 0;
    let recalls = |actions: &[Action]| actions.iter().any(|action| matches!(action, Action::Recall));
    assert!(!recalls(&played.tell(Event::Tick)));
    assert!(recalls(&played.later(BUSY)));
    let Run { epoch, lane, entry, turn, .. } = runs.into_iter().next().unwrap();
    let back = Ended { epoch, lane, entry, turn, ran: Ran::NotStarted, attempt: None };
    let actions = played.tell(Event::Ended(vec![back]));
    let hands_back = |action: &Action| matches!(action, Action::HandedBack(1));
    assert!(actions.iter().any(hands_back), "{actions:?}");
}

#[test]
fn what_waits_is_paused_cancelled_lost_and_handed_back() {
    let (mut played, _first) = Played::new(5, 100);
    let place = |seq| Place { ms: 1, seq };
    played.tell(Event::Lost(vec![place(2)]));
    assert_eq!(played.waits(), 3);
    assert_eq!(put_back(&played.tell(Event::Cancelled(vec![place(3)]))), [Duration::ZERO], "its line tells");
    assert_eq!((played.waits(), played.gate.waiting()), (2, 2));
    let target = Target::Kind("scarce".into());
    let pause = Pause { target, since: UnixMillis(1), until: None, said: Said::default() };
    played.tell(Event::Pauses(Arc::new(crate::partition::pauses::Pauses::of(&[pause]))));
    assert_eq!((played.waits(), played.gate.waiting()), (0, 0));

    let (mut played, _first) = Played::new(5, 100);
    let actions = played.tell(Event::Drain);
    assert!(actions.iter().any(|action| matches!(action, Action::HandedBack(4))), "{actions:?}");
    assert_eq!(played.gate.waiting(), 0);
}
