//! A node's start, its signals and its exit codes.

use crate::fixture::{Fixture, SOON, out};
use gristmill_testkit::eventually;
use gristmill_testkit::process::{Output, Process};
use gristmill_testkit::server::{Appendonly, ServerOptions};
use std::time::{Duration, Instant};

/// For the machine, beyond what is promised.
const SLACK: Duration = Duration::from_millis(700);

fn wait_said(node: &Process, what: &str, times: usize) {
    for nth in 0..times {
        let seen = std::cell::Cell::new(0);
        let found = |line: &gristmill_testkit::process::Line| {
            let hit = line.from == Output::Stderr && line.text.contains(what);
            hit && seen.replace(seen.get() + 1) == nth
        };
        node.wait_line(found, SOON).unwrap();
    }
}

#[test]
fn handlers_that_block_every_worker_do_not_delay_the_exit() {
    let fixture = Fixture::new();
    // One more than there are workers.
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let keys: Vec<String> = (0..=threads).map(|n| format!("k{n}")).collect();
    fixture.enqueue("block", &keys.iter().map(String::as_str).collect::<Vec<_>>());
    let mut node = fixture.stubborn_node("--set drain.window_ms=500 --set drain.grace_ms=2000");
    wait_said(&node, "blocking", 1);
    let began = Instant::now();
    node.terminate().unwrap();
    let status = node.wait(SOON).unwrap();
    let took = began.elapsed();
    assert!(took < Duration::from_millis(2500) + SLACK, "{took:?}");
    assert_eq!(status.code(), Some(4), "{}", node.stderr_tail());
    let said = out(&node);
    let abandoned =
        said.first().and_then(|line| line.split("abandoned=").nth(1)?.split(' ').next()?.parse::<u32>().ok());
    assert!(said.len() == 1 && abandoned.is_some_and(|count| count > 0), "{said:?}");
}

