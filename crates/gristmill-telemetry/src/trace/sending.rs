//! The span of a producer: made before a job is enqueued, since its context goes with the job.

use super::Traces;
use super::span::{Kind, Span};
use super::words;
use gristmill_job::envelope::MAX_HEADERS;
use gristmill_job::trace::{TRACEPARENT, TraceContext, is_kept};
use gristmill_job::{Place, QueueName};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::SystemTime;

/// A job on its way into a queue.
#[derive(Debug)]
pub struct Sending {
    span: Span,
}

impl Sending {
    /// It is the job of a slot of a schedule, in ms since 1970.
    #[must_use]
    pub fn of_slot(mut self, schedule: &str, slot_ms: u64) -> Self {
        self.span.set(words::SCHEDULE, schedule.to_owned());
        self.span.set(words::SLOT_MS, slot_ms);
        self
    }
}

impl Traces {
    /// A job is about to be enqueued: its span, where it is kept. A producer's own `traceparent` is never rewritten, and makes
    /// the span a part of the producer's trace; a job without one carries the context of the span from here on. `around` is
    /// what the enqueue itself is a part of.
    #[must_use]
    pub fn send(
        &self,
        queue: &QueueName,
        kind: &str,
        headers: &mut Vec<(String, String)>,
        around: Option<TraceContext>,
    ) -> Option<Sending> {
        let own = headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(TRACEPARENT))
            .map(|(_, value)| TraceContext::parse(value));
        let parent = own.unwrap_or(around);
        let trace_id = match parent {
            Some(parent) => parent.trace_id,
            None => (u128::from(random()) << 64 | u128::from(random())).max(1).to_be_bytes(),
        };
        let sampled = parent.map_or_else(|| is_kept(trace_id, self.share()), |parent| parent.sampled);
        if !sampled {
            return None;
        }
        let context = TraceContext { trace_id, span_id: random().max(1).to_be_bytes(), sampled };
        let carried = own.is_none() && headers.len() < MAX_HEADERS;
        if carried {
            headers.push((TRACEPARENT.to_owned(), context.to_string()));
        }
        // Only a span whose context goes with the message is its producer's.
        let sort = if carried { Kind::Producer } else { Kind::Client };
        let mut span = Span::new(context, format!("send {queue}"), sort, SystemTime::now());
        span.parent = parent.map(|parent| parent.span_id);
        span.set(words::SYSTEM, words::GRISTMILL);
        span.set(words::OPERATION_NAME, "send");
        span.set(words::OPERATION_TYPE, "send");
        span.set(words::DESTINATION, queue.to_string());
        span.set(words::KIND, kind.to_owned());
        Some(Sending { span })
    }

    /// What became of it: its id and, where one was told, its place; or why it is not in the queue, in a word and in words.
    pub fn sent(&self, sending: Sending, became: Result<(String, Option<Place>), (&'static str, String)>) {
        let Sending { mut span } = sending;
        span.ended = SystemTime::now();
        match became {
            Ok((id, place)) => {
                span.set(words::MESSAGE_ID, id);
                if let Some(place) = place {
                    span.set(words::PLACE, place.to_string());
                }
            }
            Err((word, text)) => {
                span.set(words::ERROR_TYPE, word);
                span.error = Some(text);
            }
        }
        self.finished(span);
    }
}

/// Each has keys of its own, which the system gave.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Telemetry;
    use crate::metrics::Role;
    use crate::trace::Tracing;
    use crate::trace::span::Value;
    use std::time::Duration;

    const OWN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn sent(share: f64, headers: &mut Vec<(String, String)>, around: Option<&str>) -> Option<Span> {
        let telemetry = Telemetry::new(Role::Ingest);
        telemetry.trace(Tracing { share, slow: Duration::from_secs(1), room: 8 });
        let traces = telemetry.traces().unwrap();
        let queue = QueueName::new("q").unwrap();
        let around = around.map(|text| TraceContext::parse(text).unwrap());
        let sending = traces.send(&queue, "k", headers, around)?;
        traces.sent(sending, Ok(("id".into(), None)));
        traces.take(8, Duration::ZERO).spans.pop()
    }

    #[test]
    fn a_job_without_a_context_carries_that_of_its_span() {
        let mut headers = vec![("a".to_owned(), "b".to_owned())];
        let span = sent(1.0, &mut headers, None).unwrap();
        assert_eq!(headers[1], (TRACEPARENT.to_owned(), span.context.to_string()));
        assert_eq!((span.name.as_str(), span.kind, span.parent), ("send q", Kind::Producer, None));
        assert!(span.attributes.contains(&(words::MESSAGE_ID, Value::Text("id".into()))));
        let again = sent(1.0, &mut Vec::new(), None).unwrap();
        assert_ne!(again.context.trace_id, span.context.trace_id);
    }

    #[test]
    fn a_context_of_the_producers_own_is_not_rewritten() {
        for own in [OWN, "nonsense"] {
            let mut headers = vec![("TraceParent".to_owned(), own.to_owned())];
            let before = headers.clone();
            let span = sent(1.0, &mut headers, None).unwrap();
            assert_eq!(headers, before);
            assert_eq!(span.kind, Kind::Client);
            let is_part = TraceContext::parse(own)
                .is_none_or(|own| (own.trace_id, Some(own.span_id)) == (span.context.trace_id, span.parent));
            assert!(is_part, "{span:?}");
        }
    }

    #[test]
    fn it_is_kept_as_what_it_is_a_part_of_and_else_by_share() {
        let mut headers = Vec::new();
        assert!(sent(0.0, &mut headers, None).is_none() && headers.is_empty());
        let span = sent(0.0, &mut headers, Some(OWN)).unwrap();
        assert_eq!(TraceContext::parse(&headers[0].1), Some(span.context));
        assert_eq!((span.context.trace_id(), span.kind), (OWN[3..35].to_owned(), Kind::Producer));
        assert!(sent(1.0, &mut Vec::new(), Some(&OWN.replace("-01", "-00"))).is_none());
    }
}
