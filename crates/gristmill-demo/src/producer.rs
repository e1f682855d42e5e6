//! Enqueues: in bulk as fast as it goes, or a schedule over a time.

use crate::{
    failure::Failure,
    input::{Event, Input},
    plant,
    schedule::{Schedule, Step},
};
use gristmill_broker::{Broker, Enqueued, QueueDefinition};
use gristmill_job::NewJob;
use gristmill_testkit::history::{HistoryWriter, Job};
use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};
use tokio::time::Instant;

/// Jobs of one bulk enqueue.
const BULK: usize = 2_000;
/// How often a paced producer looks at the clock.
const TICK: Duration = Duration::from_millis(10);

/// How far the producer is; read by the progress bar and by the faults.
#[derive(Debug, Default)]
pub(crate) struct Enqueues {
    /// Steps of the schedule that are done.
    pub(crate) steps: AtomicUsize,
    /// First copies accepted.
    pub(crate) accepted: AtomicU64,
    /// Enqueues answered as duplicates.
    pub(crate) absorbed: AtomicU64,
    /// Second copies that were accepted, and first copies that were not.
    pub(crate) astray: AtomicU64,
}

pub(crate) async fn everything(
    broker: &Broker,
    queue: &QueueDefinition,
    input: &Input,
) -> Result<(), Failure> {
    for events in input.events.chunks(BULK) {
        let jobs = events.iter().map(job).collect::<Result<Vec<_>, _>>()?;
        let answers = broker.enqueue_all(&queue.name, &jobs).await?;
        if let Some(answer) = answers.iter().find(|answer| answer.duplicate_of.is_some()) {
            return Err(Failure::Run(format!("{} was enqueued once and called a duplicate", answer.id)));
        }
    }
    Ok(())
}

/// Spreads the schedule evenly over a time.
pub(crate) async fn paced(
    broker: &Broker,
    queue: &QueueDefinition,
    input: &Input,
    schedule: &Schedule,
    over: Duration,
    history: &HistoryWriter,
    enqueues: &Enqueues,
) -> Result<(), Failure> {
    let started = Instant::now();
    let total = schedule.steps.len();
    let mut next = 0;
    while next < total {
        tokio::time::sleep(TICK).await;
        let passed = started.elapsed().as_secs_f64() / over.as_secs_f64();
        let due = ((total as f64 * passed) as usize).min(total);
        if due == next {
            continue;
        }
        let steps = &schedule.steps[next..due];
        let jobs = steps.iter().map(|step| step_job(input, *step)).collect::<Result<Vec<_>, _>>()?;
        let answers = broker.enqueue_all(&queue.name, &jobs).await?;
        for (step, answer) in steps.iter().zip(&answers) {
            account(input, *step, answer, history, enqueues)?;
        }
        next = due;
        enqueues.steps.store(next, Ordering::Relaxed);
    }
    Ok(())
}

fn account(
    input: &Input,
    step: Step,
    answer: &Enqueued,
    history: &HistoryWriter,
    enqueues: &Enqueues,
) -> Result<(), Failure> {
    let duplicate = answer.duplicate_of.is_some();
    enqueues.absorbed.fetch_add(u64::from(duplicate), Ordering::Relaxed);
    enqueues.astray.fetch_add(u64::from(duplicate != matches!(step, Step::Again(_))), Ordering::Relaxed);
    match step {
        Step::Again(_) => {}
        Step::First(index) => {
            history.enqueued(&input.events[index].told())?;
            enqueues.accepted.fetch_add(1, Ordering::Relaxed);
        }
        Step::Planted(index) => {
            let event = &input.events[index];
            history.enqueued(&Job::new(plant::second_id(event), &event.key, event.version + 1))?;
        }
    }
    Ok(())
}

fn step_job(input: &Input, step: Step) -> Result<NewJob, Failure> {
    match step {
        Step::First(index) | Step::Again(index) => job(&input.events[index]),
        Step::Planted(index) => {
            let event = &input.events[index];
            event
                .job_as(&plant::second_id(event), event.version + 1)
                .map_err(Failure::while_doing("making a job"))
        }
    }
}

fn job(event: &Event) -> Result<NewJob, Failure> {
    event.job().map_err(Failure::while_doing("making a job"))
}
