//! `keys`, `keys release`, `keys skip`, `kinds`: on what a node wrote, and on what was put there by hand.

use crate::dead::{job, letter, queue};
use crate::fixture::{Fixture, SOON};
use gristmill_broker::state::{Request, Suspicion, Why};
use gristmill_broker::{PartitionKeys, StateLine};
use gristmill_job::{AttemptRecord, ContentType, DeadReason, History, Place, UnixMillis, partition_of};
use gristmill_testkit::eventually;
use gristmill_testkit::server::Reply;
use serde_json::{Value, json};
use std::time::SystemTime;

pub(crate) fn now() -> u64 {
    UnixMillis::from_system(SystemTime::now()).0
}

pub(crate) fn keys_of(key: &[u8]) -> PartitionKeys {
    queue().partition(partition_of(key, 4))
}

/// A job in the stream, as a producer would put it, not claimed; returns its place.
pub(crate) fn put_job(fixture: &Fixture, id: &str, key: &[u8]) -> Place {
    let envelope = job("charge", b"{}", ContentType::Json);
    let keys = keys_of(key);
    let stream = keys.stream.as_bytes();
    let words: [&[u8]; 9] = [b"XADD", stream, b"*", b"i", id.as_bytes(), b"k", key, b"d", &envelope];
    let place = fixture.server.command(&words).unwrap().as_str().unwrap().parse().unwrap();
    let mark = format!("waiting {place}");
    fixture.server.command(&[b"SET", &keys.seen(id.as_bytes())[..], mark.as_bytes()]).unwrap();
    place
}

pub(crate) fn put_line(fixture: &Fixture, key: &[u8], place: Place, line: &StateLine) {
    let state = keys_of(key).state;
    let place = place.to_string();
    fixture.server.command(&[b"HSET", state.as_bytes(), place.as_bytes(), &line.write()]).unwrap();
}

/// In backoff for an hour after two attempts.
pub(crate) fn backoff() -> StateLine {
    let mut history = History::default();
    for attempt in 1..=2 {
        let (node, class, error) = ("n~1".into(), "transient".into(), format!("busy {attempt}"));
        history.push(AttemptRecord { attempt, at: UnixMillis(now()), node, class, error, trace: None });
    }
    StateLine {
        turn: 2,
        attempts: 2,
        due_ms: now() + 3_600_000,
        why: Why::Retry,
        history: history.encode().into(),
        ..StateLine::default()
    }
}

/// A dead letter that holds its key.
pub(crate) fn hold(fixture: &Fixture, id: &str, key: &[u8]) {
    let keys = keys_of(key);
    let mut record =
        letter(id, "", DeadReason::Exhausted, &["boom"], job("charge", b"{}", ContentType::Json));
    record.key = key.to_vec();
    record.place = "5-0".into();
    let put = |words: &[&[u8]]| fixture.server.command(words).unwrap();
    let at = (now() - 60_000).to_string();
    put(&[b"ZADD", keys.dead.as_bytes(), at.as_bytes(), id.as_bytes()]);
    put(&[b"HSET", keys.dead_bodies.as_bytes(), id.as_bytes(), &record.encode().unwrap()]);
    put(&[b"SET", &keys.seen(id.as_bytes()), format!("dead {id}").as_bytes()]);
    put(&[b"HSET", keys.held.as_bytes(), key, format!("{id} {at} 5-0").as_bytes()]);
}

fn stored(fixture: &Fixture, key: &[u8], place: Place) -> Option<StateLine> {
    let state = keys_of(key).state;
    match fixture.server.command(&["HGET", state.as_str(), &place.to_string()]).unwrap() {
        Reply::Bulk(line) => StateLine::parse(&line),
        _ => None,
    }
}

fn changes(fixture: &Fixture, key: &[u8]) -> Option<String> {
    let lease = keys_of(key).lease;
    fixture.server.command(&["HGET", lease.as_str(), "changes"]).unwrap().as_str().map(str::to_owned)
}

pub(crate) fn prepared() -> Fixture {
    let fixture = Fixture::new();
    fixture.enqueue("x", &[]);
    fixture
}

fn of<'a>(listed: &'a Value, key: &str) -> &'a Value {
    let all = listed["keys"].as_array().unwrap();
    all.iter().find(|it| it["key"] == key).unwrap_or_else(|| panic!("{key} in {listed}"))
}

