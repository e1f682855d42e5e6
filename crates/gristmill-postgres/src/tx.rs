//! The transaction as an argument of a handler.
//!
//! ```text
//!   open:  begin ─▶ inbox row ──(there already)──▶ duplicate, the handler does not run
//!                       │
//!                    handler ──(error, stopped, dropped)──▶ rolled back
//!                       │ Ok
//!   close: still this transaction, still good, not stopped? ─▶ commit ─▶ settled in Redis
//! ```
//!
//! The inbox row comes first: a second run of the job, on whatever node, waits for it, and either finds it committed or
//! runs when the first was rolled back. So of two runs one commits, whatever becomes of leases meanwhile.

use crate::classes::{classify, is_lock_wait};
use crate::database::Database;
use crate::held::Held;
use gristmill_handler::{
    Answer, Close, Closing, Context, FromDelivery, HandlerError, Needs, Scope, Shared, Stage,
};
use gristmill_job::{ContentType, Due, JobId, NewJob, QueueName, UnixMillis};
use sqlx::postgres::{PgConnection, PgPool, PgQueryResult};
use sqlx::{Execute, Executor, Postgres};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// Between two looks whether an earlier run of the same job is over.
const PREDECESSOR_WAIT: Duration = Duration::from_secs(1);

const INBOX: &str = "insert into gristmill.inbox (queue, job_id, kind) values ($1, $2, $3)
     on conflict do nothing returning pg_current_xact_id()::text";
const INBOX_STALE: &str =
    "insert into gristmill.inbox (queue, job_id, kind, outcome) values ($1, $2, $3, 'stale')
     on conflict do nothing";
const OUTBOX: &str = "insert into gristmill.outbox
     (id, queue, kind, key, version, payload, payload_msgpack, headers, max_attempts, due_at, delay_ms)
     values ($1, $2, $3, $4, $5, $6::json, $7, $8::json, $9, to_timestamp($10::bigint::double precision / 1000), $11)";
/// Of a job that expires; the other serves tables before migration 3, too.
const OUTBOX_EXPIRING: &str = "insert into gristmill.outbox
     (id, queue, kind, key, version, payload, payload_msgpack, headers, max_attempts, due_at, delay_ms, expires_in_ms)
     values ($1, $2, $3, $4, $5, $6::json, $7, $8::json, $9, to_timestamp($10::bigint::double precision / 1000), $11, $12)";
/// An error where the transaction has failed, another answer where it is another transaction.
const SAME: &str = "select pg_current_xact_id_if_assigned()::text";

/// The transaction of one run: an argument of a handler, and the connection to work on (`&mut *tx`).
///
/// It commits when the handler answers `Ok`, together with the inbox row that makes a second delivery of the job a no-op;
/// an error rolls all of it back. Errors of sqlx get their class by themselves ([`classify`]). The handler answers without
/// `Effects`: what Redis would write with the acknowledgement would be lost with it, after the commit. Jobs that follow
/// go through [`Tx::emit`].
pub struct Tx {
    transaction: OwnedMutexGuard<Held>,
    context: Context,
}

impl Tx {
    /// Executes a statement that changes a row only where the job's version is strictly newer. If it changes none, the run ends
    /// as `stale`: whatever else it wrote is rolled back, the job is done without effect, and counted.
    ///
    /// # Errors
    /// An error of sqlx, with its class; or the end as `stale`, to be handed on with `?`.
    pub async fn newer<'q, E>(&mut self, statement: E) -> Result<PgQueryResult, HandlerError>
    where
        E: Execute<'q, Postgres> + 'q,
    {
        let result = (&mut **self.transaction).execute(statement).await?;
        match result.rows_affected() {
            0 => Err(HandlerError::stale(format!("version {} is not newer", self.context.version()))),
            _ => Ok(result),
        }
    }

    /// The job's version as Postgres has numbers.
    ///
    /// # Errors
    /// A permanent error beyond 2^63 - 1.
    pub fn version(&self) -> Result<i64, HandlerError> {
        let version = self.context.version();
        i64::try_from(version).map_err(|_| {
            HandlerError::permanent(format!("version {version} is beyond what a bigint of Postgres can hold"))
        })
    }

