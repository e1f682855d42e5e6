//! How long an id is known, a window of each queue; and how long a job of a kind may wait.

use crate::fixture::{Fixture, SOON};
use gristmill_testkit::eventually;

const SET: &str = "--set queue.short.seen_window_ms=60000 --set queue.free.seen_window_ms=70000 \
                   --set queue.gone.seen_window_ms=1 --set queue.free.ordering=none --set seen.window_ms=80000";

fn enqueued(fixture: &Fixture, queue: &str, kind: &str) -> String {
    let line =
        format!("{{\"id\":\"{queue}-{kind}\",\"key\":\"{kind}\",\"kind\":\"{kind}\",\"payload\":{{}}}}\n");
    let file = fixture.file("job", line.as_bytes());
    let said = fixture.run(&format!("enqueue {queue} --from {}", file.display()));
    assert_eq!(said.code, 0, "{said:?}");
    said.out
}

/// For how long the id is known from now on; `None` while its job lives.
fn known_ms(fixture: &Fixture, job: &str) -> Option<u64> {
    let said = fixture.run(&format!("explain {job} --json")).json();
    let until = said["found"][0]["known_until_ms"].as_u64()?;
    let now = fixture.server.command(&["TIME"]).unwrap();
    let seconds: u64 = now.as_array().unwrap()[0].as_str().unwrap().parse().unwrap();
    Some(until.saturating_sub(seconds * 1000))
}

/// Within what passed between the verdict and the look.
#[track_caller]
fn about(known: Option<u64>, window_ms: u64) {
    assert!(
        known.is_some_and(|ms| ms <= window_ms + 1000 && ms > window_ms - 10_000),
        "{known:?} of {window_ms}"
    );
}

#[test]
fn queues_of_one_node_know_ids_for_different_times() {
    let fixture = Fixture::new();
    let queues = ["short", "free", "plain", "gone"];
    let node =
        fixture.stubborn(&format!("node --queues {} {SET}", queues.map(|it| format!("{it}:2")).join(",")));
    node.wait_line(|line| line.text.contains(" ready "), SOON).unwrap();
    for queue in queues {
        assert_eq!(enqueued(&fixture, queue, "quick"), "enqueued=1 duplicates=0 bad=0");
    }
    for (queue, window_ms) in [("short", 60_000), ("free", 70_000), ("plain", 80_000)] {
        let job = format!("{queue}-quick");
        about(eventually(SOON, "a verdict", || known_ms(&fixture, &job).map(Some)), window_ms);
        assert_eq!(enqueued(&fixture, queue, "quick"), "enqueued=0 duplicates=1 bad=0");
    }
    eventually(SOON, "the id to be new again", || {
        (enqueued(&fixture, "gone", "quick") == "enqueued=1 duplicates=0 bad=0").then_some(())
    });
}

#[test]
fn whoever_acts_on_a_queue_keeps_its_window() {
    let fixture = Fixture::new();
    let node = fixture.stubborn(&format!("node --queues short:2,plain:2 {SET}"));
    node.wait_line(|line| line.text.contains(" ready "), SOON).unwrap();
    for (queue, window_ms) in [("short", 60_000), ("plain", 80_000)] {
        enqueued(&fixture, queue, "refuse");
        let (dead, job) =
            (format!("dead discard --queue {queue} --reason x --yes {SET}"), format!("{queue}-refuse"));
        eventually(SOON, "a dead letter", || fixture.run(&dead).out.contains("1 discarded").then_some(()));
        about(known_ms(&fixture, &job), window_ms);
    }
    drop(node);
    for (queue, window_ms) in [("short", 60_000), ("plain", 80_000)] {
        enqueued(&fixture, queue, "waits");
        let said = fixture.run(&format!("cancel {queue}-waits --reason x {SET}"));
        assert_eq!(said.code, 0, "{said:?}");
        about(known_ms(&fixture, &format!("{queue}-waits")), window_ms);
    }
}

/// Of a kind in code, by settings alone; a job's own word goes before it.
#[test]
fn jobs_of_a_kind_that_came_too_late_end_unrun_as_settings_say() {
    let fixture = Fixture::new();
    fixture.enqueue("quick", &["late"]);
    let own = "{\"id\":\"own\",\"key\":\"b\",\"kind\":\"quick\",\"payload\":{},\"expires_in_ms\":3600000}\n";
    let file = fixture.file("own", own.as_bytes());
    assert_eq!(fixture.run(&format!("enqueue q --from {}", file.display())).code, 0);
    let node = fixture.stubborn_node("--set kinds.quick.expires_ms=1");
    for (job, standing) in [("quick-late", "expired"), ("own", "applied")] {
        let ended = eventually(SOON, "a verdict", || {
            let found = fixture.run(&format!("explain {job} --json")).json()["found"][0].clone();
            (found["is"] == "mark").then_some(found)
        });
        assert_eq!(ended["standing"], standing, "{ended}");
    }
    drop(node);
}
