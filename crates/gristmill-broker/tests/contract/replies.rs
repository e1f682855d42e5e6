//! Every script's every reply.

use crate::fixture::*;
use gristmill_broker::QueueDefinition;
use gristmill_broker::call::{Answer, Call};
use gristmill_broker::create::CreateError;
use gristmill_broker::enqueue::{Accepted, EnqueueAnswer};
use gristmill_broker::lease::acquire::{Acquire, Acquired, Before};
use gristmill_broker::lease::renew::{Renew, Renewed};
use gristmill_broker::lease::want::Wanted;
use gristmill_broker::{Epoch, Refusal, Settled};
use gristmill_job::{Place, QueueName, UnixMillis};
use std::time::Duration;

#[test]
fn create() {
    on_each(async |world| {
        assert_eq!(world.connection.create(&world.queue).await, Ok(()), "confirms");
        let larger = QueueDefinition::new(world.queue.name.clone(), 4);
        let Err(CreateError::Differs { partitions, configured, .. }) = world.connection.create(&larger).await
        else {
            panic!("a queue was made twice with different partitions");
        };
        assert_eq!((partitions.as_str(), configured), ("1", 4));
        let stray = larger.partition(3);
        assert_eq!(world.raw(&[b"EXISTS", stray.meta.as_bytes(), stray.stream.as_bytes()]).as_int(), Some(0));
        let found = world.connection.definition(&world.queue.name).await.unwrap();
        assert_eq!(found.as_ref(), Some(&world.queue));
        assert_eq!(world.connection.definition(&QueueName::new("other").unwrap()).await, Ok(None));
        let second = QueueDefinition::new(QueueName::new("a").unwrap(), 3);
        world.connection.create(&second).await.unwrap();
        assert_eq!(world.connection.queues().await.unwrap(), [second, world.queue.clone()]);
        world.server.flush().unwrap();
        world.connection.create(&world.queue).await.unwrap();
        assert_eq!(world.enqueue(&[own("a", "k")]).await.len(), 1, "mended after a flush");
    });
}

#[test]
fn enqueue() {
    on_each(async |world| {
        let keys = world.keys.clone();
        let jobs = [own("a", "k"), ours("b", "k"), own("a", "k")];
        let answer = world.connection.enqueue(&keys, 1, "c1", &jobs).await.unwrap();
        let EnqueueAnswer::Accepted(accepted) = &answer else { panic!("{answer:?}") };
        let [Accepted::At(first), Accepted::At(second), Accepted::Duplicate { standing }] =
            accepted.as_slice()
        else {
            panic!("{accepted:?}");
        };
        assert!(first < second);
        assert_eq!(*standing, format!("waiting {first}"), "the second of one call knows the first");
        let again = world.connection.enqueue(&keys, 1, "c1", &jobs).await.unwrap();
        assert_eq!(again, EnqueueAnswer::Accepted(vec![Accepted::Before; 3]));
        assert_eq!(world.length(), 2);
        let life = world.life_ms(&keys.call("c1"));
        assert!((1..=120_000).contains(&life), "{life}");

        let differs = world.connection.enqueue(&keys, 2, "c2", &jobs).await.unwrap();
        assert_eq!(differs, EnqueueAnswer::Differs { partitions: "1".to_owned() });
        world.raw(&[b"HSET", keys.meta.as_bytes(), b"limit", b"3"]);
        let two = [own("x", "k"), own("y", "k")];
        let full = world.connection.enqueue(&keys, 1, "c3", &two).await.unwrap();
        assert_eq!(full, EnqueueAnswer::Full { limit: "3".to_owned() });
        assert_eq!(world.length(), 2, "all or nothing");
        assert!(
            matches!(world.try_enqueue(&two[..1]).await, Ok(EnqueueAnswer::Accepted(_))),
            "up to the limit"
        );
        let nowhere = QueueDefinition::new(QueueName::new("nowhere").unwrap(), 1).partition(0);
        let answer = world.connection.enqueue(&nowhere, 1, "c4", &jobs).await.unwrap();
        assert_eq!(answer, EnqueueAnswer::NoQueue);
    });
}

