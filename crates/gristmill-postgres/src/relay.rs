//! The relay: committed outbox rows become jobs, in the order of each key, and leave the outbox once their jobs are accepted.
//!
//! Rows of a key lie in one lane of their queue. A pass takes each lane that has rows, unless another relay works on it:
//!
//! ```text
//!   begin ─▶ lane's advisory lock ─▶ read, oldest first ─▶ enqueue in Redis ─▶ delete what was accepted ─▶ commit
//! ```
//!
//! Killed anywhere, the transaction is rolled back and the lock is free; what had been enqueued is enqueued again under
//! its id, which its queue absorbs. Two relays that work on one lane at once (one was stopped, its connection broke, it
//! goes on) both enqueue in order, so that the first arrivals are in order too.
//!
//! `reader` reads rows, `row` makes jobs of them.

mod reader;
pub(crate) mod row;

use crate::database::Database;
use crate::inbox::{self, PruneError};
use gristmill_broker::{Broker, EnqueueError};
use gristmill_job::{JobLimits, NewJob, QueueName, UnixMillis};
use reader::Reader;
use row::Row;
use sqlx::postgres::{PgListener, PgPool, PgPoolOptions};
use sqlx::{Postgres, Transaction};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// The channel on which the outbox's trigger rings.
const CHANNEL: &str = "gristmill_outbox";
/// Between two tries after an error; up to half more by the dice, so that relays do not march in step.
const PAUSE: Duration = Duration::from_secs(1);
/// Between two looks for rows of the inbox that are old enough.
const PRUNE_EVERY: Duration = Duration::from_secs(60);

/// Each lane with rows once, by jumps over the index: as quick with a million rows as with one each.
const LANES: &str = "with recursive lane as (
       (select queue, lane from gristmill.outbox where refused is null order by queue, lane limit 1)
     union all
       select next.queue, next.lane from lane, lateral (
         select queue, lane from gristmill.outbox o
         where refused is null and (o.queue, o.lane) > (lane.queue, lane.lane)
         order by queue, lane limit 1) next)
     select queue, lane from lane";
const LOCK: &str = "select pg_try_advisory_xact_lock(hashtext('gristmill.outbox:' || $1), $2)";
const DELETE: &str = "delete from gristmill.outbox where seq = any($1)";
const REFUSE: &str = "update gristmill.outbox set refused = $2 where seq = $1";

/// What a relay has done since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RelayCounts {
    /// Rows whose jobs were accepted.
    pub relayed: u64,
    /// Rows of which no job can be made; they say why in their column `refused`.
    pub refused: u64,
    /// Passes that ended with an error, after which a pause was made.
    pub errors: u64,
    /// Inbox rows that were removed by age.
    pub pruned: u64,
}

#[derive(Debug, Default)]
struct Counters {
    relayed: AtomicU64,
    refused: AtomicU64,
    errors: AtomicU64,
    pruned: AtomicU64,
}

/// Enqueues what is written to the outbox. Any number may run, in nodes or apart; each has two connections of its own, and
/// none of the handlers'.
#[derive(Debug, Clone)]
pub struct Relay {
    database: Database,
    broker: Broker,
    poll: Duration,
    inbox_age: Option<Duration>,
    limits: JobLimits,
    counters: Arc<Counters>,
    reader: Arc<Reader>,
}

