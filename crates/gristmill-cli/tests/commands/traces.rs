//! What a collector hears of jobs that are done, retried, handed back, recovered, dead-lettered and replayed.

use crate::asked::{address, metric, wait_metric};
use crate::collector::{Collector, text, value};
use crate::fixture::{Fixture, SOON, gristmill, run};
use gristmill_testkit::eventually;
use gristmill_testkit::process::{Process, ProcessOptions, Signal};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use std::time::{Duration, Instant};

const QUICK: &str =
    "--set retry.base_ms=1 --set retry.cap_ms=1 --set retry.floor_ms=1 --set retry.max_attempts=2";
const TRACED: &str = "--set telemetry.traces=true --set telemetry.traces_keep=1";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn context(span: &Span) -> (Vec<u8>, Vec<u8>) {
    (span.trace_id.clone(), span.span_id.clone())
}

/// What a span is linked to, by relation.
fn linked(span: &Span, relation: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut links =
        span.links.iter().filter(|link| value(&link.attributes, "gristmill.relation") == relation);
    let link = links.next().map(|link| (link.trace_id.clone(), link.span_id.clone()));
    assert!(links.next().is_none(), "two links {relation}: {span:?}");
    link
}

struct World {
    fixture: Fixture,
    collector: Collector,
}

impl World {
    fn new() -> Self {
        Self { fixture: Fixture::new(), collector: Collector::start() }
    }

    fn options(&self, program: impl AsRef<std::ffi::OsStr>, args: &str) -> ProcessOptions {
        let url = self.fixture.server.url();
        ProcessOptions::new(program)
            .args(["--redis", url.as_str()])
            .args(args.split_whitespace())
            .envs([("OTEL_EXPORTER_OTLP_ENDPOINT", self.collector.endpoint())])
            .envs([("OTEL_BSP_SCHEDULE_DELAY", "50")])
            .envs([("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=shop")])
    }

    fn node(&self, more: &str) -> Process {
        self.node_in("human", more)
    }

    fn node_in(&self, format: &str, more: &str) -> Process {
        let leases = "--set lease.ttl_ms=1500 --set lease.renewal_ms=300 --set lease.margin_ms=450";
        let args = format!("node --queues q:4 --set log.format={format} {leases} {QUICK} {TRACED} {more}");
        let node = self.options(self.fixture.stubborn_path(), &args).spawn().unwrap();
        node.wait_line(|line| line.text.contains(" ready ") || line.text.contains("\"ready\""), SOON)
            .unwrap();
        node
    }

    /// Enqueued by the program, traced on the way.
    fn enqueue(&self, kind: &str, key: &str) -> Span {
        let id = format!("{kind}-{key}");
        let line = format!(
            "{{\"id\":\"{id}\",\"key\":\"{key}\",\"version\":1,\"kind\":\"{kind}\",\"payload\":\"a secret\"}}\n"
        );
        let file = self.fixture.file("job", line.as_bytes());
        let args = format!("enqueue q --create --partitions 4 --from {} {TRACED}", file.display());
        let said = run(self.options(gristmill(), &args));
        assert_eq!(said.code, 0, "{said:?}");
        self.collector.wait("send q", &id, "")
    }
}

fn drain(mut node: Process) {
    node.terminate().unwrap();
    assert_eq!(node.wait(SOON).unwrap().code(), Some(0), "{}", node.stderr_tail());
}

#[test]
fn a_job_that_is_done_is_two_spans_and_a_link() {
    let world = World::new();
    let told = world.fixture.file("told", b"");
    let script = format!("kinds.well.exec=[\"sh\",\"-c\",\"echo $TRACEPARENT > {}\"]", told.display());
    let file = world.fixture.file("kinds.toml", format!("{script}\n").as_bytes());
    let sent = world.enqueue("well", "a");
    let node = world.node(&format!("--config {}", file.display()));
    let span = world.collector.wait("process q", "well-a", "done");
    drain(node);

    assert_eq!((sent.kind(), span.kind()), (SpanKind::Producer, SpanKind::Consumer));
    assert_eq!(linked(&span, "creation"), Some(context(&sent)));
    assert_ne!(span.trace_id, sent.trace_id, "a trace of its own");
    assert!(span.parent_span_id.is_empty() && sent.parent_span_id.is_empty());
    assert_eq!((linked(&span, "previous_attempt"), linked(&span, "replay_of")), (None, None));
    for (key, expected) in [
        ("messaging.system", "gristmill"),
        ("messaging.operation.name", "process"),
        ("messaging.operation.type", "process"),
        ("messaging.destination.name", "q"),
        ("messaging.consumer.group.name", "workers"),
        ("gristmill.job.kind", "well"),
        ("gristmill.job.attempt", "1"),
        ("gristmill.job.version", "1"),
        ("gristmill.job.recovered", "false"),
        ("gristmill.effect", "none"),
    ] {
        assert_eq!(text(&span, key), expected, "{key}: {span:?}");
    }
    assert!(text(&span, "messaging.destination.partition.id").parse::<u16>().unwrap() < 4);
    assert_eq!(
        (text(&sent, "messaging.operation.name"), text(&sent, "gristmill.job.place")),
        ("send".into(), text(&span, "gristmill.job.place"))
    );
    let events: Vec<&str> = span.events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(events, ["answered", "settled"]);
    assert!(span.start_time_unix_nano < span.end_time_unix_nano);
    // A handler elsewhere was told the span of its run.
    let traceparent = std::fs::read_to_string(&told).unwrap();
    assert_eq!(traceparent.trim(), format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id)));
    assert_eq!(world.collector.services(), vec!["gristmill"; world.collector.services().len()]);
    assert!(world.collector.headers().iter().any(|line| line == "x-tenant: shop"));
    assert!(!format!("{:?}", world.collector.spans()).contains("a secret"));
}

