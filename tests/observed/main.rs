//! A node and a monitor watched by a real Prometheus with the chart's own alerts: what they expose is well formed, is scraped, and
//! two alerts fire when there is reason to. Whether each alert fires and keeps silent at its thresholds, the chart's tests
//! show with promtool.

#![allow(clippy::unwrap_used, reason = "all of it is a test; clippy excuses test functions only")]

use gristmill_chart_tests::helm;
use gristmill_testkit::eventually;
use gristmill_testkit::guard::find_program;
use gristmill_testkit::process::{Process, ProcessOptions};
use gristmill_testkit::server::ServerOptions;
use gristmill_tests::fleet::{Fleet, PARTITIONS, QUEUE};
use gristmill_tests::script::Script;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
/// As low as they go, so that little makes them fire.
const VALUES: &str = "redis: {url: 'redis://x'}
workers: {default: {queues: [work]}}
prometheusRule:
  enabled: true
  selector: 'job=\"gristmill\"'
  thresholds: {deadLetters: 0, redisUnreachableFor: 1s}
";

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The body of an answer of status 200.
fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    // Of this version an answer comes in one piece.
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.lines().next()?.contains(" 200").then(|| body.to_owned())
}

/// `promtool`, and `prometheus` beside it or on PATH.
fn tools() -> Option<(PathBuf, PathBuf)> {
    let given = std::env::var_os("GRISTMILL_PROMTOOL").filter(|path| !path.is_empty()).map(PathBuf::from);
    let Some(promtool) = given.or_else(|| find_program("promtool")) else {
        helm::skipped("Prometheus", "GRISTMILL_PROMTOOL is not set; `cargo xtask test` fetches it");
        return None;
    };
    let beside = find_program(promtool.with_file_name("prometheus"));
    let Some(prometheus) = beside.or_else(|| find_program("prometheus")) else {
        helm::skipped(
            "Prometheus",
            "there is none beside promtool or on PATH; `cargo xtask test` fetches it",
        );
        return None;
    };
    Some((promtool, prometheus))
}

/// A process of the whole command line with its health at a port.
fn role(fleet: &Fleet, role: &str, port: u16) -> Process {
    let listen = format!("health.listen=127.0.0.1:{port}");
    let queue = format!("queues={QUEUE}:{PARTITIONS}");
    let history = fleet.history_file(role).display().to_string();
    let mut options = ProcessOptions::new(env!("CARGO_BIN_EXE_promise-worker")).args([
        "--redis",
        fleet.url(),
        "--set",
        &listen,
        "--set",
        &queue,
        "--set",
        "monitor.every_ms=500",
        role,
    ]);
    if role == "node" {
        options = options.envs([("PROMISE_HISTORY", history.as_str())]);
    }
    options.spawn().unwrap()
}

fn start_prometheus(program: &Path, folder: &Path, rules: &Value, port: u16, targets: &[u16]) -> Process {
    std::fs::create_dir_all(folder).unwrap();
    let file = |name: &str, value: &Value| {
        let path = folder.join(name);
        // JSON is YAML.
        std::fs::write(&path, value.to_string()).unwrap();
        path.display().to_string()
    };
    let targets: Vec<String> = targets.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let config = json!({
        "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
        "rule_files": [file("rules.json", &json!({ "groups": rules }))],
        "scrape_configs": [{ "job_name": "gristmill", "static_configs": [{ "targets": targets }] }],
    });
    let config = format!("--config.file={}", file("prometheus.json", &config));
    let storage = format!("--storage.tsdb.path={}", folder.join("data").display());
    let listen = format!("--web.listen-address=127.0.0.1:{port}");
    ProcessOptions::new(program).args([config, storage, listen]).spawn().unwrap()
}

fn ask(prometheus: u16, path: &str) -> Option<Value> {
    serde_json::from_str::<Value>(&get(prometheus, path)?).ok().map(|answer| answer["data"].clone())
}

