//! The example `shop` as processes, between a Postgres and a Redis of its own, with a way to stop one job at one step.
//!
//! Steps inside Postgres wait for an advisory lock that the test holds; steps at Redis are held in a proxy.

use gristmill_broker::{Broker, Connection, QueueDefinition, RedisConfig};
use gristmill_job::{ContentType, NewJob, QueueName};
use gristmill_postgres::sqlx::{self, Connection as _, PgConnection};
use gristmill_testkit::postgres::Postgres;
use gristmill_testkit::process::Process;
use gristmill_testkit::proxy::{Fault, HeldReply, HeldRequest, Proxy};
use gristmill_testkit::server::{Appendonly, Server, ServerOptions};
use gristmill_testkit::{Error, eventually};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::runtime::Runtime;

const SOON: Duration = Duration::from_secs(60);

const TABLES: &str = "
    create table product (sku text primary key, version bigint, cents bigint, stock bigint);
    create table label (sku text, text text);
    create function shop_step(step text, job text) returns void language sql as
      $$ select pg_advisory_xact_lock_shared(hashtext(step || ' ' || job)) $$;
    create function on_inbox() returns trigger language plpgsql as $$ begin
      perform shop_step(tg_argv[0], new.job_id); return new; end $$;
    create function on_outbox() returns trigger language plpgsql as $$ begin
      perform shop_step(tg_argv[0], replace(old.id, 'label of ', '')); return old; end $$;
    create trigger claimed before insert on gristmill.inbox
      for each row execute function on_inbox('Claimed');
    create constraint trigger in_commit after insert on gristmill.inbox deferrable initially deferred
      for each row execute function on_inbox('InCommit');
    create constraint trigger deleted after delete on gristmill.outbox deferrable initially deferred
      for each row execute function on_outbox('Deleted')";

/// Where a job stands when it is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Before its inbox row.
    Claimed,
    InboxWritten,
    Written,
    /// Its commit is under way.
    InCommit,
    /// Its settle is on its way to Redis.
    Committed,
    /// The answer of its settle is on its way.
    Settled,
    /// Its outbox row is read, the enqueue on its way.
    Read,
    /// The answer of the enqueue is on its way.
    Enqueued,
    /// Its outbox row is deleted, the commit under way.
    Deleted,
}

pub(crate) enum Hold {
    /// A step of this name, and of its job, in Postgres.
    Lock(PgConnection),
    Request(HeldRequest),
    Reply(HeldReply),
    Lost(Fault),
}

/// Dropped in this order: the processes first.
pub(crate) struct Shop {
    node: Process,
    frozen: Vec<Process>,
    idle_limit_ms: u64,
    relay: Process,
    node_proxy: Proxy,
    postgres_proxy: Proxy,
    relay_proxy: Proxy,
    redis: Server,
    postgres: Postgres,
    runtime: Runtime,
    broker: Broker,
}

/// Cargo builds examples beside the tests, but tells nobody where.
fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.parent().and_then(Path::parent).unwrap().join("examples/shop");
    assert!(
        path.is_file(),
        "{} is not built: `cargo build -p gristmill-postgres --examples`",
        path.display()
    );
    path
}

fn start(role: &str, redis: &str, postgres: &str, idle_limit_ms: u64) -> Process {
    let idle = idle_limit_ms.to_string();
    let arguments = [role, "--redis", redis, "--postgres", postgres, "--steps", "--idle-limit-ms", &idle];
    Process::spawn(program(), arguments, [("RUST_BACKTRACE", "0")]).unwrap()
}

fn ready(process: &Process) {
    process.wait_line(|line| line.text == "ready", SOON).unwrap();
}

impl Shop {
    pub(crate) fn open() -> Option<Self> {
        Self::open_with(60_000)
    }

