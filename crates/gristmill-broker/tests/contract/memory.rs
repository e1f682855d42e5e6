//! V13: a server whose memory is full drains; it only takes no more work.

use crate::fixture::*;
use bytes::Bytes;
use gristmill_broker::absolve::Absolved;
use gristmill_broker::audit::{AuditEntry, AuditStep};
use gristmill_broker::call::{Answer, Call};
use gristmill_broker::census::Census;
use gristmill_broker::discard::{Discard, Discarded, Whose};
use gristmill_broker::lease::renew::{Renew, Renewed};
use gristmill_broker::lease::want::Wanted;
use gristmill_broker::start::{How, Marked};
use gristmill_broker::{CallError, Entry, Settled, StateLine, Verdict};
use gristmill_job::Place;
use std::time::Duration;

#[test]
fn v13_everything_but_enqueue_works_when_memory_is_full() {
    on_each(async |world| {
        let jobs: Vec<_> = (0..10).map(|n| own(&n.to_string(), "k")).collect();
        world.enqueue(&jobs).await;
        let mut a = world.acquire("a").await;
        world.raw(&[b"CONFIG", b"SET", b"maxmemory", b"1"]);
        let refused = world.try_enqueue(&[own("no", "k")]).await;
        assert!(matches!(refused, Err(CallError::OutOfMemory(_))), "{refused:?}");
        assert_eq!(world.length(), 10);
        assert!(world.raw(&[b"GET", &world.keys.seen(b"no")]).is_nil(), "no mark of a job that is not there");

        let claimed = world.claim(&mut a).await;
        assert_eq!(claimed.len(), 10);
        let renew = Renew { keys: world.keys.clone(), fence: a.fence.clone(), answered: 1 };
        let renewed = world.connection.renew(&[renew], HOUR).await.unwrap();
        assert!(matches!(renewed.as_slice(), [Renewed::Ok { .. }]), "{renewed:?}");
        assert_eq!(world.connection.want(&world.keys, &incarnation("b"), HOUR).await, Ok(Wanted::Noted));
        let batch = vec![
            put(&claimed[0], 1, "state"),
            emitting(&claimed[1], 2),
            retry(&claimed[2], HOUR),
            dead(&claimed[3], "letter"),
            plain(&claimed[4]),
        ];
        let words = world.settle(&mut a, batch).await;
        assert_eq!(words, [Settled::Done, Settled::Done, Settled::Retried, Settled::Dead, Settled::Done]);
        let outbox = world.connection.outbox(&world.keys, 9).await.unwrap();
        assert_eq!(world.call(&mut a, Call::Forward(vec![outbox[0].0])).await, Answer::Done);
        let entry = &claimed[3];
        let whose = Whose { id: entry.id.clone(), key: entry.key.clone(), place: Some(entry.place) };
        let letter = Discard { letter: "letter".into(), job: Some(whose) };
        let answers = world.connection.discard(&world.keys, WINDOW_MS, &[letter]).await;
        assert_eq!(answers, Ok(vec![Discarded::Discarded]));
        let note = AuditEntry {
            act: "1".into(),
            step: AuditStep::Done,
            who: "me".into(),
            what: "discard".into(),
            filter: "letter".into(),
            reason: "memory is full".into(),
            count: 1,
            original: None,
        };
        world.connection.note(&note).await.expect("what a person does is noted");
        let rest = claimed[5..].iter().map(|entry| entry.place).collect();
        assert_eq!(world.call(&mut a, Call::hand_back(rest)).await, Answer::Done);
        assert_eq!(world.call(&mut a, Call::Release).await, Answer::Done);
        let mut b = world.acquire("b").await;
        assert_eq!(world.recover(&mut b).await.len(), 6);

        world.connection.create(&world.queue).await.expect("a node starts");
        let name = world.queue.name.clone();
        for ttl in [HOUR, Duration::ZERO] {
            world.connection.announce(&name, &incarnation("b"), ttl, false, "[]").await.expect("and is seen");
        }
        world.reconnect().await;
    });
}

