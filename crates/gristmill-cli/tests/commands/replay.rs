//! `dead replay`, and what is noted of it.

use crate::dead::{job, letter, plant, queue};
use crate::fixture::{Fixture, SOON, Said, gristmill};
use gristmill_broker::StateLine;
use gristmill_broker::returned::Returned;
use gristmill_broker::state::Suspicion;
use gristmill_job::{
    AttemptRecord, ContentType, CrashRecord, DeadLetter, DeadReason, Envelope, Place, UnixMillis,
};
use gristmill_testkit::eventually;
use gristmill_testkit::process::{ProcessOptions, Signal};
use gristmill_testkit::server::Reply;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn field(fixture: &Fixture, hash: &str, name: &str) -> Option<Vec<u8>> {
    match fixture.server.command(&["HGET", hash, name]).unwrap() {
        Reply::Bulk(bytes) => Some(bytes),
        _ => None,
    }
}

fn count(fixture: &Fixture, command: &str, key: &str) -> i64 {
    fixture.server.command(&[command, key]).unwrap().as_int().unwrap()
}

/// A letter at a place of its own in partition 1, its key held.
fn put(fixture: &Fixture, id: &str, n: u64, change: impl Fn(&mut DeadLetter)) {
    let envelope = job("charge", b"{\"amount\": 1}", ContentType::Json);
    let mut record = letter(id, &format!("k{n}"), DeadReason::Exhausted, &["boom"], envelope);
    record.place = format!("{n}-0");
    change(&mut record);
    plant(fixture, 1, id, 1000, &record.encode().unwrap(), id);
    let held = queue().partition(1).held;
    let hold = format!("{id} 5 {n}-0");
    fixture.server.command(&["HSET", held.as_str(), &format!("k{n}"), &hold]).unwrap();
}

fn line(fixture: &Fixture, n: u64) -> Option<StateLine> {
    StateLine::parse(&field(fixture, &queue().partition(1).state, &format!("{n}-0"))?)
}

fn prepared() -> Fixture {
    let fixture = Fixture::new();
    fixture.enqueue("x", &["a"]);
    fixture
}

fn last_act(fixture: &Fixture) -> Value {
    fixture.run("audit --json").json()["acts"][0].clone()
}

#[test]
fn letters_come_back_by_id_and_twice_does_nothing() {
    let fixture = prepared();
    put(&fixture, "l1", 1, |_| {});
    put(&fixture, "l2", 2, |record| {
        record.reason = DeadReason::Crashed;
        record.replays = 3;
    });
    let keys = queue().partition(1);
    let dry = fixture.run("dead replay l1 l2 --dry-run");
    assert_eq!((dry.code, dry.out.as_str()), (0, "2 would be replayed"));
    assert_eq!((count(&fixture, "ZCARD", &keys.dead), fixture.run("audit").out.as_str()), (2, ""));

    let said = fixture.run("dead replay l1 l2 nothing --reason mended");
    assert_eq!((said.code, said.out.as_str()), (3, "2 replayed"), "{said:?}");
    assert!(said.err.contains("there is no dead letter nothing"), "{said:?}");
    assert_eq!(line(&fixture, 1), Some(StateLine { turn: 3, replays: 1, ..StateLine::default() }));
    let crashed = StateLine { turn: 3, replays: 4, suspicion: Suspicion::Strong, ..StateLine::default() };
    assert_eq!(line(&fixture, 2), Some(crashed));
    for (command, key, left) in [
        ("ZCARD", &keys.dead, 0),
        ("HLEN", &keys.dead_bodies, 0),
        ("HLEN", &keys.held, 0),
        ("ZCARD", &keys.returned, 2),
        ("HLEN", &keys.originals, 0),
    ] {
        assert_eq!(count(&fixture, command, key), left, "{key}");
    }
    let record: Returned =
        rmp_serde::from_slice(&field(&fixture, &keys.returned_bodies, "1-0").unwrap()).unwrap();
    assert_eq!((&record.i[..], &record.k[..]), (&b"l1"[..], &b"k1"[..]));
    assert_eq!(record.d, job("charge", b"{\"amount\": 1}", ContentType::Json));
    let mark = fixture.server.command(&[&b"GET"[..], &keys.seen(b"l1")]).unwrap();
    assert_eq!(mark.as_str(), Some("waiting 1-0"));
    let act = last_act(&fixture);
    assert_eq!(
        (&act["what"], &act["reason"], &act["step"]),
        (&json!("dead replay"), &json!("mended"), &json!("done"))
    );
    assert_eq!((&act["count"], &act["filter"]), (&json!(2), &json!("id=l1 id=l2 id=nothing")));
    assert_eq!(act["original_envelope"], Value::Null);

    let again = fixture.run("dead replay l1 l2 --json");
    let expected =
        json!({ "replayed": 0, "not_found": ["l1", "l2"], "at_cap": 0, "refused": 0, "refusals": [] });
    assert_eq!((again.code, again.json()), (1, expected));
    assert_eq!(count(&fixture, "ZCARD", &keys.returned), 2);
}

