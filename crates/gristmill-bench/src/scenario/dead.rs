//! Very many dead letters in one queue: they are listed, all of them, and by fresh pages as a person asks for them; then all
//! are replayed, 200 a call. Meanwhile another connection sends PING: how long the server keeps it waiting. In the end a
//! node runs all of them.

use super::pinging::{Pings, pinging};
use crate::failure::{Failure, Outcome, ensure};
use crate::ground::Ground;
use crate::jobs::{Ids, Workload, check_drained, patient};
use crate::plan::Role;
use crate::raw;
use crate::report::{Figures, Table, per_second};
use crate::whole::Child;
use bytes::Bytes;
use gristmill_broker::call::MAX_JOBS_PER_CALL;
use gristmill_broker::dead::{DeadRange, DeadWalk, Order, SLICE};
use gristmill_broker::replay::{Replay, Replayed};
use gristmill_broker::{Broker, Connection, QueueDefinition};
use gristmill_job::{AttemptRecord, DeadLetter, DeadReason, JobLimits, Place, UnixMillis, partition_of};
use gristmill_testkit::Deadline;
use gristmill_testkit::server::{Appendonly, Reply, Server};
use redis::{Pipeline, Value};
use std::time::{Duration, Instant};

/// Letters written per pipeline.
const PIPELINE: usize = 500;
/// Attempts in the history of each.
const ATTEMPTS: u32 = 10;
/// What `dead list` shows, and how many of such pages are asked for.
const PAGE: usize = 50;
const PAGES: usize = 200;
/// How long an idle server is asked, for comparison.
const IDLE: Duration = Duration::from_secs(1);
/// How long a node may take for what was replayed: at all, and for each of them.
const RUN_WITHIN: Duration = Duration::from_secs(60);
const RUN_EACH_WITHIN: Duration = Duration::from_micros(500);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// When the first of them died, in ms since 1970.
const FIRST_DEATH: u64 = 1_700_000_000_000;

/// Once.
pub(crate) fn run(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    let letters = ground.plan.dead_letters;
    println!("\n{letters} dead letters in one queue");
    let server = ground.server(Appendonly::Off)?;
    let (url, workload) = (server.url(), ground.workload(Ids::Ours)?);
    ground.run(bury(&url, &workload, letters))?;
    let connection = ground.run(async { Ok(Broker::connect(patient(&url)).connection().await?) })?;
    let queue = &workload.queue;
    let mut worst: f64 = 0.0;
    let mut told = |what: &str, rate: f64, mut pings: Pings| {
        let (p50, p99, most) = pings.figures();
        println!(
            "  {what:<18}  {rate:>9.0} /s  {:>6} PINGs: p50 {p50:.2} ms  p99 {p99:.2} ms  most {most:.2} ms",
            pings.count()
        );
        table.row(format!("dead letters: PING while {what}, p99"), format!("{p99:.2} ms"), {
            format!("most {most:.2} ms, {rate:.0} a second")
        });
        worst = worst.max(p99);
    };
    let idle = || -> Outcome<usize> {
        ground.pause(IDLE);
        Ok(0)
    };
    let mut work = |what: &str, work: &dyn Fn() -> Outcome<usize>| {
        let begun = Instant::now();
        let (count, pings) = pinging(&server, work)?;
        told(what, count as f64 / begun.elapsed().as_secs_f64(), pings);
        Ok::<usize, Failure>(count)
    };
    work("nothing is done", &idle)?;
    let listed = work("all are listed", &|| ground.run(list(&connection, queue)))?;
    ensure(listed == letters, || format!("{letters} dead letters were to be listed, {listed} were"))?;
    let due = PAGE * PAGES.min(letters / PAGE);
    let shown = work("pages are shown", &|| ground.run(pages(&connection, queue, due / PAGE)))?;
    ensure(shown == due, || format!("{due} dead letters were to be on pages, {shown} were"))?;
    let replayed = work("all are replayed", &|| ground.run(replay(&connection, queue)))?;
    ensure(replayed == letters, || format!("{letters} were to be replayed, {replayed} were"))?;
    check_replayed(&server, queue, letters)?;
    let rate = run_all(ground, &server, queue, figures)?;
    println!("  a node ran them all: {}", per_second(rate));
    let note = format!("{letters} dead letters; mark: under 20 ms");
    table.row("dead letters: PING, the worst p99", format!("{worst:.2} ms"), note);
    table.row("dead letters: replayed ones through a node", per_second(rate), "its start included");
    figures.dead_million_ping_p99_ms = Some(worst);
    figures.dead_letters = Some(letters as f64);
    Ok(())
}

