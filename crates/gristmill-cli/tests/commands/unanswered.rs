//! Commands whose answer is lost after they took effect: they say so, and who says the same again ends where one answer would have
//! led, is told that it was done, and doubles nothing.

use crate::dead::queue;
use crate::fixture::{Fixture, SOON, Said};
use crate::keys::{keys_of, prepared, put_job};
use gristmill_testkit::eventually;
use serde_json::{Value, json};

/// It did not hear what came of it.
#[track_caller]
fn assert_unheard(said: &Said) {
    assert!(said.code == 1 && !said.err.is_empty() && said.out.is_empty(), "{said:?}");
}

/// The acts of the audit log of this kind, with their ends, the first first.
fn acts(fixture: &Fixture, what: &str) -> Vec<(Value, Value)> {
    let told = fixture.run("audit --json").json();
    let acts = told["acts"].as_array().unwrap().iter().rev().filter(|act| act["what"] == what);
    acts.map(|act| (act["count"].clone(), act["reason"].clone())).collect()
}

#[test]
fn cancel() {
    let fixture = prepared();
    put_job(&fixture, "charge-7", b"a");
    put_job(&fixture, "charge-8", b"a");
    let cancel = "cancel charge-7 --reason sold-out";
    assert_unheard(&fixture.run_unanswered(&["state", "cancel"], cancel));
    let length = || fixture.server.command(&["XLEN", keys_of(b"a").stream.as_str()]).unwrap().as_int();
    assert_eq!(length(), Some(1), "it took effect");
    let again = fixture.run(cancel);
    assert!(
        again.code == 1 && again.err.contains("does not wait") && again.err.contains("cancelled"),
        "{again:?}"
    );
    assert!(fixture.run("explain charge-7").out.contains("because: sold-out"));
    assert_eq!((length(), acts(&fixture, "cancel").len()), (Some(1), 1), "nothing more is done, or noted");
}

#[test]
fn cancel_of_a_job_that_a_node_holds() {
    let fixture = Fixture::new();
    fixture.enqueue("hold", &["a"]);
    let node = fixture.stubborn_node("--name holder");
    node.wait_line(|line| line.text.contains("holding"), SOON).unwrap();
    assert_unheard(&fixture.run_unanswered(&["state", "cancel"], "cancel hold-a --reason enough"));
    let again = fixture.run("cancel hold-a --reason enough");
    assert!(again.code == 0 && again.out.contains("had asked before"), "{again:?}");
    drop(node);
}

#[test]
fn pause_and_resume() {
    let fixture = prepared();
    assert_unheard(&fixture.run_unanswered(&["pause"], "pause q --reason bank-is-down"));
    let paused = fixture.run("pauses q --json").json()["pauses"].clone();
    assert_eq!(paused.as_array().unwrap().len(), 1, "it took effect: {paused}");
    let again = fixture.run("pause q --reason bank-is-down --json").json();
    assert_eq!((&again["result"], &again["again"]), (&json!("paused"), &json!(true)));
    assert_eq!(fixture.run("pauses q --json").json()["pauses"], paused, "since when stays as it was");
    assert_unheard(&fixture.run_unanswered(&["resume"], "resume q"));
    assert_eq!(fixture.run("pauses --json").json(), json!({ "pauses": [] }));
    let again = fixture.run("resume q");
    assert!(again.code == 1 && again.err.contains("queue q is not paused"), "{again:?}");
}

#[test]
fn purge() {
    let fixture = prepared();
    // More than one slice, in one partition.
    for n in 0..450 {
        put_job(&fixture, &format!("j{n}"), b"k");
    }
    let purge = "purge q --reason wrong-import --confirm q";
    assert_unheard_purge(&fixture.run_unanswered(&["purge"], purge));
    let waiting = || fixture.run("queues --json").json()["queues"][0]["ready"].as_u64().unwrap();
    assert_eq!(waiting(), 250, "its first slice took effect, and nothing was done after it");
    let again = fixture.run(&format!("{purge} --json")).json();
    assert_eq!(again, json!({ "result": "purged", "jobs": 250, "dead_letters": 0 }));
    assert_eq!(waiting(), 0);
    let once_more = fixture.run(&format!("{purge} --json")).json();
    assert_eq!(once_more["jobs"], 0);
    // Also those whose removal nobody heard of may come again.
    put_job(&fixture, "j0", b"k");
    assert_eq!(waiting(), 1);
}

/// It says how far it heard that it came.
#[track_caller]
fn assert_unheard_purge(said: &Said) {
    assert!(said.code == 1 && !said.err.is_empty() && said.out.contains("removed: 0 jobs"), "{said:?}");
}

#[test]
fn a_schedule_is_paused_resumed_triggered() {
    let fixture = Fixture::new();
    let hourly = "--set schedules.tick.queue=q --set schedules.tick.kind=quick --set schedules.tick.every=1h";
    let node = fixture.stubborn_node(hourly);
    let listed = || fixture.run("schedules list --json").json()["schedules"][0].clone();
    eventually(SOON, "it is defined", || (listed()["state"] == "fires").then_some(()));

    let pause = "schedules pause tick --reason flood";
    assert_unheard(&fixture.run_unanswered(&["schedule", "pause_schedule"], pause));
    assert_eq!((&listed()["state"], &listed()["paused"]["reason"]), (&json!("paused"), &json!("flood")));
    let again = fixture.run(pause);
    assert!(
        again.code == 1 && again.out.contains("is paused already") && again.out.contains("flood"),
        "{again:?}"
    );

    assert_unheard(&fixture.run_unanswered(&["schedule", "resume_schedule"], "schedules resume tick"));
    assert_eq!(listed()["state"], "fires");
    let again = fixture.run("schedules resume tick");
    assert!(again.code == 1 && again.out.contains("is not paused"), "{again:?}");

    // It names the job itself, and asks again under that name.
    let told = fixture.run_unanswered(&["enqueue"], "schedules trigger tick --reason now --json").json();
    let id = told["job"].as_str().unwrap();
    eventually(SOON, "it is done", || {
        (fixture.run(&format!("explain {id}")).out.contains("done")).then_some(())
    });
    let added = |partition: u16| {
        let stream = queue().partition(partition).stream;
        let info = fixture.server.command(&["XINFO", "STREAM", &stream]).ok()?;
        let words = info.as_array()?;
        let at = words.iter().position(|word| word.as_str() == Some("entries-added"))?;
        words[at + 1].as_int()
    };
    assert_eq!((0..4).filter_map(added).sum::<i64>(), 1, "one job, however often it was asked for");
    drop(node);
}
