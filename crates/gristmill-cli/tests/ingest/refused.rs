//! Wrong input of every sort. Whatever came, the server answers the next request.

use crate::client::Wire;
use crate::fixture::{Fixture, JSON, LINES, TOKEN, job};
use serde_json::json;

#[test]
fn bad_jobs_are_named_by_line_and_nothing_is_enqueued() {
    let fixture = Fixture::new("--set job.max_bytes=2000");
    let large = format!("{{\"key\":\"k\",\"kind\":\"x\",\"payload\":\"{}\"}}", "x".repeat(3000));
    let lines = [
        &job("good", "k"),
        "",
        "{\"key\":\"k\",\"kind\":\"x\"}",
        "not json",
        "{\"key\":\"k\",\"kind\":\"x\",\"payload\":1,\"more\":2}",
        "{\"key\":\"k\",\"kind\":\"x\",\"payload\":1,\"version\":-1}",
        "{\"key\":\"\",\"kind\":\"x\",\"payload\":1}",
        "{\"id\":\"a\\u0000\",\"key\":\"k\",\"kind\":\"x\",\"payload\":1}",
        "{\"key\":\"k\",\"kind\":\"a b\",\"payload\":1}",
        "{\"key\":\"k\",\"key\":\"k\",\"kind\":\"x\",\"payload\":1}",
        "[]",
        "{\"key\":\"k\",\"kind\":\"x\",\"payload\":1} {}",
        "{\"key\":1.5,\"kind\":\"x\",\"payload\":1}",
        "{\"key\":\"k\",\"kind\":\"x\",\"payload\":",
        &large,
    ];
    let answer = fixture.post(LINES, lines.join("\n"));
    assert_eq!((answer.status, answer.code().as_str()), (400, "bad_jobs"));
    let told = answer.json();
    assert_eq!(told["bad"], lines.len() - 2);
    let parts = [
        (3, "no field `payload`"),
        (4, "expected a JSON object, got \"not json\""),
        (5, "unknown field `more`"),
        (6, "`version` is the version"),
        (7, "got none"),
        (8, "a job id is 1 to 256 bytes"),
        (9, "a kind is 1 to 128 bytes"),
        (10, "duplicate field `key`"),
        (11, "expected a JSON object, got \"[]\""),
        (12, "trailing characters"),
        (13, "`key`: expected a text or a whole number"),
        (14, "not JSON"),
        (15, "2000"),
    ];
    let reasons = told["reasons"].as_array().unwrap();
    assert_eq!(reasons.len(), parts.len());
    for (reason, (line, part)) in reasons.iter().zip(parts) {
        assert_eq!(reason["line"], line, "{reason}");
        assert!(reason["reason"].as_str().unwrap().contains(part), "{part:?} in {reason}");
    }
    let item = fixture.post(JSON, format!("[{}, 7]", job("good", "k"))).json();
    assert_eq!(item["reasons"], json!([{ "item": 2, "reason": "expected a JSON object, got \"7\"" }]));
    let many = fixture.post(LINES, "x\n".repeat(500)).json();
    assert_eq!((&many["bad"], many["reasons"].as_array().unwrap().len()), (&json!(500), 100));
    let bytes = fixture.post(LINES, b"{\"key\":\"\xff\"}").json();
    assert!(bytes["reasons"][0]["reason"].as_str().unwrap().contains("not UTF-8"), "{bytes}");
    assert_eq!(fixture.stored(), 0);
}

