//! One attempt, from a run to how it ended: check the gate, decode, poll, and tell the partition.

use crate::partition::shared::Shared;
use crate::partition::tenure::{Ended, Ran, Run};
use crate::worker::run_queue::RunQueue;
use gristmill_handler::{Answer, Cancellation, Delivery, Facts, Registry, RunFuture, Stage, Started};
use gristmill_job::{DeadReason, ErrorClass, Failure, QueueName};
use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

pub(crate) struct Executor {
    registry: Registry,
    queue: Arc<RunQueue>,
    max_envelope_bytes: usize,
}

/// Holds a slot and the promise that the partition hears how the run ended, also if it is stopped or its task is dropped.
struct Guard {
    queue: Arc<RunQueue>,
    partition: Arc<Shared>,
    run: Option<Run>,
    begun: bool,
    registered: bool,
}

impl Guard {
    fn end(mut self, ran: Ran) {
        self.tell(ran);
    }

    fn tell(&mut self, ran: Ran) {
        let Some(run) = self.run.take() else { return };
        if self.registered {
            self.partition.finished(run.entry.place, run.epoch);
        }
        if self.begun {
            self.partition.ended_one();
        }
        let Run { epoch, lane, entry, turn, .. } = run;
        self.partition.tell(Ended { epoch, lane, entry, turn, ran });
        self.queue.free_slot();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.tell(Ran::Stopped);
    }
}

impl Executor {
    pub(crate) fn new(registry: Registry, queue: Arc<RunQueue>, max_envelope_bytes: usize) -> Self {
        Self { registry, queue, max_envelope_bytes }
    }

    /// Runs until the first await that does not go on at once; the rest goes on in a task.
    pub(crate) async fn run(&self, partition: Arc<Shared>, run: Run) {
        let mut guard =
            Guard { queue: self.queue.clone(), partition, run: None, begun: false, registered: false };
        let partition = guard.partition.clone();
        let started_at = Instant::now();
        if !partition.may_start(run.epoch, started_at) {
            guard.run = Some(run);
            return guard.end(Ran::NotStarted);
        }
        partition.began_one();
        guard.begun = true;
        let cancellation = Cancellation::new();
        let started = match run.entry.key.as_bytes() {
            [] => Started::Refused {
                reason: DeadReason::Undecodable,
                error: "the stream entry has no key (field `k`)".into(),
                facts: Facts { version: 0, own_id: true, max_attempts: None, kind: None, options: None },
            },
            _ => {
                self.registry.start(delivery(&run, &partition.queue, &cancellation), self.max_envelope_bytes)
            }
        };
        let place = run.entry.place;
        let epoch = run.epoch;
        guard.run = Some(run);
        let (mut future, facts) = match started {
            Started::Run { future, facts } => (future, facts),
            Started::Refused { reason, error, facts } => {
                return guard.end(Ran::Refused(reason, error, facts));
            }
        };
        match poll_fn(|cx| Poll::Ready(poll_caught(&mut future, cx))).await {
            Poll::Ready(answer) => guard.end(Ran::Answered(answer, facts)),
            Poll::Pending => {
                guard.registered = true;
                partition.running(place, epoch, cancellation.clone());
                let task = tokio::spawn(async move {
                    let limits = facts.options.as_ref().map_or((None, None), |options| options.limits());
                    let (answer, over) = within(limits, &cancellation, started_at, &mut future).await;
                    let cut_short = !over && cancellation.stage() > Stage::Running && may_pass(&answer);
                    guard.end(if cut_short { Ran::Stopped } else { Ran::Answered(answer, facts) });
                });
                partition.stoppable(place, epoch, task.abort_handle());
            }
        }
    }
}

/// Runs to its answer, or to its limits. True if a limit was reached: what it then answers is its own.
async fn within(
    (soft, hard): (Option<Duration>, Option<Duration>),
    cancellation: &Cancellation,
    started_at: Instant,
    future: &mut RunFuture,
) -> (Answer, bool) {
    let mut run = pin!(poll_fn(|cx| poll_caught(future, cx)));
    let far = started_at + FAR;
    let hard_at = hard.map_or(far, |limit| started_at + limit);
    let mut over = false;
    if let Some(soft) = soft {
        tokio::select! {
            answer = &mut run => return (answer, over),
            () = tokio::time::sleep_until((started_at + soft).into()) => {}
        }
        over = true;
        cancellation.soft(hard_at);
    }
    tokio::select! {
        answer = run => (answer, over),
        () = tokio::time::sleep_until(hard_at.into()), if hard.is_some() => {
            cancellation.hard();
            let limit = hard.unwrap_or_default();
            let error = format!("the run was stopped at its hard limit of {} ms", limit.as_millis());
            (Answer::Failed(Failure::new(ErrorClass::Timeout, vec![error])), true)
        }
    }
}

/// As good as never, for a run without a hard limit.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// An error that another attempt may cure. From a run that was asked to stop it says no more than that it stopped: the job is
/// handed back, and a drain charges nothing.
fn may_pass(answer: &Answer) -> bool {
    matches!(answer, Answer::Failed(Failure { class: ErrorClass::Transient | ErrorClass::Unknown, .. }))
}

fn delivery(run: &Run, queue: &QueueName, cancellation: &Cancellation) -> Delivery {
    let entry = &run.entry;
    Delivery {
        id: entry.id.clone(),
        key: entry.key.clone(),
        envelope: entry.envelope.clone(),
        place: entry.place,
        attempt: run.attempt,
        recovered: entry.recovered,
        reconcile: false,
        cancellation: cancellation.clone(),
        queue: queue.clone(),
    }
}

/// Polls once; a panic is an answer.
fn poll_caught(future: &mut RunFuture, cx: &mut std::task::Context<'_>) -> Poll<Answer> {
    catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))).unwrap_or_else(|panic| {
        Poll::Ready(Answer::Failed(Failure::new(ErrorClass::Panic, vec![words(&*panic)])))
    })
}

fn words(panic: &(dyn Any + Send)) -> String {
    let said =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the handler panicked: {}", said.unwrap_or("without words"))
}
