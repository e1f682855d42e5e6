//! `dead list`, `dead show`, `dead discard`, `audit`: on letters that a node wrote, and on letters put there by hand.

use crate::fixture::{Fixture, SOON, gristmill};
use gristmill_broker::keys::QueueDefinition;
use gristmill_job::{ContentType, DeadLetter, DeadReason, JobLimits, NewJob, QueueName, UnixMillis};
use gristmill_testkit::eventually;
use gristmill_testkit::process::{ProcessOptions, Signal};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Command;
use std::time::SystemTime;

pub(crate) fn queue() -> QueueDefinition {
    QueueDefinition::new(QueueName::new("q").unwrap(), 4)
}

pub(crate) fn job(kind: &str, payload: &[u8], content_type: ContentType) -> Vec<u8> {
    let job = NewJob::from_bytes(kind, "k", payload.to_vec(), content_type).unwrap();
    let job = job.with_id("j").unwrap().with_version(7).with_header("traceparent", "00-ab\u{1b}[2J");
    job.encode(UnixMillis(1_700_000_000_000), JobLimits::default()).unwrap().envelope.to_vec()
}

pub(crate) fn letter(
    job: &str,
    key: &str,
    reason: DeadReason,
    error: &[&str],
    envelope: Vec<u8>,
) -> DeadLetter {
    DeadLetter {
        job: job.as_bytes().to_vec(),
        key: key.as_bytes().to_vec(),
        envelope,
        place: "1-0".into(),
        turn: 2,
        reason,
        error: error.iter().map(|text| (*text).to_owned()).collect(),
        class: Some("transient".into()),
        attempts: 3,
        node: "reader#1".into(),
        at: UnixMillis(1),
        ..DeadLetter::default()
    }
}

/// With the mark that settle leaves.
pub(crate) fn plant(fixture: &Fixture, partition: u16, id: &str, age_ms: u64, record: &[u8], job: &str) {
    let keys = queue().partition(partition);
    let at = UnixMillis::from_system(SystemTime::now()).0 - age_ms;
    let put = |words: &[&[u8]]| fixture.server.command(words).unwrap();
    put(&[b"ZADD", keys.dead.as_bytes(), at.to_string().as_bytes(), id.as_bytes()]);
    put(&[b"HSET", keys.dead_bodies.as_bytes(), id.as_bytes(), record]);
    put(&[b"SET", &keys.seen(job.as_bytes()), format!("dead {id}").as_bytes()]);
}

const HOUR_MS: u64 = 3_600_000;

/// Forty letters in four partitions, `l00` the oldest, an hour apart.
fn planted() -> Fixture {
    let fixture = Fixture::new();
    fixture.enqueue("x", &["a"]);
    for n in 0..40u16 {
        let (kind, reason) = match n % 2 {
            0 => ("charge", DeadReason::Exhausted),
            _ => ("mail", DeadReason::Permanent),
        };
        let envelope = job(kind, b"{}", ContentType::Json);
        let (job, key) = (format!("j{n:02}"), format!("k{}", n % 5));
        let error = ["cannot do it", if n < 10 { "connection refused" } else { "no such card" }];
        let record = letter(&job, &key, reason, &error, envelope).encode().unwrap();
        let age_ms = u64::from(40 - n) * HOUR_MS;
        plant(&fixture, n % 4, &format!("l{n:02}"), age_ms, &record, &job);
    }
    fixture
}

fn ids(page: &Value) -> Vec<String> {
    let letters = page["dead_letters"].as_array().unwrap();
    letters.iter().map(|letter| letter["id"].as_str().unwrap().to_owned()).collect()
}

fn named(numbers: impl IntoIterator<Item = u16>) -> Vec<String> {
    numbers.into_iter().map(|n| format!("l{n:02}")).collect()
}

