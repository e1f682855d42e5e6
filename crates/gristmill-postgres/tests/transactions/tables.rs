//! Migrations, pruning, and the table of the docs.

use crate::world::{delivery, on_postgres, run, word};
use gristmill_handler::{HandlerError, Registry, WithClass};
use gristmill_job::{ErrorClass, NewJob, QueueName};
use gristmill_postgres::classes::{SQLSTATES, of_sqlstate};
use gristmill_postgres::inbox::{PruneError, SHORTEST_AGE};
use gristmill_postgres::{Database, Tx, migrate, prune, sqlx};
use std::time::Duration;

fn docs() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/POSTGRES.md")).unwrap()
}

#[test]
fn migrations_may_be_repeated_by_several_at_once_and_stay_out_of_the_way() {
    on_postgres(|world| async move {
        world.ask("drop schema gristmill cascade");
        let all = (0..4).map(|_| {
            let pool = world.database.pool().clone();
            tokio::spawn(async move { migrate(&pool).await })
        });
        for migrated in all.collect::<Vec<_>>() {
            migrated.await.unwrap().unwrap();
        }
        migrate(world.database.pool()).await.unwrap();
        assert_eq!(world.ask("select version, success from gristmill.migration order by 1"), "1|t\n2|t\n3|t");
        assert_eq!(world.ask("select to_regclass('_sqlx_migrations') is null"), "t");
        world.ask("update gristmill.migration set checksum = ''");
        let changed = migrate(world.database.pool()).await.unwrap_err().to_string();
        assert!(changed.contains("modified"), "{changed}");
        world.ask("drop schema gristmill cascade");
        migrate(world.database.pool()).await.unwrap();
    });
}

/// The grants of the docs are enough, and they are what the docs say.
#[test]
fn handlers_and_writers_need_no_more_rights_than_the_docs_grant() {
    async fn emits(_: i64, mut tx: Tx) -> Result<(), HandlerError> {
        let job = NewJob::new("label", "k", &1).permanent()?;
        tx.emit(&QueueName::new("labels").permanent()?, job).await?;
        Ok(())
    }
    on_postgres(|world| async move {
        let docs = docs();
        let grants: String =
            docs.lines().filter(|line| line.starts_with("grant ")).collect::<Vec<_>>().join("\n");
        assert_eq!(grants.lines().count(), 5);
        world.ask("create role shop login; create role producer login; create role relay login");
        world.ask(&grants);
        let of = |role: &str| {
            Database::new(&world.postgres.url().replace("user=postgres", &format!("user={role}")))
        };
        let registry = Registry::new().state(of("shop").unwrap()).kind("price", emits);
        assert_eq!(word(run(&registry, delivery("a", "k", 1, 1)).await), "done");
        assert_eq!(word(run(&registry, delivery("a", "k", 1, 1)).await), "duplicate");
        let producer = of("producer").unwrap();
        let insert = "insert into gristmill.outbox (queue, kind, key, payload) values ('q', 'k', 'k', '1')";
        sqlx::query(insert).execute(producer.pool()).await.unwrap();
        assert!(sqlx::query("select * from gristmill.outbox").execute(producer.pool()).await.is_err());
        assert_eq!(prune(of("relay").unwrap().pool(), SHORTEST_AGE).await.unwrap(), 0);
        let delete = "delete from gristmill.outbox where seq = any(array(select seq from gristmill.outbox))";
        let relay = of("relay").unwrap();
        assert_eq!(sqlx::query(delete).execute(relay.pool()).await.unwrap().rows_affected(), 2);
    });
}

#[test]
fn the_inbox_is_pruned_by_age_and_never_below_its_floor() {
    on_postgres(|world| async move {
        world.ask(
            "insert into gristmill.inbox (queue, job_id, kind, at)
             select 'q', n::text, 'k', now() - n * interval '1 minute' from generate_series(0, 4999) n",
        );
        let day = Duration::from_secs(24 * 3600);
        assert_eq!(prune(world.database.pool(), 2 * day).await.unwrap(), 5000 - 2 * 24 * 60);
        assert_eq!(world.ask("select count(*) from gristmill.inbox"), (2 * 24 * 60).to_string());
        let early = prune(world.database.pool(), SHORTEST_AGE - Duration::from_secs(1)).await;
        assert!(matches!(early, Err(PruneError::TooYoung(_))));
    });
}

#[test]
fn the_longest_sqlstate_that_fits_counts() {
    use ErrorClass::{Permanent, Transient, Unknown};
    let expected = [
        ("40001", Transient),
        ("40P01", Transient),
        ("40002", Permanent),
        ("23505", Permanent),
        ("57014", Transient),
        ("57P04", Unknown),
        ("55P03", Transient),
        ("55000", Unknown),
        ("42P01", Unknown),
        ("42601", Permanent),
        ("25P02", Unknown),
        ("P0001", Unknown),
        ("08006", Transient),
    ];
    for (code, class) in expected {
        assert_eq!(of_sqlstate(code), class, "{code}");
    }
}

#[test]
fn the_docs_have_the_same_table() {
    let docs = docs();
    for (code, class, meaning) in SQLSTATES {
        let line = format!("| `{code}` | {meaning} | {} |", class.as_str());
        assert!(docs.contains(&line), "docs/POSTGRES.md lacks this line:\n{line}");
    }
    let listed = docs.lines().filter(|line| line.starts_with("| `") && line.ends_with("t |")).count();
    assert!(listed >= SQLSTATES.len() - 1);
}
