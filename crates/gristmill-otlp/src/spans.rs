//! A span in the words of OpenTelemetry's library.

use gristmill_job::TraceContext;
use gristmill_telemetry::trace::span::{Attributes, Kind, Link, Span, SpanEvent, Value};
use gristmill_telemetry::trace::words::RELATION;
use opentelemetry::trace::{
    Event, Link as OtherLink, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue, Value as OtherValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use std::sync::LazyLock;

static SCOPE: LazyLock<InstrumentationScope> = LazyLock::new(|| {
    InstrumentationScope::builder("gristmill").with_version(env!("CARGO_PKG_VERSION")).build()
});

pub(crate) fn of(span: Span) -> SpanData {
    let mut events = SpanEvents::default();
    events.events = span.events.into_iter().map(event).collect();
    let mut links = SpanLinks::default();
    links.links = span.links.into_iter().map(link).collect();
    SpanData {
        // An exporter's library drops what is not sampled: whoever made the span has decided that it is kept.
        span_context: context(TraceContext { sampled: true, ..span.context }, false, ""),
        parent_span_id: span.parent.map_or(SpanId::INVALID, SpanId::from_bytes),
        parent_span_is_remote: false,
        span_kind: match span.kind {
            Kind::Producer => SpanKind::Producer,
            Kind::Consumer => SpanKind::Consumer,
            Kind::Client => SpanKind::Client,
        },
        name: span.name.into(),
        start_time: span.began,
        end_time: span.ended,
        attributes: attributes(span.attributes),
        dropped_attributes_count: 0,
        events,
        links,
        status: span.error.map_or(Status::Unset, Status::error),
        instrumentation_scope: SCOPE.clone(),
    }
}

fn event(SpanEvent { name, at, attributes: more }: SpanEvent) -> Event {
    Event::new(name, at, attributes(more), 0)
}

fn link(Link { context: of, state, relation }: Link) -> OtherLink {
    OtherLink::new(context(of, true, &state), vec![KeyValue::new(RELATION, relation)], 0)
}

fn context(context: TraceContext, remote: bool, state: &str) -> SpanContext {
    let flags = if context.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let (trace, span) = (TraceId::from_bytes(context.trace_id), SpanId::from_bytes(context.span_id));
    // One that is not well formed says nothing.
    SpanContext::new(trace, span, flags, remote, state.parse::<TraceState>().unwrap_or_default())
}

fn attributes(attributes: Attributes) -> Vec<KeyValue> {
    let pair = |(name, value): (&'static str, Value)| {
        let value = match value {
            Value::Text(text) => OtherValue::from(text),
            Value::Shared(text) => OtherValue::from(text),
            Value::Word(word) => OtherValue::from(word),
            Value::Number(number) => OtherValue::from(number),
            Value::Flag(flag) => OtherValue::from(flag),
        };
        KeyValue::new(name, value)
    };
    attributes.into_iter().map(pair).collect()
}
