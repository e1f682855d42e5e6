//! The request, the table of statuses, answers, redirects, signatures.

use crate::fixture::{Kind, at, http, job, kind, ms, said, told};
use crate::site::{Heard, Reply, Site, json, with};
use gristmill_handler::Answer;
use gristmill_job::{ContentType, EntityChange, NewJob};
use gristmill_remote::http::signature::secret;
use gristmill_remote::http::status::StatusTable;
use gristmill_remote::{KindConfig, Limits, Remote, Way};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn unix_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

#[tokio::test]
async fn a_request_carries_the_payload_and_what_there_is_to_know() {
    let site = Site::saying(with(204, "", "")).await;
    let mut config = http(&site.url("/jobs?x=1"));
    config.token = Some("t0ken".into());
    let kind =
        Kind::new(KindConfig { limits: Limits { soft: None, hard: ms(9000) }, ..kind(Way::Http(config)) });
    let sent = job("{\"price\": 150}").with_header("Traceparent", TRACE).with_header("tracestate", "a=b");
    let before = unix_ms();
    assert!(matches!(kind.run(&sent).await, Answer::Done(effects) if effects.is_empty()));
    let heard = &site.heard()[0];
    assert_eq!(
        (heard.first.as_str(), heard.body.as_slice()),
        ("POST /jobs?x=1 HTTP/1.1", &b"{\"price\": 150}"[..])
    );
    for (name, value) in [
        ("host", site.address.to_string().as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json"),
        ("authorization", "Bearer t0ken"),
        ("idempotency-key", "prices:a1"),
        ("gristmill-id", "a1"),
        ("gristmill-key", "sku-1"),
        ("gristmill-kind", "price.changed"),
        ("gristmill-queue", "prices"),
        ("gristmill-version", "7"),
        ("gristmill-attempt", "3"),
        ("gristmill-recovered", "false"),
        ("traceparent", TRACE),
        ("tracestate", "a=b"),
    ] {
        assert_eq!(heard.header(name), Some(value), "{name}");
    }
    let deadline: u64 = heard.header("gristmill-deadline-ms").unwrap().parse().unwrap();
    assert!((before + 9000..=unix_ms() + 9000).contains(&deadline), "{deadline}");
    assert_eq!(heard.header("webhook-signature"), None, "nobody gave a secret");
}

#[tokio::test]
async fn nothing_a_producer_chose_adds_a_header_or_a_request() {
    let site = Site::saying(with(200, "", "")).await;
    let kind = Kind::new(at(&site.url("/")));
    let evil = "a\r\nX-Evil: 1\r\n\r\nPOST /evil HTTP/1.1\r\n\r\n";
    let mut sent = NewJob::from_bytes("price.changed", evil, "{}", ContentType::Json).unwrap();
    sent = sent.with_id("é %").unwrap();
    sent = sent.with_header("traceparent", &format!("{TRACE}\r\nX-Evil: 1")).with_header("X-Evil", "1");
    assert_eq!(told(&kind.run(&sent).await).0, "done");
    let also = job("{}").with_header("traceparent", TRACE).with_header("tracestate", "a=b\r\nX-Evil: 1");
    assert_eq!(told(&kind.run(&also).await).0, "done");
    let heard = site.heard();
    assert_eq!(heard.len(), 2);
    assert!(heard.iter().all(|heard| heard.first == "POST / HTTP/1.1" && heard.header("x-evil").is_none()));
    assert_eq!(
        heard[0].header("gristmill-key"),
        Some("a%0D%0AX-Evil:%201%0D%0A%0D%0APOST%20/evil%20HTTP/1.1%0D%0A%0D%0A")
    );
    assert_eq!(heard[0].header("gristmill-id"), Some("%C3%A9%20%25"));
    assert_eq!((heard[0].header("traceparent"), heard[1].header("tracestate")), (None, None));
    assert_eq!(heard[1].header("traceparent"), Some(TRACE));
}

#[tokio::test]
async fn every_status_means_what_the_table_says() {
    let status = std::sync::Arc::new(AtomicU16::new(0));
    let shown = std::sync::Arc::clone(&status);
    let site = Site::start(move |_| with(shown.load(Ordering::SeqCst), "", "")).await;
    let kind = Kind::new(at(&site.url("/")));
    for code in 200..=599 {
        status.store(code, Ordering::SeqCst);
        let expected = match code {
            200..=299 => "done",
            300..=399 | 401 | 403 | 404 | 405 | 407 => "unknown",
            408 | 421 | 423 | 425 | 429 | 500..=599 => "transient",
            _ => "permanent",
        };
        let (outcome, text) = kind.ask().await;
        assert_eq!(outcome, expected, "{code}: {text}");
        assert!(code < 300 || text.contains(&format!("/ answered {code}")), "{text}");
    }
    assert_eq!(site.heard().iter().map(|heard| heard.connection).max(), Some(0), "one connection for all");
}

#[tokio::test]
async fn a_kind_may_say_otherwise_and_errors_keep_what_was_said() {
    let site = Site::start(|heard| {
        let status =
            heard.first.split('/').nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap();
        with(status, "Content-Type: text/plain\r\n", "no such sku, sorry")
    })
    .await;
    let texts = ["404=discard", "409=done", "500=permanent", "503=review", "4xx=transient", "201=unknown"];
    let status = StatusTable::new(&texts.map(str::to_owned)).unwrap();
    for (code, expected) in [
        (404, "discarded"),
        (409, "done"),
        (500, "permanent"),
        (503, "review"),
        (422, "transient"),
        (201, "unknown"),
        (502, "transient"),
        (200, "done"),
    ] {
        let mut config = http(&site.url(&format!("/{code}")));
        config.status = status.clone();
        let (outcome, text) = Kind::new(kind(Way::Http(config))).ask().await;
        assert_eq!(outcome, expected, "{code}: {text}");
        assert!(expected == "done" || text.ends_with("no such sku, sorry"), "{text}");
    }
}

#[tokio::test]
async fn retry_after_is_obeyed() {
    let date = httpdate_in(Duration::from_secs(90));
    for (status, header, least, most) in [
        (429, "Retry-After: 7\r\n".to_owned(), 7, 7),
        (503, format!("Retry-After: {date}\r\n"), 80, 90),
        (401, "Retry-After: 2\r\n".to_owned(), 2, 2),
    ] {
        let site = Site::saying(with(status, &header, "")).await;
        match Kind::new(at(&site.url("/"))).run(&job("1")).await {
            Answer::Failed(failure) => {
                let wait = failure.retry_after.unwrap().as_secs();
                assert!((least..=most).contains(&wait), "{status}: {wait}");
            }
            other => panic!("{other:?}"),
        }
    }
    for header in ["", "Retry-After: soon\r\n"] {
        let site = Site::saying(with(503, header, "")).await;
        match Kind::new(at(&site.url("/"))).run(&job("1")).await {
            Answer::Failed(failure) => assert_eq!(failure.retry_after, None),
            other => panic!("{other:?}"),
        }
    }
}

fn httpdate_in(wait: Duration) -> String {
    httpdate::fmt_http_date(SystemTime::now() + wait)
}

#[tokio::test]
async fn a_json_body_may_carry_effects_jobs_or_a_snooze() {
    let body = r#"{"ok":1,"gristmill":{"state":{"price":150},"emit":[{"queue":"mail","kind":"m","key":"k","payload":[1]}]}}"#;
    let site = Site::saying(json(body)).await;
    match Kind::new(at(&site.url("/"))).run(&job("1")).await {
        Answer::Done(effects) => {
            assert_eq!(effects.entity, Some(EntityChange::Put("{\"price\":150}".into())));
            assert_eq!((effects.emit[0].0.as_str(), &effects.emit[0].1.payload[..]), ("mail", &b"[1]"[..]));
        }
        other => panic!("{other:?}"),
    }
    for (reply, outcome, text) in [
        (json(r#"{"gristmill":{"snooze_ms":1500}}"#), "snoozed", "1500 ms"),
        (json(r#"{"gristmill":{"outcome":"permanent","error":"why"}}"#), "permanent", "why"),
        (json(r#"{"gristmill":{"snoze_ms":1500}}"#), "permanent", "unknown field `snoze_ms`"),
        (json("<html>"), "permanent", "expected JSON, got 6 bytes"),
        (json(r#"{"received":true}"#), "done", ""),
        (json(""), "done", ""),
        (with(200, "Content-Type: text/html\r\n", r#"{"gristmill":{"snooze_ms":1500}}"#), "done", ""),
        (
            with(200, "Content-Type: application/problem+json\r\n", r#"{"gristmill":{"snooze_ms":1}}"#),
            "snoozed",
            "1 ms",
        ),
        (
            with(500, "Content-Type: application/json\r\n", r#"{"gristmill":{"snooze_ms":1}}"#),
            "transient",
            "answered 500",
        ),
    ] {
        let site = Site::saying(reply.clone()).await;
        let (got, error) = Kind::new(at(&site.url("/"))).ask().await;
        assert!(got == outcome && error.contains(text), "{reply:?}: {got} {error}");
    }
}

#[tokio::test]
async fn redirects_are_followed_on_the_same_host_only_and_with_the_same_request() {
    let other = Site::saying(with(200, "", "")).await;
    let (elsewhere, port) = (other.url("/stolen"), other.address.port());
    let site = Site::start(move |heard| {
        let to = |status: u16, place: &str| with(status, &format!("Location: {place}\r\n"), "moved");
        match heard.first.split(' ').nth(1).unwrap() {
            "/a" => to(307, "/b?q=1"),
            "/b?q=1" => {
                let own = heard.header("host").unwrap().to_owned();
                to(308, &format!("http://{own}/c"))
            }
            "/c" => with(200, "", ""),
            "/loop" => to(307, "/loop"),
            "/other" => to(307, &elsewhere),
            "/scheme" => to(308, "https://127.0.0.1/"),
            "/bare" => to(307, &format!("//127.0.0.1:{port}/")),
            "/user" => to(307, &format!("http://u:p@{}/c", heard.header("host").unwrap())),
            "/none" => with(307, "", ""),
            "/garbage" => to(307, "ht!tp:::\\"),
            "/302" => to(302, "/c"),
            "/303" => to(303, "/c"),
            path => panic!("{path}"),
        }
    })
    .await;
    let token = |path: &str| {
        let mut config = http(&site.url(path));
        config.token = Some("t0ken".into());
        Kind::new(kind(Way::Http(config)))
    };
    assert_eq!(token("/a").ask().await.0, "done");
    let heard = site.heard();
    assert_eq!(heard.len(), 3);
    let same = |heard: &Heard| heard.body == b"{\"price\":1}" && heard.first.starts_with("POST ");
    assert!(heard.iter().all(same) && heard[2].header("authorization") == Some("Bearer t0ken"));
    for path in ["/other", "/scheme", "/bare", "/user", "/none", "/garbage", "/302", "/303"] {
        let before = site.heard().len();
        let (outcome, text) = token(path).ask().await;
        assert_eq!(outcome, "unknown", "{path}: {text}");
        assert!(text.contains("which is not followed") || path == "/none", "{path}: {text}");
        assert_eq!(site.heard().len(), before + 1, "{path}");
    }
    let before = site.heard().len();
    let (outcome, text) = token("/loop").ask().await;
    assert!(outcome == "unknown" && text.contains("more than 3 redirects"), "{outcome} {text}");
    assert_eq!(site.heard().len(), before + 4);
    assert_eq!(other.heard().len(), 0, "nobody else was asked");
}

#[tokio::test]
async fn a_signature_holds_for_its_id_time_and_body_alone() {
    let site = Site::saying(with(200, "", "")).await;
    let (new, old) =
        (b"a secret of our own".to_vec(), secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap());
    let mut config = http(&site.url("/"));
    config.secrets = vec![new.clone(), old.clone()];
    let kind = Kind::new(kind(Way::Http(config)));
    kind.run(&job("{\"a\":1}").with_id("x.1").unwrap()).await;
    let heard = &site.heard()[0];
    let (id, time) = (heard.header("webhook-id").unwrap(), heard.header("webhook-timestamp").unwrap());
    assert_eq!((id, heard.header("idempotency-key")), ("prices:x%2E1", Some("prices:x.1")));
    assert!(time.parse::<u64>().unwrap().abs_diff(unix_ms() / 1000) < 20, "{time}");
    let signatures: Vec<&str> = heard.header("webhook-signature").unwrap().split(' ').collect();
    assert_eq!(signatures.len(), 2);
    let holds = |secret: &[u8], signed: &[u8], signature: &str| {
        use base64::Engine;
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
        let tag = base64::engine::general_purpose::STANDARD.decode(&signature[3..]).unwrap();
        signature.starts_with("v1,") && ring::hmac::verify(&key, signed, &tag).is_ok()
    };
    let signed = [format!("{id}.{time}.").as_bytes(), &heard.body].concat();
    assert!(holds(&new, &signed, signatures[0]) && holds(&old, &signed, signatures[1]));
    assert!(!holds(&new, &signed, signatures[1]));
    for other in
        [format!("{id}.{time}.{{\"a\":2}}"), format!("{id}.1.{{\"a\":1}}"), format!("y.{time}.{{\"a\":1}}")]
    {
        assert!(!holds(&new, other.as_bytes(), signatures[0]), "{other}");
    }
}

#[tokio::test]
async fn message_pack_is_handed_over_as_it_is_or_as_json() {
    let site = Site::saying(with(200, "", "")).await;
    let sent = NewJob::new("price.changed", "k", &serde_json::json!({"price": 1.5, "tags": ["a"]})).unwrap();
    Kind::new(at(&site.url("/"))).run(&sent).await;
    Kind::new(KindConfig { as_json: true, ..at(&site.url("/")) }).run(&sent).await;
    let heard = site.heard();
    assert_eq!(
        (heard[0].header("content-type"), &heard[0].body[..]),
        (Some("application/vnd.msgpack"), &sent.payload[..])
    );
    assert_eq!(heard[1].header("content-type"), Some("application/json"));
    assert_eq!(heard[1].body, br#"{"price":1.5,"tags":["a"]}"#);
    let garbage = NewJob::from_bytes("price.changed", "k", vec![0xc1], ContentType::MessagePack).unwrap();
    let answer = Kind::new(KindConfig { as_json: true, ..at(&site.url("/")) }).run(&garbage).await;
    assert!(said("permanent")(&told(&answer)), "{answer:?}");
    assert_eq!(site.heard().len(), 2);
}

#[tokio::test]
async fn no_more_runs_than_said_are_under_way_and_the_wait_is_not_charged() {
    let site = Site::saying(Reply::Silence(Vec::new())).await;
    let config = KindConfig {
        concurrency: Some(1),
        limits: Limits { soft: None, hard: ms(600) },
        ..at(&site.url("/"))
    };
    let kind = Kind::new(config);
    let (first, second) = tokio::join!(kind.ask(), kind.ask());
    // Each has its own 600 ms, though the second began when the first had ended.
    assert!(said("timeout")(&first) && said("timeout")(&second), "{first:?} {second:?}");
    assert_eq!(site.heard().len(), 2);
    let (holding, _) = kind.start(&job("1"));
    let (waiting, stop) = kind.start(&job("1"));
    stop.soft(tokio::time::Instant::now() + ms(5000));
    let (_, waited) = tokio::join!(holding, waiting);
    assert!(told(&waited).1.contains("before it had a place"), "{waited:?}");
}

#[tokio::test]
async fn settings_that_cannot_be_are_refused_with_what_was_expected() {
    let refused = |config: KindConfig| Remote::new(vec![config]).unwrap_err().to_string();
    for url in ["", "ftp://a/", "/path", "http://", "http://u:hunter2@h/", "http://h/#x", "a b"] {
        let error = refused(at(url));
        assert!(error.starts_with("kind \"price.changed\", http: expected http://host"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    let with_ca = |url: &str, pem: &str| {
        let mut config = http(url);
        config.ca_pem = Some(pem.into());
        refused(kind(Way::Http(config)))
    };
    assert!(
        with_ca("http://h/", "x")
            .contains("ca_file: expected to be used with an address that begins with https")
    );
    assert!(with_ca("https://h/", "x").contains("ca_file: expected certificates in PEM form, got none"));
    let mut config = http("http://h/");
    config.secrets = vec![b"hunter2".to_vec()];
    let error = refused(kind(Way::Http(config)));
    assert!(
        error.contains("secret_file: expected secrets of at least 16 bytes") && !error.contains("hunter2")
    );
    let mut config = http("http://h/");
    config.token = Some("hunter2\r\n".into());
    let error = refused(kind(Way::Http(config)));
    assert!(error.contains("token_file: expected visible ASCII") && !error.contains("hunter2"), "{error}");
    let limits = |soft: u64, hard: u64| {
        refused(KindConfig { limits: Limits { soft: Some(ms(soft)), hard: ms(hard) }, ..at("http://h/") })
    };
    assert!(limits(5, 5).contains("soft_limit_ms: expected less than hard_limit_ms (5 ms), got 5 ms"));
    assert!(
        limits(0, 5).contains("soft_limit_ms")
            && limits(0, 0).contains("hard_limit_ms: expected more than 0 ms")
    );
    assert!(refused(KindConfig { max_answer_bytes: 0, ..at("http://h/") }).contains("max_answer_bytes"));
    assert!(refused(KindConfig { kind: "a b".into(), ..at("http://h/") }).contains("a kind is 1 to"));
}

#[test]
fn people_are_told_of_its_limits_and_of_what_becomes_of_interrupted_runs() {
    use gristmill_handler::{Redelivery, Registry};
    let limits = Limits { soft: Some(ms(5)), hard: ms(7) };
    let told = |review: bool| {
        let config = KindConfig { limits, review, ..at("http://h/") };
        Remote::new(vec![config]).unwrap().add_to(Registry::new()).describe()
    };
    let kind = &told(false)[0];
    assert_eq!(
        (kind.kind.as_str(), kind.soft_limit_ms, kind.hard_limit_ms),
        ("price.changed", Some(5), Some(7))
    );
    assert_eq!((kind.redelivery, told(true)[0].redelivery), (Redelivery::Rerun, Redelivery::Review));
}

#[test]
fn no_secret_is_shown() {
    let mut config = http("http://h/");
    (config.token, config.secrets) = (Some("hunter2".into()), vec![b"hunter2hunter2hunter2".to_vec()]);
    let shown = format!("{:?}", Remote::new(vec![kind(Way::Http(config))]).unwrap());
    assert!(
        shown.contains("http://h/") && !shown.contains("hunter2") && !shown.contains("104, 117"),
        "{shown}"
    );
}