#[test]
fn acquire() {
    on_each(async |world| {
        let nobody = Before::default();
        let Acquired::Changed(look) = world.acquire_once("a", HOUR, Epoch(0), &nobody).await else {
            panic!("granted below the clock");
        };
        assert!(
            (look.owner.as_str(), look.epoch.as_str()) == ("", "") && look.least > 1_000_000_000_000,
            "{look:?}"
        );
        let Acquired::Granted(first) = world.acquire_once("a", HOUR, Epoch(0), &look).await else {
            panic!("not granted");
        };
        assert!(first.0 >= look.least);
        world.connection.want(&world.keys, &incarnation("c"), HOUR).await.unwrap();
        let Acquired::Held { owner, epoch, left, wanted_by } =
            world.acquire_once("b", HOUR, Epoch(0), &nobody).await
        else {
            panic!("not held");
        };
        assert_eq!((owner, epoch, wanted_by), (incarnation("a"), first, Some(incarnation("c"))));
        assert!(left <= HOUR && left > HOUR - SOON, "{left:?}");
        let Acquired::Changed(look) = world.acquire_once("a", HOUR, first, &nobody).await else {
            panic!("granted without knowing whose gate to close");
        };
        assert_eq!((look.owner.as_str(), look.epoch), (incarnation("a").as_str(), first.0.to_string()));

        let differs = QueueDefinition::new(world.queue.name.clone(), 2);
        let nowhere = QueueDefinition::new(QueueName::new("nowhere").unwrap(), 1);
        for (queue, wanted) in
            [(differs, Acquired::Differs { partitions: "1".to_owned() }), (nowhere, Acquired::NoQueue)]
        {
            let incarnation = incarnation("a");
            let acquire = Acquire {
                queue: &queue,
                partition: 0,
                incarnation: &incarnation,
                ttl: HOUR,
                highest: Epoch(0),
                before: &nobody,
            };
            assert_eq!(world.connection.acquire(&acquire).await.unwrap(), wanted);
        }
    });
}

#[test]
fn want_and_renew() {
    on_each(async |world| {
        let want = async |name: &str, stands| {
            world.connection.want(&world.keys, &incarnation(name), stands).await.unwrap()
        };
        let renew = async |tenure: &Tenure, answered| {
            let renew = Renew { keys: world.keys.clone(), fence: tenure.fence.clone(), answered };
            match world.connection.renew(&[renew], HOUR).await.unwrap().remove(0) {
                Renewed::Ok { wanted_by, changes, due, .. } => {
                    Renewed::Ok { wanted_by, changes, now: UnixMillis(0), due }
                }
                refused => refused,
            }
        };
        assert_eq!(want("b", HOUR).await, Wanted::Free);
        let a = world.acquire_for("a", Duration::ZERO).await;
        assert_eq!(want("b", HOUR).await, Wanted::Free, "expired");
        let ok = Renewed::Ok { wanted_by: None, changes: 0, now: UnixMillis(0), due: None };
        assert_eq!(renew(&a, 0).await, ok, "expired, and nobody took it");
        assert_eq!(want("a", HOUR).await, Wanted::Mine);
        assert_eq!(want("b", HOUR).await, Wanted::Noted);
        assert_eq!(want("b", HOUR).await, Wanted::Noted, "prolonged");
        assert_eq!(want("c", HOUR).await, Wanted::By(incarnation("b")));
        let wanted_by = Some(incarnation("b"));
        let wanted = Renewed::Ok { wanted_by, changes: 0, now: UnixMillis(0), due: None };
        assert_eq!(renew(&a, 0).await, wanted);
        assert_eq!(renew(&a, 1).await, Renewed::Refused(Refusal::Gap { last: 0 }));
        let again = world.acquire("a").await;
        let fenced = Renewed::Refused(Refusal::Fenced { owner: incarnation("a").to_string() });
        assert_eq!(renew(&a, 0).await, fenced, "the same owner in another epoch");
        assert_eq!(renew(&again, 0).await, ok);
    });
}

#[test]
fn claim() {
    on_each(async |world| {
        let mut a = world.acquire("a").await;
        assert_eq!(world.claim(&mut a).await, []);
        let places = world.enqueue(&[own("1", "k"), own("2", "k"), own("3", "k")]).await;
        let Answer::Claimed(two) = world.call(&mut a, Call::Claim { count: 2 }).await else {
            panic!("not claimed")
        };
        assert_eq!(two.iter().map(|entry| entry.place).collect::<Vec<_>>(), places[..2]);
        assert_eq!((two[1].id.as_bytes(), two[1].key.as_bytes()), (&b"2"[..], &b"k"[..]));
        assert_eq!(two[1].envelope, "envelope of 2");
        assert!(!two[0].recovered && two[0].state.turn() == 0);
        let other =
            Tenure { fence: gristmill_broker::Fence { epoch: Epoch(1), ..a.fence.clone() }, number: 0 };
        let claim = Call::Claim { count: 2 };
        assert_fenced(&world.call_as(&other.fence, 1, &claim).await, "a");
        assert_eq!(world.holders().len(), 2, "a foreign fence reads nothing");
        assert_eq!(world.call_as(&a.fence, a.number, &claim).await, Answer::Already);
        assert_eq!(world.call_as(&a.fence, a.number + 2, &claim).await, gap(2));
        assert_eq!(
            ids(&world.recover(&mut a).await),
            ["1", "2", "3"],
            "what was read behind a refusal is found"
        );
    });
}