#[test]
fn one_node_serves_queues_of_both_orderings() {
    let fixture = Fixture::new();
    let both = "node --queues lanes:4,free:4 --set queue.free.ordering=none";
    let mut node = fixture.stubborn(both);
    wait_said(&node, " ready ", 1);
    let line = |n: usize| {
        format!("{{\"id\":\"j{n}\",\"key\":\"k{}\",\"kind\":\"quick\",\"payload\":{{}}}}\n", n % 7)
    };
    let file = fixture.file("jobs", (0..50).map(line).collect::<String>().as_bytes());
    for queue in ["lanes", "free"] {
        let said = fixture.run(&format!("enqueue {queue} --from {}", file.display()));
        assert_eq!(said.code, 0, "{said:?}");
    }
    let counts = |said: serde_json::Value| {
        let of = |queue: &serde_json::Value| {
            queue["waiting"].as_u64().unwrap() + queue["claimed"].as_u64().unwrap()
        };
        said["queues"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    eventually(SOON, "both queues to be empty", || {
        (counts(fixture.run("queues --json").json()) == [0, 0]).then_some(())
    });
    // Another node that knows the queue as one with an order does not begin.
    let mut other = fixture.stubborn("node --queues free:4");
    assert_eq!(other.wait(SOON).unwrap().code(), Some(1), "{}", other.stderr_tail());
    assert!(
        other.stderr_tail().contains("queue free exists with ordering \"none\""),
        "{}",
        other.stderr_tail()
    );
    node.terminate().unwrap();
    assert_eq!(node.wait(SOON).unwrap().code(), Some(0), "{}", node.stderr_tail());
}

#[test]
fn a_second_signal_ends_the_window() {
    let fixture = Fixture::new();
    fixture.enqueue("hold", &["a"]);
    let mut node = fixture.stubborn_node("");
    wait_said(&node, "holding", 1);
    let began = Instant::now();
    node.terminate().unwrap();
    wait_said(&node, "draining", 1);
    node.terminate().unwrap();
    let status = node.wait(SOON).unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "the window is 25 s: {:?}", began.elapsed());
    assert_eq!(status.code(), Some(0), "{}", node.stderr_tail());
    let said = out(&node);
    assert!(
        said.len() == 1 && said[0].starts_with("drained: finished=0 handed_back=1 abandoned=0 took_ms="),
        "{said:?}"
    );
}

#[test]
fn a_node_waits_for_redis_and_leaves_when_asked_while_it_waits() {
    let mut fixture = Fixture::new();
    fixture.server.kill().unwrap();
    let mut gone = fixture.stubborn("node --queues q:4");
    wait_said(&gone, "cannot connect to Redis", 2);
    gone.terminate().unwrap();
    assert_eq!(gone.wait(SOON).unwrap().code(), Some(0));
    assert_eq!(out(&gone), ["drained: finished=0 handed_back=0 abandoned=0 took_ms=0"]);

    let mut patient = fixture.stubborn("node --queues q:4");
    wait_said(&patient, "cannot connect to Redis", 2);
    fixture.server.restart().unwrap();
    wait_said(&patient, " ready ", 1);
    patient.terminate().unwrap();
    assert_eq!(patient.wait(SOON).unwrap().code(), Some(0));
}

#[test]
fn what_cannot_be_served_is_refused_with_a_reason() {
    let fixture =
        Fixture::with(ServerOptions::new().appendonly(Appendonly::Everysec).maxmemory(1 << 30, "noeviction"));
    let refused = |args: &str| {
        let mut node = fixture.stubborn(args);
        let code = node.wait(SOON).unwrap().code();
        (code, node.stderr_tail())
    };
    let without_handlers = fixture.run("node --queues q");
    assert_eq!((without_handlers.code, without_handlers.out.as_str()), (2, ""));
    assert!(without_handlers.err.contains("this program has no handlers"), "{without_handlers:?}");
    let (code, said) = refused("node");
    assert!(
        code == Some(2) && said.contains("queues: expected at least one queue to serve"),
        "{code:?} {said}"
    );
    let (code, said) = refused("node --queues q:4 --set lease.margin_ms=1");
    assert!(
        code == Some(2) && said.contains("lease.margin_ms: expected at least lease.renewal_ms"),
        "{code:?} {said}"
    );
    fixture.enqueue("x", &["k"]);
    let (code, said) = refused("node --queues q:5");
    assert!(
        code == Some(1) && said.contains("and 4 partitions, configured are \"key\" and 5"),
        "{code:?} {said}"
    );
    fixture.server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
    let (code, said) = refused("node --queues q:4");
    assert!(code == Some(1) && said.contains("set maxmemory-policy to noeviction"), "{code:?} {said}");
}

#[test]
fn the_log_is_json_where_that_was_asked_for() {
    let fixture = Fixture::new();
    let mut node = fixture.stubborn("node --queues q:4 --set log.format=json");
    let ready = node.wait_line(|line| line.text.contains("\"message\":\"ready\""), SOON).unwrap();
    let event: serde_json::Value = serde_json::from_str(&ready.text).unwrap();
    assert_eq!(
        (event["level"].as_str(), event["kinds"].as_str()),
        (Some("INFO"), Some("block, hold, panic, quick, refuse"))
    );
    node.signal(gristmill_testkit::process::Signal::SIGINT).unwrap();
    assert_eq!(node.wait(SOON).unwrap().code(), Some(0));
}

#[test]
fn a_handler_that_holds_its_thread_is_named_by_doctor_until_its_node_is_gone() {
    let fixture = Fixture::new();
    fixture.enqueue("block", &["a"]);
    let node = fixture.stubborn_node(
        "--set node.blocked_after_ms=1000 --set retry.max_attempts=1 --set drain.window_ms=500 --set drain.grace_ms=2000",
    );
    wait_said(&node, "blocking", 1);
    let finding = eventually(SOON, "doctor names it", || {
        let said = fixture.run("doctor --json").json();
        let findings = said["findings"].as_array().unwrap().clone();
        findings.into_iter().find(|finding| finding["check"] == "q: hung run")
    });
    let found = finding["found"].as_str().unwrap();
    for word in ["a handler of kind block has held a thread of ", "job block-a", "cannot be stopped"] {
        assert!(found.contains(word), "{word}: {found}");
    }
    assert!(finding["mend"].as_str().unwrap().starts_with("restart the node "), "{finding}");
    assert_eq!(fixture.run("doctor").code, 1, "a hung run is bad");
    // A node that died names nothing any more.
    drop(node);
    eventually(SOON, "doctor forgets it", || (!fixture.run("doctor").out.contains("hung run")).then_some(()));
}

#[test]
fn more_hung_handlers_than_spare_threads_end_the_program_with_what_to_do() {
    let fixture = Fixture::new();
    let keys: Vec<String> = (0..12).map(|n| format!("k{n}")).collect();
    fixture.enqueue("block", &keys.iter().map(String::as_str).collect::<Vec<_>>());
    let settings = "--set node.blocked_after_ms=1000 --set drain.window_ms=500 --set drain.grace_ms=2000";
    let mut node = fixture.stubborn_node(settings);
    let status = node.wait(SOON).unwrap();
    assert_eq!(status.code(), Some(1), "{}", node.stderr_tail());
    let lines: Vec<String> = node.lines().into_iter().map(|line| line.text).collect();
    let error = lines.iter().find(|line| line.starts_with("gristmill: the node gives up: ")).unwrap();
    // The spare threads, or all of them: whichever is seen first.
    assert!(error.contains("handlers hold") && error.to_lowercase().contains("restart the node"), "{error}");
    let said = out(&node);
    assert!(said.len() == 1 && !said[0].contains("abandoned=0"), "{said:?}");
}

#[test]
fn a_length_limit_is_the_nodes_to_say_and_a_full_queue_says_so() {
    let fixture = Fixture::new();
    fixture.enqueue("hold", &["a"]);
    let limit = |jobs: &str| format!("--set queue.q.length_limit={jobs}");
    let mut node = fixture.stubborn_node(&format!("--name first {}", limit("2")));
    let jobs =
        (0..9).map(|n| format!("{{\"id\":\"n{n}\",\"key\":\"a\",\"kind\":\"refuse\",\"payload\":1}}\n"));
    let file = fixture.file("many", jobs.collect::<String>().as_bytes());
    let full = fixture.run(&format!("enqueue q --from {}", file.display()));
    assert!(
        full.code == 1 && full.err.contains("a partition of queue q is at its limit of 2 jobs"),
        "{full:?}"
    );
    node.kill().unwrap();
    let node = fixture.stubborn_node(&format!("--name second {}", limit("0")));
    assert_eq!(fixture.run(&format!("enqueue q --from {}", file.display())).code, 0);
    drop(node);
}
