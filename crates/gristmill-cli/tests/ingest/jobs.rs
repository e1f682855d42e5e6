//! What goes in, in every form, and what is said of each job.

use crate::document;
use crate::fixture::{Fixture, JSON, LINES, PARTITIONS, job, queue, words};
use gristmill_job::{Envelope, partition_of};
use serde_json::{Value, json};

/// Id, version and payload of what lies in the streams, in the order of each.
fn entries(fixture: &Fixture) -> Vec<(String, u64, String)> {
    let mut all = Vec::new();
    for partition in 0..PARTITIONS {
        let stream = queue().partition(partition).stream;
        let reply = fixture.redis(&["XRANGE", &stream, "-", "+"]);
        for entry in reply.as_array().unwrap() {
            let fields = entry.as_array().unwrap()[1].as_array().unwrap();
            let gristmill_testkit::server::Reply::Bulk(envelope) = &fields[5] else { panic!("{fields:?}") };
            let envelope = Envelope::decode(envelope, 1 << 20).unwrap();
            let payload = String::from_utf8(envelope.payload.to_vec()).unwrap();
            all.push((fields[1].as_str().unwrap().to_owned(), envelope.version, payload));
        }
    }
    all
}

#[test]
fn one_job_an_array_and_lines_go_in_as_they_were_written() {
    let fixture = Fixture::new("");
    let one = "{\"id\": 7, \"key\": 9, \"version\": \"18446744073709551615\", \"kind\": \"x\", \"payload\": {\"p\":  1.10}}";
    let answer = fixture.post(JSON, one).json();
    let place = answer["jobs"][0]["place"].as_str().unwrap();
    assert!(place.split_once('-').is_some_and(|(ms, _)| ms.parse::<u64>().is_ok()), "{answer}");
    assert_eq!(answer["jobs"][0]["id"], "7");
    assert_eq!(entries(&fixture), [("7".into(), u64::MAX, "{\"p\":  1.10}".into())]);

    let many = format!("[{},\n {}]", job("a", "k"), job("b", "k"));
    let answer = fixture.post("application/json; charset=utf-8", many).json();
    assert_eq!((words(&answer), &answer["enqueued"]), (vec!["enqueued"; 2], &json!(2)));
    let lines = format!("{}\r\n\n{}", job("c", "k"), "{\"key\":\"k\",\"kind\":\"x\",\"payload\":null}");
    let answer = fixture.post(LINES, lines).json();
    assert_eq!(words(&answer), ["enqueued"; 2]);
    let made = answer["jobs"][1]["id"].as_str().unwrap();
    assert_eq!(made.len(), 36, "an id that we made: {answer}");
    let of_key: Vec<String> =
        entries(&fixture).into_iter().map(|entry| entry.0).filter(|id| id != "7").collect();
    assert_eq!(of_key, ["a", "b", "c", made], "jobs of one key keep their order");
}

#[test]
fn a_repeat_hears_how_the_first_one_stands() {
    let fixture = Fixture::new("");
    let first = fixture.post(JSON, job("a", "k")).json();
    let body = format!("[{},{},{}]", job("a", "k"), job("new", "k"), job("new", "k"));
    let answer = fixture.post(JSON, body).json();
    assert_eq!(words(&answer), ["duplicate", "enqueued", "duplicate"]);
    assert_eq!((&answer["enqueued"], &answer["duplicates"]), (&json!(1), &json!(2)));
    assert_eq!(
        answer["jobs"][0],
        json!({ "status": "duplicate", "id": "a", "first": { "standing": "waiting", "name": first["jobs"][0]["place"] } })
    );
    let keys = queue().partition(partition_of(b"k", PARTITIONS));
    let mark_of_a = String::from_utf8(keys.seen(b"a")).unwrap();
    for (mark, expected) in [
        ("applied", json!({ "standing": "applied", "name": null })),
        ("stale", json!({ "standing": "stale", "name": null })),
        ("dead 0-1-0-0-5", json!({ "standing": "dead", "name": "0-1-0-0-5" })),
    ] {
        fixture.redis(&["SET", &mark_of_a, mark]);
        assert_eq!(fixture.post(JSON, job("a", "k")).json()["jobs"][0]["first"], expected);
    }
    fixture.redis(&["SET", &mark_of_a, "discarded"]);
    assert_eq!(words(&fixture.post(JSON, job("a", "k")).json()), ["enqueued"], "it may come again");
}

#[test]
fn a_full_partition_refuses_its_jobs_and_says_so_of_each() {
    let fixture = Fixture::new("");
    let full = partition_of(b"a", PARTITIONS);
    let elsewhere = |key: &String| partition_of(key.as_bytes(), PARTITIONS) != full;
    let other = (0..).map(|n| format!("b{n}")).find(elsewhere).unwrap();
    fixture.redis(&["HSET", &queue().partition(full).meta, "limit", "1"]);
    let body = [("1", "a"), ("2", &other), ("3", "a")].map(|(id, key)| job(id, key)).join("\n");
    let answer = fixture.post(LINES, &body);
    assert_eq!((answer.status, answer.code().as_str()), (429, "queue_full"));
    assert_eq!(words(&answer.json()), ["refused", "enqueued", "refused"]);
    assert_eq!(fixture.stored(), 1);
    fixture.redis(&["HSET", &queue().partition(full).meta, "limit", "2"]);
    let answer = fixture.post(LINES, &body).json();
    assert_eq!(words(&answer), ["enqueued", "duplicate", "enqueued"], "the same body again");
}