#[test]
fn recover() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "k"), own("2", "k"), own("3", "k")]).await;
        let mut a = world.acquire_for("a", Duration::ZERO).await;
        let claimed = world.claim(&mut a).await;
        world.settle(&mut a, vec![retry(&claimed[1], HOUR)]).await;
        assert_eq!(world.call(&mut a, Call::hand_back(vec![places[0]])).await, Answer::Done);
        let mut b = world.acquire("b").await;
        let slice = Call::Recover { cursor: Place::ZERO, count: 2 };
        assert_fenced(&world.call_as(&a.fence, 4, &slice).await, "b");
        assert_eq!(world.call_as(&b.fence, 2, &slice).await, gap(0));
        let Answer::Recovered { entries, next } = world.call(&mut b, slice.clone()).await else {
            panic!("not recovered");
        };
        assert_eq!(next, places[2]);
        assert_eq!(entries.iter().map(|entry| entry.recovered).collect::<Vec<_>>(), [false, true]);
        assert_eq!(
            (entries[0].state.turn(), entries[1].state.turn(), entries[1].state.attempts()),
            (0, 1, 1)
        );
        let due = entries[1].state.due_in;
        assert!(due <= HOUR && due > HOUR - SOON, "{due:?}");
        assert_eq!(world.call_as(&b.fence, b.number, &slice).await, Answer::Already);
        let rest = Call::Recover { cursor: next, count: 2 };
        let Answer::Recovered { entries, next } = world.call(&mut b, rest).await else {
            panic!("not recovered")
        };
        assert_eq!((ids(&entries), next), (vec!["3".to_owned()], Place::ZERO));
        let me = b.fence.consumer();
        assert!(world.holders().iter().all(|(_, holder)| *holder == me));
        let consumers = world.raw(&[b"XINFO", b"CONSUMERS", world.keys.stream.as_bytes(), b"workers"]);
        assert_eq!(
            consumers.as_array().unwrap().len(),
            1,
            "consumers that hold nothing are gone: {consumers:?}"
        );
    });
}

#[test]
fn hand_back_forward_and_release() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "k"), own("2", "k")]).await;
        let mut a = world.acquire("a").await;
        let claimed = world.claim(&mut a).await;
        let stale = gristmill_broker::Fence { epoch: Epoch(1), ..a.fence.clone() };
        let waiting = world.enqueue(&[own("3", "k")]).await;
        for call in [Call::hand_back(places.clone()), Call::Forward(places.clone())] {
            assert_fenced(&world.call_as(&stale, 1, &call).await, "a");
            assert_eq!(world.call_as(&a.fence, 3, &call).await, gap(1));
        }
        let back = Call::hand_back(vec![places[0], waiting[0]]);
        assert_eq!(world.call(&mut a, back.clone()).await, Answer::Done);
        assert_eq!(world.call_as(&a.fence, a.number, &back).await, Answer::Done);
        let me = a.fence.consumer();
        let holders: Vec<_> = world.holders().into_iter().map(|(_, holder)| holder).collect();
        assert_eq!(holders, ["handed-back", &me], "nothing is taken that nobody was given");

        assert_eq!(world.settle(&mut a, vec![emitting(&claimed[1], 2)]).await, [Settled::Done]);
        let outbox = world.connection.outbox(&world.keys, 10).await.unwrap();
        let (queue, job) = outbox[1].1.clone().unwrap();
        assert_eq!((queue.as_str(), job.id.as_bytes(), job.key.as_bytes()), ("next", &b"2:1"[..], &b"k"[..]));
        assert_eq!(job.envelope, "emitted");
        let forward = Call::Forward(vec![outbox[0].0]);
        assert_eq!(world.call(&mut a, forward.clone()).await, Answer::Done);
        assert_eq!(world.call_as(&a.fence, a.number, &forward).await, Answer::Done);
        assert_eq!(world.call(&mut a, Call::Forward(Vec::new())).await, Answer::Done);
        assert_eq!(world.call(&mut a, Call::hand_back(Vec::new())).await, Answer::Done);
        assert_eq!(world.connection.outbox(&world.keys, 10).await.unwrap().len(), 1);

        assert_eq!(world.call_as(&a.fence, a.number + 2, &Call::Release).await, gap(a.number));
        assert_eq!(world.call_as(&stale, 1, &Call::Release).await, Answer::Done, "it is not the caller's");
        assert_eq!(world.raw(&[b"EXISTS", &world.keys.gate(&a.fence)]).as_int(), Some(1));
        assert_eq!(world.call(&mut a, Call::Release).await, Answer::Done);
        assert_eq!(world.call_as(&a.fence, a.number, &Call::Release).await, Answer::Done);
        assert_eq!(world.raw(&[b"EXISTS", &world.keys.gate(&a.fence)]).as_int(), Some(0));
        assert_fenced(&world.call_as(&a.fence, a.number + 1, &back).await, "");
    });
}

