//! Arguments that wait before the handler, and have the last word after it.

use crate::fixture::{delivery, job};
use gristmill_handler::{
    Answer, Close, Closing, Context, Delivery, FromDelivery, HandlerError, Needs, Reconciled, Registry,
    RunFuture, Scope, Shared, Started, State,
};
use gristmill_job::Effects;
use std::sync::{Arc, Mutex};

/// What happened, in order.
type Log = Arc<Mutex<Vec<String>>>;

/// Opens and closes, and tells. The name of the second is `NAME`.
struct Opened<const NAME: char>(Log);

struct Closer(char, Log);

impl Close for Closer {
    fn close(self: Box<Self>, answer: Result<Answer, HandlerError>) -> Closing {
        Box::pin(async move {
            tokio::task::yield_now().await;
            let said = match &answer {
                Ok(_) => "ok".to_owned(),
                Err(error) => error.chain().join(": "),
            };
            self.1.lock().unwrap().push(format!("close {} on {said}", self.0));
            match said.as_str() {
                "spoil" | "ok" if self.0 == 'b' => Err(HandlerError::permanent("could not be closed")),
                _ => answer,
            }
        })
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(format!("drop {}", self.0));
    }
}

impl<const NAME: char> FromDelivery for Opened<NAME> {
    fn from_delivery(_: &Context, _: &Shared) -> Result<Self, HandlerError> {
        Err(HandlerError::permanent("nobody calls this"))
    }

    async fn open(context: &Context, shared: &Shared, scope: &mut Scope) -> Result<Self, HandlerError> {
        tokio::task::yield_now().await;
        let log = shared.state::<Log>().unwrap();
        log.lock().unwrap().push(format!("open {NAME}"));
        if NAME == 'x' {
            return Err(HandlerError::duplicate());
        }
        scope.leave(Closer(NAME, Arc::clone(&log)));
        assert!(!context.is_cancelled());
        Ok(Self(Arc::clone(&log)))
    }

    fn needs(needs: &mut Needs) {
        needs.state::<Log>();
    }
}

async fn good(_: u64, a: Opened<'a'>, log: State<Log>) -> Effects {
    a.0.lock().unwrap().push("handler".into());
    drop(log);
    Effects::none()
}

async fn spoiled(_: u64, _a: Opened<'a'>, _b: Opened<'b'>) {}

async fn bad(_: u64, _a: Opened<'a'>) -> Result<(), HandlerError> {
    Err(HandlerError::transient("boom"))
}

async fn settled(_: u64, _a: Opened<'a'>, _x: Opened<'x'>) {
    unreachable!("it was settled before");
}

async fn endless(_: u64, _a: Opened<'a'>) {
    std::future::pending().await
}

async fn looked(_: u64, _a: Opened<'a'>) -> Result<Reconciled, HandlerError> {
    Ok(Reconciled::RunAgain)
}

fn registry() -> (Registry, Log) {
    let log = Log::default();
    let registry = Registry::new()
        .state(Arc::clone(&log))
        .kind("good", good)
        .kind("spoiled", spoiled)
        .kind("bad", bad)
        .kind("settled", settled)
        .kind("endless", endless)
        .reconcile("good", looked);
    registry.check().unwrap();
    (registry, log)
}

fn started(registry: &Registry, delivery: Delivery) -> RunFuture {
    match registry.start(delivery, usize::MAX) {
        Started::Run { future, .. } => future,
        refused @ Started::Refused { .. } => panic!("{refused:?}"),
    }
}

fn told(log: &Log) -> Vec<String> {
    std::mem::take(&mut *log.lock().unwrap())
}

#[tokio::test]
async fn what_is_opened_is_closed_after_the_answer_last_first() {
    let (registry, log) = registry();
    let future = started(&registry, delivery(job("good", &1)));
    assert!(told(&log).is_empty(), "nothing runs before the first poll");
    assert!(matches!(future.await, Answer::Done(_)));
    assert_eq!(told(&log), ["open a", "handler", "close a on ok", "drop a"]);

    let future = started(&registry, delivery(job("spoiled", &1)));
    let Answer::Failed(failure) = future.await else { panic!("it could not be closed") };
    assert_eq!(failure.chain, ["could not be closed"]);
    let expected =
        ["open a", "open b", "close b on ok", "drop b", "close a on could not be closed", "drop a"];
    assert_eq!(told(&log), expected, "who comes later hears of it");

    let future = started(&registry, delivery(job("bad", &1)));
    assert!(matches!(future.await, Answer::Failed(_)));
    assert_eq!(told(&log), ["open a", "close a on boom", "drop a"]);
}

#[tokio::test]
async fn an_argument_may_end_the_run_and_what_was_open_is_closed() {
    let (registry, log) = registry();
    let future = started(&registry, delivery(job("settled", &1)));
    assert!(matches!(future.await, Answer::Duplicate));
    let expected = ["open a", "open x", "close a on an earlier run of this job had its effect", "drop a"];
    assert_eq!(told(&log), expected);
    // What cannot be read opens nothing.
    let future = started(&registry, delivery(job("good", "no number")));
    assert!(matches!(future.await, Answer::Failed(_)));
    assert!(told(&log).is_empty());
    // A look at an interrupted run opens and closes like a run.
    let interrupted = Delivery { reconcile: true, ..delivery(job("good", &1)) };
    let future = started(&registry, interrupted);
    assert!(matches!(future.await, Answer::RunAgain));
    assert_eq!(told(&log), ["open a", "close a on ok", "drop a"]);
}

#[tokio::test]
async fn stopped_it_is_dropped_without_being_asked() {
    let (registry, log) = registry();
    let mut future = started(&registry, delivery(job("endless", &1)));
    let still = tokio::time::timeout(std::time::Duration::from_millis(50), &mut future).await;
    assert!(still.is_err());
    drop(future);
    assert_eq!(told(&log), ["open a", "drop a"]);
}

#[tokio::test]
async fn duplicate_and_stale_are_no_failures() {
    async fn says(word: String) -> Result<(), HandlerError> {
        Err(match word.as_str() {
            "duplicate" => HandlerError::duplicate(),
            _ => HandlerError::stale("version 3 is not newer"),
        })
    }
    let registry = Registry::new().kind("says", says);
    let future = started(&registry, delivery(job("says", "duplicate")));
    assert!(matches!(future.await, Answer::Duplicate));
    let future = started(&registry, delivery(job("says", "stale")));
    assert!(matches!(future.await, Answer::Stale(why) if why == "version 3 is not newer"));
    assert!(HandlerError::stale("x").is_stale() && !HandlerError::duplicate().is_stale());
}
