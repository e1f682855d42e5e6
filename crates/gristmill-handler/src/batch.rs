//! Batch handlers: many jobs in one call, one answer for each.
//!
//! Every job of a batch is a run of its own to the node: with its slot, its lease, its limits and its cancellation. Here those
//! runs meet: the first waits for others, at most [`BatchOptions::max_wait`]; what came together is handed to the handler, and
//! each run ends with its own answer. A run that is stopped leaves its batch; a batch that all have left is dropped.
//!
//! ```text
//!   run of a job ──decodes──▶ gathers ──full, waited, or asked to stop──▶ the handler ──▶ its own answer
//! ```

use crate::context::Context;
use crate::delivery::{Answer, RunFuture};
use crate::error::HandlerError;
use crate::extract::{FromDelivery, Needs, Shared, State};
use crate::handler::IntoAnswer;
use crate::options::KindOptions;
use crate::payload::FromPayload;
use crate::polls::Polls;
use gristmill_job::{Effects, ErrorClass, Failure};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Most jobs in one batch.
pub const MAX_BATCH: usize = 10_000;

/// How jobs are gathered, and what else is said about their kind.
#[derive(Debug, Clone)]
pub struct BatchOptions {
    max_jobs: usize,
    max_wait: Duration,
    kind: KindOptions,
}

impl BatchOptions {
    /// Up to `max_jobs` jobs (1 to [`MAX_BATCH`]; a node caps it at its slots, since each job holds one), or as many as came
    /// within `max_wait` of the first.
    #[must_use]
    pub fn new(max_jobs: usize, max_wait: Duration) -> Self {
        Self { max_jobs, max_wait, kind: KindOptions::new() }
    }

    /// With these options of the kind. Time limits count for each job by itself, from when it began to wait for the others.
    #[must_use]
    pub fn kind(mut self, options: KindOptions) -> Self {
        self.kind = options;
        self
    }

    pub(crate) fn kind_options(&self) -> KindOptions {
        self.kind.clone()
    }

    pub(crate) fn fault(&self) -> Option<&'static str> {
        let longest = Duration::from_secs(3600);
        match (1..=MAX_BATCH).contains(&self.max_jobs) {
            false => Some("a batch has 1 to 10000 jobs"),
            true => (self.max_wait > longest).then_some("a batch waits for an hour at most"),
        }
    }
}

/// One job of a batch.
#[derive(Debug)]
pub struct Item<T> {
    /// Its payload.
    pub payload: T,
    /// Its run: id, key, version, cancellation.
    pub context: Context,
}

/// What a batch handler may return: one answer for each job, in their order; or an error of all. An answer is what a handler of
/// single jobs may return.
#[diagnostic::on_unimplemented(
    message = "a batch handler cannot return `{Self}`",
    note = "it returns `Vec<A>` or `Result<Vec<A>, E>` with `E: Into<HandlerError>`, where `A` is what a handler may return"
)]
pub trait IntoAnswers {
    /// # Errors
    /// The error of all.
    fn into_results(self) -> Result<Vec<Result<Effects, HandlerError>>, HandlerError>;
}

impl<A: IntoAnswer> IntoAnswers for Vec<A> {
    fn into_results(self) -> Result<Vec<Result<Effects, HandlerError>>, HandlerError> {
        Ok(self.into_iter().map(IntoAnswer::into_result).collect())
    }
}

impl<A: IntoAnswer, E: Into<HandlerError>> IntoAnswers for Result<Vec<A>, E> {
    fn into_results(self) -> Result<Vec<Result<Effects, HandlerError>>, HandlerError> {
        self.map_err(Into::into)?.into_results()
    }
}

type Handling =
    Pin<Box<dyn Future<Output = Result<Vec<Result<Effects, HandlerError>>, HandlerError>> + Send>>;

/// An async function or closure of the jobs of a batch (`Vec<Item<T>>`), and perhaps a `State<S>` behind them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a batch handler",
    label = "not an async function of `Vec<Item<T>>` and at most one `State<S>`",
    note = "it returns `Vec<A>` or `Result<Vec<A>, E>`: one answer for each job, in their order"
)]
pub trait BatchHandler<Args>: Send + Sync + 'static {
    /// What its jobs carry.
    type Payload: FromPayload + Send + 'static;

    /// Names what its arguments need.
    fn needs(needs: &mut Needs);

    /// One call.
    fn handle(&self, items: Vec<Item<Self::Payload>>, shared: &Shared) -> Handling;
}

