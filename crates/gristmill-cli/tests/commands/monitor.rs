//! The monitor: how queues stand, as metrics and as a number for autoscalers; and that Prometheus can read what is told.

use crate::asked::{address, get, metric, status, wait_metric};
use crate::fixture::{Fixture, SOON};
use gristmill_testkit::eventually;
use std::process::{Command, Stdio};

const LISTEN: &str = "--set health.listen=127.0.0.1:0 --set monitor.every_ms=100";

#[test]
fn queues_are_told_as_they_stand_and_old_numbers_are_not_scaled_by() {
    let mut fixture = Fixture::new();
    let mut monitor = fixture.stubborn(&format!("monitor {LISTEN}"));
    let at = address(&monitor);
    eventually(SOON, "a first look", || (status(at, "/readyz") == 200).then_some(()));
    assert_eq!(status(at, "/autoscale/q"), 404);

    fixture.enqueue("refuse", &["a", "b", "c"]);
    wait_metric(at, "queue_jobs{queue=\"q\",state=\"ready\"}", |jobs| jobs == 3.0);
    wait_metric(at, "queue_oldest_ready_age_seconds{queue=\"q\"}", |age| age > 0.0 && age < 20.0);
    wait_metric(at, "queue_partitions{queue=\"q\",state=\"orphaned\"}", |count| count == 4.0);
    assert_eq!(get(at, "/autoscale/q").body, "{\"jobs\":3}");

    let node = fixture.stubborn_node("");
    wait_metric(at, "queue_jobs{queue=\"q\",state=\"dead\"}", |jobs| jobs == 3.0);
    wait_metric(at, "queue_jobs_settled_total{queue=\"q\"}", |jobs| jobs == 3.0);
    wait_metric(at, "queue_partitions{queue=\"q\",state=\"owned\"}", |count| count == 4.0);
    wait_metric(at, "queue_nodes{queue=\"q\",state=\"serving\"}", |count| count == 1.0);
    assert_eq!(metric(at, "queue_jobs_enqueued_total{queue=\"q\"}"), Some(3.0));
    assert_eq!(get(at, "/autoscale").body, "{\"jobs\":0}");
    fixture.enqueue("hold", &["d"]);
    wait_metric(at, "queue_jobs{queue=\"q\",state=\"in_flight\"}", |jobs| jobs == 1.0);
    wait_metric(at, "queue_oldest_in_flight_age_seconds{queue=\"q\"}", |age| age > 0.0);
    wait_metric(at, "monitor_last_look_timestamp_seconds", |at| at > 1.7e9);
    drop(node);

    // Redis is away: numbers stand, and nobody scales by them.
    fixture.server.kill().unwrap();
    eventually(SOON, "numbers are old", || (status(at, "/autoscale") == 503).then_some(()));
    assert_eq!((status(at, "/readyz"), metric(at, "redis_up")), (200, Some(0.0)));
    assert_eq!(metric(at, "queue_jobs{queue=\"q\",state=\"dead\"}"), Some(3.0));
    monitor.terminate().unwrap();
    assert_eq!(monitor.wait(SOON).unwrap().code(), Some(0));
}

/// What promtool says about a text; `None` where it is not installed.
fn promtool(text: &str) -> Option<(bool, String)> {
    let program = std::env::var("GRISTMILL_PROMTOOL").unwrap_or_else(|_| "promtool".into());
    let mut command = Command::new(program);
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Some((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[test]
fn promtool_finds_nothing_wrong_with_what_a_run_tells() {
    if promtool("").is_none() {
        return eprintln!(
            "SKIPPED: promtool is not on PATH, so that the text of metrics is not checked; Debian's package is prometheus"
        );
    }
    let fixture = Fixture::new();
    fixture.enqueue("refuse", &["a"]);
    fixture.enqueue("panic", &["b"]);
    let listen = "--set health.listen=127.0.0.1:0";
    let node = fixture.stubborn_node(listen);
    let ingest = fixture.stubborn(&format!("ingest --listen 127.0.0.1:0 {listen}"));
    let monitor = fixture.stubborn(&format!("monitor {LISTEN}"));
    let (node_at, monitor_at) = (address(&node), address(&monitor));
    wait_metric(node_at, "dead_letters_total{queue=\"q\",reason=\"permanent\"}", |letters| letters == 1.0);
    wait_metric(node_at, "job_retries_total{queue=\"q\",class=\"panic\"}", |retries| retries >= 1.0);
    wait_metric(node_at, "job_attempts_total{queue=\"q\",kind=\"refuse\",outcome=\"dead\"}", |runs| {
        runs == 1.0
    });
    let ran = "job_attempt_duration_seconds_count{queue=\"q\",kind=\"panic\",outcome=\"retry\"}";
    wait_metric(node_at, ran, |runs| runs >= 1.0);
    assert!(metric(node_at, "job_wait_seconds_count{queue=\"q\"}").unwrap() >= 2.0);
    assert_eq!(metric(node_at, "partitions{queue=\"q\",state=\"owned\"}"), Some(4.0));
    wait_metric(node_at, "lease_renewals_total", |renewals| renewals > 0.0);
    wait_metric(monitor_at, "queue_jobs{queue=\"q\",state=\"dead\"}", |jobs| jobs == 1.0);
    for at in [node_at, monitor_at, address(&ingest)] {
        let text = get(at, "/metrics").body;
        let (well, words) = promtool(&text).unwrap();
        assert!(well, "{words}\n{text}");
    }
}