#[test]
fn the_list_is_filtered_and_paged() {
    let fixture = planted();
    let list = |args: &str| fixture.run(&format!("dead list --json {args}")).json();
    assert_eq!(ids(&list("")), named(0..40));
    for (filter, expected) in [
        ("--kind charge", named((0..40).step_by(2))),
        ("--reason permanent", named((1..40).step_by(2))),
        ("--dead-reason permanent", named((1..40).step_by(2))),
        ("--class transient --key k3", named((3..40).step_by(5))),
        ("--class permanent", vec![]),
        ("--error it:", named(0..40)),
        ("--error refused --kind mail --newest-first", named([9, 7, 5, 3, 1])),
        ("--older-than 36h", named(0..5)),
        ("--newer-than 3h", named(38..40)),
        ("--newer-than 3h --newest-first", named([39, 38])),
        ("--older-than 30h --newer-than 1d", vec![]),
        ("--queue q --limit 3", named(0..3)),
    ] {
        // An age that a letter has exactly is over when it is asked for.
        assert_eq!(ids(&list(filter)), expected, "{filter}");
    }
    for order in ["", "--newest-first"] {
        let (mut pages, mut after) = (Vec::new(), String::new());
        loop {
            let page = list(&format!("--kind charge --limit 7 {order} {after}"));
            assert!(ids(&page).len() <= 7 && page["total"] == 40, "{page}");
            pages.extend(ids(&page));
            match page["next"].as_str() {
                Some(next) => after = format!("--after {next}"),
                None => break,
            }
        }
        let mut expected = named((0..40).step_by(2));
        if !order.is_empty() {
            expected.reverse();
        }
        assert_eq!(pages, expected);
    }
    let page = fixture.run("dead list q --limit 2");
    assert_eq!(page.out.lines().count(), 3);
    let next = page.err.split("--after ").nth(1).unwrap();
    assert!(page.err.starts_with("2 of 40 dead letters are shown\n"), "{page:?}");
    assert!(fixture.run(&format!("dead list --limit 1 --after {next}")).out.contains("l02"));
    for wrong in ["--after l02", "--older-than soon", "q --queue q", "--limit 10001"] {
        assert_eq!(fixture.run(&format!("dead list {wrong}")).code, 2, "{wrong}");
    }
}

#[test]
fn a_letter_that_a_node_wrote_is_shown_and_discarded_and_its_job_comes_again() {
    let fixture = Fixture::new();
    fixture.enqueue("refuse", &["a"]);
    let node = fixture.stubborn_node("--name reader");
    let page = eventually(SOON, "a dead letter", || {
        let page = fixture.run("dead list --json").json();
        (page["total"] == 1).then_some(page)
    });
    let id = ids(&page).remove(0);
    let shown = fixture.run(&format!("dead show {id} --json")).json();
    assert_eq!((&shown["id"], &shown["queue"], &shown["job"]), (&json!(id), &json!("q"), &json!("refuse-a")));
    assert_eq!(shown["reason"], "permanent");
    assert_eq!(shown["envelope"]["kind"], "refuse");
    assert_eq!(shown["envelope"]["version"], 1);
    assert_eq!(shown["envelope"]["own_id"], true);
    assert_eq!(shown["envelope"]["payload"], json!({}));
    let text = fixture.run(&format!("dead show {id}")).out;
    for line in ["job          refuse-a", "error        no use for a", "kind         refuse"] {
        assert!(text.lines().any(|shown| shown == line), "{line:?} in {text}");
    }

    let dry = fixture.run(&format!("dead discard {id} --reason never --dry-run"));
    assert_eq!((dry.code, dry.out.as_str()), (0, "1 would be discarded"));
    assert_eq!(fixture.run("audit").err, "nothing was done by hand, or it was too long ago");
    let away = fixture.run(&format!("dead discard {id} nothing --reason test"));
    assert_eq!((away.code, away.out.as_str()), (3, "1 discarded"), "{away:?}");
    assert_eq!(
        away.err,
        "there is no dead letter nothing; it may have been discarded before; if a job has this id, `gristmill explain \
         nothing` names its letter"
    );
    let again = fixture.run(&format!("dead discard {id} --reason test --json"));
    assert_eq!((again.code, again.json()), (1, json!({ "discarded": 0, "not_found": [id] })));
    let gone = fixture.run(&format!("dead show {id}"));
    assert_eq!((gone.code, gone.out.as_str()), (1, ""));
    assert!(gone.err.contains(&format!("there is no dead letter {id}")), "{gone:?}");

    let file =
        fixture.file("again", b"{\"id\":\"refuse-a\",\"key\":\"a\",\"kind\":\"refuse\",\"payload\":1}\n");
    let anew = fixture.run(&format!("enqueue q --from {}", file.display()));
    assert!(anew.out.contains("enqueued=1 duplicates=0"), "{anew:?}");
    eventually(SOON, "it ran, and died again", || {
        (fixture.run("dead list --json").json()["total"] == 1).then_some(())
    });
    let repeated = fixture.run(&format!("enqueue q --from {}", file.display()));
    assert!(repeated.out.contains("enqueued=0 duplicates=1"), "{repeated:?}");
    drop(node);
}

