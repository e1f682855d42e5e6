//! What people do with dead letters and with lanes that wait for them: replay, discard, release_key, skip.

use crate::fixture::*;
use bytes::Bytes;
use gristmill_broker::call::{Answer, Call};
use gristmill_broker::discard::{Discard, Discarded, Whose};
use gristmill_broker::lease::renew::{Renew, Renewed};
use gristmill_broker::release_key::ReleasedKey;
use gristmill_broker::replay::{Replay, Replayed};
use gristmill_broker::skip::{Skip, Skipped, WaitsFor};
use gristmill_broker::state::{Request, Suspicion, Why};
use gristmill_broker::take::Taken;
use gristmill_broker::{Entry, Settle, Settled, StateLine, Verdict};
use gristmill_job::{DeadLetter, DeadReason, Key, Place};
use gristmill_testkit::server::Reply;
use std::time::Duration;

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// Dead, and its key waits for a person.
fn dead_holding(entry: &Entry, letter: &str) -> Settle {
    let mut settle = dead(entry, letter);
    if let Verdict::Dead { hold, .. } = &mut settle.verdict {
        *hold = true;
    }
    settle
}

/// A job of each id and key dies, as letter `l-<id>`, and holds its key.
async fn die(world: &mut World, jobs: &[(&str, &str)]) -> (Tenure, Vec<Entry>) {
    world.enqueue(&jobs.iter().map(|(id, key)| own(id, key)).collect::<Vec<_>>()).await;
    let mut a = world.acquire("a").await;
    let entries = world.claim(&mut a).await;
    let letters = entries.iter().map(|entry| dead_holding(entry, &format!("l-{}", entry.id))).collect();
    assert!(world.settle(&mut a, letters).await.iter().all(|word| *word == Settled::Dead));
    (a, entries)
}

fn field(world: &World, hash: &str, name: &str) -> Option<Vec<u8>> {
    match world.raw(&[b"HGET", hash.as_bytes(), name.as_bytes()]) {
        Reply::Bulk(bytes) => Some(bytes),
        _ => None,
    }
}

/// The letter's record as Redis holds it.
fn record(world: &World, letter: &str) -> DeadLetter {
    DeadLetter::decode(&field(world, &world.keys.dead_bodies, letter).unwrap()).unwrap()
}

fn replay_of(world: &World, letter: &str) -> Replay {
    Replay::of(Bytes::from(letter.to_owned()), record(world, letter)).unwrap()
}

async fn replay(world: &World, letters: &[Replay]) -> Vec<Replayed> {
    world.connection.replay(&world.keys, letters).await.unwrap()
}

async fn take(world: &World, tenure: &mut Tenure, after: u64) -> Taken {
    match world.call(tenure, Call::Take { after, count: 100, cursor: Some(0) }).await {
        Answer::Taken(taken) => taken,
        other => panic!("not taken: {other:?}"),
    }
}

/// What the owner is told with its next renewal.
async fn changes(world: &World, tenure: &Tenure) -> u64 {
    let renew = Renew { keys: world.keys.clone(), fence: tenure.fence.clone(), answered: tenure.number };
    match world.connection.renew(&[renew], HOUR).await.unwrap().remove(0) {
        Renewed::Ok { changes, .. } => changes,
        other => panic!("not renewed: {other:?}"),
    }
}

fn line(world: &World, place: Place) -> Option<StateLine> {
    StateLine::parse(&field(world, &world.keys.state, &place.to_string())?)
}

fn mark(world: &World, id: &str) -> Option<String> {
    world.raw(&[b"GET", &world.keys.seen(id.as_bytes())]).as_str().map(str::to_owned)
}

fn count(world: &World, command: &[u8], key: &str) -> i64 {
    world.raw(&[command, key.as_bytes()]).as_int().unwrap()
}

/// Everything that lies in the partition, to see that nothing was written.
fn snapshot(world: &World) -> Vec<Reply> {
    let keys = &world.keys;
    let mut all = vec![
        world.raw(&[b"ZRANGE", keys.dead.as_bytes(), b"0", b"-1", b"WITHSCORES"]),
        world.raw(&[b"ZRANGE", keys.returned.as_bytes(), b"0", b"-1", b"WITHSCORES"]),
        world.raw(&[b"HGET", keys.lease.as_bytes(), b"changes"]),
    ];
    for hash in [&keys.dead_bodies, &keys.returned_bodies, &keys.state, &keys.held, &keys.originals] {
        all.push(world.raw(&[b"HGETALL", hash.as_bytes()]));
    }
    all
}

