//! The oldest rows of a lane. A table that is not migrated yet has fewer columns, and its rows are relayed all the same.

use super::row::{Columns, Row};
use futures_util::TryStreamExt;
use sqlx::{Postgres, Transaction};
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows of one transaction, at most.
const BATCH: i64 = 200;
/// Bytes of payloads of one transaction, after which it takes no more rows.
const BATCH_BYTES: usize = 8 << 20;

/// Its text is one of two, which differ in how they read when a job expires.
macro_rules! read {
    ($expiry:literal) => {
        concat!(
            "select seq, id, kind, key, version, payload::text, payload_msgpack, headers::text, max_attempts,
                ceil(extract(epoch from due_at) * 1000)::bigint, delay_ms, ",
            $expiry,
            " from gristmill.outbox where queue = $1 and lane = $2 and refused is null order by seq limit $3"
        )
    };
}

/// In a statement after the lock's, so that it sees what the relay before has deleted. A job is ready when it is enqueued, now,
/// or when it is due; what remains from there until it expires is the difference of two times of this server.
const READ: &str = read!(
    "coalesce(expires_in_ms, ceil(extract(epoch from expires_at
         - greatest(due_at, clock_timestamp() + coalesce(delay_ms, 0) * interval '1 ms')) * 1000)::bigint)"
);
/// Before migration 3.
const READ_BEFORE: &str = read!("null::bigint");
const MIGRATED: &str = "select exists (select from pg_attribute
     where attrelid = 'gristmill.outbox'::regclass and attname = 'expires_in_ms' and not attisdropped)";

#[derive(Debug, Default)]
pub(super) struct Reader {
    /// Whether the table was seen with its columns of migration 3.
    migrated: AtomicBool,
}

impl Reader {
    /// As many as one transaction takes, and whether there may be more.
    pub(super) async fn read(
        &self,
        transaction: &mut Transaction<'static, Postgres>,
        queue: &str,
        lane: i16,
    ) -> sqlx::Result<(Vec<Row>, bool)> {
        if !self.migrated.load(Ordering::Relaxed) {
            let read = read(transaction, READ_BEFORE, queue, lane).await?;
            // Having read keeps the table as it is until this transaction ends, so no row with an expiry was read without it.
            if !sqlx::query_scalar(MIGRATED).fetch_one(&mut **transaction).await? {
                return Ok(read);
            }
            self.migrated.store(true, Ordering::Relaxed);
        }
        read(transaction, READ, queue, lane).await
    }
}

async fn read(
    transaction: &mut Transaction<'static, Postgres>,
    text: &'static str,
    queue: &str,
    lane: i16,
) -> sqlx::Result<(Vec<Row>, bool)> {
    let query = sqlx::query_as::<_, Columns>(text).bind(queue).bind(lane).bind(BATCH);
    let mut found = query.fetch(&mut **transaction);
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while let Some(columns) = found.try_next().await? {
        let row = Row::from(columns);
        bytes += row.payload_bytes();
        rows.push(row);
        if bytes >= BATCH_BYTES {
            return Ok((rows, true));
        }
    }
    let more = rows.len() >= BATCH as usize;
    Ok((rows, more))
}