#[test]
fn attempts_link_to_the_one_before_and_a_replay_to_the_last_before_death() {
    let world = World::new();
    let sent = world.enqueue("panic", "a");
    let node = world.node("--set log.level=debug");
    let first = world.collector.wait("process q", "panic-a", "retry");
    let second = world.collector.wait("process q", "panic-a", "dead");
    assert_eq!(
        (text(&first, "error.type"), text(&second, "gristmill.job.attempt")),
        ("panic".into(), "2".into())
    );
    assert_eq!(text(&second, "gristmill.dead_letter.reason"), "exhausted");
    assert_eq!(linked(&second, "previous_attempt"), Some(context(&first)));
    assert_ne!(first.trace_id, second.trace_id);
    for span in [&first, &second] {
        assert_eq!(linked(span, "creation"), Some(context(&sent)));
        let status = span.status.clone().unwrap();
        assert!(status.code() == StatusCode::Error && status.message.contains("at the disco"), "{status:?}");
    }
    // The log and the dead letter name the same traces.
    let line = node.wait_line(|line| line.text.contains("a job is now a dead letter"), SOON).unwrap().text;
    assert!(line.contains(&hex(&second.trace_id)), "{line}");
    let letters = world.fixture.run("dead list q --json");
    assert_eq!(letters.code, 0, "{letters:?}");
    let shown = world.fixture.run("explain panic-a --json");
    for span in [&first, &second] {
        assert!(shown.out.contains(&hex(&span.trace_id)), "{}", shown.out);
    }

    let replayed = world.fixture.run("dead replay --queue q --reason tried --yes");
    assert_eq!(replayed.code, 0, "{replayed:?}");
    let third = eventually(SOON, "the replay's run", || {
        let again = |span: &Span| span.name == "process q" && text(span, "gristmill.job.replays") == "1";
        world.collector.spans().into_iter().find(again)
    });
    assert_eq!(linked(&third, "replay_of"), Some(context(&second)));
    assert_eq!(
        (linked(&third, "previous_attempt"), linked(&third, "creation")),
        (None, Some(context(&sent)))
    );
    drain(node);
}

/// Runs that are interrupted, by a drain and by a death, are in the trace of the attempt that takes their place.
#[test]
fn interrupted_runs_and_what_takes_their_place_are_one_trace() {
    let world = World::new();
    world.enqueue("hold", "a");
    let first = world.node("--set drain.window_ms=200");
    first.wait_line(|line| line.text == "holding", SOON).unwrap();
    drain(first);
    let handed_back = world.collector.wait("process q", "hold-a", "handed_back");
    assert_eq!(
        (text(&handed_back, "gristmill.job.recovered"), handed_back.events.len()),
        ("false".into(), 1)
    );

    // The next is killed while it runs; what it held back to tell is lost with it.
    let mut second = world.node("");
    second.wait_line(|line| line.text == "holding", SOON).unwrap();
    second.signal(Signal::SIGKILL).unwrap();
    second.wait(SOON).unwrap();

    let third = world.node("--set drain.window_ms=200");
    third.wait_line(|line| line.text == "holding", SOON).unwrap();
    drain(third);
    let recovered = eventually(SOON, "the run after the death", || {
        let again = |span: &Span| span.name == "process q" && text(span, "gristmill.job.recovered") == "true";
        world.collector.spans().into_iter().find(again)
    });
    assert_eq!(recovered.trace_id, handed_back.trace_id);
    assert_ne!(recovered.span_id, handed_back.span_id);
    for span in [&recovered, &handed_back] {
        assert!(span.parent_span_id.is_empty() && text(span, "gristmill.job.attempt") == "1", "{span:?}");
        assert_eq!(linked(span, "previous_attempt"), None);
    }
}