#[test]
fn a_replayed_letter_is_a_job_at_its_old_place_one_turn_further() {
    on_each(async |world| {
        let (mut a, entries) = die(world, &[("1", "k"), ("2", "other")]).await;
        assert_eq!(changes(world, &a).await, 0, "a death is no act of a person");
        let mut taken = take(world, &mut a, 0).await;
        taken.held.sort_by_key(Key::to_string);
        assert_eq!((taken.entries.len(), taken.held), (0, vec![key("k"), key("other")]));

        let one = replay_of(world, "l-1");
        assert_eq!(replay(world, std::slice::from_ref(&one)).await, [Replayed::Replayed]);
        assert_eq!(changes(world, &a).await, 1);
        let taken = take(world, &mut a, 0).await;
        assert_eq!((taken.changes, taken.last, taken.held), (1, 1, vec![key("other")]));
        let entry = &taken.entries[0];
        assert_eq!((entry.place, &entry.id, &entry.key), (entries[0].place, &entries[0].id, &entries[0].key));
        assert_eq!((&entry.envelope, entry.returned), (&entries[0].envelope, true));
        let expected = StateLine { turn: 1, replays: 1, ..StateLine::default() };
        assert_eq!(line(world, entry.place), Some(expected));
        assert_eq!(mark(world, "1"), Some(format!("waiting {}", entry.place)));
        assert_eq!(world.life_ms(&world.keys.seen(b"1")), -1, "as long as its job lives");
        assert_eq!(count(world, b"ZCARD", &world.keys.dead), 1);
        assert_eq!(count(world, b"HLEN", &world.keys.dead_bodies), 1);
        assert!(world.standing("1").await.starts_with("waiting "), "its id is taken");

        // Twice does nothing, in a call of its own and within one.
        let before = snapshot(world);
        assert_eq!(replay(world, &[one.clone(), one]).await, [Replayed::Gone; 2]);
        assert_eq!(snapshot(world), before);

        // The turn that died cannot settle it any more; the one that came back can, and everything of it goes.
        let late = Settle { turn: 0, ..put(entry, 1, "late") };
        assert_eq!(world.settle(&mut a, vec![late]).await, [Settled::AtTurn(1)]);
        assert_eq!(world.settle(&mut a, vec![put(entry, 1, "state")]).await, [Settled::Done]);
        for key in [&world.keys.returned, &world.keys.returned_bodies, &world.keys.state] {
            assert_eq!(world.raw(&[b"EXISTS", key.as_bytes()]).as_int(), Some(0), "{key}");
        }
        assert_eq!(mark(world, "1"), Some("applied".into()));
    });
}

#[test]
fn a_replay_carries_the_first_envelope_the_suspicion_and_how_often_it_was_replayed() {
    on_each(async |world| {
        let (mut a, entries) = die(world, &[("1", "k")]).await;
        let place = entries[0].place;
        let mut crashed = record(world, "l-1");
        crashed.reason = DeadReason::Crashed;
        crashed.replays = 4;
        let edited = Replay::of(Bytes::from("l-1"), crashed).unwrap();
        assert_eq!((edited.suspicion, edited.replays), (Suspicion::Strong, 4));
        let edited = edited.with_envelope(Bytes::from_static(b"edited"));
        assert_eq!(replay(world, &[edited]).await, [Replayed::Replayed]);
        let expected =
            StateLine { turn: 1, replays: 5, suspicion: Suspicion::Strong, ..StateLine::default() };
        assert_eq!(line(world, place), Some(expected));
        let entry = take(world, &mut a, 0).await.entries.remove(0);
        assert_eq!(&entry.envelope[..], b"edited");
        let original = |world: &World| field(world, &world.keys.originals, &place.to_string());
        assert_eq!(original(world), Some(entries[0].envelope.to_vec()));

        // It dies again and is edited again: the first one is kept.
        assert_eq!(world.settle(&mut a, vec![dead(&entry, "l-1b")]).await, [Settled::Dead]);
        assert_eq!(original(world), Some(entries[0].envelope.to_vec()));
        let again = replay_of(world, "l-1b").with_envelope(Bytes::from_static(b"edited twice"));
        assert_eq!(again.turn, 1);
        assert_eq!(replay(world, &[again]).await, [Replayed::Replayed]);
        assert_eq!(original(world), Some(entries[0].envelope.to_vec()));
        let entry = take(world, &mut a, 1).await.entries.remove(0);
        assert_eq!((&entry.envelope[..], entry.state.turn()), (&b"edited twice"[..], 2));
        assert_eq!(world.settle(&mut a, vec![done(&entry)]).await, [Settled::Done]);
        assert_eq!(original(world), None, "until its verdict");

        let nowhere = DeadLetter { place: "here".into(), ..DeadLetter::default() };
        let refused = Replay::of(Bytes::from("l"), nowhere).unwrap_err();
        assert!(refused.contains("\"here\""), "{refused}");
    });
}

