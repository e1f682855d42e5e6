//! What becomes of an interrupted run: what a kind may say, what is refused, and who runs then.

use crate::fixture::{LIMIT, answer, delivery, done, enveloped, failed, job};
use gristmill_handler::{
    Answer, Context, Delivery, DeliverySemantics, HandlerError, KindDescription, KindOptions, Reconciled,
    Redelivery, Registry, RegistryFault, Rule, State, WithClass,
};
use gristmill_job::{Effects, EntityChange, ErrorClass, RetryPolicy};
use std::time::Duration;

async fn pay(_: u32) -> Effects {
    Effects::put("paid")
}

async fn paid(n: u32) -> Result<Reconciled, HandlerError> {
    match n {
        0 => Ok(Reconciled::Done(Effects::put("found"))),
        1 => Ok(Reconciled::RunAgain),
        2 => Ok(Reconciled::AskAPerson("two bookings".into())),
        3 => Err(HandlerError::transient("the bank is busy")),
        4 => Err(HandlerError::snooze(Duration::from_secs(9))),
        _ => Err(std::io::Error::other("odd"))?,
    }
}

fn interrupted(kind: &str, n: u32) -> Delivery {
    Delivery { reconcile: true, recovered: true, ..delivery(job(kind, &n)) }
}

fn put(text: &'static str) -> Option<EntityChange> {
    Some(EntityChange::Put(text.into()))
}

fn faults(registry: &Registry) -> Vec<RegistryFault> {
    registry.check().unwrap_err().faults
}

#[tokio::test]
async fn an_interrupted_run_is_looked_at_and_its_handler_left_alone() {
    let before = Registry::new().reconcile("pay", paid).kind("pay", pay);
    let after = Registry::new().kind("pay", pay).reconcile("pay", paid);
    for registry in [before, after] {
        registry.check().unwrap();
        assert_eq!(done(&registry, delivery(job("pay", &0))).await.entity, put("paid"));
        assert_eq!(done(&registry, interrupted("pay", 0)).await.entity, put("found"));
        assert!(matches!(answer(&registry, interrupted("pay", 1)).await, Answer::RunAgain));
        let asked = answer(&registry, interrupted("pay", 2)).await;
        assert!(matches!(&asked, Answer::Review(why) if why == "two bookings"), "{asked:?}");
        let busy = failed(&registry, interrupted("pay", 3)).await;
        assert_eq!((busy.class, busy.chain), (ErrorClass::Transient, vec!["the bank is busy".to_owned()]));
        assert!(matches!(answer(&registry, interrupted("pay", 4)).await, Answer::Snoozed(_)));
        assert_eq!(failed(&registry, interrupted("pay", 5)).await.class, ErrorClass::Unknown);
    }
}

