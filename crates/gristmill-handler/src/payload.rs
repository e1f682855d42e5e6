//! The first argument of a handler: the payload, typed or raw.

use crate::context::Context;
use crate::error::{HandlerError, capped};
use crate::nesting::{check_json, check_message_pack};
use bytes::Bytes;
use gristmill_job::ContentType;
use serde::de::DeserializeOwned;
use std::error::Error;

/// What a handler may take as its first argument: every `T: DeserializeOwned`, or [`Raw`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a handler's payload",
    note = "the first argument of a handler is a type that implements `serde::de::DeserializeOwned`, or `Raw`"
)]
pub trait FromPayload: Sized {
    /// # Errors
    /// A permanent error: what was expected, and what came.
    fn from_payload(context: &Context) -> Result<Self, HandlerError>;
}

impl<T: DeserializeOwned> FromPayload for T {
    fn from_payload(context: &Context) -> Result<Self, HandlerError> {
        let bytes = context.payload();
        decode(bytes, context.content_type()).map_err(|why| {
            HandlerError::permanent(PayloadError {
                expected: std::any::type_name::<T>(),
                codec: match context.content_type() {
                    ContentType::MessagePack => "MessagePack",
                    ContentType::Json => "JSON",
                },
                bytes: bytes.len(),
                why: capped(why),
            })
        })
    }
}

fn decode<T: DeserializeOwned>(bytes: &[u8], content_type: ContentType) -> Result<T, Box<dyn Error>> {
    match content_type {
        ContentType::MessagePack => {
            check_message_pack(bytes)?;
            Ok(rmp_serde::from_slice(bytes)?)
        }
        ContentType::Json => {
            check_json(bytes)?;
            Ok(serde_json::from_slice(bytes)?)
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the payload does not decode: expected {expected} in {codec}, got {bytes} bytes: {why}; mend the producer or the \
     handler's type, then replay"
)]
struct PayloadError {
    expected: &'static str,
    codec: &'static str,
    bytes: usize,
    why: String,
}

/// A payload as it came, for handlers that decode it themselves or pass it on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw {
    /// The payload's bytes, shared with the envelope.
    pub bytes: Bytes,
    /// What its producer says they are.
    pub content_type: ContentType,
}

impl FromPayload for Raw {
    fn from_payload(context: &Context) -> Result<Self, HandlerError> {
        Ok(Self { bytes: context.payload_shared(), content_type: context.content_type() })
    }
}