#[test]
fn marks_and_holds_of_others_stay() {
    on_each(async |world| {
        die(world, &[("1", "k"), ("2", "k"), ("3", "x")]).await;
        // Both letters held `k`: the later one does.
        world.raw(&[b"SET", &world.keys.seen(b"2"), b"dead of-another-copy"]);
        world.raw(&[b"DEL", &world.keys.seen(b"3")]);
        world.raw(&[b"LPUSH", &world.keys.seen(b"3"), b"no string"]);
        let letters = ["l-1", "l-3"].map(|letter| replay_of(world, letter));
        assert_eq!(replay(world, &letters).await, [Replayed::Replayed; 2]);
        assert_eq!(mark(world, "2"), Some("dead of-another-copy".into()));
        assert_eq!(world.raw(&[b"TYPE", &world.keys.seen(b"3")]).as_str(), Some("list"));
        let hold = world.raw(&[b"HGET", world.keys.held.as_bytes(), b"k"]);
        assert!(hold.as_str().unwrap().starts_with("l-2 "), "{hold:?}");
        assert_eq!(count(world, b"HLEN", &world.keys.held), 1);
        let letters = [replay_of(world, "l-2")];
        assert_eq!(replay(world, &letters).await, [Replayed::Replayed]);
        assert_eq!(count(world, b"HLEN", &world.keys.held), 0);
        assert_eq!(mark(world, "2"), Some("dead of-another-copy".into()));
    });
}

/// Two letters of one job, as an answer that got lost may leave them: it comes back once.
#[test]
fn a_job_lies_in_its_lane_once() {
    on_each(async |world| {
        let (mut a, _) = die(world, &[("1", "k")]).await;
        let copy = record(world, "l-1").encode().unwrap();
        world.raw(&[b"ZADD", world.keys.dead.as_bytes(), b"1", b"copy"]);
        world.raw(&[b"HSET", world.keys.dead_bodies.as_bytes(), b"copy", &copy]);
        let letters = ["l-1", "copy"].map(|letter| replay_of(world, letter));
        assert_eq!(replay(world, &letters).await, [Replayed::Replayed, Replayed::Waits]);
        let before = snapshot(world);
        assert_eq!(replay(world, &letters).await, [Replayed::Gone, Replayed::Waits]);
        assert_eq!(snapshot(world), before);
        let taken = take(world, &mut a, 0).await;
        assert_eq!((taken.changes, taken.entries.len()), (1, 1));
        assert_eq!(world.settle(&mut a, vec![done(&taken.entries[0])]).await, [Settled::Done]);
        // Now it may: a person asks for it. Its mark says that it had applied.
        assert_eq!(replay(world, &letters).await, [Replayed::Gone, Replayed::Replayed]);
        let entry = take(world, &mut a, 1).await.entries.remove(0);
        assert_eq!(world.settle(&mut a, vec![put(&entry, 9, "twice")]).await, [Settled::Duplicate]);
    });
}

