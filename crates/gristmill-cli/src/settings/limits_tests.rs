use super::tests::load;
use gristmill_handler::{KindOptions, Registry};
use gristmill_job::{JobLimits, Limit, NewJob, Rate, UnixMillis};
use std::time::Duration;

#[test]
fn kinds_are_limited_by_settings_whoever_serves_them() {
    let set = [
        ("kinds.mail.send.max_running", "5"),
        ("kinds.mail.send.rate", "100/s"),
        ("kinds.mail.send.rate_burst", "7"),
        ("kinds.mail.send.rate_per", "key"),
        ("kinds.hook.http", "http://127.0.0.1:1/"),
        ("kinds.hook.rate", "20/h"),
    ];
    let settings = load(None, &[], &set).unwrap();
    let mail = Limit { max_running: Some(5), rate: Some(Rate::per_second(100).burst(7).per_key()) };
    let hook = Limit { max_running: None, rate: Rate::parse("20/h") };
    assert_eq!(settings.limits().unwrap(), [("hook".to_owned(), hook), ("mail.send".to_owned(), mail)]);
    let remote: Vec<String> = settings.remote().unwrap().kinds().map(|kind| kind.kind.clone()).collect();
    assert_eq!(remote, ["hook"], "a kind in code may be limited, too");
    let entry = settings.entries().into_iter().find(|entry| entry.key == "kinds.mail.send.rate").unwrap();
    assert_eq!((entry.value.as_str(), entry.origin.as_str()), (Some("100/s"), "--set"));
}

#[test]
fn what_cannot_be_is_named() {
    for (key, value, expected) in [
        ("max_running", "0", "kinds.k.max_running: expected 1 to 100000"),
        ("max_running", "100001", "kinds.k.max_running: expected 1 to 100000"),
        ("max_running", "many", "kinds.k.max_running: expected a whole number"),
        ("rate", "fast", "kinds.k.rate: expected runs in a second"),
        ("rate", "0/s", "kinds.k.rate: expected runs in a second"),
        ("rate", "100001/s", "kinds.k.rate: expected runs in a second"),
        ("rate_per", "key", "kinds.k.rate_per: expected kinds.k.rate beside it"),
        ("rate_burst", "3", "kinds.k.rate_burst: expected kinds.k.rate beside it"),
        ("expires_ms", "0", "kinds.k.expires_ms: expected 1 ms or more"),
        ("expires_ms", "soon", "kinds.k.expires_ms: expected a whole number"),
        ("rates", "3", "kinds.k.rates: there is no such setting"),
    ] {
        let key = format!("kinds.k.{key}");
        let loaded = load(None, &[], &[(&key, value)]);
        let error = loaded
            .and_then(|told| told.limits().map(|_| told).map_err(|e| e.to_string()))
            .and_then(|told| told.expiries().map_err(|e| e.to_string()))
            .unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
    let both = [("kinds.k.rate", "1/s"), ("kinds.k.rate_per", "queue")];
    let error = load(None, &[], &both).unwrap().limits().unwrap_err().to_string();
    assert!(error.starts_with("kinds.k.rate_per: expected kind or key"), "{error}");
}

#[test]
fn settings_win_over_code_word_by_word() {
    let options = KindOptions::new().max_running(3).rate(Rate::per_second(9));
    let registry = Registry::new().kind_with("k", options, |_: gristmill_handler::Raw| async {});
    let said = Limit { max_running: Some(1), rate: None };
    let limits: Vec<_> = registry.limit("k", said).limit("unserved", said).limits().collect();
    assert_eq!(limits, [("k", Limit { max_running: Some(1), rate: Some(Rate::per_second(9)) })]);
}

#[test]
fn the_jobs_of_a_kind_expire_as_settings_say_whoever_serves_it() {
    let set = [
        ("kinds.mail.send.expires_ms", "60000"),
        ("kinds.hook.http", "http://127.0.0.1:1/"),
        ("kinds.hook.expires_ms", "1"),
    ];
    let settings = load(None, &[], &set).unwrap();
    let (minute, instant) = (Duration::from_secs(60), Duration::from_millis(1));
    let expiries = settings.expiries().unwrap();
    assert_eq!(expiries, [("hook".to_owned(), instant), ("mail.send".to_owned(), minute)]);
    assert!(settings.limits().unwrap().is_empty(), "which is no limit across the fleet");
    let entry =
        settings.entries().into_iter().find(|entry| entry.key == "kinds.mail.send.expires_ms").unwrap();
    assert_eq!((entry.value.as_u64(), entry.origin.as_str()), (Some(60_000), "--set"));

    let registry = Registry::new()
        .kind("mail.send", |_: gristmill_handler::Raw| async {})
        .kind_with("other", KindOptions::new().expires_in(minute), |_: gristmill_handler::Raw| async {})
        .expire("mail.send", minute)
        .expire("other", instant)
        .expire("unserved", instant);
    registry.check().unwrap();
    let of = |job: NewJob| {
        let envelope = job.encode(UnixMillis(1), JobLimits::default()).unwrap();
        registry.expires_in(&envelope.envelope, usize::MAX)
    };
    let job = |kind: &str| NewJob::new(kind, "k", &1).unwrap();
    assert_eq!(of(job("mail.send")), Some(minute));
    assert_eq!(of(job("other")), Some(instant), "settings win over code");
    assert_eq!(of(job("other").expires_in(minute * 2)), Some(minute * 2), "and a job over both");
    assert_eq!(of(job("unserved")), None);
}
