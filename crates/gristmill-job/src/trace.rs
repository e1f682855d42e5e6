//! Traces as the W3C writes them: the one a job's producer named in the `traceparent` header, and those of its attempts.
//!
//! An attempt's trace is derived from what stays the same about it wherever it runs: queue, partition, place, turn and id. So
//! nothing is stored to link an attempt to the one before, and a run that was interrupted and the one that takes its place are
//! in one trace.

use crate::envelope::Envelope;
use crate::name::{JobId, QueueName};
use crate::place::Place;
use std::fmt;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

/// The name of the header.
pub const TRACEPARENT: &str = "traceparent";
/// The name of the header beside it.
pub const TRACESTATE: &str = "tracestate";

/// A span of a trace, as others name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// Which trace; not all zero.
    pub trace_id: [u8; 16],
    /// Which span of it; not all zero.
    pub span_id: [u8; 8],
    /// Whether whoever made it keeps it.
    pub sampled: bool,
}

/// What an attempt is known by.
#[derive(Debug, Clone, Copy)]
pub struct AttemptOf<'a> {
    /// The queue of its job.
    pub queue: &'a QueueName,
    /// And the partition.
    pub partition: u16,
    /// Where the job stands.
    pub place: Place,
    /// Its id: a place may come again, in a queue that was made anew.
    pub job: &'a JobId,
    /// How often the job was put back before.
    pub turn: u32,
}

/// Separates the span of an attempt from its trace.
const SPAN_SEED: u64 = 0x7370_616e;

impl TraceContext {
    /// Of a span that somebody made, where neither id is all zero.
    #[must_use]
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8], sampled: bool) -> Option<Self> {
        (trace_id != [0; 16] && span_id != [0; 8]).then_some(Self { trace_id, span_id, sampled })
    }

    /// Of an attempt: its trace, and the span of the run whose verdict is written. `share` (0 to 1) of them are sampled.
    #[must_use]
    pub fn of_attempt(attempt: &AttemptOf<'_>, share: f64) -> Self {
        let mut name = Vec::with_capacity(128);
        name.extend_from_slice(attempt.queue.as_str().as_bytes());
        // No name of a queue holds it.
        name.push(0);
        name.extend_from_slice(&attempt.partition.to_be_bytes());
        name.extend_from_slice(&attempt.place.ms.to_be_bytes());
        name.extend_from_slice(&attempt.place.seq.to_be_bytes());
        name.extend_from_slice(&attempt.turn.to_be_bytes());
        name.extend_from_slice(attempt.job.as_bytes());
        let trace_id = xxh3_128(&name).max(1).to_be_bytes();
        Self::root_of(trace_id, share)
    }

    /// The span that an attempt's trace begins with.
    #[must_use]
    pub fn root_of(trace_id: [u8; 16], share: f64) -> Self {
        let span_id = xxh3_64_with_seed(&trace_id, SPAN_SEED).max(1).to_be_bytes();
        Self { trace_id, span_id, sampled: is_kept(trace_id, share) }
    }

    /// Another span of the same trace, by a number that is its own.
    #[must_use]
    pub fn sibling(&self, number: u64) -> Self {
        let span_id = xxh3_64_with_seed(&self.span_id, number).max(1).to_be_bytes();
        Self { span_id, ..*self }
    }

    /// Reads a `traceparent` that is well formed.
    #[must_use]
    pub fn parse(traceparent: &str) -> Option<Self> {
        let trace_id = parse_hex(trace_id(traceparent)?)?;
        let mut parts = traceparent.split('-').skip(2);
        let span_id = parse_hex(parts.next()?)?;
        let [flags] = parse_hex(parts.next()?)?;
        Some(Self { trace_id, span_id, sampled: flags & 1 == 1 })
    }

    /// The trace id in hex digits.
    #[must_use]
    pub fn trace_id(&self) -> String {
        hex(&self.trace_id)
    }

    /// The span id in hex digits.
    #[must_use]
    pub fn span_id(&self) -> String {
        hex(&self.span_id)
    }
}

