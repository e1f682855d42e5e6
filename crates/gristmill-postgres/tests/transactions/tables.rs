//! Migrations, pruning, and the table of the docs.

use crate::world::on_postgres;
use gristmill_job::ErrorClass;
use gristmill_postgres::classes::{SQLSTATES, of_sqlstate};
use gristmill_postgres::inbox::{PruneError, SHORTEST_AGE};
use gristmill_postgres::{migrate, prune};
use std::time::Duration;

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
        assert_eq!(world.ask("select version, success from gristmill.migration"), "1|t");
        assert_eq!(world.ask("select to_regclass('_sqlx_migrations') is null"), "t");
        world.ask("update gristmill.migration set checksum = ''");
        let changed = migrate(world.database.pool()).await.unwrap_err().to_string();
        assert!(changed.contains("modified"), "{changed}");
        world.ask("drop schema gristmill cascade");
        migrate(world.database.pool()).await.unwrap();
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
    let docs =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/POSTGRES.md")).unwrap();
    for (code, class, meaning) in SQLSTATES {
        let line = format!("| `{code}` | {meaning} | {} |", class.as_str());
        assert!(docs.contains(&line), "docs/POSTGRES.md lacks this line:\n{line}");
    }
    let listed = docs.lines().filter(|line| line.starts_with("| `") && line.ends_with("t |")).count();
    assert!(listed >= SQLSTATES.len() - 1);
}
