//! The tables, in the schema `gristmill`; what was applied is kept in `gristmill.migration`, apart from migrations of yours.

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{ConnectOptions, Connection, PgPool, SqlSafeStr};

/// Every migration, oldest first: number, name, text. What was shipped never changes; it is checked by its hash.
const ALL: &[(i64, &str, &str)] = &[
    (1, "inbox and outbox", include_str!("../migrations/0001_inbox_and_outbox.sql")),
    (2, "jobs for later", include_str!("../migrations/0002_jobs_for_later.sql")),
    (3, "jobs that expire", include_str!("../migrations/0003_jobs_that_expire.sql")),
];

fn migrator() -> Migrator {
    let migrations = ALL
        .iter()
        .map(|(number, name, text)| {
            Migration::new(*number, (*name).into(), MigrationType::Simple, text.into_sql_str(), false)
        })
        .collect();
    let mut migrator = Migrator::with_migrations(migrations);
    migrator.create_schema("gristmill");
    migrator.dangerous_set_table_name("gristmill.migration");
    migrator
}

/// Makes or updates the tables, each migration in a transaction of its own. Safe to repeat, also by several at once: they
/// wait for each other. Needs the right to create a schema in the database, also when it is there; who only works with the
/// tables needs less (`docs/POSTGRES.md`).
///
/// # Errors
/// [`MigrateError`]; also where the database was migrated by a newer release than this.
pub async fn migrate(pool: &PgPool) -> Result<(), MigrateError> {
    // A connection of its own: a migration that fails leaves its lock with the session.
    let mut connection = pool.connect_options().connect().await?;
    let migrated = migrator().run_direct(None, &mut connection, false).await;
    let closed = connection.close().await;
    migrated.and(closed.map_err(Into::into))
}