#[test]
fn what_matches_is_discarded_and_noted() {
    let fixture = planted();
    for (wrong, said) in [
        ("--kind mail", "--yes"),
        ("l01 --kind mail", "not by both"),
        ("--yes", "say which"),
        ("--queue nowhere --yes", "there is no queue nowhere"),
    ] {
        let refused = fixture.run(&format!("dead discard --reason r {wrong}"));
        assert!(refused.code != 0 && refused.err.contains(said), "{wrong}: {refused:?}");
    }
    assert_eq!(fixture.run("dead discard l01").code, 2, "without a reason");
    assert_eq!(fixture.run("dead discard l01 --reason=").code, 2, "an empty one is none");
    let filter = "--queue q --dead-reason permanent --error refused";
    let dry = fixture.run(&format!("dead discard {filter} --reason obsolete --dry-run --json"));
    assert_eq!(dry.json(), json!({ "would_discard": 5, "not_found": [] }));
    assert_eq!(fixture.run("dead list --json").json()["total"], 40);
    let away = fixture.run(&format!("dead discard {filter} --reason obsolete --yes"));
    assert_eq!((away.code, away.out.as_str()), (0, "5 discarded"));
    let left: BTreeSet<String> = ids(&fixture.run("dead list --json").json()).into_iter().collect();
    let expected = (0..40).filter(|n| !(*n < 10 && n % 2 == 1));
    assert_eq!(left, named(expected).into_iter().collect());
    let mark = |n: u16| {
        let seen = queue().partition(n % 4).seen(format!("j{n:02}").as_bytes());
        fixture.server.command(&[&b"GET"[..], &seen]).unwrap().as_str().unwrap().to_owned()
    };
    assert_eq!((mark(1), mark(2)), ("discarded".into(), "dead l02".into()));
    fixture.run("dead discard l00 l00 --reason twice");

    let log = fixture.run("audit --json").json();
    let acts = log["acts"].as_array().unwrap();
    let of = |act: &Value| {
        let of = |name: &str| act[name].as_str().unwrap().to_owned();
        (of("filter"), of("reason"), of("step"), act["count"].as_u64().unwrap())
    };
    let by_filter = "queue=q dead-reason=permanent error=refused".to_owned();
    assert_eq!(acts.len(), 2, "a dry run and a refusal are no acts: {log}");
    assert_eq!(of(&acts[0]), ("id=l00 id=l00".into(), "twice".into(), "done".into(), 1));
    assert_eq!(of(&acts[1]), (by_filter, "obsolete".into(), "done".into(), 5));
    assert!(acts[0]["who"].as_str().unwrap().contains('@'), "{log}");
    assert!(fixture.run("audit").out.contains("dead discard"));
    assert_eq!(fixture.run("audit --limit 1 --json").json()["acts"].as_array().unwrap().len(), 1);
}

#[test]
fn an_act_that_fails_leaves_its_trace() {
    let fixture = planted();
    let keys = queue().partition(3);
    // What every script touches first is no stream there.
    fixture.server.command(&["SET", keys.stream.as_str(), "no stream"]).unwrap();
    let failed = fixture.run("dead discard l00 l03 --reason broken");
    assert_eq!((failed.code, failed.out.as_str()), (1, ""), "{failed:?}");
    assert!(
        failed.err.contains("WRONGTYPE") && failed.err.contains("1 were discarded until then"),
        "{failed:?}"
    );
    let act = fixture.run("audit --json").json()["acts"][0].clone();
    assert_eq!((act["step"].as_str(), act["count"].as_u64()), (Some("failed"), Some(1)), "{act}");
    // A process that died in between wrote no more than this.
    let begun = [
        "XADD",
        "gm:audit",
        "*",
        "act",
        "a",
        "step",
        "begun",
        "who",
        "me",
        "what",
        "dead discard",
        "count",
        "0",
    ];
    fixture.server.command(&begun).unwrap();
    let acts = fixture.run("audit --json").json();
    assert_eq!((&acts["acts"][0]["step"], &acts["acts"][0]["count"]), (&json!("begun"), &Value::Null));
    assert_eq!(acts["acts"][1]["step"], "failed");
}

/// Ctrl-C ends it between two steps and says how far it came; a process that is killed cannot.
#[test]
fn an_act_that_is_cut_short_leaves_its_trace() {
    const LETTERS: i64 = 100_000;
    for killed in [false, true] {
        let fixture = Fixture::new();
        fixture.enqueue("x", &["a"]);
        let keys = queue().partition(0);
        for slice in 0..LETTERS / 500 {
            let mut words = vec!["ZADD".to_owned(), keys.dead.clone()];
            words.extend((0..500).flat_map(|n| [slice.to_string(), format!("{}", slice * 500 + n)]));
            fixture.server.command(&words).unwrap();
        }
        let left = || fixture.server.command(&["ZCARD", keys.dead.as_str()]).unwrap().as_int().unwrap();
        let url = fixture.server.url();
        let args = ["--redis", &url, "dead", "discard", "--queue", "q", "--reason", "all", "--yes"];
        let mut process = ProcessOptions::new(gristmill()).args(args).spawn().unwrap();
        eventually(SOON, "some are discarded", || (left() < LETTERS).then_some(()));
        if killed {
            process.kill().unwrap();
        } else {
            process.signal(Signal::SIGINT).unwrap();
            assert_eq!(process.wait(SOON).unwrap().code(), Some(1));
        }
        assert!(left() > 0, "it was done before it could be cut short");
        let act = fixture.run("audit --json").json()["acts"][0].clone();
        if killed {
            assert_eq!((&act["step"], &act["count"]), (&json!("begun"), &Value::Null));
        } else {
            assert_eq!((&act["step"], &act["count"]), (&json!("failed"), &json!(LETTERS - left())));
            let said = process.stderr_tail();
            assert!(said.contains("interrupted; ") && said.contains(" were discarded until then"), "{said}");
        }
    }
}

