//! What a run may ask about itself.

use crate::cancellation::Stage;
use crate::delivery::Delivery;
use crate::polls::Polls;
use bytes::Bytes;
use gristmill_job::{ContentType, Envelope, JobId, Key, Place, QueueName, TraceContext};
use std::fmt::Write;
use std::ops::Range;
use std::time::Duration;

/// The job of this run and the state of the run. An extractor; clones are cheap and may go into tasks.
#[derive(Debug, Clone)]
pub struct Context {
    delivery: Delivery,
    kind: &'static str,
    version: u64,
    content_type: ContentType,
    payload: Range<usize>,
}

impl Context {
    pub(crate) fn new(
        delivery: Delivery,
        kind: &'static str,
        version: u64,
        content_type: ContentType,
        payload: Range<usize>,
    ) -> Self {
        Self { delivery, kind, version, content_type, payload }
    }

    /// The job's id.
    #[must_use]
    pub fn id(&self) -> &JobId {
        &self.delivery.id
    }

    /// The entity whose jobs run in order.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.delivery.key
    }

    /// What sort of work this is, as the handler was registered.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The producer's number for the state of the entity.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The queue it came from.
    #[must_use]
    pub fn queue(&self) -> &QueueName {
        &self.delivery.queue
    }

    /// Where it stands in the order of its key.
    #[must_use]
    pub fn place(&self) -> Place {
        self.delivery.place
    }

    /// Which attempt this is; 1 for the first run.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.delivery.attempt
    }

    /// Whether it was taken back from an owner that is gone: an earlier run may have happened unseen.
    #[must_use]
    pub fn recovered(&self) -> bool {
        self.delivery.recovered
    }

    /// The span of this run, where the node traces attempts: what the handler asks of others belongs to it. Displayed, it is
    /// a `traceparent`. The context that the job's producer sent is in [`Context::headers`].
    #[must_use]
    pub fn trace(&self) -> Option<TraceContext> {
        self.delivery.trace
    }

    /// How the payload is encoded.
    #[must_use]
    pub fn content_type(&self) -> ContentType {
        self.content_type
    }

    /// The payload as it came.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.delivery.envelope.get(self.payload.clone()).unwrap_or_default()
    }

    pub(crate) fn payload_shared(&self) -> Bytes {
        self.delivery.envelope.slice_ref(self.payload())
    }

    /// The headers, read from the envelope by this call: keep the answer rather than asking again.
    #[must_use]
    pub fn headers(&self) -> Headers<'_> {
        // It was decoded once to get here, so it decodes again.
        Headers(Envelope::decode(&self.delivery.envelope, usize::MAX).map(|e| e.headers).unwrap_or_default())
    }

    /// A name of this job for other systems: the same on every retry, redelivery and replay, different for
    /// every other job, whatever its queue.
    ///
    /// `queue:id`, where bytes of the id other than `!` to `~` and `%` itself are written as `%XX`, so that it fits
    /// a header of an HTTP request. At most 101 bytes with an id made by us, at most 833 with a producer's.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        let (queue, id) = (self.queue().as_str(), self.id().as_bytes());
        let mut key = String::with_capacity(queue.len() + 1 + id.len());
        key.push_str(queue);
        key.push(':');
        for byte in id {
            match byte {
                b'!'..=b'~' if *byte != b'%' => key.push(char::from(*byte)),
                _ => {
                    // Writing to a String cannot fail.
                    let _ = write!(key, "%{byte:02X}");
                }
            }
        }
        key
    }

    /// Resolves when the run should come to a tidy end (drain, a cancel request). Safe in `select!`, also in a loop.
    /// An error after that, unless permanent, is no attempt: the job is handed back and runs again elsewhere.
    pub async fn cancelled(&self) {
        self.delivery.cancellation.wait_soft().await;
    }

    /// Whether the run should come to a tidy end.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.stage() > Stage::Running
    }

    /// How far the stopping of this run has come.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.delivery.cancellation.stage()
    }

    /// What is done for this run is polled there, and not in its own future.
    pub(crate) fn goes_on_in(&self, polls: Polls) {
        self.delivery.cancellation.goes_on_in(polls);
    }

    /// Time until the hard stop: `None` while unlimited, zero once it has come.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.delivery.cancellation.remaining()
    }
}

/// The headers of a job, in the producer's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headers<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Headers<'a> {
    /// The first header of that name. Names are compared byte by byte.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// All of them, repeats included.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter().copied()
    }
}
