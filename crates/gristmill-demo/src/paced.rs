//! The second run: three nodes, a paced producer, a kill and a drain; then what the histories and the entities tell.

use crate::{
    args::Args,
    compare::{Compared, compare},
    demo::{broker_of, look, queue_of, start_server},
    failure::Failure,
    faults::Faults,
    fleet::{Fleet, Kill, Left, history_files},
    input::Input,
    plant::{self, Plant, Planted},
    producer::{self, Enqueues},
    progress::Progress,
    schedule::{self, Schedule},
    worker::Order,
};
use gristmill_broker::{Connection, QueueDefinition};
use gristmill_testkit::{
    history::{Expectations, History, HistoryWriter, Report, check},
    seed::SplitMix64,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

const NODES: usize = 3;
/// Handlers that run at the same time on average.
const BUSY: u64 = 10;
const LONGEST_PAUSE_US: u64 = 500_000;
const SPREAD_WITHIN: Duration = Duration::from_secs(30);
/// After the last enqueue: several recoveries and some work.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);
const SHOW_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) compared: Compared,
    pub(crate) history: Report,
    pub(crate) kill: Kill,
    pub(crate) drained: Left,
    /// Killed to the first start elsewhere of a job that was running; none where none of them started.
    pub(crate) recovery: Option<Duration>,
    pub(crate) absorbed: u64,
    pub(crate) again: u64,
    pub(crate) out_of_order: u64,
    pub(crate) took: Duration,
    pub(crate) pause_us: u64,
    /// Handler runs per node.
    pub(crate) runs: BTreeMap<String, u64>,
    /// What nodes said at their ends, by name.
    pub(crate) said: Vec<(String, Vec<String>)>,
    /// Why the run is not as it should be, apart from what was compared.
    pub(crate) complaints: Vec<String>,
}

pub(crate) async fn run(args: &Args, input: &Input, seed: u64) -> Result<Ran, Failure> {
    let mut rng = SplitMix64::new(seed);
    let planted = args.plant.map(|plant| plant::choose(plant, input, &mut rng)).transpose()?;
    let again = if let Some(Planted::Again(index)) = planted { Some(index) } else { None };
    let schedule = schedule::plan(input, again, &mut rng);
    let server = start_server()?;
    let histories = server.dir().join("histories");
    fs::create_dir(&histories).map_err(Failure::while_doing("making a folder for histories"))?;
    let history = HistoryWriter::open(histories.join("producer.jsonl"))?;
    let (broker, queue) = (broker_of(&server), queue_of(args)?);
    let pause_us = pause_us(args, input);
    let order = Order {
        name: String::new(),
        redis: server.url(),
        partitions: args.partitions,
        lease_ms: args.lease_ms,
        history: None,
        pause_us,
        seed,
        plant: if let Some(Planted::InHandler(plant)) = &planted { Some(plant.clone()) } else { None },
    };
    let mut fleet = Fleet::new(order, Some(&histories))?;
    for _ in 0..NODES {
        fleet.start()?;
    }
    fleet.ready().await?;
    let connection = broker.connection().await?;
    spread(&connection, &queue, &mut fleet).await?;
    let pids: Vec<String> = fleet
        .members
        .iter()
        .map(|member| format!("{} (pid {})", member.name, member.process.pid()))
        .collect();
    println!("paced over {} s by {}", args.seconds, pids.join(", "));

    let started = Instant::now();
    let enqueues = Enqueues::default();
    let mut faults = Faults::new(args);
    let over = Duration::from_secs(args.seconds);
    let producing = producer::paced(&broker, &queue, input, &schedule, over, &history, &enqueues);
    let directing = direct(&connection, &queue, &schedule, &enqueues, &mut fleet, &mut faults);
    let ((), mut complaints) = tokio::try_join!(producing, directing)?;
    let took = started.elapsed();

    if let Some(Planted::Overwrite { old }) = planted {
        plant::overwrite(&server, &queue, &input.events[old])?;
    }
    let compared = compare(&broker, &queue, input).await?;
    complaints.extend(dead_letters(&connection, &queue).await?);
    fleet.ready().await?;
    let left = fleet.dissolve().await?;
    if let Some(dir) = &args.keep {
        fleet.save(&dir.join("paced"))?;
    }
    let (Some(kill), Some(drained)) = (faults.kill, faults.drained) else {
        return Err(Failure::Run("the kill or the drain did not happen".to_owned()));
    };
    complaints.extend(
        left.iter()
            .chain([&drained])
            .filter(|left| !left.clean)
            .map(|left| format!("{} did not leave cleanly", left.node)),
    );
    let astray = enqueues.astray.load(Ordering::Relaxed);
    if astray > 0 {
        complaints.push(format!("{astray} enqueues were not answered as they should: a duplicate, or not"));
    }
    let history = History::read(history_files(&histories))?;
    let recovery = recovery(&history, &kill);
    if recovery.is_none() {
        complaints.push(format!("nothing of what {} was running started elsewhere", kill.node));
    }
    let mut runs = BTreeMap::new();
    for run in &history.runs {
        *runs.entry(run.node.clone()).or_default() += 1;
    }
    Ok(Ran {
        compared,
        history: check(&history, &Expectations::new().killed(&kill.node, kill.at_us)),
        said: left.into_iter().map(|left| (left.node, left.said)).collect(),
        kill,
        drained,
        recovery,
        absorbed: enqueues.absorbed.load(Ordering::Relaxed),
        again: schedule.again,
        out_of_order: schedule.out_of_order,
        took,
        pause_us,
        runs,
        complaints,
    })
}