#[test]
fn announce() {
    on_each(async |world| {
        let name = world.queue.name.clone();
        let announce = async |who: &str, ttl, draining| {
            let found = world.connection.announce(&name, &incarnation(who), ttl, draining, "").await.unwrap();
            let mut found: Vec<_> =
                found.into_iter().map(|m| (m.incarnation.node().to_owned(), m.draining)).collect();
            found.sort();
            found
        };
        let node = |name: &str, draining| (name.to_owned(), draining);
        assert_eq!(announce("a", HOUR, false).await, [node("a", false)]);
        assert_eq!(announce("b", HOUR, true).await, [node("a", false), node("b", true)]);
        assert_eq!(announce("a", Duration::ZERO, false).await, [node("b", true)], "left");
        announce("short", Duration::from_millis(1), false).await;
        let deadline = gristmill_testkit::Deadline::after(SOON);
        while announce("b", HOUR, true).await.len() > 1 {
            assert!(!deadline.passed(), "a dead node is listed for ever");
        }
    });
}

#[test]
fn inspect() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "k"), own("2", "k"), own("3", "k")]).await;
        let mut a = world.acquire("a").await;
        let claimed = world.claim(&mut a).await;
        world.enqueue(&[own("4", "k")]).await;
        world.settle(&mut a, vec![dead(&claimed[0], "letter"), emitting(&claimed[1], 1)]).await;
        let view = world.connection.partitions(&world.queue).await.unwrap().remove(0);
        assert_eq!((view.ready, view.claimed, view.dead, view.outbox), (2, 1, 1, 1));
        assert_eq!((view.owner.as_str(), view.epoch), (incarnation("a").as_str(), a.fence.epoch.0));
        assert_eq!(view.oldest.map(|at| at.0), Some(places[2].ms));
        assert!(view.expires > view.now);
        let letters = world.connection.dead_letters(&world.queue, 0, 0, 10).await.unwrap();
        assert_eq!((letters.len(), letters[0].id.as_str()), (1, "letter"));
        assert_eq!(letters[0].letter.as_ref().unwrap().job, b"1");
        assert_eq!(world.connection.dead_letters(&world.queue, 0, 1, 10).await.unwrap(), []);
        assert_eq!(world.connection.entity(&world.queue, b"k").await.unwrap(), None);
    });
}

#[test]
fn a_length_limit_can_be_set_changed_and_taken_away_and_a_create_keeps_it() {
    on_each(async |world| {
        let queue = world.queue.clone();
        world.enqueue(&[own("1", "k"), own("2", "k")]).await;
        assert!(world.connection.set_length_limit(&queue, 3).await.unwrap());
        world.connection.create(&queue).await.unwrap();
        world.enqueue(&[own("3", "k")]).await;
        let full = EnqueueAnswer::Full { limit: "3".into() };
        assert_eq!(world.try_enqueue(&[own("4", "k")]).await.unwrap(), full);
        // What is there already takes no room: it is answered as ever, also beside one for which there is none.
        let known = world.try_enqueue(&[own("3", "k"), own("1", "k")]).await.unwrap();
        let EnqueueAnswer::Accepted(known) = known else { panic!("refused: {known:?}") };
        assert!(known.iter().all(|answer| matches!(answer, Accepted::Duplicate { .. })), "{known:?}");
        assert_eq!(world.try_enqueue(&[own("1", "k"), own("4", "k")]).await.unwrap(), full);
        assert_eq!(world.try_enqueue(&[ours("4", "k")]).await.unwrap(), full);
        // Less than there is: nothing goes, and nothing comes.
        assert!(world.connection.set_length_limit(&queue, 1).await.unwrap());
        assert_eq!(
            (world.try_enqueue(&[own("4", "k")]).await.unwrap(), world.length()),
            (EnqueueAnswer::Full { limit: "1".into() }, 3)
        );
        assert!(world.connection.set_length_limit(&queue, 0).await.unwrap());
        world.enqueue(&[own("4", "k")]).await;
        let nowhere = QueueDefinition::new(gristmill_job::QueueName::new("nowhere").unwrap(), 2);
        assert!(!world.connection.set_length_limit(&nowhere, 5).await.unwrap());
        assert_eq!(world.raw(&[b"EXISTS", nowhere.partition(0).meta.as_bytes()]).as_int(), Some(0));
    });
}