impl fmt::Display for TraceContext {
    /// As a `traceparent`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace_id(), self.span_id(), u8::from(self.sampled))
    }
}

/// Whether a trace is among those of which a share is kept: everybody who asks the same of one trace hears the same.
#[must_use]
pub fn is_kept(trace_id: [u8; 16], share: f64) -> bool {
    let mut random = [0; 8];
    random.copy_from_slice(&trace_id[8..]);
    // As OpenTelemetry's sampler by ratio: 63 bits of the id against the share of 2^63.
    ((u64::from_be_bytes(random) >> 1) as f64) < share * (1_u64 << 63) as f64
}

/// The trace id that was written in hex digits.
#[must_use]
pub fn parse_trace_id(digits: &str) -> Option<[u8; 16]> {
    parse_hex(digits).filter(|id| *id != [0; 16])
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn parse_hex<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if digits.len() != 2 * N || !digits.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

impl<'a> Envelope<'a> {
    /// The span that its producer named, if that is well formed.
    #[must_use]
    pub fn trace_context(&self) -> Option<TraceContext> {
        self.header(TRACEPARENT).and_then(TraceContext::parse)
    }

    /// The first header of that name, in whatever case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }

    /// The trace id of its `traceparent` header, if that is well formed.
    #[must_use]
    pub fn trace_id(&self) -> Option<&'a str> {
        self.header(TRACEPARENT).and_then(trace_id)
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
    fn a_header_is_read_and_written() {
        let text = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let context = TraceContext::parse(&text).unwrap();
        assert_eq!((context.to_string(), context.trace_id()), (text.clone(), TRACE.to_owned()));
        assert_eq!(context.span_id(), "00f067aa0ba902b7");
        let unsampled = TraceContext::parse(&text.replace("-01", "-02")).unwrap();
        assert!(context.sampled && !unsampled.sampled);
        assert_eq!(TraceContext::parse("00-a"), None);
        assert_eq!(TraceContext::new([0; 16], [1; 8], true), None);
    }

    #[test]
    fn an_attempt_has_one_trace_wherever_it_runs_and_another_has_another() {
        let (queue, other_queue) = (QueueName::new("q").unwrap(), QueueName::new("qq").unwrap());
        let (job, other_job) = (JobId::new("a").unwrap(), JobId::new("b").unwrap());
        let place = Place { ms: 5, seq: 1 };
        let attempt = AttemptOf { queue: &queue, partition: 3, place, job: &job, turn: 1 };
        let others = [
            attempt,
            AttemptOf { queue: &other_queue, ..attempt },
            AttemptOf { partition: 4, ..attempt },
            AttemptOf { place: Place { ms: 5, seq: 2 }, ..attempt },
            AttemptOf { job: &other_job, ..attempt },
            AttemptOf { turn: 2, ..attempt },
        ];
        let traces: std::collections::HashSet<_> =
            others.iter().map(|attempt| TraceContext::of_attempt(attempt, 1.0).trace_id).collect();
        assert_eq!(traces.len(), others.len());
        let context = TraceContext::of_attempt(&attempt, 1.0);
        assert_eq!(context, TraceContext::of_attempt(&attempt, 1.0));
        assert_eq!(context, TraceContext::root_of(context.trace_id, 1.0));
        let sibling = context.sibling(7);
        assert!(sibling.trace_id == context.trace_id && sibling.span_id != context.span_id);
        // The derivation is frozen: links name attempts of releases before.
        assert_eq!(context.to_string(), "00-64b539bbfb1099a3e4a10fefe9bcddac-08eb9eeb425a8558-01");
    }

    #[test]
    fn a_share_of_traces_is_kept() {
        let ids = |n: u64| xxh3_128(&n.to_be_bytes()).to_be_bytes();
        let kept = |share| (0..10_000).filter(|n| is_kept(ids(*n), share)).count();
        assert_eq!((kept(0.0), kept(1.0)), (0, 10_000));
        assert!((1_900..2_100).contains(&kept(0.2)), "{}", kept(0.2));
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
