//! One job that aborts its process, two hundred good ones around it, two nodes that are started again as soon as they
//! die: how many processes it takes with it until it is a dead letter, and how long the good ones are held up.

use super::sharing::{WITHIN, share, until};
use crate::failure::{Failure, Outcome, ensure};
use crate::ground::Ground;
use crate::jobs::{Ids, POISON, Workload, check_effects, now_nanos, patient};
use crate::plan::Role;
use crate::rate::median;
use crate::report::{Figures, Table};
use crate::whole::Child;
use gristmill_broker::{Broker, QueueDefinition};
use gristmill_job::DeadReason;
use gristmill_testkit::Deadline;
use gristmill_testkit::server::Appendonly;
use std::time::Duration;

const NODES: [&str; 2] = ["left", "right"];
const GOOD: usize = 200;
/// The default of a queue.
const CRASH_BUDGET: usize = 3;
/// What its suspects may cost on top: one death before it is suspected, one before it runs alone.
const DEATHS_AT_MOST: usize = CRASH_BUDGET + 2;
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What one poison job did.
struct Outbreak {
    deaths: usize,
    /// From the first death until the last good job is done, and until the poison job is a dead letter.
    recovery_ms: f64,
    dead_ms: f64,
}

/// As often as the plan says.
pub(crate) fn run(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    let lease = ground.plan.lease.as_millis();
    println!("\none poison job among {GOOD} good ones, two nodes, leases of {lease} ms");
    let mut outbreaks = Vec::new();
    for try_number in 1..=ground.plan.poisons {
        let outbreak = outbreak(ground)?;
        println!(
            "  try {try_number}  {} process deaths  all good ones done after {:.0} ms  a dead letter after {:.0} ms",
            outbreak.deaths, outbreak.recovery_ms, outbreak.dead_ms
        );
        outbreaks.push(outbreak);
    }
    let middle = |of: fn(&Outbreak) -> f64| median(&outbreaks.iter().map(of).collect::<Vec<_>>());
    let most = outbreaks.iter().map(|outbreak| outbreak.deaths).max().unwrap_or(0);
    let (recovery_ms, dead_ms) = (middle(|o| o.recovery_ms), middle(|o| o.dead_ms));
    let note = format!("the most of {}; at most crash budget + 2 = {DEATHS_AT_MOST}", outbreaks.len());
    table.row("poison: process deaths until it is a dead letter", most.to_string(), note);
    let note = format!("{GOOD} of them, leases of {lease} ms");
    table.row("poison: first death to the last good job done", format!("{recovery_ms:.0} ms"), note);
    table.row("poison: first death to its dead letter", format!("{dead_ms:.0} ms"), "");
    figures.poison_deaths = Some(most as f64);
    figures.poison_recovery_ms = Some(recovery_ms);
    Ok(())
}

fn outbreak(ground: &Ground) -> Outcome<Outbreak> {
    let (plan, server) = (&ground.plan, ground.server(Appendonly::Off)?);
    let (url, good) = (server.url(), Workload { keys: GOOD, ..ground.workload(Ids::Ours)? });
    let start = |name: &str| Child::mortal(plan, &url, name, Role::Poison);
    let mut nodes = [start(NODES[0])?, start(NODES[1])?];
    until(ground, &server, &good, "the nodes to share the partitions", |views| share(views, NODES))?;
    ground.run(spread(&url, &good))?;
    let (mut deaths, mut recovered, mut buried) = (Vec::new(), None, None);
    let deadline = Deadline::after(WITHIN + plan.lease * 20);
    loop {
        for (node, name) in nodes.iter_mut().zip(NODES) {
            if node.aborted()? {
                deaths.push(now_nanos());
                *node = start(name)?;
            }
        }
        let (done, dead) = ground.run(look(&url, &good))?;
        if done == GOOD {
            recovered.get_or_insert_with(now_nanos);
        }
        if dead > 0 {
            buried.get_or_insert_with(now_nanos);
        }
        if done == GOOD && dead > 0 {
            break;
        }
        ensure(!deadline.passed(), || {
            format!("{done} of {GOOD} good jobs are done, {dead} dead, after {} deaths: stuck", deaths.len())
        })?;
        ground.pause(LOOK_EVERY);
    }
    for node in nodes {
        node.terminate()?;
    }
    ground.run(check_end(&url, &good.queue))?;
    ground.run(check_effects(&url, &good, GOOD))?;
    let count = deaths.len();
    ensure((CRASH_BUDGET..=DEATHS_AT_MOST).contains(&count), || {
        format!("{CRASH_BUDGET} to {DEATHS_AT_MOST} process deaths were due, {count} happened")
    })?;
    let since_first = |moment: Option<u64>| moment.unwrap_or(0).saturating_sub(deaths[0]) as f64 / 1e6;
    Ok(Outbreak { deaths: count, recovery_ms: since_first(recovered), dead_ms: since_first(buried) })
}

/// The poison job in the middle.
async fn spread(url: &str, good: &Workload) -> Outcome<()> {
    let mut jobs = good.jobs(0, GOOD)?;
    jobs.insert(GOOD / 2, good.of_one_key(POISON).job(0)?);
    Broker::connect(patient(url)).enqueue_all(&good.queue.name, &jobs).await?;
    Ok(())
}

/// Good jobs that are done, and dead letters.
async fn look(url: &str, good: &Workload) -> Outcome<(usize, u64)> {
    let connection = Broker::connect(patient(url)).connection().await?;
    let keys: Vec<String> = (0..GOOD).map(|n| good.key(n)).collect();
    let done = connection.entities(&good.queue, &keys).await?.iter().flatten().count();
    let dead = connection.partitions(&good.queue).await?.iter().map(|view| view.dead).sum();
    Ok((done, dead))
}

/// An error unless the poison job is the only dead letter, as crashed, and nothing else is left.
async fn check_end(url: &str, queue: &QueueDefinition) -> Outcome<()> {
    let connection = Broker::connect(patient(url)).connection().await?;
    let mut letters = Vec::new();
    for view in connection.partitions(queue).await? {
        ensure(view.ready == 0 && view.claimed == 0, || format!("not everything was settled: {view:?}"))?;
        if view.dead > 0 {
            letters.extend(connection.dead_letters(queue, view.partition, 0, GOOD).await?);
        }
    }
    ensure(letters.len() == 1, || format!("one dead letter was due, not {letters:?}"))?;
    let letter = letters.remove(0).letter.map_err(Failure::Broken)?;
    let poison = letter.key.starts_with(POISON.as_bytes());
    let (reason, crashes) = (letter.reason, letter.crashes.len());
    ensure(poison && reason == DeadReason::Crashed && crashes == CRASH_BUDGET, || {
        format!("a dead letter of the poison job was due, crashed {CRASH_BUDGET} times, not {letter:?}")
    })
}
