//! One attempt, from a run to how it ended: check the gate, decode, poll, and tell the partition.

use crate::partition::shared::Shared;
use crate::partition::tenure::{Ended, Ran, Run};
use crate::worker::attempt::{self, Began, Current};
use crate::worker::run_queue::RunQueue;
use crate::worker::slot::Slot;
use crate::worker::stealable;
use crate::worker::watched::{Going, Hold, Live, Polled, Watched};
use gristmill_handler::{
    Answer, Cancellation, Delivery, DeliverySemantics, Facts, Redelivery, Registry, Rule, RunFuture, Stage,
    Started,
};
use gristmill_job::{DeadReason, ErrorClass, Failure, QueueName, TraceContext, UnixMillis};
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::events::job::HandlerCameBack;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

pub(crate) struct Executor {
    registry: Registry,
    queue: Arc<RunQueue>,
    max_envelope_bytes: usize,
    telemetry: Telemetry,
}

/// How a run ended, as far as its worker knows.
enum How {
    Answered(Answer),
    Stopped,
}

impl How {
    fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Answered(answer) => Some(answer),
            Self::Stopped => None,
        }
    }
}

/// The promise that the partition hears how the run ended and that its slot is given back, also if it is stopped or its task
/// is dropped. What was given up has its slot back already, and its partition hears no more than that it has ended.
struct Guard {
    queue: Arc<RunQueue>,
    telemetry: Telemetry,
    watched: Arc<Watched>,
    registered: bool,
}

impl Guard {
    fn end(self, answer: Answer) {
        self.tell(How::Answered(answer));
    }

    fn tell(&self, how: How) {
        let (partition, run, ran, attempt) = match self.watched.finish() {
            Hold::Nothing => return,
            Hold::Alive(live) => {
                let attempt = self.telemetry.counts().then(|| live.attempt(how.answer())).flatten();
                let Live { partition, run, facts, .. } = live;
                let ran = match how {
                    How::Answered(answer) => Ran::Answered(answer, facts),
                    How::Stopped => Ran::Stopped,
                };
                (partition, run, Some(ran), attempt)
            }
            Hold::GivenUp(partition, run) => (partition, run, None, None),
        };
        let Run { epoch, lane, entry, turn, .. } = run;
        if self.registered {
            partition.finished(entry.place, epoch);
        }
        partition.ended_one();
        let given_up = ran.is_none();
        if given_up {
            self.telemetry.tell(&HandlerCameBack {
                queue: partition.queue.as_str(),
                partition: u64::from(partition.partition),
                job: &entry.id,
                place: &entry.place,
            });
            self.queue.came_back(&partition, entry.place, epoch);
        }
        partition.tell(Ended { epoch, lane, entry, turn, ran: ran.unwrap_or(Ran::Stopped), attempt });
        if !given_up {
            self.queue.free_slot();
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.tell(How::Stopped);
    }
}

impl Executor {
    pub(crate) fn new(
        registry: Registry,
        queue: Arc<RunQueue>,
        max_envelope_bytes: usize,
        telemetry: Telemetry,
    ) -> Self {
        Self { registry, queue, max_envelope_bytes, telemetry }
    }

    /// Runs until the first await that does not go on at once; the rest goes on in a task. False if the worker has been
    /// replaced meanwhile.
    #[must_use]
    pub(crate) async fn run(&self, watched: &Arc<Watched>, partition: Arc<Shared>, run: Run) -> bool {
        let started_at = Instant::now();
        // From here on the slot is given back like any other.
        if let Some(slot) = &run.slot {
            slot.take();
        }
        let let_in = run.slot.as_ref().is_none_or(|slot| slot.may_begin(started_at));
        if !let_in || !partition.may_start(&run, started_at) {
            self.not_run(&partition, run, Ran::NotStarted);
            return true;
        }
        if self.is_too_late(&partition, &run, started_at) {
            self.not_run(&partition, run, Ran::Expired);
            return true;
        }
        if let Some(first) = run.first {
            let Run { epoch, lane, entry, turn, .. } = run;
            let ran = Ran::Asks(first, Slot::of(self.queue.clone()));
            partition.tell(Ended { epoch, lane, entry, turn, ran, attempt: None });
            return true;
        }
        let cancellation = Cancellation::new();
        let began = Began::of(&self.telemetry, &run, &partition, started_at);
        let context = began.map(|began| began.context);
        let started = match run.entry.key.as_bytes() {
            [] => Started::Refused {
                reason: DeadReason::Undecodable,
                error: "the stream entry has no key (field `k`)".into(),
                facts: Facts { version: 0, own_id: true, max_attempts: None, kind: None, options: None },
            },
            _ => {
                let delivery = delivery(&run, &partition.queue, &cancellation, context);
                self.registry.start(delivery, self.max_envelope_bytes)
            }
        };
        let (mut future, facts) = match started {
            Started::Run { future, facts } => (future, facts),
            Started::Refused { reason, error, facts } => {
                self.not_run(&partition, run, Ran::Refused(reason, error, facts));
                return true;
            }
        };
        partition.began_one();
        let waited = self.telemetry.counts().then(|| waited(&run, &partition, started_at)).flatten();
        let current = (run.entry.clone(), run.attempt, context);
        let cancelled = cancellation.clone();
        watched.begin(Live { partition, run, facts, started_at, waited, began, cancellation: cancelled });
        let (queue, telemetry) = (self.queue.clone(), self.telemetry.clone());
        let mut guard = Guard { queue, telemetry, watched: watched.clone(), registered: false };
        // From here on the thread may be held.
        stealable::make();
        let first = poll_fn(|cx| {
            Poll::Ready(attempt::during(&current, || watched.poll(&mut future, cx, started_at)))
        });
        match first.await {
            Polled::Answered(answer) => guard.end(answer),
            Polled::TooLate => {}
            Polled::Pending => {
                let own = watched.split();
                guard.watched = own.clone();
                guard.registered = true;
                if let Some(going) = own.going() {
                    let spared = self.is_spared(&going.entry.envelope);
                    spawn(own, going, spared, guard, future, cancellation);
                }
            }
        }
        !watched.is_replaced()
    }

