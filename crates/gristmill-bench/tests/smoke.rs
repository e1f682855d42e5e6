//! The bench runs to its end on a small load, and its last line has the fields that were agreed, each with a number.
//! Nothing is said about how fast anything is.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use gristmill_testkit::postgres::Postgres;
use gristmill_testkit::process::Process;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const FIELDS: [&str; 42] = [
    "drain_ratio",
    "drain_of_ceiling",
    "drain_own_ids_ratio",
    "drain_effect_ratio",
    "drain_aof_ratio",
    "enqueue_bulk_ratio",
    "enqueue_bulk_own_ids_ratio",
    "latency_p50_ms",
    "latency_p99_ms",
    "latency_of_bare",
    "node_rss_mb",
    "redis_bytes_per_job",
    "recovery_ms",
    "lease_ms",
    "tenures_lost",
    "blocked_key_ratio",
    "fail_once_1pct_ratio",
    "fail_once_20pct_ratio",
    "poison_deaths",
    "poison_recovery_ms",
    "dead_million_ping_p99_ms",
    "dead_letters",
    "telemetry_metrics_ratio",
    "telemetry_traces_1pct_ratio",
    "telemetry_traces_all_ratio",
    "postgres_ratio",
    "http_ratio",
    "promote_jobs",
    "promote_ms",
    "promote_block_ms",
    "promote_ping_p99_ms",
    "due_to_start_p50_ms",
    "due_to_start_p99_ms",
    "fairness_alone_p99_ms",
    "fairness_small_p50_ms",
    "fairness_small_p99_ms",
    "schedules",
    "slot_to_start_p50_ms",
    "slot_to_start_p99_ms",
    "none_ratio",
    "none_of_key",
    "none_recovery_ms",
];

/// They would disturb each other's memory: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn last_line(arguments: &[&str]) -> String {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let none: [(&str, &str); 0] = [];
    let mut bench = Process::spawn(env!("CARGO_BIN_EXE_gristmill-bench"), arguments, none).unwrap();
    let status = bench.wait(Duration::from_secs(300)).unwrap();
    let lines: Vec<String> = bench.lines().into_iter().map(|line| line.text).collect();
    assert!(status.success(), "{}", lines.join("\n"));
    lines.into_iter().rfind(|line| line.starts_with("bench: drain_ratio=")).expect("a last line")
}

#[test]
fn a_small_run_of_everything_ends_with_the_agreed_line() {
    let line = last_line(&[
        "--quick",
        "--jobs=3000",
        "--rounds=1",
        "--partitions=8",
        "--keys=500",
        "--lease-ms=1500",
        "--latency-jobs=100",
        "--kills=1",
        "--blocked-jobs=5000",
        "--poisons=1",
        "--dead-letters=5000",
        "--promote-jobs=2000",
        "--schedules=20",
        "--slots-each=3",
        "--postgres-jobs=500",
        "--http-jobs=1000",
        "--slots=4",
    ]);
    let words: Vec<&str> = line.strip_prefix("bench: ").unwrap().split(' ').collect();
    let names: Vec<&str> = words.iter().map(|word| word.split_once('=').unwrap().0).collect();
    assert_eq!(names, FIELDS, "{line}");
    for word in words {
        let (name, value) = word.split_once('=').unwrap();
        if name == "postgres_ratio" && !Postgres::is_available() {
            eprintln!("SKIPPED: PostgreSQL is missing, so nothing was measured with it");
            assert_eq!(value, "n/a", "{line}");
            continue;
        }
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{name} is no number in {line}"));
        assert!(value.is_finite(), "{line}");
        assert!(value > 0.0 || name == "tenures_lost", "{name} is zero in {line}");
    }
}

#[test]
fn a_small_long_run_ends_well() {
    let line = last_line(&["--long", "--jobs=30000", "--partitions=8", "--keys=500", "--dead-letters=5000"]);
    assert!(line.contains(" node_rss_mb=") && line.contains(" drain_ratio=n/a "), "{line}");
    assert!(line.contains(" dead_letters=5000 "), "{line}");
}