#[test]
fn the_examples_of_the_document_are_as_it_says_and_are_taken() {
    let fixture = Fixture::new("");
    let document = document::document();
    let content = &document["paths"]["/v1/queues/{queue}/jobs"]["post"]["requestBody"]["content"];
    let mut taken = 0;
    for (content_type, of) in content.as_object().unwrap() {
        for (name, example) in of["examples"].as_object().unwrap() {
            document::check(&of["schema"], &example["value"], &document, name);
            let body = match &example["value"] {
                Value::String(lines) => lines.clone(),
                value => value.to_string(),
            };
            let answer = fixture.post(content_type, body);
            assert_eq!(answer.status, 200, "{answer:?}");
            taken += 1;
        }
    }
    assert_eq!(taken, 3);
}

#[test]
fn a_job_is_explained_as_the_command_line_does() {
    let fixture = Fixture::new("");
    fixture.post(JSON, job("a/b c", "k"));
    let told = fixture.get("/v1/jobs/a%2Fb%20c").json();
    assert_eq!((&told["job"], &told["found"][0]["is"]), (&json!("a/b c"), &json!("in_stream")));
    assert_eq!(told["found"][0]["kind"], "charge");
    assert_eq!(told["found"][0]["why"][0]["code"], "no_owner");
    let place = format!("{}:{}", told["found"][0]["partition"], told["found"][0]["place"].as_str().unwrap());
    let by_place = fixture.get(&format!("/v1/jobs/{place}?queue=q")).json();
    assert_eq!(by_place["found"][0]["id"], "a/b c");
    for (path, status, part) in [
        (format!("/v1/jobs/{place}"), 400, "?queue=NAME"),
        ("/v1/jobs/9:1-1?queue=q".into(), 400, "partitions 0 to 3"),
        ("/v1/jobs/a?queue=nowhere".into(), 404, "there is no queue"),
        ("/v1/jobs/a?queue=No%20Name".into(), 404, "there is no queue"),
        ("/v1/jobs/a?scan=1".into(), 400, "?queue=NAME"),
        ("/v1/jobs/nobody".into(), 404, "looked through 1 jobs and 0 dead letters"),
    ] {
        let answer = fixture.get(&path);
        assert!(answer.status == status && answer.body.contains(part), "{path}: {answer:?}");
    }
}

#[test]
fn a_job_for_later_is_taken_named_and_explained() {
    let fixture = Fixture::new("");
    let later = |more: &str| format!("{{\"id\":\"l\",\"key\":\"k\",\"kind\":\"x\",\"payload\":1,{more}}}");
    let answer = fixture.post(JSON, later("\"in_ms\": 3600000")).json();
    assert_eq!((words(&answer), &answer["jobs"][0]["place"]), (vec!["enqueued"], &Value::Null));
    let member = answer["jobs"][0]["delayed"].as_str().unwrap().to_owned();
    assert!(member.ends_with(":1:l"), "{answer}");
    assert!(entries(&fixture).is_empty(), "not before it is due");
    let explained = fixture.get("/v1/jobs/l").json();
    let found = &explained["found"][0];
    assert_eq!((&found["is"], &found["member"]), (&json!("delayed"), &json!(member)), "{explained}");
    let left = found["due_ms"].as_u64().unwrap() - found["now_ms"].as_u64().unwrap();
    assert!((3_000_000..=3_600_000).contains(&left), "{explained}");
    let again = fixture.post(JSON, later("\"at\": \"2026-01-01T00:00:00Z\"")).json();
    assert_eq!(again["jobs"][0]["first"], json!({ "standing": "waiting", "name": member }));

    let expiring = later("\"expires_in_ms\": 3600000").replace("\"l\"", "\"e\"");
    assert_eq!(words(&fixture.post(JSON, expiring).json()), ["enqueued"]);
    let found = fixture.get("/v1/jobs/e").json()["found"][0].clone();
    let (now, until) = (found["now_ms"].as_u64().unwrap(), found["expires_at_ms"].as_u64().unwrap());
    assert!((1..=3_600_000).contains(&(until - now)), "{found}");

    let at = |at: &str| later(&format!("\"at\": {at}")).replace("\"l\"", &json!(at).to_string());
    for past in ["\"2020-01-01T00:00:00+01:00\"", "1", "\"1\""] {
        let answer = fixture.post(JSON, at(past)).json();
        assert!(answer["jobs"][0]["place"].is_string(), "{past}: {answer}");
    }
    for (bad, why) in [
        ("\"at\": 1, \"in_ms\": 1", "leave one out"),
        ("\"at\": \"tomorrow\"", "expected a time"),
        ("\"at\": null", "a text or a whole number"),
        ("\"at\": 1798099200000000", "within ten years"),
        ("\"in_ms\": -1", "a whole number of 0 or more"),
        ("\"in_ms\": 1.5", "a text or a whole number"),
        ("\"expires_in_ms\": -1", "a whole number of 0 or more"),
        ("\"expires_in_ms\": null", "a text or a whole number"),
        ("\"in_ms\": 999999999999999", "within ten years"),
    ] {
        let refused = fixture.post(JSON, later(bad));
        assert_eq!(refused.code(), "bad_jobs", "{bad}");
        assert!(refused.body.contains(why), "{bad}: {}", refused.body);
    }
}
