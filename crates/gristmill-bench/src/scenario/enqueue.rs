//! Filling a queue: plain XADDs of the same three fields, and gristmill's producer; in bulk and one by one, with ids
//! made by us and with producer's ids.

use crate::failure::{Failure, Outcome, ensure};
use crate::ground::Ground;
use crate::jobs::{BULK, Ids, patient, standing};
use crate::rate::{Samples, median};
use crate::raw;
use crate::report::{Figures, Table, per_second};
use futures_util::future::try_join_all;
use gristmill_broker::{Broker, QueueDefinition};
use gristmill_job::{EncodedJob, JobLimits, NewJob, UnixMillis};
use gristmill_testkit::server::{Appendonly, Server};
use std::cell::RefCell;
use std::time::SystemTime;

/// At most so many jobs are enqueued one by one.
const SINGLE: usize = 20_000;

/// Jobs as both sides take them. The raw side has them encoded already; gristmill encodes while it is timed.
struct Jobs {
    queue: QueueDefinition,
    new: Vec<NewJob>,
    encoded: Vec<EncodedJob>,
}

/// Both kinds of id.
pub(crate) fn run(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    let (ours, producers) = (&mut figures.enqueue_bulk_ratio, &mut figures.enqueue_bulk_own_ids_ratio);
    *ours = Some(run_one(ground, Ids::Ours, "ids made by us", "at least 0.35", table)?);
    *producers = Some(run_one(ground, Ids::Producers, "producer's ids", "at least 0.20", table)?);
    Ok(())
}

fn run_one(ground: &Ground, ids: Ids, name: &str, at_least: &str, table: &mut Table) -> Outcome<f64> {
    println!(
        "\nenqueue, {name} (in bulk: {BULK} jobs a call of gristmill, {} in flight)",
        ground.plan.in_flight
    );
    let server = ground.server(Appendonly::Off)?;
    let workload = ground.workload(ids)?;
    let new = workload.jobs(0, ground.plan.jobs)?;
    let now = UnixMillis::from_system(SystemTime::now());
    let encoded = new.iter().map(|job| job.encode(now, JobLimits::default())).collect::<Result<_, _>>()?;
    let jobs = Jobs { queue: workload.queue, new, encoded };
    let (mut bulk, mut single) = (Vec::new(), Vec::new());
    for round in 1..=ground.plan.rounds {
        for (kind, count, rounds) in
            [("in bulk", jobs.new.len(), &mut bulk), ("one by one", jobs.new.len().min(SINGLE), &mut single)]
        {
            let raw = timed(ground, &server, &jobs, count, kind == "in bulk", true)?;
            let ours = timed(ground, &server, &jobs, count, kind == "in bulk", false)?;
            println!(
                "  round {round}  {kind:<10}  raw {:>16}  gristmill {:>16}  {:.2} of raw",
                per_second(raw),
                per_second(ours),
                ours / raw
            );
            rounds.push((raw, ours));
        }
    }
    let middle = |rounds: &[(f64, f64)], of: fn(&(f64, f64)) -> f64| {
        median(&rounds.iter().map(of).collect::<Vec<_>>())
    };
    for (kind, rounds, note) in [("in bulk", &bulk, at_least), ("one by one", &single, "")] {
        table.row(format!("enqueue {kind}, {name}: raw"), per_second(middle(rounds, |r| r.0)), "");
        table.row(format!("enqueue {kind}, {name}: gristmill"), per_second(middle(rounds, |r| r.1)), "");
        let ratio = middle(rounds, |r| r.1 / r.0);
        table.row(format!("enqueue {kind}, {name}: of raw"), format!("{ratio:.3}"), note);
    }
    Ok(middle(&bulk, |r| r.1 / r.0))
}

fn timed(
    ground: &Ground,
    server: &Server,
    jobs: &Jobs,
    count: usize,
    bulk: bool,
    plain: bool,
) -> Outcome<f64> {
    server.flush()?;
    let (url, in_flight) = (server.url(), ground.plan.in_flight);
    ground.run(async {
        let broker = Broker::connect(patient(&url));
        broker.create(&jobs.queue).await?;
        let (new, encoded) = (&jobs.new[..count], &jobs.encoded[..count]);
        let samples = match (plain, bulk) {
            (true, true) => raw::enqueue(&url, &jobs.queue, encoded, in_flight).await?,
            (true, false) => raw::enqueue_singly(&url, &jobs.queue, encoded).await?,
            (false, true) => in_bulk(&broker, &jobs.queue, new, in_flight).await?,
            (false, false) => singly(&broker, &jobs.queue, new).await?,
        };
        let (ready, _) = standing(&broker, &jobs.queue).await?;
        ensure(ready == count as u64, || format!("{count} jobs were enqueued, the queue holds {ready}"))?;
        Ok(samples.rate(count as u64))
    })
}

async fn in_bulk(
    broker: &Broker,
    queue: &QueueDefinition,
    jobs: &[NewJob],
    in_flight: usize,
) -> Outcome<Samples> {
    let samples = RefCell::new(Samples::start());
    let calls = RefCell::new(jobs.chunks(BULK));
    let lanes = (0..in_flight).map(async |_| {
        loop {
            let Some(call) = calls.borrow_mut().next() else { return Ok::<(), Failure>(()) };
            let taken = broker.enqueue_all(&queue.name, call).await?;
            samples.borrow_mut().more(taken.len() as u64);
        }
    });
    try_join_all(lanes).await?;
    Ok(samples.into_inner())
}

async fn singly(broker: &Broker, queue: &QueueDefinition, jobs: &[NewJob]) -> Outcome<Samples> {
    let mut samples = Samples::start();
    for job in jobs {
        // The clone is what a producer hands over.
        broker.enqueue(&queue.name, job.clone()).await?;
        samples.more(1);
    }
    Ok(samples)
}
