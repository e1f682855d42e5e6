//! Postgres is killed, and its answers are lost.

use crate::world::{delivery, on_postgres, run, word};
use gristmill_handler::{HandlerError, Registry, State};
use gristmill_postgres::{Tx, sqlx};
use gristmill_testkit::eventually;
use gristmill_testkit::postgres::Postgres;
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Shared = Arc<Mutex<Option<Postgres>>>;

/// Kills Postgres in the middle, and answers well all the same.
async fn killed(cents: i64, mut tx: Tx, State(postgres): State<Shared>) -> Result<(), HandlerError> {
    sqlx::query("insert into product values ('apple', 1, $1)").bind(cents).execute(&mut *tx).await?;
    if !kill(&postgres) {
        return Ok(());
    }
    // Its other processes end when they see that the first is gone; until then they work.
    while sqlx::query("select 1").execute(&mut *tx).await.is_ok() {}
    Ok(())
}

/// False where it is the test's again.
fn kill(postgres: &Shared) -> bool {
    let mut postgres = postgres.lock().unwrap();
    postgres.as_mut().map(|postgres| postgres.kill().unwrap()).is_some()
}

#[test]
fn a_kill_of_postgres_before_the_commit_is_transient_and_leaves_nothing() {
    on_postgres(|world| async move {
        let crate::world::World { postgres, database } = world;
        let shared: Shared = Arc::new(Mutex::new(Some(postgres)));
        let registry = Registry::new().state(database).state(Arc::clone(&shared)).kind("price", killed);
        let ended = word(run(&registry, delivery("a", "apple", 1, 1)).await);
        assert!(ended.starts_with("transient: "), "{ended}");
        let mut postgres = shared.lock().unwrap().take().unwrap();
        postgres.restart().unwrap();
        assert_eq!(postgres.ask("select count(*) from gristmill.inbox").unwrap(), "0");
        // The pool's old connections are found to be broken, and others are made.
        eventually(Duration::from_secs(20), "a run on the new connections", || {
            let again = tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(run(&registry, delivery("a", "apple", 1, 1)))
            });
            match word(again).as_str() {
                "done" => Some(()),
                transient if transient.starts_with("transient: ") => None,
                other => panic!("{other}"),
            }
        });
        assert_eq!(postgres.ask("select cents from product").unwrap(), "1");
    });
}
