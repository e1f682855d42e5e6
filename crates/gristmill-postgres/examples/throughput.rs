//! What the way of a job costs: jobs with an effect in Postgres, beside a bare loop of the same SQL, in one run on one
//! machine: `cargo run --release -p gristmill-postgres --example throughput [jobs] [connections]`.
//!
//! Both do, per job: begin, an inbox row, an upsert guarded by a version, commit; with as many connections, and Postgres
//! writes through to the disk (`fsync=on`). The node does besides: claim, lanes, settle in Redis.

use gristmill_broker::{Broker, QueueDefinition, RedisConfig};
use gristmill_handler::{HandlerError, Registry};
use gristmill_job::{NewJob, QueueName};
use gristmill_node::{Node, NodeConfig, QueueConfig};
use gristmill_postgres::{Database, Tx, migrate, sqlx};
use gristmill_testkit::postgres::Postgres;
use gristmill_testkit::server::{Server, ServerOptions};
use std::error::Error;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const PUT: &str = "insert into product (sku, version, cents) values ($1, $2, $3)
     on conflict (sku) do update set version = excluded.version, cents = excluded.cents
     where product.version < excluded.version";
const INBOX: &str =
    "insert into gristmill.inbox (queue, job_id, kind) values ($1, $2, $3) on conflict do nothing";
/// Rounds of each, in turns: a machine's mood touches both.
const ROUNDS: usize = 3;

async fn price(cents: i64, mut tx: Tx) -> Result<(), HandlerError> {
    let (sku, version) = (tx.key_text()?.to_owned(), tx.version()?);
    tx.newer(sqlx::query(PUT).bind(sku).bind(version).bind(cents)).await?;
    Ok(())
}

/// Jobs per second of the SQL alone.
async fn bare(
    database: &Database,
    round: usize,
    jobs: usize,
    connections: usize,
) -> Result<f64, Box<dyn Error>> {
    let next = Arc::new(AtomicUsize::new(0));
    let began = Instant::now();
    let loops: Vec<_> = (0..connections)
        .map(|_| {
            let (next, pool) = (Arc::clone(&next), database.pool().clone());
            tokio::spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= jobs {
                        return Ok::<_, sqlx::Error>(());
                    }
                    let mut transaction = pool.begin().await?;
                    let inbox = sqlx::query(INBOX).bind("bare").bind(format!("{round} {n}")).bind("price");
                    inbox.execute(&mut *transaction).await?;
                    let put = sqlx::query(PUT).bind(format!("bare {round} {n}")).bind(1_i64).bind(120_i64);
                    put.execute(&mut *transaction).await?;
                    transaction.commit().await?;
                }
            })
        })
        .collect();
    for one in loops {
        one.await??;
    }
    Ok(jobs as f64 / began.elapsed().as_secs_f64())
}

/// Jobs per second of a node, from its start with a full queue to the last acknowledgement.
async fn node(
    database: &Database,
    redis: &str,
    round: usize,
    jobs: usize,
    connections: usize,
) -> Result<f64, Box<dyn Error>> {
    let name = QueueName::new(&format!("round-{round}"))?;
    let broker = Broker::connect(RedisConfig::new(redis));
    broker.create(&QueueDefinition::new(name.clone(), 8)).await?;
    let all: Result<Vec<NewJob>, _> = (0..jobs)
        .map(|n| NewJob::new("price", format!("{round} {n}"), &120).map(|job| job.with_version(1)))
        .collect();
    broker.enqueue_all(&name, &all?).await?;
    let mut config =
        NodeConfig::new("n", RedisConfig::new(redis), vec![QueueConfig::new(name).with_partitions(8)]);
    config.slots = connections;
    let registry = Registry::new().state(database.clone()).kind("price", price);
    let node = Node::start(config, registry).await?;
    while node.counts().done == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (began, first) = (Instant::now(), node.counts().done);
    while node.counts().done < jobs as u64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let speed = (jobs as u64 - first) as f64 / began.elapsed().as_secs_f64();
    node.drain(pending()).await;
    Ok(speed)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(|number| number.parse::<usize>());
    let jobs = arguments.next().transpose()?.unwrap_or(20_000);
    let connections = arguments.next().transpose()?.unwrap_or(16);
    let postgres = Postgres::start_with(&["fsync=on", "shared_buffers=128MB"])?;
    let redis = Server::start(ServerOptions::new())?;
    let size = u32::try_from(connections)?;
    let database = Database::new(&postgres.url())?.max_connections(size);
    migrate(database.pool()).await?;
    postgres.ask("create table product (sku text primary key, version bigint, cents bigint)")?;
    let mut shares = Vec::new();
    for round in 0..ROUNDS {
        let bare = bare(&database, round, jobs, connections).await?;
        let node = node(&database, &redis.url(), round, jobs, connections).await?;
        println!("bare loop {bare:.0}/s   node {node:.0}/s   {:.2} of it", node / bare);
        shares.push(node / bare);
    }
    shares.sort_by(f64::total_cmp);
    println!("the middle of {ROUNDS}: {:.2}", shares[ROUNDS / 2]);
    Ok(())
}