#[test]
fn a_filter_takes_what_it_says_and_leaves_what_it_cannot_or_should_not() {
    let fixture = prepared();
    for n in 1..=6 {
        put(&fixture, &format!("l{n}"), n, |record| {
            record.replays = if n <= 2 { 10 } else { 9 };
            if n == 6 {
                record.place = "nowhere".into();
            }
            if n == 5 {
                record.reason = DeadReason::Permanent;
            }
        });
    }
    plant(&fixture, 1, "unreadable", 1000, b"\xc1who knows", "j");
    for (wrong, said) in [
        ("--kind mail", "--yes"),
        ("l1 --kind mail", "not by both"),
        ("--yes", "say which"),
        ("--queue nowhere --yes", "there is no queue nowhere"),
        ("l1 --rate 0", "0"),
        ("l1 --reason=", "say why"),
        ("l1 l2 --payload -", "expected one id, got 2"),
        ("--queue q --yes --payload -", "expected one id, got 0"),
        ("l1 --payload /does/not/exist", "cannot read the payload /does/not/exist"),
    ] {
        let refused = fixture.run(&format!("dead replay {wrong}"));
        assert!(refused.code != 0 && refused.err.contains(said), "{wrong}: {refused:?}");
    }
    assert_eq!(fixture.run("audit").out, "", "a refusal is no act");
    let dry = fixture.run("dead replay --queue q --dead-reason exhausted --dry-run --json").json();
    assert_eq!((&dry["would_replay"], &dry["at_cap"], &dry["refused"]), (&json!(2), &json!(2), &json!(1)));

    let said = fixture.run("dead replay --queue q --yes --json");
    assert_eq!(said.code, 3, "{said:?}");
    let told = said.json();
    assert_eq!((&told["replayed"], &told["at_cap"], &told["refused"]), (&json!(3), &json!(2), &json!(2)));
    let refused: Vec<&str> =
        told["refusals"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(refused.len(), 2);
    assert!(refused.contains(&"l6") && refused.contains(&"unreadable"), "{told}");
    assert!(
        said.err.contains("no place of a job: \"nowhere\"") && said.err.contains("dead discard"),
        "{said:?}"
    );
    assert!(said.err.contains("say a higher --cap"), "{said:?}");
    assert_eq!(count(&fixture, "ZCARD", &queue().partition(1).dead), 4, "they are still there");
    let more = fixture.run("dead replay l1 l2 --cap 11");
    assert_eq!((more.code, more.out.as_str()), (0, "2 replayed"));
    let left = fixture.run("dead replay unreadable");
    assert_eq!((left.code, left.out.as_str()), (1, "0 replayed"), "{left:?}");
    assert!(left.err.contains("gristmill dead show unreadable"), "{left:?}");
}

#[test]
fn an_edited_payload_keeps_everything_else_and_the_first_envelope() {
    let fixture = prepared();
    put(&fixture, "l1", 1, |_| {});
    let broken = fixture.file("broken", b"{\"amount\":");
    let refused = fixture.run(&format!("dead replay l1 --payload {}", broken.display()));
    assert!(refused.code == 1 && refused.err.contains("give it as JSON"), "{refused:?}");
    assert_eq!(fixture.run("audit").out, "", "nothing was done, nothing is noted");
    let file = fixture.file("payload", b"{\"amount\": 2}\n");
    let said = fixture.run_from("dead replay l1 --payload - --reason typo", &file);
    assert_eq!((said.code, said.out.as_str()), (0, "1 replayed"), "{said:?}");
    let keys = queue().partition(1);
    let old = job("charge", b"{\"amount\": 1}", ContentType::Json);
    assert_eq!(field(&fixture, &keys.originals, "1-0"), Some(old.clone()));
    let record: Returned =
        rmp_serde::from_slice(&field(&fixture, &keys.returned_bodies, "1-0").unwrap()).unwrap();
    let (new, before) =
        (Envelope::decode(&record.d, 1 << 20).unwrap(), Envelope::decode(&old, 1 << 20).unwrap());
    assert_eq!(new.payload, b"{\"amount\": 2}");
    assert_eq!(Envelope { payload: before.payload, ..new }, before);
    let act = last_act(&fixture);
    assert_eq!(act["filter"], "id=l1 payload=edited");
    let hex: String = old.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        (&act["original_envelope"]["hex"], &act["original_envelope"]["note"]),
        (&json!(hex), &json!("whole"))
    );

    // A large one is noted by its beginning.
    let large = format!("\"{}\"", "x".repeat(50_000));
    put(&fixture, "l2", 2, |record| record.envelope = job("charge", large.as_bytes(), ContentType::Json));
    let said = fixture.run_from("dead replay l2 --payload -", &file);
    assert_eq!(said.code, 0, "{said:?}");
    let original = last_act(&fixture)["original_envelope"].clone();
    assert!(original["bytes"].as_u64().unwrap() > 50_000, "{original}");
    assert_eq!(original["hex"].as_str().unwrap().len(), 2 * 4096);
    assert!(original["note"].as_str().unwrap().starts_with("only its beginning"), "{original}");
    assert_eq!(fixture.run("dead replay l3 --payload /dev/null").code, 1, "no such letter");
}

