//! A queue with little to do beside a flooded one, on one node whose slots are always taken: from enqueue to the handler's
//! first line, at weights of 1 to 1. Every job takes two milliseconds. Alternated with the same queue where there is no flood.

use super::latency::{produce, until_owned};
use crate::failure::{Failure, Outcome, ensure};
use crate::ground::Ground;
use crate::jobs::{Ids, SMALL, SMALL_PARTITIONS, Workload, fill, patient, standing};
use crate::plan::Role;
use crate::rate::median;
use crate::report::{Figures, Table};
use crate::whole::{Child, Report};
use gristmill_broker::{Broker, QueueDefinition};
use gristmill_job::QueueName;
use gristmill_testkit::server::{Appendonly, Server};
use std::time::{Duration, Instant};

/// Jobs of the flood for each job of the small queue.
const FLOOD: usize = 100;
/// How long the small queue may take after its last job was enqueued.
const DONE_WITHIN: Duration = Duration::from_secs(120);

/// Alternates both sides.
pub(crate) fn run(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    let (plan, server) = (&ground.plan, ground.server(Appendonly::Off)?);
    println!("\nfairness: a small queue beside a flooded one, {} slots, 2 ms a job", plan.slots);
    let flood = ground.workload(Ids::Ours)?;
    let name = QueueName::new(SMALL)?;
    let small = Workload { queue: QueueDefinition::new(name, SMALL_PARTITIONS), ..flood.clone() };
    let mut rounds = Vec::new();
    for round in 1..=plan.rounds {
        let alone = one_side(ground, &server, &flood, &small, 0)?;
        let beside = one_side(ground, &server, &flood, &small, plan.latency_jobs * FLOOD)?;
        for (name, side) in [("alone", &alone), ("beside", &beside)] {
            let (p50, p99) = (side.get("p50_ms"), side.get("p99_ms"));
            println!("  round {round}  {name:<7}  p50 {p50:.3} ms  p99 {p99:.3} ms");
        }
        figures.lost(&beside);
        rounds.push((alone, beside));
    }
    let middle = |of: fn(&(Report, Report)) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
    let alone = middle(|round| round.0.get("p99_ms"));
    let (p50, p99) = (middle(|round| round.1.get("p50_ms")), middle(|round| round.1.get("p99_ms")));
    table.row("fairness: small queue alone, p99", format!("{alone:.3} ms"), "");
    table.row("fairness: beside a flooded one, p50", format!("{p50:.3} ms"), "");
    table.row("fairness: beside a flooded one, p99", format!("{p99:.3} ms"), "weights 1 to 1");
    figures.fairness_alone_p99_ms = Some(alone);
    figures.fairness_small_p50_ms = Some(p50);
    figures.fairness_small_p99_ms = Some(p99);
    Ok(())
}

fn one_side(
    ground: &Ground,
    server: &Server,
    flood: &Workload,
    small: &Workload,
    jobs: usize,
) -> Outcome<Report> {
    let (plan, url) = (&ground.plan, server.url());
    server.flush()?;
    ground.run(async { Ok(Broker::connect(patient(&url)).create(&small.queue).await?) })?;
    ground.run(fill(&url, flood, jobs))?;
    let child = Child::elsewhere(plan, &url, Role::Fair, "", 0)?;
    ground.run(async {
        let broker = Broker::connect(patient(&url));
        until_owned(&broker, small).await?;
        until_owned(&broker, flood).await?;
        produce(&broker, small, plan.latency_jobs, Duration::ZERO).await?;
        let deadline = Instant::now() + DONE_WITHIN;
        while standing(&broker, &small.queue).await?.0 > 0 {
            if Instant::now() > deadline {
                return Err(Failure::Broken(format!("the small queue was not done within {DONE_WITHIN:?}")));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let (left, _) = standing(&broker, &flood.queue).await?;
        ensure(jobs == 0 || left > 0, || format!("the flood of {jobs} jobs was over before the small queue"))
    })?;
    let report = child.terminate()?;
    ensure(report.get("runs") >= plan.latency_jobs as f64, || "not every job of the small queue ran".into())?;
    Ok(report)
}
