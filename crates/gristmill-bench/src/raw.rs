//! The raw limit: what a tight loop of plain commands gets out of Redis, several pipelines in flight.

use crate::failure::{Failure, Outcome, ensure};
use crate::rate::Samples;
use futures_util::future::try_join_all;
use gristmill_broker::QueueDefinition;
use gristmill_broker::keys::GROUP;
use gristmill_job::{EncodedJob, partition_of};
use redis::aio::MultiplexedConnection;
use redis::{IntoConnectionInfo, Pipeline, Value};
use std::cell::RefCell;

/// A connection as gristmill makes its own, without its timeouts.
pub(crate) async fn connect(url: &str) -> Outcome<MultiplexedConnection> {
    let settings = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let info = url.into_connection_info()?.set_tcp_settings(settings);
    let config =
        redis::AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(1024);
    Ok(redis::Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?)
}

/// Drains every stream: XREADGROUP, and one XACK and one XDEL per batch in the pipeline of the next XREADGROUP.
pub(crate) async fn drain(
    url: &str,
    queue: &QueueDefinition,
    batch: usize,
    in_flight: usize,
) -> Outcome<Samples> {
    let connection = connect(url).await?;
    let streams: Vec<String> = (0..queue.partitions).map(|p| queue.partition(p).stream).collect();
    let samples = RefCell::new(Samples::start());
    let share = streams.len().div_ceil(in_flight);
    let lanes = streams.chunks(share).map(async |streams| {
        for stream in streams {
            drain_one(connection.clone(), stream, batch, &samples).await?;
        }
        Ok::<(), Failure>(())
    });
    try_join_all(lanes).await?;
    Ok(samples.into_inner())
}

async fn drain_one(
    mut connection: MultiplexedConnection,
    stream: &str,
    batch: usize,
    samples: &RefCell<Samples>,
) -> Outcome<()> {
    let mut held: Vec<Vec<u8>> = Vec::new();
    loop {
        let mut pipeline = Pipeline::with_capacity(3);
        if !held.is_empty() {
            pipeline.cmd("XACK").arg(stream).arg(GROUP).arg(&held);
            pipeline.cmd("XDEL").arg(stream).arg(&held);
        }
        pipeline.cmd("XREADGROUP").arg("GROUP").arg(GROUP).arg("raw");
        pipeline.arg("COUNT").arg(batch).arg("STREAMS").arg(stream).arg(">");
        let count = pipeline.len();
        let mut answers = connection.send_packed_commands(&pipeline, 0, count).await?;
        let read = answers.pop().unwrap_or(Value::Nil);
        if !held.is_empty() {
            let whole = Value::Int(held.len() as i64);
            ensure(answers.iter().all(|answer| *answer == whole), || {
                format!("expected {} acknowledged and deleted, got {answers:?}", held.len())
            })?;
            samples.borrow_mut().more(held.len() as u64);
        }
        held = ids(read)?;
        if held.is_empty() {
            return Ok(());
        }
    }
}

/// The ids in the reply of an XREADGROUP of one stream.
pub(crate) fn ids(reply: Value) -> Outcome<Vec<Vec<u8>>> {
    let rows = match reply {
        Value::Nil => return Ok(Vec::new()),
        other => list(list(list(other)?.pop().unwrap_or(Value::Nil))?.pop().unwrap_or(Value::Nil))?,
    };
    rows.into_iter()
        .map(|row| match list(row)?.into_iter().next() {
            Some(Value::BulkString(id)) => Ok(id),
            other => Err(Failure::Broken(format!("expected the id of an entry, got {other:?}"))),
        })
        .collect()
}

pub(crate) fn list(value: Value) -> Outcome<Vec<Value>> {
    match value {
        Value::Array(values) => Ok(values),
        other => Err(Failure::Broken(format!("expected a list, got {other:?}"))),
    }
}

/// XADDs per pipeline of a bulk enqueue.
const PIPELINE: usize = 500;

/// Adds the jobs' three fields with plain XADDs, many per pipeline.
pub(crate) async fn enqueue(
    url: &str,
    queue: &QueueDefinition,
    jobs: &[EncodedJob],
    in_flight: usize,
) -> Outcome<Samples> {
    let connection = connect(url).await?;
    let streams: Vec<String> = (0..queue.partitions).map(|p| queue.partition(p).stream).collect();
    let samples = RefCell::new(Samples::start());
    let batches = RefCell::new(jobs.chunks(PIPELINE));
    let lanes = (0..in_flight).map(async |_| {
        let mut connection = connection.clone();
        loop {
            let Some(batch) = batches.borrow_mut().next() else { return Ok(()) };
            let mut pipeline = Pipeline::with_capacity(batch.len());
            for job in batch {
                let partition = usize::from(partition_of(job.key.as_bytes(), queue.partitions));
                add(&mut pipeline, &streams[partition], job);
            }
            let answers = connection.send_packed_commands(&pipeline, 0, batch.len()).await?;
            let added = answers.iter().filter(|answer| matches!(answer, Value::BulkString(_))).count();
            ensure(added == batch.len(), || format!("{added} of {} jobs were added", batch.len()))?;
            samples.borrow_mut().more(batch.len() as u64);
        }
    });
    try_join_all::<_>(lanes).await.map(drop).map_err(|failure: Failure| failure)?;
    Ok(samples.into_inner())
}

/// The same, one at a time: each answer is awaited before the next is sent.
pub(crate) async fn enqueue_singly(
    url: &str,
    queue: &QueueDefinition,
    jobs: &[EncodedJob],
) -> Outcome<Samples> {
    let mut connection = connect(url).await?;
    let streams: Vec<String> = (0..queue.partitions).map(|p| queue.partition(p).stream).collect();
    let mut samples = Samples::start();
    for job in jobs {
        let mut pipeline = Pipeline::with_capacity(1);
        add(&mut pipeline, &streams[usize::from(partition_of(job.key.as_bytes(), queue.partitions))], job);
        connection.send_packed_commands(&pipeline, 0, 1).await?;
        samples.more(1);
    }
    Ok(samples)
}

fn add(pipeline: &mut Pipeline, stream: &str, job: &EncodedJob) {
    pipeline.cmd("XADD").arg(stream).arg("*").arg("i").arg(job.id.as_bytes());
    pipeline.arg("k").arg(job.key.as_bytes()).arg("d").arg(job.envelope.as_ref());
}
