//! SIGKILL of a node that holds jobs, an idle node beside it: how long until one of them starts there.

use super::sharing::{WITHIN, is, share, until};
use crate::failure::Outcome;
use crate::ground::Ground;
use crate::jobs::{Ids, Workload, check_drained, now_nanos, patient};
use crate::plan::Role;
use crate::rate::median;
use crate::report::{Figures, Table};
use crate::whole::Child;
use gristmill_broker::Broker;
use gristmill_testkit::server::Appendonly;

const HOLDER: &str = "holder";
const IDLE: &str = "idle";

/// Kills a node as often as the plan says.
pub(crate) fn run(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    let lease = ground.plan.lease.as_millis();
    println!("\nrecovery after SIGKILL, leases of {lease} ms");
    let (middle, most) = kills(ground, kill_one)?;
    table.row("recovery: SIGKILL to the first recovered job's start", format!("{middle:.0} ms"), {
        format!("at most lease + 1 s = {} ms; slowest {most:.0} ms", lease + 1000)
    });
    figures.recovery_ms = Some(middle);
    Ok(())
}

/// Kills as often as the plan says: the milliseconds that it took, the median and the most.
pub(super) fn kills(ground: &Ground, kill_one: impl Fn(&Ground) -> Outcome<f64>) -> Outcome<(f64, f64)> {
    let mut tries = Vec::new();
    for kill in 1..=ground.plan.kills {
        let recovery_ms = kill_one(ground)?;
        println!("  kill {kill}  {recovery_ms:.0} ms to the first recovered job's start");
        tries.push(recovery_ms);
    }
    Ok((median(&tries), tries.iter().copied().fold(0.0, f64::max)))
}

fn kill_one(ground: &Ground) -> Outcome<f64> {
    let (plan, workload) = (&ground.plan, ground.workload(Ids::Ours)?);
    let server = ground.server(Appendonly::Off)?;
    let url = server.url();
    let mut holder = Child::node(plan, &url, HOLDER, Role::Hold, 0)?;
    let idle = Child::node(plan, &url, IDLE, Role::Recover, 0)?;
    until(ground, &server, &workload, "the nodes to share the partitions", |views| {
        share(views, [HOLDER, IDLE])
    })?;
    ground.run(fill_shared(&url, &workload))?;
    until(ground, &server, &workload, "the holder to have claimed its jobs, and the other none", |views| {
        let ready = |node| views.iter().filter(|v| is(v, node)).map(|v| v.ready).sum::<u64>();
        ready(HOLDER) > 0 && ready(IDLE) == 0 && views.iter().all(|v| v.ready == v.claimed)
    })?;
    // Any moment between two renewals.
    ground.pause(plan.lease.mul_f64(rand::random::<f64>() / 5.0));
    let killed = now_nanos();
    holder.kill()?;
    let started = idle.recovered(plan.lease + WITHIN)?;
    until(ground, &server, &workload, "everything to be settled", |views| {
        views.iter().all(|v| v.ready == 0)
    })?;
    idle.terminate()?;
    ground.run(check_drained(&url, &workload.queue))?;
    Ok(started.saturating_sub(killed) as f64 / 1e6)
}

/// A few jobs for every partition: the idle node settles its own at once.
async fn fill_shared(url: &str, workload: &Workload) -> Outcome<()> {
    let few = Workload { keys: workload.keys.min(2000), ..workload.clone() };
    let broker = Broker::connect(patient(url));
    broker.enqueue_all(&few.queue.name, &few.jobs(0, 2000)?).await?;
    Ok(())
}
