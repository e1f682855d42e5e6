//! Every word of settle, and what its short way and its long way have in common.

use crate::fixture::*;
use gristmill_broker::call::{Answer, Call};
use gristmill_broker::{Epoch, Settled, Verdict};

#[test]
fn every_word_of_settle() {
    on_each(async |world| {
        let ids: Vec<_> = (0..9).map(|n| own(&n.to_string(), "k")).collect();
        world.enqueue(&ids).await;
        world.enqueue(&[ours("0", "k"), ours("plain", "k")]).await;
        let mut a = world.acquire("a").await;
        let e = world.claim(&mut a).await;
        let mut bad = put(&e[6], 9, "never");
        bad.key = gristmill_job::Key::new("spoiled").unwrap();
        world.raw(&[b"SET", &world.keys.entity(b"spoiled"), b"x"]);
        let batch = vec![
            put(&e[0], 5, "five"),
            put(&e[1], 5, "not newer"),
            done(&e[9]), // the second copy of id 0
            retry(&e[2], HOUR),
            dead(&e[3], "letter"),
            retry(&e[2], HOUR), // answers turn 0 again
            done(&e[0]),        // settled above
            bad,
            delete(&e[4], 6),
            discard(&e[5]),
            plain(&e[10]),
            plain(&e[10]),
        ];
        let words = world.settle(&mut a, batch.clone()).await;
        assert!(matches!(&words[7], Settled::Rejected(why) if why.contains("WRONGTYPE")), "{words:?}");
        use Settled::{AtTurn, Dead, Discarded, Done, Duplicate, Gone, Rejected, Retried, Stale};
        let rejected = words[7].clone();
        let expected =
            [Done, Stale, Duplicate, Retried, Dead, AtTurn(1), Gone, rejected, Done, Discarded, Gone, Gone];
        assert_eq!(words, expected, "a place named twice among plain jobs counts as gone");
        let entity = world.connection.entity(&world.queue, b"k").await.unwrap().unwrap();
        assert_eq!((entity.version, entity.deleted, entity.changes, entity.state.len()), (6, true, 2, 0));

        let fence = a.fence.clone();
        let call = Call::Settle(batch);
        let again = repeated(world.call_as(&fence, a.number, &call).await);
        assert!(matches!(&again[7], AtTurn(0)), "the rejected one is still claimed: {again:?}");
        assert_eq!(again[..7], [Gone, Gone, Gone, AtTurn(1), Gone, AtTurn(1), Gone]);
        assert!(!matches!(again[8], Rejected(_)));
        assert_eq!(world.call_as(&fence, a.number + 2, &call).await, gap(a.number));
        let stale = gristmill_broker::Fence { epoch: Epoch(1), ..fence };
        assert_fenced(&world.call_as(&stale, 1, &call).await, "a");
        for (id, standing) in [("0", "applied"), ("1", "stale"), ("3", "dead letter"), ("4", "applied")] {
            assert_eq!(world.standing(id).await, standing, "id {id}");
        }
        assert!(world.standing("2").await.starts_with("waiting "));
        assert_eq!(world.raw(&[b"GET", &world.keys.seen(b"5")]).as_str(), Some("discarded"));
        assert_eq!(world.enqueue(&[own("5", "k")]).await.len(), 1, "what was discarded may come again");
    });
}

/// What had its effect elsewhere is acknowledged in one step like anything else, and its mark absorbs later copies.
#[test]
fn duplicate_and_stale_by_the_handlers_word_acknowledge_and_leave_marks() {
    on_each(async |world| {
        world.enqueue(&[own("1", "k"), own("2", "k"), ours("3", "k")]).await;
        let mut a = world.acquire("a").await;
        let e = world.claim(&mut a).await;
        let verdicts = [(&e[0], Verdict::Duplicate), (&e[1], Verdict::Stale), (&e[1], Verdict::Stale)];
        let batch = verdicts.map(|(entry, verdict)| verdict_on(entry, true, verdict)).to_vec();
        let words = world.settle(&mut a, batch.clone()).await;
        assert_eq!(words, [Settled::Duplicate, Settled::Stale, Settled::Gone]);
        assert_eq!(world.length(), 1);
        let fence = a.fence.clone();
        let again = repeated(world.call_as(&fence, a.number, &Call::Settle(batch)).await);
        assert_eq!(again, [Settled::Gone, Settled::Gone, Settled::Gone]);
        for (id, standing) in [("1", "applied"), ("2", "stale")] {
            assert_eq!(world.standing(id).await, standing, "id {id}");
        }
    });
}

