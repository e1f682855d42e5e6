//! What is measured in a process of its own: a node, or a bare client. It speaks to its parent in lines:
//! `ready`, `recovered <nanos>`, and at the end `tenure_lost <cause> <count>` and `report name=value ...`.

use crate::cost;
use crate::failure::{Failure, Outcome, ensure};
use crate::handlers::{Seen, age_ms, registry};
use crate::jobs::{KIND, SMALL, SMALL_PARTITIONS, queue};
use crate::plan::{Role, Task, Told};
use crate::rate::{Samples, percentile};
use crate::raw;
use gristmill_broker::keys::GROUP;
use gristmill_broker::{Mode, RedisConfig};
use gristmill_job::{Envelope, QueueName, RetryBudget};
use gristmill_node::{Counts, Node, NodeConfig, QueueConfig};
use gristmill_otlp::environment::Environment;
use gristmill_otlp::{Exporter, Wanted};
use gristmill_schedule::{Schedule, Timing};
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::trace::Tracing;
use redis::Value;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// The state that an effect writes.
pub(crate) const STATE: &[u8] = b"{\"quantity\":42,\"price\":1999}";
/// How often a node's counts are read.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A node that settles nothing for so long is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// How long spans that are left may take.
const FLUSH: Duration = Duration::from_secs(3);
/// A retry budget that nothing uses up.
const ENDLESS: RetryBudget = RetryBudget { share: 1.0, per_second: 1e6 };

/// The middle eight tenths in the order they came: at the ends a side warms up or winds down.
fn without_ends(mut ages: Vec<f64>) -> Vec<f64> {
    let tenth = ages.len() / 10;
    ages.truncate(ages.len() - tenth);
    ages.split_off(tenth)
}

/// A node, until it has settled what was expected or is told to leave.
pub(crate) fn node(task: &Task) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let name = queue(task.partitions)?.name;
        let mut queue = QueueConfig::new(name).with_partitions(task.partitions);
        if task.role == Role::FailOnce && !task.default_retry_budget {
            queue.retry_budget = ENDLESS;
        }
        if task.unordered {
            queue = queue.with_mode(Mode::None);
            queue.visibility_timeout = Duration::from_millis(task.lease_ms);
        }
        let mut queues = vec![queue];
        if task.role == Role::Fair {
            queues.push(QueueConfig::new(QueueName::new(SMALL)?).with_partitions(SMALL_PARTITIONS));
        }
        let mut config = NodeConfig::new(&task.name, RedisConfig::new(&task.url), queues);
        config.slots = task.slots;
        if config.lease_ttl != Duration::from_millis(task.lease_ms) {
            config = config.with_lease(Duration::from_millis(task.lease_ms));
        }
        config.schedules = schedules(task)?;
        let (telemetry, exporter) = telemetry(task)?;
        config.telemetry = telemetry.clone();
        let seen = Seen::new(task);
        let mut leave = signal(SignalKind::terminate())?;
        let node = Node::start(config, registry(task, seen.clone())?).await?;
        println!("ready");
        let samples = tokio::select! {
            samples = watched(&node, task.expect) => samples?,
            _ = leave.recv() => Samples::start(),
        };
        let cpu = cost::cpu("self")?;
        let counts = node.drain(std::future::pending()).await.counts;
        if let Some(exporter) = exporter {
            tokio::task::spawn_blocking(|| exporter.finish(FLUSH)).await.map_err(broken)?;
        }
        let ages = std::mem::take(&mut *seen.ages_ms.lock().unwrap_or_else(PoisonError::into_inner));
        let mut ages = without_ends(ages);
        let report = [
            ("rate", samples.rate(task.expect)),
            ("whole_ms", samples.whole().as_secs_f64() * 1e3),
            ("settled", settled(&counts) as f64),
            ("done", counts.done as f64),
            ("retried", counts.retried as f64),
            ("runs", seen.runs.load(Ordering::Relaxed) as f64),
            ("failed", seen.failed.load(Ordering::Relaxed) as f64),
            ("heartbeat_late_ms", counts.heartbeat_late_ms as f64),
            ("cpu_ms", cpu.as_millis() as f64),
            ("spans_exported", telemetry.metrics().spans_exported_total.one().get() as f64),
            ("spans_dropped", telemetry.metrics().spans_dropped_total.one().get() as f64),
            ("peak_bytes", cost::resident("self", "VmHWM")? as f64),
            ("p50_ms", percentile(&mut ages, 0.50)),
            ("p99_ms", percentile(&mut ages, 0.99)),
        ];
        let faults = |cause: &str| !matches!(cause, "handover" | "drain");
        for (cause, count) in counts.tenure_ends.iter().filter(|(cause, count)| *count > 0 && faults(cause)) {
            println!("tenure_lost {cause} {count}");
        }
        say(&report);
        Ok(())
    })
}

/// All of them due every second, each with a key of its own.
fn schedules(task: &Task) -> Outcome<Vec<Schedule>> {
    let queue = queue(task.partitions)?.name;
    let schedule = |n: usize| {
        let timing = Timing::cron("* * * * * *", "UTC")?;
        Schedule::new(&format!("tick-{n}"), queue.as_str(), KIND, timing)
    };
    (0..task.schedules).map(|n| schedule(n).map_err(broken)).collect()
}

