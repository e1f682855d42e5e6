//! The traces that break a design without its guards, as far as no request has to arrive late for them.

use crate::fixture::*;
use gristmill_broker::Settled;
use gristmill_broker::call::{Answer, Call};
use gristmill_broker::enqueue::{Accepted, EnqueueAnswer};
use gristmill_broker::lease::renew::{Renew, Renewed};
use gristmill_broker::lease::want::Wanted;
use gristmill_job::{Key, partition_of};
use gristmill_testkit::Deadline;
use std::time::Duration;

/// After a clean hand-over the jobs are pending still; the new owner finds them, in order, as nobody's suspects.
#[test]
fn v7_what_was_handed_back_is_recovered() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "k"), own("2", "k")]).await;
        let mut a = world.acquire("a").await;
        world.claim(&mut a).await;
        assert_eq!(world.call(&mut a, Call::hand_back(places)).await, Answer::Done);
        assert_eq!(world.call(&mut a, Call::Release).await, Answer::Done);
        let mut b = world.acquire("b").await;
        assert_eq!(world.claim(&mut b).await, [], "a claim alone never shows them");
        let recovered = world.recover(&mut b).await;
        assert_eq!(ids(&recovered), ["1", "2"]);
        assert!(recovered.iter().all(|entry| !entry.recovered));
    });
}

#[test]
fn v12_a_wish_ends_with_its_time_and_with_the_next_acquire() {
    on_each(async |world| {
        let a = world.acquire("a").await;
        let renew = async |tenure: &Tenure| {
            let renew = Renew { keys: world.keys.clone(), fence: tenure.fence.clone(), answered: 0 };
            match world.connection.renew(&[renew], HOUR).await.unwrap().remove(0) {
                Renewed::Ok { wanted_by, .. } => wanted_by,
                refused => panic!("{refused:?}"),
            }
        };
        let nobody = None;
        let moment = Duration::from_millis(1);
        assert_eq!(world.connection.want(&world.keys, &incarnation("b"), moment).await, Ok(Wanted::Noted));
        let deadline = Deadline::after(SOON);
        while renew(&a).await != nobody {
            assert!(!deadline.passed(), "the wish of a dead node stands for ever");
        }
        assert_eq!(world.connection.want(&world.keys, &incarnation("c"), HOUR).await, Ok(Wanted::Noted));
        assert_ne!(renew(&a).await, nobody);
        let again = world.acquire("a").await;
        assert_eq!(renew(&again).await, nobody, "the owner would give it up again and again");
    });
}

#[test]
fn v15_every_put_back_is_another_turn() {
    on_each(async |world| {
        world.enqueue(&[own("1", "k")]).await;
        let mut a = world.acquire("a").await;
        let entry = world.claim(&mut a).await.remove(0);
        let mut now = entry.clone();
        for turn in 0..4 {
            now = at_turn(&now, turn);
            assert_eq!(world.settle(&mut a, vec![retry(&now, Duration::ZERO)]).await, [Settled::Retried]);
        }
        for old in [put(&entry, 1, "old"), retry(&entry, HOUR), dead(&entry, "letter")] {
            assert_eq!(world.settle(&mut a, vec![old]).await, [Settled::AtTurn(4)]);
        }
        let mut b = world.acquire("a").await;
        let recovered = world.recover(&mut b).await.remove(0);
        assert_eq!((recovered.state.turn(), recovered.state.due_in), (4, Duration::ZERO));
        assert_eq!(world.settle(&mut b, vec![put(&recovered, 1, "new")]).await, [Settled::Done]);
        assert_eq!(world.raw(&[b"EXISTS", world.keys.state.as_bytes()]).as_int(), Some(0), "no mark is left");
    });
}

#[test]
fn v16_a_hand_back_does_not_change_the_turn() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "k")]).await;
        let mut a = world.acquire("a").await;
        let entry = world.claim(&mut a).await.remove(0);
        world.settle(&mut a, vec![retry(&entry, Duration::ZERO)]).await;
        for next in ["b", "c"] {
            assert_eq!(world.call(&mut a, Call::hand_back(places.clone())).await, Answer::Done);
            assert_eq!(world.call(&mut a, Call::Release).await, Answer::Done);
            a = world.acquire(next).await;
            let entry = world.recover(&mut a).await.remove(0);
            assert_eq!((entry.state.turn(), entry.state.attempts()), (1, 1));
        }
        let entry = at_turn(&entry, 1);
        assert_eq!(world.settle(&mut a, vec![done(&entry)]).await, [Settled::Done]);
    });
}

