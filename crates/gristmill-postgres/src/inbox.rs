//! The inbox is pruned by age. A row is needed as long as its job may come again:
//!
//! * the node was killed after the commit and before the settle: until some node serves the partition again;
//! * the commit took effect and its answer was lost, and the attempts were used up before the database could be reached:
//!   until the dead letter is replayed or discarded;
//! * a producer enqueues the id once more, later than Redis remembers it (`seen.window_ms` after the verdict);
//! * Redis is restored from an older state: as long ago as that state.
//!
//! So the age is more than the longest of: the longest outage that you want to survive, the age at which dead letters
//! are discarded, the time for which producers repeat themselves, the age of the oldest backup of Redis that you would
//! restore. [`SHORTEST_AGE`] is a floor under all of it, not a recommendation; a month is a good age.

use sqlx::PgPool;
use std::time::Duration;

/// No row is removed that is younger: a day, which is how long Redis remembers an id by default.
pub const SHORTEST_AGE: Duration = Duration::from_secs(24 * 3600);

/// Rows of one statement, so that no transaction grows long.
const SLICE: i64 = 1000;

const PRUNE: &str = "delete from gristmill.inbox where ctid = any(array(
     select ctid from gristmill.inbox where at < now() - make_interval(secs => $1) order by at limit $2
     for update skip locked))";

/// Why the inbox was not pruned.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    /// An age under the floor.
    #[error(
        "inbox rows are kept for a day at least, got {} s: a row that is gone too early lets its job have its effect twice",
        .0.as_secs()
    )]
    TooYoung(Duration),
    /// Postgres refused, or did not answer.
    #[error(transparent)]
    Postgres(#[from] sqlx::Error),
}

/// Removes the rows that are older than `age`, and tells how many. Safe to be done by several at once.
///
/// # Errors
/// [`PruneError::TooYoung`] below [`SHORTEST_AGE`]; an error of Postgres, after which some may be gone.
pub async fn prune(pool: &PgPool, age: Duration) -> Result<u64, PruneError> {
    if age < SHORTEST_AGE {
        return Err(PruneError::TooYoung(age));
    }
    let mut gone = 0;
    loop {
        let delete = sqlx::query(PRUNE).bind(age.as_secs_f64()).bind(SLICE);
        let slice = delete.execute(pool).await?.rows_affected();
        gone += slice;
        if slice < SLICE as u64 {
            return Ok(gone);
        }
    }
}