/// As many as a call may carry; each has a number of its own, in the order of the call, however they are sliced.
#[test]
fn two_hundred_letters_come_back_in_order() {
    on_each(async |world| {
        let ids: Vec<String> = (0..200).map(|n| n.to_string()).collect();
        for chunk in ids.chunks(100) {
            world.enqueue(&chunk.iter().map(|id| own(id, &format!("k{id}"))).collect::<Vec<_>>()).await;
        }
        let mut a = world.acquire("a").await;
        let mut entries = world.claim(&mut a).await;
        entries.extend(world.claim(&mut a).await);
        let letters: Vec<Settle> = entries.iter().map(|e| dead_holding(e, &format!("l-{}", e.id))).collect();
        assert_eq!(world.settle(&mut a, letters).await, vec![Settled::Dead; 200]);
        let letters: Vec<Replay> = ids.iter().map(|id| replay_of(world, &format!("l-{id}"))).collect();
        assert_eq!(Replay::of_one_call(&letters), 200);
        assert_eq!(replay(world, &letters).await, vec![Replayed::Replayed; 200]);
        assert_eq!(changes(world, &a).await, 200);
        let (mut after, mut came) = (0, Vec::new());
        loop {
            let taken = take(world, &mut a, after).await;
            assert_eq!(taken.held, []);
            after = taken.last;
            came.extend(taken.entries);
            if !taken.more {
                break;
            }
        }
        assert_eq!(crate::fixture::ids(&came), ids);
        let whose =
            |entry: &Entry| Whose { id: entry.id.clone(), key: entry.key.clone(), place: Some(entry.place) };
        let again: Vec<Settle> = came.iter().map(|e| dead_holding(e, &format!("m-{}", e.id))).collect();
        assert_eq!(world.settle(&mut a, again).await, vec![Settled::Dead; 200]);
        let letters: Vec<Discard> = came
            .iter()
            .map(|e| Discard { letter: format!("m-{}", e.id).into(), job: Some(whose(e)) })
            .collect();
        let answers = world.connection.discard(&world.keys, WINDOW_MS, &letters).await.unwrap();
        assert_eq!(answers, vec![Discarded::Discarded; 200]);
        assert_eq!((count(world, b"HLEN", &world.keys.held), changes(world, &a).await), (0, 400));
        let large = Replay { envelope: vec![0; 600_000].into(), ..replay_dummy() };
        assert_eq!(Replay::of_one_call(&[large.clone(), large]), 1);
    });
}

fn replay_dummy() -> Replay {
    let record = DeadLetter { place: "1-0".into(), ..DeadLetter::default() };
    Replay::of(Bytes::from("l"), record).unwrap()
}

#[test]
fn a_discarded_letter_frees_its_key_and_forgets_the_first_envelope() {
    on_each(async |world| {
        let (mut a, entries) = die(world, &[("1", "k"), ("2", "x")]).await;
        let edited = replay_of(world, "l-1").with_envelope(Bytes::from_static(b"edited"));
        replay(world, &[edited]).await;
        let entry = take(world, &mut a, 0).await.entries.remove(0);
        world.settle(&mut a, vec![dead_holding(&entry, "l-1b")]).await;
        assert_eq!(count(world, b"HLEN", &world.keys.originals), 1);
        let letter = |letter: &'static str, entry: &Entry| Discard {
            letter: letter.into(),
            job: Some(Whose { id: entry.id.clone(), key: entry.key.clone(), place: Some(entry.place) }),
        };
        let discard = async |letters: &[Discard]| {
            world.connection.discard(&world.keys, WINDOW_MS, letters).await.unwrap()
        };
        // A letter that is not there frees nothing, though it names the key.
        assert_eq!(discard(&[letter("l-1", &entry)]).await, [Discarded::Gone]);
        assert_eq!(count(world, b"HLEN", &world.keys.held), 2);
        assert_eq!(discard(&[letter("l-1b", &entry)]).await, [Discarded::Discarded]);
        assert_eq!(count(world, b"HLEN", &world.keys.originals), 0);
        assert_eq!((count(world, b"HLEN", &world.keys.held), changes(world, &a).await), (1, 2));
        assert_eq!(mark(world, "1"), Some("discarded".into()));
        let before = snapshot(world);
        assert_eq!(discard(&[letter("l-1b", &entry)]).await, [Discarded::Gone]);
        assert_eq!(snapshot(world), before);
        // Nobody knows whose it was: its hold waits for the census.
        assert_eq!(discard(&[Discard { letter: "l-2".into(), job: None }]).await, [Discarded::Discarded]);
        assert_eq!((count(world, b"HLEN", &world.keys.held), changes(world, &a).await), (1, 2));
        world.call(&mut a, Call::Census { cursors: (0, 0) }).await;
        assert_eq!((count(world, b"HLEN", &world.keys.held), changes(world, &a).await), (0, 3));
        assert_eq!(entries.len(), 2);
    });
}

