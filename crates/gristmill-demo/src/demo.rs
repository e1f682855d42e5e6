//! The whole of it: input, two runs, account.

use crate::{account, args::Args, failure::Failure, fault_free, input::Input, paced, projection};
use gristmill_broker::{Broker, Connection, QueueDefinition, RedisConfig};
use gristmill_job::QueueName;
use gristmill_testkit::server::{Appendonly, Server, ServerOptions};
use std::time::Instant;

pub(crate) async fn run(args: &Args) -> Result<(), Failure> {
    let seed = args.seed();
    println!("seed {seed:#x}");
    let loading = Instant::now();
    let input = Input::load(args, seed)?;
    println!(
        "{} events of {} paths, {} paths in the truth, from {} ({} ms)",
        input.events.len(),
        input.per_key().len(),
        input.truth.len(),
        input.source,
        loading.elapsed().as_millis()
    );
    if let Some(plant) = args.plant {
        println!("{}", paced::plant_words(plant));
    }
    println!("without a fault: everything enqueued first, then one node as fast as it goes");
    let measured = fault_free::run(args, &input, seed).await?;
    println!("{} jobs in {} ms", input.events.len(), measured.settling.as_millis());
    let ran = paced::run(args, &input, seed).await?;
    account::print(args, seed, &input, &measured, &ran)
}

/// A private server, its append-only file synced every second.
pub(crate) fn start_server() -> Result<Server, Failure> {
    let server = Server::start(ServerOptions::new().appendonly(Appendonly::Everysec))?;
    println!("Redis {} on port {}, gone when this ends", server.version(), server.port());
    Ok(server)
}

pub(crate) fn broker_of(server: &Server) -> Broker {
    Broker::connect(RedisConfig::new(server.url()))
}

pub(crate) fn queue_of(args: &Args) -> Result<QueueDefinition, Failure> {
    let name = QueueName::new(projection::QUEUE).map_err(Failure::while_doing("naming the queue"))?;
    Ok(QueueDefinition::new(name, args.partitions))
}

/// A queue at a moment, all partitions together.
#[derive(Debug, Default)]
pub(crate) struct QueueLook {
    /// Jobs that are not settled.
    pub(crate) ready: u64,
    pub(crate) outbox: u64,
    pub(crate) dead: u64,
    /// Partitions that hold something, in words.
    pub(crate) told: String,
}

pub(crate) async fn look(connection: &Connection, queue: &QueueDefinition) -> Result<QueueLook, Failure> {
    let mut look = QueueLook::default();
    for view in connection.partitions(queue).await? {
        look.ready += view.ready;
        look.outbox += view.outbox;
        look.dead += view.dead;
        if view.ready + view.outbox > 0 {
            look.told += &format!(
                "\n  partition {}: {} jobs, {} of them claimed, {} in the outbox; owner {:?}, epoch {}, lease {}",
                view.partition,
                view.ready,
                view.claimed,
                view.outbox,
                view.owner,
                view.epoch,
                if view.expires > view.now { "valid" } else { "expired" }
            );
        }
    }
    Ok(look)
}
