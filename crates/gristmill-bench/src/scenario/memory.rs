//! What a job costs Redis while it waits and while it is claimed, and what a node needs that drains a full queue.

use crate::ceiling::Tenure;
use crate::failure::{Outcome, ensure};
use crate::ground::Ground;
use crate::jobs::{Ids, Workload, check_drained, fill, patient};
use crate::plan::Role;
use crate::report::{Figures, Table};
use crate::whole::Child;
use gristmill_broker::call::MAX_JOBS_PER_CALL;
use gristmill_broker::{Broker, Connection, Incarnation};
use gristmill_testkit::server::{Appendonly, Server};

/// Measures both kinds of id in Redis, and one node.
pub(crate) fn run(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    println!("\nmemory, {} jobs", ground.plan.jobs);
    let server = ground.server(Appendonly::Off)?;
    for (ids, name) in [(Ids::Producers, "producer's ids"), (Ids::Ours, "ids made by us")] {
        let (queued, pending) = per_job(ground, &server, &ground.workload(ids)?)?;
        println!("  {name}: {queued:.1} bytes per queued job, {pending:.1} per pending job");
        table.row(format!("Redis memory, {name}: per queued job"), format!("{queued:.1} bytes"), "");
        let at_most = if ids == Ids::Ours { "at most 450; in the last line" } else { "" };
        table.row(format!("Redis memory, {name}: per pending job"), format!("{pending:.1} bytes"), at_most);
        if ids == Ids::Ours {
            figures.redis_bytes_per_job = Some(pending);
        }
    }
    let (plan, url, workload) = (&ground.plan, server.url(), ground.workload(Ids::Ours)?);
    server.flush()?;
    ground.run(fill(&url, &workload, plan.jobs))?;
    let report = Child::node(plan, &url, "bench", Role::Plain, plan.jobs)?.finish()?;
    ground.run(check_drained(&url, &workload.queue))?;
    figures.lost(&report);
    let peak = report.get("peak_bytes") / 1e6;
    println!("  a node that drained them: at most {peak:.1} MB resident");
    table.row("node memory: peak while draining", format!("{peak:.1} MB"), "resident");
    figures.node_rss_mb = Some(peak);
    Ok(())
}

/// Bytes of Redis per job, queued and then claimed by an owner. Marks of enqueue calls are counted in.
fn per_job(ground: &Ground, server: &Server, workload: &Workload) -> Outcome<(f64, f64)> {
    let (jobs, url) = (ground.plan.jobs, server.url());
    server.flush()?;
    ground.run(async { Ok(Broker::connect(patient(&url)).create(&workload.queue).await?) })?;
    let empty = server.used_memory()?;
    ground.run(fill(&url, workload, jobs))?;
    let queued = server.used_memory()?;
    ground.run(claim_all(&url, workload, jobs))?;
    let pending = server.used_memory()?;
    let each = |bytes: u64| bytes.saturating_sub(empty) as f64 / jobs as f64;
    Ok((each(queued), each(pending)))
}

async fn claim_all(url: &str, workload: &Workload, jobs: usize) -> Outcome<()> {
    let connection = Connection::open(&patient(url), 1).await?;
    let incarnation = Incarnation::of("memory", rand::random());
    let mut claimed = 0;
    for partition in 0..workload.queue.partitions {
        let mut tenure = Tenure::acquire(&connection, &workload.queue, partition, &incarnation).await?;
        loop {
            let batch = tenure.claim(MAX_JOBS_PER_CALL).await?.len();
            if batch == 0 {
                break;
            }
            claimed += batch;
        }
    }
    ensure(claimed == jobs, || format!("{jobs} jobs were to be claimed, {claimed} were"))
}