    /// The job's key as text.
    ///
    /// # Errors
    /// A permanent error where it is none.
    pub fn key_text(&self) -> Result<&str, HandlerError> {
        std::str::from_utf8(self.context.key().as_bytes()).map_err(|_| {
            HandlerError::permanent("the job's key is not text, and Postgres was to have it as text")
        })
    }

    /// Writes an outbox row: the job is enqueued in `queue` once this transaction is committed. Gives its id. One for later
    /// that names no time but a delay counts from when the relay enqueues it.
    ///
    /// # Errors
    /// An error of sqlx; a permanent error for a key that is no text, a version beyond 2^63 - 1, or a due time more than ten
    /// years ahead.
    pub async fn emit(&mut self, queue: &QueueName, job: NewJob) -> Result<JobId, HandlerError> {
        let id = job.id.unwrap_or_else(JobId::generate);
        let text = |bytes: &[u8], what: &str| {
            String::from_utf8(bytes.to_vec()).map_err(|_| {
                HandlerError::permanent(format!(
                    "the {what} of an emitted job is not text, as the outbox needs it"
                ))
            })
        };
        let (json, msgpack) = match job.content_type {
            ContentType::Json => (Some(text(&job.payload, "JSON payload")?), None),
            ContentType::MessagePack => (None, Some(job.payload.to_vec())),
        };
        let version = i64::try_from(job.version).map_err(|_| {
            HandlerError::permanent(format!("version {} is beyond what the outbox can hold", job.version))
        })?;
        let headers = match job.headers.is_empty() {
            true => None,
            false => Some(crate::relay::row::headers_text(&job.headers)?),
        };
        let due = job.due.within_bounds(UnixMillis::from_system(SystemTime::now()));
        let ms = |ms: u128| i64::try_from(ms).unwrap_or(i64::MAX);
        let (due_at, delay_ms) = match due.map_err(HandlerError::permanent)? {
            Due::Now => (None, None),
            Due::At(at) => (Some(ms(at.0.into())), None),
            Due::In(delay) => (None, Some(ms(delay.as_nanos().div_ceil(1_000_000)))),
        };
        let attempts = job.limits.max_attempts.map(|attempts| i32::try_from(attempts).unwrap_or(i32::MAX));
        let expires_in = job.limits.expires_in_ms.map(|limit| ms(limit.into()).max(1));
        let insert = sqlx::query(if expires_in.is_some() { OUTBOX_EXPIRING } else { OUTBOX })
            .bind(text(id.as_bytes(), "id")?)
            .bind(queue.as_str().to_owned())
            .bind(job.kind.as_str().to_owned())
            .bind(text(job.key.as_bytes(), "key")?)
            .bind(version)
            .bind(json)
            .bind(msgpack)
            .bind(headers)
            .bind(attempts)
            .bind(due_at)
            .bind(delay_ms);
        let insert = if expires_in.is_some() { insert.bind(expires_in) } else { insert };
        insert.execute(&mut **self.transaction).await?;
        Ok(id)
    }
}

impl Deref for Tx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.transaction
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }
}

impl FromDelivery for Tx {
    fn from_delivery(_: &Context, _: &Shared) -> Result<Self, HandlerError> {
        Err(HandlerError::permanent("a transaction is opened, not made: call `FromDelivery::open`"))
    }