/// What a node tells of itself, and what takes it away.
fn telemetry(task: &Task) -> Outcome<(Telemetry, Option<Exporter>)> {
    let telemetry = match task.told {
        Told::Nothing => Telemetry::off(),
        _ => Telemetry::default(),
    };
    let share = match task.told {
        Told::Nothing | Told::Metrics => return Ok((telemetry, None)),
        Told::Some => 0.01,
        Told::All => 1.0,
    };
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), task.collector.clone());
    let environment = Environment::read([endpoint]).map_err(broken)?;
    telemetry.trace(Tracing { share, slow: Duration::from_secs(10), room: environment.room });
    let wanted = Wanted { instance: task.name.clone(), metrics: false };
    let exporter = Exporter::start(&telemetry, &environment, &wanted).map_err(broken)?;
    Ok((telemetry, Some(exporter)))
}

fn broken(error: impl std::fmt::Display) -> Failure {
    Failure::Broken(error.to_string())
}

/// The last line of a child.
pub(crate) fn say(report: &[(&str, f64)]) {
    let words: Vec<String> = report.iter().map(|(name, value)| format!("{name}={value}")).collect();
    println!("report {}", words.join(" "));
}

fn settled(counts: &Counts) -> u64 {
    counts.done + counts.stale + counts.duplicate + counts.dead + counts.rejected
}

/// Notes what was settled when, until it is what was expected. Never ends where nothing is expected.
async fn watched(node: &Node, expect: u64) -> Outcome<Samples> {
    let mut samples = Samples::start();
    let mut moved = Instant::now();
    let mut tick = tokio::time::interval(LOOK_EVERY);
    while expect == 0 || samples.last() < expect {
        tick.tick().await;
        let settled = settled(&node.counts());
        if settled > samples.last() {
            samples.total(settled);
            moved = Instant::now();
        }
        ensure(expect == 0 || moved.elapsed() < STUCK_AFTER, || {
            format!("the node is stuck at {} of {expect} jobs: {:?}", samples.last(), node.counts())
        })?;
    }
    Ok(samples)
}

/// A doorbell and a claim in one task, the acknowledgement behind the back of the next doorbell.
pub(crate) fn bare(task: &Task) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let queue = queue(task.partitions)?;
        let (mut bell, commands) = (raw::connect(&task.url).await?, raw::connect(&task.url).await?);
        let streams: Vec<String> = (0..queue.partitions).map(|p| queue.partition(p).stream).collect();
        let mut from: Vec<Vec<u8>> = vec![b"0".to_vec(); streams.len()];
        let mut ages = Vec::new();
        let mut settling = tokio::task::JoinSet::new();
        println!("ready");
        while (ages.len() as u64) < task.expect {
            let mut read = redis::cmd("XREAD");
            read.arg("COUNT").arg(1).arg("BLOCK").arg(1000).arg("STREAMS").arg(&streams).arg(&from);
            let rung = match bell.send_packed_command(&read).await? {
                Value::Nil => continue,
                rung => raw::list(rung)?,
            };
            for stream in rung {
                let Some(Value::BulkString(stream)) = raw::list(stream)?.into_iter().next() else { continue };
                let mut claim = redis::cmd("XREADGROUP");
                claim.arg("GROUP").arg(GROUP).arg("bare").arg("COUNT").arg(100);
                claim.arg("STREAMS").arg(&stream).arg(">");
                let claimed = commands.clone().send_packed_command(&claim).await?;
                for envelope in envelopes(&claimed) {
                    let envelope = Envelope::decode(envelope, usize::MAX)
                        .map_err(|error| Failure::Broken(format!("a job does not decode: {error}")))?;
                    ages.push(age_ms(envelope.payload));
                }
                let ids = raw::ids(claimed)?;
                let at = streams.iter().position(|known| known.as_bytes() == stream.as_slice());
                if let (Some(at), Some(last)) = (at, ids.last()) {
                    from[at].clone_from(last);
                    let mut settle = redis::Pipeline::with_capacity(2);
                    settle.cmd("XACK").arg(&stream).arg(GROUP).arg(&ids);
                    settle.cmd("XDEL").arg(&stream).arg(&ids);
                    let mut commands = commands.clone();
                    settling.spawn(async move { commands.send_packed_commands(&settle, 0, 2).await });
                }
            }
        }
        while let Some(settled) = settling.join_next().await {
            settled.map_err(|error| Failure::Broken(error.to_string()))??;
        }
        let settled = ages.len() as f64;
        let mut ages = without_ends(ages);
        say(&[
            ("runs", settled),
            ("p50_ms", percentile(&mut ages, 0.50)),
            ("p99_ms", percentile(&mut ages, 0.99)),
        ]);
        Ok(())
    })
}

/// The fields `d` in the reply of an XREADGROUP of one stream.
fn envelopes(reply: &Value) -> Vec<&[u8]> {
    let Value::Array(streams) = reply else { return Vec::new() };
    let Some(Value::Array(stream)) = streams.first() else { return Vec::new() };
    let Some(Value::Array(rows)) = stream.get(1) else { return Vec::new() };
    rows.iter()
        .filter_map(|row| {
            let Value::Array(row) = row else { return None };
            let Some(Value::Array(fields)) = row.get(1) else { return None };
            let Some(Value::BulkString(envelope)) = fields.get(5) else { return None };
            Some(envelope.as_slice())
        })
        .collect()
}
