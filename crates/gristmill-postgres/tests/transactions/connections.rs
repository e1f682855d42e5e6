//! Runs hand their connection on, and nobody else waits long for one.

use crate::world::{delivery, on_postgres, run, word};
use gristmill_handler::{HandlerError, Registry, State};
use gristmill_postgres::{Tx, sqlx};
use sqlx::Connection;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Seen = Arc<Mutex<Vec<i32>>>;

/// Notes which connection it has; -1 fails, -2 leaves a transaction within open, and -3 waits for its end.
async fn price(cents: i64, mut tx: Tx, State(seen): State<Seen>) -> Result<(), HandlerError> {
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut *tx).await?;
    let sku = tx.key_text()?.to_owned();
    let insert = sqlx::query("insert into product values ($1, 1, $2)").bind(sku).bind(cents);
    insert.execute(&mut *tx).await?;
    seen.lock().unwrap().push(pid);
    match cents {
        -1 => Err(HandlerError::transient("as asked")),
        -2 => {
            std::mem::forget(tx.begin().await?);
            Ok(())
        }
        -3 => std::future::pending().await,
        _ => Ok(()),
    }
}

#[test]
fn a_run_has_the_connection_of_the_run_before_and_what_is_left_open_is_undone() {
    on_postgres(|world| async move {
        let seen = Seen::default();
        let database = world.database.clone().max_connections(1);
        let registry = Registry::new().state(database.clone()).state(Arc::clone(&seen)).kind("price", price);
        let of = async |id: &str, cents| word(run(&registry, delivery(id, id, 1, cents)).await);
        assert_eq!(of("a", 1).await, "done");
        assert_eq!(of("b", -1).await, "transient: as asked");
        assert_eq!(of("b", 2).await, "done");
        {
            let seen = seen.lock().unwrap();
            assert!(seen.len() == 3 && seen.iter().all(|pid| pid == &seen[0]), "{seen:?}");
        }
        // A transaction within that was never ended: its commit would be of that one alone.
        let ended = of("c", -2).await;
        assert!(ended.contains("a transaction within the transaction was not ended"), "{ended}");
        assert_eq!(of("c", 3).await, "done");
        // A run that is stopped where it stands.
        let stopped = tokio::time::timeout(Duration::from_millis(200), of("d", -3)).await;
        assert!(stopped.is_err());
        assert_eq!(of("d", 4).await, "done");
        assert_eq!(world.products(), ["a 1 1", "b 1 2", "c 1 3", "d 1 4"]);
        // Nothing keeps a connection for ever: the pool can be closed, and waits for all of them.
        tokio::time::timeout(Duration::from_secs(20), database.pool().close()).await.unwrap();
    });
}

#[test]
fn whoever_waits_at_the_pool_has_its_turn_while_runs_follow_each_other() {
    on_postgres(|world| async move {
        let seen = Seen::default();
        let database = world.database.clone().max_connections(1);
        let registry = Registry::new().state(database.clone()).state(Arc::clone(&seen)).kind("price", price);
        let stop = Arc::new(AtomicBool::new(false));
        let runs = {
            let stop = Arc::clone(&stop);
            tokio::spawn(async move {
                let mut n = 0;
                while !stop.load(Ordering::SeqCst) {
                    n += 1;
                    let id = format!("job-{n}");
                    assert_eq!(word(run(&registry, delivery(&id, &id, 1, 1)).await), "done");
                }
                n
            })
        };
        // The pool lets it wait for 5 s; without a turn, each of these would fail.
        for _ in 0..3 {
            let mut other = database.pool().acquire().await.unwrap();
            other.ping().await.unwrap();
        }
        stop.store(true, Ordering::SeqCst);
        let runs = runs.await.unwrap();
        assert_eq!(world.ask("select count(*) from product"), runs.to_string());
    });
}