#[test]
fn release_key_ends_a_hold_or_wakes_what_waits() {
    on_each(async |world| {
        let (mut a, _) = die(world, &[("1", "k")]).await;
        let (keys, connection) = (world.keys.clone(), world.connection.clone());
        let release =
            async |name: &str, waits| connection.release_key(&keys, &key(name), waits).await.unwrap();
        let released = ReleasedKey::Released { letter: "l-1".into() };
        assert_eq!(release("none", None).await, ReleasedKey::Nothing);
        assert_eq!(release("k", None).await, released);
        assert_eq!(changes(world, &a).await, 1);
        assert_eq!(take(world, &mut a, 0).await.held, []);
        assert_eq!(mark(world, "1"), Some("dead l-1".into()), "the letter stays dead");
        assert_eq!(release("k", None).await, ReleasedKey::Nothing);

        let place = world.enqueue(&[own("2", "k")]).await[0];
        let entry = world.claim(&mut a).await.remove(0);
        assert_eq!(release("k", Some(place)).await, ReleasedKey::Nothing, "it was never put back");
        world.settle(&mut a, vec![retry(&entry, HOUR)]).await;
        let waits = line(world, place).unwrap();
        assert_eq!(release("k", Some(place)).await, ReleasedKey::Woken);
        let woken = line(world, place).unwrap();
        assert!(woken.due_ms < waits.due_ms && woken.due_ms > 0, "{woken:?}");
        assert_eq!(StateLine { due_ms: waits.due_ms, ..woken.clone() }, waits, "nothing else changed");
        assert_eq!(changes(world, &a).await, 2);
        assert_eq!(release("k", Some(place)).await, ReleasedKey::Nothing);
        assert_eq!((line(world, place).unwrap(), changes(world, &a).await), (woken, 2));
        let nowhere = Place { ms: 1, seq: 1 };
        assert_eq!(release("k", Some(nowhere)).await, ReleasedKey::Nothing);
    });
}

#[test]
fn skip_discards_the_letter_that_holds_or_asks_the_owner() {
    on_each(async |world| {
        let (mut a, entries) = die(world, &[("1", "k"), ("2", "x")]).await;
        let (keys, connection) = (world.keys.clone(), world.connection.clone());
        let skip = async |name: &str, waits_for: WaitsFor| {
            let skip = Skip { key: key(name), waits_for };
            connection.skip(&keys, WINDOW_MS, &skip).await.unwrap()
        };
        let letter = |letter: &str, n: usize| WaitsFor::Letter {
            letter: letter.into(),
            place: entries[n].place,
            job: Some(entries[n].id.clone()),
        };
        let changed = Skipped::Changed { letter: "l-1".into() };
        let before = snapshot(world);
        assert_eq!(skip("k", letter("l-0", 0)).await, changed);
        assert_eq!(skip("k", WaitsFor::Job(entries[0].place)).await, changed);
        assert_eq!(skip("none", letter("l-0", 0)).await, Skipped::Nothing);
        assert_eq!(snapshot(world), before);
        world.raw(&[b"HSET", keys.originals.as_bytes(), entries[0].place.to_string().as_bytes(), b"first"]);
        assert_eq!(skip("k", letter("l-1", 0)).await, Skipped::Discarded { letter: "l-1".into() });
        assert_eq!(mark(world, "1"), Some("discarded".into()));
        let life = world.life_ms(&keys.seen(b"1"));
        assert!((1..=WINDOW_MS as i64).contains(&life), "{life}");
        assert_eq!((count(world, b"ZCARD", &keys.dead), count(world, b"HLEN", &keys.dead_bodies)), (1, 1));
        assert_eq!((count(world, b"HLEN", &keys.held), count(world, b"HLEN", &keys.originals)), (1, 0));
        assert_eq!(changes(world, &a).await, 1);
        assert_eq!(skip("k", letter("l-1", 0)).await, Skipped::Nothing);

        let place = world.enqueue(&[own("3", "k")]).await[0];
        let entry = world.claim(&mut a).await.remove(0);
        assert_eq!(skip("k", WaitsFor::Job(place)).await, Skipped::Nothing, "it does not wait");
        world.settle(&mut a, vec![retry(&entry, HOUR)]).await;
        let waits = line(world, place).unwrap();
        assert_eq!(skip("k", WaitsFor::Job(place)).await, Skipped::Asked);
        let asked = line(world, place).unwrap();
        assert_eq!((asked.request.clone(), asked.why), (Some(Request::Skip), Why::Retry));
        assert!(asked.due_ms < waits.due_ms, "{asked:?}");
        assert_eq!(changes(world, &a).await, 2);
        let before = snapshot(world);
        assert_eq!(skip("k", WaitsFor::Job(place)).await, Skipped::Asked);
        assert_eq!(snapshot(world), before, "asked once");
        // What the owner then does.
        let again = Entry { state: gristmill_broker::JobState::of(asked, 0), ..entry };
        assert_eq!(world.settle(&mut a, vec![dead(&again, "skipped")]).await, [Settled::Dead]);
        assert_eq!(skip("k", WaitsFor::Job(place)).await, Skipped::Nothing);
    });
}