/// The short way checks as the long one does: a job that nobody was given stays.
#[test]
fn a_plain_settle_of_a_job_that_is_not_claimed_deletes_nothing() {
    on_each(async |world| {
        world.enqueue(&[ours("1", "k"), ours("2", "k")]).await;
        let mut a = world.acquire("a").await;
        let claimed = world.claim(&mut a).await;
        let waiting = world.enqueue(&[ours("3", "k")]).await;
        let mut unknown = plain(&claimed[0]);
        unknown.place = waiting[0];
        let words = world.settle(&mut a, vec![plain(&claimed[0]), unknown]).await;
        assert_eq!(words, [Settled::Done, Settled::Gone]);
        assert_eq!(world.length(), 2);
        assert_eq!(ids(&world.claim(&mut a).await), ["3"]);
        let mut later_turn = retry(&claimed[1], HOUR);
        assert_eq!(world.settle(&mut a, vec![later_turn.clone()]).await, [Settled::Retried]);
        later_turn = plain(&claimed[1]);
        assert_eq!(world.settle(&mut a, vec![later_turn]).await, [Settled::Gone], "it stands at turn 1");
        assert_eq!(world.length(), 2);
    });
}

/// Versions are compared as text: beyond 2^53 neighbours are one number in Lua.
#[test]
fn versions_that_lua_cannot_tell_apart_are_told_apart() {
    on_each(async |world| {
        let version = 1 << 53;
        let jobs: Vec<_> = (0..4).map(|n| own(&n.to_string(), "k")).collect();
        world.enqueue(&jobs).await;
        let mut a = world.acquire("a").await;
        let e = world.claim(&mut a).await;
        let mut stale = emitting(&e[2], 1);
        if let gristmill_broker::Verdict::Done { version: of, entity, .. } = &mut stale.verdict {
            (*of, *entity) = (version + 1, Some(gristmill_job::EntityChange::Delete));
        }
        let batch =
            vec![put(&e[0], version, "even"), put(&e[1], version + 1, "odd"), stale, put(&e[3], 9, "text")];
        let words = world.settle(&mut a, batch).await;
        assert_eq!(words, [Settled::Done, Settled::Done, Settled::Stale, Settled::Stale]);
        let entity = world.connection.entity(&world.queue, b"k").await.unwrap().unwrap();
        assert_eq!((entity.version, entity.state.as_ref()), (version + 1, &b"odd"[..]));
        assert_eq!(world.connection.outbox(&world.keys, 9).await.unwrap(), [], "a stale job emits nothing");
    });
}

#[test]
fn a_repeat_of_an_older_call_does_not_turn_the_number_back() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "k"), own("2", "k")]).await;
        let mut a = world.acquire("a").await;
        let claimed = world.claim(&mut a).await;
        let settle = Call::Settle(vec![done(&claimed[0])]);
        assert_eq!(settled(world.call(&mut a, settle.clone()).await), [Settled::Done]);
        for call in [Call::hand_back(vec![places[1]]), Call::Forward(Vec::new())] {
            assert_eq!(world.call(&mut a, call).await, Answer::Done);
        }
        let repeats = [settle, Call::hand_back(places), Call::Forward(Vec::new())];
        // From the newest to the oldest: the number could only end up too low.
        for (number, call) in (2..).zip(repeats).collect::<Vec<_>>().into_iter().rev() {
            world.call_as(&a.fence, number, &call).await;
        }
        assert_eq!(world.claim(&mut a).await, [], "the next number is the next still");
    });
}
