//! Spans arrive at a collector over gRPC, as they were made; what was counted arrives to the end; and what cannot arrive is
//! counted and not waited for. (Over HTTP spans are heard by the tests of the command line.)

#![allow(clippy::unwrap_used, reason = "all of it is a test; clippy excuses test functions only")]

use fake_opentelemetry_collector::FakeCollectorServer;
use gristmill_job::TraceContext;
use gristmill_otlp::environment::Environment;
use gristmill_otlp::{Exporter, Wanted};
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::metrics::Role;
use gristmill_telemetry::trace::Tracing;
use gristmill_telemetry::trace::span::{Kind, Link, Span, SpanEvent};
use gristmill_telemetry::trace::words;
use gristmill_testkit::eventually;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use prost::Message;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

const SOON: Duration = Duration::from_secs(20);

fn start(endpoint: &str, rhythm_ms: &str) -> (Telemetry, Exporter) {
    let telemetry = Telemetry::new(Role::Node);
    telemetry.trace(Tracing { share: 1.0, slow: Duration::from_secs(10), room: 64 });
    let variables = [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ("OTEL_BSP_SCHEDULE_DELAY", rhythm_ms),
    ];
    let texts = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let environment = Environment::read(texts).unwrap();
    let wanted = Wanted { instance: "n".into(), metrics: false };
    let exporter = Exporter::start(&telemetry, &environment, &wanted).unwrap();
    (telemetry, exporter)
}

fn span(trace: u8, name: &str) -> Span {
    let context = TraceContext::new([trace; 16], [trace; 8], true).unwrap();
    Span::new(context, name.to_owned(), Kind::Consumer, SystemTime::now())
}

#[test]
fn spans_arrive_over_grpc_with_their_links_events_and_errors_also_those_that_come_last() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut collector = runtime.block_on(FakeCollectorServer::start()).unwrap();
    let (telemetry, exporter) = start(&collector.endpoint(), "20");
    let traces = telemetry.traces().unwrap();
    let mut first = span(1, "process q");
    first.set(words::DESTINATION, "q");
    first.set(words::ATTEMPT, 3_u32);
    first.events.push(SpanEvent {
        name: words::SETTLED,
        at: first.ended,
        attributes: vec![(words::OUTCOME, "dead".into())],
    });
    let context = TraceContext::new([7; 16], [8; 8], true).unwrap();
    first.links.push(Link { context, state: "a=b".into(), relation: words::CREATION });
    first.error = Some("no use".into());
    traces.finished(first);
    let came = runtime.block_on(collector.exported_spans(1, SOON));
    let [came] = came.as_slice() else { panic!("{came:?}") };
    assert_eq!((came.name.as_str(), came.kind.as_str()), ("process q", "SPAN_KIND_CONSUMER"));
    assert_eq!(
        (came.trace_id.as_str(), came.span_id.as_str()),
        ("01".repeat(16).as_str(), "01".repeat(8).as_str())
    );
    let status = came.status.clone().unwrap();
    assert_eq!((status.code.as_str(), status.message.as_str()), ("STATUS_CODE_ERROR", "no use"));
    assert!(
        came.attributes[words::ATTEMPT].contains('3') && came.attributes[words::DESTINATION].contains("q")
    );
    assert_eq!((came.events[0].name.as_str(), came.links.len()), ("settled", 1));
    let link = &came.links[0];
    assert_eq!((link.trace_id.as_str(), link.trace_state.as_str()), ("07".repeat(16).as_str(), "a=b"));
    assert!(link.attributes[words::RELATION].contains("creation"));
    eventually(SOON, "it is counted", || {
        (telemetry.metrics().spans_exported_total.one().get() == 1).then_some(())
    });

    // What is there when the process ends is taken before it is gone.
    for n in 2..12 {
        traces.finished(span(n, "last"));
    }
    exporter.finish(SOON);
    let last = runtime.block_on(collector.exported_spans(10, SOON));
    assert_eq!(last.iter().filter(|span| span.name == "last").count(), 10);
    assert_eq!(telemetry.metrics().spans_dropped_total.one().get(), 0);
}

/// A collector of metrics by HTTP that takes so many requests, and hands on what each tells of `outbox_relayed_total`.
fn collector_of(requests: usize) -> (String, mpsc::Receiver<f64>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (tell, heard) = mpsc::channel();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let mut reader = BufReader::new(stream);
        for _ in 0..requests {
            let mut length = 0;
            for line in reader.by_ref().lines() {
                let line = line.unwrap().to_ascii_lowercase();
                if line.is_empty() {
                    break;
                }
                if let Some(bytes) = line.strip_prefix("content-length: ") {
                    length = bytes.parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let request = ExportMetricsServiceRequest::decode(&body[..]).unwrap();
            let metrics =
                request.resource_metrics.iter().flat_map(|of| &of.scope_metrics).flat_map(|of| &of.metrics);
            let relayed = metrics.filter(|metric| metric.name.ends_with("outbox_relayed_total"));
            let values = relayed.filter_map(|metric| match metric.data.as_ref()? {
                Data::Sum(sum) => match sum.data_points.first()?.value? {
                    Value::AsDouble(value) => Some(value),
                    Value::AsInt(value) => Some(value as f64),
                },
                _ => None,
            });
            let told = values.sum();
            reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
            tell.send(told).unwrap();
        }
    });
    (endpoint, heard)
}

#[test]
fn what_was_counted_since_the_last_time_arrives_when_the_process_ends() {
    let (endpoint, heard) = collector_of(2);
    let telemetry = Telemetry::new(Role::Node);
    let variables =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_METRIC_EXPORT_INTERVAL", "3600000")];
    let texts = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let environment = Environment::read(texts).unwrap();
    let relayed = telemetry.metrics().outbox_relayed_total.one();
    relayed.add(1);
    let wanted = Wanted { instance: "n".into(), metrics: true };
    let exporter = Exporter::start(&telemetry, &environment, &wanted).unwrap();
    // The first time is at once, the next in an hour.
    assert_eq!(heard.recv_timeout(SOON), Ok(1.0));
    relayed.add(2);
    exporter.finish(SOON);
    assert_eq!(heard.try_recv(), Ok(3.0));
}

#[test]
fn a_collector_that_does_not_answer_holds_nobody() {
    // It accepts, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (telemetry, exporter) = start(&format!("http://{}", silent.local_addr().unwrap()), "10");
    let traces = telemetry.traces().unwrap();
    let began = Instant::now();
    for _ in 0..500 {
        traces.finished(span(1, "process q"));
    }
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(
        telemetry.metrics().spans_dropped_total.one().get() >= 300,
        "64 have room, and as many are on their way"
    );
    let began = Instant::now();
    exporter.finish(Duration::from_millis(300));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(telemetry.metrics().spans_exported_total.one().get(), 0);
}