/// Jobs that are suspected, come back or hold their lanes are worked off too, and what is charged can be taken back.
#[test]
fn v13_marks_holds_and_returned_jobs_go_on_when_memory_is_full() {
    on_each(async |world| {
        let jobs: Vec<_> = (0..6).map(|n| own(&n.to_string(), &n.to_string())).collect();
        let places = world.enqueue(&jobs).await;
        let back: Vec<_> = (1..4).map(|seq| Place { ms: 1000, seq }).collect();
        for (n, place) in back.iter().enumerate() {
            let line = StateLine { turn: 1, ..StateLine::default() };
            world.come_back(*place, &own(&format!("back{n}"), "k"), &line);
        }
        world.raw(&[b"HSET", world.keys.held.as_bytes(), b"nobody", b"gone 5 1000-1"]);
        let mut a = world.dying("a").await;
        world.raw(&[b"CONFIG", b"SET", b"maxmemory", b"1"]);
        let claimed = world.claim(&mut a).await;
        let (taken, held) = world.take(&mut a, 2).await;
        assert_eq!((taken.len(), held.is_empty()), (3, false));
        let all: Vec<&Entry> = claimed.iter().chain(&taken).collect();
        for how in [How::Beside, How::Look, How::Alone] {
            assert_eq!(world.start(&mut a, how, &all).await, [Marked::Started; 9]);
        }
        // What it lost with its lease is charged, and taken back by mark and by charge.
        let mut b = world.dying("b").await;
        let absolve = async |place| world.connection.absolve(&world.keys, &a.fence, 0, place).await;
        assert_eq!(absolve(places[0]).await, Ok(Absolved::Absolved));
        let found = world.recover(&mut b).await;
        let (taken, _) = world.take(&mut b, 9).await;
        let charges: Vec<_> =
            found.iter().chain(&taken).map(|e| e.state.line().unwrap().crashes.len()).collect();
        assert_eq!(charges, [0, 1, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(absolve(places[1]).await, Ok(Absolved::Absolved));

        let Verdict::Dead { dead_id, at, reason, body, .. } = dead(&found[0], "letter").verdict else {
            panic!()
        };
        let mut holding = dead(&found[0], "letter");
        holding.verdict = Verdict::Dead { dead_id, at, reason, body, hold: true, acknowledged: false };
        let batch = vec![
            holding,
            plain(&found[1]),
            retry(&found[2], HOUR),
            put(&taken[0], 1, "state"),
            retry(&taken[1], HOUR),
            dead(&taken[2], "letter2"),
        ];
        let words = world.settle(&mut b, batch).await;
        use Settled::{Dead, Done, Retried};
        assert_eq!(words, [Dead, Done, Retried, Done, Retried, Dead]);
        let call = Call::HandBack { places: places[3..].to_vec(), claims: Vec::new(), stopped: 2 };
        assert_eq!(world.call(&mut b, call).await, Answer::Done);
        let census = world.call(&mut b, Call::Census { cursors: (0, 0) }).await;
        let changes = world.changes();
        let expected =
            Census { claimed: 4, returned: 1, cursors: (0, 0), holds_removed: 1, lines_removed: 0, changes };
        assert_eq!(census, Answer::Counted(Some(expected)));
    });
}

#[test]
fn v13_settling_makes_room() {
    on_each(async |world| {
        let limit = (world.server.used_memory().unwrap() + 4_000_000).to_string();
        world.raw(&[b"CONFIG", b"SET", b"maxmemory", limit.as_bytes()]);
        let mut big = ours("big", "k");
        big.envelope = Bytes::from(vec![b'x'; 100_000]);
        let refused = loop {
            match world.try_enqueue(std::slice::from_ref(&big)).await {
                Ok(_) => assert!(world.length() < 200, "memory has no end"),
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, CallError::OutOfMemory(_)), "{refused:?}");
        assert!(refused.to_string().contains("maxmemory"), "{refused}");
        let mut a = world.acquire("a").await;
        let claimed = world.claim(&mut a).await;
        let words = world.settle(&mut a, claimed.iter().map(plain).collect()).await;
        assert!(words.iter().all(|word| *word == Settled::Done) && words.len() > 5, "{words:?}");
        world.enqueue(&[big]).await;
    });
}
