//! Dead letters: reading them page by page, discarding them, and what is noted of it.

use crate::fixture::*;
use bytes::Bytes;
use gristmill_broker::audit::{
    AuditEntry, AuditStep, MAX_ENTRIES, MAX_ORIGINAL_BYTES, MAX_TEXT_BYTES, Original,
};
use gristmill_broker::dead::{DeadFound, DeadPosition, DeadRange, DeadWalk, Order, PORTION_BYTES, SLICE};
use gristmill_broker::discard::{Discard, Discarded, Whose};
use gristmill_broker::enqueue::{Accepted, EnqueueAnswer};
use gristmill_broker::{QueueDefinition, Settled};
use gristmill_job::{DeadLetter, DeadReason, JobId, Key, QueueName, UnixMillis};

fn discard(letter: &str, job: &str) -> Discard {
    let whose = || Whose { id: JobId::new(job).unwrap(), key: Key::new("k").unwrap(), place: None };
    Discard { letter: letter.to_owned().into(), job: (!job.is_empty()).then(whose) }
}

/// Jobs of these ids die, as letters of the same names.
async fn die(world: &mut World, ids: &[&str]) -> Tenure {
    world.enqueue(&ids.iter().map(|id| own(id, "k")).collect::<Vec<_>>()).await;
    let mut a = world.acquire("a").await;
    let letters = world.claim(&mut a).await.iter().map(|e| dead(e, &format!("l-{}", e.id))).collect();
    assert!(world.settle(&mut a, letters).await.iter().all(|word| *word == Settled::Dead));
    a
}

/// V36: a discarded id may come again, and is then a job like any other.
#[test]
fn v36_a_discarded_letter_is_gone_and_its_id_starts_anew() {
    on_each(async |world| {
        let mut a = die(world, &["1", "2", "3"]).await;
        assert_eq!(world.standing("1").await, "dead l-1");
        let letters = [discard("l-1", "1"), discard("never", "2"), discard("l-2", ""), discard("l-1", "1")];
        let (keys, connection) = (world.keys.clone(), world.connection.clone());
        let answers = connection.discard(&keys, WINDOW_MS, &letters).await.unwrap();
        use Discarded::{Discarded as Away, Gone};
        assert_eq!(answers, [Away, Gone, Away, Gone]);
        let left = connection.dead_letters(&world.queue, 0, 0, 9).await.unwrap();
        assert_eq!(left.iter().map(|view| view.id.as_str()).collect::<Vec<_>>(), ["l-3"]);
        let bodies = world.raw(&[b"HLEN", keys.dead_bodies.as_bytes()]);
        assert_eq!(bodies.as_int(), Some(1), "records go with their letters");
        let mark = world.raw(&[b"GET", &keys.seen(b"1")]);
        assert_eq!(mark.as_str(), Some("discarded"));
        let life = world.life_ms(&keys.seen(b"1"));
        assert!((1..=WINDOW_MS as i64).contains(&life), "{life}");
        assert_eq!(world.standing("2").await, "dead l-2", "nobody said whose letter it was");

        let again = connection.discard(&keys, WINDOW_MS, &letters).await.unwrap();
        assert_eq!(again, [Gone; 4]);
        assert_eq!(world.enqueue(&[own("1", "k")]).await.len(), 1);
        assert!(world.standing("1").await.starts_with("waiting "));
        assert_eq!(world.life_ms(&keys.seen(b"1")), -1, "for as long as its job lives");
        let again = connection.discard(&keys, WINDOW_MS, &letters).await.unwrap();
        assert_eq!(again, [Gone; 4], "a late repeat does not touch the job that came anew");
        let entry = world.claim(&mut a).await.remove(0);
        assert_eq!(world.settle(&mut a, vec![put(&entry, 1, "x")]).await, [Settled::Done]);
        assert_eq!(world.standing("1").await, "applied");
    });
}

/// Only the mark that names the letter is changed; whatever lies in the others' place is left alone.
#[test]
fn a_discard_leaves_the_marks_of_others() {
    on_each(async |world| {
        die(world, &["1", "2", "3"]).await;
        world.raw(&[b"SET", &world.keys.seen(b"2"), b"dead of-another-copy"]);
        world.raw(&[b"DEL", &world.keys.seen(b"3")]);
        world.raw(&[b"LPUSH", &world.keys.seen(b"3"), b"no string"]);
        // The record of another: the mark of 1 names l-1.
        let letters = [discard("l-2", "2"), discard("l-3", "3")];
        let answers = world.connection.discard(&world.keys, WINDOW_MS, &letters).await.unwrap();
        assert_eq!(answers, [Discarded::Discarded; 2]);
        assert_eq!(world.standing("1").await, "dead l-1");
        assert_eq!(world.standing("2").await, "dead of-another-copy");
        assert_eq!(world.raw(&[b"TYPE", &world.keys.seen(b"3")]).as_str(), Some("list"));
        let answers = world.connection.discard(&world.keys, 0, &[discard("l-1", "1")]).await.unwrap();
        assert_eq!(answers, [Discarded::Discarded], "a window of nothing is one of a moment");
    });
}

