//! `pause`, `resume`, `pauses`: wrong words, what nodes make of it, and what `explain` and `audit` say.

use crate::fixture::SOON;
use crate::keys::{prepared, put_job};
use gristmill_testkit::eventually;
use serde_json::json;

#[test]
fn a_pause_says_who_why_and_until_when_and_ends_once() {
    let fixture = prepared();
    for (wrong, code, words) in [
        ("pause q", 2, "--reason"),
        ("pause q --reason=", 2, "say why"),
        ("pause q --reason x --kind a --key b", 2, "cannot be used with"),
        ("pause q --reason x --key-hex", 2, "--key"),
        ("pause q --reason x --key xyz --key-hex", 2, "hex digits"),
        ("pause q --reason x --kind=", 2, "a kind is 1 to"),
        ("pause q --reason x --for 2y", 2, "a whole number and a unit"),
        ("pause q --reason x --for 0s", 2, "more than 0"),
        ("pause nowhere --reason x", 1, "there is no queue nowhere"),
        ("resume q", 1, "queue q is not paused"),
        ("resume q --kind charge", 1, "kind charge of queue q is not paused"),
        ("pauses nowhere", 1, "there is no queue nowhere"),
    ] {
        let said = fixture.run(wrong);
        assert!(said.code == code && said.err.contains(words), "{wrong}: {said:?}");
    }
    assert!(fixture.run("pauses").err.contains("nothing is paused"));
    let dry = fixture.run("pause q --reason x --dry-run --json").json();
    assert_eq!((&dry["result"], &dry["paused_now"]), (&json!("would_pause"), &json!(null)));
    assert_eq!(fixture.run("pauses --json").json(), json!({ "pauses": [] }));

    let paused = fixture.run("pause q --kind charge --reason bank-is-down --for 2h --json").json();
    assert_eq!(
        (&paused["result"], &paused["again"], &paused["name"]),
        (&json!("paused"), &json!(false), &json!("charge"))
    );
    assert_eq!(paused["until_ms"].as_u64().unwrap() - paused["since_ms"].as_u64().unwrap(), 7_200_000);
    assert!(fixture.run("pause q --reason all").out.contains("until `gristmill resume q`"));
    assert!(fixture.run("pause q --reason all").out.contains("as it was before"));
    let table = fixture.run("pauses q").out;
    assert!(
        table.contains("bank-is-down") && table.contains("in 1h 59m") && table.contains("resumed"),
        "{table}"
    );

    put_job(&fixture, "charge-1", b"a");
    let explained = fixture.run("explain charge-1").out;
    for words in [
        "queue q is paused by ",
        "kind charge of queue q is paused by ",
        "because: bank-is-down",
        "`gristmill resume q --kind charge`",
    ] {
        assert!(explained.contains(words), "{words} in {explained}");
    }
    let why = fixture.run("explain charge-1 --json").json()["found"][0]["why"].clone();
    let paused: Vec<_> = why.as_array().unwrap().iter().filter(|why| why["code"] == "paused").collect();
    assert!(paused.len() == 2 && paused.iter().any(|why| why["until_ms"].is_u64()), "{why}");

    let doctor = fixture.run("doctor --json").json();
    let found: Vec<_> =
        doctor["findings"].as_array().unwrap().iter().filter(|it| it["check"] == "q: paused").collect();
    assert_eq!(found.len(), 2, "{doctor}");
    for finding in &found {
        assert_eq!(finding["severity"], "warn");
        assert!(finding["found"].as_str().unwrap().contains(" is paused by "), "{finding}");
    }
    assert!(found.iter().any(|it| it["mend"] == "its jobs wait until `gristmill resume q`"), "{found:?}");
    let keys = fixture.run("keys q");
    assert!(
        keys.out.contains("kind charge of queue q is paused by ") && keys.out.contains("bank-is-down"),
        "{keys:?}"
    );
    assert!(keys.err.contains("but the end of a pause or its turn"), "{keys:?}");
    let paused = fixture.run("keys q --json").json()["paused"].clone();
    assert_eq!(paused, fixture.run("pauses q --json").json()["pauses"]);
    assert_eq!(paused.as_array().unwrap().len(), 2);

    let dry = fixture.run("resume q --dry-run --json").json();
    assert_eq!((&dry["result"], &dry["was"]["reason"]), (&json!("would_resume"), &json!("all")));
    assert!(fixture.run("resume q").out.contains("because: all"));
    assert_eq!(fixture.run("resume q").code, 1);
    assert_eq!(fixture.run("resume q --kind charge --reason up-again").code, 0);
    assert!(!fixture.run("explain charge-1").out.contains("paused"));
    assert!(!fixture.run("doctor").out.contains("paused"));
    assert_eq!(fixture.run("keys q --json").json()["paused"], json!([]));
    let acts = fixture.run("audit --json").json();
    let acts: Vec<_> =
        acts["acts"].as_array().unwrap().iter().map(|act| act["what"].as_str().unwrap()).collect();
    assert_eq!(acts.iter().filter(|what| **what == "pause").count(), 3);
    assert!(acts.contains(&"resume"), "{acts:?}");
}

#[test]
fn a_paused_kind_and_key_do_not_start_and_the_others_do() {
    let fixture = prepared();
    assert_eq!(fixture.run("pause q --kind panic --reason x").code, 0);
    assert_eq!(fixture.run("pause q --key 62 --key-hex --reason x").code, 0);
    fixture.enqueue("refuse", &["a", "b", "c"]);
    fixture.enqueue("panic", &["d"]);
    let node = fixture.stubborn_node("--name reader");
    let dead = |id: &str| {
        let explained = fixture.run(&format!("explain {id} --json")).json();
        explained["found"][0]["is"] == "dead"
    };
    eventually(SOON, "what is not paused to run", || (dead("refuse-a") && dead("refuse-c")).then_some(()));
    eventually(SOON, "what is paused to be claimed", || {
        let claimed = |id: &str| {
            let explained = fixture.run(&format!("explain {id} --json")).json();
            explained["found"][0]["claimed_by"].is_string()
        };
        (claimed("refuse-b") && claimed("panic-d")).then_some(())
    });
    assert!(!dead("refuse-b") && !dead("panic-d"));
    assert_eq!(fixture.run("resume q --key b").code, 0);
    eventually(SOON, "the key to go on", || dead("refuse-b").then_some(()));
    assert!(!dead("panic-d"));
    drop(node);
}
