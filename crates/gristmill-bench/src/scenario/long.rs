//! Ten million jobs through one node while a producer keeps the queue at one length: memory of the node and of Redis
//! must not grow.

use crate::cost;
use crate::failure::{Failure, Outcome, ensure};
use crate::ground::Ground;
use crate::jobs::{BULK, Ids, check_drained, patient, standing};
use crate::plan::Role;
use crate::rate::median;
use crate::report::{Figures, Table, per_second};
use crate::whole::Child;
use gristmill_broker::Broker;
use gristmill_testkit::server::{Appendonly, Server};
use std::time::Duration;

/// The producer keeps a hundredth of all jobs in the queue.
const BACKLOGS: usize = 100;
/// What the last third may have above the second: a share of it, or what allocators do by themselves in a short run.
const GROWTH_SHARE: f64 = 0.05;
const GROWTH_BYTES: f64 = 2e6;

/// Memory at one moment, in bytes.
struct Look {
    node: f64,
    redis: f64,
}

/// Fails where memory grew.
pub(crate) fn run(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    let (plan, workload) = (&ground.plan, ground.workload(Ids::Ours)?);
    let backlog = plan.jobs.div_ceil(BACKLOGS);
    let call = BULK.min(backlog);
    println!("\n{} jobs through one node, {backlog} of them in the queue at a time", plan.jobs);
    let server = ground.server(Appendonly::Off)?;
    let url = server.url();
    let broker = ground.run(async {
        let broker = Broker::connect(patient(&url));
        broker.create(&workload.queue).await?;
        Ok(broker)
    })?;
    let mut node = Child::node(plan, &url, "bench", Role::Plain, plan.jobs)?;
    let keys_before = number(&server, &["DBSIZE"])?;
    let mut looks: Vec<Look> = Vec::new();
    let mut sent = 0;
    while sent < plan.jobs {
        ensure(node.runs()?, || "the node ended early".into())?;
        let (ready, _) = ground.run(standing(&broker, &workload.queue))?;
        if ready >= backlog as u64 {
            ground.pause(Duration::from_millis(10));
            continue;
        }
        let to = (sent + call).min(plan.jobs);
        ground
            .run(async { Ok(broker.enqueue_all(&workload.queue.name, &workload.jobs(sent, to)?).await?) })?;
        sent = to;
        let resident = cost::resident(&node.pid(), "VmRSS")? as f64;
        looks.push(Look { node: resident, redis: without_marks(&server, keys_before)? });
        if sent % 1_000_000 < call {
            println!("  {sent} jobs sent: node {:.1} MB resident", resident / 1e6);
        }
    }
    drop(broker);
    let report = node.finish()?;
    ground.run(check_drained(&url, &workload.queue))?;
    figures.lost(&report);
    figures.node_rss_mb = Some(report.get("peak_bytes") / 1e6);
    table.row("long: through one node, its producer beside it", per_second(report.get("rate")), "");
    let third = looks.len() / 3;
    for (name, of) in [("node", (|look| look.node) as fn(&Look) -> f64), ("Redis", |look| look.redis)] {
        let middle = |looks: &[Look]| median(&looks.iter().map(of).collect::<Vec<_>>());
        let (second, last) = (middle(&looks[third..2 * third]), middle(&looks[2 * third..]));
        let note = format!("at most {:.1} MB, by the second third", most_after(second) / 1e6);
        table.row(format!("long: {name}, last third"), format!("{:.1} MB", last / 1e6), note);
        ensure(last <= most_after(second), || {
            format!("memory of {name} grew from {:.1} to {:.1} MB", second / 1e6, last / 1e6)
        })?;
    }
    Ok(())
}

/// The most that still counts as flat, in bytes.
fn most_after(second_third: f64) -> f64 {
    second_third + (second_third * GROWTH_SHARE).max(GROWTH_BYTES)
}

/// Memory of the server without the marks of enqueue calls, which live two minutes and so pile up at first.
fn without_marks(server: &Server, keys_before: i64) -> Outcome<f64> {
    let marks = (number(server, &["DBSIZE"])? - keys_before).max(0);
    let mut sizes = Vec::new();
    for _ in 0..5 {
        let reply = server.command(&["RANDOMKEY"])?;
        let Some(key) = reply.as_str() else { continue };
        if server.command(&["TYPE", key])?.as_str() == Some("string") {
            sizes.push(number(server, &["MEMORY", "USAGE", key])? as f64);
        }
    }
    Ok(server.used_memory()? as f64 - marks as f64 * median(&sizes))
}

fn number(server: &Server, command: &[&str]) -> Outcome<i64> {
    let reply = server.command(command)?;
    reply
        .as_int()
        .ok_or_else(|| Failure::Broken(format!("expected a number from {}, got {reply:?}", command[0])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twentieth_more_is_growth_and_noise_is_not() {
        assert!(most_after(100e6) < 106e6 && most_after(100e6) >= 104e6);
        assert!(most_after(5e6) < 8e6 && most_after(5e6) > 6e6);
    }
}