#[test]
fn bodies_that_are_no_jobs_are_refused_whole() {
    let fixture = Fixture::new("--set ingest.max_jobs=3");
    let deep = "[".repeat(100_000);
    for (content_type, body) in [
        (JSON, String::new()),
        (JSON, "[]".into()),
        (JSON, " \n".into()),
        (LINES, "\n\n".into()),
        (JSON, "[1,".into()),
        (JSON, format!("[{}] x", job("a", "k"))),
        (JSON, format!("{}{}", job("a", "k"), job("b", "k"))),
        (JSON, "\"text\"".into()),
        (JSON, deep.clone()),
        (JSON, format!("{{\"key\":\"k\",\"kind\":\"x\",\"payload\":{deep}")),
    ] {
        let answer = fixture.post(content_type, &body);
        assert_eq!(answer.status, 400, "{:?}: {answer:?}", &body[..body.len().min(40)]);
        assert!(answer.body.len() < 1000, "{answer:?}");
    }
    let four = [job("1", "k"), job("2", "k"), job("3", "k"), job("4", "k")];
    for (content_type, body) in [(LINES, four.join("\n")), (JSON, format!("[{}]", four.join(",")))] {
        let answer = fixture.post(content_type, body);
        assert_eq!((answer.status, answer.code().as_str()), (413, "too_many_jobs"));
    }
    assert_eq!(fixture.stored(), 0);
    // What nests deeply and is whole is a payload like any other.
    let nested =
        format!("{{\"key\":\"k\",\"kind\":\"x\",\"payload\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
    assert_eq!(fixture.post(JSON, nested).status, 200);
}

#[test]
fn types_and_codings_that_are_not_read_are_refused() {
    let fixture = Fixture::new("");
    for headers in [
        "",
        "Content-Type: text/plain\r\n",
        "Content-Type: application/json; charset=utf-16\r\n",
        "Content-Type: \u{e9}\r\n",
        "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
    ] {
        let answer = fixture.ask("POST", "/v1/queues/q/jobs", headers, job("a", "k").as_bytes());
        assert_eq!(answer.status, 415, "{headers}: {answer:?}");
    }
    assert_eq!(fixture.stored(), 0);
}

#[test]
fn paths_and_queues_that_are_none_are_told_apart_from_those_that_are() {
    let fixture = Fixture::new("");
    let json = format!("Content-Type: {JSON}\r\n");
    for path in [
        "/",
        "/v1",
        "/v1/queues/q",
        "/v1/queues/q/jobs/",
        "/v2/queues/q/jobs",
        "/v1/jobs/",
        "/v1/jobs/%zz",
        "*",
    ] {
        let answer = fixture.ask("POST", path, &json, b"");
        assert_eq!((answer.status, answer.code().as_str()), (404, "unknown_path"), "{path}");
    }
    for queue in ["nowhere", "Q", "q%0d%0aX:%201", "%7Bq%7D", "..", "%2e%2e%2fq"] {
        let path = format!("/v1/queues/{queue}/jobs");
        let answer = fixture.ask("POST", &path, &json, job("a", "k").as_bytes());
        assert_eq!((answer.status, answer.code().as_str()), (404, "unknown_queue"), "{path}");
        assert!(answer.header("x").is_none());
    }
    for method in ["GET", "PUT", "DELETE", "HEADS"] {
        let answer = fixture.ask(method, "/v1/queues/q/jobs", &json, job("a", "k").as_bytes());
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")), "{method}");
    }
    assert_eq!(fixture.stored(), 0);
}

#[test]
fn bodies_that_are_too_large_are_refused_before_and_while_they_come() {
    let fixture = Fixture::new("--set ingest.max_body_bytes=4096");
    // Announced, and never sent.
    let mut announced = fixture.begun(1_000_000_000_000);
    announced.hang_up();
    assert_eq!(fixture.heard("/v1/queues/q/jobs", &mut announced).code(), "body_too_large");
    let head = format!(
        "POST /v1/queues/q/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: {LINES}\r\n"
    );
    // Ten times as much as allowed, unannounced: its sender hears why.
    let mut chunked = Wire::open(fixture.address);
    let chunk = format!("1000\r\n{}\r\n", " ".repeat(4096));
    chunked.say(format!("{head}Transfer-Encoding: chunked\r\n\r\n"));
    chunked.say(chunk.repeat(10) + "0\r\n\r\n");
    assert_eq!(fixture.heard("/v1/queues/q/jobs", &mut chunked).code(), "body_too_large");
    // Without an end: cut off.
    let mut endless = Wire::open(fixture.address);
    endless.say(format!("{head}Transfer-Encoding: chunked\r\n\r\n"));
    let megabyte = format!("100000\r\n{}\r\n", " ".repeat(1 << 20));
    let sent = (0..1000).take_while(|_| endless.try_say(&megabyte)).count();
    assert!(sent < 100, "{sent} megabytes were read of a body that may have 4096 bytes");
    // One that waits to be asked for its body is not asked.
    let mut waits = Wire::open(fixture.address);
    waits.say(format!("{head}Expect: 100-continue\r\nContent-Length: 5000\r\n\r\n"));
    assert_eq!(fixture.heard("/v1/queues/q/jobs", &mut waits).status, 413);
    assert_eq!(fixture.post(JSON, job("a", "k")).status, 200, "it serves on");
}

#[test]
fn what_is_no_http_ends_with_its_connection() {
    let fixture = Fixture::new("");
    let auth = format!("Host: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: {LINES}\r\n");
    let flood: String = (0..500).map(|n| format!("X-{n}: {n}\r\n")).collect();
    for garbage in [
        "\0\0\0\0\r\n\r\n".to_owned(),
        "GET\r\n\r\n".into(),
        "\x16\x03\x01\x02\x00\x01\r\n\r\n".into(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(),
        "GET /v1/openapi.json HTTP/9.9\r\n\r\n".into(),
        format!("GET /v1/openapi.json HTTP/1.1\r\n{flood}\r\n"),
        format!("GET /v1/openapi.json HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(200_000)),
        format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(200_000)),
        format!("POST /v1/queues/q/jobs HTTP/1.1\r\n{auth}Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx"),
        format!("POST /v1/queues/q/jobs HTTP/1.1\r\n{auth}Content-Length: -1\r\n\r\n"),
        format!("POST /v1/queues/q/jobs HTTP/1.1\r\n{auth}Content-Length: 99999999999999999999999\r\n\r\n"),
    ] {
        let mut wire = Wire::open(fixture.address);
        let sent = wire.try_say(&garbage);
        // Where it had enough before all was sent, its answer may be lost with the connection.
        if let Some(answer) = wire.hear() {
            assert!((400..=431).contains(&answer.status), "{:?}: {answer:?}", &garbage[..20]);
        } else {
            assert!(sent || garbage.len() > 100_000, "{:?}", &garbage[..20]);
        }
        assert!(wire.hear().is_none(), "{:?}: the connection stays", &garbage[..20]);
    }
    assert_eq!(fixture.stored(), 0);
    assert_eq!(fixture.post(JSON, job("a", "k")).status, 200, "it serves on");
}

#[test]
fn one_connection_carries_many_requests_and_none_in_the_body_of_another() {
    let fixture = Fixture::new("");
    let path = "/v1/queues/q/jobs";
    let request = |id: &str, more: &str, framed: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: {JSON}\r\n{more}\r\n{}",
            framed.replace("JOB", &job(id, "k"))
        )
    };
    let length = format!("Content-Length: {}\r\n", job("0", "k").len());
    let mut wire = Wire::open(fixture.address);
    // A request as the payload of another stays a payload.
    let inner = request("9", &length, "JOB");
    let smuggled = json!({ "id": "s", "key": "k", "kind": "x", "payload": inner }).to_string();
    wire.say(request("", &format!("Content-Length: {}\r\n", smuggled.len()), &smuggled.replace("JOB", "")));
    assert_eq!(fixture.heard(path, &mut wire).json()["jobs"][0]["id"], "s");
    for id in ["1", "2"] {
        wire.say(request(id, &length, "JOB"));
        assert_eq!(fixture.heard(path, &mut wire).json()["jobs"][0]["id"], id);
    }
    // Two lengths that disagree: chunks win or it is refused, and what is left over is never a job.
    let chunk = format!("{:x}\r\nJOB\r\n0\r\n\r\n", job("3", "k").len());
    wire.say(request("3", &format!("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n{length}"), &chunk));
    if let Some(answer) = wire.hear() {
        assert!(answer.status == 400 || answer.json()["jobs"][0]["id"] == "3", "{answer:?}");
    }
    assert!(fixture.stored() <= 4);
}

#[test]
fn a_head_that_does_not_come_is_not_waited_for() {
    let fixture = Fixture::new("");
    let mut silent = Wire::open(fixture.address);
    let mut half = Wire::open(fixture.address);
    half.say("POST /v1/queues/q/jobs HTTP/1.1\r\nHost: x\r\nX: ");
    let mut idle = Wire::open(fixture.address);
    idle.say("GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(fixture.heard("/v1/openapi.json", &mut idle).status, 200);
    for (name, wire) in [("silent", &mut silent), ("half", &mut half), ("idle", &mut idle)] {
        let answer = wire.hear();
        assert!(answer.as_ref().is_none_or(|answer| answer.status == 408), "{name}: {answer:?}");
    }
}
