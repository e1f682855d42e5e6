//! The first run: the whole input through one node, unpaced and without a fault, to see how fast it goes.
//!
//! Everything is enqueued before the node starts. The time counts from the last look at which every job was still there
//! to the first look at which none was; the handlers write no histories here.

use crate::{
    args::Args,
    compare::{Compared, compare},
    demo::{QueueLook, broker_of, look, queue_of, start_server},
    failure::Failure,
    fleet::Fleet,
    input::Input,
    producer,
    worker::Order,
};
use std::time::{Duration, Instant};

/// A run that settles nothing for this long is given up.
const STALLED_AFTER: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(4);

#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) jobs_per_s: u64,
    pub(crate) settling: Duration,
    pub(crate) enqueued_per_s: u64,
    pub(crate) compared: Compared,
    /// What the node said at its end.
    pub(crate) said: Vec<String>,
    /// Why the run is not as it should be, apart from what was compared.
    pub(crate) complaints: Vec<String>,
}

pub(crate) async fn run(args: &Args, input: &Input, seed: u64) -> Result<Measured, Failure> {
    let server = start_server()?;
    let (broker, queue) = (broker_of(&server), queue_of(args)?);
    broker.create(&queue).await.map_err(Failure::while_doing("making the queue"))?;
    let enqueueing = Instant::now();
    producer::everything(&broker, &queue, input).await?;
    let enqueueing = enqueueing.elapsed();

    let order = Order {
        name: String::new(),
        redis: server.url(),
        partitions: args.partitions,
        lease_ms: args.lease_ms,
        history: None,
        pause_us: 0,
        seed,
        plant: None,
    };
    let mut fleet = Fleet::new(order, None)?;
    fleet.start()?;
    let connection = broker.connection().await?;
    let total = input.events.len() as u64;
    let (mut started, mut before) = (Instant::now(), total);
    let mut progressed = Instant::now();
    let mut complaints = Vec::new();
    loop {
        let now = Instant::now();
        let QueueLook { ready, dead, .. } = look(&connection, &queue).await?;
        if ready == total {
            started = now;
        }
        if ready < before {
            (before, progressed) = (ready, now);
        }
        if dead > 0 {
            complaints.push(format!("{dead} jobs became dead letters"));
        }
        if ready == 0 || dead > 0 {
            break;
        }
        if progressed.elapsed() > STALLED_AFTER {
            complaints.push(format!("{ready} jobs are left and nothing was settled for {STALLED_AFTER:?}"));
            break;
        }
        fleet.check()?;
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let settling = started.elapsed();
    let compared = compare(&broker, &queue, input).await?;
    fleet.ready().await?;
    let left = fleet.dissolve().await?;
    if let Some(dir) = &args.keep {
        fleet.save(&dir.join("fault-free"))?;
    }
    complaints.extend(
        left.iter().filter(|left| !left.clean).map(|left| format!("{} did not leave cleanly", left.node)),
    );
    Ok(Measured {
        jobs_per_s: per_second(total, settling),
        settling,
        enqueued_per_s: per_second(total, enqueueing),
        compared,
        said: left.into_iter().flat_map(|left| left.said).collect(),
        complaints,
    })
}

fn per_second(jobs: u64, time: Duration) -> u64 {
    (jobs as f64 / time.as_secs_f64().max(0.001)).round() as u64
}
