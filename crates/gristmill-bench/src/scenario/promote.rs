//! Very many jobs for later that are all due in the same millisecond, with producers' ids, under a node that runs them: how long
//! until all of them are ready, and how long the server keeps others waiting meanwhile. Then jobs for later at a calm
//! rate: from the due time to the handler's first line.

use super::latency;
use super::pinging::pinging;
use crate::failure::{Failure, Outcome, ensure};
use crate::ground::Ground;
use crate::jobs::{BULK, Ids, Workload, check_drained, now_nanos, patient};
use crate::plan::Role;
use crate::report::{Figures, Table, per_second};
use crate::whole::Child;
use gristmill_broker::Broker;
use gristmill_job::UnixMillis;
use gristmill_testkit::Deadline;
use gristmill_testkit::server::{Appendonly, Reply, Server};
use std::time::{Duration, Instant};

/// Until the due time: at all, and for each job that is enqueued before it.
const AHEAD: Duration = Duration::from_secs(2);
const AHEAD_EACH: Duration = Duration::from_micros(60);
/// How long a node may take for all of them: at all, and for each.
const RUN_WITHIN: Duration = Duration::from_secs(60);
const RUN_EACH_WITHIN: Duration = Duration::from_micros(500);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// What holds the server up for so long is noted.
const SLOW: Duration = Duration::from_micros(200);
/// How far ahead each job of the calm part is due.
const CALM: Duration = Duration::from_millis(300);

/// Once.
pub(crate) fn run(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    at_once(ground, figures, table)?;
    calm(ground, figures, table)
}

fn at_once(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    let (plan, jobs) = (&ground.plan, ground.plan.promote_jobs);
    println!("\n{jobs} jobs for later, due in one millisecond");
    let server = ground.server(Appendonly::Off)?;
    let (url, workload) = (server.url(), ground.workload(Ids::Producers)?);
    ground.run(async { Ok(Broker::connect(patient(&url)).create(&workload.queue).await?) })?;
    let node = Child::node(plan, &url, "bench", Role::Plain, 0)?;
    let ahead = AHEAD + AHEAD_EACH * u32::try_from(jobs).unwrap_or(u32::MAX);
    let due = UnixMillis((now_nanos() + ahead.as_nanos() as u64) / 1_000_000);
    ground.run(delay(&url, &workload, jobs, due))?;
    let left = delayed(&server, &workload)?;
    ensure(left == jobs as i64, || {
        format!("{jobs} jobs were to wait for their time, {left} do: they were not all enqueued before it")
    })?;
    for (name, value) in [("slowlog-log-slower-than", SLOW.as_micros()), ("slowlog-max-len", 100_000)] {
        server.command(&["CONFIG", "SET", name, &value.to_string()])?;
    }
    server.command(&["SLOWLOG", "RESET"])?;
    let until_due = Duration::from_nanos((due.0 * 1_000_000).saturating_sub(now_nanos()));
    ground.pause(until_due);
    let begun = Instant::now();
    let deadline = Deadline::after(RUN_WITHIN + RUN_EACH_WITHIN.mul_f64(jobs as f64));
    let (ready_after, mut pings) = pinging(&server, || {
        until(ground, &deadline, "made ready", || delayed(&server, &workload))?;
        Ok(begun.elapsed())
    })?;
    until(ground, &deadline, "run", || unsettled(&server, &workload))?;
    let run_after = begun.elapsed();
    let (count, longest) = slow(&server)?;
    let report = node.terminate()?;
    ground.run(check_drained(&url, &workload.queue))?;
    let (done, lost) = (report.get("done"), !report.lost.is_empty());
    // A verdict whose answer is lost with a connection stands in Redis, and is counted nowhere.
    ensure(done == jobs as f64 || lost, || format!("{jobs} jobs were due, {done} were done"))?;
    figures.lost(&report);
    let (ready_ms, (p50, p99, most)) = (ready_after.as_secs_f64() * 1e3, pings.figures());
    println!(
        "  all ready after {ready_ms:.0} ms ({}), all run after {:.0} ms",
        per_second(jobs as f64 / ready_after.as_secs_f64()),
        run_after.as_secs_f64() * 1e3
    );
    println!(
        "  {} PINGs: p50 {p50:.2} ms  p99 {p99:.2} ms  most {most:.2} ms; {count} commands of more than {} µs, the longest {longest:.2} ms",
        pings.count(),
        SLOW.as_micros()
    );
    table.row(
        format!("promotion of {jobs} due jobs"),
        format!("{ready_ms:.0} ms"),
        format!("a node runs them meanwhile: all run after {:.0} ms", run_after.as_secs_f64() * 1e3),
    );
    table.row("promotion: longest command of Redis", format!("{longest:.2} ms"), "budget of a script: 5 ms");
    table.row("promotion: PING meanwhile, p99", format!("{p99:.2} ms"), format!("most {most:.2} ms"));
    figures.promote_jobs = Some(jobs as f64);
    figures.promote_ms = Some(ready_ms);
    figures.promote_block_ms = Some(longest);
    figures.promote_ping_p99_ms = Some(p99);
    Ok(())
}