#[test]
fn keys_that_wait_are_listed_with_why_and_until_when() {
    let fixture = prepared();
    let none = fixture.run("keys q");
    assert_eq!((none.code, none.out.as_str()), (0, ""));
    assert!(none.err.contains("no key of queue q waits"), "{none:?}");
    assert!(fixture.run("keys nowhere").err.contains("there is no queue nowhere"));
    assert_eq!(fixture.run("keys").code, 2);
    assert_eq!(fixture.run("keys q --limit 0").code, 2);

    let first = put_job(&fixture, "1", b"a");
    put_job(&fixture, "2", b"a");
    put_job(&fixture, "3", b"quiet");
    put_line(&fixture, b"a", first, &backoff());
    hold(&fixture, "l-held", b"held");
    put_job(&fixture, "4", b"held");
    let odd = put_job(&fixture, "5", b"\xff\x01");
    let strong = StateLine { suspicion: Suspicion::Strong, interrupted: true, ..StateLine::default() };
    put_line(&fixture, b"\xff\x01", odd, &strong);
    let kind = put_job(&fixture, "6", b"kindless");
    put_line(&fixture, b"kindless", kind, &StateLine { why: Why::Kind, turn: 1, ..StateLine::default() });
    let remembers = put_job(&fixture, "7", b"remembers");
    put_line(&fixture, b"remembers", remembers, &StateLine { due_ms: now() - 5, ..backoff() });

    let listed = fixture.run("keys q --json").json();
    assert_eq!((listed["keys"].as_array().unwrap().len(), &listed["more"]), (4, &json!(0)), "{listed}");
    let a = of(&listed, "a");
    assert_eq!(
        (&a["why"][0]["code"], &a["jobs"], &a["jobs_at_least"]),
        (&json!("backoff"), &json!(2), &json!(false))
    );
    assert!(a["why"][0]["text"].as_str().unwrap().contains("after attempt 2: transient: busy 2"), "{a}");
    assert_eq!(a["first_place"], first.to_string());
    assert!(a["until_ms"].as_u64().unwrap() > now() && a["since_ms"].as_u64().unwrap() <= now(), "{a}");
    let held = of(&listed, "held");
    assert_eq!((&held["why"][0]["code"], &held["letter"]), (&json!("held"), &json!("l-held")));
    assert_eq!((&held["jobs"], &held["until_ms"]), (&json!(1), &Value::Null));
    let odd = of(&listed, "0xff01");
    assert_eq!((&odd["key_hex"], &odd["why"][1]["code"]), (&json!("ff01"), &json!("interrupted")));
    assert!(of(&listed, "kindless")["why"][0]["text"].as_str().unwrap().contains("kind charge"));

    let table = fixture.run("keys q").out;
    assert_eq!(table.lines().count(), 5, "{table}");
    for part in ["held since dead letter l-held", "a person acts", "suspected (strong)", "in 59m"] {
        assert!(table.contains(part), "{part:?} in {table}");
    }
    let few = fixture.run("keys q --limit 2");
    assert_eq!(
        (few.out.lines().count(), few.err.as_str()),
        (3, "about 2 more keys wait; --limit shows more")
    );
}

#[test]
fn a_held_key_is_released_and_its_letter_stays() {
    let fixture = prepared();
    hold(&fixture, "l1", b"k");
    for (wrong, said) in [
        ("q", "required"),
        ("nowhere k", "there is no queue nowhere"),
        ("q zz --key-hex", "expected an even number of hex digits"),
        ("q 0x6 --key-hex", "expected an even number of hex digits"),
        ("q k --reason=", "say why"),
    ] {
        let refused = fixture.run(&format!("keys release {wrong}"));
        assert!(refused.code != 0 && refused.err.contains(said), "{wrong}: {refused:?}");
    }
    let dry = fixture.run("keys release q k --dry-run");
    assert_eq!((dry.code, dry.out.as_str()), (0, "key k would no longer wait for dead letter l1"));
    assert_eq!((fixture.run("audit").out.as_str(), changes(&fixture, b"k")), ("", None));
    let said = fixture.run("keys release q 0x6b --key-hex --reason mended");
    assert_eq!(said.code, 0, "{said:?}");
    for part in ["released: key k no longer waits for dead letter l1", "stays dead", "nobody owns partition"]
    {
        assert!(said.out.contains(part), "{part:?} in {said:?}");
    }
    assert_eq!(changes(&fixture, b"k"), Some("1".into()));
    assert_eq!(fixture.run("dead list --json").json()["total"], 1);
    let act = fixture.run("audit --json").json()["acts"][0].clone();
    assert_eq!(
        (&act["what"], &act["count"], &act["reason"]),
        (&json!("keys release"), &json!(1), &json!("mended"))
    );
    assert_eq!(act["filter"], "queue=q key=0x6b key-hex");
    let again = fixture.run("keys release q k --json");
    assert_eq!((again.code, &again.json()["result"]), (1, &json!("nothing")));
    assert!(again.err.contains("key k of queue q is not held"), "{again:?}");
}

