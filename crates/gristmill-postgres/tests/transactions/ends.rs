//! Each way in which a run can end.

use crate::world::{World, delivery, on_postgres, run, word};
use gristmill_handler::{Context, HandlerError, Registry, WithClass};
use gristmill_job::{Effects, NewJob, QueueName};
use gristmill_postgres::{Tx, sqlx};
use sqlx::Connection;
use std::time::Duration;

const PUT: &str = "insert into product (sku, version, cents) values ($1, $2, $3)
     on conflict (sku) do update set version = excluded.version, cents = excluded.cents
     where product.version < excluded.version";

async fn put(tx: &mut Tx, cents: i64) -> Result<(), HandlerError> {
    let (sku, version) = (tx.key_text()?.to_owned(), tx.version()?);
    tx.newer(sqlx::query(PUT).bind(sku).bind(version).bind(cents)).await?;
    Ok(())
}

/// Sets the price, then does what the amount says.
async fn price(cents: i64, mut tx: Tx, context: Context) -> Result<Effects, HandlerError> {
    put(&mut tx, cents).await?;
    match cents {
        -1 => return Err(HandlerError::transient("as asked")),
        -2 => {
            // An error that is swallowed leaves the transaction failed.
            let _ = sqlx::query("select 1 / 0").execute(&mut *tx).await;
        }
        -3 => {
            sqlx::raw_sql("commit").execute(&mut *tx).await?;
        }
        -4 => return Ok(Effects::put("lost with the acknowledgement")),
        -5 => {
            tokio::spawn(async move {
                context.cancelled().await;
                drop(tx);
            });
        }
        -6 => return Err(HandlerError::discard("as asked")),
        -7 => {
            sqlx::query("insert into product values ('apple', 1, 1)").execute(&mut *tx).await?;
        }
        -8 => context.cancelled().await,
        -9 => panic!("as asked"),
        -10 => {
            let mut nested = tx.begin().await?;
            let failed = sqlx::query("select 1 / 0").execute(&mut *nested).await;
            nested.rollback().await?;
            assert!(failed.is_err());
        }
        -11 => {
            sqlx::raw_sql("rollback; begin").execute(&mut *tx).await?;
        }
        -12 => {
            sqlx::query("select 1 / 0").execute(&mut *tx).await.transient()?;
        }
        _ => {}
    }
    Ok(Effects::none())
}

fn registry(world: &World) -> Registry {
    let registry = Registry::new().state(world.database.clone()).kind("price", price);
    registry.check().unwrap();
    registry
}

#[test]
fn well_it_commits_with_its_inbox_row_and_a_second_delivery_does_nothing() {
    on_postgres(|world| async move {
        let registry = registry(&world);
        assert_eq!(word(run(&registry, delivery("a", "apple", 1, 120)).await), "done");
        assert_eq!(word(run(&registry, delivery("a", "apple", 1, 120)).await), "duplicate");
        // The id decides, not what the job holds.
        assert_eq!(word(run(&registry, delivery("a", "apple", 9, 999)).await), "duplicate");
        assert_eq!((world.products(), world.inbox()), (vec!["apple 1 120".into()], vec!["a done".into()]));
        let odd = "an id with ÿ, % and : in it";
        assert_eq!(word(run(&registry, delivery(odd, "pear", 1, 1)).await), "done");
        assert_eq!(word(run(&registry, delivery(odd, "pear", 1, 1)).await), "duplicate");
        assert_eq!(world.inbox()[1], "an%20id%20with%20%C3%BF,%20%25%20and%20:%20in%20it done");
    });
}

#[test]
fn a_version_that_is_not_newer_ends_as_stale_and_stays_so() {
    on_postgres(|world| async move {
        let registry = registry(&world);
        assert_eq!(word(run(&registry, delivery("b", "apple", 5, 500)).await), "done");
        for (id, version) in [("a", 4), ("c", 5)] {
            assert_eq!(word(run(&registry, delivery(id, "apple", version, 1)).await), "stale");
        }
        // Not even after the row is gone, as it would be if nothing were noted.
        world.ask("delete from product");
        assert_eq!(word(run(&registry, delivery("a", "apple", 4, 1)).await), "duplicate");
        assert!(world.products().is_empty());
        assert_eq!(world.inbox(), ["a stale", "b done", "c stale"]);
    });
}

