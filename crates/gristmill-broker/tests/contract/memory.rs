//! V13: a server whose memory is full drains; it only takes no more work.

use crate::fixture::*;
use bytes::Bytes;
use gristmill_broker::audit::{AuditEntry, AuditStep};
use gristmill_broker::call::{Answer, Call};
use gristmill_broker::discard::{Discard, Discarded, Whose};
use gristmill_broker::lease::renew::{Renew, Renewed};
use gristmill_broker::lease::want::Wanted;
use gristmill_broker::{CallError, Settled};
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
