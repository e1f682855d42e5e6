//! What the differential test cannot decide: time.

use super::Model;
use crate::absolve::Absolved;
use crate::call::{Answer, Call, Guard};
use crate::enqueue::{Accepted, CALL_MARK_LIFE, EnqueueAnswer};
use crate::fence::{Epoch, Fence, Incarnation};
use crate::grab::Grabbed;
use crate::keys::{Mode, QueueDefinition};
use crate::lease::acquire::{Acquire, Acquired, Before};
use crate::reclaim::{Reclaim, Reclaimed};
use crate::settle::{Settle, Settled, Verdict};
use crate::start::{How, Marked, Start};
use crate::state::{StateLine, Suspicion, Why};
use bytes::Bytes;
use gristmill_job::{EncodedJob, JobId, Key, Place, QueueName, UnixMillis};
use std::time::Duration;

struct World {
    model: Model,
    queue: QueueDefinition,
    now_ms: u64,
}

impl World {
    fn new() -> Self {
        let queue = QueueDefinition::new(QueueName::new("q").unwrap(), 1);
        let mut world = Self { model: Model::new(), queue, now_ms: 0 };
        world.pass(1_700_000_000_000);
        world.model.create(&world.queue).unwrap();
        world
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.model.set_now(UnixMillis(self.now_ms));
    }

    fn enqueue(&mut self, call: &str) -> Accepted {
        let job = EncodedJob {
            id: JobId::new("id").unwrap(),
            key: Key::new("key").unwrap(),
            envelope: Bytes::from_static(b"e"),
            own_id: true,
            due: gristmill_job::Due::Now,
        };
        match self.model.enqueue(&self.queue.partition(0), 1, call, &[job]) {
            EnqueueAnswer::Accepted(mut accepted) => accepted.remove(0),
            other => panic!("{other:?}"),
        }
    }

    fn acquire(&mut self, name: &str, highest: Epoch) -> Acquired {
        let incarnation = Incarnation::from_stored(name);
        let mut before = Before::default();
        loop {
            let acquire = Acquire {
                queue: &self.queue,
                partition: 0,
                incarnation: &incarnation,
                ttl: Duration::from_secs(5),
                highest,
                before: &before,
            };
            match self.model.acquire(&acquire) {
                Acquired::Changed(look) => before = look,
                other => return other,
            }
        }
    }

    fn granted(&mut self, name: &str, highest: Epoch) -> Fence {
        match self.acquire(name, highest) {
            Acquired::Granted(epoch) => Fence { incarnation: Incarnation::from_stored(name), epoch },
            other => panic!("{other:?}"),
        }
    }

    fn call(&mut self, fence: &Fence, number: u64, call: &Call) -> Answer {
        let keys = self.queue.partition(0);
        self.model.call(call, Guard { keys: &keys, fence, number, seen_window_ms: 1000 })
    }
}

#[test]
fn a_lease_ends_at_its_time_and_not_before() {
    let mut world = World::new();
    let a = world.granted("a~1", Epoch(0));
    world.pass(4_999);
    let Acquired::Held { owner, epoch, left, .. } = world.acquire("b~1", Epoch(0)) else {
        panic!("not held")
    };
    assert_eq!((owner, epoch, left), (a.incarnation.clone(), a.epoch, Duration::from_millis(1)));
    world.pass(1);
    let b = world.granted("b~1", Epoch(0));
    assert!(b.epoch > a.epoch);
    let keys = world.queue.partition(0);
    assert!(world.model.gate(&keys, &b) && !world.model.gate(&keys, &a));
}

#[test]
fn a_mark_lives_with_its_job_and_a_window_after_the_verdict() {
    let mut world = World::new();
    let Accepted::At(place) = world.enqueue("c1") else { panic!("not accepted") };
    world.pass(10_000_000);
    assert_eq!(world.enqueue("c2"), Accepted::Duplicate { standing: format!("waiting {place}") });
    let a = world.granted("a~1", Epoch(0));
    assert!(
        matches!(world.call(&a, 1, &Call::Claim { count: 9 }), Answer::Claimed(entries) if entries.len() == 1)
    );
    let done = Settle {
        place,
        turn: 0,
        id: JobId::new("id").unwrap(),
        key: Key::new("key").unwrap(),
        marked: true,
        verdict: Verdict::Done { version: 1, entity: None, emits: Vec::new() },
    };
    let settled = world.call(&a, 2, &Call::Settle(vec![done]));
    assert_eq!(settled, Answer::Settled { jobs: vec![Settled::Done], first: true });
    world.pass(999);
    assert_eq!(world.enqueue("c3"), Accepted::Duplicate { standing: "applied".to_owned() });
    world.pass(1);
    assert!(matches!(world.enqueue("c4"), Accepted::At(next) if next > place));
}