/// A key of another type refuses the call whole; keys are bytes; memory may be full.
#[test]
fn an_act_is_whole_or_not_at_all() {
    on_each(async |world| {
        let name = Key::new([0xff, b' ', 0, b'\n']).unwrap();
        let mut job = own("1", "k");
        job.key = name.clone();
        world.enqueue(&[job]).await;
        let mut a = world.acquire("a").await;
        let entry = world.claim(&mut a).await.remove(0);
        world.settle(&mut a, vec![dead_holding(&entry, "l-1")]).await;
        let letter = replay_of(world, "l-1");
        let whose = Whose { id: entry.id.clone(), key: name.clone(), place: Some(entry.place) };
        let discard = [Discard { letter: "l-1".into(), job: Some(whose) }];
        let skip = Skip {
            key: name.clone(),
            waits_for: WaitsFor::Letter { letter: "l-1".into(), place: entry.place, job: Some(entry.id) },
        };
        world.raw(&[b"LPUSH", world.keys.originals.as_bytes(), b"no hash"]);
        let (keys, connection) = (world.keys.clone(), world.connection.clone());
        let letters = [letter.clone().with_envelope(Bytes::from_static(b"edited"))];
        assert!(connection.replay(&keys, &letters).await.is_err());
        assert!(connection.discard(&keys, WINDOW_MS, &discard).await.is_err());
        assert!(connection.skip(&keys, WINDOW_MS, &skip).await.is_err());
        world.raw(&[b"DEL", keys.originals.as_bytes()]);
        assert_eq!((count(world, b"ZCARD", &keys.dead), count(world, b"HLEN", &keys.dead_bodies)), (1, 1));
        assert_eq!((count(world, b"HLEN", &keys.held), changes(world, &a).await), (1, 0));

        world.raw(&[b"CONFIG", b"SET", b"maxmemory", b"1"]);
        assert_eq!(connection.replay(&keys, &[letter]).await, Ok(vec![Replayed::Replayed]));
        assert_eq!(count(world, b"HLEN", &keys.held), 0, "the key of the hold is bytes");
        let entry = take(world, &mut a, 0).await.entries.remove(0);
        assert_eq!(entry.key, name);
        world.settle(&mut a, vec![retry(&entry, HOUR)]).await;
        let woken = connection.release_key(&keys, &name, Some(entry.place)).await;
        assert_eq!(woken, Ok(ReleasedKey::Woken));
        let entry = take(world, &mut a, 0).await.entries.remove(0);
        assert_eq!(entry.state.due_in, Duration::ZERO);
        world.settle(&mut a, vec![dead_holding(&entry, "l-1")]).await;
        let skipped = connection.skip(&keys, WINDOW_MS, &skip).await;
        assert_eq!(skipped, Ok(Skipped::Discarded { letter: "l-1".into() }));
        assert_eq!(mark(world, "1"), Some("discarded".into()));
    });
}

/// No owner has ever been there: what a person does waits for the first one.
#[test]
fn a_partition_without_an_owner_can_be_acted_on() {
    on_each(async |world| {
        let (mut a, _) = die(world, &[("1", "k")]).await;
        assert_eq!(world.call(&mut a, Call::Release).await, Answer::Done);
        assert_eq!(replay(world, &[replay_of(world, "l-1")]).await, [Replayed::Replayed]);
        let mut b = world.acquire("b").await;
        let taken = take(world, &mut b, 0).await;
        assert_eq!((taken.changes, taken.entries.len(), taken.held.len()), (1, 1, 0));
        assert!(world.recover(&mut b).await.is_empty());
    });
}
