//! Entries of foreign producers, and what a person deleted by hand.

use crate::fixture::*;
use gristmill_broker::call::{Answer, Call};
use gristmill_broker::lease::acquire::Acquired;
use gristmill_broker::{CallError, Fence, Refusal, Settled};
use gristmill_job::{JobId, Place};

/// Nothing that lies in a stream stops its reader: it is read as far as it goes, and can be made a dead letter.
#[test]
fn entries_of_foreign_producers_are_claimed_recovered_and_settled() {
    on_each(async |world| {
        let stream = world.keys.stream.clone();
        let big = vec![0xfe; 1_000_000];
        let add = |fields: &[&[u8]]| {
            let mut words: Vec<&[u8]> = vec![b"XADD", stream.as_bytes(), b"*"];
            words.extend(fields);
            world.raw(&words);
        };
        add(&[b"foreign", b"entry"]);
        add(&[b"\xff\xfe", b"\x80", b"k", b"\xff"]);
        add(&[b"i", b"", b"k", b"", b"d", b""]);
        add(&[b"d", &big, b"i", &big[..300], b"k", &big[..2000]]);
        add(&[b"i", b"first", b"i", b"second", b"k", b"k", b"d", b"not an envelope"]);
        world.enqueue(&[own("good", "k")]).await;
        let look = |entries: &[gristmill_broker::Entry]| {
            let sizes = |e: &gristmill_broker::Entry| {
                (e.id.as_bytes().len(), e.key.as_bytes().len(), e.envelope.len())
            };
            entries.iter().map(sizes).collect::<Vec<_>>()
        };
        let expected = [(0, 0, 0), (0, 1, 0), (0, 0, 0), (300, 2000, 1_000_000), (6, 1, 15), (4, 1, 16)];
        let mut a = world.acquire("a").await;
        assert_eq!(look(&world.claim(&mut a).await), expected);
        let recovered = world.recover(&mut a).await;
        assert_eq!(look(&recovered), expected);
        let letters = recovered.iter().enumerate().map(|(n, entry)| dead(entry, &format!("letter{n}")));
        let words = world.settle(&mut a, letters.collect()).await;
        assert!(words.iter().all(|word| *word == Settled::Dead), "{words:?}");
        assert_eq!(world.length(), 0);
        let letters = world.connection.dead_letters(&world.queue, 0, 0, 10).await.unwrap();
        assert_eq!(letters[3].letter.as_ref().unwrap().envelope, big);
    });
}

#[test]
fn claims_whose_entries_were_deleted_by_hand_end() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "k"), own("2", "k"), own("3", "k")]).await;
        let mut a = world.acquire("a").await;
        let claimed = world.claim(&mut a).await;
        for place in &places[..2] {
            world.raw(&[b"XDEL", world.keys.stream.as_bytes(), place.to_string().as_bytes()]);
        }
        assert_eq!(world.settle(&mut a, vec![done(&claimed[0])]).await, [Settled::Done]);
        assert_eq!(ids(&world.recover(&mut a).await), ["3"]);
        assert_eq!(world.holders().len(), 1);
        assert_eq!(world.settle(&mut a, vec![done(&claimed[1])]).await, [Settled::Gone]);
    });
}

/// Whatever was deleted ends the tenure, with a refusal or an error; the next one works.
#[test]
fn a_tenure_ends_when_its_stream_group_gate_or_lease_is_deleted() {
    for what in ["stream", "group", "gate", "lease", "everything"] {
        on_each(async |world| {
            world.enqueue(&[own("1", "k")]).await;
            let mut a = world.acquire("a").await;
            let claimed = world.claim(&mut a).await;
            let stream = world.keys.stream.as_bytes();
            match what {
                "stream" => world.raw(&[b"DEL", stream]),
                "group" => world.raw(&[b"XGROUP", b"DESTROY", stream, b"workers"]),
                "gate" => world.raw(&[b"DEL", &world.keys.gate(&a.fence)]),
                "lease" => world.raw(&[b"DEL", world.keys.lease.as_bytes()]),
                _ => world.raw(&[b"FLUSHALL"]),
            };
            let answer = world.call(&mut a, Call::Claim { count: 9 }).await;
            let expected = match what {
                "lease" | "everything" => Refusal::Fenced { owner: String::new() },
                _ => Refusal::Overtaken,
            };
            assert_eq!(answer, Answer::Refused(expected), "{what}");
            if matches!(what, "stream" | "group") {
                let recover = Call::Recover { cursor: Place::ZERO, count: 9 };
                let refused = world.send(&world.connection, &a.fence, a.number + 1, &recover).await;
                assert!(matches!(refused, Err(CallError::NoGroup(_))), "{what}: {refused:?}");
                let settle = Call::Settle(vec![put(&claimed[0], 1, "x")]);
                let refused = world.send(&world.connection, &a.fence, a.number + 2, &settle).await;
                let gone = Answer::Settled { jobs: vec![Settled::Gone], first: true };
                assert!(
                    refused == Ok(gone) || matches!(refused, Err(CallError::NoGroup(_))),
                    "{what}: {refused:?}"
                );
            }
            world.connection.create(&world.queue).await.unwrap();
            // As a node does: above every epoch it held, since the lease that knew it may be gone.
            let Acquired::Granted(epoch) = world.try_acquire("a", HOUR, a.fence.epoch).await else {
                panic!("not granted: {what}");
            };
            let mut again = Tenure { fence: Fence { epoch, ..a.fence.clone() }, number: 0 };
            let survived = matches!(what, "group" | "gate" | "lease");
            let mut found = world.recover(&mut again).await;
            found.extend(world.claim(&mut again).await);
            assert_eq!(ids(&found), if survived { vec!["1"] } else { vec![] }, "{what}");
        });
    }
}

#[test]
fn keys_of_another_type_are_an_error_that_says_so() {
    on_each(async |world| {
        world.enqueue(&[own("1", "k")]).await;
        let mut a = world.acquire("a").await;
        let entry = world.claim(&mut a).await.remove(0);
        world.raw(&[b"SET", world.keys.state.as_bytes(), b"x"]);
        let settle = Call::Settle(vec![done(&entry)]);
        let refused = world.send(&world.connection, &a.fence, 2, &settle).await;
        assert!(
            matches!(&refused, Err(CallError::Unexpected(why)) if why.contains("WRONGTYPE")),
            "{refused:?}"
        );
        assert_eq!(world.holders().len(), 1, "nothing of it was written");
        world.raw(&[b"SET", world.keys.stream.as_bytes(), b"x"]);
        let refused = world.send(&world.connection, &a.fence, 3, &Call::Claim { count: 1 }).await;
        assert!(
            matches!(&refused, Err(CallError::Unexpected(why)) if why.contains("WRONGTYPE")),
            "{refused:?}"
        );
    });
}

/// A mark that is no string of ours is no reason to drop the job, and none to run its effect twice.
#[test]
fn a_foreign_mark_counts_as_seen() {
    on_each(async |world| {
        world.enqueue(&[own("1", "k")]).await;
        world.raw(&[b"SET", &world.keys.seen(b"1"), b"who knows"]);
        let mut a = world.acquire("a").await;
        let entry = world.claim(&mut a).await.remove(0);
        assert_eq!(entry.id, JobId::new("1").unwrap());
        assert_eq!(world.standing("1").await, "who knows");
        assert_eq!(world.settle(&mut a, vec![put(&entry, 1, "x")]).await, [Settled::Duplicate]);
    });
}
