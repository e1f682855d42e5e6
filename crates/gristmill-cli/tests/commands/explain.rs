//! `explain`: jobs that a node holds, and every state that can be put there by hand.

use crate::dead::queue;
use crate::fixture::{Fixture, SOON, Said};
use crate::keys::{backoff, hold, keys_of, now, prepared, put_job, put_line};
use gristmill_job::partition_of;
use gristmill_testkit::eventually;
use serde_json::{Value, json};

fn explained(fixture: &Fixture, job: &str) -> Value {
    let said = fixture.run(&format!("explain {job} --json"));
    assert_eq!(said.code, 0, "{said:?}");
    let found = said.json()["found"].as_array().unwrap().clone();
    assert_eq!(found.len(), 1, "{said:?}");
    found[0].clone()
}

fn codes(job: &Value) -> Vec<&str> {
    job["why"].as_array().unwrap().iter().map(|why| why["code"].as_str().unwrap()).collect()
}

#[track_caller]
fn says(said: &Said, parts: &[&str]) {
    for part in parts {
        assert!(said.out.contains(part), "{part:?} in {said:?}");
    }
}

#[test]
fn what_was_never_there_is_not_found() {
    let fixture = prepared();
    put_job(&fixture, "1", b"a");
    for job in ["nobody", "0-1-0-0-5"] {
        let said = fixture.run(&format!("explain {job}"));
        assert_eq!((said.code, said.out.as_str()), (1, ""), "{said:?}");
        assert!(said.err.contains(&format!("there is no job, dead letter or mark {job}")), "{said:?}");
        assert!(said.err.contains("looked through 1 jobs and 0 dead letters"), "{said:?}");
    }
    for (wrong, said) in [
        ("0:5-1", "say of which queue with --queue"),
        ("4:5-1 --queue q", "queue q has partitions 0 to 3, got 4"),
        ("x --queue nowhere", "there is no queue nowhere"),
        ("x --scan 0", "0"),
        ("", "required"),
    ] {
        let refused = fixture.run(&format!("explain {wrong}"));
        assert!(refused.code != 0 && refused.err.contains(said), "{wrong}: {refused:?}");
    }
    let place = fixture.run("explain 0:5-1 --queue q");
    assert!(place.code == 1 && place.err.contains("leaves nothing at its place: ask by its id"), "{place:?}");
    let cut = fixture.run("explain nobody --scan 1 --json");
    assert_eq!(
        (cut.code, &cut.json()["found"], &cut.json()["looked_through"]["cut_short"]),
        (1, &json!([]), &json!(true))
    );
    assert!(cut.err.contains("a higher --scan looks further"), "{cut:?}");
}

#[test]
fn a_job_tells_what_it_waits_for() {
    let fixture = prepared();
    let first = put_job(&fixture, "first", b"k");
    let second = put_job(&fixture, "second", b"k");
    let job = explained(&fixture, "first");
    assert_eq!(codes(&job), ["no_owner", "unserved_kind", "unclaimed"], "{job}");
    assert_eq!(
        (&job["is"], &job["place"], &job["kind"]),
        (&json!("in_stream"), &json!(first.to_string()), &json!("charge"))
    );
    says(
        &fixture.run("explain first"),
        &["nobody ever owned it", "no living node serves kind charge", "version 7"],
    );

    put_line(&fixture, b"k", first, &backoff());
    let job = explained(&fixture, "first");
    assert_eq!(codes(&job), ["no_owner", "backoff", "unserved_kind", "unclaimed"]);
    assert_eq!((&job["attempts"], &job["history"][0]["error"]), (&json!(2), &json!("busy 1")));
    assert!(job["why"][1]["until_ms"].as_u64().unwrap() > now());
    let behind = explained(&fixture, "second");
    assert_eq!(codes(&behind)[1], "behind_key");
    assert_eq!((&behind["jobs_of_key_before"], &behind["jobs_of_partition_before"]), (&json!(1), &json!(1)));
    let text = behind["why"][1]["text"].as_str().unwrap();
    assert!(
        text.contains("the first is job first at place") && text.contains("in backoff after attempt 2"),
        "{text}"
    );

    // By place as well, also where an id has no mark.
    let partition = partition_of(b"k", 4);
    let by_place = explained(&fixture, &format!("{partition}:{second} --queue q"));
    assert_eq!(by_place["id"], "second");
    fixture.server.command(&[&b"DEL"[..], &keys_of(b"k").seen(b"second")]).unwrap();
    assert_eq!(explained(&fixture, "second")["id"], "second", "looked for in the stream");

    hold(&fixture, "letter-1", b"k");
    let held = explained(&fixture, "second");
    assert_eq!(codes(&held)[1], "held");
    says(&fixture.run("explain second"), &["gristmill dead replay letter-1", "gristmill keys skip q k"]);
    let dead = explained(&fixture, "letter-1");
    assert_eq!((&dead["is"], &dead["holds_its_key"]), (&json!("dead"), &json!(true)));
    says(
        &fixture.run("explain letter-1"),
        &[
            "dead (exhausted), given up by reader#1: boom",
            "the jobs behind it wait",
            "gristmill dead discard letter-1",
        ],
    );
}