    /// With another limit for idle transactions.
    pub(crate) fn open_with(idle_limit_ms: u64) -> Option<Self> {
        let postgres = match Postgres::start() {
            Ok(postgres) => postgres,
            Err(error @ Error::MissingServer { .. }) => {
                eprintln!("SKIPPED: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let redis = Server::start(ServerOptions::new().appendonly(Appendonly::Always)).unwrap();
        let (node_proxy, relay_proxy) =
            (Proxy::start(redis.port()).unwrap(), Proxy::start(redis.port()).unwrap());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let broker = runtime.block_on(async { Broker::connect(RedisConfig::new(redis.url())) });
        let postgres_proxy = Proxy::start(postgres.port()).unwrap();
        let node = start(
            "node",
            &redis.url_at(node_proxy.port()),
            &postgres.url_at(postgres_proxy.port()),
            idle_limit_ms,
        );
        ready(&node);
        postgres.ask(TABLES).unwrap();
        let relay = start("relay", &redis.url_at(relay_proxy.port()), &postgres.url(), idle_limit_ms);
        ready(&relay);
        Some(Self {
            node,
            frozen: Vec::new(),
            idle_limit_ms,
            relay,
            node_proxy,
            postgres_proxy,
            relay_proxy,
            redis,
            postgres,
            runtime,
            broker,
        })
    }

    /// Before the job is enqueued.
    pub(crate) fn hold(&self, step: Step, job: &str, lost: bool) -> Hold {
        let seen = format!(":seen:{job}");
        let label = format!(":seen:label of {job}");
        match step {
            Step::Claimed | Step::InboxWritten | Step::Written | Step::InCommit | Step::Deleted => {
                let name = match step {
                    Step::InboxWritten => "inbox written".to_owned(),
                    Step::Written => "written".to_owned(),
                    other => format!("{other:?}"),
                };
                Hold::Lock(self.runtime.block_on(async {
                    let mut connection = PgConnection::connect(&self.postgres.url()).await.unwrap();
                    let lock = sqlx::query("select pg_advisory_lock(hashtext($1 || ' ' || $2))");
                    lock.bind(name).bind(job).execute(&mut connection).await.unwrap();
                    connection
                }))
            }
            Step::Committed => Hold::Request(self.node_proxy.hold_next_request(seen)),
            Step::Settled if lost => Hold::Lost(self.node_proxy.cut_after_next_request(seen)),
            Step::Settled => Hold::Reply(self.node_proxy.hold_next_reply(seen)),
            Step::Read => Hold::Request(self.relay_proxy.hold_next_request(label)),
            Step::Enqueued if lost => Hold::Lost(self.relay_proxy.cut_after_next_request(label)),
            Step::Enqueued => Hold::Reply(self.relay_proxy.hold_next_reply(label)),
        }
    }

    pub(crate) fn wait_held(&self, hold: &Hold) {
        match hold {
            Hold::Lock(_) => {
                let waits = "select count(*) > 0 from pg_locks where locktype = 'advisory' and not granted";
                eventually(SOON, "a job that is held in Postgres", || {
                    self.postgres.ask(waits).is_ok_and(|waits| waits == "t").then_some(())
                });
            }
            Hold::Request(held) => held.wait_held(SOON).unwrap(),
            Hold::Reply(held) => held.wait_held(SOON).unwrap(),
            Hold::Lost(fault) => fault.wait(SOON).unwrap(),
        }
    }

    /// What was held goes on: late, and maybe to nobody.
    pub(crate) fn let_go(&self, hold: Hold) {
        match hold {
            // The end of the session is the end of its locks.
            Hold::Lock(connection) => drop(self.runtime.block_on(connection.close())),
            // Nothing is left of it where its connection is gone.
            Hold::Request(held) => drop(held.release(Duration::from_secs(2))),
            Hold::Reply(held) => held.release(),
            Hold::Lost(_) => {}
        }
    }

    fn start_node(&self) -> Process {
        let (redis, postgres) = (self.node_proxy.port(), self.postgres_proxy.port());
        start("node", &self.redis.url_at(redis), &self.postgres.url_at(postgres), self.idle_limit_ms)
    }

    pub(crate) fn kill_node(&mut self) {
        self.node.kill().unwrap();
        // Not waited for: what the job waits for may have to be let go first.
        self.node = self.start_node();
    }

    /// SIGSTOP; another takes its place.
    pub(crate) fn freeze_node(&mut self) {
        self.node.pause().unwrap();
        let next = self.start_node();
        ready(&next);
        self.frozen.push(std::mem::replace(&mut self.node, next));
    }

    pub(crate) fn thaw(&mut self) {
        for node in &mut self.frozen {
            node.resume().unwrap();
        }
    }

    /// The successor's run waits for the inbox row of the frozen one.
    pub(crate) fn wait_for_rival(&self) {
        let waits = "select count(*) > 0 from pg_stat_activity
             where wait_event_type = 'Lock' and query like 'insert into gristmill.inbox%'";
        eventually(SOON, "a run that waits for the frozen one", || {
            (self.postgres.ask(waits).unwrap() == "t").then_some(())
        });
    }

    /// A commit that is held goes on, takes effect, and its answer is lost.
    pub(crate) fn lose_commit(&self, hold: Hold, job: &str) {
        self.postgres_proxy.hold_replies();
        self.let_go(hold);
        eventually(SOON, "the commit", || self.changes(job).starts_with("1|").then_some(()));
        self.postgres_proxy.cut();
        self.postgres_proxy.release_replies();
    }

    pub(crate) fn kill_relay(&mut self) {
        self.relay.kill().unwrap();
        let redis = self.redis.url_at(self.relay_proxy.port());
        self.relay = start("relay", &redis, &self.postgres.url(), self.idle_limit_ms);
    }

    pub(crate) fn kill_postgres(&mut self) {
        self.postgres.restart().unwrap();
    }

    pub(crate) fn kill_redis(&mut self) {
        self.redis.restart().unwrap();
    }

    pub(crate) fn enqueue(&self, job: &str) {
        let new = NewJob::from_bytes("stock.moved", job, &b"1"[..], ContentType::Json).unwrap();
        let new = new.with_id(job).unwrap();
        self.runtime.block_on(self.broker.enqueue(&QueueName::new("shop").unwrap(), new)).unwrap();
    }

    /// What the job has added to the stock (1), its labels (1), inbox rows (2) and outbox rows (0).
    pub(crate) fn changes(&self, job: &str) -> String {
        let sql = format!(
            "select stock, (select count(*) from label where sku = '{job}'),
             (select count(*) from gristmill.inbox where replace(job_id, '%20', ' ') in ('{job}', 'label of {job}')),
             (select count(*) from gristmill.outbox where key = '{job}') from product where sku = '{job}'"
        );
        self.postgres.ask(&sql).unwrap_or_default()
    }

    pub(crate) fn wait_applied(&self, job: &str) {
        let applied = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually(SOON, "the job and its label", || (self.changes(job) == "1|1|2|0").then_some(()));
        }));
        if applied.is_err() {
            let (node, relay) = (self.node.stderr_tail(), self.relay.stderr_tail());
            panic!("{job} stands at {:?}\nnode:\n{node}\nrelay:\n{relay}", self.changes(job));
        }
    }

    pub(crate) fn is_applied_once(&self, job: &str) {
        assert_eq!(self.changes(job), "1|1|2|0", "{job}: stock, labels, inbox rows, outbox rows");
    }

    /// Nothing waits in either queue.
    pub(crate) fn wait_quiet(&self) {
        let config = RedisConfig::new(self.redis.url());
        eventually(SOON, "empty queues", || {
            self.runtime.block_on(async {
                let connection = Connection::open(&config, 1).await.ok()?;
                for queue in ["shop", "labels"] {
                    let queue = QueueDefinition::new(QueueName::new(queue).unwrap(), 4);
                    let views = connection.partitions(&queue).await.ok()?;
                    assert_eq!(views.iter().map(|view| view.dead).sum::<u64>(), 0, "dead letters");
                    if views.iter().any(|view| view.ready > 0) {
                        return None;
                    }
                }
                Some(())
            })
        });
    }
}
