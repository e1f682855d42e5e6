//! How inbox and outbox stand: for people (`gristmill doctor`) and for metrics. Bounded: what is long is counted up to
//! [`MOST`], and the inbox is taken from the server's own estimate.

use crate::database::{Database, RELAY_NAME};
use sqlx::PgPool;
use std::time::Duration;

/// Longest wait for all of it.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Waiting rows that are counted; more are as many.
pub const MOST: i64 = 100_000;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// Rows that wait for a relay, [`MOST`] at most.
    pub waiting: u64,
    /// How long the oldest of them has waited, by the server's clock.
    pub oldest: Option<Duration>,
    /// Rows of which no job can be made.
    pub refused: u64,
    /// Whether a relay is connected, from whatever node.
    pub relay: bool,
    /// About so many inbox rows; `None` before the server has counted them for the first time.
    pub inbox: Option<u64>,
    /// The age of the oldest inbox row.
    pub inbox_oldest: Option<Duration>,
}

/// In the order of [`LOOK`].
type Found = (i64, Option<f64>, i64, bool, Option<i64>, Option<f64>);

const TABLES: &str =
    "select to_regclass('gristmill.outbox') is not null and to_regclass('gristmill.inbox') is not null";
/// The oldest is looked for among the rows in the order of `seq`, which is nearly that of time.
const LOOK: &str = "select
    (select count(*) from (select from gristmill.outbox where refused is null limit $1) few) as waiting,
    (select extract(epoch from clock_timestamp() - at)::float8 from gristmill.outbox where refused is null
     order by seq limit 1) as oldest,
    (select count(*) from (select from gristmill.outbox where refused is not null limit $1) few) as refused,
    exists (select from pg_stat_activity
     where datname = current_database() and application_name = $2) as relay,
    (select reltuples::int8 from pg_class where oid = 'gristmill.inbox'::regclass and reltuples >= 0) as inbox,
    (select extract(epoch from clock_timestamp() - min(at))::float8 from gristmill.inbox) as inbox_oldest";

/// Why nothing was seen.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// Postgres refused, or cannot be reached.
    #[error(transparent)]
    Postgres(#[from] sqlx::Error),
    /// It did neither.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Silent,
}

/// Looks over one connection of its own, which waits for no handler's, and no longer than [`PATIENCE`].
#[derive(Debug)]
pub struct Probe(Database);

impl Probe {
    /// Of this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self(database.max_connections(1))
    }

    /// Looks once; `None` where the tables are not there (yet).
    ///
    /// # Errors
    /// [`LookError`].
    pub async fn look(&self) -> Result<Option<Standing>, LookError> {
        let look = tokio::time::timeout(PATIENCE, look(self.0.pool()));
        Ok(look.await.map_err(|_| LookError::Silent)??)
    }
}

async fn look(pool: &PgPool) -> Result<Option<Standing>, sqlx::Error> {
    if !sqlx::query_scalar::<_, bool>(TABLES).fetch_one(pool).await? {
        return Ok(None);
    }
    let look = sqlx::query_as::<_, Found>(LOOK).bind(MOST).bind(RELAY_NAME);
    let (waiting, oldest, refused, relay, inbox, inbox_oldest) = look.fetch_one(pool).await?;
    let count = |count: i64| u64::try_from(count).unwrap_or(0);
    // A clock that was set back gives no negative age.
    let age = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    Ok(Some(Standing {
        waiting: count(waiting),
        oldest: oldest.map(age),
        refused: count(refused),
        relay,
        inbox: inbox.map(count),
        inbox_oldest: inbox_oldest.map(age),
    }))
}