impl<F, Fut, T> BatchHandler<(T,)> for F
where
    F: Fn(Vec<Item<T>>) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: IntoAnswers,
    T: FromPayload + Send + 'static,
{
    type Payload = T;

    fn needs(_: &mut Needs) {}

    fn handle(&self, items: Vec<Item<T>>, _: &Shared) -> Handling {
        let handled = self(items);
        Box::pin(async move { handled.await.into_results() })
    }
}

impl<F, Fut, T, S> BatchHandler<(T, State<S>)> for F
where
    F: Fn(Vec<Item<T>>, State<S>) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: IntoAnswers,
    T: FromPayload + Send + 'static,
    S: Send + Sync + 'static,
{
    type Payload = T;

    fn needs(needs: &mut Needs) {
        State::<S>::needs(needs);
    }

    fn handle(&self, items: Vec<Item<T>>, shared: &Shared) -> Handling {
        let state = shared.state::<S>().map(State);
        let handled = state.map(|state| self(items, state));
        Box::pin(async move {
            match handled {
                Some(handled) => handled.await.into_results(),
                None => {
                    Err(HandlerError::permanent("the batch handler takes a State that was not registered"))
                }
            }
        })
    }
}

/// Told of each batch that is handed to its handler: how many jobs it has.
pub(crate) type Observer = Box<dyn Fn(usize) + Send + Sync>;

/// What a registry knows of a kind's batches, whatever they carry.
pub(crate) trait Batches: Send + Sync {
    /// No more jobs than this; how many there were to be, if that is more.
    fn cap(&self, jobs: usize) -> Option<usize>;
    fn observe(&self, observer: Observer);
}

struct Waiting<T> {
    item: Item<T>,
    answer: oneshot::Sender<Answer>,
}

/// The jobs that wait to be handed over together.
struct Open<T> {
    waiting: Vec<Waiting<T>>,
    /// Counts batches, so that the time of one does not end the wait of the next.
    number: u64,
}

impl<T> Open<T> {
    /// The batch, whose place the next one takes.
    fn take(&mut self) -> Vec<Waiting<T>> {
        self.number += 1;
        std::mem::take(&mut self.waiting)
    }
}

pub(crate) struct Gatherer<H, T> {
    handler: H,
    max_jobs: AtomicUsize,
    max_wait: Duration,
    open: Mutex<Open<T>>,
    observer: OnceLock<Observer>,
}

impl<H, T: Send> Batches for Gatherer<H, T>
where
    H: Send + Sync,
{
    fn cap(&self, jobs: usize) -> Option<usize> {
        let before = self.max_jobs.fetch_min(jobs.max(1), Ordering::SeqCst);
        (before > jobs).then_some(before)
    }

    fn observe(&self, observer: Observer) {
        let _ = self.observer.set(observer);
    }
}

impl<H, T> Gatherer<H, T>
where
    T: FromPayload + Send + 'static,
    H: Send + Sync + 'static,
{
    pub(crate) fn new(handler: H, options: &BatchOptions) -> Arc<Self> {
        Arc::new(Self {
            handler,
            max_jobs: AtomicUsize::new(options.max_jobs.clamp(1, MAX_BATCH)),
            max_wait: options.max_wait,
            open: Mutex::new(Open { waiting: Vec::new(), number: 0 }),
            observer: OnceLock::new(),
        })
    }

    /// One job's run.
    pub(crate) fn run<Args>(self: Arc<Self>, context: Context, shared: Arc<Shared>) -> RunFuture
    where
        H: BatchHandler<Args, Payload = T>,
        Args: 'static,
    {
        Box::pin(async move {
            match T::from_payload(&context) {
                Ok(payload) => self.gather::<Args>(payload, context, &shared).await,
                Err(error) => error.into_answer(shared.classifiers()),
            }
        })
    }

    async fn gather<Args>(self: &Arc<Self>, payload: T, context: Context, shared: &Arc<Shared>) -> Answer
    where
        H: BatchHandler<Args, Payload = T>,
        Args: 'static,
    {
        let (answer, mut answered) = oneshot::channel();
        let (own, item) = (context.clone(), Item { payload, context });
        let (full, number, first) = {
            let mut open = self.open();
            open.waiting.push(Waiting { item, answer });
            let first = open.waiting.len() == 1;
            let full = open.waiting.len() >= self.max_jobs.load(Ordering::SeqCst) || self.max_wait.is_zero();
            let number = open.number;
            // Under the same lock: whoever comes a moment later would be one too many.
            (full.then(|| open.take()), number, first)
        };
        if let Some(batch) = full {
            self.hand_over::<Args>(batch, shared);
        } else if first {
            let (gatherer, shared, wait) = (self.clone(), shared.clone(), self.max_wait);
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                gatherer.close::<Args>(number, &shared);
            });
        }
        tokio::select! {
            answered = &mut answered => return answered.unwrap_or_else(|_| lost()),
            // Nobody waits for more jobs once one is to stop.
            () = own.cancelled() => self.close::<Args>(number, shared),
        }
        answered.await.unwrap_or_else(|_| lost())
    }

    fn open(&self) -> MutexGuard<'_, Open<T>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This batch waits no longer, unless it has gone already.
    fn close<Args>(self: &Arc<Self>, number: u64, shared: &Arc<Shared>)
    where
        H: BatchHandler<Args, Payload = T>,
        Args: 'static,
    {
        let batch = {
            let mut open = self.open();
            (open.number == number).then(|| open.take())
        };
        if let Some(batch) = batch {
            self.hand_over::<Args>(batch, shared);
        }
    }

    /// The jobs of a batch go to the handler.
    fn hand_over<Args>(self: &Arc<Self>, mut waiting: Vec<Waiting<T>>, shared: &Arc<Shared>)
    where
        H: BatchHandler<Args, Payload = T>,
        Args: 'static,
    {
        // Who was stopped meanwhile has left.
        waiting.retain(|waiting| !waiting.answer.is_closed());
        if waiting.is_empty() {
            return;
        }
        if let Some(observer) = self.observer.get() {
            observer(waiting.len());
        }
        let (items, answers) = waiting
            .into_iter()
            .map(|Waiting { item, answer }| (item, answer))
            .unzip::<_, _, Vec<_>, Vec<_>>();
        let (gatherer, of_handler, polls) = (self.clone(), shared.clone(), Polls::default());
        items.iter().for_each(|item| item.context.goes_on_in(polls.clone()));
        // In a task: it belongs to none of the runs alone. Its user code runs when it is polled, in sight of each of them.
        let handling = Box::pin(async move { gatherer.handler.handle(items, &of_handler).await });
        let handled = tokio::spawn(polls.of(handling));
        tokio::spawn(end(handled, answers, shared.clone()));
    }
}