/// As far as it exists without replay.
#[test]
fn v17_a_second_dead_letter_of_an_id_does_not_overwrite_the_first() {
    on_each(async |world| {
        world.enqueue(&[own("1", "k"), ours("1", "k")]).await;
        let mut a = world.acquire("a").await;
        let claimed = world.claim(&mut a).await;
        assert_eq!(world.settle(&mut a, vec![dead(&claimed[0], "letter1")]).await, [Settled::Dead]);
        assert_eq!(world.standing("1").await, "dead letter1");
        assert_eq!(world.life_ms(&world.keys.seen(b"1")), -1, "as long as the letter");
        assert_eq!(world.settle(&mut a, vec![dead(&claimed[1], "letter2")]).await, [Settled::Dead]);
        let letters = world.connection.dead_letters(&world.queue, 0, 0, 10).await.unwrap();
        assert_eq!(
            letters.iter().map(|letter| letter.id.as_str()).collect::<Vec<_>>(),
            ["letter1", "letter2"]
        );
        assert_eq!(letters[0].letter.as_ref().unwrap().place, claimed[0].place.to_string());
    });
}

#[test]
fn v18_a_repeated_retry_is_charged_once() {
    on_each(async |world| {
        world.enqueue(&[own("1", "k")]).await;
        let mut a = world.acquire("a").await;
        let entry = world.claim(&mut a).await.remove(0);
        let call = Call::Settle(vec![retry(&entry, HOUR)]);
        assert_eq!(settled(world.call(&mut a, call.clone()).await), [Settled::Retried]);
        assert_eq!(repeated(world.call_as(&a.fence, a.number, &call).await), [Settled::AtTurn(1)]);
        let state = world.recover(&mut a).await.remove(0).state;
        assert_eq!((state.turn(), state.attempts()), (1, 1));
    });
}

#[test]
fn v34_a_waiting_mark_is_no_effect() {
    on_each(async |world| {
        world.enqueue(&[own("1", "k")]).await;
        let mut a = world.acquire("a").await;
        let entry = world.claim(&mut a).await.remove(0);
        assert_eq!(world.settle(&mut a, vec![put(&entry, 1, "applied")]).await, [Settled::Done]);
        let entity = world.connection.entity(&world.queue, b"k").await.unwrap().unwrap();
        assert_eq!((entity.state.as_ref(), entity.changes), (&b"applied"[..], 1));
    });
}

#[test]
fn v35_a_mark_lives_as_long_as_its_job_and_a_window_after() {
    on_each(async |world| {
        world.enqueue(&[own("1", "k"), own("2", "k")]).await;
        let (one, two) = (world.keys.seen(b"1"), world.keys.seen(b"2"));
        let mut a = world.acquire("a").await;
        let claimed = world.claim(&mut a).await;
        world.settle(&mut a, vec![retry(&claimed[0], HOUR)]).await;
        assert_eq!(
            (world.life_ms(&one), world.life_ms(&two)),
            (-1, -1),
            "waiting, claimed, put back: for ever"
        );
        world.settle(&mut a, vec![put(&claimed[1], 1, "x")]).await;
        let life = world.life_ms(&two);
        assert!(life > WINDOW_MS as i64 - 10_000 && life <= WINDOW_MS as i64, "{life}");
        let now = at_turn(&claimed[0], 1);
        assert_eq!(world.settle(&mut a, vec![put(&now, 1, "old")]).await, [Settled::Stale]);
        assert!(world.life_ms(&one) > 0);
    });
}

#[test]
fn v37_a_new_group_starts_at_the_beginning() {
    on_each(async |world| {
        world.enqueue(&[own("1", "k")]).await;
        world.raw(&[b"XGROUP", b"DESTROY", world.keys.stream.as_bytes(), b"workers"]);
        world.enqueue(&[own("2", "k")]).await;
        let mut a = world.acquire("a").await;
        assert_eq!(ids(&world.claim(&mut a).await), ["1", "2"], "made again by acquire");
        world.raw(&[b"XGROUP", b"DESTROY", world.keys.stream.as_bytes(), b"workers"]);
        world.connection.create(&world.queue).await.unwrap();
        assert_eq!(ids(&world.claim(&mut a).await), ["1", "2"], "made again by create");
    });
}

