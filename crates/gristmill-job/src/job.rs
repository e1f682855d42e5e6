//! A job as a producer describes it, and its encoded form.

use crate::due::{Due, TooFar};
use crate::envelope::{ContentType, Envelope, EnvelopeError, Limits};
use crate::name::{JobId, Key, Kind, NameError};
use crate::time::UnixMillis;
use bytes::Bytes;
use serde::Serialize;
use std::time::Duration;

/// What a queue accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobLimits {
    /// Largest envelope, in bytes.
    pub max_envelope_bytes: usize,
}

impl Default for JobLimits {
    fn default() -> Self {
        Self { max_envelope_bytes: 1024 * 1024 }
    }
}

/// One piece of work, as its producer describes it.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// The producer's own id; without one we make a UUIDv7, and repeats of it cannot be known.
    pub id: Option<JobId>,
    /// What must stay in order.
    pub key: Key,
    /// What sort of work this is.
    pub kind: Kind,
    /// The producer's number for the state of the entity; strictly newer wins.
    pub version: u64,
    /// Opaque bytes.
    pub payload: Bytes,
    /// How the payload is encoded.
    pub content_type: ContentType,
    /// W3C trace context and whatever else travels with the job.
    pub headers: Vec<(String, String)>,
    /// The job's own limits.
    pub limits: Limits,
    /// When it becomes ready. Not in the envelope.
    pub due: Due,
}

/// Why a job could not be built or encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A name outside its limits.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A payload that the codec cannot write.
    #[error("the payload cannot be encoded: {0}")]
    Payload(String),
    /// Too large, or not encodable.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// Due too far away.
    #[error(transparent)]
    Due(#[from] TooFar),
}

impl NewJob {
    /// A job with a payload in named MessagePack and no id of its own, version 0.
    ///
    /// # Errors
    /// A name outside its limits, or a payload that cannot be written.
    pub fn new(
        kind: &str,
        key: impl AsRef<[u8]>,
        payload: &(impl Serialize + ?Sized),
    ) -> Result<Self, EncodeError> {
        let bytes = rmp_serde::to_vec_named(payload).map_err(|e| EncodeError::Payload(e.to_string()))?;
        Self::from_bytes(kind, key, bytes, ContentType::MessagePack)
    }

    /// A job whose payload is encoded already.
    ///
    /// # Errors
    /// A name outside its limits.
    pub fn from_bytes(
        kind: &str,
        key: impl AsRef<[u8]>,
        payload: impl Into<Bytes>,
        content_type: ContentType,
    ) -> Result<Self, EncodeError> {
        Ok(Self {
            id: None,
            key: Key::new(key)?,
            kind: Kind::new(kind)?,
            version: 0,
            payload: payload.into(),
            content_type,
            headers: Vec::new(),
            limits: Limits::default(),
            due: Due::Now,
        })
    }

    /// With the producer's own id: enqueued again within its window it is absorbed.
    ///
    /// # Errors
    /// [`NameError::JobId`] outside its limits.
    pub fn with_id(mut self, id: &str) -> Result<Self, NameError> {
        self.id = Some(JobId::new(id)?);
        Ok(self)
    }

    /// With the producer's number for the state of the entity.
    #[must_use]
    pub fn with_version(mut self, version: u64) -> Self {
        self.version = version;
        self
    }

    /// With one more header.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Not to be started later than so long after it became ready, by the clock of Redis: then it ends unrun, as `expired`.
    /// One that was put back has to start again within the same time.
    #[must_use]
    pub fn expires_in(mut self, limit: Duration) -> Self {
        self.limits.expires_in_ms = Some(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Due then, by the clock of Redis; a time that is over means at once.
    #[must_use]
    pub fn due_at(mut self, at: UnixMillis) -> Self {
        self.due = Due::At(at);
        self
    }

    /// Due so long after it was enqueued, by the clock of Redis.
    #[must_use]
    pub fn due_in(mut self, delay: Duration) -> Self {
        self.due = Due::In(delay);
        self
    }

    /// The bytes of the three fields of its stream entry. `now` labels the job, it decides nothing.
    ///
    /// # Errors
    /// [`EnvelopeError::TooLarge`] beyond the limit, [`EncodeError::Due`] further away than [`crate::MAX_DELAY`].
    pub fn encode(&self, now: UnixMillis, limits: JobLimits) -> Result<EncodedJob, EncodeError> {
        let due = self.due.within_bounds(now)?;
        let envelope = Envelope {
            kind: self.kind.as_str(),
            version: self.version,
            payload: &self.payload,
            content_type: self.content_type,
            headers: self.headers.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect(),
            enqueued_at: now,
            limits: self.limits,
            own_id: self.id.is_some(),
        }
        .encode(limits.max_envelope_bytes)?;
        Ok(EncodedJob {
            own_id: self.id.is_some(),
            id: self.id.clone().unwrap_or_else(JobId::generate),
            key: self.key.clone(),
            envelope: Bytes::from(envelope),
            due,
        })
    }
}

/// A job ready to be enqueued: the three fields of its stream entry, and when it is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedJob {
    /// Field `i`.
    pub id: JobId,
    /// Field `k`.
    pub key: Key,
    /// Field `d`.
    pub envelope: Bytes,
    /// Whether the id is the producer's, and so has a mark in `seen`.
    pub own_id: bool,
    /// When it becomes ready.
    pub due: Due,
}