/// So many handlers run at a time that a kill meets some, and the busiest key still keeps up.
fn pause_us(args: &Args, input: &Input) -> u64 {
    let hottest = input.per_key().into_values().max().unwrap_or(1);
    let run_us = args.seconds * 1_000_000;
    (run_us / (2 * hottest)).min(run_us * BUSY / input.events.len() as u64).clamp(500, LONGEST_PAUSE_US)
}

/// Waits until every partition has an owner and every node is one.
async fn spread(connection: &Connection, queue: &QueueDefinition, fleet: &mut Fleet) -> Result<(), Failure> {
    let deadline = Instant::now() + SPREAD_WITHIN;
    loop {
        let views = connection.partitions(queue).await?;
        let owners: BTreeSet<&str> = views.iter().map(|view| view.owner.as_str()).collect();
        if owners.len() == NODES && !owners.contains("") {
            return Ok(());
        }
        if Instant::now() > deadline {
            let owners = views.iter().map(|view| format!("{}: {:?}", view.partition, view.owner));
            return Err(Failure::Run(format!(
                "expected {NODES} nodes to share the partitions within {SPREAD_WITHIN:?}, got {}",
                owners.collect::<Vec<_>>().join(", ")
            )));
        }
        fleet.check()?;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Watches, shows and interferes until everything is settled. Gives what is to be complained about.
async fn direct(
    connection: &Connection,
    queue: &QueueDefinition,
    schedule: &Schedule,
    enqueues: &Enqueues,
    fleet: &mut Fleet,
    faults: &mut Faults,
) -> Result<Vec<String>, Failure> {
    let mut progress = Progress::new();
    let total = schedule.steps.len();
    let mut shown: Option<Instant> = None;
    let mut enqueued_at: Option<Instant> = None;
    loop {
        tokio::time::sleep(Duration::from_millis(1)).await;
        fleet.check()?;
        let steps = enqueues.steps.load(Ordering::Relaxed);
        faults.tick(steps as f64 / total as f64, fleet, &mut progress).await?;
        if shown.is_some_and(|at| at.elapsed() < SHOW_EVERY) {
            continue;
        }
        shown = Some(Instant::now());
        // Read first: what is accepted afterwards may be settled already.
        let accepted = enqueues.accepted.load(Ordering::Relaxed);
        let look = look(connection, queue).await?;
        let settled = accepted.saturating_sub(look.ready);
        let absorbed = enqueues.absorbed.load(Ordering::Relaxed);
        progress.show(
            steps,
            total,
            &format!("enqueued · {settled} settled · {absorbed} duplicates absorbed"),
        );
        if steps < total {
            continue;
        }
        let waiting = enqueued_at.get_or_insert_with(Instant::now).elapsed();
        if look.ready + look.outbox == 0 && faults.all_happened() {
            progress.finish();
            return Ok(Vec::new());
        }
        if look.ready == 0 && faults.kill.is_none() && waiting > Duration::from_secs(1) {
            let why = "no handler was running when a node was to be killed";
            return Err(Failure::Run(format!("{why}: the input is too small, or --kill-at too late")));
        }
        if waiting > SETTLED_WITHIN {
            progress.finish();
            return Ok(vec![format!("not settled {SETTLED_WITHIN:?} after the last enqueue: {}", look.told)]);
        }
    }
}

async fn dead_letters(connection: &Connection, queue: &QueueDefinition) -> Result<Vec<String>, Failure> {
    let mut told = Vec::new();
    for partition in 0..queue.partitions {
        for dead in connection.dead_letters(queue, partition, 0, 5).await? {
            told.push(match dead.letter {
                Ok(letter) => format!(
                    "a dead letter: {} ({}): {}",
                    String::from_utf8_lossy(&letter.job),
                    letter.reason.as_str(),
                    letter.error.join(": ")
                ),
                Err(why) => format!("a dead letter that cannot be read: {why}"),
            });
        }
    }
    Ok(told)
}

fn recovery(history: &History, kill: &Kill) -> Option<Duration> {
    let elsewhere = history.runs.iter().filter(|run| {
        run.node != kill.node && run.started_us > kill.at_us && kill.running.contains(&run.job.id)
    });
    elsewhere.map(|run| run.started_us - kill.at_us).min().map(Duration::from_micros)
}

/// In words, for the head of the output.
pub(crate) fn plant_words(plant: Plant) -> String {
    format!("planted: {plant:?}; the field `{}` must turn", plant.field())
}
