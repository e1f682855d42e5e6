//! A job on the wire: named MessagePack with short names, schema version first. Id and key are fields of the stream
//! entry and not repeated inside.
//!
//! Named, because a reader one release older must be able to read it: unknown names are ignored, missing ones have
//! defaults. The names are frozen (`docs/PROTOCOL.md` lists them; golden bytes in the tests).

use crate::time::UnixMillis;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The schema this release writes, and the newest it reads.
pub const SCHEMA_VERSION: u8 = 1;
/// How deep an envelope or a payload may nest.
pub const MAX_DEPTH: usize = 64;
/// How many headers an envelope may carry.
pub const MAX_HEADERS: usize = 64;

/// How a payload is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ContentType {
    /// MessagePack (`m`).
    #[default]
    #[serde(rename = "m")]
    MessagePack,
    /// JSON (`j`).
    #[serde(rename = "j")]
    Json,
}

/// Limits that a job brings itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// How many attempts it has in all; the queue's policy where it says nothing.
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// How many ms after it became ready it may start at the latest; as long as it takes where nobody says.
    #[serde(rename = "x", default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}

impl Limits {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// A decoded envelope, borrowed from its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// What sort of work this is.
    pub kind: &'a str,
    /// The producer's number for the state of the entity.
    pub version: u64,
    /// Opaque bytes.
    pub payload: &'a [u8],
    /// How the payload is encoded.
    pub content_type: ContentType,
    /// W3C trace context and whatever else travels with the job.
    pub headers: Vec<(&'a str, &'a str)>,
    /// When it was enqueued, by its producer's clock.
    pub enqueued_at: UnixMillis,
    /// The job's own limits.
    pub limits: Limits,
    /// Whether the id is the producer's, and so has a mark in `seen`.
    pub own_id: bool,
}

/// Why bytes are no envelope, or cannot become one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Larger than the queue takes.
    #[error(
        "an envelope may have {limit} bytes, this has {bytes}; keep large data elsewhere and send a reference"
    )]
    TooLarge {
        /// What came.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
    /// A schema of a newer release.
    #[error("envelope schema {0} is newer than the newest known here ({SCHEMA_VERSION}); upgrade this node")]
    UnknownSchema(u64),
    /// Bytes behind the end.
    #[error("there are bytes behind the end of the envelope")]
    TrailingBytes,
    /// Too many headers.
    #[error("an envelope may have {MAX_HEADERS} headers, this has {0}")]
    TooManyHeaders(usize),
    /// Not MessagePack of the expected shape.
    #[error("not an envelope: {0}")]
    Malformed(String),
}

/// The frozen wire form. Field order is write order.
#[derive(Serialize, Deserialize)]
struct Wire<'a> {
    v: u8,
    #[serde(borrow)]
    t: &'a str,
    #[serde(default)]
    n: u64,
    #[serde(borrow, with = "serde_bytes")]
    p: &'a [u8],
    #[serde(default)]
    c: ContentType,
    #[serde(borrow, default, skip_serializing_if = "Headers::is_empty")]
    h: Headers<'a>,
    #[serde(default)]
    a: UnixMillis,
    #[serde(default, skip_serializing_if = "Limits::is_none")]
    l: Limits,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    o: bool,
}

/// A map of few entries, kept in order: cheaper than a tree, and repeats survive.
#[derive(Default)]
struct Headers<'a>(Vec<(&'a str, &'a str)>);

impl Headers<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Headers<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Headers<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Headers<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a map of at most {MAX_HEADERS} texts")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut headers = Vec::new();
                while let Some(header) = map.next_entry()? {
                    if headers.len() == MAX_HEADERS {
                        return Err(serde::de::Error::invalid_length(MAX_HEADERS + 1, &self));
                    }
                    headers.push(header);
                }
                Ok(Headers(headers))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

impl<'a> Envelope<'a> {
    /// The bytes of field `d`.
    ///
    /// # Errors
    /// [`EnvelopeError::TooLarge`] beyond `max_bytes`, [`EnvelopeError::TooManyHeaders`].
    pub fn encode(self, max_bytes: usize) -> Result<Vec<u8>, EnvelopeError> {
        if self.headers.len() > MAX_HEADERS {
            return Err(EnvelopeError::TooManyHeaders(self.headers.len()));
        }
        if self.payload.len() > max_bytes {
            return Err(EnvelopeError::TooLarge { bytes: self.payload.len(), limit: max_bytes });
        }
        let wire = Wire {
            v: SCHEMA_VERSION,
            t: self.kind,
            n: self.version,
            p: self.payload,
            c: self.content_type,
            h: Headers(self.headers),
            a: self.enqueued_at,
            l: self.limits,
            o: self.own_id,
        };
        let bytes = rmp_serde::to_vec_named(&wire).map_err(|e| EnvelopeError::Malformed(e.to_string()))?;
        match bytes.len() {
            n if n > max_bytes => Err(EnvelopeError::TooLarge { bytes: n, limit: max_bytes }),
            _ => Ok(bytes),
        }
    }

