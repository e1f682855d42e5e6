//! Prices and stock of a shop in Postgres, each event once, and a label printed for each through the outbox.
//!
//! ```text
//! queue shop ─▶ price.changed, stock.moved ─▶ product, inbox, outbox ─(relay)─▶ queue labels ─▶ label.print ─▶ label, inbox
//! ```
//!
//! A price has a version, and an older one ends as stale. A movement of stock has none: done twice it would be wrong,
//! and only the inbox knows.
//!
//! `shop node` serves both queues, `shop relay` moves what is in the outbox; run as many of each as you like.

use clap::{Parser, ValueEnum};
use gristmill_broker::{Broker, RedisConfig};
use gristmill_handler::{Context, HandlerError, Registry, WithClass};
use gristmill_job::{NewJob, QueueName};
use gristmill_node::{Node, NodeConfig, QueueConfig};
use gristmill_postgres::{Database, Relay, Tx, migrate, sqlx};
use std::error::Error;
use std::future::pending;
use std::time::Duration;

#[derive(Parser)]
struct Arguments {
    role: Role,
    #[arg(long)]
    redis: String,
    #[arg(long)]
    postgres: String,
    /// At each of its steps `stock.moved` calls `shop_step(step, job)` in Postgres: how the tests hold it there.
    #[arg(long)]
    steps: bool,
    /// How long a transaction may be idle.
    #[arg(long, default_value_t = 60_000)]
    idle_limit_ms: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    Node,
    Relay,
}

#[derive(serde::Deserialize)]
struct Price {
    cents: i64,
}

async fn price_changed(price: Price, mut tx: Tx, context: Context) -> Result<(), HandlerError> {
    let (sku, version) = (tx.key_text()?.to_owned(), tx.version()?);
    let put = sqlx::query(
        "insert into product (sku, version, cents, stock) values ($1, $2, $3, 0)
         on conflict (sku) do update set version = excluded.version, cents = excluded.cents
         where product.version < excluded.version",
    );
    tx.newer(put.bind(sku).bind(version).bind(price.cents)).await?;
    emit_label(&mut tx, &context).await
}

async fn stock_moved(pieces: i64, mut tx: Tx, context: Context) -> Result<(), HandlerError> {
    step(&mut tx, &context, "inbox written").await?;
    let sku = tx.key_text()?.to_owned();
    let add = sqlx::query(
        "insert into product (sku, version, cents, stock) values ($1, 0, 0, $2)
         on conflict (sku) do update set stock = product.stock + excluded.stock",
    );
    add.bind(sku).bind(pieces).execute(&mut *tx).await?;
    step(&mut tx, &context, "written").await?;
    emit_label(&mut tx, &context).await
}

async fn emit_label(tx: &mut Tx, context: &Context) -> Result<(), HandlerError> {
    let label = NewJob::new("label.print", context.key().as_bytes(), "a label").permanent()?;
    // A name that follows from the event: whoever asks for the label of an event asks for the same job.
    let label = label.with_id(&format!("label of {}", context.id())).permanent()?;
    tx.emit(&QueueName::new("labels").permanent()?, label.with_version(context.version())).await?;
    Ok(())
}

async fn label_print(text: String, mut tx: Tx) -> Result<(), HandlerError> {
    let sku = tx.key_text()?.to_owned();
    let put = sqlx::query("insert into label (sku, text) values ($1, $2)");
    put.bind(sku).bind(text).execute(&mut *tx).await?;
    Ok(())
}

async fn step(tx: &mut Tx, context: &Context, name: &str) -> Result<(), HandlerError> {
    if std::env::args().any(|argument| argument == "--steps") {
        let step = sqlx::query("select shop_step($1, $2)").bind(name).bind(context.id().to_string());
        step.execute(&mut **tx).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_env_filter("info,ractor=warn").with_writer(std::io::stderr).init();
    let Arguments { role, redis, postgres, steps, idle_limit_ms } = Arguments::parse();
    let database = Database::new(&postgres)?.idle_limit(Duration::from_millis(idle_limit_ms));
    let redis = RedisConfig::new(&redis);
    match role {
        Role::Node => {
            migrate(database.pool()).await?;
            let registry = Registry::new()
                .state(database)
                .kind("price.changed", price_changed)
                .kind("stock.moved", stock_moved)
                .kind("label.print", label_print);
            let queue = |name: &str| {
                let mut queue = QueueConfig::new(QueueName::new(name)?).with_partitions(4);
                queue.retry.max_attempts = if steps { 1000 } else { queue.retry.max_attempts };
                Ok::<_, gristmill_job::NameError>(queue)
            };
            let config = NodeConfig::new("shop", redis, vec![queue("shop")?, queue("labels")?]);
            let config = config.with_lease(Duration::from_millis(1500));
            let mut node = Node::start(config, registry).await?;
            println!("ready");
            tokio::select! {
                error = node.failure() => return Err(error.into()),
                _ = tokio::signal::ctrl_c() => {}
            }
            println!("{}", node.drain(pending()).await);
        }
        Role::Relay => {
            let relay = Relay::new(&database, Broker::connect(redis)).poll_every(Duration::from_millis(500));
            println!("ready");
            relay.run(async { tokio::signal::ctrl_c().await.unwrap_or_default() }).await;
            println!("{:?}", relay.counts());
        }
    }
    Ok(())
}