#[tokio::test]
async fn a_look_takes_what_a_handler_takes_and_gives_its_payload_back_if_it_does_not_decode() {
    struct Bank(&'static str);
    async fn look(n: u32, bank: State<Bank>, context: Context) -> Result<Reconciled, std::io::Error> {
        let told = format!("{n} {} {} {}", bank.0.0, context.idempotency_key(), context.recovered());
        Ok(Reconciled::AskAPerson(told))
    }
    let registry = Registry::new().kind("pay", pay).reconcile("pay", look).state(Bank("north"));
    registry.check().unwrap();
    let asked = answer(&registry, interrupted("pay", 7)).await;
    assert!(matches!(&asked, Answer::Review(why) if why == "7 north orders:j-1 true"), "{asked:?}");
    let wrong = Delivery { reconcile: true, ..delivery(job("pay", "text")) };
    assert_eq!(failed(&registry, wrong).await.class, ErrorClass::Permanent);

    let missing = faults(&Registry::new().kind("pay", pay).reconcile("pay", look));
    assert!(
        matches!(missing[..], [RegistryFault::StateMissing { kind: "pay", state }] if state.ends_with("Bank")),
        "{missing:?}"
    );
    let both = |_: u32, _: State<Bank>| async {};
    assert_eq!(faults(&Registry::new().kind("pay", both).reconcile("pay", look)).len(), 1, "told once");
}

/// As of handlers: what panics in a look panics where it is polled, where a node catches it.
#[tokio::test]
async fn a_look_that_panics_does_so_when_polled() {
    async fn look(n: u32) -> Result<Reconciled, HandlerError> {
        assert_eq!(n, 1, "inside");
        Ok(Reconciled::RunAgain)
    }
    let registry = Registry::new().kind("pay", pay).reconcile("pay", look);
    let gristmill_handler::Started::Run { future, .. } = registry.start(interrupted("pay", 0), LIMIT) else {
        panic!("refused")
    };
    assert!(tokio::spawn(future).await.unwrap_err().is_panic());
}

#[tokio::test]
async fn without_a_look_a_kind_runs_again_unless_it_says_that_a_person_decides() {
    let registry = Registry::new().kind("again", pay).kind_with("ask", KindOptions::new().review(), pay);
    assert_eq!(done(&registry, interrupted("again", 0)).await.entity, put("paid"));
    let asked = answer(&registry, interrupted("ask", 0)).await;
    assert!(matches!(&asked, Answer::Review(why) if why.contains("interrupted")), "{asked:?}");
    assert_eq!(done(&registry, delivery(job("ask", &0))).await.entity, put("paid"));
}

#[tokio::test]
async fn a_handler_may_say_itself_that_nobody_knows() {
    #[derive(Debug, thiserror::Error)]
    #[error("the charge was sent")]
    struct Sent(#[source] std::io::Error);
    let registry = Registry::new().kind("charge", |n: u32| async move {
        let lost = Sent(std::io::Error::other("the connection was lost"));
        match n {
            0 => Err::<(), _>(HandlerError::review(lost)),
            1 => Err(HandlerError::review("x".repeat(100_000))),
            // A class that is said afterwards replaces what was said before, as everywhere.
            _ => Err(HandlerError::review("no matter")).transient(),
        }
    });
    let asked = answer(&registry, delivery(job("charge", &0))).await;
    let told = "the charge was sent: the connection was lost";
    assert!(matches!(&asked, Answer::Review(why) if why == told), "{asked:?}");
    let long = answer(&registry, delivery(job("charge", &1))).await;
    assert!(matches!(&long, Answer::Review(why) if why.len() < 2_000));
    assert_eq!(failed(&registry, delivery(job("charge", &2))).await.class, ErrorClass::Transient);
}

#[test]
fn every_contradiction_is_refused_and_told() {
    let excluded = |word| RegistryFault::ReconcileExcluded { kind: "pay", word };
    let unserved = Registry::new().kind("mail", pay).reconcile("pay", paid);
    assert_eq!(faults(&unserved), [RegistryFault::ReconcileUnserved("pay")]);
    let twice = Registry::new().kind("pay", pay).reconcile("pay", paid).reconcile("pay", paid);
    assert_eq!(faults(&twice), [RegistryFault::ReconcileTwice("pay")]);
    let of = |options: KindOptions| Registry::new().reconcile("pay", paid).kind_with("pay", options, pay);
    assert_eq!(faults(&of(KindOptions::new().review())), [excluded("review")]);
    assert_eq!(faults(&of(KindOptions::new().at_most_once())), [excluded("at_most_once")]);
    let name = Registry::new().reconcile("a b", paid);
    assert!(matches!(faults(&name)[..], [RegistryFault::Name(_)]));

    let policy = RetryPolicy::default();
    for (options, told) in [
        (KindOptions::new().review().at_most_once(), "exclude each other"),
        (KindOptions::new().crash_budget(0), "at least 1"),
        (KindOptions::new().retry(policy.with_max_age(Duration::ZERO)), "age"),
    ] {
        let plain = Registry::new().kind_with("pay", options, pay);
        let [RegistryFault::Options { kind: "pay", fault }] = faults(&plain)[..] else {
            panic!("{:?}", faults(&plain))
        };
        assert!(fault.contains(told), "{fault}");
    }
    let told = twice.check().unwrap_err().to_string() + &unserved.check().unwrap_err().to_string();
    assert!(told.contains("two functions") && told.contains("no handler"), "{told}");
    of(KindOptions::new().crash_budget(1)).check().unwrap();
}

#[test]
fn the_rule_of_a_job_is_that_of_its_kind() {
    let registry = Registry::new().kind("plain", pay).kind_with(
        "own",
        KindOptions::new().hard_limit(Duration::from_secs(1)),
        pay,
    );
    assert!(!registry.has_rules());
    let once = KindOptions::new().at_most_once();
    let ruled = registry
        .clone()
        .kind_with("ask", KindOptions::new().review().crash_budget(1), pay)
        .kind_with("once", once.clone(), pay)
        .kind("look", pay)
        .reconcile("look", paid);
    ruled.check().unwrap();
    assert!(ruled.has_rules() && !registry.has_rules());
    for only in [
        Registry::new().kind_with("k", once, pay),
        Registry::new().kind_with("k", KindOptions::new().review(), pay),
        Registry::new().kind_with("k", KindOptions::new().crash_budget(3), pay),
        Registry::new().kind("k", pay).reconcile("k", paid),
    ] {
        assert!(only.has_rules());
    }

    let rule = |kind: &str| ruled.rule(&delivery(job(kind, &0)).envelope, LIMIT);
    let plain = Rule::default();
    let expected = [
        ("plain", plain),
        ("own", plain),
        ("ask", Rule { redelivery: Redelivery::Review, crash_budget: Some(1), ..plain }),
        ("once", Rule { delivery: DeliverySemantics::AtMostOnce, ..plain }),
        ("look", Rule { redelivery: Redelivery::Reconcile, ..plain }),
        ("missing", Rule { served: false, ..plain }),
    ];
    for (kind, expected) in expected {
        assert_eq!(rule(kind), expected, "{kind}");
    }
    assert!(plain.served && plain.redelivery == Redelivery::Rerun && plain.crash_budget.is_none());
    let envelope = delivery(job("missing", &0)).envelope;
    assert_eq!(ruled.rule(&envelope, envelope.len() - 1), plain, "too large: to be refused, not to wait");
    assert_eq!(ruled.rule(&enveloped(&b"garbage"[..]).envelope, LIMIT), plain);
}

#[test]
fn a_rule_costs_no_allocation() {
    let registry = Registry::new().kind("pay", pay).reconcile("pay", paid);
    let envelope = delivery(job("pay", &1).with_header("traceparent", "00-a")).envelope;
    let cost = allocation_counter::measure(|| {
        assert_eq!(registry.rule(&envelope, LIMIT).redelivery, Redelivery::Reconcile);
    });
    assert_eq!(cost.count_total, 0);
}

#[test]
fn kinds_are_described_for_lists_both_ways() {
    let options = KindOptions::new()
        .review()
        .crash_budget(2)
        .retry(RetryPolicy::default().with_max_attempts(4))
        .soft_limit(Duration::from_millis(1500))
        .hard_limit(Duration::from_secs(3));
    let registry = Registry::new()
        .kind_with("c", options, pay)
        .kind_with("b", KindOptions::new().at_most_once(), pay)
        .kind("a", pay)
        .reconcile("a", paid);
    let described = registry.describe();
    let json = serde_json::to_value(&described).unwrap();
    assert_eq!(
        json,
        serde_json::json!([
            { "kind": "a", "redelivery": "reconcile", "delivery": "at_least_once", "max_attempts": null,
              "crash_budget": null, "soft_limit_ms": null, "hard_limit_ms": null },
            { "kind": "b", "redelivery": "rerun", "delivery": "at_most_once", "max_attempts": null,
              "crash_budget": null, "soft_limit_ms": null, "hard_limit_ms": null },
            { "kind": "c", "redelivery": "review", "delivery": "at_least_once", "max_attempts": 4,
              "crash_budget": 2, "soft_limit_ms": 1500, "hard_limit_ms": 3000 },
        ])
    );
    assert_eq!(serde_json::from_value::<Vec<KindDescription>>(json).unwrap(), described);
    for (kind, word) in described.iter().zip(["reconcile", "rerun", "review"]) {
        assert_eq!(kind.redelivery.as_str(), word);
    }
    assert_eq!(
        (described[0].delivery.as_str(), described[1].delivery.as_str()),
        ("at_least_once", "at_most_once")
    );
    let bare: KindDescription = serde_json::from_str(r#"{"kind":"d","of_tomorrow":[1]}"#).unwrap();
    assert_eq!(bare, KindDescription { kind: "d".into(), ..KindDescription::default() });
}
