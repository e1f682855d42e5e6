//! A cluster of its own for each test, with the tables of gristmill and one of a shop.

use gristmill_handler::{Answer, Cancellation, Delivery, Registry, Started};
use gristmill_job::{ContentType, JobLimits, Key, NewJob, Place, QueueName, UnixMillis};
use gristmill_postgres::{Database, migrate};
use gristmill_testkit::{Error, postgres::Postgres};
use std::future::Future;

pub(crate) struct World {
    pub(crate) postgres: Postgres,
    pub(crate) database: Database,
}

impl World {
    /// Rows of the inbox as `job outcome`, sorted.
    pub(crate) fn inbox(&self) -> Vec<String> {
        let sql = "select job_id || ' ' || outcome from gristmill.inbox order by 1";
        self.ask(sql).lines().map(str::to_owned).collect()
    }

    /// `sku version cents`, sorted.
    pub(crate) fn products(&self) -> Vec<String> {
        let sql = "select sku || ' ' || version || ' ' || cents from product order by 1";
        self.ask(sql).lines().map(str::to_owned).collect()
    }

    pub(crate) fn ask(&self, sql: &str) -> String {
        self.postgres.ask(sql).unwrap()
    }
}

/// Runs a test on a cluster; without Postgres it says so and passes nothing off.
pub(crate) fn on_postgres<F: Future<Output = ()>>(test: impl FnOnce(World) -> F) {
    let postgres = match Postgres::start() {
        Ok(postgres) => postgres,
        Err(error @ Error::MissingServer { .. }) => return eprintln!("SKIPPED: {error}"),
        Err(error) => panic!("{error}"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::new(&postgres.url()).unwrap();
        migrate(database.pool()).await.unwrap();
        postgres.ask("create table product (sku text primary key, version bigint, cents bigint)").unwrap();
        test(World { postgres, database }).await;
    });
}

/// A delivery of a job that sets a price.
pub(crate) fn delivery(id: &str, sku: &str, version: u64, cents: i64) -> Delivery {
    let payload = serde_json::to_vec(&cents).unwrap();
    let job = NewJob::from_bytes("price", sku, payload, ContentType::Json).unwrap();
    let job = job.with_id(id).unwrap().with_version(version);
    let encoded = job.encode(UnixMillis(1), JobLimits::default()).unwrap();
    Delivery {
        id: encoded.id,
        key: Key::new(sku).unwrap(),
        envelope: encoded.envelope,
        place: Place::ZERO,
        attempt: 1,
        recovered: false,
        reconcile: false,
        cancellation: Cancellation::new(),
        queue: QueueName::new("prices").unwrap(),
        trace: None,
    }
}

pub(crate) async fn run(registry: &Registry, delivery: Delivery) -> Answer {
    match registry.start(delivery, usize::MAX) {
        Started::Run { future, .. } => future.await,
        refused => panic!("{refused:?}"),
    }
}

/// `done`, `duplicate`, `stale`, or the class and text of an error.
pub(crate) fn word(answer: Answer) -> String {
    match answer {
        Answer::Done(effects) => {
            assert!(effects.is_empty());
            "done".into()
        }
        Answer::Duplicate => "duplicate".into(),
        Answer::Stale(_) => "stale".into(),
        Answer::Failed(failure) => format!("{}: {}", failure.class.as_str(), failure.chain.join(": ")),
        Answer::Snoozed(_) => "snoozed".into(),
        Answer::Discarded(why) => format!("discarded: {why}"),
        other => format!("{other:?}"),
    }
}
