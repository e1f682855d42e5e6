//! A collector: OTLP over HTTP with protobuf, as plain as it can be.

use crate::fixture::SOON;
use gristmill_testkit::eventually;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Heard {
    spans: Vec<Span>,
    services: Vec<String>,
    metrics: Vec<String>,
    headers: Vec<String>,
}

pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    heard: Arc<Mutex<Heard>>,
}

impl Collector {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, heard) = (listener.local_addr().unwrap(), Arc::<Mutex<Heard>>::default());
        let hears = heard.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let hears = hears.clone();
                std::thread::spawn(move || while serve(&stream, &hears).is_some() {});
            }
        });
        Self { address, heard }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        self.heard.lock().unwrap().spans.clone()
    }

    pub(crate) fn services(&self) -> Vec<String> {
        self.heard.lock().unwrap().services.clone()
    }

    pub(crate) fn metrics(&self) -> Vec<String> {
        self.heard.lock().unwrap().metrics.clone()
    }

    pub(crate) fn headers(&self) -> Vec<String> {
        self.heard.lock().unwrap().headers.clone()
    }

    /// Waits for a span of this name, job and outcome.
    #[track_caller]
    pub(crate) fn wait(&self, name: &str, job: &str, outcome: &str) -> Span {
        let wanted = |span: &Span| {
            span.name == name
                && text(span, "messaging.message.id") == job
                && (outcome.is_empty() || text(span, "gristmill.outcome") == outcome)
        };
        eventually(SOON, &format!("a span {name:?} of {job}, {outcome}"), || {
            self.spans().into_iter().find(wanted)
        })
    }
}

/// One request; `None` at the end.
fn serve(mut stream: &TcpStream, heard: &Mutex<Heard>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        head.push(line.trim_end().to_lowercase());
    }
    let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut heard = heard.lock().unwrap();
    if head[0].starts_with("post /v1/traces ") {
        for resource in ExportTraceServiceRequest::decode(body.as_slice()).ok()?.resource_spans {
            let attributes = resource.resource.unwrap_or_default().attributes;
            heard.services.push(value(&attributes, "service.name"));
            heard.spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
    } else if head[0].starts_with("post /v1/metrics ") {
        let metrics = ExportMetricsServiceRequest::decode(body.as_slice()).ok()?.resource_metrics;
        let metrics = metrics.into_iter().flat_map(|resource| resource.scope_metrics);
        heard.metrics.extend(metrics.flat_map(|scope| scope.metrics).map(|metric| metric.name));
    }
    heard.headers.append(&mut head);
    drop(heard);
    stream
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n")
        .ok()
}

pub(crate) fn value(attributes: &[KeyValue], key: &str) -> String {
    let found =
        attributes.iter().find(|pair| pair.key == key).and_then(|pair| pair.value.as_ref()?.value.as_ref());
    match found {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(flag)) => flag.to_string(),
        Some(other) => panic!("an attribute of another sort: {other:?}"),
        None => String::new(),
    }
}

/// An attribute of a span as text; empty where it has none.
pub(crate) fn text(span: &Span, key: &str) -> String {
    value(&span.attributes, key)
}