#[test]
fn a_calls_mark_answers_its_repeat_for_its_life() {
    let mut world = World::new();
    assert!(matches!(world.enqueue("c"), Accepted::At(_)));
    let life = u64::try_from(CALL_MARK_LIFE.as_millis()).unwrap();
    world.pass(life - 1);
    assert_eq!(world.enqueue("c"), Accepted::Before);
    world.pass(1);
    assert!(matches!(world.enqueue("c"), Accepted::Duplicate { .. }));
}

#[test]
fn places_grow_when_the_clock_stands_or_steps_back() {
    let mut world = World::new();
    let Accepted::At(first) = world.enqueue("c1") else { panic!("not accepted") };
    world.model.set_now(UnixMillis(1));
    let job = EncodedJob {
        id: JobId::new("other").unwrap(),
        key: Key::new("key").unwrap(),
        envelope: Bytes::new(),
        own_id: false,
        due: gristmill_job::Due::Now,
    };
    let answer = world.model.enqueue(&world.queue.partition(0), 1, "c2", &[job.clone(), job]);
    let at = |seq| Accepted::At(Place { ms: first.ms, seq });
    assert_eq!(answer, EnqueueAnswer::Accepted(vec![at(first.seq + 1), at(first.seq + 2)]));
}

/// V14: the clock of the server that took over is behind, and the lease it knows is an older one.
#[test]
fn no_incarnation_gets_an_epoch_twice_after_a_failover() {
    let mut world = World::new();
    let older = world.model.clone();
    let lost = world.granted("a~1", Epoch(0));
    world.model = older;
    world.model.set_now(UnixMillis(5));
    let again = world.granted("a~1", lost.epoch);
    assert!(again.epoch > lost.epoch, "{again:?} after {lost:?}");
}

/// V9: after a failover to an older prefix, a call that follows lost ones does nothing.
#[test]
fn a_call_on_a_history_that_lacks_its_predecessor_is_a_gap() {
    let mut world = World::new();
    let Accepted::At(place) = world.enqueue("c") else { panic!("not accepted") };
    let a = world.granted("a~1", Epoch(0));
    world.call(&a, 1, &Call::Claim { count: 9 });
    let older = world.model.clone();
    world.call(&a, 2, &Call::hand_back(Vec::new()));
    world.model = older.clone();
    let gap = Answer::Refused(crate::fence::Refusal::Gap { last: 1 });
    assert_eq!(world.call(&a, 3, &Call::hand_back(vec![place])), gap);
    assert_eq!(world.model, older, "nothing was written");
}

/// V28 to V32 at the clock's hand: two deaths until it runs alone, the third is charged, at the time it was found.
#[test]
fn a_poison_job_is_charged_from_its_third_death_on_and_the_charge_can_be_taken_back() {
    let mut world = World::new();
    let Accepted::At(place) = world.enqueue("c") else { panic!("not accepted") };
    let keys = world.queue.partition(0);
    let mut owner = world.granted("a~1", Epoch(0));
    world.call(&owner, 1, &Call::Claim { count: 9 });
    let mut number = 1;
    let deaths = [
        (None, Suspicion::Weak, 0),
        (Some(How::Beside), Suspicion::Strong, 0),
        (Some(How::Alone), Suspicion::Strong, 1),
        (Some(How::Alone), Suspicion::Strong, 2),
    ];
    for ((how, suspicion, charges), next) in deaths.into_iter().zip(["b~1", "c~1", "d~1", "e~1"]) {
        if let Some(how) = how {
            number += 1;
            let start = Call::Start(vec![Start { place, turn: 0, how }]);
            assert_eq!(world.call(&owner, number, &start), Answer::Started(vec![Marked::Started]));
        }
        world.pass(5_000);
        let dead = std::mem::replace(&mut owner, world.granted(next, Epoch(0)));
        number = 1;
        let recover = Call::Recover { cursor: Place::ZERO, count: 9 };
        let Answer::Recovered { entries, .. } = world.call(&owner, number, &recover) else { panic!() };
        let line = entries[0].state.line().unwrap();
        assert_eq!((line.suspicion, line.crashes.len(), &line.mark), (suspicion, charges, &None), "{next}");
        assert_eq!(line.interrupted, how.is_some());
        if let Some(crash) = line.crashes.last() {
            assert_eq!((&crash.fence, crash.turn, crash.at), (&dead, 0, UnixMillis(world.now_ms)));
            assert_eq!(world.model.absolve(&keys, &owner, 0, place), Absolved::Mine);
        }
    }
    let line = world.model.state(&keys, place).unwrap();
    for crash in &line.crashes {
        assert_eq!(world.model.absolve(&keys, &crash.fence, crash.turn, place), Absolved::Absolved);
        assert_eq!(world.model.absolve(&keys, &crash.fence, crash.turn, place), Absolved::Nothing);
    }
    let left = StateLine { crashes: Vec::new(), ..line };
    assert_eq!(world.model.state(&keys, place), Some(left), "the suspicion stays");
}

