//! What a registry refuses, when it is built and when a job comes.

use crate::fixture::{LIMIT, delivery, enveloped, job, refused};
use gristmill_handler::{Facts, Registry, RegistryFault, Started};
use gristmill_job::{DeadReason, Limits};

fn registry() -> Registry {
    Registry::new().kind("price", |_: u32| async {}).kind("stock", |_: u32| async {})
}

#[test]
fn everything_wrong_with_a_registry_is_told_at_once() {
    assert!(registry().check().is_ok());
    let bad = registry()
        .kind("price", |_: u32| async {})
        .kind("a b", |_: u32| async {})
        .kind("", |_: u32| async {})
        .state(1u8)
        .state(2u8);
    let error = bad.check().unwrap_err();
    assert_eq!(error.faults.len(), 4);
    assert_eq!(error.faults[0], RegistryFault::KindTwice("price"));
    assert!(matches!(error.faults[1..3], [RegistryFault::Name(_), RegistryFault::Name(_)]));
    assert_eq!(error.faults[3], RegistryFault::StateTwice("u8"));
    let told = error.to_string();
    assert!(told.contains("\"price\" is registered twice") && told.contains("1 to 128 bytes"), "{told}");
}

#[test]
fn it_lists_what_it_serves_and_clones_stay_as_they_were() {
    let two = registry();
    let three = two.clone().kind("alarm", |_: u32| async {});
    assert_eq!(two.kinds().collect::<Vec<_>>(), ["price", "stock"]);
    assert_eq!(three.kinds().collect::<Vec<_>>(), ["alarm", "price", "stock"]);
    assert!(three.serves("alarm") && !two.serves("alarm"));
}

#[test]
fn an_unknown_kind_is_refused_with_what_could_be_read() {
    let mut job = job("prise", &1);
    job.limits = Limits { max_attempts: Some(4), ..Limits::default() };
    let (reason, error, facts) = refused(&registry(), delivery(job));
    assert_eq!(reason, DeadReason::UnknownKind);
    assert!(error.contains("\"prise\"") && error.contains("price, stock"), "{error}");
    assert_eq!(facts, Facts { version: 7, own_id: true, max_attempts: Some(4), kind: None, options: None });
    let foreign =
        [&b"\x83\xa1v\x01\xa1t\xdb\x00\x0f\x00\x00"[..], &vec![b'k'; 0xf_0000], b"\xa1p\xc4\x00"].concat();
    let (reason, error, _) = refused(&registry(), enveloped(foreign));
    assert!(reason == DeadReason::UnknownKind && error.len() < 2_000, "{}", error.len());
}

#[test]
fn garbage_and_what_is_too_large_are_undecodable() {
    for garbage in [&b""[..], b"\xc1", b"garbage", b"\x80", &[0x91; 100_000]] {
        let (reason, error, facts) = refused(&registry(), enveloped(garbage.to_vec()));
        assert_eq!(reason, DeadReason::Undecodable);
        assert!(!error.is_empty() && error.len() < 2_000, "{error}");
        assert_eq!(facts, Facts { version: 0, own_id: true, max_attempts: None, kind: None, options: None });
    }
    let Started::Refused { reason, error, .. } = registry().start(delivery(job("price", &1)), 5) else {
        panic!("it ran")
    };
    assert!(reason == DeadReason::Undecodable && error.contains("5 bytes"), "{error}");
}

#[test]
fn the_facts_of_a_run_are_those_of_its_envelope() {
    let Started::Run { facts, .. } = registry().start(delivery(job("stock", &1)), LIMIT) else {
        panic!("refused")
    };
    assert_eq!(
        facts,
        Facts { version: 7, own_id: true, max_attempts: None, kind: Some("stock"), options: None }
    );
    let ours =
        job("stock", &1).encode(gristmill_job::UnixMillis(1), gristmill_job::JobLimits::default()).unwrap();
    let Started::Run { facts, .. } = registry().start(enveloped(ours.envelope), LIMIT) else {
        panic!("refused")
    };
    assert!(!facts.own_id);
}

#[test]
fn debugging_shows_no_key_and_no_payload() {
    let mut job = job("price", "secret-payload");
    job.key = gristmill_job::Key::new("secret-key").unwrap();
    let shown = format!("{:?}", delivery(job));
    assert!(shown.contains("j-1") && shown.contains("orders") && !shown.contains("secret"), "{shown}");
}
