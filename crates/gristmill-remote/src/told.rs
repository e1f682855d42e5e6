//! What a handler is told about its job, the same in every form: as headers, as variables, as members of a line.
//!
//! Ids and keys may hold any bytes. In headers and variables, bytes other than `!` to `~` and `%` itself stand as `%XX`,
//! so that nothing a producer chose can end a line or begin another header.

use gristmill_handler::Context;
use gristmill_job::ContentType;
use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest `tracestate` that is passed on, as the W3C asks for at least.
const MAX_TRACESTATE_BYTES: usize = 512;

pub(crate) struct Told {
    pub(crate) id: String,
    pub(crate) key: String,
    pub(crate) kind: String,
    pub(crate) queue: String,
    pub(crate) version: u64,
    pub(crate) attempt: u32,
    pub(crate) recovered: bool,
    pub(crate) content_type: &'static str,
    pub(crate) json: bool,
    pub(crate) deadline_ms: u64,
    pub(crate) idempotency_key: String,
    pub(crate) traceparent: Option<String>,
    pub(crate) tracestate: Option<String>,
}

impl Told {
    /// `hard_limit` from now is the run's deadline.
    pub(crate) fn of(context: &Context, content_type: ContentType, hard_limit: Duration) -> Self {
        let headers = context.headers();
        let header =
            |name: &str| headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, v)| v);
        let traceparent = header(gristmill_job::trace::TRACEPARENT)
            .filter(|value| value.len() <= 256 && gristmill_job::trace::trace_id(value).is_some());
        let fits = |value: &&str| {
            value.len() <= MAX_TRACESTATE_BYTES && value.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
        };
        let tracestate = traceparent.and_then(|_| header("tracestate")).filter(fits);
        // Where the node traces this run, what is asked for it belongs to the run; the producer's context is linked from there.
        let own = context.trace().map(|trace| trace.to_string());
        let tracestate = tracestate.filter(|_| own.is_none());
        Self {
            id: visible(context.id().as_bytes()),
            key: visible(context.key().as_bytes()),
            kind: visible(context.kind().as_bytes()),
            queue: context.queue().to_string(),
            version: context.version(),
            attempt: context.attempt(),
            recovered: context.recovered(),
            json: content_type == ContentType::Json,
            content_type: match content_type {
                ContentType::Json => "application/json",
                ContentType::MessagePack => "application/vnd.msgpack",
            },
            deadline_ms: unix_ms(hard_limit),
            idempotency_key: context.idempotency_key(),
            traceparent: own.or_else(|| {
                traceparent.filter(|value| value.bytes().all(|b| b.is_ascii_graphic())).map(str::to_owned)
            }),
            tracestate: tracestate.map(str::to_owned),
        }
    }

    /// Name without prefix, in small letters with `-`, and value.
    pub(crate) fn fields(&self) -> [(&'static str, String); 8] {
        [
            ("id", self.id.clone()),
            ("key", self.key.clone()),
            ("kind", self.kind.clone()),
            ("queue", self.queue.clone()),
            ("version", self.version.to_string()),
            ("attempt", self.attempt.to_string()),
            ("recovered", self.recovered.to_string()),
            ("deadline-ms", self.deadline_ms.to_string()),
        ]
    }
}

fn unix_ms(from_now: Duration) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from((now + from_now).as_millis()).unwrap_or(u64::MAX)
}

/// The bytes as visible ASCII.
pub(crate) fn visible(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'!'..=b'~' if *byte != b'%' => text.push(char::from(*byte)),
            _ => {
                // Writing to a String cannot fail.
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_of_a_producer_ends_a_line() {
        assert_eq!(visible(b"SKU-1/a:b"), "SKU-1/a:b");
        assert_eq!(visible("a\r\nX: é%\0".as_bytes()), "a%0D%0AX:%20%C3%A9%25%00");
    }
}
