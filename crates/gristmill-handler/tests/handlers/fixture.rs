//! Deliveries as a node makes them, and runs polled to their end.

use bytes::Bytes;
use gristmill_handler::{Answer, Cancellation, Delivery, Facts, Registry, Started};
use gristmill_job::{
    ContentType, DeadReason, Effects, Failure, JobId, JobLimits, Key, NewJob, Place, QueueName, UnixMillis,
};

pub(crate) const LIMIT: usize = 1024 * 1024;

pub(crate) fn job(kind: &str, payload: &(impl serde::Serialize + ?Sized)) -> NewJob {
    NewJob::new(kind, "sku-1", payload).unwrap().with_version(7)
}

pub(crate) fn raw_job(kind: &str, payload: &[u8], content_type: ContentType) -> NewJob {
    NewJob::from_bytes(kind, "sku-1", payload.to_vec(), content_type).unwrap()
}

pub(crate) fn delivery(job: NewJob) -> Delivery {
    let encoded = job.with_id("j-1").unwrap().encode(UnixMillis(1), JobLimits::default()).unwrap();
    Delivery { id: encoded.id, key: encoded.key, ..enveloped(encoded.envelope) }
}

/// A delivery of any bytes as its envelope.
pub(crate) fn enveloped(envelope: impl Into<Bytes>) -> Delivery {
    Delivery {
        id: JobId::new("j-1").unwrap(),
        key: Key::new("sku-1").unwrap(),
        envelope: envelope.into(),
        place: Place { ms: 5, seq: 1 },
        attempt: 1,
        recovered: false,
        reconcile: false,
        cancellation: Cancellation::new(),
        queue: QueueName::new("orders").unwrap(),
        trace: None,
    }
}

pub(crate) async fn answer(registry: &Registry, delivery: Delivery) -> Answer {
    match registry.start(delivery, LIMIT) {
        Started::Run { future, .. } => future.await,
        refused @ Started::Refused { .. } => panic!("{refused:?}"),
    }
}

pub(crate) async fn done(registry: &Registry, delivery: Delivery) -> Effects {
    match answer(registry, delivery).await {
        Answer::Done(effects) => effects,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn failed(registry: &Registry, delivery: Delivery) -> Failure {
    match answer(registry, delivery).await {
        Answer::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn refused(registry: &Registry, delivery: Delivery) -> (DeadReason, String, Facts) {
    match registry.start(delivery, LIMIT) {
        Started::Refused { reason, error, facts } => (reason, error, facts),
        run @ Started::Run { .. } => panic!("{run:?}"),
    }
}