/// Why a pass ended.
#[derive(Debug, thiserror::Error)]
enum PassError {
    #[error("Postgres: {0}")]
    Postgres(#[from] sqlx::Error),
    #[error("Redis: {0}")]
    Enqueue(#[from] EnqueueError),
    #[error(transparent)]
    Prune(#[from] PruneError),
}

impl Relay {
    /// A relay from this database to this broker.
    #[must_use]
    pub fn new(database: &Database, broker: Broker) -> Self {
        Self {
            database: database.clone(),
            broker,
            poll: Duration::from_secs(1),
            inbox_age: None,
            limits: JobLimits::default(),
            counters: Arc::default(),
            reader: Arc::default(),
        }
    }

    /// How often it looks without being rung for (1 s): the longest latency where the trigger is switched off, or its
    /// connection broke unnoticed.
    #[must_use]
    pub fn poll_every(self, poll: Duration) -> Self {
        Self { poll, ..self }
    }

    /// Removes inbox rows of this age too; see [`inbox`] for how long they are needed.
    ///
    /// # Errors
    /// [`PruneError::TooYoung`] below [`inbox::SHORTEST_AGE`].
    pub fn prune_inbox_after(self, age: Duration) -> Result<Self, PruneError> {
        match age < inbox::SHORTEST_AGE {
            true => Err(PruneError::TooYoung(age)),
            false => Ok(Self { inbox_age: Some(age), ..self }),
        }
    }

    /// What it and its clones have done so far.
    #[must_use]
    pub fn counts(&self) -> RelayCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RelayCounts {
            relayed: read(&self.counters.relayed),
            refused: read(&self.counters.refused),
            errors: read(&self.counters.errors),
            pruned: read(&self.counters.pruned),
        }
    }

    /// Runs until `stop`. Errors of either side are logged and tried again for ever. Dropping the future stops it as well as
    /// anything: it is built to be killed.
    pub async fn run(&self, stop: impl Future<Output = ()>) {
        tokio::select! {
            () = stop => {}
            () = self.forever() => {}
        }
    }

    async fn forever(&self) {
        loop {
            let Err(error) = self.on_connections().await;
            self.counters.errors.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(%error, "the outbox relay starts again after a pause");
            tokio::time::sleep(PAUSE.mul_f64(1.0 + rand::random::<f64>() / 2.0)).await;
        }
    }

    /// As long as its two connections live.
    async fn on_connections(&self) -> Result<std::convert::Infallible, PassError> {
        let pool = PgPoolOptions::new()
            .max_connections(2)
            .acquire_timeout(Duration::from_secs(5))
            .connect_with(self.database.relay_options())
            .await?;
        let mut bell = PgListener::connect_with(&pool).await?;
        bell.listen(CHANNEL).await?;
        let mut pruned_at: Option<Instant> = None;
        loop {
            self.pass(&pool).await?;
            if let Some(age) = self.inbox_age
                && pruned_at.is_none_or(|at| at.elapsed() >= PRUNE_EVERY)
            {
                let gone = inbox::prune(&pool, age).await?;
                self.counters.pruned.fetch_add(gone, Ordering::Relaxed);
                pruned_at = Some(Instant::now());
            }
            // Everything that rang before this pass was committed before it and has been seen.
            if let Ok(rung) = tokio::time::timeout(self.poll, bell.try_recv()).await {
                // None: the connection broke and is there again; whatever rang meanwhile, the pass will see.
                rung?;
                while bell.next_buffered().is_some() {}
            }
        }
    }

    /// Every lane that has rows, once. Of the first queue that fails for a reason of its own the others do not suffer.
    async fn pass(&self, pool: &PgPool) -> Result<(), PassError> {
        let lanes: Vec<(String, i16)> = sqlx::query_as(LANES).fetch_all(pool).await?;
        let mut failed: Option<EnqueueError> = None;
        for (queue, lane) in lanes {
            match self.lane(pool, &queue, lane).await {
                Err(PassError::Enqueue(error)) if !matches!(error, EnqueueError::Call(_)) => {
                    failed = Some(error)
                }
                other => other?,
            }
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// One lane, until it is empty, stuck, or another relay has it.
    async fn lane(&self, pool: &PgPool, queue: &str, lane: i16) -> Result<(), PassError> {
        // The table refuses any other name.
        let Ok(name) = QueueName::new(queue) else { return Ok(()) };
        loop {
            let mut transaction = pool.begin().await?;
            let lock = sqlx::query_scalar(LOCK).bind(queue).bind(i32::from(lane));
            if !lock.fetch_one(&mut *transaction).await? {
                return Ok(transaction.rollback().await?);
            }
            let (rows, more) = self.reader.read(&mut transaction, queue, lane).await?;
            let mut jobs = Vec::with_capacity(rows.len());
            for row in &rows {
                match self.job(row) {
                    Ok(job) => jobs.push((row.seq, job)),
                    Err(why) => self.refuse(&mut transaction, row, queue, &why).await?,
                }
            }
            let (accepted, failed) = self.enqueue(&name, jobs).await;
            sqlx::query(DELETE).bind(&accepted).execute(&mut *transaction).await?;
            transaction.commit().await?;
            self.counters.relayed.fetch_add(accepted.len() as u64, Ordering::Relaxed);
            match failed {
                Some(error) => return Err(error.into()),
                None if more => {}
                None => return Ok(()),
            }
        }
    }

    /// The job of a row, if it can be enqueued at all.
    fn job(&self, row: &Row) -> Result<NewJob, String> {
        let job = row.job()?;
        let now = UnixMillis::from_system(SystemTime::now());
        job.encode(now, self.limits).map_err(|error| error.to_string())?;
        Ok(job)
    }

    async fn refuse(
        &self,
        transaction: &mut Transaction<'static, Postgres>,
        row: &Row,
        queue: &str,
        why: &str,
    ) -> Result<(), PassError> {
        tracing::warn!(
            queue,
            id = row.id,
            why,
            "no job can be made of an outbox row; it stays, marked as refused"
        );
        sqlx::query(REFUSE).bind(row.seq).bind(why).execute(&mut **transaction).await?;
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Which were accepted, and why the rest was not. A job that is absorbed as a duplicate was accepted before.
    async fn enqueue(&self, queue: &QueueName, jobs: Vec<(i64, NewJob)>) -> (Vec<i64>, Option<EnqueueError>) {
        if jobs.is_empty() {
            return (Vec::new(), None);
        }
        let (seqs, jobs): (Vec<i64>, Vec<NewJob>) = jobs.into_iter().unzip();
        match self.broker.enqueue_all(queue, &jobs).await {
            Ok(_) => (seqs, None),
            // Of a call that failed it is not known which were accepted: one partition may be full, the others not.
            Err(EnqueueError::Full { .. }) => self.one_by_one(queue, seqs, jobs).await,
            Err(error) => (Vec::new(), Some(error)),
        }
    }

    /// In order; after a job that was not accepted, none of its key.
    async fn one_by_one(
        &self,
        queue: &QueueName,
        seqs: Vec<i64>,
        jobs: Vec<NewJob>,
    ) -> (Vec<i64>, Option<EnqueueError>) {
        let (mut accepted, mut stuck, mut failed) = (Vec::new(), HashSet::new(), None);
        for (seq, job) in seqs.into_iter().zip(jobs) {
            let key = job.key.clone();
            if stuck.contains(&key) {
                continue;
            }
            match self.broker.enqueue(queue, job).await {
                Ok(_) => accepted.push(seq),
                Err(error @ EnqueueError::Full { .. }) => {
                    stuck.insert(key);
                    failed = Some(error);
                }
                Err(error) => return (accepted, Some(error)),
            }
        }
        (accepted, failed)
    }
}
