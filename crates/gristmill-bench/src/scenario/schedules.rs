//! Recurring jobs: from a slot to the first line of its handler, where many schedules are due in the same second, by cron.

use crate::failure::Outcome;
use crate::ground::Ground;
use crate::plan::Role;
use crate::rate::median;
use crate::report::{Figures, Table};
use crate::whole::Child;
use gristmill_testkit::server::Appendonly;

/// A node alone, with all of them.
pub(crate) fn run(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    let plan = &ground.plan;
    println!("\nschedules: {} of them, each due every second for {} s", plan.schedules, plan.slots_each);
    let server = ground.server(Appendonly::Off)?;
    let expect = plan.schedules * plan.slots_each;
    let mut rounds = Vec::new();
    for round in 1..=plan.rounds {
        server.flush()?;
        let report = Child::recurring(plan, &server.url(), Role::Slot, expect)?.finish()?;
        let (p50, p99) = (report.get("p50_ms"), report.get("p99_ms"));
        println!("  round {round}  slot to start: p50 {p50:.3} ms  p99 {p99:.3} ms");
        figures.tell_lost(round, &report);
        rounds.push((p50, p99));
    }
    let middle = |of: fn(&(f64, f64)) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
    let (p50, p99) = (middle(|round| round.0), middle(|round| round.1));
    let due = format!("{} due in the same second", plan.schedules);
    table.row("schedules: slot to start, p50", format!("{p50:.3} ms"), &due);
    table.row("schedules: slot to start, p99", format!("{p99:.3} ms"), "");
    figures.schedules = Some(plan.schedules as f64);
    (figures.slot_to_start_p50_ms, figures.slot_to_start_p99_ms) = (Some(p50), Some(p99));
    Ok(())
}