    /// Whether the job has expired: it would start later than it, its kind or its queue allows after it became ready, by the
    /// clock of Redis. Not one that a person brought back, nor one of which it is looked for what an interrupted run did.
    fn is_too_late(&self, partition: &Shared, run: &Run, now: Instant) -> bool {
        let (entry, line) = (&run.entry, run.entry.state.line());
        let asked_for = line.is_some_and(|line| line.replays > 0);
        if run.acknowledged || run.reconcile || asked_for {
            return false;
        }
        let own = self.registry.expires_in(&entry.envelope, self.max_envelope_bytes);
        let Some(limit) = own.or(partition.expires_in) else { return false };
        // Known from the acquire on.
        partition.redis_now(now).is_some_and(|redis| UnixMillis(entry.place.ms).age_at(redis) >= limit)
    }

    /// Whether a run of this job is stopped only where nothing else helps: it may not simply be repeated.
    fn is_spared(&self, envelope: &[u8]) -> bool {
        let rule = || self.registry.rule(envelope, self.max_envelope_bytes);
        let once = |rule: Rule| {
            rule.redelivery != Redelivery::Rerun || rule.delivery == DeliverySemantics::AtMostOnce
        };
        self.registry.has_rules() && once(rule())
    }

    fn not_run(&self, partition: &Shared, run: Run, ran: Ran) {
        let Run { epoch, lane, entry, turn, .. } = run;
        partition.tell(Ended { epoch, lane, entry, turn, ran, attempt: None });
        self.queue.free_slot();
    }
}

/// The rest of a run, as a task.
fn spawn(
    watched: Arc<Watched>,
    going: Going,
    spared: bool,
    guard: Guard,
    mut future: RunFuture,
    cancellation: Cancellation,
) {
    let Going { partition, entry, epoch, limits, started_at, current } = going;
    let place = entry.place;
    partition.running(place, epoch, cancellation.clone(), watched.clone(), spared);
    let task = tokio::spawn(async move {
        let (answer, over) =
            within(limits, &cancellation, started_at, (&watched, &current), &mut future).await;
        let cut_short = !over && cancellation.stage() > Stage::Running && may_pass(&answer);
        if !cut_short {
            guard.end(answer);
        }
    });
    stealable::woke();
    partition.stoppable(place, epoch, task.abort_handle());
}

/// Runs to its answer, or to its limits. True if a limit was reached: what it then answers is its own.
async fn within(
    (soft, hard): (Option<Duration>, Option<Duration>),
    cancellation: &Cancellation,
    started_at: Instant,
    (watched, current): (&Watched, &Current),
    future: &mut RunFuture,
) -> (Answer, bool) {
    let poll = |future: &mut RunFuture, cx: &mut Context<'_>| {
        attempt::during(current, || watched.poll(future, cx, Instant::now()))
    };
    let mut run = pin!(poll_fn(|cx| match poll(future, cx) {
        Polled::Answered(answer) => Poll::Ready(answer),
        Polled::Pending => Poll::Pending,
        // Refused by whoever ends it.
        Polled::TooLate => Poll::Ready(Answer::Discarded("given up".into())),
    }));
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
        answer = &mut run => (answer, over),
        () = tokio::time::sleep_until(hard_at.into()), if hard.is_some() => {
            cancellation.hard();
            // Nothing can be stopped while it is polled, and a batch is not polled here. The watchdog sees one that holds its thread.
            if let Some(polls) = cancellation.elsewhere() {
                tokio::select! {
                    answer = run => return (answer, true),
                    () = polls.idle() => {}
                }
            }
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

/// How long a job had waited when its run began: since it was due, or since it was ready, on the Redis clock. Of one that came
/// back from the dead nobody knows since when.
fn waited(run: &Run, partition: &Shared, now: Instant) -> Option<Duration> {
    if let Some(due) = run.due {
        return Some(now.saturating_duration_since(due));
    }
    let entry = &run.entry;
    let due_ms = entry.state.line().map_or(0, |line| line.due_ms);
    let since = entry.place.ms.max(due_ms);
    let known = !entry.returned || due_ms > 0;
    // Before the first renewal this machine's clock stands for that of Redis.
    let wall = || UnixMillis::from_system(SystemTime::now());
    known.then(|| UnixMillis(since).age_at(partition.redis_now(now).unwrap_or_else(wall)))
}

fn delivery(
    run: &Run,
    queue: &QueueName,
    cancellation: &Cancellation,
    trace: Option<TraceContext>,
) -> Delivery {
    let entry = &run.entry;
    Delivery {
        id: entry.id.clone(),
        key: entry.key.clone(),
        envelope: entry.envelope.clone(),
        place: entry.place,
        attempt: run.attempt,
        recovered: entry.recovered,
        reconcile: run.reconcile,
        cancellation: cancellation.clone(),
        queue: queue.clone(),
        trace,
    }
}
