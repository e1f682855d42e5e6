//! `purge`: wrong words, a name that is not typed, and what is left.

use crate::fixture::{Fixture, SOON};
use crate::keys::{hold, prepared, put_job};
use gristmill_testkit::eventually;
use serde_json::json;

#[test]
fn nothing_is_purged_without_the_name_and_everything_that_waits_with_it() {
    let fixture = prepared();
    for n in 0..5 {
        put_job(&fixture, &format!("j{n}"), format!("k{n}").as_bytes());
    }
    hold(&fixture, "l-held", b"held");
    put_job(&fixture, "behind", b"held");
    let line = "{\"id\":\"later\",\"key\":\"a\",\"kind\":\"refuse\",\"payload\":1,\"in_ms\":3600000}\n";
    let file = fixture.file("later", line.as_bytes());
    assert_eq!(fixture.run(&format!("enqueue q --from {}", file.display())).code, 0);
    for (wrong, code, words) in [
        ("purge q", 2, "--reason"),
        ("purge q --reason x", 2, "--confirm q"),
        ("purge q --reason x --confirm p", 2, "nothing was removed"),
        ("purge nowhere --reason x --confirm nowhere", 1, "there is no queue nowhere"),
    ] {
        let said = fixture.run(wrong);
        assert!(said.code == code && said.err.contains(words), "{wrong}: {said:?}");
    }
    let dry = |more: &str| fixture.run(&format!("purge q --reason x --dry-run --json {more}")).json();
    assert_eq!(dry(""), json!({ "result": "would_purge", "jobs": 7, "dead_letters": 0 }));
    assert_eq!(dry("--dead"), json!({ "result": "would_purge", "jobs": 7, "dead_letters": 1 }));
    assert_eq!(fixture.run("audit --json").json()["acts"], json!([]));

    let done = fixture.run("purge q --reason wrong-import --confirm q --json").json();
    assert_eq!(done, json!({ "result": "purged", "jobs": 7, "dead_letters": 0 }));
    assert_eq!(dry("--dead"), json!({ "result": "would_purge", "jobs": 0, "dead_letters": 1 }));
    assert!(fixture.run("keys q").out.contains("held since dead letter l-held"));
    assert!(fixture.run("explain j1").err.contains("there is no job"));
    let done = fixture.run("purge q --reason all --confirm q --dead").out;
    assert_eq!(done, "removed: 0 jobs, 1 dead letters");
    assert!(fixture.run("keys q").err.contains("no key of queue q waits"));
    let acts = fixture.run("audit --json").json();
    let act = &acts["acts"][1];
    assert_eq!(
        (&act["what"], &act["reason"], &act["count"]),
        (&json!("purge"), &json!("wrong-import"), &json!(7))
    );
    // Their ids may come again.
    fixture.enqueue("refuse", &["a"]);
}

#[test]
fn a_node_goes_on_with_what_came_later() {
    let fixture = Fixture::new();
    fixture.enqueue("hold", &["a", "b"]);
    let node = fixture.stubborn_node("--name holder");
    node.wait_line(|line| line.text.contains("holding"), SOON).unwrap();
    fixture.enqueue("refuse", &["c"]);
    eventually(SOON, "the third to be dead", || {
        (fixture.run("explain refuse-c --json").json()["found"][0]["is"] == "dead").then_some(())
    });
    let done = fixture.run("purge q --reason x --confirm q --json").json();
    assert_eq!((&done["jobs"], &done["dead_letters"]), (&json!(2), &json!(0)));
    fixture.enqueue("refuse", &["d"]);
    eventually(SOON, "what came later to run", || {
        (fixture.run("explain refuse-d --json").json()["found"][0]["is"] == "dead").then_some(())
    });
    assert_eq!(fixture.run("queues --json").json()["queues"][0]["ready"], 0);
    drop(node);
}
