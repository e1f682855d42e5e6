//! What a job waits for, as it is read for people: waiting, survey, locate; and what nodes say of their kinds.

use crate::fixture::*;
use bytes::Bytes;
use gristmill_broker::call::{Answer, Call};
use gristmill_broker::replay::Replay;
use gristmill_broker::state::Why;
use gristmill_broker::survey::{SLICE, Seen, Sought};
use gristmill_broker::waiting::{self, StoredLine};
use gristmill_broker::{QueueDefinition, Verdict};
use gristmill_job::{DeadLetter, JobId, Key, Place, QueueName};
use std::collections::BTreeSet;
use std::time::Duration;

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

async fn lines(world: &World) -> (Vec<StoredLine>, usize) {
    let (mut all, mut cursor, mut slices) = (Vec::new(), 0, 0);
    loop {
        let slice = world.connection.stored_lines(&world.keys, cursor).await.unwrap();
        assert!(slice.now.0 > 1_600_000_000_000, "{slice:?}");
        all.extend(slice.items);
        slices += 1;
        cursor = slice.next;
        if cursor == 0 {
            return (all, slices);
        }
    }
}

#[test]
fn stored_lines_come_with_their_keys_wherever_the_job_lies() {
    on_each(async |world| {
        assert_eq!(lines(world).await, (Vec::new(), 1));
        let mut odd = own("1", "k");
        odd.key = Key::new([0xff, 0, b' ']).unwrap();
        let places = world.enqueue(&[odd.clone(), own("2", "k")]).await;
        let mut a = world.acquire("a").await;
        let entries = world.claim(&mut a).await;
        world.settle(&mut a, vec![retry(&entries[0], HOUR), dead(&entries[1], "letter")]).await;
        let record = DeadLetter {
            job: b"2".to_vec(),
            key: b"k".to_vec(),
            place: places[1].to_string(),
            ..DeadLetter::default()
        };
        let replay = Replay::of(Bytes::from("letter"), record).unwrap();
        world.connection.replay(&world.keys, &[replay]).await.unwrap();
        let state = world.keys.state.as_bytes();
        world.raw(&[
            b"HSET",
            state,
            b"7-7",
            b"3 0 0 retry - 0 - - 0 - ",
            b"8-8",
            b"no line",
            b"no place",
            b"x",
        ]);
        let (mut found, _) = lines(world).await;
        found.sort_by_key(|line| line.place);
        let shown: Vec<_> =
            found.iter().map(|l| (l.place, l.key.clone(), l.returned, l.line.turn, l.line.why)).collect();
        let gone = Place { ms: 7, seq: 7 };
        assert_eq!(
            shown,
            [
                (gone, None, false, 3, Why::Retry),
                (places[0], Some(odd.key), false, 1, Why::Retry),
                (places[1], Some(key("k")), true, 1, Why::Nothing),
            ]
        );
        assert_eq!(world.connection.returned_places(&world.keys, 0, 9).await.unwrap(), [places[1]]);
        assert_eq!(world.connection.returned_places(&world.keys, 1, 9).await.unwrap(), []);
        // A record that is none has no key, and is shown.
        world.raw(&[
            b"HSET",
            world.keys.returned_bodies.as_bytes(),
            places[1].to_string().as_bytes(),
            b"\xc1",
        ]);
        let (found, _) = lines(world).await;
        let odd = found.iter().find(|line| line.returned).unwrap();
        assert_eq!(odd.key, Some(Key::from_stored(Bytes::new())));
    });
}

