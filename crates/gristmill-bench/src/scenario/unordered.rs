//! A queue without order: a full one drained beside the raw loop and beside one ordered by key; and a node that is killed with
//! jobs, another beside it.

use super::Side;
use super::recovery::kills;
use super::sharing::{WITHIN, until};
use crate::failure::{Outcome, ensure};
use crate::ground::Ground;
use crate::jobs::{Ids, Workload, check_drained, fill, now_nanos};
use crate::plan::Role;
use crate::rate::median;
use crate::raw;
use crate::report::{Figures, Table, per_second};
use crate::whole::Child;
use gristmill_broker::Mode;
use gristmill_testkit::server::{Appendonly, Server};

/// Jobs that the node holds when it is killed: fewer than it has slots.
const HELD: usize = 100;

/// Both.
pub(crate) fn run(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    drain(ground, figures, table)?;
    recovery(ground, figures, table)
}

fn drain(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    let (plan, ordered, without) = (&ground.plan, ground.workload(Ids::Ours)?, unordered(ground)?);
    println!("\nordering none beside key and raw, {} jobs", plan.jobs);
    let (server, mut rounds) = (ground.server(Appendonly::Off)?, Vec::new());
    let url = server.url();
    for round in 1..=plan.rounds {
        full(ground, &server, &ordered)?;
        let samples = ground.run(raw::drain(&url, &ordered.queue, plan.raw_batch, plan.in_flight))?;
        let raw = samples.rate(plan.jobs as u64);
        full(ground, &server, &ordered)?;
        let key = Side::of(&server, || Child::node(plan, &url, "bench", Role::Plain, plan.jobs))?;
        ground.run(check_drained(&url, &ordered.queue))?;
        full(ground, &server, &without)?;
        let none = Side::of(&server, || Child::unordered(plan, &url, "bench", Role::Plain, plan.jobs))?;
        ground.run(check_drained(&url, &without.queue))?;
        for side in [&key, &none] {
            let (done, jobs) = (side.get("done"), plan.jobs as f64);
            ensure(done == jobs, || format!("{jobs} jobs were due, {done} were done"))?;
        }
        println!("  round {round}  raw      {:>16}", per_second(raw));
        key.tell(round, "key", &key, plan.jobs);
        none.tell(round, "none", &key, plan.jobs);
        figures.tell_lost(round, &key.report);
        rounds.push((raw, key.get("rate"), none.get("rate")));
    }
    let middle = |of: fn(&(f64, f64, f64)) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
    let (of_raw, of_key) = (middle(|(raw, _, none)| none / raw), middle(|(_, key, none)| none / key));
    table.row("ordering none: gristmill whole", per_second(middle(|round| round.2)), "");
    table.row("ordering none: of the raw loop", format!("{of_raw:.3}"), "");
    table.row("ordering none: of ordering key", format!("{of_key:.3}"), "");
    (figures.none_ratio, figures.none_of_key) = (Some(of_raw), Some(of_key));
    Ok(())
}

fn unordered(ground: &Ground) -> Outcome<Workload> {
    let workload = ground.workload(Ids::Ours)?;
    Ok(Workload { queue: workload.queue.with_mode(Mode::None), ..workload })
}

fn full(ground: &Ground, server: &Server, workload: &Workload) -> Outcome<()> {
    server.flush()?;
    ground.run(fill(&server.url(), workload, ground.plan.jobs))
}

fn recovery(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    let timeout = ground.plan.lease.as_millis();
    println!("\nordering none: recovery after SIGKILL, visibility timeout of {timeout} ms");
    let (middle, most) = kills(ground, kill_one)?;
    table.row("ordering none: SIGKILL to the first recovered job's start", format!("{middle:.0} ms"), {
        format!("about 1.5 of the timeout of {timeout} ms at most; slowest {most:.0} ms")
    });
    figures.none_recovery_ms = Some(middle);
    Ok(())
}

fn kill_one(ground: &Ground) -> Outcome<f64> {
    let (plan, workload) = (&ground.plan, unordered(ground)?);
    let server = ground.server(Appendonly::Off)?;
    let url = server.url();
    ground.run(fill(&url, &workload, HELD))?;
    let mut holder = Child::unordered(plan, &url, "holder", Role::Hold, 0)?;
    until(ground, &server, &workload, "the holder to have claimed all jobs", |views| {
        let (ready, claimed) = views.iter().fold((0, 0), |(r, c), view| (r + view.ready, c + view.claimed));
        (ready, claimed) == (HELD as u64, HELD as u64)
    })?;
    let idle = Child::unordered(plan, &url, "idle", Role::Recover, 0)?;
    // Any moment between two extensions.
    ground.pause(plan.lease.mul_f64(rand::random::<f64>() / 3.0));
    let killed = now_nanos();
    holder.kill()?;
    let started = idle.recovered(plan.lease * 2 + WITHIN)?;
    until(ground, &server, &workload, "everything to be settled", |views| {
        views.iter().all(|view| view.ready == 0)
    })?;
    idle.terminate()?;
    ground.run(check_drained(&url, &workload.queue))?;
    Ok(started.saturating_sub(killed) as f64 / 1e6)
}
