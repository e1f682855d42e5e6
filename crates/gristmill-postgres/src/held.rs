//! A run's transaction with the connection it has from the pool, and connections on their way from one run to the next.
//!
//! ```text
//!   pool ──▶ begin ──▶ run ──▶ commit, rollback ──▶ laid down ──▶ the next run
//!     ▲                 │                               │
//!     └── rolled back ◀─┘ dropped           held long ──┴──▶ pool
//! ```
//!
//! The pool asks every connection that comes back whether it still works: one round trip of each job, and a task. A
//! connection whose transaction has just ended well works, so the next run has it as it is. After [`SHARE`] it goes back to
//! the pool all the same, so that whoever waits there has its turn.

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnection, PgPool};
use sqlx::{AssertSqlSafe, Database, Postgres, SqlSafeStr};
use sqlx_core::transaction::TransactionManager;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For how long runs hand on a connection, and for how long one waits for the next run.
const SHARE: Duration = Duration::from_millis(100);

type Manager = <Postgres as Database>::TransactionManager;

/// Connections that wait for the next run.
#[derive(Default)]
pub(crate) struct Spare(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    connections: Vec<Laid>,
    sweeps: bool,
}

struct Laid {
    connection: PoolConnection<Postgres>,
    /// Since when it is away from the pool.
    away: Instant,
    /// Since when it lies here.
    down: Instant,
}

/// A transaction that is open. Dropped, it is rolled back and its connection goes to the pool.
pub(crate) struct Held {
    /// None once it is laid down.
    connection: Option<PoolConnection<Postgres>>,
    away: Instant,
    stage: Stage,
    spare: Arc<Spare>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing is known of it while it is asked to begin or to end.
    Asked,
    Open,
    Ended,
}

impl Held {
    /// Begins a transaction with these statements.
    ///
    /// # Errors
    /// An error of the pool or of Postgres.
    pub(crate) async fn begin(
        spare: &Arc<Spare>,
        pool: &PgPool,
        begin: &Arc<str>,
    ) -> Result<Self, sqlx::Error> {
        let (connection, away) = match spare.take() {
            Some(laid) => (laid.connection, laid.away),
            None => (pool.acquire().await?, Instant::now()),
        };
        let mut held =
            Self { connection: Some(connection), away, stage: Stage::Asked, spare: Arc::clone(spare) };
        let statement = AssertSqlSafe(Arc::clone(begin)).into_sql_str();
        Manager::begin(&mut held, Some(statement)).await?;
        held.stage = Stage::Open;
        Ok(held)
    }

    /// Commits, and leaves the connection to the next run.
    ///
    /// # Errors
    /// An error of Postgres: whether it is committed is not known. Or a transaction within that was never ended, whose end
    /// this would be; then nothing is committed.
    pub(crate) async fn commit(mut self) -> Result<(), sqlx::Error> {
        self.stage = Stage::Asked;
        if Manager::get_transaction_depth(&self) != 1 {
            return Err(sqlx::Error::Protocol("a transaction within the transaction was not ended".into()));
        }
        Manager::commit(&mut self).await?;
        self.stage = Stage::Ended;
        Ok(())
    }

    /// Rolls back, and leaves the connection to the next run. What cannot be rolled back is rolled back by the server, when
    /// the connection ends.
    pub(crate) async fn rollback(mut self) {
        self.stage = Stage::Asked;
        if Manager::rollback(&mut self).await.is_ok() {
            self.stage = Stage::Ended;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        match self.stage {
            // The client library does not know in which of both states it is, and would hand out an open transaction.
            Stage::Asked => connection.close_on_drop(),
            Stage::Open => Manager::start_rollback(&mut connection),
            Stage::Ended => self.spare.lay_down(connection, self.away),
        }
    }
}

// Why this cannot fail: the connection leaves only when it is dropped.
#[expect(clippy::expect_used, reason = "taken in Drop alone")]
impl Deref for Held {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.connection.as_ref().expect("a connection until it is dropped")
    }
}

#[expect(clippy::expect_used, reason = "taken in Drop alone")]
impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.connection.as_mut().expect("a connection until it is dropped")
    }
}

impl Spare {
    /// The one that was laid down last.
    fn take(&self) -> Option<Laid> {
        self.lock().connections.pop()
    }

    fn lay_down(self: &Arc<Self>, connection: PoolConnection<Postgres>, away: Instant) {
        let now = Instant::now();
        if now.duration_since(away) >= SHARE {
            return;
        }
        let mut waiting = self.lock();
        waiting.connections.push(Laid { connection, away, down: now });
        if !std::mem::replace(&mut waiting.sweeps, true) {
            tokio::spawn(Arc::clone(self).sweep());
        }
    }

    /// Gives back to the pool what no run has taken, until nothing lies here.
    async fn sweep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SHARE).await;
            let mut waiting = self.lock();
            let left = waiting.connections.extract_if(.., |laid| laid.down.elapsed() >= SHARE);
            drop(left.collect::<Vec<_>>());
            if waiting.connections.is_empty() {
                waiting.sweeps = false;
                return;
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Spare {
    /// Maybe after the runtime, without which nothing goes back to a pool.
    fn drop(&mut self) {
        for laid in self.lock().connections.drain(..) {
            drop(laid.connection.detach());
        }
    }
}