#[test]
fn half_a_letter_is_found_and_discarded() {
    on_each(async |world| {
        die(world, &["bodiless", "unlisted"]).await;
        world.raw(&[b"HDEL", world.keys.dead_bodies.as_bytes(), b"l-bodiless"]);
        world.raw(&[b"ZREM", world.keys.dead.as_bytes(), b"l-unlisted"]);
        let find = async |id: &str| world.connection.dead_find(&world.queue, id.as_bytes()).await.unwrap();
        let bodiless = find("l-bodiless").await.remove(0);
        assert_eq!((bodiless.letter, bodiless.record.len()), (Err("its record is gone".to_owned()), 0));
        let unlisted = find("l-unlisted").await.remove(0);
        assert_eq!(unlisted.letter.unwrap().job, b"unlisted");
        assert_eq!(unlisted.position.at, UnixMillis(1), "its record knows");
        assert_eq!(find("l-nothing").await, []);
        let letters = [discard("l-bodiless", ""), discard("l-unlisted", "unlisted")];
        let answers = world.connection.discard(&world.keys, WINDOW_MS, &letters).await.unwrap();
        assert_eq!(answers, [Discarded::Discarded; 2]);
        assert_eq!(find("l-unlisted").await, []);
        assert!(matches!(
            world.try_enqueue(&[own("unlisted", "k")]).await,
            Ok(EnqueueAnswer::Accepted(accepted)) if matches!(accepted[..], [Accepted::At(_)])
        ));
    });
}