#[test]
fn a_replayed_job_and_a_dead_one_are_found_by_their_own_ids() {
    let fixture = prepared();
    hold(&fixture, "both", b"k");
    let keys = keys_of(b"k");
    // Its letter has the id of its job here; without its mark it is found by looking through the dead.
    fixture.server.command(&[&b"DEL"[..], &keys.seen(b"both")]).unwrap();
    fixture.server.command(&["HDEL", keys.dead_bodies.as_str(), "both"]).unwrap();
    let unreadable = explained(&fixture, "both");
    assert_eq!((&unreadable["is"], &unreadable["holds_its_key"]), (&json!("dead"), &Value::Null));
    says(&fixture.run("explain both"), &["its record is gone"]);

    hold(&fixture, "l1", b"k");
    fixture.run("dead replay l1");
    let back = explained(&fixture, "l1");
    assert_eq!((&back["is"], &back["replays"], &back["turn"]), (&json!("returned"), &json!(1), &json!(3)));
    assert!(codes(&back).contains(&"returned"), "{back}");
    fixture.server.command(&[&b"DEL"[..], &keys.seen(b"l1")]).unwrap();
    assert_eq!(explained(&fixture, "l1")["is"], "returned", "looked for beside the streams");
    let letter = format!("{}-5-0-2-77", partition_of(b"k", 4));
    assert_eq!(explained(&fixture, &letter)["id"], "l1", "a letter's id names the place of its job");
    let behind = put_job(&fixture, "behind", b"k");
    let job = explained(&fixture, &format!("{}:{behind} --queue q", partition_of(b"k", 4)));
    assert_eq!(job["jobs_of_key_before"], 1, "a job that came back has its old place: {job}");
    assert!(job["why"].to_string().contains("the first is job l1 at place 5-0"), "{job}");
}

/// A run that holds its thread is told as long as its node lives; and so is what a person edited.
#[test]
fn what_lies_beside_a_job_is_told() {
    let fixture = prepared();
    let place = put_job(&fixture, "1", b"k");
    let partition = partition_of(b"k", 4);
    let since = (now() - 60_000).to_string();
    let run = format!("n~1 {partition} {place}");
    fixture.server.command(&["HSET", "gm:{q}:hung", &run, &format!("{since} charge 1")]).unwrap();
    assert!(!codes(&explained(&fixture, "1")).contains(&"hung"), "its node is not among the living");
    let presence = format!("{} {since} 0", now() + 600_000);
    fixture.server.command(&["HSET", "gm:{q}:nodes", "n~1", &presence]).unwrap();
    let job = explained(&fixture, "1");
    assert!(codes(&job).contains(&"hung") && job["kind_served"].is_null(), "{job}");
    says(&fixture.run("explain 1"), &["holds a thread of n~1", "whether a living node serves its kind"]);

    hold(&fixture, "l1", b"x");
    let originals = keys_of(b"x").originals;
    fixture.server.command(&["HSET", originals.as_str(), "5-0", "twelve bytes"]).unwrap();
    assert_eq!(explained(&fixture, "l1")["original_bytes"], 12);
    says(&fixture.run("explain l1"), &["the first envelope had 12 bytes"]);
    fixture.run("dead replay l1");
    says(
        &fixture.run("explain l1"),
        &["a person replayed it with another payload; the first envelope had 12 bytes"],
    );
}

