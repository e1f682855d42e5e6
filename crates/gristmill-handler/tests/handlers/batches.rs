//! Handlers of many jobs at a time.

use crate::fixture::{LIMIT, answer, delivery, enveloped, job, raw_job};
use gristmill_handler::{
    Answer, BatchOptions, Delivery, HandlerError, Item, KindOptions, Registry, RunFuture, Started, State,
};
use gristmill_job::{ContentType, Effects, ErrorClass, Rate};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

fn start(registry: &Registry, delivery: Delivery) -> RunFuture {
    match registry.start(delivery, LIMIT) {
        Started::Run { future, .. } => future,
        refused @ Started::Refused { .. } => panic!("{refused:?}"),
    }
}

async fn together(registry: &Registry, payloads: &[u64]) -> Vec<Answer> {
    let runs = payloads.iter().map(|payload| tokio::spawn(start(registry, delivery(job("sum", payload)))));
    let mut answers = Vec::new();
    for run in runs.collect::<Vec<_>>() {
        answers.push(run.await.unwrap());
    }
    answers
}

fn put(answer: &Answer) -> String {
    match answer {
        Answer::Done(effects) => format!("{effects:?}"),
        other => format!("{other:?}"),
    }
}

fn class(answer: &Answer) -> (ErrorClass, String) {
    match answer {
        Answer::Failed(failure) => (failure.class, failure.chain.join(": ")),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_came_together_is_handled_together_and_each_has_its_own_answer() {
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let options = BatchOptions::new(3, HOUR);
    let registry = Registry::new().state(10_u64).batch(
        "sum",
        options,
        |items: Vec<Item<u64>>, add: State<u64>| async move {
            let answer = |item: Item<u64>| match item.payload {
                0 => Err(HandlerError::permanent("no zero")),
                n => Ok(Effects::put((n + *add).to_string())),
            };
            items.into_iter().map(answer).collect::<Vec<_>>()
        },
    );
    registry.check().unwrap();
    let told = sizes.clone();
    registry.observe_batches(move |kind, jobs| told.lock().unwrap().push((kind, jobs)));
    let answers = together(&registry, &[1, 0, 3]).await;
    assert_eq!(put(&answers[0]), format!("{:?}", Effects::put("11")));
    assert_eq!(class(&answers[1]), (ErrorClass::Permanent, "no zero".into()));
    assert_eq!(put(&answers[2]), format!("{:?}", Effects::put("13")));
    assert_eq!(*sizes.lock().unwrap(), [("sum", 3)]);
}

#[tokio::test]
async fn a_batch_that_is_not_full_is_handled_after_its_wait_and_the_next_waits_anew() {
    let options = BatchOptions::new(10, Duration::from_millis(50));
    let registry = Registry::new().batch("sum", options, |items: Vec<Item<u64>>| async move {
        let size = items.len().to_string();
        items.iter().map(|_| Effects::put(size.clone())).collect::<Vec<_>>()
    });
    let answers = together(&registry, &[1, 2]).await;
    assert_eq!(put(&answers[0]), format!("{:?}", Effects::put("2")));
    let answers = together(&registry, &[3]).await;
    assert_eq!(put(&answers[0]), format!("{:?}", Effects::put("1")));
}

#[tokio::test]
async fn too_few_answers_an_error_and_a_panic_are_those_of_each() {
    let options = || BatchOptions::new(2, HOUR);
    let few = Registry::new().batch("sum", options(), |_: Vec<Item<u64>>| async { vec![()] });
    let words = "the batch handler gave 1 answers to 2 jobs";
    for answer in together(&few, &[1, 2]).await {
        assert_eq!(class(&answer), (ErrorClass::Transient, words.into()));
    }
    let many = Registry::new().batch("sum", options(), |_: Vec<Item<u64>>| async { vec![(); 3] });
    assert!(together(&many, &[1, 2]).await.iter().all(|answer| class(answer).0 == ErrorClass::Transient));
    let fails = Registry::new().batch("sum", options(), |_: Vec<Item<u64>>| async {
        Err::<Vec<()>, _>(HandlerError::permanent("down"))
    });
    for answer in together(&fails, &[1, 2]).await {
        assert_eq!(class(&answer), (ErrorClass::Permanent, "down".into()));
    }
    let snoozes = Registry::new()
        .batch("sum", options(), |_: Vec<Item<u64>>| async { Err::<Vec<()>, _>(HandlerError::snooze(HOUR)) });
    for answer in together(&snoozes, &[1, 2]).await {
        assert!(matches!(answer, Answer::Snoozed(HOUR)), "{answer:?}");
    }
    let panics = Registry::new().batch("sum", options(), |items: Vec<Item<u64>>| async move {
        assert!(items.is_empty(), "as it must");
        Vec::<()>::new()
    });
    for answer in together(&panics, &[1, 2]).await {
        let (class, words) = class(&answer);
        assert_eq!(class, ErrorClass::Panic);
        assert!(words.contains("as it must"), "{words}");
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_its_own_fault_and_in_no_batch() {
    let options = BatchOptions::new(2, Duration::ZERO);
    let registry = Registry::new().batch("sum", options, |items: Vec<Item<u64>>| async move {
        items.iter().map(|_| ()).collect::<Vec<_>>()
    });
    let wrong = answer(&registry, delivery(raw_job("sum", b"\"x\"", ContentType::Json))).await;
    assert_eq!(class(&wrong).0, ErrorClass::Permanent);
    assert!(matches!(answer(&registry, delivery(job("sum", &1_u64))).await, Answer::Done(_)));
    assert!(matches!(registry.start(enveloped(&b"garbage"[..]), LIMIT), Started::Refused { .. }));
}

#[tokio::test]
async fn a_run_that_is_stopped_leaves_its_batch_and_one_that_all_have_left_is_stopped() {
    let (began, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    struct Ends(Arc<AtomicUsize>);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (counts, ends) = (began.clone(), ended.clone());
    let registry = Registry::new().batch("sum", BatchOptions::new(2, HOUR), move |items: Vec<Item<u64>>| {
        counts.store(items.len(), Ordering::SeqCst);
        let end = Ends(ends.clone());
        async move {
            let _end = end;
            std::future::pending::<Vec<()>>().await
        }
    });
    let first = tokio::spawn(start(&registry, delivery(job("sum", &1_u64))));
    tokio::task::yield_now().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    // Its place counts until the batch is handed over, which is then smaller.
    let runs: Vec<_> =
        (2..4).map(|n: u64| tokio::spawn(start(&registry, delivery(job("sum", &n))))).collect();
    while began.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    runs.iter().for_each(tokio::task::JoinHandle::abort);
    // The first batch held one job, whose partner had left; asked to stop, the rest of the runs leave as well.
    for run in runs {
        let _ = run.await;
    }
    while ended.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn one_that_is_asked_to_stop_waits_for_no_more_jobs() {
    let registry =
        Registry::new().batch("sum", BatchOptions::new(9, HOUR), |items: Vec<Item<u64>>| async move {
            items.iter().map(|item| Effects::put(item.context.is_cancelled().to_string())).collect::<Vec<_>>()
        });
    let delivery = delivery(job("sum", &1_u64));
    let cancellation = delivery.cancellation.clone();
    let run = tokio::spawn(start(&registry, delivery));
    tokio::task::yield_now().await;
    cancellation.soft(std::time::Instant::now() + HOUR);
    assert_eq!(put(&run.await.unwrap()), format!("{:?}", Effects::put("true")));
}

#[tokio::test]
async fn options_are_checked_and_batches_are_no_larger_than_a_node_has_slots() {
    let handler = |items: Vec<Item<u64>>| async move { items.iter().map(|_| ()).collect::<Vec<_>>() };
    for wrong in [BatchOptions::new(0, HOUR), BatchOptions::new(10_001, HOUR), BatchOptions::new(1, HOUR * 2)]
    {
        let error = Registry::new().batch("sum", wrong, handler).check().unwrap_err().to_string();
        assert!(error.contains("a batch"), "{error}");
    }
    let lacks = Registry::new().batch(
        "sum",
        BatchOptions::new(1, HOUR),
        |items: Vec<Item<u64>>, _: State<u8>| async move { items.iter().map(|_| ()).collect::<Vec<_>>() },
    );
    assert!(lacks.check().unwrap_err().to_string().contains("State<u8>"));
    let options = BatchOptions::new(50, HOUR).kind(KindOptions::new().rate(Rate::per_second(5)));
    let registry = Registry::new().batch("sum", options, handler);
    assert_eq!(registry.limits().count(), 1, "what is said of the kind holds");
    assert_eq!(registry.cap_batches(100), []);
    assert_eq!(registry.cap_batches(2), [("sum", 50)]);
    let answers = together(&registry, &[1, 2]).await;
    assert!(answers.iter().all(|answer| matches!(answer, Answer::Done(_))));
}

/// Runs on several threads that come at once, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_batch_is_larger_than_it_may_be_however_many_come_at_once() {
    let largest = Arc::new(AtomicUsize::new(0));
    let seen = largest.clone();
    let options = BatchOptions::new(2, Duration::from_millis(1));
    let registry = Registry::new().batch("sum", options, move |items: Vec<Item<u64>>| {
        seen.fetch_max(items.len(), Ordering::SeqCst);
        async move { items.iter().map(|_| ()).collect::<Vec<_>>() }
    });
    for _ in 0..40 {
        let answers = together(&registry, &[1; 501]).await;
        assert!(answers.iter().all(|answer| matches!(answer, Answer::Done(_))));
    }
    assert_eq!(largest.load(Ordering::SeqCst), 2);
}
