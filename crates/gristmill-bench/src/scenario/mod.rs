//! The scenarios, one private server each, and what is said at the end.

mod blocked;
mod dead;
mod drain;
mod enqueue;
mod fail_once;
mod latency;
mod long;
mod memory;
mod pinging;
mod poison;
mod recovery;
mod sharing;

use crate::failure::Outcome;
use crate::ground::Ground;
use crate::plan::{Only, Plan};
use crate::report::{Figures, Table};

type Scenario = fn(&Ground, &mut Figures, &mut Table) -> Outcome<()>;

const SCENARIOS: [(Only, Scenario); 9] = [
    (Only::Drain, drain::run),
    (Only::Enqueue, enqueue::run),
    (Only::Latency, latency::run),
    (Only::Memory, memory::run),
    (Only::Recovery, recovery::run),
    (Only::Blocked, blocked::run),
    (Only::FailOnce, fail_once::run),
    (Only::Poison, poison::run),
    (Only::Dead, dead::run),
];

/// Runs what the plan wants, prints the table and the last line.
pub(crate) fn all(plan: &Plan) -> Outcome<()> {
    let ground = Ground::new(plan)?;
    let mut figures = Figures { lease_ms: plan.lease.as_millis() as u64, ..Figures::default() };
    let mut table = Table::default();
    println!(
        "bench: {} jobs a side and round, {} rounds, {} partitions, {} keys, {} bytes of payload",
        plan.jobs, plan.rounds, plan.partitions, plan.keys, plan.payload_bytes
    );
    if plan.long {
        long::run(&ground, &mut figures, &mut table)?;
        dead::run(&ground, &mut figures, &mut table)?;
    } else {
        for (_, scenario) in SCENARIOS.iter().filter(|(which, _)| plan.wants(*which)) {
            scenario(&ground, &mut figures, &mut table)?;
        }
    }
    let lost = figures.tenures_lost.values().sum::<u64>();
    let causes: Vec<String> = figures.tenures_lost.iter().map(|(cause, n)| format!("{cause} {n}")).collect();
    table.row("tenures lost without a fault", lost.to_string(), format!("must be 0 {}", causes.join(", ")));
    println!("\n{table}");
    println!("{figures}");
    Ok(())
}
