//! Extractors: state, context, cancellation, and the user's own.

use crate::fixture::{LIMIT, delivery, done, enveloped, failed, job};
use gristmill_handler::{
    Cancellation, Context, Delivery, FromDelivery, HandlerError, Needs, Registry, RegistryFault, Shared,
    Stage, Started, State,
};
use gristmill_job::{Effects, ErrorClass, JobId, QueueName};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::Instant;

struct Counter(AtomicU32);
struct Prefix(&'static str);

/// A user's own extractor, made of a state and a header.
struct Tenant(String);

impl FromDelivery for Tenant {
    fn from_delivery(context: &Context, shared: &Shared) -> Result<Self, HandlerError> {
        let prefix = shared.state::<Prefix>().ok_or_else(|| HandlerError::permanent("no prefix"))?;
        let headers = context.headers();
        let name = headers.get("tenant").ok_or_else(|| HandlerError::permanent("the job names no tenant"))?;
        Ok(Self(format!("{}{name}", prefix.0)))
    }

    fn needs(needs: &mut Needs) {
        needs.state::<Prefix>();
    }
}

fn text(effects: &Effects) -> String {
    let Some(gristmill_job::EntityChange::Put(bytes)) = &effects.entity else { panic!("{effects:?}") };
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn up_to_four_of_them_in_any_order_and_state_after_kind() {
    async fn four(
        n: u32,
        tenant: Tenant,
        counter: State<Counter>,
        context: Context,
        prefix: State<Prefix>,
    ) -> Effects {
        let before = counter.0.0.fetch_add(n, Ordering::SeqCst);
        Effects::put(format!("{} {before} {} {}", tenant.0, context.attempt(), prefix.0.0))
    }
    let registry = Registry::new().kind("four", four).state(Counter(AtomicU32::new(1))).state(Prefix("eu/"));
    registry.check().unwrap();
    let named = || delivery(job("four", &4).with_header("tenant", "acme"));
    assert_eq!(text(&done(&registry, named()).await), "eu/acme 1 1 eu/");
    assert_eq!(text(&done(&registry.clone(), named()).await), "eu/acme 5 1 eu/");
    let nameless = failed(&registry, delivery(job("four", &4))).await;
    assert_eq!(nameless.chain, ["the job names no tenant"]);
}

#[tokio::test]
async fn a_missing_state_is_told_at_the_check_and_is_permanent_in_a_run() {
    let registry = Registry::new()
        .kind("count", |_: u32, _: State<Counter>| async {})
        .kind("tenant", |_: u32, _: Tenant| async {});
    let error = registry.check().unwrap_err();
    assert_eq!(error.faults.len(), 2);
    assert!(
        matches!(error.faults[0], RegistryFault::StateMissing { kind: "count", state } if state.ends_with("Counter"))
    );
    assert!(
        error.to_string().contains("\"tenant\" takes State<") && error.to_string().contains("Prefix"),
        "{error}"
    );
    let failure = failed(&registry, delivery(job("count", &1))).await;
    assert_eq!(failure.class, ErrorClass::Permanent);
    assert!(failure.chain[0].contains("Counter"), "{:?}", failure.chain);
}

async fn context_of(delivery: Delivery) -> Context {
    let (send, receive) = std::sync::mpsc::channel();
    let registry = Registry::new().kind("look", move |_: u32, context: Context| {
        let send = send.clone();
        async move { send.send(context).map_err(|_| HandlerError::permanent("nobody listens")) }
    });
    done(&registry, delivery).await;
    receive.try_recv().unwrap()
}

#[tokio::test]
async fn the_context_tells_what_the_node_and_the_producer_said() {
    let job = job("look", &1).with_header("traceparent", "00-a").with_header("x", "1").with_header("x", "2");
    let sent = Delivery { attempt: 3, recovered: true, ..delivery(job) };
    let context = context_of(sent.clone()).await;
    assert_eq!((context.id(), context.key(), context.queue()), (&sent.id, &sent.key, &sent.queue));
    assert_eq!((context.attempt(), context.recovered(), context.version()), (3, true, 7));
    assert_eq!((context.kind(), context.place(), context.payload()), ("look", sent.place, &[1u8][..]));
    let headers = context.headers();
    assert_eq!(
        (headers.get("traceparent"), headers.get("x"), headers.get("y")),
        (Some("00-a"), Some("1"), None)
    );
    assert_eq!(headers.iter().count(), 3);
    assert!(context_of(delivery(crate::fixture::job("look", &1))).await.headers().iter().next().is_none());
}

#[tokio::test]
async fn the_idempotency_key_is_one_per_job_and_fits_a_header() {
    let of = async |queue: &str, id: JobId, attempt: u32| {
        let queue = QueueName::new(queue).unwrap();
        let envelope = delivery(job("look", &1)).envelope;
        context_of(Delivery { queue, id, attempt, recovered: attempt > 1, ..enveloped(envelope) })
            .await
            .idempotency_key()
    };
    let id = |text: &str| JobId::new(text).unwrap();
    assert_eq!(of("orders", id("j-1"), 1).await, "orders:j-1");
    assert_eq!(of("orders", id("j-1"), 9).await, "orders:j-1");
    assert_ne!(of("others", id("j-1"), 1).await, "orders:j-1");
    assert_eq!(of("orders", id("a b%é:0"), 1).await, "orders:a%20b%25%C3%A9:0");
    assert_eq!(of("orders", id("a%20b"), 1).await, "orders:a%2520b");
    let foreign = JobId::from_stored(bytes::Bytes::from_static(b"\xff\n"));
    assert_eq!(of("orders", foreign, 1).await, "orders:%FF%0A");
}

#[tokio::test]
async fn a_run_learns_of_both_stages_and_of_its_time() {
    let cancellation = Cancellation::new();
    let (send, receive) = tokio::sync::oneshot::channel();
    let send = std::sync::Mutex::new(Some(send));
    let registry = Registry::new().kind("long", move |_: u32, context: Context| {
        let begun = send.lock().unwrap().take();
        async move {
            assert_eq!(
                (context.stage(), context.remaining(), context.is_cancelled()),
                (Stage::Running, None, false)
            );
            begun.unwrap().send(()).unwrap();
            context.cancelled().await;
            assert!(context.is_cancelled() && context.stage() == Stage::Soft);
            let left = context.remaining().unwrap();
            assert!(left > Duration::from_secs(50) && left <= Duration::from_secs(60), "{left:?}");
            Effects::put("tidy")
        }
    });
    let sent = Delivery { cancellation: cancellation.clone(), ..delivery(job("long", &1)) };
    let Started::Run { future, .. } = registry.start(sent, LIMIT) else { panic!("refused") };
    let run = tokio::spawn(future);
    receive.await.unwrap();
    cancellation.soft(Instant::now() + Duration::from_secs(60));
    let ended =
        tokio::time::timeout(Duration::from_secs(20), run).await.expect("the run did not hear it").unwrap();
    let gristmill_handler::Answer::Done(effects) = ended else { panic!("{ended:?}") };
    assert_eq!(text(&effects), "tidy");
}
