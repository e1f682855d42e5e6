//! Jobs whose effect is in Postgres: the cluster, the statements, the bare loop, and the handler that does the same.

use crate::cost;
use crate::failure::{Failure, Outcome, ensure};
use crate::handlers::Seen;
use crate::jobs::{KIND, Workload};
use crate::rate::Samples;
use gristmill_handler::{HandlerError, Raw, Registry, State};
use gristmill_job::JobId;
use gristmill_postgres::{Database, Tx, migrate, sqlx};
use gristmill_testkit::Deadline;
use gristmill_testkit::postgres::Postgres;
use sqlx::{Connection, PgConnection};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// How long connections may take to close.
const CLOSED_WITHIN: Duration = Duration::from_secs(30);

/// `changes` tells afterwards whether every effect was applied once.
const TABLE: &str = "create table entity (key text primary key, version bigint, body bytea, changes bigint not null default 1)";
const PUT: &str = "insert into entity (key, version, body) values ($1, $2, $3)
     on conflict (key) do update
     set version = excluded.version, body = excluded.body, changes = entity.changes + 1
     where entity.version < excluded.version";
const INBOX: &str =
    "insert into gristmill.inbox (queue, job_id, kind) values ($1, $2, $3) on conflict do nothing";

/// A cluster that writes through to the disk, with the tables of both sides.
pub(crate) async fn start(slots: usize) -> Outcome<Postgres> {
    let connections = format!("max_connections={}", 2 * slots + 20);
    let postgres =
        Postgres::start_with(&["fsync=on", "shared_buffers=128MB", "autovacuum=off", &connections])?;
    postgres.ask(TABLE)?;
    let database = Database::new(&postgres.url())?;
    migrate(database.pool()).await?;
    database.pool().close().await;
    Ok(postgres)
}

/// Before a side: what the other left behind is gone and on the disk, so that no side pays for it.
pub(crate) fn clear(postgres: &Postgres) -> Outcome<()> {
    postgres.ask("truncate entity, gristmill.inbox")?;
    postgres.ask("checkpoint")?;
    Ok(())
}

/// After a side: an error unless every effect was applied once, and the newest version of every key is there.
pub(crate) fn check(postgres: &Postgres, workload: &Workload, jobs: usize) -> Outcome<()> {
    let keys = workload.keys.min(jobs);
    let newest = (jobs - keys..jobs).map(|n| workload.key_and_version(n).1).sum::<u64>();
    let due = format!("{jobs}|{keys}|{jobs}|{newest}");
    let found = postgres.ask(
        "select (select count(*) from gristmill.inbox), count(*), sum(changes), sum(version) from entity",
    )?;
    ensure(found == due, || format!("inbox rows, keys, changes, versions: {due} were due, found {found}"))
}

/// CPU time of the cluster so far, once no connection is left but the one that asks: each counts when it is closed.
pub(crate) fn cpu(postgres: &Postgres) -> Outcome<Duration> {
    wait_closed(postgres)?;
    let pid = postgres.pid().ok_or_else(|| Failure::Broken("Postgres does not run".into()))?;
    cost::family_cpu(&pid.to_string())
}

fn wait_closed(postgres: &Postgres) -> Outcome<()> {
    let connected = "select count(*) from pg_stat_activity where backend_type = 'client backend'";
    let look = || match postgres.ask(connected) {
        Ok(others) if others != "1" => None,
        done => Some(done),
    };
    Deadline::after(CLOSED_WITHIN).poll("connections to be closed", look)??;
    Ok(())
}

/// The bare loop: as many connections as the node has, each with keys of its own, which keeps their order.
pub(crate) async fn bare(url: &str, workload: &Workload, jobs: usize, slots: usize) -> Outcome<Samples> {
    let mut connections = Vec::new();
    for _ in 0..slots {
        connections.push(PgConnection::connect(url).await?);
    }
    let samples = Arc::new(Mutex::new(Samples::start()));
    let mut lanes = JoinSet::new();
    for (lane, mut connection) in connections.into_iter().enumerate() {
        let (workload, samples) = (workload.clone(), Arc::clone(&samples));
        lanes.spawn(async move {
            for n in (0..jobs).filter(|n| n % workload.keys % slots == lane) {
                one(&mut connection, &workload, n).await?;
                samples.lock().unwrap_or_else(PoisonError::into_inner).more(1);
            }
            connection.close().await?;
            Ok::<(), Failure>(())
        });
    }
    while let Some(lane) = lanes.join_next().await {
        lane.map_err(|error| Failure::Broken(error.to_string()))??;
    }
    let samples = Arc::into_inner(samples).ok_or_else(|| Failure::Broken("a lane still runs".into()))?;
    Ok(samples.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// What a person would write who wants an effect once.
async fn one(connection: &mut PgConnection, workload: &Workload, n: usize) -> Outcome<()> {
    let (key, version) = workload.key_and_version(n);
    let mut transaction = connection.begin().await?;
    let inbox = sqlx::query(INBOX).bind(KIND).bind(JobId::generate().to_string()).bind(KIND);
    let noted = inbox.execute(&mut *transaction).await?.rows_affected();
    let put = sqlx::query(PUT).bind(key).bind(version as i64).bind(&workload.payload[..]);
    let changed = put.execute(&mut *transaction).await?.rows_affected();
    ensure((noted, changed) == (1, 1), || format!("job {n} noted {noted} rows and changed {changed}"))?;
    Ok(transaction.commit().await?)
}

async fn put(body: Raw, mut tx: Tx, seen: State<Seen>) -> Result<(), HandlerError> {
    let (key, version) = (tx.key_text()?.to_owned(), tx.version()?);
    tx.newer(sqlx::query(PUT).bind(key).bind(version).bind(&body.bytes[..])).await?;
    seen.ran();
    Ok(())
}

/// The handler that does the same, in the database at `url`.
pub(crate) fn handled(registry: Registry, url: &str, slots: usize) -> Outcome<Registry> {
    let connections = u32::try_from(slots).unwrap_or(u32::MAX);
    let database = Database::new(url)?.max_connections(connections);
    Ok(registry.state(database).kind(KIND, put))
}