#[test]
fn errors_are_kept_where_a_share_of_nothing_is_kept_and_done_jobs_are_not() {
    let world = World::new();
    let file = world.fixture.file("kinds.toml", b"[kinds.well]\nexec = \"true\"\n");
    world.fixture.enqueue("well", &["a"]);
    world.fixture.enqueue("refuse", &["b"]);
    let listen = "--set health.listen=127.0.0.1:0";
    let node = world.node(&format!("--config {} --set telemetry.traces_keep=0 {listen}", file.display()));
    world.collector.wait("process q", "refuse-b", "dead");
    let done = "job_attempts_total{queue=\"q\",kind=\"well\",outcome=\"done\"}";
    wait_metric(address(&node), done, |jobs| jobs == 1.0);
    assert_eq!(metric(address(&node), "spans_dropped_total"), Some(0.0));
    drain(node);
    let names: Vec<String> =
        world.collector.spans().iter().map(|span| text(span, "messaging.message.id")).collect();
    assert_eq!(names, ["refuse-b"]);
}

/// Two nodes fire, one of them for each slot; what it tells is of the job that is there.
#[test]
fn a_slot_of_a_schedule_is_a_span_to_which_its_attempts_link() {
    let world = World::new();
    let set = "[schedules.often]\nqueue = \"q\"\nkind = \"quick\"\nevery = \"1s\"\n";
    let file = world.fixture.file("schedules.toml", set.as_bytes());
    let nodes = ["a", "b"].map(|name| world.node(&format!("--name {name} --config {}", file.display())));
    let of = |name: &str| {
        let spans = world.collector.spans().into_iter().filter(|span| span.name == name);
        spans
            .map(|span| (text(&span, "messaging.message.id"), span))
            .collect::<std::collections::BTreeMap<_, _>>()
    };
    let both = eventually(SOON, "three slots", || {
        let (sent, ran) = (of("send q"), of("process q"));
        let both: Vec<_> =
            ran.into_iter().filter_map(|(id, span)| Some((sent.get(&id)?.clone(), span))).collect();
        (both.len() >= 3).then_some(both)
    });
    for (sent, ran) in &both {
        assert_eq!(linked(ran, "creation"), Some(context(sent)));
        assert_ne!(ran.trace_id, sent.trace_id);
        assert_eq!((sent.kind(), sent.parent_span_id.len()), (SpanKind::Producer, 0));
        let (slot, id) = (text(sent, "gristmill.schedule.slot_ms"), text(sent, "messaging.message.id"));
        assert_eq!(slot.parse::<u64>().unwrap() % 1000, 0);
        assert_eq!(
            (text(sent, "gristmill.schedule.name").as_str(), text(ran, "gristmill.job.version")),
            ("often", slot)
        );
        assert!(id.starts_with("often@"), "{id}");
        assert_eq!(text(sent, "gristmill.job.place"), text(ran, "gristmill.job.place"));
        assert_eq!(text(sent, "gristmill.job.kind"), "quick");
    }
    let sent = world.collector.spans().into_iter().filter(|span| span.name == "send q").count();
    assert_eq!(sent, of("send q").len(), "one span for each slot");
    nodes.into_iter().for_each(drain);
}