#[test]
fn many_lines_and_holds_come_in_slices() {
    on_each(async |world| {
        let jobs: Vec<_> = (0..2400).map(|n| own(&n.to_string(), &format!("k{n}"))).collect();
        let mut a = world.acquire("a").await;
        for chunk in jobs.chunks(100) {
            world.enqueue(chunk).await;
            let mut verdicts = Vec::new();
            for (n, entry) in world.claim(&mut a).await.iter().enumerate() {
                let mut verdict = match n % 2 {
                    0 => retry(entry, HOUR),
                    _ => dead(entry, &format!("l-{}", entry.id)),
                };
                if let Verdict::Dead { hold, .. } = &mut verdict.verdict {
                    *hold = true;
                }
                verdicts.push(verdict);
            }
            world.settle(&mut a, verdicts).await;
        }
        let (found, slices) = lines(world).await;
        let keys: BTreeSet<String> =
            found.iter().filter_map(|line| line.key.as_ref()).map(Key::to_string).collect();
        assert_eq!(keys, (0..2400).step_by(2).map(|n| format!("k{n}")).collect());
        assert!(slices > 1, "{slices}");
        let (mut held, mut cursor) = (BTreeSet::new(), 0);
        loop {
            let slice = world.connection.held_keys(&world.keys, cursor).await.unwrap();
            assert!(slice.items.len() < 3 * waiting::SLICE, "{}", slice.items.len());
            for item in slice.items {
                assert_eq!((item.since.0, item.place.is_some()), (1, true), "{item:?}");
                assert_eq!(item.letter, format!("l-{}", &item.key.to_string()[1..]));
                held.insert(item.key.to_string());
            }
            cursor = slice.next;
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(held, (1..2400).step_by(2).map(|n| format!("k{n}")).collect());
        let hold = world.connection.hold_of(&world.keys, &key("k1")).await.unwrap().unwrap();
        assert_eq!((hold.letter.as_str(), hold.key), ("l-1", key("k1")));
        assert_eq!(world.connection.hold_of(&world.keys, &key("k0")).await.unwrap(), None);
    });
}

#[test]
fn a_survey_counts_by_key_and_finds_an_id_within_its_bounds() {
    on_each(async |world| {
        let survey =
            async |sought: &Sought, most| world.connection.survey(&world.keys, sought, most).await.unwrap();
        assert_eq!(survey(&Sought::default(), 9).await, Seen::default());
        let jobs: Vec<_> = (0..2500).map(|n| ours(&n.to_string(), &format!("k{}", n % 5))).collect();
        let mut places = Vec::new();
        for chunk in jobs.chunks(125) {
            let enqueued =
                world.connection.enqueue(&world.keys, 1, &format!("c{}", places.len()), chunk).await;
            match enqueued.unwrap() {
                gristmill_broker::enqueue::EnqueueAnswer::Accepted(accepted) => {
                    places.extend(accepted.into_iter().map(|accepted| match accepted {
                        gristmill_broker::enqueue::Accepted::At(place) => place,
                        other => panic!("{other:?}"),
                    }));
                }
                other => panic!("{other:?}"),
            }
        }
        let of = |keys: &[&str]| Sought { keys: keys.iter().map(|k| key(k)).collect(), ..Sought::default() };
        let seen = survey(&of(&["k1", "none", "k4"]), 1_000_000).await;
        assert_eq!((seen.jobs, seen.cut_short, seen.of_key), (2500, false, vec![500, 0, 500]));
        assert_eq!(seen.first, [Some(places[1]), None, Some(places[4])]);
        for most in [1, 7, 20, SLICE as u64, SLICE as u64 + 1, 2499] {
            let seen = survey(&of(&["k0"]), most).await;
            assert_eq!((seen.jobs, seen.cut_short), (most, true), "{most}");
            assert_eq!(seen.of_key, [most.div_ceil(5)], "{most}");
        }
        assert!(survey(&of(&["k0"]), 2500).await.cut_short, "nobody looked whether there is another");
        assert!(!survey(&of(&["k0"]), 2501).await.cut_short);
        let before = Sought { before: Some(places[1200]), ..of(&["k0"]) };
        let seen = survey(&before, 1_000_000).await;
        assert_eq!((seen.jobs, seen.of_key, seen.cut_short), (1200, vec![240], false));
        for n in [0, 19, 20, 999, 1000, 2499] {
            let sought = Sought { id: Some(JobId::new(&n.to_string()).unwrap()), ..Sought::default() };
            let seen = survey(&sought, 1_000_000).await;
            assert_eq!((seen.found, seen.jobs), (Some(places[n]), n as u64 + 1));
        }
        let nobody = Sought { id: Some(JobId::new("nobody").unwrap()), ..Sought::default() };
        assert_eq!(survey(&nobody, 1_000_000).await.found, None);
    });
}

/// Slices end by weight, too, and the next one goes on.
#[test]
fn a_survey_of_large_jobs_comes_to_its_end() {
    on_each(async |world| {
        let jobs: Vec<_> = (0..30)
            .map(|n| {
                let mut job = ours(&n.to_string(), "k");
                job.envelope = Bytes::from(vec![7; 900_000]);
                job
            })
            .collect();
        for job in jobs {
            world.enqueue(&[job]).await;
        }
        let sought = Sought { keys: vec![key("k")], ..Sought::default() };
        let seen = world.connection.survey(&world.keys, &sought, 1000).await.unwrap();
        assert_eq!((seen.jobs, seen.of_key, seen.cut_short), (30, vec![30], false));
    });
}

#[test]
fn a_job_is_located_with_its_claim_and_its_line() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "k"), own("2", "k")]).await;
        let at = async |place| world.connection.job_at(&world.keys, place).await.unwrap();
        assert_eq!(at(Place { ms: 1, seq: 1 }).await, None);
        let free = at(places[0]).await.unwrap();
        assert_eq!((free.claim, free.owner.as_str(), free.returned), (None, "", false));
        let mut a = world.acquire("a").await;
        let entries = world.claim(&mut a).await;
        world.settle(&mut a, vec![retry(&entries[0], HOUR)]).await;
        let waits = at(places[0]).await.unwrap();
        let claim = waits.claim.clone().unwrap();
        assert_eq!((claim.holder, claim.deliveries), (a.fence.consumer(), 1));
        assert_eq!((waits.id.to_string(), waits.key.to_string()), ("1".into(), "k".into()));
        assert_eq!((waits.line.turn, waits.line.why), (1, Why::Retry));
        assert!(waits.line.due_ms > waits.now.0 && waits.expires > waits.now, "{waits:?}");
        assert_eq!((waits.owner.as_str(), waits.epoch), (a.fence.incarnation.as_str(), a.fence.epoch.0));

        let entry = &entries[1];
        world.settle(&mut a, vec![dead(entry, "letter")]).await;
        assert_eq!(at(places[1]).await, None);
        let record = DeadLetter {
            job: b"2".to_vec(),
            key: b"k".to_vec(),
            place: places[1].to_string(),
            envelope: entry.envelope.to_vec(),
            ..DeadLetter::default()
        };
        let replay = Replay::of(Bytes::from("letter"), record).unwrap();
        let replay = replay.with_envelope(Bytes::from_static(b"edited"));
        world.connection.replay(&world.keys, &[replay]).await.unwrap();
        let back = at(places[1]).await.unwrap();
        assert_eq!((back.returned, &back.envelope[..], back.claim.is_none()), (true, &b"edited"[..], true));
        assert_eq!(back.original_bytes, Some(entry.envelope.len() as u64));
        let original = world.connection.original(&world.keys, places[1]).await.unwrap();
        assert_eq!(original, Some(entry.envelope.clone()));
        assert_eq!(world.connection.original(&world.keys, places[0]).await.unwrap(), None);
        assert_eq!(world.call(&mut a, Call::Release).await, Answer::Done);
        assert_eq!(at(places[1]).await.unwrap().owner, "", "nobody's");
    });
}

