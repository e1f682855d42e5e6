//! Two runs of one job at once: of an owner that is fenced and does not know it, and of its successor.

use crate::world::{delivery, on_postgres, run, word};
use gristmill_handler::{Context, HandlerError, Registry, State};
use gristmill_postgres::{Database, Isolation, Tx, sqlx};
use gristmill_testkit::eventually;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

#[derive(Default)]
struct Gate {
    entered: Arc<AtomicUsize>,
    open: Option<Arc<Semaphore>>,
}

async fn price(
    cents: i64,
    mut tx: Tx,
    State(gate): State<Gate>,
    context: Context,
) -> Result<(), HandlerError> {
    gate.entered.fetch_add(1, Ordering::SeqCst);
    let insert =
        sqlx::query("insert into product values ($1, 1, $2)").bind(context.id().to_string()).bind(cents);
    insert.execute(&mut *tx).await?;
    if let Some(open) = &gate.open {
        open.acquire().await?.forget();
    }
    match cents {
        -1 => Err(HandlerError::transient("as asked")),
        _ => Ok(()),
    }
}

fn registry(database: &Database) -> (Registry, Arc<Semaphore>, Arc<AtomicUsize>) {
    let (open, entered) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let gate = Gate { open: Some(Arc::clone(&open)), entered: Arc::clone(&entered) };
    (Registry::new().state(database.clone()).state(gate).kind("price", price), open, entered)
}

/// One run is in its handler, so that the inbox row is written.
fn has_entered(entered: &AtomicUsize) {
    tokio::task::block_in_place(|| {
        eventually(Duration::from_secs(20), "the first run", || {
            (entered.load(Ordering::SeqCst) == 1).then_some(())
        });
    });
}

/// Somebody waits for a lock.
fn waits(world: &crate::world::World) {
    eventually(Duration::from_secs(20), "a run that waits for the other", || {
        (world.ask("select count(*) from pg_stat_activity where wait_event_type = 'Lock'") == "1")
            .then_some(())
    });
}

#[test]
fn of_two_runs_one_commits_and_the_other_hears_of_it() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        on_postgres(|world| async move {
            let (registry, open, _) = registry(&world.database.clone().isolation(isolation));
            let start = || {
                tokio::spawn({
                    let registry = registry.clone();
                    async move { word(run(&registry, delivery("a", "apple", 1, 5)).await) }
                })
            };
            let (first, second) = (start(), start());
            tokio::task::block_in_place(|| waits(&world));
            assert_eq!(world.inbox(), Vec::<String>::new());
            open.add_permits(1);
            let mut ended = [first.await.unwrap(), second.await.unwrap()];
            ended.sort();
            assert_eq!(ended[0], "done");
            // Where a snapshot is kept, the second cannot see the first and comes again.
            let second = &ended[1];
            assert!(second == "duplicate" || second.starts_with("transient: "), "{second}");
            assert_eq!(word(run(&registry, delivery("a", "apple", 1, 5)).await), "duplicate");
            assert_eq!((world.products().len(), world.inbox()), (1, vec!["a done".to_owned()]));
        });
    }
}

#[test]
fn when_the_first_is_rolled_back_the_second_runs() {
    on_postgres(|world| async move {
        let (registry, open, entered) = registry(&world.database);
        let start = |cents| {
            tokio::spawn({
                let registry = registry.clone();
                async move { word(run(&registry, delivery("a", "apple", 1, cents)).await) }
            })
        };
        let first = start(-1);
        has_entered(&entered);
        let second = start(5);
        tokio::task::block_in_place(|| waits(&world));
        open.add_permits(2);
        assert_eq!(first.await.unwrap(), "transient: as asked");
        assert_eq!(second.await.unwrap(), "done");
        assert_eq!(world.products(), ["a 1 5"]);
    });
}

/// A process that was stopped in the middle keeps its locks, for as long as it is allowed to be idle and no longer.
#[test]
fn a_frozen_run_holds_its_successor_up_to_the_idle_limit_and_never_commits_after_it() {
    on_postgres(|world| async move {
        let database = world.database.clone().lock_wait(Duration::from_millis(200));
        let (frozen, open, entered) = registry(&database.clone().idle_limit(Duration::from_secs(3)));
        let frozen = tokio::spawn(async move { word(run(&frozen, delivery("a", "apple", 1, 1)).await) });
        has_entered(&entered);
        let free = Registry::new().state(database).state(Gate::default()).kind("price", price);
        let mut snoozed = 0;
        loop {
            match word(run(&free, delivery("a", "apple", 1, 2)).await).as_str() {
                "snoozed" => snoozed += 1,
                "done" => break,
                other => panic!("{other}"),
            }
        }
        assert!(snoozed >= 1, "it stepped back, uncharged");
        open.add_permits(1);
        let late = frozen.await.unwrap();
        assert!(late.starts_with("transient: "), "{late}");
        assert_eq!((world.products(), world.inbox()), (vec!["a 1 2".to_owned()], vec!["a done".to_owned()]));
    });
}

/// Two rows in opposite order: Postgres ends one of the two, and its class says that another attempt helps.
#[test]
fn a_deadlock_is_transient_by_itself() {
    async fn both(
        first: i64,
        mut tx: Tx,
        State(meet): State<tokio::sync::Barrier>,
    ) -> Result<(), HandlerError> {
        for (at, sku) in [first, 1 - first].into_iter().enumerate() {
            let update = sqlx::query("update product set cents = cents + 1 where cents >= 0 and sku = $1");
            update.bind(sku.to_string()).execute(&mut *tx).await?;
            if at == 0 {
                meet.wait().await;
            }
        }
        Ok(())
    }
    on_postgres(|world| async move {
        world.ask("insert into product values ('0', 1, 0), ('1', 1, 0)");
        let registry = Registry::new()
            .state(world.database.clone())
            .state(tokio::sync::Barrier::new(2))
            .kind("price", both);
        let start = |id: &'static str, first| {
            tokio::spawn({
                let registry = registry.clone();
                async move { word(run(&registry, delivery(id, "apple", 1, first)).await) }
            })
        };
        let (a, b) = (start("a", 0), start("b", 1));
        let mut ended = [a.await.unwrap(), b.await.unwrap()];
        ended.sort();
        assert_eq!(ended[0], "done");
        assert!(ended[1].starts_with("transient: error returned from database: deadlock"), "{ended:?}");
        assert_eq!(world.inbox().len(), 1);
    });
}