/// A collector that is away costs counted drops, and neither time nor jobs.
#[test]
fn nobody_waits_for_a_collector_that_is_away() {
    let world = World::new();
    let keys: Vec<String> = (0..40).map(|n| format!("k{n}")).collect();
    world.fixture.enqueue("refuse", &keys.iter().map(String::as_str).collect::<Vec<_>>());
    let url = world.fixture.server.url();
    for protocol in ["grpc", "http/protobuf"] {
        let args = format!(
            "node --queues q:4 {TRACED} --set health.listen=127.0.0.1:0 --set drain.window_ms=100 --set drain.grace_ms=2000"
        );
        let mut node = ProcessOptions::new(world.fixture.stubborn_path())
            .args(["--redis", url.as_str()])
            .args(args.split_whitespace())
            // A port where nobody listens.
            .envs([("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")])
            .envs([("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)])
            .envs([("OTEL_BSP_SCHEDULE_DELAY", "20")])
            .envs([("OTEL_BSP_MAX_QUEUE_SIZE", "8")])
            .spawn()
            .unwrap();
        let at = address(&node);
        wait_metric(at, "dead_letters_total{queue=\"q\",reason=\"permanent\"}", |letters| letters == 40.0);
        wait_metric(at, "spans_dropped_total", |spans| spans > 0.0);
        assert_eq!(metric(at, "spans_exported_total"), Some(0.0));
        let began = Instant::now();
        node.terminate().unwrap();
        assert_eq!(node.wait(SOON).unwrap().code(), Some(0));
        let took = began.elapsed();
        assert!(took < Duration::from_millis(2100 + 700), "{took:?}");
        let lines = node.lines().into_iter().filter(|line| line.text.contains("no collector takes")).count();
        assert!(lines <= 1, "told once, and not for every batch");
        let again = world.fixture.run("dead replay --queue q --reason again --yes");
        assert_eq!(again.code, 0, "{again:?}");
    }
}

#[test]
fn metrics_are_sent_where_that_is_asked_for_and_variables_that_cannot_be_are_refused() {
    let world = World::new();
    let args = "monitor --set health.listen=127.0.0.1:0 --set telemetry.metrics_otlp=true";
    let monitor =
        world.options(gristmill(), args).envs([("OTEL_METRIC_EXPORT_INTERVAL", "50")]).spawn().unwrap();
    eventually(SOON, "metrics", || {
        world.collector.metrics().iter().any(|name| name == "gristmill_redis_up").then_some(())
    });
    drop(monitor);
    let args = "monitor --set health.listen=127.0.0.1:0 --set telemetry.traces=true";
    let refused = run(world.options(gristmill(), args).envs([("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")]));
    assert!(
        refused.code == 2
            && refused.err.contains("OTEL_EXPORTER_OTLP_PROTOCOL: expected grpc or http/protobuf"),
        "{refused:?}"
    );
}

/// What a run tells is in the tables of docs/TELEMETRY.md: the events of its log, its metrics, the attributes of its spans.
#[test]
fn what_a_run_tells_is_documented() {
    let world = World::new();
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/TELEMETRY.md");
    let page = std::fs::read_to_string(path).unwrap();
    let known = |word: &str| page.contains(&format!("| `{word}` |"));
    for (kind, key) in [("panic", "a"), ("refuse", "b"), ("hold", "c")] {
        world.enqueue(kind, key);
    }
    let node = world
        .node_in("json", "--set log.level=debug --set health.listen=127.0.0.1:0 --set drain.window_ms=100");
    world.collector.wait("process q", "panic-a", "dead");
    let refused = world.collector.wait("process q", "refuse-b", "dead");
    let lines: Vec<String> = node.lines().into_iter().map(|line| line.text).collect();
    let listens = lines.iter().find(|line| line.contains("health.listens")).unwrap();
    let listens: serde_json::Value = serde_json::from_str(listens).unwrap();
    let at = listens["listen"].as_str().unwrap().parse().unwrap();
    let text = crate::asked::get(at, "/metrics").body;
    let types: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(types.len() > 20, "{types:?}");
    for name in types {
        assert!(known(name), "{name}");
    }
    let (lines, status) = ended(node);
    assert!(status);
    let events: Vec<serde_json::Value> =
        lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let ours = events
        .iter()
        .filter(|event| event["target"].as_str().is_some_and(|target| target.starts_with("gristmill_")));
    let mut seen = std::collections::BTreeSet::new();
    for event in ours {
        let name = event["event"].as_str().unwrap_or_else(|| panic!("an event without a name: {event}"));
        assert!(known(name), "{name}");
        seen.insert(name.to_owned());
    }
    for name in [
        "node.started",
        "node.ready",
        "redis.connected",
        "job.settled",
        "job.dead",
        "jobs.handed_back_in_drain",
        "node.drained",
    ] {
        assert!(seen.contains(name), "{name}: {seen:?}");
    }
    // A line of a handler's own names its job and its trace.
    let own = events.iter().find(|event| event["message"] == "no use for it").unwrap();
    assert_eq!((own["job"].as_str(), own["attempt"].as_u64()), (Some("refuse-b"), Some(1)));
    assert_eq!(own["trace_id"].as_str(), Some(hex(&refused.trace_id).as_str()));
    assert!(!lines.iter().any(|line| line.contains("a secret")), "{lines:?}");
    for span in world.collector.spans() {
        for pair in &span.attributes {
            assert!(known(&pair.key), "{}", pair.key);
        }
    }
}

/// What a node had said when it was gone, and whether it left well.
fn ended(mut node: Process) -> (Vec<String>, bool) {
    node.terminate().unwrap();
    let status = node.wait(SOON).unwrap();
    (node.lines().into_iter().map(|line| line.text).collect(), status.code() == Some(0))
}