#[test]
fn marks_are_found_in_every_partition() {
    on_each(async |world| {
        let queue = QueueDefinition::new(QueueName::new("w").unwrap(), 5);
        let id = JobId::new("the id").unwrap();
        let marks = async || world.connection.marks(&queue, &id).await.unwrap().1;
        assert_eq!(marks().await, []);
        world.raw(&[b"SET", &queue.partition(1).seen(b"the id"), b"waiting 5-1"]);
        world.raw(&[b"SET", &queue.partition(3).seen(b"the id"), b"applied", b"PX", b"60000"]);
        world.raw(&[b"LPUSH", &queue.partition(4).seen(b"the id"), b"no mark"]);
        let found = marks().await;
        let shown: Vec<_> = found.iter().map(|mark| (mark.partition, mark.standing.as_str())).collect();
        assert_eq!(shown, [(1, "waiting 5-1"), (3, "applied")]);
        assert_eq!((found[0].until, found[1].until.is_some()), (None, true));
    });
}

#[test]
fn what_a_node_says_of_its_kinds_lives_as_long_as_its_entry() {
    on_each(async |world| {
        let name = world.queue.name.clone();
        let connection = world.connection.clone();
        let announce = async |who: &str, ttl, kinds: &str| {
            connection.announce(&name, &incarnation(who), ttl, false, kinds).await.unwrap().len()
        };
        let said = async || {
            let said = connection.announced_kinds(&name).await.unwrap();
            let said = said.into_iter().map(|(who, said)| (who.node().to_owned(), said));
            said.collect::<Vec<_>>()
        };
        let kinds_hash = || world.raw(&[b"HLEN", b"gm:{q}:kinds"]).as_int().unwrap();
        assert_eq!(said().await, []);
        announce("a", HOUR, "[1]").await;
        announce("b", HOUR, "").await;
        assert_eq!(said().await, [("a".to_owned(), Bytes::from_static(b"[1]"))]);
        announce("b", HOUR, "[2]").await;
        announce("a", HOUR, "[3]").await;
        let both =
            [("a".to_owned(), Bytes::from_static(b"[3]")), ("b".to_owned(), Bytes::from_static(b"[2]"))];
        assert_eq!(said().await, both);
        announce("a", HOUR, "").await;
        assert_eq!((said().await.len(), kinds_hash()), (1, 1), "it no longer says anything");
        announce("a", HOUR, "[4]").await;
        announce("b", Duration::ZERO, "[2]").await;
        assert_eq!((said().await.len(), kinds_hash()), (1, 1), "it left");
        announce("short", Duration::from_millis(1), "[5]").await;
        let deadline = gristmill_testkit::Deadline::after(SOON);
        while announce("a", HOUR, "[4]").await > 1 || kinds_hash() > 1 {
            assert!(!deadline.passed(), "a dead node's kinds stay for ever");
        }
        assert_eq!(said().await, [("a".to_owned(), Bytes::from_static(b"[4]"))]);
    });
}
