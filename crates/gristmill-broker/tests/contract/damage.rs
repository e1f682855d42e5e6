//! Entries of foreign producers, and what a person deleted by hand.

use crate::fixture::*;
use gristmill_broker::call::{Answer, Call};
use gristmill_broker::lease::acquire::Acquired;
use gristmill_broker::start::{How, Marked};
use gristmill_broker::{CallError, Entry, Fence, Refusal, Settled, StateLine};
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

/// Owner and scripts read the same turn out of whatever stands there, or the job could never be settled.
#[test]
fn a_state_line_of_another_hand_counts_as_none_and_its_job_runs() {
    let huge = "9".repeat(30);
    let lines: Vec<Vec<u8>> = [
        "",
        "x",
        "1",
        "2 1 1500 boom now",
        "1 0 0 - - 0 - - 0",
        "+1 0 0 - - 0 - - 0 - ",
        "-1 0 0 - - 0 - - 0 - ",
        "01 0 0 - - 0 - - 0 - ",
        "1 0 0 - - yes - - 0 - ",
        "1 0 0 - - 7 - - 0 - ",
        "1 0 0  - 0 - - 0 - ",
        "1  0 0 - - 0 - - 0 - ",
        "1 0 0 a\tb - 0 - - 0 - ",
        "1 0 0 - - 0 -\n- - 0 - ",
        "1 0 0 never wild 0 alone/ /,,/ 0 jump history",
        "1 0 0 - - 0 alone/x -/-/-,a#1/x/1 0 - ",
        "1 0 0 - - 0 - - 0 -",
        "1 0 0 - - 0 - - 0 -history",
        &format!("{huge} 0 0 - - 0 - - 0 - "),
        "4294967296 0 0 - - 0 - - 0 - ",
        &format!("1 {huge} 0 - - 0 - - 0 - "),
        &format!("1 0 {huge} - - 0 - - 0 - "),
        &format!("1 0 0 - - 0 - - {huge} - "),
        &format!("1 0 0 - - 0 alone/z~1#{huge} - 0 - "),
    ]
    .iter()
    .map(|line| line.as_bytes().to_vec())
    .chain([b"1 0 0 \xff \xfe 0 - - 0 \x00 ".to_vec(), b"\xff".to_vec()])
    .collect();
    on_each(async |world| {
        let jobs: Vec<_> = (0..lines.len()).map(|n| own(&n.to_string(), &n.to_string())).collect();
        let places = world.enqueue(&jobs).await;
        let mut a = world.dying("a").await;
        world.claim(&mut a).await;
        let spoil =
            |world: &World| places.iter().zip(&lines).for_each(|(place, line)| world.set_line(*place, line));
        spoil(world);
        let mut b = world.acquire("b").await;
        let found = world.recover(&mut b).await;
        assert_eq!(found.len(), lines.len());
        let shown = |n: usize| String::from_utf8_lossy(&lines[n]).into_owned();
        let read = |entries: &[Entry]| entries.iter().map(|entry| entry.state.turn()).collect::<Vec<_>>();
        let loaded = world.connection.load(&world.keys, &places).await.unwrap();
        let loaded: Vec<_> = loaded.into_iter().map(|(_, entry)| entry.unwrap()).collect();
        assert_eq!(read(&loaded), read(&found), "recover writes the turn it read");
        for pass in ["recovered", "as it was"] {
            if pass == "as it was" {
                spoil(world);
            }
            let marked = world.start(&mut b, How::Beside, &found.iter().collect::<Vec<_>>()).await;
            let refused: Vec<_> =
                (0..lines.len()).filter(|n| marked[*n] != Marked::Started).map(shown).collect();
            assert!(refused.is_empty(), "{pass}: not started: {refused:?}");
        }
        spoil(world);
        assert_eq!(world.call(&mut b, Call::hand_back(places.clone())).await, Answer::Done);
        let words = world.settle(&mut b, found.iter().map(done).collect()).await;
        let left: Vec<_> =
            (0..lines.len()).filter(|n| words[*n] != Settled::Done).map(|n| (shown(n), &words[n])).collect();
        assert!(left.is_empty(), "not settled: {left:?}");
    });
}

