//! The trace a job belongs to, from its W3C `traceparent` header.

use crate::envelope::Envelope;

/// The name of the header.
pub const TRACEPARENT: &str = "traceparent";

impl<'a> Envelope<'a> {
    /// The trace id of its `traceparent` header, if that is well formed.
    #[must_use]
    pub fn trace_id(&self) -> Option<&'a str> {
        let header = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(TRACEPARENT));
        header.and_then(|(_, value)| trace_id(value))
    }
}

/// The trace id (32 small hex digits, not all zero) of a `traceparent` that is well formed.
#[must_use]
pub fn trace_id(traceparent: &str) -> Option<&str> {
    let mut parts = traceparent.split('-');
    let mut hex = |digits: usize| {
        let part = parts.next()?;
        let small = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        (part.len() == digits && part.bytes().all(small)).then_some(part)
    };
    let (version, trace, parent, _flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
    let zero = |id: &str| id.bytes().all(|b| b == b'0');
    // A later version may add parts, version 00 has none.
    let whole = version != "00" || parts.next().is_none();
    (version != "ff" && !zero(trace) && !zero(parent) && whole).then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn a_well_formed_header_names_its_trace() {
        for (version, tail) in [("00", ""), ("01", ""), ("cc", "-more-parts")] {
            let text = format!("{version}-{TRACE}-00f067aa0ba902b7-01{tail}");
            assert_eq!(trace_id(&text), Some(TRACE), "{text}");
        }
    }

    #[test]
    fn what_is_not_well_formed_names_none() {
        let zeros = "0".repeat(32);
        for text in [
            String::new(),
            "00-a".into(),
            TRACE.into(),
            format!("00-{TRACE}-00f067aa0ba902b7"),
            format!("00-{TRACE}-00f067aa0ba902b7-1"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{zeros}-00f067aa0ba902b7-01"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            format!("00-é{}-00f067aa0ba902b7-01", &TRACE[2..]),
        ] {
            assert_eq!(trace_id(&text), None, "{text}");
        }
    }

    #[test]
    fn an_envelope_is_asked_by_the_name_in_any_case() {
        let value = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let with = |headers| Envelope {
            kind: "k",
            version: 0,
            payload: b"",
            content_type: crate::ContentType::Json,
            headers,
            enqueued_at: crate::UnixMillis(0),
            limits: crate::Limits::default(),
            own_id: false,
        };
        assert_eq!(with(vec![("a", "b"), ("Traceparent", value.as_str())]).trace_id(), Some(TRACE));
        assert_eq!(with(vec![("traceparent", "00-a")]).trace_id(), None);
        assert_eq!(with(Vec::new()).trace_id(), None);
    }
}