/// Writes dead letters as nodes leave them: of jobs that run well when they come back.
async fn bury(url: &str, workload: &Workload, letters: usize) -> Outcome<()> {
    let (queue, mut connection) = (&workload.queue, raw::connect(url).await?);
    Broker::connect(patient(url)).create(queue).await?;
    let partitions: Vec<_> = (0..queue.partitions).map(|p| queue.partition(p)).collect();
    for from in (0..letters).step_by(PIPELINE) {
        let to = (from + PIPELINE).min(letters);
        let mut pipeline = Pipeline::with_capacity(2 * (to - from));
        for n in from..to {
            let (partition, id, letter) = letter(workload, n)?;
            let keys = &partitions[usize::from(partition)];
            pipeline.cmd("ZADD").arg(&keys.dead).arg(letter.at.0).arg(&id);
            let record = letter.encode().map_err(Failure::Broken)?;
            pipeline.cmd("HSET").arg(&keys.dead_bodies).arg(&id).arg(record);
        }
        let answers = connection.send_packed_commands(&pipeline, 0, pipeline.len()).await?;
        let new = answers.iter().filter(|answer| **answer == Value::Int(1)).count();
        ensure(new == 2 * (to - from), || format!("letters {from} to {to} were not all new"))?;
    }
    Ok(())
}

/// Letter number `n`: its partition, its id, its record.
fn letter(workload: &Workload, n: usize) -> Outcome<(u16, String, DeadLetter)> {
    let at = |ms: u64| UnixMillis(FIRST_DEATH + n as u64 + ms);
    let (job, version) = (workload.job(n)?, workload.key_and_version(n).1);
    let job = job.encode(at(0), JobLimits::default())?;
    let partition = partition_of(job.key.as_bytes(), workload.queue.partitions);
    let place = Place { ms: at(0).0, seq: 0 };
    let error = "the warehouse did not answer within 5 s: connection refused (os error 111)";
    let attempt = |attempt: u32| AttemptRecord {
        attempt,
        at: at(1000 * u64::from(attempt)),
        node: "bench#01".into(),
        class: "transient".into(),
        error: error.into(),
        trace: None,
    };
    let letter = DeadLetter {
        job: job.id.as_bytes().to_vec(),
        key: job.key.as_bytes().to_vec(),
        envelope: job.envelope.to_vec(),
        place: place.to_string(),
        turn: ATTEMPTS - 1,
        reason: DeadReason::Exhausted,
        error: vec![error.into()],
        class: Some("transient".into()),
        attempts: ATTEMPTS,
        node: "bench#01".into(),
        at: at(1000 * u64::from(ATTEMPTS)),
        history: (1..=ATTEMPTS).map(attempt).collect(),
        kind: Some(crate::jobs::KIND.into()),
        version: Some(version),
        ..DeadLetter::default()
    };
    Ok((partition, format!("{partition}-{place}-{}-1", letter.turn), letter))
}

fn everywhere(queue: &QueueDefinition) -> Vec<(QueueDefinition, u16)> {
    (0..queue.partitions).map(|partition| (queue.clone(), partition)).collect()
}

/// Walks through all of them, oldest first, each once.
async fn list(connection: &Connection, queue: &QueueDefinition) -> Outcome<usize> {
    let mut walk = DeadWalk::new(connection.clone(), &everywhere(queue), DeadRange::default());
    let (mut count, mut last) = (0, None);
    loop {
        let portion = walk.next(SLICE).await?;
        if portion.is_empty() {
            return Ok(count);
        }
        for found in portion {
            let position = Some(found.position);
            ensure(position > last, || format!("{position:?} was listed behind {last:?}"))?;
            found.letter.map_err(Failure::Broken)?;
            last = position;
            count += 1;
        }
    }
}

/// Pages as `dead list --newest-first` shows them: every one looks afresh, behind the last letter of the one before.
async fn pages(connection: &Connection, queue: &QueueDefinition, pages: usize) -> Outcome<usize> {
    let (mut count, mut after) = (0, None);
    for _ in 0..pages {
        let range = DeadRange { order: Order::NewestFirst, after, ..DeadRange::default() };
        let mut walk = DeadWalk::new(connection.clone(), &everywhere(queue), range);
        let page = walk.next(PAGE).await?;
        count += page.len();
        after = page.into_iter().next_back().map(|found| found.position);
    }
    Ok(count)
}

