//! Every form in which a handler may answer.

use crate::fixture::{answer, delivery, done, failed, job};
use gristmill_handler::{Answer, Classify, HandlerError, KindOptions, Registry, Started, WithClass};
use gristmill_job::{Effects, EntityChange, ErrorClass, QueueName, RetryPolicy};
use std::io;
use std::time::Duration;

fn put(text: &'static str) -> Option<EntityChange> {
    Some(EntityChange::Put(text.into()))
}

#[tokio::test]
async fn nothing_effects_and_results_of_both() {
    let registry = Registry::new()
        .kind("unit", |_: u32| async {})
        .kind("effects", |_: u32| async { Effects::put("e") })
        .kind("result", |n: u32| async move { if n == 0 { Ok(()) } else { Err(io::Error::other("odd")) } })
        .kind("result.effects", |n: u32| async move {
            if n == 0 { Ok(Effects::delete()) } else { Err(HandlerError::transient("busy")) }
        });
    registry.check().unwrap();
    assert!(done(&registry, delivery(job("unit", &0))).await.is_empty());
    assert_eq!(done(&registry, delivery(job("effects", &0))).await.entity, put("e"));
    assert!(done(&registry, delivery(job("result", &0))).await.is_empty());
    assert_eq!(done(&registry, delivery(job("result.effects", &0))).await.entity, Some(EntityChange::Delete));
    let odd = failed(&registry, delivery(job("result", &1))).await;
    assert_eq!((odd.class, odd.chain), (ErrorClass::Unknown, vec!["odd".to_owned()]));
    let busy = failed(&registry, delivery(job("result.effects", &1))).await;
    assert_eq!((busy.class, busy.chain), (ErrorClass::Transient, vec!["busy".to_owned()]));
}

#[tokio::test]
async fn emitted_jobs_come_through() {
    let registry = Registry::new().kind("emit", |_: u32| async {
        let queue = QueueName::new("mail").permanent()?;
        Ok::<_, HandlerError>(Effects::none().and_emit(queue, job("send", &1)))
    });
    let effects = done(&registry, delivery(job("emit", &0))).await;
    assert_eq!(effects.emit.len(), 1);
    assert_eq!((effects.emit[0].0.as_str(), effects.emit[0].1.kind.as_str()), ("mail", "send"));
}

#[derive(Debug, thiserror::Error)]
enum StockError {
    #[error("sold out")]
    SoldOut,
    #[error("the warehouse does not answer")]
    Away(#[source] io::Error),
}

impl Classify for StockError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::SoldOut => ErrorClass::Permanent,
            Self::Away(_) => ErrorClass::Transient,
        }
    }
}

fn reserve(n: u32) -> Result<(), StockError> {
    match n {
        0 => Ok(()),
        1 => Err(StockError::SoldOut),
        _ => Err(StockError::Away(io::Error::other("no route"))),
    }
}

#[tokio::test]
async fn an_error_type_says_its_class_once() {
    async fn returned(n: u32) -> Result<(), StockError> {
        reserve(n)
    }
    async fn asked(n: u32) -> Result<Effects, HandlerError> {
        reserve(n)?;
        Ok(Effects::none())
    }
    async fn overruled(n: u32) -> Result<(), HandlerError> {
        reserve(n).transient()
    }
    async fn at_the_place(n: u32) -> Result<(), HandlerError> {
        reserve(n).classified()
    }
    let handlers = || {
        Registry::new()
            .kind("returned", returned)
            .kind("asked", asked)
            .kind("overruled", overruled)
            .kind("at.the.place", at_the_place)
    };
    let class =
        async |registry: &Registry, kind: &str, n: u32| failed(registry, delivery(job(kind, &n))).await.class;

    let once = handlers().classify::<StockError>();
    for kind in ["returned", "asked", "at.the.place"] {
        assert_eq!(class(&once, kind, 1).await, ErrorClass::Permanent, "{kind}");
        assert_eq!(class(&once, kind, 2).await, ErrorClass::Transient, "{kind}");
    }
    assert_eq!(class(&once, "overruled", 1).await, ErrorClass::Transient);
    assert_eq!(class(&handlers(), "asked", 1).await, ErrorClass::Unknown);
    assert_eq!(class(&handlers(), "at.the.place", 1).await, ErrorClass::Permanent);
    let away = failed(&once, delivery(job("asked", &2))).await;
    assert_eq!(away.chain, ["the warehouse does not answer", "no route"]);
}

