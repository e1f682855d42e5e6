//! The shop's processes, between a Postgres and a Redis of its own, with a way to stop one job at one step.
//!
//! Steps inside Postgres wait for an advisory lock that the test holds; steps at Redis are held in a proxy.

use gristmill::postgres::sqlx::{self, Connection as _, PgConnection};
use gristmill::{Broker, Connection, ContentType, NewJob, QueueDefinition, QueueName, RedisConfig};
use gristmill_testkit::postgres::Postgres;
use gristmill_testkit::process::{Process, ProcessOptions};
use gristmill_testkit::proxy::{Fault, HeldReply, HeldRequest, Proxy};
use gristmill_testkit::server::{Appendonly, Server, ServerOptions};
use gristmill_testkit::{Error, eventually, python};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::runtime::Runtime;

pub(crate) const SOON: Duration = Duration::from_secs(60);
/// As `shop.toml` has them.
pub(crate) const PARTITIONS: u16 = 8;
const MODULES: &[&str] = &["psycopg2"];

/// Each step of a job asks for a lock of its name, which nobody holds but a test that wants the job to stand there.
const STEPS: &str = "
    create function shop_step(step text, job text) returns void language sql as
      $$ select pg_advisory_xact_lock_shared(hashtext(step || ' ' || job)) $$;
    create function on_inbox() returns trigger language plpgsql as $$ begin
      perform shop_step(tg_argv[0], new.job_id); return new; end $$;
    create function on_outbox() returns trigger language plpgsql as $$ begin
      perform shop_step(tg_argv[0], old.key); return old; end $$;
    create function on_row() returns trigger language plpgsql as $$ begin
      perform shop_step(tg_argv[0], new.sku); return new; end $$;
    create function on_catalogue_inbox() returns trigger language plpgsql as $$ begin
      perform shop_step(tg_argv[0], regexp_replace(new.idempotency_key, '^.*%20', '')); return new; end $$;
    create trigger claimed before insert on gristmill.inbox
      for each row execute function on_inbox('Claimed');
    create trigger inbox_written after insert on gristmill.inbox
      for each row execute function on_inbox('InboxWritten');
    create trigger written after insert on change
      for each row execute function on_row('Written');
    create constraint trigger in_commit after insert on gristmill.inbox deferrable initially deferred
      for each row execute function on_inbox('InCommit');
    create constraint trigger deleted after delete on gristmill.outbox deferrable initially deferred
      for each row execute function on_outbox('Deleted');
    create trigger claimed before insert on catalogue_inbox
      for each row execute function on_catalogue_inbox('CatalogueClaimed');
    create trigger written after insert on catalogue_change
      for each row execute function on_row('CatalogueWritten');
    create constraint trigger in_commit after insert on catalogue_inbox deferrable initially deferred
      for each row execute function on_catalogue_inbox('CatalogueInCommit')";

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
    /// The same for the job that follows, whose handler is not ours.
    CatalogueClaimed,
    CatalogueWritten,
    CatalogueInCommit,
    CatalogueCommitted,
    CatalogueSettled,
}

pub(crate) enum Hold {
    /// A step of this name, and of its job, in Postgres.
    Lock(PgConnection),
    Request(HeldRequest),
    Reply(HeldReply),
    Lost(Fault),
}

/// How the processes are started.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) idle_limit_ms: u64,
    /// A relay in each node, instead of one in a process of its own.
    pub(crate) relay_inside: bool,
}

/// Dropped in this order: the processes first.
pub(crate) struct Shop {
    node: Option<Process>,
    frozen: Vec<Process>,
    plan: Plan,
    relay: Option<Process>,
    catalogue: Process,
    catalogue_port: String,
    node_proxy: Proxy,
    postgres_proxy: Proxy,
    relay_proxy: Proxy,
    relay_postgres_proxy: Proxy,
    pub(crate) redis: Server,
    pub(crate) postgres: Postgres,
    python: PathBuf,
    config: Config,
    runtime: Runtime,
    broker: Broker,
}

