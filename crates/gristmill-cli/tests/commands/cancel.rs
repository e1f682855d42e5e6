//! `cancel`: jobs that wait, that a node holds, that are not there; and what `explain` and `audit` say of it.

use crate::fixture::{Fixture, SOON};
use crate::keys::{keys_of, prepared, put_job};
use gristmill_testkit::eventually;
use serde_json::json;

fn length(fixture: &Fixture, key: &[u8]) -> i64 {
    fixture.server.command(&["XLEN", keys_of(key).stream.as_str()]).unwrap().as_int().unwrap()
}

#[test]
fn a_job_that_nobody_holds_is_cancelled_explained_and_may_come_again() {
    let fixture = prepared();
    let place = put_job(&fixture, "charge-7", b"a");
    put_job(&fixture, "charge-8", b"a");
    for (wrong, code, words) in [
        ("cancel charge-7", 2, "--reason"),
        ("cancel charge-7 --reason=", 2, "say why"),
        ("cancel 0:5-1 --reason x", 2, "--queue"),
        ("cancel 9:5-1 --queue q --reason x", 2, "partitions 0 to 3"),
        ("cancel charge-7 --queue nowhere --reason x", 1, "there is no queue nowhere"),
        ("cancel charge-9 --reason x", 1, "there is no job"),
    ] {
        let said = fixture.run(wrong);
        assert!(said.code == code && said.err.contains(words), "{wrong}: {said:?}");
    }
    let dry = fixture.run("cancel charge-7 --reason sold-out --dry-run --json").json();
    assert_eq!((&dry["result"], &dry["id"]), (&json!("would_cancel"), &json!("charge-7")));
    assert_eq!(
        (length(&fixture, b"a"), fixture.run("audit --json").json()["acts"].as_array().unwrap().len()),
        (2, 0)
    );

    let done = fixture.run("cancel charge-7 --reason sold-out --json").json();
    assert_eq!((&done["result"], &done["place"]), (&json!("cancelled"), &json!(place.to_string())));
    assert_eq!(length(&fixture, b"a"), 1);
    let again = fixture.run("cancel charge-7 --reason sold-out");
    assert!(again.code == 1 && again.err.contains("does not wait, it is cancelled by "), "{again:?}");
    assert!(again.err.contains("because: sold-out"), "{again:?}");
    let explained = fixture.run("explain charge-7").out;
    assert!(explained.contains("cancelled by ") && explained.contains("because: sold-out"), "{explained}");
    assert!(explained.contains("the id may come again"), "{explained}");
    let acts = fixture.run("audit --json").json();
    let act = &acts["acts"][0];
    assert_eq!(
        (&act["what"], &act["reason"], &act["count"]),
        (&json!("cancel"), &json!("sold-out"), &json!(1))
    );
    assert!(act["filter"].as_str().unwrap().contains("job=charge-7"), "{act}");

    let by_place = fixture.run(&format!("cancel 0:{place} --queue q --reason x"));
    assert!(by_place.code == 1, "{by_place:?}");
}

#[test]
fn a_job_that_a_node_holds_is_ended_by_it_and_its_key_goes_on() {
    let fixture = Fixture::new();
    fixture.enqueue("hold", &["a"]);
    let jobs = (1..=3).map(|n| {
        format!("{{\"id\":\"n{n}\",\"key\":\"a\",\"version\":{n},\"kind\":\"refuse\",\"payload\":{{}}}}\n")
    });
    let file = fixture.file("more", jobs.collect::<String>().as_bytes());
    assert_eq!(fixture.run(&format!("enqueue q --from {}", file.display())).code, 0);
    let node = fixture.stubborn_node("--name holder");
    node.wait_line(|line| line.text.contains("holding"), SOON).unwrap();
    eventually(SOON, "all four to be held", || {
        let said = fixture.run("explain n3 --json").json();
        said["found"][0]["claimed_by"].is_string().then_some(())
    });
    let dry = fixture.run("cancel n2 --reason x --dry-run --json").json();
    assert_eq!(dry["result"], "would_ask");
    // In the middle of its key, behind one that runs.
    let asked = fixture.run("cancel n2 --reason x");
    assert!(asked.code == 0 && asked.out.starts_with("asked: ") && asked.out.contains("holder"), "{asked:?}");
    eventually(SOON, "it to end although the run before it goes on", || {
        let said = fixture.run("explain n2 --json").json();
        (said["found"][0]["is"] == "mark" && said["found"][0]["standing"].as_str()?.starts_with("cancelled "))
            .then_some(())
    });
    // It runs, and does not heed that it is asked to stop: it stays, and says who asked.
    let running = fixture.run("cancel hold-a --reason enough --json").json();
    assert_eq!(running["result"], "asked");
    let explained = fixture.run("explain hold-a").out;
    assert!(explained.contains("because: enough"), "{explained}");
    assert!(fixture.run("cancel hold-a --reason again").out.contains("had asked before"));
    drop(node);
}