fn calm(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    println!("\ndue time to handler start");
    let server = ground.server(Appendonly::Off)?;
    let workload = ground.workload(Ids::Ours)?;
    let report = latency::one_side(ground, &server, &workload, false, CALM)?;
    figures.lost(&report);
    let (p50, p99) = (report.get("p50_ms"), report.get("p99_ms"));
    println!("  p50 {p50:.3} ms  p99 {p99:.3} ms");
    table.row("due to handler start, p50", format!("{p50:.3} ms"), "");
    table.row("due to handler start, p99", format!("{p99:.3} ms"), "");
    figures.due_to_start_p50_ms = Some(p50);
    figures.due_to_start_p99_ms = Some(p99);
    Ok(())
}

/// Enqueues so many jobs, all due then.
async fn delay(url: &str, workload: &Workload, count: usize, due: UnixMillis) -> Outcome<()> {
    let broker = Broker::connect(patient(url));
    let mut from = 0;
    while from < count {
        let to = (from + BULK).min(count);
        let jobs: Vec<_> = workload.jobs(from, to)?.into_iter().map(|job| job.due_at(due)).collect();
        let taken = broker.enqueue_all(&workload.queue.name, &jobs).await?;
        ensure(taken.len() == to - from && taken.iter().all(|job| job.delayed.is_some()), || {
            format!("jobs {from} to {to} were not all taken for later: were they due before they came?")
        })?;
        from = to;
    }
    Ok(())
}

/// Waits until none is left.
fn until(ground: &Ground, deadline: &Deadline, what: &str, left: impl Fn() -> Outcome<i64>) -> Outcome<()> {
    loop {
        let left = left()?;
        if left == 0 {
            return Ok(());
        }
        ensure(!deadline.passed(), || format!("{left} due jobs are still not {what}"))?;
        ground.pause(LOOK_EVERY);
    }
}

fn delayed(server: &Server, workload: &Workload) -> Outcome<i64> {
    sum(server, workload, "ZCARD", |keys| keys.delayed)
}

fn unsettled(server: &Server, workload: &Workload) -> Outcome<i64> {
    sum(server, workload, "XLEN", |keys| keys.stream)
}

fn sum(
    server: &Server,
    workload: &Workload,
    command: &str,
    key: fn(gristmill_broker::PartitionKeys) -> String,
) -> Outcome<i64> {
    let queue = &workload.queue;
    let asked: Vec<[String; 2]> =
        (0..queue.partitions).map(|p| [command.to_owned(), key(queue.partition(p))]).collect();
    let sizes = server.connection()?.pipeline(&asked)?;
    let size = |reply: &Reply| {
        reply.as_int().ok_or_else(|| Failure::Broken(format!("expected a size, got {reply:?}")))
    };
    sizes.iter().map(size).sum()
}

/// How many commands held the server up for longer than [`SLOW`], and for how long the longest did, in ms.
fn slow(server: &Server) -> Outcome<(usize, f64)> {
    let entries = server.command(&["SLOWLOG", "GET", "-1"])?;
    let entries = entries.as_array().unwrap_or_default();
    let took = |entry: &Reply| entry.as_array()?.get(2)?.as_int();
    let longest = entries.iter().filter_map(took).max().unwrap_or(0).max(SLOW.as_micros() as i64);
    Ok((entries.len(), longest as f64 / 1e3))
}
