//! Where the database is, and how its connections are shared: handlers have a pool, a relay has connections of its own, so
//! that neither can starve the other.

use crate::held::Spare;
use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use std::fmt::{self, Write};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What relays call themselves in `pg_stat_activity`.
pub(crate) const RELAY_NAME: &str = "gristmill relay";

/// A connection that was good so lately is used without asking it first.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

/// How much a transaction sees of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Each statement sees what was committed before it. Enough where each row is changed under its lock.
    #[default]
    ReadCommitted,
    /// All statements see what was committed before the first.
    RepeatableRead,
    /// As if transactions ran one after the other; expect serialization failures, which are tried again.
    Serializable,
}

/// A URL that cannot be read. Without the URL, which may hold a password.
#[derive(Debug, thiserror::Error)]
#[error("not the URL of a Postgres database (expected postgres://user@host/database): {0}")]
pub struct DatabaseError(String);

/// A database that handlers work in; register it with `Registry::state`. Clones are cheap and share the pool, which connects
/// when it is first used.
#[derive(Clone)]
pub struct Database {
    options: PgConnectOptions,
    max_connections: u32,
    isolation: Isolation,
    lock_wait: Duration,
    idle_limit: Duration,
    opened: Arc<OnceLock<Opened>>,
}

pub(crate) struct Opened {
    pub(crate) pool: PgPool,
    /// What a transaction begins with.
    pub(crate) begin: Arc<str>,
    /// Connections between two runs.
    pub(crate) spare: Arc<Spare>,
}

impl Database {
    /// By URL: `postgres://user:password@host:port/database?sslmode=verify-full`.
    ///
    /// # Errors
    /// [`DatabaseError`] where it cannot be read. Whether the database is there shows when it is used.
    pub fn new(url: &str) -> Result<Self, DatabaseError> {
        // The client library would take any scheme.
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(DatabaseError("it begins otherwise".into()));
        }
        let options = PgConnectOptions::from_str(url).map_err(|error| DatabaseError(error.to_string()))?;
        Ok(Self::with(options.application_name("gristmill")))
    }

    /// By options of the client library.
    #[must_use]
    pub fn with(options: PgConnectOptions) -> Self {
        Self {
            options,
            max_connections: 10,
            isolation: Isolation::default(),
            lock_wait: Duration::from_secs(5),
            idle_limit: Duration::from_secs(60),
            opened: Arc::default(),
        }
    }

    /// How many connections handlers share (10). Each run with a [`Tx`](crate::Tx) holds one; more runs at once than this wait
    /// for each other, for 5 s at most. The relay's two come on top.
    #[must_use]
    pub fn max_connections(self, connections: u32) -> Self {
        Self { max_connections: connections.max(1), opened: Arc::default(), ..self }
    }

    /// How much transactions see of others.
    #[must_use]
    pub fn isolation(self, isolation: Isolation) -> Self {
        Self { isolation, opened: Arc::default(), ..self }
    }

    /// How long a statement of a handler waits for a lock (5 s). A run whose predecessor still holds its inbox row steps
    /// back after that, uncharged.
    #[must_use]
    pub fn lock_wait(self, wait: Duration) -> Self {
        Self { lock_wait: wait, opened: Arc::default(), ..self }
    }

    /// How long a transaction may be idle before Postgres ends it (60 s): for so long a process that was stopped can hold
    /// its locks, or a relay its lane. Longer than the longest pause of a handler between two statements.
    #[must_use]
    pub fn idle_limit(self, limit: Duration) -> Self {
        Self { idle_limit: limit, opened: Arc::default(), ..self }
    }

    /// The pool. Call it on a tokio runtime, the first time on the one that stays.
    #[must_use]
    pub fn pool(&self) -> &PgPool {
        &self.opened().pool
    }

    /// For a relay, which begins its transactions itself: the limit holds for the session.
    pub(crate) fn relay_options(&self) -> PgConnectOptions {
        let limit = ms(self.idle_limit).to_string();
        let options = self.options.clone().application_name(RELAY_NAME);
        options.options([("idle_in_transaction_session_timeout", limit)])
    }

    pub(crate) fn opened(&self) -> &Opened {
        self.opened.get_or_init(|| Opened {
            pool: PgPoolOptions::new()
                .max_connections(self.max_connections)
                .acquire_timeout(Duration::from_secs(5))
                .test_before_acquire(false)
                .before_acquire(|connection, idle| {
                    Box::pin(async move {
                        if idle.idle_for > TRUSTED_FOR {
                            connection.ping().await?;
                        }
                        Ok(true)
                    })
                })
                .connect_lazy_with(self.options.clone()),
            begin: self.begin().into(),
            spare: Arc::default(),
        })
    }

    fn begin(&self) -> String {
        let isolation = match self.isolation {
            Isolation::ReadCommitted => "read committed",
            Isolation::RepeatableRead => "repeatable read",
            Isolation::Serializable => "serializable",
        };
        let mut text = format!("begin isolation level {isolation}");
        // Writing to a String cannot fail.
        let _ = write!(text, "; set local lock_timeout = {}", ms(self.lock_wait));
        let _ = write!(text, "; set local idle_in_transaction_session_timeout = {}", ms(self.idle_limit));
        text
    }
}

/// As Postgres takes it, who reads 0 as: no limit.
fn ms(limit: Duration) -> u128 {
    limit.as_millis().clamp(1, i32::MAX as u128)
}

impl fmt::Debug for Database {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("host", &self.options.get_host())
            .field("database", &self.options.get_database())
            .field("max_connections", &self.max_connections)
            .field("isolation", &self.isolation)
            .finish_non_exhaustive()
    }
}
