//! What the way of one job costs: one box for its future, and what its payload and its arguments need.

use crate::fixture::{LIMIT, delivery, job};
use gristmill_handler::{Answer, Context, Delivery, Registry, Started, State};
use std::task::{Poll, Waker};

/// Allocations from `start` to the answer. The handlers here never wait.
fn counted(registry: &Registry, delivery: Delivery) -> u64 {
    let mut cx = std::task::Context::from_waker(Waker::noop());
    allocation_counter::measure(|| {
        let Started::Run { mut future, .. } = registry.start(delivery, LIMIT) else { panic!("refused") };
        assert!(matches!(future.as_mut().poll(&mut cx), Poll::Ready(Answer::Done(_))));
    })
    .count_total
}

/// Its fields as slices of one buffer, as a reply of Redis is: then a clone of them allocates nothing.
fn shared(delivery: Delivery) -> Delivery {
    let _ = (delivery.envelope.clone(), delivery.id.clone(), delivery.key.clone());
    delivery
}

#[test]
fn a_job_costs_its_boxed_future_and_nothing_else() {
    let registry = Registry::new()
        .state(5u64)
        .kind("number", |_: u32| async {})
        .kind("arguments", |_: u32, _: State<u64>, _: Context| async {})
        .kind("text", |_: String| async {});
    assert_eq!(counted(&registry, shared(delivery(job("number", &1)))), 1);
    assert_eq!(counted(&registry, shared(delivery(job("arguments", &1)))), 1);
    assert_eq!(
        counted(&registry, shared(delivery(job("text", "text")))),
        2,
        "the box and the payload's own text"
    );
    let traced = job("number", &1).with_header("traceparent", "00-a");
    assert_eq!(counted(&registry, shared(delivery(traced))), 2, "the box and the reader's list of headers");
    let json = crate::fixture::raw_job("number", b"1", gristmill_job::ContentType::Json);
    assert_eq!(counted(&registry, shared(delivery(json))), 1);
}

#[test]
fn a_cancellation_is_one_small_allocation() {
    let made = allocation_counter::measure(|| drop(gristmill_handler::Cancellation::new()));
    assert_eq!(made.count_total, 1);
    assert!(made.bytes_total <= 96, "{} bytes", made.bytes_total);
}
