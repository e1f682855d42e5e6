//! Other keys beside one whose head failed and waits for minutes, its jobs lying before theirs in the same queue; and the
//! same other keys alone. Alternated; the clock runs over the other keys' jobs, the claims of the blocked ones included.

use super::Side;
use crate::failure::{Outcome, ensure};
use crate::ground::Ground;
use crate::jobs::{BLOCKED, Ids, Workload, fill, patient};
use crate::plan::Role;
use crate::rate::median;
use crate::report::{Figures, Table, per_second};
use crate::whole::Child;
use gristmill_broker::Broker;
use gristmill_testkit::server::{Appendonly, Server};

/// Alternates both sides.
pub(crate) fn run(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    let blocked = ground.plan.blocked_jobs;
    println!("\none blocked key of {blocked} jobs beside {} jobs of others", ground.plan.jobs);
    let server = ground.server(Appendonly::Off)?;
    let workload = ground.workload(Ids::Ours)?;
    let mut rounds = Vec::new();
    for round in 1..=ground.plan.rounds {
        let without = one_side(ground, &server, &workload, 0)?;
        let with = one_side(ground, &server, &workload, blocked)?;
        for (name, side) in [("without", &without), ("with", &with)] {
            side.tell(round, name, &without, ground.plan.jobs);
            figures.tell_lost(round, &side.report);
        }
        rounds.push((without, with));
    }
    let middle = |of: fn(&(Side, Side)) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
    let ratio = middle(|(without, with)| with.get("rate") / without.get("rate"));
    let to_the_end = middle(|(without, with)| without.get("whole_ms") / with.get("whole_ms"));
    let peak = middle(|(_, with)| with.get("peak_bytes") / 1e6);
    table.row("blocked key: other keys without it", per_second(middle(|r| r.0.get("rate"))), "");
    table.row(
        format!("blocked key: other keys beside its {blocked} jobs"),
        per_second(middle(|r| r.1.get("rate"))),
        format!("node at most {peak:.1} MB resident"),
    );
    table.row("blocked key: of without", format!("{ratio:.3}"), "at least 0.9");
    table.row("blocked key: of without, from start to end", format!("{to_the_end:.3}"), "");
    figures.blocked_key_ratio = Some(ratio);
    Ok(())
}

fn one_side(ground: &Ground, server: &Server, workload: &Workload, blocked: usize) -> Outcome<Side> {
    let (plan, url) = (&ground.plan, server.url());
    server.flush()?;
    if blocked > 0 {
        ground.run(fill(&url, &workload.of_one_key(BLOCKED), blocked))?;
    }
    ground.run(fill(&url, workload, plan.jobs))?;
    let side = Side::of(server, || Child::node(plan, &url, "bench", Role::Blocked, plan.jobs))?;
    let (done, jobs) = (side.get("done"), plan.jobs as f64);
    ensure(done == jobs, || format!("{jobs} jobs of other keys were due, {done} were done"))?;
    let (heads, failed) = (blocked.min(1) as f64, side.get("failed"));
    ensure(failed == heads && side.get("retried") == heads, || {
        format!("the blocked key was to fail {heads} times, and did {failed} times")
    })?;
    ground.run(check_waiting(&url, workload, blocked))?;
    Ok(side)
}

/// An error unless the blocked jobs are all that is left.
async fn check_waiting(url: &str, workload: &Workload, blocked: usize) -> Outcome<()> {
    let broker = Broker::connect(patient(url));
    let views = broker.connection().await?.partitions(&workload.queue).await?;
    let (ready, dead) = views.iter().fold((0, 0), |sum, view| (sum.0 + view.ready, sum.1 + view.dead));
    ensure(ready == blocked as u64 && dead == 0, || {
        format!("{blocked} blocked jobs were to be left, {ready} are, and {dead} dead letters")
    })
}