/// A record that cannot be read is a job that cannot be decoded: it has a place, and ends.
#[test]
fn returned_jobs_without_a_readable_record_are_taken_and_settled() {
    on_each(async |world| {
        let place = |seq| Place { ms: 1000, seq };
        for seq in 1..5 {
            let line = StateLine { turn: 1, ..StateLine::default() };
            world.come_back(place(seq), &own(&seq.to_string(), "k"), &line);
        }
        let bodies = world.keys.returned_bodies.as_bytes();
        world.raw(&[b"HSET", bodies, b"1000-1", b"\xc1 nonsense"]);
        world.raw(&[b"HDEL", bodies, b"1000-2"]);
        world.raw(&[b"HSET", bodies, b"1000-3", b"\x81\xa1i\xc0"]);
        world.raw(&[b"ZADD", world.keys.returned.as_bytes(), b"2.5", b"no place", b"3.5", &[b'9'; 40]]);
        let mut a = world.acquire("a").await;
        let (taken, _) = world.take(&mut a, 2).await;
        let sizes: Vec<_> =
            taken.iter().map(|e| (e.place.seq, e.key.as_bytes().len(), e.envelope.len())).collect();
        assert_eq!(sizes, [(1, 0, 10), (2, 0, 0), (3, 0, 4), (4, 1, 13)]);
        let left = world.raw(&[b"ZCARD", world.keys.returned.as_bytes()]);
        assert_eq!(left.as_int(), Some(4), "what is no place is nobody's job, and would be counted for ever");
        let loaded = world.connection.load(&world.keys, &[place(1), place(2)]).await.unwrap();
        assert_eq!(loaded[0].1.as_ref(), Some(&taken[0]));
        let letters = taken.iter().enumerate().map(|(n, entry)| dead(entry, &format!("letter{n}")));
        let words = world.settle(&mut a, letters.collect()).await;
        assert!(words.iter().all(|word| *word == Settled::Dead), "{words:?}");
        assert_eq!(world.raw(&[b"EXISTS", world.keys.returned.as_bytes()]).as_int(), Some(0));
    });
}

/// What cannot be read says so, and once a person removed it everything goes on; what does not need it goes on before.
#[test]
fn keys_beside_the_stream_of_another_type_are_an_error_that_says_so() {
    for what in ["returned", "bodies", "held", "state"] {
        on_each(async |world| {
            world.enqueue(&[own("1", "k"), ours("2", "k")]).await;
            let mut a = world.acquire("a").await;
            let claimed = world.claim(&mut a).await;
            let line = StateLine { turn: 1, ..StateLine::default() };
            world.come_back(Place { ms: 1000, seq: 1 }, &own("back", "k"), &line);
            let key = match what {
                "returned" => &world.keys.returned,
                "bodies" => &world.keys.returned_bodies,
                "held" => &world.keys.held,
                _ => &world.keys.state,
            };
            world.raw(&[b"SET", key.as_bytes(), b"x"]);
            let take = Call::Take { after: 0, count: 9, cursor: Some(0) };
            let refused = world.send(&world.connection, &a.fence, a.number + 1, &take).await;
            let says = matches!(&refused, Err(CallError::Unexpected(why)) if why.contains("WRONGTYPE"));
            assert!(says, "{what}: {refused:?}");
            a.number += 1;
            if what == "held" {
                let words = world.settle(&mut a, vec![dead(&claimed[0], "letter")]).await;
                assert!(
                    matches!(&words[..], [Settled::Rejected(why)] if why.contains("WRONGTYPE")),
                    "{words:?}"
                );
                let words = world.settle(&mut a, vec![put(&claimed[0], 1, "x"), plain(&claimed[1])]).await;
                assert_eq!(words, [Settled::Done, Settled::Done], "who needs no hold is not held up");
                assert_eq!(world.length(), 0);
            }
            world.raw(&[b"DEL", key.as_bytes()]);
            let mut again = world.acquire("a").await;
            let found = world.recover(&mut again).await;
            let (taken, _) = world.take(&mut again, 9).await;
            assert_eq!(found.len(), if what == "held" { 0 } else { 2 }, "{what}");
            assert_eq!(taken.len(), usize::from(what != "returned"), "{what}");
            let words = world.settle(&mut again, found.iter().chain(&taken).map(done).collect()).await;
            assert!(words.iter().all(|word| *word == Settled::Done), "{what}: {words:?}");
        });
    }
}
