//! A payload that a person edited, and the envelope it makes of an old one.

use super::payload::from_messagepack;
use crate::exit::Failure;
use gristmill_job::{ContentType, Envelope, JobLimits};
use serde::de::IgnoredAny;
use std::io::Read;
use std::path::Path;

/// The new payload.
pub(super) struct Edit {
    bytes: Vec<u8>,
    /// What it can be read as, JSON first.
    form: Option<ContentType>,
}

impl Edit {
    /// Reads a file; `-` is standard input. Nothing larger than an envelope is read.
    ///
    /// # Errors
    /// What is wrong with it, for a person.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let limit = JobLimits::default().max_envelope_bytes as u64 + 1;
        let mut bytes = Vec::new();
        let read = match path == Path::new("-") {
            true => std::io::stdin().lock().take(limit).read_to_end(&mut bytes),
            false => std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)),
        };
        match read {
            Ok(_) => Ok(Self::of_bytes(bytes)),
            Err(error) => Err(Failure::Usage(format!("cannot read the payload {}: {error}", path.display()))),
        }
    }

    fn of_bytes(bytes: Vec<u8>) -> Self {
        let json = bytes.trim_ascii();
        if serde_json::from_slice::<IgnoredAny>(json).is_ok() {
            return Self { form: Some(ContentType::Json), bytes: json.to_vec() };
        }
        let form = from_messagepack(&bytes).map(|_| ContentType::MessagePack);
        Self { bytes, form }
    }

    /// The envelope with this payload and everything else as it was.
    ///
    /// # Errors
    /// Why there is none: what came, and what to do.
    pub(super) fn of(&self, envelope: &[u8]) -> Result<Vec<u8>, String> {
        let old = Envelope::decode(envelope, usize::MAX).map_err(|why| {
            format!("{why}; only an envelope that can be read can be edited, enqueue its job anew instead")
        })?;
        let readable = match old.content_type {
            ContentType::Json => serde_json::from_slice::<IgnoredAny>(old.payload).is_ok(),
            ContentType::MessagePack => from_messagepack(old.payload).is_some(),
        };
        let content_type = match (self.form, readable) {
            (Some(form), true) => form,
            (None, true) => {
                return Err(
                    "the new payload is neither JSON nor MessagePack, and the old one was; give it as JSON"
                        .into(),
                );
            }
            // Bytes of a handler that reads them itself.
            (_, false) => old.content_type,
        };
        let limit = JobLimits::default().max_envelope_bytes;
        Envelope { payload: &self.bytes, content_type, ..old }.encode(limit).map_err(|why| why.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_job::{NewJob, UnixMillis};

    fn old(payload: &[u8], content_type: ContentType) -> Vec<u8> {
        let job = NewJob::from_bytes("charge", "k", payload.to_vec(), content_type).unwrap();
        let job = job.with_id("j").unwrap().with_version(7).with_header("traceparent", "x");
        job.encode(UnixMillis(5), JobLimits::default()).unwrap().envelope.to_vec()
    }

    fn edited(old: &[u8], new: &[u8]) -> Result<(ContentType, Vec<u8>), String> {
        let bytes = Edit::of_bytes(new.to_vec()).of(old)?;
        let envelope = Envelope::decode(&bytes, usize::MAX).unwrap();
        let before = Envelope::decode(old, usize::MAX).unwrap();
        let (payload, content_type) = (envelope.payload.to_vec(), envelope.content_type);
        // Everything else is as it was.
        assert_eq!(
            Envelope { payload: before.payload, content_type: before.content_type, ..envelope },
            before
        );
        Ok((content_type, payload))
    }

    #[test]
    fn only_the_payload_changes_and_json_stays_as_it_was_typed() {
        let json = old(b"{\"a\":1}", ContentType::Json);
        let messagepack = old(&[0x81, 0xa1, b'a', 1], ContentType::MessagePack);
        let new = (ContentType::Json, b"{\"a\": 2.50}".to_vec());
        assert_eq!(edited(&json, b"{\"a\": 2.50}\n"), Ok(new.clone()));
        assert_eq!(edited(&messagepack, b"{\"a\": 2.50}\n"), Ok(new));
        let bytes = vec![0x81, 0xa1, b'a', 2];
        assert_eq!(edited(&messagepack, &bytes), Ok((ContentType::MessagePack, bytes)));
        for garbage in [&b"{\"a\":"[..], b"\xc1", b""] {
            assert!(edited(&json, garbage).unwrap_err().contains("give it as JSON"), "{garbage:?}");
        }
        // A handler that takes bytes gets bytes.
        let raw = old(b"\xc1\xc1", ContentType::MessagePack);
        assert_eq!(edited(&raw, b"\xc1"), Ok((ContentType::MessagePack, vec![0xc1])));
    }

    #[test]
    fn what_cannot_be_an_envelope_is_refused() {
        let refused = Edit::of_bytes(b"1".to_vec()).of(b"\x00no envelope").unwrap_err();
        assert!(refused.contains("enqueue its job anew"), "{refused}");
        let large = format!("\"{}\"", "x".repeat(1 << 20));
        let refused = Edit::of_bytes(large.into_bytes()).of(&old(b"1", ContentType::Json)).unwrap_err();
        assert!(refused.contains("an envelope may have 1048576 bytes"), "{refused}");
    }
}
