//! What came of it: a table, what was broken, and the last line.

use crate::{args::Args, failure::Failure, fault_free::Measured, input::Input, paced::Ran};
use std::{collections::BTreeMap, fmt::Display};

/// Prints it all; [`Failure::Broken`] where a promise was not kept.
pub(crate) fn print(
    args: &Args,
    seed: u64,
    input: &Input,
    measured: &Measured,
    ran: &Ran,
) -> Result<(), Failure> {
    let recovery_ms = ran.recovery.unwrap_or_default().as_millis();
    let drain_ms = ran.drained.took.as_millis();
    let lost = measured.compared.lost + ran.compared.lost;
    let doubled = measured.compared.doubled + ran.compared.doubled;
    let mismatched = measured.compared.mismatched + ran.compared.mismatched;
    let out_of_order = ran.history.out_of_order.count + ran.history.overlapping.count;

    println!();
    println!("lease {} ms, {} partitions, seed {seed:#x}", args.lease_ms, args.partitions);
    row("events", input.events.len(), "distinct ids");
    row("applied", ran.compared.applied, "effects, summed over all entities");
    row("duplicates", format!("{} of {}", ran.absorbed, ran.again), "second copies absorbed");
    row("shuffled", ran.out_of_order, "events enqueued behind a later one of another path");
    row(
        "runs",
        ran.history.runs,
        &format!("of handlers, {:.1} ms each: {}", ran.pause_us as f64 / 1000.0, shares(ran)),
    );
    row(
        "repeated",
        ran.history.repeated,
        "ran to their end twice, around the kill; their effect counts once",
    );
    row(
        "recovery",
        format!("{recovery_ms} ms"),
        &format!(
            "SIGKILL of {} to the first of its {} running jobs starting elsewhere",
            ran.kill.node,
            ran.kill.running.len()
        ),
    );
    row("drain", format!("{drain_ms} ms"), &format!("SIGTERM of {} to its exit", ran.drained.node));
    row("paced run", format!("{} ms", ran.took.as_millis()), "first enqueue to everything settled");
    row("jobs/s", measured.jobs_per_s, "one node, no fault, everything enqueued before");
    row("enqueued/s", measured.enqueued_per_s, "in bulk, before that");
    row("tenures", "", &format!("ended without a fault: {}", tenures_ended(measured.said.iter())));
    let said = ran.said.iter().flat_map(|(_, said)| said).chain(&ran.drained.said);
    row(
        "",
        "",
        &format!("ended in the paced run, by the nodes that could still tell: {}", tenures_ended(said)),
    );

    let complaints = complaints(measured, ran);
    for complaint in &complaints {
        println!("BROKEN {complaint}");
    }
    println!(
        "demo: events={} applied={} duplicates_absorbed={} lost={lost} doubled={doubled} \
         out_of_order={out_of_order} mismatched={mismatched} recovery_ms={recovery_ms} drain_ms={drain_ms} \
         jobs_per_s={}",
        input.events.len(),
        ran.compared.applied,
        ran.absorbed,
        measured.jobs_per_s
    );
    if complaints.is_empty() { Ok(()) } else { Err(Failure::Broken) }
}

fn row(name: &str, value: impl Display, words: &str) {
    println!("  {name:<11} {value:>12}  {words}");
}

fn shares(ran: &Ran) -> String {
    let shares: Vec<String> = ran.runs.iter().map(|(node, runs)| format!("{node} {runs}")).collect();
    shares.join(", ")
}

/// By cause, summed over what nodes said at their ends.
fn tenures_ended<'a>(said: impl Iterator<Item = &'a String>) -> String {
    let mut causes: BTreeMap<&str, u64> = BTreeMap::new();
    let ends =
        said.filter_map(|said| said.split_once("tenures_ended: ")).flat_map(|(_, ends)| ends.split(' '));
    for (cause, count) in ends.filter_map(|end| end.split_once('=')) {
        *causes.entry(cause).or_default() += count.parse::<u64>().unwrap_or(0);
    }
    let told: Vec<String> = causes.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
    told.join(", ")
}

/// Everything that should not be so. Empty exactly if every promise was kept.
fn complaints(measured: &Measured, ran: &Ran) -> Vec<String> {
    let mut complaints = Vec::new();
    for (run, compared) in [("without a fault", &measured.compared), ("paced", &ran.compared)] {
        if !compared.is_clean() {
            let examples = compared.examples.join("\n  ");
            complaints.push(format!("the {run} run's entities:\n  {examples}"));
        }
    }
    complaints.extend(measured.complaints.iter().map(|text| format!("without a fault: {text}")));
    complaints.extend(ran.complaints.iter().cloned());
    if !ran.history.is_clean() {
        complaints.push(format!("the history:\n{}", ran.history));
    }
    complaints
}
