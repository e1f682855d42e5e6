//! Every documented status and code is produced, and none besides: the sets are compared.

use crate::client::Wire;
use crate::document;
use crate::fixture::{Fixture, JSON, LINES, PARTITIONS, TOKEN, job, queue};

const PATH: &str = "/v1/queues/q/jobs";

#[test]
fn every_documented_status_and_code_is_produced() {
    let mut fixture = Fixture::new(
        "--set ingest.max_body_bytes=4096 --set ingest.max_jobs=2 --set ingest.body_timeout_ms=3000",
    );
    let typed = format!("Content-Type: {JSON}\r\n");

    // What is well.
    assert_eq!(fixture.post(JSON, job("a", "k")).status, 200);
    assert_eq!(fixture.get("/v1/jobs/a").status, 200);
    let document = fixture.get("/v1/openapi.json");
    assert_eq!((document.status, document.body.as_str()), (200, gristmill_ingest::OPENAPI));

    // What the asker is to blame for.
    assert_eq!(fixture.post(LINES, "x").code(), "bad_jobs");
    assert_eq!(fixture.post(JSON, "[1").code(), "bad_request");
    assert_eq!(fixture.get("/v1/jobs/a?no=b").code(), "bad_request");
    for path in [PATH, "/v1/jobs/a"] {
        let method = if path == PATH { "POST" } else { "GET" };
        assert_eq!(fixture.raw(method, path, &typed, b"{}").code(), "unauthorized");
    }
    assert_eq!(
        fixture.ask("POST", "/v1/queues/no/jobs", &typed, job("a", "k").as_bytes()).code(),
        "unknown_queue"
    );
    assert_eq!(fixture.get("/v1/jobs/nobody").code(), "unknown_job");
    assert_eq!(fixture.get("/v1/nothing").code(), "unknown_path");
    for path in [PATH, "/v1/jobs/a", "/v1/openapi.json"] {
        assert_eq!(fixture.ask("DELETE", path, "", b"").code(), "wrong_method");
    }
    assert_eq!(fixture.post(JSON, " ".repeat(5000)).code(), "body_too_large");
    assert_eq!(fixture.post(LINES, "x\n".repeat(3)).code(), "too_many_jobs");
    assert_eq!(fixture.post("text/plain", job("a", "k")).code(), "wrong_type");
    let mut broken = Wire::open(fixture.address);
    broken.say(format!(
        "POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n{typed}Transfer-Encoding: chunked\r\n\r\nzz\r\n"
    ));
    assert_eq!(fixture.heard(PATH, &mut broken).code(), "broken_body");

    // Slow bodies hold no more room than there is, and not for long.
    let mut slow: Vec<Wire> = (0..20).map(|_| fixture.begun(4096)).collect();
    let heard: Vec<String> = slow.iter_mut().map(|wire| fixture.heard(PATH, wire).code()).collect();
    let count = |code: &str| heard.iter().filter(|heard| *heard == code).count();
    assert_eq!((count("slow_body"), count("busy")), (16, 4), "{heard:?}");
    assert_eq!(fixture.post(JSON, job("a", "k")).status, 200);

    // What Redis is to blame for, or who owns it.
    let partitions = || (0..PARTITIONS).map(|p| queue().partition(p));
    for keys in partitions() {
        fixture.redis(&["HSET", &keys.meta, "limit", "1"]);
    }
    for wanted in ["f", "g"] {
        fixture.post(JSON, job(wanted, "k"));
    }
    assert_eq!(fixture.post(JSON, job("h", "k")).code(), "queue_full");
    for keys in partitions() {
        fixture.redis(&["HSET", &keys.meta, "limit", "0"]);
        fixture.redis(&["HSET", &keys.meta, "partitions", "8"]);
    }
    assert_eq!(fixture.post(JSON, job("i", "k")).code(), "queue_changed");
    for keys in partitions() {
        fixture.redis(&["HSET", &keys.meta, "partitions", &PARTITIONS.to_string()]);
    }
    fixture.redis(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(fixture.post(JSON, job("j", "k")).code(), "out_of_memory");
    fixture.redis(&["CONFIG", "SET", "maxmemory", "0"]);
    for keys in partitions() {
        fixture.redis(&["SET", &keys.stream, "no stream"]);
        fixture.redis(&["SET", &keys.dead, "no letters"]);
    }
    assert_eq!(fixture.post(JSON, job("k", "k")).code(), "unexpected");
    assert_eq!(fixture.get("/v1/jobs/nobody").code(), "unexpected");
    fixture.server.kill().unwrap();
    assert_eq!(fixture.post(JSON, job("l", "k")).code(), "redis_away");
    assert_eq!(fixture.get("/v1/jobs/a").code(), "redis_away");

    let (seen, codes) = fixture.seen();
    assert_eq!(seen, document::all());
    assert_eq!(codes, document::codes());
}