type Handled = tokio::task::JoinHandle<Result<Vec<Result<Effects, HandlerError>>, HandlerError>>;

/// Each run gets its answer; where all of them are gone, the handler is stopped.
async fn end(mut handled: Handled, mut answers: Vec<oneshot::Sender<Answer>>, shared: Arc<Shared>) {
    let left = async {
        for answer in &mut answers {
            answer.closed().await;
        }
    };
    let ended = tokio::select! {
        ended = &mut handled => ended,
        () = left => {
            handled.abort();
            return;
        }
    };
    let (jobs, classifiers) = (answers.len(), shared.classifiers());
    let one = |result: Result<Effects, HandlerError>| match result {
        Ok(effects) => Answer::Done(effects),
        Err(error) => error.into_answer(classifiers),
    };
    let results = match ended {
        Ok(Ok(results)) if results.len() == jobs => results.into_iter().map(one).collect(),
        Ok(Ok(results)) => {
            let words = format!("the batch handler gave {} answers to {jobs} jobs", results.len());
            of_all(jobs, &Answer::Failed(Failure::new(ErrorClass::Transient, vec![words])))
        }
        Ok(Err(error)) => of_all(jobs, &error.into_answer(classifiers)),
        Err(failed) => of_all(jobs, &panicked(failed)),
    };
    for (answer, result) in answers.into_iter().zip(results) {
        // Who was stopped meanwhile has left.
        let _ = answer.send(result);
    }
}

/// The same for each: an error of the whole batch. What it wrote could not be given to one of them.
fn of_all(jobs: usize, answer: &Answer) -> Vec<Answer> {
    let again = || match answer {
        Answer::Done(_) | Answer::RunAgain => lost(),
        Answer::Failed(failure) => Answer::Failed(failure.clone()),
        Answer::Snoozed(wait) => Answer::Snoozed(*wait),
        Answer::Discarded(why) => Answer::Discarded(why.clone()),
        Answer::Duplicate => Answer::Duplicate,
        Answer::Stale(why) => Answer::Stale(why.clone()),
        Answer::Review(why) => Answer::Review(why.clone()),
    };
    (0..jobs).map(|_| again()).collect()
}

fn panicked(failed: tokio::task::JoinError) -> Answer {
    let message = failed.try_into_panic().map(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".into())
    });
    match message {
        Ok(text) => {
            let words = format!("the batch handler panicked: {text}");
            Answer::Failed(Failure::new(ErrorClass::Panic, vec![words]))
        }
        Err(_) => lost(),
    }
}

fn lost() -> Answer {
    let words = "the batch of this job ended without an answer for it";
    Answer::Failed(Failure::new(ErrorClass::Transient, vec![words.into()]))
}