/// A rate is kept, and Ctrl-C between two steps says how far it came.
#[test]
fn a_replay_is_paced_and_can_be_ended() {
    const LETTERS: u64 = 400;
    let fixture = prepared();
    for n in 1..=LETTERS {
        put(&fixture, &format!("l{n}"), n, |_| {});
    }
    let keys = queue().partition(1);
    let url = fixture.server.url();
    let args = ["--redis", &url, "dead", "replay", "--queue", "q", "--yes", "--rate", "20"];
    let began = Instant::now();
    let mut process = ProcessOptions::new(gristmill()).args(args).spawn().unwrap();
    let returned = || count(&fixture, "ZCARD", &keys.returned) as u64;
    eventually(SOON, "some came back", || (returned() >= 20).then_some(()));
    let (took, came) = (began.elapsed(), returned());
    // The first call is not waited for, and neither is the last.
    assert!(took >= Duration::from_millis(800), "{came} in {took:?}");
    process.signal(Signal::SIGINT).unwrap();
    assert_eq!(process.wait(SOON).unwrap().code(), Some(1));
    let came = returned();
    assert!(came < LETTERS, "it was over before it was ended");
    let said = process.stderr_tail();
    assert!(said.contains(&format!("interrupted; {came} were replayed until then")), "{said}");
    let act = last_act(&fixture);
    assert_eq!((&act["step"], &act["count"]), (&json!("failed"), &json!(came)));
    let rest: Said = fixture.run("dead replay --queue q --yes");
    assert_eq!(rest.out, format!("{} replayed", LETTERS - came));
    let places = fixture.server.command(&["ZRANGE", keys.returned.as_str(), "0", "-1"]).unwrap();
    let places: std::collections::BTreeSet<Place> =
        places.as_array().unwrap().iter().map(|place| place.as_str().unwrap().parse().unwrap()).collect();
    assert_eq!(places.len() as u64, LETTERS, "each once");
}

/// What the record knows of its past is shown, and the payload it had before.
#[test]
fn a_letter_tells_its_history() {
    let fixture = prepared();
    put(&fixture, "l1", 1, |record| {
        let attempt = |attempt, error: &str| AttemptRecord {
            attempt,
            at: UnixMillis(1000),
            node: "n~1".into(),
            class: "transient".into(),
            error: error.into(),
            trace: None,
        };
        record.history = vec![attempt(1, "busy"), attempt(2, "gone")];
        record.crashes = vec![CrashRecord { node: "n~2".into(), at: UnixMillis(2000) }];
        record.replays = 2;
        record.traces = vec!["4bf92f3577b34da6a3ce929d0e0e4736".into()];
        record.kind = Some("charge".into());
        record.version = Some(7);
    });
    let first = job("charge", b"{\"amount\": 99}", ContentType::Json);
    let originals = queue().partition(1).originals;
    fixture.server.command(&[b"HSET", originals.as_bytes(), b"1-0", &first]).unwrap();
    let shown = fixture.run("dead show l1 --json").json();
    assert_eq!((&shown["replays"], &shown["history"][1]["error"]), (&json!(2), &json!("gone")));
    assert_eq!(shown["crashes"], json!([{ "node": "n~2", "at_ms": 2000 }]));
    assert_eq!(shown["traces"][0], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(shown["original_envelope"]["payload"], json!({ "amount": 99 }));
    assert_eq!(shown["envelope"]["payload"], json!({ "amount": 1 }));
    let text = fixture.run("dead show l1").out;
    for part in [
        "replays      2",
        "on n~1: transient: busy",
        "with the process of n~2",
        "its first payload: 14 bytes, json",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    fixture.server.command(&["DEL", originals.as_str()]).unwrap();
    assert_eq!(fixture.run("dead show l1 --json").json()["original_envelope"], Value::Null);
}
