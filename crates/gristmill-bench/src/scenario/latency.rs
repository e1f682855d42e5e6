//! From enqueue to the handler's first line at 200 jobs a second, open loop, beside a bare doorbell and claim.
//! Both sides have the same producer: what differs is who picks the jobs up.

use crate::failure::{Failure, Outcome};
use crate::ground::Ground;
use crate::jobs::{Ids, Workload, check_drained, now_nanos, patient};
use crate::plan::Role;
use crate::rate::median;
use crate::report::{Figures, Table};
use crate::whole::{Child, Report};
use bytes::{BufMut, BytesMut};
use gristmill_broker::Broker;
use gristmill_job::UnixMillis;
use gristmill_testkit::server::{Appendonly, Server};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

const JOBS_PER_SECOND: f64 = 200.0;
/// How long a node may take to own every partition.
const OWNED_WITHIN: Duration = Duration::from_secs(30);

/// Alternates both sides.
pub(crate) fn run(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    println!("\nlatency, enqueue to handler start at {JOBS_PER_SECOND} jobs/s");
    let server = ground.server(Appendonly::Off)?;
    let workload = ground.workload(Ids::Ours)?;
    let mut rounds = Vec::new();
    for round in 1..=ground.plan.rounds {
        let bare = one_side(ground, &server, &workload, true, Duration::ZERO)?;
        let ours = one_side(ground, &server, &workload, false, Duration::ZERO)?;
        for (name, side) in [("bare", &bare), ("whole", &ours)] {
            let (p50, p99) = (side.get("p50_ms"), side.get("p99_ms"));
            println!("  round {round}  {name:<7}  p50 {p50:.3} ms  p99 {p99:.3} ms");
        }
        figures.lost(&ours);
        rounds.push((bare, ours));
    }
    let middle = |of: fn(&(Report, Report)) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
    let (p50, p99) = (middle(|r| r.1.get("p50_ms")), middle(|r| r.1.get("p99_ms")));
    let of_bare = middle(|r| r.1.get("p50_ms") / r.0.get("p50_ms").max(1e-6));
    table.row("latency: bare, p50", format!("{:.3} ms", middle(|r| r.0.get("p50_ms"))), "");
    table.row("latency: bare, p99", format!("{:.3} ms", middle(|r| r.0.get("p99_ms"))), "");
    table.row("latency: gristmill, p50", format!("{p50:.3} ms"), "");
    table.row("latency: gristmill, p99", format!("{p99:.3} ms"), "");
    table.row("latency: p50 of bare p50", format!("{of_bare:.2}"), "at most 2");
    figures.latency_p50_ms = Some(p50);
    figures.latency_p99_ms = Some(p99);
    figures.latency_of_bare = Some(of_bare);
    Ok(())
}

/// `ahead`: each job is due so long after it is sent, and its age counts from then.
pub(super) fn one_side(
    ground: &Ground,
    server: &Server,
    workload: &Workload,
    bare: bool,
    ahead: Duration,
) -> Outcome<Report> {
    let (plan, url) = (&ground.plan, server.url());
    server.flush()?;
    ground.run(async { Ok(Broker::connect(patient(&url)).create(&workload.queue).await?) })?;
    let child = match bare {
        true => Child::bare(plan, &url, plan.latency_jobs)?,
        false => Child::node(plan, &url, "bench", Role::Latency, plan.latency_jobs)?,
    };
    ground.run(async {
        let broker = Broker::connect(patient(&url));
        if !bare {
            until_owned(&broker, workload).await?;
        }
        produce(&broker, workload, plan.latency_jobs, ahead).await
    })?;
    let report = child.finish()?;
    ground.run(check_drained(&url, &workload.queue))?;
    Ok(report)
}

pub(super) async fn until_owned(broker: &Broker, workload: &Workload) -> Outcome<()> {
    let connection = broker.connection().await?;
    let deadline = Instant::now() + OWNED_WITHIN;
    while connection.owned(&workload.queue).await?.contains(&false) {
        if Instant::now() > deadline {
            return Err(Failure::Broken(format!(
                "a node did not own its partitions within {OWNED_WITHIN:?}"
            )));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Sends each job when it is due, whether or not the ones before were answered.
pub(super) async fn produce(
    broker: &Broker,
    workload: &Workload,
    count: usize,
    ahead: Duration,
) -> Outcome<()> {
    let mut sending = JoinSet::new();
    let mut due = Instant::now();
    for n in 0..count {
        due += Duration::from_secs_f64(gap(rand::random()));
        tokio::time::sleep_until(due).await;
        let (broker, queue) = (broker.clone(), workload.queue.name.clone());
        // Another key each time, so that no job waits for the one before.
        let mut job = workload.job(n)?;
        let mut payload = BytesMut::with_capacity(job.payload.len());
        let mut since = now_nanos();
        if !ahead.is_zero() {
            let due = UnixMillis((since + ahead.as_nanos() as u64) / 1_000_000);
            since = due.0 * 1_000_000;
            job = job.due_at(due);
        }
        payload.put_u64_le(since);
        payload.extend_from_slice(job.payload.get(payload.len()..).unwrap_or_default());
        job.payload = payload.freeze();
        sending.spawn(async move { broker.enqueue(&queue, job).await });
    }
    while let Some(sent) = sending.join_next().await {
        sent.map_err(|error| Failure::Broken(error.to_string()))??;
    }
    Ok(())
}

/// Seconds to the next job, as of independent producers. `random` is uniform in `[0, 1)`.
fn gap(random: f64) -> f64 {
    (-(1.0 - random).ln() / JOBS_PER_SECOND).min(0.1)
}