/// The settings of the example, with another port of the catalogue, in a file that is removed in the end.
struct Config(PathBuf);

impl Config {
    fn with_port(port: &str) -> Self {
        let text = std::fs::read_to_string(example("shop.toml")).unwrap();
        assert!(text.contains("127.0.0.1:8000"), "shop.toml names the port that catalogue.py listens at");
        let name = format!("gristmill-shop-{}-{port}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text.replace("127.0.0.1:8000", &format!("127.0.0.1:{port}"))).unwrap();
        Self(path)
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(crate) fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn catalogue(python: &Path, database: &str, port: &str) -> Process {
    let script = example("catalogue.py").display().to_string();
    Process::spawn(python, [&script, database, port], [("PYTHONUNBUFFERED", "1")]).unwrap()
}

fn serving(catalogue: &Process) -> String {
    let line = catalogue.wait_line(|line| line.text.starts_with("serving on "), SOON).unwrap();
    line.text.rsplit(' ').next().unwrap().to_owned()
}

impl Shop {
    /// With one node and a relay; `None`, said loudly, where Postgres or Python is missing.
    pub(crate) fn open() -> Option<Self> {
        Self::open_with(Plan { idle_limit_ms: 60_000, relay_inside: false })
    }

    pub(crate) fn open_with(plan: Plan) -> Option<Self> {
        let Some(python) = python::with(MODULES) else {
            eprintln!("SKIPPED: {}", python::missing(MODULES));
            return None;
        };
        let postgres = match Postgres::start() {
            Ok(postgres) => postgres,
            Err(error @ Error::MissingServer { .. }) => {
                eprintln!("SKIPPED: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        postgres.ask(&std::fs::read_to_string(example("schema.sql")).unwrap()).unwrap();
        let mut migrate = ProcessOptions::new(env!("CARGO_BIN_EXE_shop"))
            .args(["postgres", "migrate", "--database", &postgres.url()])
            .spawn()
            .unwrap();
        assert!(migrate.wait(SOON).unwrap().success(), "{}", migrate.stderr_tail());
        postgres.ask(STEPS).unwrap();

        let redis = Server::start(ServerOptions::new().appendonly(Appendonly::Always)).unwrap();
        let (node_proxy, relay_proxy) =
            (Proxy::start(redis.port()).unwrap(), Proxy::start(redis.port()).unwrap());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let broker = runtime.block_on(async { Broker::connect(RedisConfig::new(redis.url())) });
        let (postgres_proxy, relay_postgres_proxy) =
            (Proxy::start(postgres.port()).unwrap(), Proxy::start(postgres.port()).unwrap());
        let catalogue = catalogue(&python, &postgres.url_at(postgres_proxy.port()), "0");
        let catalogue_port = serving(&catalogue);
        let config = Config::with_port(&catalogue_port);
        let mut shop = Self {
            node: None,
            frozen: Vec::new(),
            plan,
            relay: None,
            catalogue,
            catalogue_port,
            node_proxy,
            postgres_proxy,
            relay_proxy,
            relay_postgres_proxy,
            redis,
            postgres,
            python,
            config,
            runtime,
            broker,
        };
        let node = shop.start_node();
        ready(&node);
        shop.node = Some(node);
        if !plan.relay_inside {
            shop.relay = Some(shop.start_relay());
        }
        Some(shop)
    }

    fn start(&self, redis: &Proxy, postgres: &str, command: &[&str]) -> Process {
        let config = self.config.0.display().to_string();
        let (redis, database) = (self.redis.url_at(redis.port()), format!("postgres.url={postgres}"));
        let idle = format!("postgres.idle_limit_ms={}", self.plan.idle_limit_ms);
        let relay = format!("postgres.relay={}", self.plan.relay_inside);
        // Faster than a shop would want it, and as often as it takes.
        let quick = [
            "lease.ttl_ms=1500",
            "lease.renewal_ms=300",
            "lease.margin_ms=450",
            "retry.base_ms=100",
            "retry.cap_ms=2000",
            "retry.max_attempts=1000",
        ];
        let set = quick.into_iter().chain([database.as_str(), &idle, &relay]).flat_map(|set| ["--set", set]);
        let arguments = ["--config", &config, "--redis", &redis].into_iter().chain(set);
        ProcessOptions::new(env!("CARGO_BIN_EXE_shop"))
            .args(arguments.chain(command.iter().copied()))
            .envs([("RUST_BACKTRACE", "0")])
            .spawn()
            .unwrap()
    }

    pub(crate) fn start_node(&self) -> Process {
        self.start(&self.node_proxy, &self.postgres.url_at(self.postgres_proxy.port()), &["node"])
    }

    fn start_relay(&self) -> Process {
        let database = self.postgres.url_at(self.relay_postgres_proxy.port());
        self.start(&self.relay_proxy, &database, &["postgres", "relay"])
    }

    /// Before the job is enqueued.
    pub(crate) fn hold(&self, step: Step, job: &str, lost: bool) -> Hold {
        let seen = format!(":seen:{job}");
        let follows = format!(":seen:catalogue of {job}");
        match step {
            Step::Committed => Hold::Request(self.node_proxy.hold_next_request(seen)),
            Step::Settled if lost => Hold::Lost(self.node_proxy.cut_after_next_request(seen)),
            Step::Settled => Hold::Reply(self.node_proxy.hold_next_reply(seen)),
            Step::Read => Hold::Request(self.relay_proxy.hold_next_request(follows)),
            Step::Enqueued if lost => Hold::Lost(self.relay_proxy.cut_after_next_request(follows)),
            Step::Enqueued => Hold::Reply(self.relay_proxy.hold_next_reply(follows)),
            Step::CatalogueCommitted => Hold::Request(self.node_proxy.hold_next_request(follows)),
            Step::CatalogueSettled if lost => Hold::Lost(self.node_proxy.cut_after_next_request(follows)),
            Step::CatalogueSettled => Hold::Reply(self.node_proxy.hold_next_reply(follows)),
            inside => Hold::Lock(self.runtime.block_on(async {
                let mut connection = PgConnection::connect(&self.postgres.url()).await.unwrap();
                let lock = sqlx::query("select pg_advisory_lock(hashtext($1 || ' ' || $2))");
                lock.bind(format!("{inside:?}")).bind(job).execute(&mut connection).await.unwrap();
                connection
            })),
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

    pub(crate) fn kill_node(&mut self) {
        self.node.take().unwrap().kill().unwrap();
        // Not waited for: what the job waits for may have to be let go first.
        self.node = Some(self.start_node());
    }

    /// The next takes its place: started first, and ready, before this one is asked to leave.
    pub(crate) fn replace_node(&mut self) -> Process {
        let next = self.start_node();
        ready(&next);
        self.node.replace(next).unwrap()
    }

    /// SIGSTOP; another takes its place.
    pub(crate) fn freeze_node(&mut self) {
        self.node.as_mut().unwrap().pause().unwrap();
        let next = self.replace_node();
        self.frozen.push(next);
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

    /// A statement that is held goes on, takes effect, and its answer is lost with the connection.
    pub(crate) fn lose_answer(&self, step: Step, hold: Hold, job: &str) {
        let proxy = match step {
            Step::Deleted => &self.relay_postgres_proxy,
            _ => &self.postgres_proxy,
        };
        let over = match step {
            // The statement is over, the transaction is not.
            Step::InboxWritten => "select count(*) > 0 from pg_stat_activity
                 where state = 'idle in transaction' and query like 'insert into gristmill.inbox%'"
                .to_owned(),
            Step::Written => "select count(*) > 0 from pg_stat_activity
                 where state = 'idle in transaction' and query like 'insert into change%'"
                .to_owned(),
            Step::InCommit => format!("select count(*) = 1 from change where sku = '{job}'"),
            Step::CatalogueInCommit => {
                format!("select count(*) = 1 from catalogue_change where sku = '{job}'")
            }
            Step::Deleted => format!("select count(*) = 0 from gristmill.outbox where key = '{job}'"),
            other => unreachable!("no answer of Postgres is due at {other:?}"),
        };
        proxy.hold_replies();
        self.let_go(hold);
        eventually(SOON, "the effect whose answer is lost", || {
            (self.postgres.ask(&over).unwrap() == "t").then_some(())
        });
        proxy.cut();
        proxy.release_replies();
    }

    pub(crate) fn kill_relay(&mut self) {
        self.relay.take().unwrap().kill().unwrap();
        self.relay = Some(self.start_relay());
    }

    /// The handler in Python; another takes its port.
    pub(crate) fn kill_catalogue(&mut self) {
        self.catalogue.kill().unwrap();
        let database = self.postgres.url_at(self.postgres_proxy.port());
        self.catalogue = catalogue(&self.python, &database, &self.catalogue_port);
        serving(&self.catalogue);
    }

    pub(crate) fn kill_postgres(&mut self) {
        self.postgres.restart().unwrap();
    }

    pub(crate) fn kill_redis(&mut self) {
        self.redis.restart().unwrap();
    }

    pub(crate) fn enqueue(&self, job: &str) {
        self.enqueue_event(job, job, 1);
    }

    /// An event of a product.
    pub(crate) fn enqueue_event(&self, id: &str, sku: &str, version: u64) {
        let payload = format!("{{\"cents\":{version}}}");
        let new = NewJob::from_bytes("product.changed", sku, payload, ContentType::Json).unwrap();
        let new = new.with_id(id).unwrap().with_version(version);
        self.runtime.block_on(self.broker.enqueue(&QueueName::new("shop").unwrap(), new)).unwrap();
    }

    /// Notes in the product's history (1), in the catalogue's (1), inbox rows (1 and 1), and outbox rows (0).
    pub(crate) fn changes(&self, job: &str) -> String {
        let sql = format!(
            "select (select count(*) from change where sku = '{job}'),
             (select count(*) from catalogue_change where sku = '{job}'),
             (select count(*) from gristmill.inbox where job_id = '{job}'),
             (select count(*) from catalogue_inbox where idempotency_key = 'catalogue:catalogue%20of%20{job}'),
             (select count(*) from gristmill.outbox where key = '{job}')"
        );
        self.postgres.ask(&sql).unwrap_or_default()
    }

    pub(crate) fn wait_applied(&self, job: &str) {
        let applied = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually(SOON, "the job and the one that follows", || {
                (self.changes(job) == "1|1|1|1|0").then_some(())
            });
        }));
        if applied.is_err() {
            let tail =
                |process: &Option<Process>| process.as_ref().map(Process::stderr_tail).unwrap_or_default();
            let (node, relay) = (tail(&self.node), tail(&self.relay));
            panic!("{job} stands at {:?}\nnode:\n{node}\nrelay:\n{relay}", self.changes(job));
        }
    }

    pub(crate) fn is_applied_once(&self, job: &str) {
        assert_eq!(self.changes(job), "1|1|1|1|0", "{job}: change, catalogue change, both inboxes, outbox");
    }

    /// Nothing waits in either queue, and nothing died.
    pub(crate) fn wait_quiet(&self) {
        let config = RedisConfig::new(self.redis.url());
        eventually(SOON, "empty queues", || {
            self.runtime.block_on(async {
                let connection = Connection::open(&config, 1).await.ok()?;
                for queue in ["shop", "catalogue"] {
                    let queue = QueueDefinition::new(QueueName::new(queue).unwrap(), PARTITIONS);
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

pub(crate) fn ready(node: &Process) {
    node.wait_line(|line| line.text.contains(" ready "), SOON).unwrap();
}