/// Letters of these times and names, put there by hand.
fn plant(world: &World, queue: &QueueDefinition, partition: u16, letters: &[(u64, String)], envelope: &[u8]) {
    let keys = queue.partition(partition);
    for slice in letters.chunks(500) {
        let mut listed = vec![b"ZADD".to_vec(), keys.dead.clone().into_bytes()];
        let mut bodies = vec![b"HSET".to_vec(), keys.dead_bodies.clone().into_bytes()];
        for (at, id) in slice {
            listed.extend([at.to_string().into_bytes(), id.clone().into_bytes()]);
            let record = DeadLetter {
                job: id.clone().into_bytes(),
                key: b"k".to_vec(),
                envelope: envelope.to_vec(),
                place: "1-0".to_owned(),
                turn: 0,
                reason: DeadReason::Permanent,
                error: vec!["boom".to_owned()],
                class: None,
                attempts: 1,
                node: "a".to_owned(),
                at: UnixMillis(*at),
                ..DeadLetter::default()
            };
            bodies.extend([id.clone().into_bytes(), record.encode().unwrap()]);
        }
        for words in [listed, bodies] {
            world.raw(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
    }
}

fn all_of(queue: &QueueDefinition) -> Vec<(QueueDefinition, u16)> {
    (0..queue.partitions).map(|partition| (queue.clone(), partition)).collect()
}

async fn walked(world: &World, queue: &QueueDefinition, range: DeadRange, by: usize) -> Vec<DeadFound> {
    let mut walk = DeadWalk::new(world.connection.clone(), &all_of(queue), range);
    let mut all = Vec::new();
    loop {
        let found = walk.next(by).await.unwrap();
        assert!(found.len() <= by.min(SLICE));
        if found.is_empty() {
            assert!(walk.is_over());
            return all;
        }
        all.extend(found);
    }
}

fn names(found: &[DeadFound]) -> Vec<String> {
    found.iter().map(|found| String::from_utf8_lossy(&found.position.id).into_owned()).collect()
}

/// Three partitions, many letters of one moment, more than a slice of them.
#[test]
fn a_walk_meets_every_letter_once_in_order_from_any_position_on() {
    on_each(async |world| {
        let queue = QueueDefinition::new(QueueName::new("w").unwrap(), 3);
        let mut expected: Vec<(u64, u16, String)> = Vec::new();
        for n in 0..1500u64 {
            // 700 of one moment, more than three slices; the others apart.
            let at = if n < 700 { 5000 } else { 4000 + n };
            expected.push((at, (n % 3) as u16, format!("{n:04}")));
        }
        for partition in 0..3 {
            let of = expected.iter().filter(|letter| letter.1 == partition);
            plant(
                world,
                &queue,
                partition,
                &of.map(|(at, _, id)| (*at, id.clone())).collect::<Vec<_>>(),
                b"",
            );
        }
        expected.sort();
        let ids: Vec<String> = expected.iter().map(|letter| letter.2.clone()).collect();
        let oldest = walked(world, &queue, DeadRange::default(), 170).await;
        assert_eq!(names(&oldest), ids);
        assert!(oldest.iter().all(|found| found.letter.as_ref().is_ok_and(|l| l.job == found.position.id)));
        let newest_first = DeadRange { order: Order::NewestFirst, ..DeadRange::default() };
        let newest: Vec<String> = ids.iter().rev().cloned().collect();
        assert_eq!(names(&walked(world, &queue, newest_first.clone(), 1000).await), newest);

        for from in [0, 1, 299, 300, 350, 900, 1498, 1499] {
            let after: DeadPosition = oldest[from].position.to_string().parse().unwrap();
            assert_eq!(after, oldest[from].position, "a position survives being shown");
            let range = DeadRange { after: Some(after.clone()), ..DeadRange::default() };
            assert_eq!(names(&walked(world, &queue, range.clone(), 200).await), ids[from + 1..]);
            // The letter of the position may be gone meanwhile.
            let keys = queue.partition(after.partition);
            world.raw(&[b"ZREM", keys.dead.as_bytes(), &after.id]);
            assert_eq!(names(&walked(world, &queue, range.clone(), 200).await), ids[from + 1..]);
            let back = DeadRange { order: Order::NewestFirst, ..range };
            let before: Vec<String> = ids[..from].iter().rev().cloned().collect();
            assert_eq!(names(&walked(world, &queue, back, 200).await), before);
            world.raw(&[b"ZADD", keys.dead.as_bytes(), after.at.to_string().as_bytes(), &after.id]);
        }
        for order in [Order::OldestFirst, Order::NewestFirst] {
            let (since, until) = (Some(UnixMillis(4800)), Some(UnixMillis(5100)));
            let range = DeadRange { order, since, until, after: None };
            let mut found = walked(world, &queue, range, 200).await;
            found.sort_by(|a, b| a.position.cmp(&b.position));
            let within = expected.iter().filter(|letter| (4800..=5100).contains(&letter.0));
            assert_eq!(names(&found), within.map(|letter| letter.2.clone()).collect::<Vec<_>>());
        }
        assert!("5:q".parse::<DeadPosition>().is_err() && "x:q:0:id".parse::<DeadPosition>().is_err());
    });
}

/// Large records come in portions; a score that no release writes stops nobody.
#[test]
fn a_portion_is_bounded_in_bytes_and_odd_entries_are_shown() {
    on_each(async |world| {
        let queue = world.queue.clone();
        let letters: Vec<_> = (0..12).map(|n| (n + 1, format!("big{n:02}"))).collect();
        plant(world, &queue, 0, &letters, &vec![7; 1_000_000]);
        let mut walk = DeadWalk::new(world.connection.clone(), &all_of(&queue), DeadRange::default());
        let mut portions = Vec::new();
        while !walk.is_over() {
            let found = walk.next(200).await.unwrap();
            let bytes: usize = found.iter().map(|found| found.record.len()).sum();
            assert!(bytes as u64 <= PORTION_BYTES, "{bytes}");
            portions.push(found.len());
        }
        assert_eq!(portions.iter().sum::<usize>(), 12, "{portions:?}");
        world.server.flush().unwrap();
        for (score, id) in
            [(&b"-inf"[..], &b"a"[..]), (b"0.5", b"b\xff"), (b"1e300", b"c"), (b"+inf", b"d"), (b"-7", b"e")]
        {
            world.raw(&[b"ZADD", world.keys.dead.as_bytes(), score, id]);
        }
        let found = walked(world, &queue, DeadRange::default(), 2).await;
        assert_eq!(found.len(), 5, "{found:?}");
        assert!(found.iter().all(|found| found.letter.is_err()));
    });
}

fn entry(act: &str, step: AuditStep, count: u64) -> AuditEntry {
    AuditEntry {
        act: act.to_owned(),
        step,
        who: "me@here".to_owned(),
        what: "dead discard".to_owned(),
        filter: "queue=q".to_owned(),
        reason: "a \"reason\" of\ntwo lines".to_owned(),
        count,
        original: (count == 7).then(|| Original::of(&Bytes::from(vec![0xff; 5000]))),
    }
}

#[test]
fn the_audit_log_is_read_backwards_and_bounded() {
    on_each(async |world| {
        assert_eq!(world.connection.audit_log(None, 9).await.unwrap(), []);
        let steps = [
            entry("1", AuditStep::Begun, 0),
            entry("1", AuditStep::Done, 7),
            entry("2", AuditStep::Failed, 3),
        ];
        let mut places = Vec::new();
        for step in &steps {
            places.push(world.connection.note(step).await.unwrap());
        }
        let log = world.connection.audit_log(None, 2).await.unwrap();
        assert_eq!(log, [(places[2], steps[2].clone()), (places[1], steps[1].clone())]);
        let original = log[1].1.original.clone().unwrap();
        assert_eq!((original.start.len(), original.whole_bytes), (MAX_ORIGINAL_BYTES, 5000));
        let log = world.connection.audit_log(Some(places[1]), 9).await.unwrap();
        assert_eq!(log, [(places[0], steps[0].clone())]);

        let mut long = entry("long", AuditStep::Done, 1);
        long.filter = "é".repeat(MAX_TEXT_BYTES);
        world.connection.note(&long).await.unwrap();
        let cut = world.connection.audit_log(None, 1).await.unwrap().remove(0).1.filter;
        assert_eq!(cut.len(), MAX_TEXT_BYTES);
        world.raw(&[b"XADD", b"gm:audit", b"*", b"step", b"tomorrow", b"who", b"\xff", b"count", b"many"]);
        let odd = world.connection.audit_log(None, 1).await.unwrap().remove(0).1;
        assert_eq!((odd.step, odd.count, odd.act.as_str()), (AuditStep::Other, 0, ""));
    });
}

#[test]
fn the_audit_log_forgets_what_is_too_much_or_too_old() {
    on_each(async |world| {
        // Of 1970, and therefore too old.
        world.raw(&[b"XADD", b"gm:audit", b"1-1", b"act", b"old"]);
        world.connection.note(&entry("new", AuditStep::Begun, 0)).await.unwrap();
        let log = world.connection.audit_log(None, 9).await.unwrap();
        assert_eq!(log.iter().map(|(_, entry)| entry.act.as_str()).collect::<Vec<_>>(), ["new"]);
        let fill = "for n = 1, tonumber(ARGV[1]) do redis.call('XADD', KEYS[1], '*', 'act', n) end";
        world.raw(&[b"EVAL", fill.as_bytes(), b"1", b"gm:audit", MAX_ENTRIES.to_string().as_bytes()]);
        world.connection.note(&entry("last", AuditStep::Done, 0)).await.unwrap();
        assert_eq!(world.raw(&[b"XLEN", b"gm:audit"]).as_int(), Some(MAX_ENTRIES as i64));
        let first = world.raw(&[b"XRANGE", b"gm:audit", b"-", b"+", b"COUNT", b"1"]);
        let fields = first.as_array().unwrap()[0].as_array().unwrap()[1].as_array().unwrap();
        assert_eq!(fields[1].as_str(), Some("2"), "the oldest went");
    });
}

/// With a long list of the dead, others are answered while somebody walks through it.
#[test]
fn a_long_walk_does_not_hold_up_the_server() {
    on_each(async |world| {
        let queue = world.queue.clone();
        let letters: Vec<_> = (0..20_000u64).map(|n| (n / 1000, format!("{n:06}"))).collect();
        plant(world, &queue, 0, &letters, b"envelope");
        world.raw(&[b"CONFIG", b"RESETSTAT"]);
        let found = walked(world, &queue, DeadRange::default(), SLICE).await;
        assert_eq!(found.len(), 20_000);
        for slice in found.chunks(SLICE) {
            let letters: Vec<Discard> =
                slice.iter().map(|found| Discard { letter: found.position.id.clone(), job: None }).collect();
            let answers = world.connection.discard(&world.keys, WINDOW_MS, &letters).await.unwrap();
            assert!(answers.iter().all(|answer| *answer == Discarded::Discarded));
        }
        // The mean, since a busy machine makes single calls slow: all at once would take ten times as long.
        let stats = world.raw(&[b"INFO", b"commandstats"]);
        let stats = stats.as_str().unwrap();
        let scripts = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap();
        let mean = scripts.split("usec_per_call=").nth(1).unwrap().split(',').next().unwrap();
        assert!(mean.parse::<f64>().unwrap() < 3000.0, "{scripts}");
        assert_eq!(walked(world, &queue, DeadRange::default(), SLICE).await, []);
    });
}
