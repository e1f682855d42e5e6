//! What a process answers about itself, whatever happens to it and to Redis.

use crate::asked::{address, get, metric, say, status, wait_metric};
use crate::fixture::{Fixture, SOON};
use gristmill_testkit::eventually;
use gristmill_testkit::process::{Process, Signal};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};

const LISTEN: &str = "--set health.listen=127.0.0.1:0";

#[track_caller]
fn wait_status(address: SocketAddr, path: &str, wanted: u16) {
    eventually(SOON, &format!("{path} answers {wanted}"), || (status(address, path) == wanted).then_some(()));
}

fn healthcheck(fixture: &Fixture, address: SocketAddr) -> (i32, String) {
    let said = fixture.run(&format!("healthcheck --set health.listen={address}"));
    (said.code, said.out + &said.err)
}

#[test]
fn a_node_is_ready_from_its_first_contact_with_redis_until_it_leaves() {
    let mut fixture = Fixture::new();
    fixture.enqueue("hold", &["a"]);
    fixture.server.kill().unwrap();
    let mut node = fixture.stubborn(&format!("node --queues q:4 {LISTEN} --set drain.window_ms=60000"));
    let at = address(&node);
    // Absent at the start: it lives and has started, and is not ready.
    wait_metric(at, "redis_up", |up| up == 0.0);
    wait_status(at, "/startupz", 200);
    assert_eq!((status(at, "/livez"), status(at, "/readyz")), (200, 503));
    let (code, words) = healthcheck(&fixture, at);
    assert_eq!(code, 1, "{words}");
    assert!(words.contains("not ready: Redis has not been reached yet"), "{words}");

    fixture.server.restart().unwrap();
    wait_status(at, "/readyz", 200);
    assert_eq!(healthcheck(&fixture, at), (0, "ready".into()));
    wait_metric(at, "redis_up", |up| up == 1.0);
    wait_metric(at, "worker_slots{state=\"busy\"}", |busy| busy == 1.0);

    // Lost later: that is told by a metric, and nobody is to restart or avoid it.
    fixture.server.kill().unwrap();
    wait_metric(at, "redis_up", |up| up == 0.0);
    assert!(metric(at, "redis_reconnects_total").unwrap() >= 1.0);
    assert_eq!((status(at, "/livez"), status(at, "/readyz")), (200, 200));
    fixture.server.restart().unwrap();
    wait_metric(at, "redis_up", |up| up == 1.0);

    // It leaves, and a job holds it: alive, not ready.
    node.terminate().unwrap();
    wait_status(at, "/readyz", 503);
    assert_eq!(get(at, "/readyz").body, "draining\n");
    assert_eq!((status(at, "/livez"), metric(at, "node_draining")), (200, Some(1.0)));
    assert_eq!(healthcheck(&fixture, at).0, 1);
    node.terminate().unwrap();
    assert_eq!(node.wait(SOON).unwrap().code(), Some(0));
    assert!(healthcheck(&fixture, at).1.contains("does not answer"));
}

/// More handlers hold their threads than the runtime has: nothing of the node moves, and its listener says so.
#[test]
fn a_runtime_whose_threads_are_all_held_is_seen() {
    let fixture = Fixture::new();
    let keys: Vec<String> = (0..40).map(|n| format!("k{n}")).collect();
    fixture.enqueue("block", &keys.iter().map(String::as_str).collect::<Vec<_>>());
    let node = fixture.stubborn(&format!("node --queues q:4 {LISTEN} --set health.still_ms=1000"));
    let at = address(&node);
    let said = eventually(SOON, "/livez says that it stands still", || {
        Some(get(at, "/livez")).filter(|answer| answer.status == 503)
    });
    assert!(said.body.contains("has stood still for "), "{said:?}");
    assert!(metric(at, "runtime_stalled_seconds").unwrap() > 1.0);
    assert_eq!(status(at, "/startupz"), 200);
}

