use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize};

const PATIENCE: Duration = Duration::from_secs(20);

async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("a wakeup was lost")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

#[test]
fn stages_only_go_forward_and_every_clone_sees_them() {
    let ours = Cancellation::new();
    let theirs = ours.clone();
    assert_eq!((theirs.stage(), theirs.remaining()), (Stage::Running, None));
    ours.soft(std::time::Instant::now() + Duration::from_secs(3600));
    assert_eq!(theirs.stage(), Stage::Soft);
    assert!(theirs.remaining().unwrap() > Duration::from_secs(3500));
    ours.hard();
    assert_eq!((theirs.stage(), theirs.remaining()), (Stage::Hard, Some(Duration::ZERO)));
    ours.soft(Instant::now() + Duration::from_secs(3600));
    assert_eq!((theirs.stage(), theirs.remaining()), (Stage::Hard, Some(Duration::ZERO)));
}

#[test]
fn the_earlier_of_two_ends_counts_and_a_past_one_leaves_no_time() {
    let cancellation = Cancellation::new();
    let now = Instant::now();
    cancellation.soft(now + Duration::from_secs(60));
    cancellation.soft(now + Duration::from_secs(10));
    cancellation.soft(now + Duration::from_secs(90));
    assert!(cancellation.remaining().unwrap() <= Duration::from_secs(10));
    cancellation.soft(now - Duration::from_millis(1));
    assert_eq!(cancellation.remaining(), Some(Duration::ZERO));
}

#[test]
fn a_soft_stop_wakes_no_one_who_waits_for_the_hard_one() {
    runtime().block_on(async {
        let cancellation = Cancellation::new();
        let mut hard = Box::pin(cancellation.wait_hard());
        let mut soft = Box::pin(cancellation.wait_soft());
        assert!(pending(hard.as_mut()).await && pending(soft.as_mut()).await);
        cancellation.soft(Instant::now());
        soon(soft).await;
        assert!(pending(hard.as_mut()).await);
        cancellation.hard();
        soon(hard).await;
        soon(cancellation.wait_soft()).await;
        soon(cancellation.wait_hard()).await;
    });
}

async fn pending<F: Future>(mut future: std::pin::Pin<&mut F>) -> bool {
    std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

/// A waiter begins just as another thread moves the stage, the two offset by a few steps that differ from round to
/// round, so that over all rounds the move falls between any two steps of the wait.
#[test]
fn no_wakeup_is_lost_in_a_race() {
    const ROUNDS: usize = 100_000;
    let handles: Vec<Cancellation> = (0..ROUNDS).map(|_| Cancellation::new()).collect();
    let (begun, lost) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for (round, handle) in handles.iter().enumerate() {
                while begun.load(Ordering::SeqCst) <= round && !lost.load(Ordering::SeqCst) {
                    std::hint::spin_loop();
                }
                (0..round % 61).for_each(|_| std::hint::spin_loop());
                if round % 2 == 0 { handle.soft(Instant::now()) } else { handle.hard() }
            }
        });
        runtime().block_on(async {
            for (round, handle) in handles.iter().enumerate() {
                let wait = async {
                    begun.store(round + 1, Ordering::SeqCst);
                    (0..round % 53).for_each(|_| std::hint::spin_loop());
                    if round % 2 == 0 { handle.wait_soft().await } else { handle.wait_hard().await }
                };
                let heard = tokio::time::timeout(PATIENCE, wait).await.is_ok();
                if !heard || handle.stage() == Stage::Running {
                    lost.store(true, Ordering::SeqCst); // also ends the other thread
                    break;
                }
            }
        });
    });
    assert!(!lost.load(Ordering::SeqCst), "a wakeup was lost, or a wait ended before its stage");
}