#[test]
fn v39_one_bad_job_harms_no_other_of_its_batch() {
    on_each(async |world| {
        let jobs = [own("1", "good"), own("2", "bad"), own("3", "other"), own("4", "bad")];
        world.enqueue(&jobs).await;
        world.raw(&[b"RPUSH", &world.keys.entity(b"bad"), b"a list"]);
        let mut a = world.acquire("a").await;
        let claimed = world.claim(&mut a).await;
        let mut emits = emitting(&claimed[3], 1);
        if let gristmill_broker::Verdict::Done { entity, .. } = &mut emits.verdict {
            *entity = Some(gristmill_job::EntityChange::Delete);
        }
        let batch = vec![put(&claimed[0], 1, "a"), put(&claimed[1], 1, "b"), put(&claimed[2], 1, "c"), emits];
        let words = world.settle(&mut a, batch).await;
        assert!(
            matches!(
                words.as_slice(),
                [Settled::Done, Settled::Rejected(_), Settled::Done, Settled::Rejected(_)]
            ),
            "{words:?}"
        );
        let me = a.fence.consumer();
        let held = |n: usize| (claimed[n].place.to_string(), me.clone());
        assert_eq!(world.holders(), [held(1), held(3)], "still claimed, by its owner");
        assert_eq!(world.connection.outbox(&world.keys, 9).await.unwrap(), [], "written whole or not at all");
        assert!(world.standing("2").await.starts_with("waiting "), "its mark is as it was");
        assert_eq!(
            world.settle(&mut a, vec![dead(&claimed[1], "l1"), done(&claimed[3])]).await,
            [Settled::Dead, Settled::Done]
        );
        assert_eq!((world.holders(), world.length()), (Vec::new(), 0));
    });
}

/// A counter that is no number is met before anything of the job is written.
#[test]
fn v39_a_damaged_entity_is_not_half_written() {
    on_each(async |world| {
        world.enqueue(&[own("1", "k")]).await;
        let name = world.keys.entity(b"k");
        world.raw(&[
            b"HSET",
            &name,
            b"version",
            b"00000000000000000001",
            b"state",
            b"old",
            b"changes",
            b"many",
        ]);
        let mut a = world.acquire("a").await;
        let entry = world.claim(&mut a).await.remove(0);
        let words = world.settle(&mut a, vec![put(&entry, 2, "new")]).await;
        assert!(matches!(words.as_slice(), [Settled::Rejected(_)]), "{words:?}");
        assert_eq!(world.raw(&[b"HGET", &name, b"state"]).as_str(), Some("old"));
        assert_eq!(world.settle(&mut a, vec![dead(&entry, "letter")]).await, [Settled::Dead]);
    });
}

#[test]
fn v41_a_rerun_emits_the_same_ids_and_they_are_absorbed() {
    on_each(async |world| {
        world.enqueue(&[own("1", "k"), ours("1", "k")]).await;
        let mut a = world.acquire("a").await;
        let claimed = world.claim(&mut a).await;
        // A rerun, as after a failover that lost the first settle: the same parent, settled again.
        for entry in &claimed {
            let mut settle = emitting(entry, 2);
            settle.marked = false;
            assert_eq!(world.settle(&mut a, vec![settle]).await, [Settled::Done]);
        }
        let outbox = world.connection.outbox(&world.keys, 10).await.unwrap();
        let jobs: Vec<_> = outbox.iter().map(|(_, job)| job.clone().unwrap().1).collect();
        assert_eq!(jobs[..2], jobs[2..], "the same names both times");
        assert!(jobs.iter().all(|job| job.own_id && partition_of(job.key.as_bytes(), 1) == 0));
        assert_eq!(world.enqueue(&jobs[..2]).await.len(), 2);
        let EnqueueAnswer::Accepted(again) = world.try_enqueue(&jobs[2..]).await.unwrap() else {
            panic!("refused")
        };
        assert!(again.iter().all(|job| matches!(job, Accepted::Duplicate { .. })), "{again:?}");
    });
}

/// A key may be any bytes, and its lane is told by them alone.
#[test]
fn keys_and_payloads_may_be_any_bytes() {
    on_each(async |world| {
        let odd: Vec<u8> = (0..=255).collect();
        let mut job = own("1", "k");
        job.key = Key::new(&odd).unwrap();
        job.envelope = odd.clone().into();
        world.enqueue(&[job]).await;
        let mut a = world.acquire("a").await;
        let entry = world.claim(&mut a).await.remove(0);
        assert_eq!((entry.key.as_bytes(), entry.envelope.as_ref()), (&odd[..], &odd[..]));
        assert_eq!(world.settle(&mut a, vec![put(&entry, u64::MAX, "x")]).await, [Settled::Done]);
        let entity = world.connection.entity(&world.queue, &odd).await.unwrap().unwrap();
        assert_eq!(entity.version, u64::MAX);
    });
}