/// What cannot be read is said to be so, and can be discarded all the same.
#[test]
fn every_sort_of_letter_is_shown() {
    let fixture = Fixture::new();
    fixture.enqueue("x", &["a"]);
    let put = |id: &str, envelope: Vec<u8>| {
        let record = letter("j", "k\u{1b}", DeadReason::Exhausted, &["outer", "inner"], envelope);
        plant(&fixture, 1, id, 1000, &record.encode().unwrap(), "j");
    };
    let text = r#"{"z": 12345678901234567890123, "a": [1]}"#;
    put("json", job("charge", text.as_bytes(), ContentType::Json));
    put("mp", job("charge", &[0x81, 0xa1, b'a', 0xc4, 1, 0xff], ContentType::MessagePack));
    put("garbage-inside", job("charge", &[0xc1; 2000], ContentType::MessagePack));
    put("no-envelope", b"\x00\x01\xfe".to_vec());
    plant(&fixture, 1, "unreadable", 1000, b"\xc1who knows", "j");
    plant(&fixture, 1, "bodiless", 1000, b"", "j");
    fixture.server.command(&["HDEL", queue().partition(1).dead_bodies.as_str(), "bodiless"]).unwrap();

    let show = |id: &str| fixture.run(&format!("dead show {id} --queue q --json")).json();
    let raw = fixture.run("dead show json --json").out;
    assert!(raw.contains(text), "JSON as it came: {raw}");
    let json = show("json");
    assert_eq!(json["envelope"]["headers"], json!([["traceparent", "00-ab\u{1b}[2J"]]));
    assert_eq!(
        (&json["error"], &json["turn"], &json["attempts"]),
        (&json!(["outer", "inner"]), &json!(2), &json!(3))
    );
    assert_eq!(json["envelope"]["enqueued_at_ms"], 1_700_000_000_000_u64);
    assert_eq!(show("mp")["envelope"]["payload"], json!({ "a": "0xff" }));
    let garbage = show("garbage-inside");
    assert_eq!(
        (&garbage["envelope"]["payload_form"], &garbage["envelope"]["payload_bytes"]),
        (&json!("bytes"), &json!(2000))
    );
    assert!(garbage["envelope"]["payload"].as_str().unwrap().ends_with("(2000 bytes in all)"));
    let none = show("no-envelope");
    assert_eq!(none["envelope"]["hex"], "0x0001fe");
    assert!(none["envelope"]["undecodable"].as_str().unwrap().contains("not an envelope"), "{none}");
    assert!(show("unreadable")["unreadable"].as_str().unwrap().contains("not a dead letter record"));
    assert_eq!(show("bodiless")["unreadable"], "its record is gone");

    for id in ["json", "mp", "garbage-inside", "no-envelope", "unreadable", "bodiless"] {
        let shown = fixture.run(&format!("dead show {id}"));
        assert!(shown.code == 0 && !shown.out.contains('\u{1b}'), "{shown:?}");
    }
    let text = fixture.run("dead show mp").out;
    assert!(text.contains("  because    inner") && text.contains("\"a\": \"0xff\""), "{text}");

    let url = fixture.server.url();
    let raw = |id: &str| {
        Command::new(gristmill()).args(["--redis", &url, "dead", "show", id, "--raw"]).output().unwrap()
    };
    assert_eq!(raw("no-envelope").stdout, b"\x00\x01\xfe");
    let gone = raw("bodiless");
    assert_eq!((gone.status.code(), gone.stdout.len()), (Some(1), 0));

    // A field of a newer release, in a record that is MessagePack by hand: its map has one more.
    let mut newer = letter("j", "k", DeadReason::Exhausted, &[], Vec::new()).encode().unwrap();
    assert_eq!(newer[0], 0xde, "a map with a length of two bytes");
    newer[2] += 1;
    newer.extend(b"\xa8tomorrow\x03");
    plant(&fixture, 1, "newer", 1000, &newer, "j");
    assert_eq!(show("newer")["tomorrow"], 3);

    plant(&fixture, 2, "json", 1000, &newer, "j");
    let twice = fixture.run("dead show json");
    assert!(twice.code == 1 && twice.err.contains("q:1, q:2"), "{twice:?}");
    let blind = fixture.run("dead discard unreadable bodiless --reason away");
    assert!(blind.code == 0 && blind.err.contains("the records of 2 could not be read"), "{blind:?}");
}