/// A job that came back waits by the same clock as any other, and is told of until its verdict.
#[test]
fn a_returned_job_waits_its_time_and_comes_again_to_every_owner() {
    let mut world = World::new();
    let keys = world.queue.partition(0);
    let place = Place { ms: 5, seq: 1 };
    let job = EncodedJob {
        id: JobId::new("id").unwrap(),
        key: Key::new("key").unwrap(),
        envelope: Bytes::from_static(b"edited"),
        own_id: true,
        due: gristmill_job::Due::Now,
    };
    let line = StateLine { turn: 1, replays: 1, ..StateLine::default() };
    let changes = world.model.come_back(&keys, place, &job, line, Some(Bytes::from_static(b"first")));
    assert_eq!(changes, 1);
    let a = world.granted("a~1", Epoch(0));
    let settle = |turn, verdict| {
        Call::Settle(vec![Settle {
            place,
            turn,
            id: job.id.clone(),
            key: job.key.clone(),
            marked: true,
            verdict,
        }])
    };
    let delay = Duration::from_secs(60);
    let history = Bytes::from_static(b"h");
    let retry =
        settle(1, Verdict::Retry { attempts: 1, delay, why: Why::Snooze, interrupted: false, history });
    let first = |settled| Answer::Settled { jobs: vec![settled], first: true };
    assert_eq!(world.call(&a, 1, &retry), first(Settled::Retried));
    let take = Call::Take { after: 0, count: 9, cursor: Some(0) };
    let Answer::Taken(taken) = world.call(&a, 2, &take) else { panic!() };
    assert_eq!((taken.entries[0].state.due_in, taken.last), (delay, 1));
    world.pass(59_999);
    let b = world.granted("b~1", Epoch(0));
    let Answer::Taken(taken) = world.call(&b, 1, &take) else { panic!() };
    assert_eq!(taken.entries[0].state.due_in, Duration::from_millis(1));
    world.pass(1);
    let loaded = world.model.load(&keys, &[place]).remove(0).1.unwrap();
    assert_eq!((loaded.state.due_in, loaded.state.turn(), loaded.returned), (Duration::ZERO, 2, true));
    assert_eq!(world.model.originals(&keys).len(), 1);
    let done = settle(2, Verdict::Done { version: 0, entity: None, emits: Vec::new() });
    assert_eq!(world.call(&b, 2, &done), first(Settled::Done));
    assert_eq!((world.model.returned(&keys), world.model.originals(&keys)), (Vec::new(), Vec::new()));
    assert_eq!(world.call(&b, 3, &done), first(Settled::Gone));
}

/// Ordering none: a claim is over at its timeout, counted from when it was extended last, and not before.
#[test]
fn a_claim_is_over_at_its_visibility_timeout() {
    let mut world = World::new();
    let queue = QueueDefinition::new(QueueName::new("u").unwrap(), 1).with_mode(Mode::None);
    world.model.create(&queue).unwrap();
    let keys = queue.partition(0);
    let job = EncodedJob {
        id: JobId::new("id").unwrap(),
        key: Key::new("key").unwrap(),
        envelope: Bytes::new(),
        own_id: true,
        due: gristmill_job::Due::Now,
    };
    world.model.enqueue(&keys, 1, "c", &[job]);
    let [a, b] = ["a~1", "b~1"].map(Incarnation::from_stored);
    let Grabbed::Jobs { entries, .. } = world.model.grab(&keys, &a, 5) else { panic!() };
    let place = entries[0].place;
    let look = Reclaim { timeout: Duration::from_secs(5), cursor: Place::ZERO, count: 5 };
    let taken = |world: &mut World| match world.model.reclaim(&keys, &b, look) {
        Reclaimed::Slice { entries, .. } => entries.len(),
        Reclaimed::Differs(mode) => panic!("{mode}"),
    };
    world.pass(3_000);
    assert_eq!(world.model.extend(&keys, &a, &[place]).lost, []);
    world.pass(4_999);
    assert_eq!(taken(&mut world), 0);
    let only_looks = Reclaim { count: 0, timeout: Duration::from_millis(4_000), ..look };
    let looked = world.model.reclaim(&keys, &b, only_looks);
    assert!(matches!(looked, Reclaimed::Slice { left: 1, worst, .. } if worst == Duration::from_millis(999)));
    world.pass(1);
    assert_eq!(taken(&mut world), 1);
    assert_eq!(world.model.extend(&keys, &a, &[place]).lost, [place], "it is another's");
    let line = world.model.state(&keys, place).unwrap();
    assert_eq!(line, StateLine { suspicion: Suspicion::Weak, ..StateLine::default() });
}
