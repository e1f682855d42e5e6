use super::*;
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;

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

/// Waiters begin at the very moment others move the stage. A thread that lost a wakeup says so and goes on, so that no
/// other is left at the barrier.
#[test]
fn no_wakeup_is_lost_in_a_race() {
    const ROUNDS: usize = 5_000;
    let handles: Vec<Cancellation> = (0..ROUNDS).map(|_| Cancellation::new()).collect();
    let start = Barrier::new(4);
    let lost = AtomicUsize::new(0);
    let waiter = |stage: Stage| {
        runtime().block_on(async {
            for handle in &handles {
                start.wait();
                let heard = async {
                    match stage {
                        Stage::Hard => handle.wait_hard().await,
                        _ => handle.wait_soft().await,
                    }
                };
                let told =
                    lost.load(Ordering::SeqCst) > 0 || tokio::time::timeout(PATIENCE, heard).await.is_ok();
                if !told || (lost.load(Ordering::SeqCst) == 0 && handle.stage() < stage) {
                    lost.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
    };
    let mover = |stage: Stage| {
        for handle in &handles {
            start.wait();
            match stage {
                Stage::Hard => handle.hard(),
                _ => handle.soft(Instant::now()),
            }
        }
    };
    std::thread::scope(|threads| {
        for stage in [Stage::Soft, Stage::Hard] {
            let (waiter, mover) = (&waiter, &mover);
            threads.spawn(move || waiter(stage));
            threads.spawn(move || mover(stage));
        }
    });
    assert_eq!(lost.load(Ordering::SeqCst), 0, "wakeups lost, or a wait that ended early");
    assert!(handles.iter().all(|handle| handle.stage() == Stage::Hard));
}
