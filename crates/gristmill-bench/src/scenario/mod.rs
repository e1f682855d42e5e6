//! The scenarios, one private server each, and what is said at the end.

mod drain;

use crate::failure::Outcome;
use crate::ground::Ground;
use crate::plan::{Only, Plan};
use crate::report::{Figures, Table};

/// Runs what the plan wants, prints the table and the last line.
pub(crate) fn all(plan: &Plan) -> Outcome<()> {
    let ground = Ground::new(plan)?;
    let mut figures = Figures { lease_ms: plan.lease.as_millis() as u64, ..Figures::default() };
    let mut table = Table::default();
    println!(
        "bench: {} jobs a side and round, {} rounds, {} partitions, {} keys, {} bytes of payload",
        plan.jobs, plan.rounds, plan.partitions, plan.keys, plan.payload_bytes
    );
    if plan.wants(Only::Drain) {
        drain::run(&ground, &mut figures, &mut table)?;
    }
    println!("\n{table}");
    println!("{figures}");
    Ok(())
}