    async fn open(context: &Context, shared: &Shared, scope: &mut Scope) -> Result<Self, HandlerError> {
        let Some(database) = shared.state::<Database>() else {
            return Err(HandlerError::permanent(
                "the handler takes Tx, but no `.state(Database::new(…)?)` was registered",
            ));
        };
        let opened = database.opened();
        let name = Name::of(context);
        let run = async {
            let mut transaction = Held::begin(&opened.spare, &opened.pool, &opened.begin).await?;
            let insert = sqlx::query_scalar(INBOX).bind(&name.queue).bind(&name.job).bind(name.kind);
            let xact: Option<String> = insert.fetch_optional(&mut *transaction).await?;
            Ok::<_, sqlx::Error>((transaction, xact))
        };
        let (transaction, xact) = run.await.map_err(|error| match is_lock_wait(&error) {
            // An earlier run of this job holds it. It is no fault of this one.
            true => HandlerError::snooze(PREDECESSOR_WAIT),
            false => HandlerError::unknown(error).classified_by(classify),
        })?;
        let Some(xact) = xact else {
            transaction.rollback().await;
            return Err(HandlerError::duplicate());
        };
        let transaction = Arc::new(Mutex::new(transaction));
        let held = Arc::clone(&transaction).lock_owned().await;
        let pool = opened.pool.clone();
        scope.leave(End { transaction, xact, name, pool, context: context.clone() });
        Ok(Self { transaction: held, context: context.clone() })
    }

    fn needs(needs: &mut Needs) {
        needs.state::<Database>();
    }
}

/// Under which name a job stands in the inbox.
struct Name {
    queue: String,
    job: String,
    kind: &'static str,
}

impl Name {
    fn of(context: &Context) -> Self {
        let queue = context.queue().as_str().to_owned();
        let job = context.idempotency_key().split_off(queue.len() + 1);
        Self { queue, job, kind: context.kind() }
    }
}

/// The end of a run with a transaction. Dropped, it rolls back.
struct End {
    transaction: Arc<Mutex<Held>>,
    /// The transaction that wrote the inbox row.
    xact: String,
    name: Name,
    pool: PgPool,
    context: Context,
}

impl Close for End {
    fn close(self: Box<Self>, answer: Result<Answer, HandlerError>) -> Closing {
        Box::pin(self.end(answer))
    }
}

impl End {
    async fn end(self, answer: Result<Answer, HandlerError>) -> Result<Answer, HandlerError> {
        let Self { transaction, xact, name, pool, context } = self;
        let answer = answer.map_err(|error| error.classified_by(classify));
        let Some(transaction) = Arc::into_inner(transaction).map(Mutex::into_inner) else {
            // Whoever still has it can only roll back.
            return answer.and_then(|_| {
                Err(HandlerError::permanent(
                    "the handler answered while its transaction was still in use elsewhere (a task it started?), so \
                     nothing was committed; answer when all of its work is done",
                ))
            });
        };
        match answer {
            Ok(Answer::Done(effects)) if effects.is_empty() => {
                commit(transaction, &xact, &context).await?;
                Ok(Answer::Done(effects))
            }
            Ok(Answer::Done(_)) => {
                transaction.rollback().await;
                Err(HandlerError::permanent(
                    "a handler with a transaction has no effects in Redis: a crash after the commit would lose them; emit \
                     jobs with `Tx::emit`",
                ))
            }
            Err(error) if error.is_stale() => {
                transaction.rollback().await;
                let insert = sqlx::query(INBOX_STALE).bind(name.queue).bind(name.job).bind(name.kind);
                insert
                    .execute(&pool)
                    .await
                    .map_err(|error| HandlerError::unknown(error).classified_by(classify))?;
                Err(error)
            }
            other => {
                transaction.rollback().await;
                other
            }
        }
    }
}

async fn commit(mut transaction: Held, xact: &str, context: &Context) -> Result<(), HandlerError> {
    let unknown = |error: sqlx::Error| HandlerError::unknown(error).classified_by(classify);
    // To a transaction that has failed, Postgres answers a commit as if all were well, and rolls back.
    let now: Option<String> = sqlx::query_scalar(SAME).fetch_one(&mut *transaction).await.map_err(unknown)?;
    if now.as_deref() != Some(xact) {
        return Err(HandlerError::permanent(
            "the handler ended its transaction itself (a commit or rollback in its SQL); leave that to the node",
        ));
    }
    if context.stage() == Stage::Hard {
        transaction.rollback().await;
        return Err(HandlerError::transient("the run was stopped before its commit"));
    }
    transaction.commit().await.map_err(unknown)
}