#[test]
fn a_job_in_backoff_is_woken_or_given_up() {
    let fixture = prepared();
    let place = put_job(&fixture, "1", b"k");
    put_line(&fixture, b"k", place, &backoff());
    let dry = fixture.run("keys release q k --dry-run --json");
    assert_eq!((dry.code, dry.json()["result"].as_str()), (0, Some("would_wake")));
    let said = fixture.run("keys release q k --json");
    assert_eq!(
        (said.code, &said.json()["result"], &said.json()["place"]),
        (0, &json!("woken"), &json!(place.to_string()))
    );
    let woken = stored(&fixture, b"k", place).unwrap();
    assert!(woken.due_ms <= now() && woken.turn == 2, "{woken:?}");
    assert_eq!(fixture.run("keys release q k").code, 1, "it is due");

    put_line(&fixture, b"k", place, &backoff());
    let refused = fixture.run("keys skip q k");
    assert!(refused.code == 2 && refused.err.contains("--yes"), "{refused:?}");
    let dry = fixture.run("keys skip q k --dry-run").out;
    assert_eq!(dry, format!("job {place} of key k would become a dead letter, and the key would go on"));
    let said = fixture.run("keys skip q k --yes");
    assert!(said.out.contains("is given up; nobody owns partition"), "{said:?}");
    let asked = stored(&fixture, b"k", place).unwrap();
    assert_eq!((asked.request, asked.due_ms <= now()), (Some(Request::Skip), true));
    let again = fixture.run("keys skip q k --yes --json");
    assert_eq!((again.code, &again.json()["result"]), (0, &json!("asked")));
    assert_eq!(changes(&fixture, b"k"), Some("2".into()), "asked once");
    assert!(fixture.run("keys q").out.contains("a person asked to skip it"));
}

#[test]
fn a_letter_that_holds_is_given_up() {
    let fixture = prepared();
    hold(&fixture, "l1", b"k");
    let dry = fixture.run("keys skip q k --dry-run").out;
    assert_eq!(dry, "dead letter l1 would be discarded, and key k would go on");
    let said = fixture.run("keys skip q k --yes --json");
    assert_eq!(
        (said.code, &said.json()["result"], &said.json()["letter"]),
        (0, &json!("discarded"), &json!("l1"))
    );
    assert_eq!(fixture.run("dead list --json").json()["total"], 0);
    let mark = fixture.server.command(&[&b"GET"[..], &keys_of(b"k").seen(b"l1")]).unwrap();
    assert_eq!(mark.as_str(), Some("discarded"));
    let again = fixture.run("keys skip q k --yes");
    assert_eq!((again.code, again.out.as_str()), (1, ""));
    let acts = fixture.run("audit --json").json();
    assert_eq!(acts["acts"].as_array().unwrap().len(), 1, "what waits for nothing is no act: {acts}");
}

#[test]
fn kinds_are_what_living_nodes_say() {
    let fixture = prepared();
    let none = fixture.run("kinds q");
    assert_eq!((none.code, none.err.as_str()), (0, "queue q: no living node serves it"));
    assert!(fixture.run("kinds nowhere").err.contains("there is no queue nowhere"));
    let mut node = fixture.stubborn_node("--name reader");
    let listed = eventually(SOON, "the node says what it serves", || {
        let listed = fixture.run("kinds --json").json();
        (!listed["queues"][0]["kinds"].as_array().unwrap().is_empty()).then_some(listed)
    });
    let kinds = listed["queues"][0]["kinds"].as_array().unwrap();
    let names: Vec<&str> = kinds.iter().map(|kind| kind["kind"].as_str().unwrap()).collect();
    assert_eq!(names, ["block", "hold", "panic", "quick", "refuse"]);
    assert_eq!(kinds[0]["agree"], true);
    assert_eq!(kinds[0]["descriptions"][0]["redelivery"], "rerun");
    assert!(kinds[0]["descriptions"][0]["nodes"][0].as_str().unwrap().starts_with("reader~"));
    let table = fixture.run("kinds q").out;
    assert!(table.contains("at_least_once") && table.contains("1 of 1"), "{table}");
    // Another release says more of one kind, and a third nothing that can be read.
    let later = (now() + 600_000).to_string();
    for (who, said) in [("newer~1", "[{\"kind\":\"hold\",\"max_attempts\":3}]"), ("odd~1", "nonsense")] {
        let presence = format!("{later} {later} 0");
        fixture.server.command(&["HSET", "gm:{q}:nodes", who, &presence]).unwrap();
        fixture.server.command(&["HSET", "gm:{q}:kinds", who, said]).unwrap();
    }
    let said = fixture.run("kinds q");
    assert!(said.err.contains("nodes describe hold differently"), "{said:?}");
    assert!(said.err.contains("what odd~1 serves is not known"), "{said:?}");
    fixture.server.command(&["HDEL", "gm:{q}:nodes", "newer~1", "odd~1"]).unwrap();
    node.terminate().unwrap();
    node.wait(SOON).unwrap();
    eventually(SOON, "it says nothing any more", || {
        (fixture.run("kinds q").err == "queue q: no living node serves it").then_some(())
    });
}