/// The labels of an alert that fires.
fn firing(prometheus: u16, alert: &str) -> Option<Value> {
    let alerts = ask(prometheus, "/api/v1/alerts")?["alerts"].as_array()?.clone();
    let fires = |one: &&Value| one["labels"]["alertname"] == alert && one["state"] == "firing";
    alerts.iter().find(fires).map(|alert| alert["labels"].clone())
}

fn check_metrics(promtool: &Path, text: &str) {
    let mut check = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&said));
}

#[test]
fn a_real_prometheus_scrapes_a_run_and_alerts_when_there_is_reason_to() {
    let (Some(helm), Some((promtool, prometheus))) = (helm::all().pop(), tools()) else { return };
    let mut fleet = Fleet::start(ServerOptions::new());
    let (node_port, monitor_port, port) = (free_port(), free_port(), free_port());
    let _node = role(&fleet, "node", node_port);
    let _monitor = role(&fleet, "monitor", monitor_port);
    let release = helm.render(VALUES);
    let rules = &release.get("PrometheusRule", "r-gristmill")["spec"]["groups"];
    let folder = fleet.folder().join("prometheus");
    let watcher = start_prometheus(&prometheus, &folder, rules, port, &[node_port, monitor_port]);
    for ready in [node_port, monitor_port] {
        eventually(SOON, "both to be ready", || get(ready, "/readyz"));
    }

    // Good jobs, one that is tried again, and two that die.
    let script = |permanent: bool| Script { effect: !permanent, permanent, ..Script::default() };
    let retried = Script { fail_until: 1, ..script(false) };
    let mut jobs: Vec<_> = (0..200)
        .map(|n| Fleet::job(&format!("good {n}"), &format!("k{}", n % 20), n / 20 + 1, &script(false)))
        .collect();
    jobs.push(Fleet::job("retried", "r", 1, &retried));
    fleet.enqueue(jobs);
    fleet.enqueue(vec![
        Fleet::job("bad 1", "b1", 1, &script(true)),
        Fleet::job("bad 2", "b2", 1, &script(true)),
    ]);
    fleet.expect_settled_otherwise(&["bad 1", "bad 2"]);
    fleet.wait_settled();

    let labels =
        eventually(SOON, "the alert of dead letters", || firing(port, "GristmillDeadLettersGrowing"));
    assert_eq!((&labels["queue"], &labels["severity"]), (&QUEUE.into(), &"ticket".into()), "{labels}");
    for (query, least) in [
        ("up{job=\"gristmill\"}", 2),
        ("gristmill_job_attempts_total{outcome=\"done\"} >= 200", 1),
        ("gristmill_queue_jobs{state=\"dead\"} == 2", 1),
        ("gristmill_worker_slots{state=\"free\"} > 0", 1),
        ("sum(gristmill_queue_partitions{state=\"owned\"}) == 8", 1),
        ("histogram_quantile(0.99, sum by (le) (gristmill_job_wait_seconds_bucket)) > 0", 1),
    ] {
        let path = format!("/api/v1/query?query={}", encoded(query));
        eventually(SOON, query, || {
            let found = ask(port, &path)?["result"].as_array()?.len();
            (found >= least).then_some(())
        });
    }
    for asked in [node_port, monitor_port] {
        check_metrics(&promtool, &get(asked, "/metrics").unwrap());
    }
    // Rules that Prometheus cannot evaluate would keep silent for ever.
    let groups = ask(port, "/api/v1/rules").unwrap()["groups"].as_array().unwrap().clone();
    let rules: Vec<Value> =
        groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect();
    assert!(rules.len() >= 12, "{}", rules.len());
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
    }

    fleet.server.kill().unwrap();
    let labels =
        eventually(SOON, "the alert of a Redis that is away", || firing(port, "GristmillRedisUnreachable"));
    assert_eq!(labels["severity"], "page", "{labels}");
    // Neither is unready or dead for that.
    for asked in [node_port, monitor_port] {
        assert!(get(asked, "/readyz").is_some() && get(asked, "/livez").is_some());
    }
    drop(watcher);
}

fn encoded(query: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    query.bytes().map(byte).collect()
}