/// A node catches panics where it polls; so none may happen in `start` itself.
#[tokio::test]
async fn user_code_runs_only_when_polled() {
    struct Bomb;
    impl<'de> serde::Deserialize<'de> for Bomb {
        fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
            panic!("in the payload")
        }
    }
    let registry = Registry::new()
        .kind("payload", |_: Bomb| async {})
        .kind("before", |n: u32| {
            assert_eq!(n, 1, "before the first await");
            async {}
        })
        .kind("inside", |n: u32| async move { assert_eq!(n, 1, "inside") });
    for kind in ["payload", "before", "inside"] {
        let gristmill_handler::Started::Run { future, .. } = registry.start(delivery(job(kind, &0)), 1024)
        else {
            panic!("{kind} was refused")
        };
        assert!(tokio::spawn(future).await.unwrap_err().is_panic(), "{kind}");
    }
    assert!(matches!(answer(&registry, delivery(job("inside", &1))).await, Answer::Done(_)));
}

#[tokio::test]
async fn snooze_discard_and_the_wait_a_dependency_asks_for() {
    let registry = Registry::new().kind("later", |n: u32| async move {
        let busy = HandlerError::transient("429").retry_after(Duration::from_secs(7));
        match n {
            0 => Err::<(), _>(HandlerError::snooze(Duration::from_secs(60))),
            1 => Err(HandlerError::discard("the shop is closed for good")),
            _ => Err(busy),
        }
    });
    let snoozed = answer(&registry, delivery(job("later", &0))).await;
    assert!(matches!(snoozed, Answer::Snoozed(wait) if wait == Duration::from_secs(60)), "{snoozed:?}");
    let discarded = answer(&registry, delivery(job("later", &1))).await;
    assert!(
        matches!(&discarded, Answer::Discarded(why) if why == "the shop is closed for good"),
        "{discarded:?}"
    );
    let busy = failed(&registry, delivery(job("later", &2))).await;
    assert_eq!((busy.class, busy.retry_after), (ErrorClass::Transient, Some(Duration::from_secs(7))));
}

#[tokio::test]
async fn a_kind_brings_its_own_policy_and_limits_and_contradictions_are_refused() {
    let policy = RetryPolicy::fixed(Duration::from_secs(3)).with_max_attempts(2);
    let second = Duration::from_secs(1);
    let options = KindOptions::new().retry(policy.clone()).soft_limit(second).hard_limit(second * 2);
    let registry =
        Registry::new().kind_with("own", options, |_: u32| async {}).kind("plain", |_: u32| async {});
    registry.check().unwrap();
    let facts = |kind| match registry.start(delivery(job(kind, &0)), 1024) {
        Started::Run { facts, .. } => facts,
        refused => panic!("{refused:?}"),
    };
    let options = facts("own").options.unwrap();
    assert_eq!((options.retry_policy(), options.limits()), (Some(&policy), (Some(second), Some(second * 2))));
    assert_eq!(facts("plain").options, None);
    for wrong in [
        KindOptions::new().soft_limit(second).hard_limit(second),
        KindOptions::new().hard_limit(Duration::ZERO),
        KindOptions::new().retry(RetryPolicy::default().with_max_attempts(0)),
    ] {
        let error = Registry::new().kind_with("wrong", wrong, |_: u32| async {}).check().unwrap_err();
        assert!(error.to_string().contains("\"wrong\""), "{error}");
    }
}
