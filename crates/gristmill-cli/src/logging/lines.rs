//! A line for each event, and beside its own fields those of the job whose handler wrote it: `job`, `attempt`, `trace_id`.

use gristmill_node::{CurrentJob, current_job};
use serde_json::{Map, Value};
use std::fmt;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// One JSON object per line.
pub(super) struct Json;

/// For people: as the library writes, and behind it the job.
pub(super) struct Human<F>(pub(super) F);

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let metadata = event.metadata();
        let mut fields = Fields(Map::new());
        // The order in which people read.
        fields.0.insert("timestamp".into(), time.into());
        fields.0.insert("level".into(), metadata.level().as_str().into());
        fields.0.insert("target".into(), metadata.target().into());
        event.record(&mut fields);
        for (name, value) in of_current() {
            fields.0.entry(name).or_insert(value);
        }
        writeln!(writer, "{}", Value::Object(fields.0))
    }
}

impl<S, N, F> FormatEvent<S, N> for Human<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let current = of_current();
        if current.is_empty() {
            return self.0.format_event(context, writer, event);
        }
        let mut line = String::new();
        // Its format knows by itself whether there are colours.
        self.0.format_event(context, Writer::new(&mut line), event)?;
        let known = event.metadata().fields();
        write!(writer, "{}", line.trim_end_matches('\n'))?;
        for (name, value) in current.iter().filter(|(name, _)| known.field(name).is_none()) {
            match value {
                Value::String(text) => write!(writer, " {name}={text}")?,
                other => write!(writer, " {name}={other}")?,
            }
        }
        writeln!(writer)
    }
}

/// What is said of the job whose handler is polled on this thread.
fn of_current() -> Vec<(String, Value)> {
    let Some(CurrentJob { job, attempt, trace }) = current_job() else { return Vec::new() };
    let mut fields = vec![("job".into(), job.to_string().into()), ("attempt".into(), attempt.into())];
    if let Some(trace) = trace {
        fields.push(("trace_id".into(), trace.trace_id().into()));
        fields.push(("span_id".into(), trace.span_id().into()));
    }
    fields
}

struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().into(), value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}
