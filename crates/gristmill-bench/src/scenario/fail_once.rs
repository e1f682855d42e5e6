//! Draining where no job, one in a hundred, or one in five fails at its first run and is tried again 10 ms later.
//! Alternated. The retry budget is one that nothing uses up, unless the plan asks for the default.

use super::Side;
use crate::failure::{Outcome, ensure};
use crate::ground::Ground;
use crate::handlers::fails_once;
use crate::jobs::{Ids, Workload, check_drained, fill};
use crate::rate::median;
use crate::report::{Figures, Table, per_second};
use crate::whole::Child;
use gristmill_testkit::server::{Appendonly, Server};

const PERCENTS: [u64; 3] = [0, 1, 20];

/// One round.
type Round = [Side; PERCENTS.len()];

/// Alternates the three.
pub(crate) fn run(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    let budget = if ground.plan.default_retry_budget { "the default" } else { "an endless" };
    println!("\njobs that fail once, {budget} retry budget");
    let server = ground.server(Appendonly::Off)?;
    let workload = ground.workload(Ids::Ours)?;
    let mut rounds: Vec<Round> = Vec::new();
    for round in 1..=ground.plan.rounds {
        let [none, few, many] = PERCENTS.map(|percent| one_side(ground, &server, &workload, percent));
        let sides = [none?, few?, many?];
        for (percent, side) in PERCENTS.iter().zip(&sides) {
            side.tell(round, &format!("{percent} %"), &sides[0], ground.plan.jobs);
            if side.get("retried") > side.get("failed") {
                println!(
                    "  round {round}  put back {} times for {} failures",
                    side.get("retried"),
                    side.get("failed")
                );
            }
            figures.tell_lost(round, &side.report);
        }
        rounds.push(sides);
    }
    let middle = |of: &dyn Fn(&Round) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
    let ratio = |at: usize| middle(&|round| round[at].get("rate") / round[0].get("rate"));
    table.row("fail once: none does", per_second(middle(&|round| round[0].get("rate"))), "");
    for (at, percent) in PERCENTS.iter().enumerate().skip(1) {
        let to_the_end = middle(&|round| round[0].get("whole_ms") / round[at].get("whole_ms"));
        table.row(
            format!("fail once: {percent} in 100"),
            per_second(middle(&|round| round[at].get("rate"))),
            format!("jobs, not runs; {budget} retry budget"),
        );
        table.row(
            format!("fail once: {percent} in 100, of none"),
            format!("{:.3}", ratio(at)),
            format!("from start to end {to_the_end:.3}"),
        );
    }
    figures.fail_once_1pct_ratio = Some(ratio(1));
    figures.fail_once_20pct_ratio = Some(ratio(2));
    Ok(())
}

fn one_side(ground: &Ground, server: &Server, workload: &Workload, percent: u64) -> Outcome<Side> {
    let (plan, url) = (&ground.plan, server.url());
    server.flush()?;
    ground.run(fill(&url, workload, plan.jobs))?;
    let failing = (0..plan.jobs).map(|n| workload.key_and_version(n));
    let failing =
        failing.filter(|(key, version)| fails_once(key.as_bytes(), *version, percent)).count() as f64;
    let side = Side::of(server, || Child::failing(plan, &url, percent, plan.jobs))?;
    let (done, jobs) = (side.get("done"), plan.jobs as f64);
    ensure(done == jobs, || format!("{jobs} jobs were due, {done} were done"))?;
    let failed = side.get("failed");
    ensure(failed == failing, || format!("{failing} jobs were to fail once, {failed} did"))?;
    let retried = side.get("retried");
    ensure(retried == failing || (plan.default_retry_budget && retried > failing), || {
        format!("{failing} jobs were to be put back, it happened {retried} times: did the budget end?")
    })?;
    ground.run(check_drained(&url, &workload.queue))?;
    Ok(side)
}