#[test]
fn a_listener_bears_those_who_ask_badly() {
    let fixture = Fixture::new();
    let node = fixture.stubborn_node(LISTEN);
    let at = address(&node);
    let post = say(at, b"POST /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
    assert!(post.status == 405 && post.head.contains("allow: get, head"), "{post:?}");
    assert_eq!(status(at, "/nothing"), 404);
    let large = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    assert_eq!(say(at, large.as_bytes()).unwrap().status, 431);
    // As many as may be open at a time say half a head and nothing more: each is ended soon, and the next have their turn.
    let slow: Vec<TcpStream> = (0..64)
        .map(|_| {
            let mut stream = TcpStream::connect(at).unwrap();
            stream.write_all(b"GET /readyz HTTP/1.1\r\n").unwrap();
            stream
        })
        .collect();
    assert_eq!(status(at, "/readyz"), 200);
    drop(slow);
}

#[test]
fn an_address_that_cannot_be_is_refused_at_once() {
    let fixture = Fixture::new();
    let node = fixture.stubborn_node(LISTEN);
    let at = address(&node);
    let mut second: Process = fixture.stubborn(&format!("node --queues q:4 --set health.listen={at}"));
    assert_eq!(second.wait(SOON).unwrap().code(), Some(1));
    assert!(second.stderr_tail().contains("(health.listen)"), "{}", second.stderr_tail());
    for (args, words) in [
        ("healthcheck", "these settings have no health.listen"),
        ("healthcheck --set health.listen=9464", "health.listen: expected an address and a port"),
        ("monitor", "where shall it tell what it sees?"),
    ] {
        let said = fixture.run(args);
        assert!(said.code == 2 && said.err.contains(words), "{said:?}");
    }
}

#[test]
fn an_ingest_server_has_a_listener_of_its_own() {
    let fixture = Fixture::new();
    fixture.enqueue("x", &["a"]);
    let mut server = fixture.stubborn(&format!("ingest --listen 127.0.0.1:0 {LISTEN}"));
    let at = address(&server);
    wait_status(at, "/readyz", 200);
    let ready = server.wait_line(|line| line.text.contains(" ready "), SOON).unwrap().text;
    let ingest: SocketAddr = ready
        .split("127.0.0.1:")
        .nth(1)
        .unwrap()
        .split(|c: char| !c.is_ascii_digit())
        .next()
        .map(|port| format!("127.0.0.1:{port}").parse().unwrap())
        .unwrap();
    let body = "[{\"id\":\"x-a\",\"key\":\"a\",\"kind\":\"x\",\"payload\":1},{\"id\":\"n\",\"key\":\"a\",\"kind\":\"x\",\"payload\":1}]";
    let request = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    assert_eq!(say(ingest, request("/v1/queues/q/jobs").as_bytes()).unwrap().status, 200);
    assert_eq!(say(ingest, request("/v1/queues/none/jobs").as_bytes()).unwrap().status, 404);
    let shown = |series: &str| metric(at, series);
    assert_eq!(shown("ingest_requests_total{code=\"200\"}"), Some(1.0));
    assert_eq!(shown("ingest_requests_total{code=\"404\"}"), Some(1.0));
    assert_eq!(shown("ingest_jobs_total{queue=\"q\",status=\"enqueued\"}"), Some(1.0));
    assert_eq!(shown("ingest_jobs_total{queue=\"q\",status=\"duplicate\"}"), Some(1.0));
    assert!(!get(at, "/metrics").body.contains("queue=\"none\""), "a name that a caller chose is no label");
    assert!(shown("redis_call_duration_seconds_count{operation=\"enqueue\"}") >= Some(1.0));
    server.terminate().unwrap();
    assert_eq!(server.wait(SOON).unwrap().code(), Some(0));
}

/// Partitions that move to a node that comes, are taken over from one that died, and are lost by one that was asleep.
#[test]
fn what_befalls_leases_is_counted() {
    let fixture = Fixture::new();
    fixture.enqueue("refuse", &["a"]);
    let mut first = fixture.stubborn_node(LISTEN);
    let first_at = address(&first);
    let owned = "partitions{queue=\"q\",state=\"owned\"}";
    wait_metric(first_at, owned, |partitions| partitions == 4.0);
    let mut second = fixture.stubborn_node(LISTEN);
    let second_at = address(&second);
    wait_metric(second_at, owned, |partitions| partitions == 2.0);
    wait_metric(first_at, owned, |partitions| partitions == 2.0);
    wait_metric(first_at, "handovers_total{queue=\"q\"}", |handovers| handovers == 2.0);
    wait_metric(first_at, "handover_duration_seconds_count", |handovers| handovers == 2.0);
    assert_eq!(metric(first_at, "leases_lost_total"), Some(0.0));

    // Asleep for longer than its leases last, the second finds them gone.
    second.signal(Signal::SIGSTOP).unwrap();
    wait_metric(first_at, "recoveries_total{queue=\"q\"}", |recoveries| recoveries == 2.0);
    second.signal(Signal::SIGCONT).unwrap();
    wait_metric(second_at, "leases_lost_total", |lost| lost >= 2.0);

    first.kill().unwrap();
    wait_metric(second_at, "recoveries_total{queue=\"q\"}", |recoveries| recoveries >= 1.0);
    wait_metric(second_at, owned, |partitions| partitions == 4.0);
    assert_eq!(metric(second_at, "partitions{queue=\"q\",state=\"recovering\"}"), Some(0.0));
}
