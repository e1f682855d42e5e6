use super::tests::load;
use gristmill_handler::{KindOptions, Registry};
use gristmill_job::{Limit, Rate};

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
        ("rates", "3", "kinds.k.rates: there is no such setting"),
    ] {
        let key = format!("kinds.k.{key}");
        let loaded = load(None, &[], &[(&key, value)]);
        let error = loaded.and_then(|told| told.limits().map_err(|e| e.to_string())).unwrap_err();
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
