//! A queue with ordering none, as people see it: nobody owns its partitions, and nobody is missed there.

use crate::asked::{address, metric, wait_metric};
use crate::fixture::{Fixture, SOON};
use gristmill_testkit::eventually;
use serde_json::{Value, json};

const MADE: &str = "enqueue q --from /dev/null --create --partitions 4 --ordering none";

fn explained(fixture: &Fixture, job: &str) -> Value {
    let said = fixture.run(&format!("explain {job} --json --set queue.visibility_timeout_ms=1500"));
    let found = said.json()["found"].as_array().unwrap().clone();
    assert_eq!((said.code, found.len()), (0, 1), "{said:?}");
    let text = found[0]["why"].to_string();
    for word in ["owner", "lease", "lane", "before it in"] {
        assert!(!text.contains(word), "{word}: {text}");
    }
    found[0].clone()
}

fn codes(job: &Value) -> Vec<&str> {
    job["why"].as_array().unwrap().iter().map(|why| why["code"].as_str().unwrap()).collect()
}

fn severity(fixture: &Fixture, check: &str) -> Option<String> {
    let doctor = fixture.run("doctor --json --set queue.visibility_timeout_ms=1500").json();
    let found = doctor["findings"].as_array().unwrap().iter().find(|it| it["check"] == check)?.clone();
    Some(found["severity"].as_str().unwrap().to_owned())
}

#[test]
fn what_a_queue_without_order_is_made_of_cannot_be_changed() {
    let fixture = Fixture::new();
    assert_eq!(fixture.run(&format!("{MADE}x")).code, 2);
    assert_eq!(fixture.run(MADE).code, 0);
    // What is not said is as it is there.
    assert_eq!(fixture.run("enqueue q --from /dev/null --create").code, 0);
    let refused = fixture.run("enqueue q --from /dev/null --create --ordering key");
    assert!(refused.code != 0 && refused.err.contains("exists with ordering \"none\""), "{refused:?}");
    let queues = fixture.run("queues --json").json();
    assert_eq!(
        (&queues["queues"][0]["ordering"], &queues["queues"][0]["owned"]),
        (&json!("none"), &Value::Null)
    );

    // As the doctor advises.
    fixture.server.command(&["DEL", "gm:{q:2}:stream"]).unwrap();
    assert_eq!(severity(&fixture, "q: streams").as_deref(), Some("bad"));
    assert_eq!(fixture.run(MADE).code, 0);
    assert_eq!(severity(&fixture, "q: streams").as_deref(), Some("ok"));
}

#[test]
fn nobody_is_missed_as_an_owner_and_a_claim_that_nobody_recovers_is_found() {
    let fixture = Fixture::new();
    assert_eq!(fixture.run(MADE).code, 0);
    fixture.enqueue("hold", &["a"]);
    assert_eq!(codes(&explained(&fixture, "hold-a")), ["unserved_kind", "unclaimed"]);
    assert_eq!(severity(&fixture, "q: nodes").as_deref(), Some("bad"));
    assert_eq!(severity(&fixture, "q: leases"), None);
    let monitor = fixture.stubborn("monitor --set health.listen=127.0.0.1:0 --set monitor.every_ms=100");
    let at = address(&monitor);
    wait_metric(at, "queue_jobs{queue=\"q\",state=\"ready\"}", |jobs| jobs == 1.0);

    let unordered = "--name reader --set queue.ordering=none --set queue.visibility_timeout_ms=1500";
    let mut node = fixture.stubborn_node(unordered);
    let held = eventually(SOON, "a node claimed it", || {
        let job = explained(&fixture, "hold-a");
        (codes(&job) == ["claimed"]).then_some(job)
    });
    let text = held["why"][0]["text"].as_str().unwrap();
    assert!(text.contains("claimed by reader~") && text.contains("visible to others in about"), "{text}");
    assert_eq!((&held["ordering"], &held["owner"]), (&json!("none"), &Value::Null));
    let queue = fixture.run("queues --json").json()["queues"][0].clone();
    assert_eq!((&queue["claimed"], &queue["waiting"]), (&json!(1), &json!(0)), "{queue}");
    assert_eq!(severity(&fixture, "q: nodes").as_deref(), Some("ok"));
    assert_eq!(severity(&fixture, "q: claims").as_deref(), Some("ok"));
    wait_metric(at, "queue_jobs{queue=\"q\",state=\"in_flight\"}", |jobs| jobs == 1.0);
    wait_metric(at, "queue_nodes{queue=\"q\",state=\"serving\"}", |nodes| nodes == 1.0);
    for state in ["owned", "orphaned"] {
        assert_eq!(metric(at, &format!("queue_partitions{{queue=\"q\",state=\"{state}\"}}")), None);
    }
    fixture.enqueue("panic", &["b"]);
    fixture.enqueue("refuse", &["c"]);
    eventually(SOON, "it waits for its next attempt", || {
        let job = explained(&fixture, "panic-b");
        (job["is"] == "delayed" && job["attempts"].as_u64()? > 0).then_some(())
    });
    let dead = eventually(SOON, "it is dead", || {
        let said = fixture.run("explain refuse-c --json").json()["found"][0].clone();
        (said["is"] == "dead").then_some(said)
    });
    assert_eq!(dead["holds_its_key"], false, "{dead}");
    let keys = fixture.run("keys q");
    assert!(keys.code == 0 && keys.err.contains("queue q keeps no order"), "{keys:?}");

    fixture.enqueue("hold", &["z"]);
    eventually(SOON, "a node claimed it", || {
        (codes(&explained(&fixture, "hold-z")) == ["claimed"]).then_some(())
    });
    let cancel = fixture.run("cancel hold-z --reason test");
    assert!(
        !cancel.out.contains("owns") && cancel.out.contains("the node that holds its claim"),
        "{cancel:?}"
    );

    node.kill().unwrap();
    eventually(SOON, "its claim is over", || {
        (codes(&explained(&fixture, "hold-a")).contains(&"claim_over")).then_some(())
    });
    eventually(SOON, "the doctor finds the claim", || {
        (severity(&fixture, "q: claims").as_deref() == Some("warn")).then_some(())
    });
}