#[test]
fn a_job_that_ended_is_known_by_its_mark() {
    let fixture = prepared();
    let seen = queue().partition(2).seen(b"j");
    let mark = |text: &str| {
        fixture.server.command(&[&b"SET"[..], &seen, text.as_bytes(), b"PX", b"3600000"]).unwrap();
        let said = fixture.run("explain j");
        assert_eq!(explained(&fixture, "j")["is"], "mark");
        said
    };
    says(&mark("applied"), &["done: its effects are applied", "in 59m", "leaves its mark and nothing else"]);
    says(&mark("stale"), &["a newer version of its entity"]);
    says(&mark("discarded"), &["the id may come again"]);
    says(&mark("dead nothing"), &["letter nothing is not there"]);
    says(&mark("waiting 5-1"), &["not known", "there is no job", "at most once"]);
    says(&mark("tomorrow"), &["not known", "this release does not write"]);
}

/// A node holds them: one runs, one is in backoff, one waits behind it.
#[test]
fn what_a_node_does_is_told_as_far_as_it_is_known() {
    let fixture = Fixture::new();
    fixture.enqueue("hold", &["a"]);
    fixture.enqueue("panic", &["b"]);
    let node = fixture.stubborn_node("--name reader");
    let panicked = eventually(SOON, "it failed", || {
        let job = explained(&fixture, "panic-b");
        codes(&job).contains(&"backoff").then_some(job)
    });
    assert!(!codes(&panicked).contains(&"no_owner") && panicked["kind_served"] == true, "{panicked}");
    assert!(panicked["attempts"].as_u64().unwrap() >= 1, "{panicked}");
    assert!(fixture.run("keys q").out.contains("in backoff after attempt"));
    let runs = explained(&fixture, "hold-a");
    assert_eq!(codes(&runs), ["claimed"], "{runs}");
    says(
        &fixture.run("explain hold-a"),
        &["claimed by reader~", "whether it runs at this moment is not known"],
    );
    let released = eventually(SOON, "it waits again", || {
        let said = fixture.run("keys release q b");
        (said.code == 0).then_some(said)
    });
    assert!(
        released.out.contains("node reader~") && released.out.contains("runs it within a second"),
        "{released:?}"
    );
    drop(node);
}

#[test]
fn a_limit_that_is_full_names_who_holds_it_and_a_rate_its_next_token() {
    use gristmill_broker::keys;
    let fixture = prepared();
    put_job(&fixture, "first", b"k");
    let queue = gristmill_job::QueueName::new("q").unwrap();
    let put = |words: &[&str]| {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        fixture.server.command(&words).unwrap();
    };
    let (limits, holders, owners) =
        (keys::limits(&queue), keys::holders(&queue, "charge"), keys::owners(&queue, "charge"));
    put(&["HSET", &limits, "charge", "1 1000000.000 1 kind 1 reader~1"]);
    put(&["ZADD", &holders, &(now() + 60_000).to_string(), "3 9-1"]);
    put(&["HSET", &owners, "3 9-1", &format!("reader~1#7.1 60000 {} other job", now() - 5_000)]);
    let job = explained(&fixture, "first");
    assert_eq!(codes(&job), ["no_owner", "limit", "unserved_kind", "unclaimed"], "{job}");
    says(&fixture.run("explain first"), &["is full (1): held by job other job on reader~1 since"]);

    put(&["DEL", &holders]);
    assert_eq!(codes(&explained(&fixture, "first")), ["no_owner", "unserved_kind", "unclaimed"]);
    let used_until = (now() + 30_000) * 1000;
    put(&["SET", &keys::rate(&queue, "charge"), &used_until.to_string()]);
    let job = explained(&fixture, "first");
    assert_eq!(codes(&job)[1], "rate", "{job}");
    assert!(job["why"][1]["until_ms"].as_u64().unwrap() > now());
    says(&fixture.run("explain first"), &["the rate of kind charge (1 at a time, 1/s (burst 1)) is used up"]);
}