/// Replays all of them, partition by partition, as many a call as there may be.
async fn replay(connection: &Connection, queue: &QueueDefinition) -> Outcome<usize> {
    let mut count = 0;
    for of_one in everywhere(queue) {
        let keys = queue.partition(of_one.1);
        let mut walk = DeadWalk::new(connection.clone(), &[of_one], DeadRange::default());
        loop {
            let portion = walk.next(MAX_JOBS_PER_CALL).await?;
            if portion.is_empty() {
                break;
            }
            let letters = portion.into_iter().map(|found| {
                let id: Bytes = found.position.id;
                found.letter.and_then(|letter| Replay::of(id, letter))
            });
            let letters = letters.collect::<Result<Vec<_>, _>>().map_err(Failure::Broken)?;
            let mut rest = letters.as_slice();
            while !rest.is_empty() {
                let (call, later) = rest.split_at(Replay::of_one_call(rest));
                let answers = connection.replay(&keys, call).await?;
                count += answers.iter().filter(|answer| **answer == Replayed::Replayed).count();
                rest = later;
            }
        }
    }
    Ok(count)
}

/// An error unless so many jobs lie beside the stream, and no letter anywhere.
fn check_replayed(server: &Server, queue: &QueueDefinition, expect: usize) -> Outcome<()> {
    let mut connection = server.connection()?;
    let mut size = |command: &str, key: &str| -> Outcome<i64> {
        let reply = connection.command(&[command, key])?;
        reply.as_int().ok_or_else(|| Failure::Broken(format!("expected a size of {key}, got {reply:?}")))
    };
    let (mut bodies, mut left) = (0, 0);
    for partition in 0..queue.partitions {
        let keys = queue.partition(partition);
        bodies += size("HLEN", &keys.returned_bodies)?;
        left += size("ZCARD", &keys.dead)? + size("HLEN", &keys.dead_bodies)?;
    }
    let returned = returned(server, queue)?;
    ensure(returned == expect as i64 && bodies == returned && left == 0, || {
        format!(
            "{expect} replayed jobs were to wait: {returned} do, with {bodies} bodies; {left} letters left"
        )
    })
}

/// Jobs that came back and have no verdict yet.
fn returned(server: &Server, queue: &QueueDefinition) -> Outcome<i64> {
    let ask: Vec<Vec<String>> =
        (0..queue.partitions).map(|p| vec!["ZCARD".to_owned(), queue.partition(p).returned]).collect();
    let sizes = server.connection()?.pipeline::<String>(&ask)?;
    let size = |reply: &Reply| {
        reply.as_int().ok_or_else(|| Failure::Broken(format!("expected a size, got {reply:?}")))
    };
    sizes.iter().map(size).sum()
}

/// Jobs per second of a node that runs what came back. What it counts is no measure of the end: a verdict whose answer is
/// lost with a connection stands in Redis, and is counted nowhere.
fn run_all(ground: &Ground, server: &Server, queue: &QueueDefinition, figures: &mut Figures) -> Outcome<f64> {
    let (plan, url, letters) = (&ground.plan, server.url(), ground.plan.dead_letters as f64);
    let begun = Instant::now();
    let deadline = Deadline::after(RUN_WITHIN + RUN_EACH_WITHIN.mul_f64(letters));
    let mut node = Child::node(plan, &url, "bench", Role::Plain, 0)?;
    loop {
        let left = returned(server, queue)?;
        if left == 0 {
            break;
        }
        ensure(node.runs()?, || "the node ended early".into())?;
        ensure(!deadline.passed(), || format!("{left} of {letters} replayed jobs are still not run"))?;
        ground.pause(LOOK_EVERY);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let report = node.terminate()?;
    let (runs, done) = (report.get("runs"), report.get("done"));
    let whole = done == letters && runs == letters;
    ensure(whole || (!report.lost.is_empty() && runs >= letters), || {
        format!("{letters} replayed jobs were due: {runs} runs happened, {done} were done")
    })?;
    ground.run(check_drained(&url, queue))?;
    check_replayed(server, queue, 0)?;
    report.lost.iter().for_each(|(cause, n)| println!("  tenures lost: {cause} {n}"));
    figures.lost(&report);
    Ok(letters / seconds)
}