    /// Reads an envelope without copying. Nothing is allocated but the list of headers.
    ///
    /// # Errors
    /// What is wrong with the bytes; a reader goes on, the job becomes a dead letter.
    pub fn decode(bytes: &'a [u8], max_bytes: usize) -> Result<Self, EnvelopeError> {
        if bytes.len() > max_bytes {
            return Err(EnvelopeError::TooLarge { bytes: bytes.len(), limit: max_bytes });
        }
        let mut reader = rmp_serde::Deserializer::from_read_ref(bytes);
        reader.set_max_depth(MAX_DEPTH);
        let wire = Wire::deserialize(&mut reader).map_err(|e| match schema_of(bytes) {
            Some(newer) if newer > u64::from(SCHEMA_VERSION) => EnvelopeError::UnknownSchema(newer),
            _ => EnvelopeError::Malformed(e.to_string()),
        })?;
        if !at_end(&mut reader) {
            return Err(EnvelopeError::TrailingBytes);
        }
        if wire.v > SCHEMA_VERSION {
            return Err(EnvelopeError::UnknownSchema(u64::from(wire.v)));
        }
        Ok(Self {
            kind: wire.t,
            version: wire.n,
            payload: wire.p,
            content_type: wire.c,
            headers: wire.h.0,
            enqueued_at: wire.a,
            limits: wire.l,
            own_id: wire.o,
        })
    }

    /// How long after it became ready it may start, without copying and without the list of headers. `None` where it does not
    /// say, or where [`Envelope::decode`] would refuse for its size, schema or shape.
    #[must_use]
    pub fn expires_in(bytes: &'a [u8], max_bytes: usize) -> Option<Duration> {
        #[derive(Deserialize)]
        struct Expiry {
            v: u8,
            #[serde(default)]
            l: Limits,
        }
        if bytes.len() > max_bytes {
            return None;
        }
        let mut reader = rmp_serde::Deserializer::from_read_ref(bytes);
        reader.set_max_depth(MAX_DEPTH);
        let expiry = Expiry::deserialize(&mut reader).ok().filter(|expiry| expiry.v <= SCHEMA_VERSION)?;
        expiry.l.expires_in_ms.map(Duration::from_millis)
    }

    /// The kind alone, without copying and without the list of headers. `None` where [`Envelope::decode`] would refuse for
    /// its size, schema or shape up to there.
    #[must_use]
    pub fn kind_of(bytes: &'a [u8], max_bytes: usize) -> Option<&'a str> {
        #[derive(Deserialize)]
        struct Kind<'a> {
            v: u8,
            t: &'a str,
        }
        if bytes.len() > max_bytes {
            return None;
        }
        let mut reader = rmp_serde::Deserializer::from_read_ref(bytes);
        reader.set_max_depth(MAX_DEPTH);
        Kind::deserialize(&mut reader).ok().filter(|kind| kind.v <= SCHEMA_VERSION).map(|kind| kind.t)
    }
}

/// Reads nothing but the schema version, to name a newer one even where its shape is not ours.
fn schema_of(bytes: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Schema {
        v: u64,
    }
    let mut reader = rmp_serde::Deserializer::from_read_ref(bytes);
    reader.set_max_depth(MAX_DEPTH);
    Schema::deserialize(&mut reader).ok().map(|s| s.v)
}

/// Whether the reader has read everything. The decoder does not show what remains, but only at the very end does it
/// find no further marker; asked for a plain value it reads one marker and goes into nothing.
fn at_end(reader: &mut rmp_serde::Deserializer<rmp_serde::decode::ReadRefReader<'_, [u8]>>) -> bool {
    matches!(
        bool::deserialize(reader),
        Err(rmp_serde::decode::Error::InvalidMarkerRead(e)) if e.kind() == std::io::ErrorKind::UnexpectedEof
    )
}

#[cfg(test)]
#[path = "envelope_tests.rs"]
mod tests;