#[test]
fn whatever_is_not_well_rolls_all_of_it_back_and_says_why() {
    on_postgres(|world| async move {
        let registry = registry(&world);
        let expected = [
            (-1, "transient: as asked"),
            (-2, "unknown: error returned from database: current transaction is aborted"),
            (-4, "permanent: a handler with a transaction has no effects in Redis"),
            (-5, "permanent: the handler answered while its transaction was still in use elsewhere"),
            (-6, "discarded: as asked"),
            (-7, "permanent: error returned from database: duplicate key"),
            (-11, "permanent: the handler ended its transaction itself"),
            (-12, "transient: error returned from database: division by zero"),
        ];
        for (cents, said) in expected {
            let job = delivery(&format!("job{cents}"), "apple", 1, cents);
            let cancellation = job.cancellation.clone();
            let ended = word(run(&registry, job.clone()).await);
            assert!(ended.starts_with(said), "{cents}: {ended}");
            cancellation.hard();
            assert_eq!((world.products(), world.inbox()), (vec![], vec![]), "{cents}");
        }
        // What a handler commits on its own is committed, with its inbox row; it is told.
        let ended = word(run(&registry, delivery("own", "apple", 1, -3)).await);
        assert!(ended.starts_with("permanent: the handler ended its transaction itself"), "{ended}");
        assert_eq!(word(run(&registry, delivery("own", "apple", 1, -3)).await), "duplicate");
        // A nested transaction is the handler's own affair.
        assert_eq!(word(run(&registry, delivery("nested", "pear", 1, -10)).await), "done");
        assert_eq!(world.inbox(), ["nested done", "own done"]);
    });
}

#[test]
fn stopped_or_panicking_it_leaves_nothing_and_gives_its_connection_back() {
    on_postgres(|world| async move {
        let database = world.database.clone().max_connections(1);
        let registry = Registry::new().state(database).kind("price", price);
        // Stopped hard, by what drops its future.
        for _ in 0..3 {
            let stopped = run(&registry, delivery("a", "apple", 1, -8));
            let limit = Duration::from_millis(300);
            assert!(tokio::time::timeout(limit, stopped).await.is_err());
        }
        // Stopped hard, and it answers well all the same.
        let job = delivery("a", "apple", 1, -8);
        job.cancellation.hard();
        let ended = word(run(&registry, job).await);
        assert_eq!(ended, "transient: the run was stopped before its commit");
        let panicked = tokio::spawn({
            let registry = registry.clone();
            async move { run(&registry, delivery("a", "apple", 1, -9)).await }
        });
        assert!(panicked.await.is_err());
        assert_eq!((world.products(), world.inbox()), (vec![], vec![]));
        // Asked softly to stop, it may finish.
        let job = delivery("a", "apple", 1, 7);
        job.cancellation.soft(std::time::Instant::now() + Duration::from_secs(60));
        assert_eq!(word(run(&registry, job).await), "done");
    });
}

#[test]
fn emitted_jobs_are_there_if_and_only_if_it_committed() {
    async fn twice(fails: bool, mut tx: Tx) -> Result<(), HandlerError> {
        let queue = QueueName::new("labels").permanent()?;
        let job = NewJob::new("label", "apple", &"text").permanent()?.with_version(3);
        tx.emit(&queue, job.with_header("traceparent", "00-1")).await?;
        let own = NewJob::new("label", "pear", &1).permanent()?.with_id("own").permanent()?;
        tx.emit(&queue, own).await?;
        let strange = NewJob::new("label", [0xFF], &1).permanent()?;
        if fails {
            tx.emit(&queue, strange).await?;
        }
        Ok(())
    }
    on_postgres(|world| async move {
        let registry = Registry::new().state(world.database.clone()).kind("price", twice);
        let job = |id: &str, fails: bool| {
            let mut job = delivery(id, "apple", 1, 0);
            let payload = serde_json::to_vec(&fails).unwrap();
            let new =
                NewJob::from_bytes("price", "apple", payload, gristmill_job::ContentType::Json).unwrap();
            job.envelope = new
                .encode(gristmill_job::UnixMillis(1), gristmill_job::JobLimits::default())
                .unwrap()
                .envelope;
            job
        };
        let ended = word(run(&registry, job("a", true)).await);
        assert_eq!(ended, "permanent: the key of an emitted job is not text, as the outbox needs it");
        assert_eq!(world.ask("select count(*) from gristmill.outbox"), "0");
        assert_eq!(word(run(&registry, job("b", false)).await), "done");
        let rows = world
            .ask("select queue, kind, key, version, headers, id = 'own' from gristmill.outbox order by seq");
        assert_eq!(rows, "labels|label|apple|3|{\"traceparent\":\"00-1\"}|f\nlabels|label|pear|0||t");
    });
}

#[test]
fn a_registry_without_a_database_is_refused_before_it_starts() {
    let error = Registry::new().kind("price", price).check().unwrap_err().to_string();
    assert!(error.contains("Database"), "{error}");
}
