//! The relay in this process, against a real Postgres and a real Redis: order, rivals, what is no job, latency.

#![allow(clippy::unwrap_used, reason = "all of it is a test; clippy excuses test functions only")]

mod expiring;
mod later;

use gristmill_broker::{Broker, QueueDefinition, RedisConfig};
use gristmill_handler::{Context, HandlerError, Registry, State};
use gristmill_job::{NewJob, QueueName, partition_of};
use gristmill_node::{Node, NodeConfig, QueueConfig};
use gristmill_postgres::{Database, Relay, Tx, migrate, sqlx};
use gristmill_testkit::postgres::Postgres;
use gristmill_testkit::proxy::Proxy;
use gristmill_testkit::seed::SplitMix64;
use gristmill_testkit::server::{Server, ServerOptions};
use gristmill_testkit::{Error, eventually};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(60);

/// What arrived, by key, in order.
type Seen = Arc<Mutex<BTreeMap<String, Vec<(u64, String)>>>>;

async fn note(
    payload: gristmill_handler::Raw,
    context: Context,
    State(seen): State<Seen>,
) -> Result<(), HandlerError> {
    let text = String::from_utf8_lossy(&payload.bytes).into_owned();
    let header = context.headers().get("h").unwrap_or_default().to_owned();
    let mut seen = seen.lock().unwrap();
    seen.entry(context.key().to_string()).or_default().push((context.version(), format!("{text}{header}")));
    Ok(())
}

struct World {
    postgres: Postgres,
    server: Server,
    database: Database,
    seen: Seen,
}

impl World {
    fn ask(&self, sql: &str) -> String {
        self.postgres.ask(sql).unwrap()
    }

    fn relay(&self) -> Relay {
        Relay::new(&self.database, Broker::connect(RedisConfig::new(self.server.url())))
    }

    async fn create(&self, queue: &str) {
        let broker = Broker::connect(RedisConfig::new(self.server.url()));
        broker.create(&QueueDefinition::new(QueueName::new(queue).unwrap(), 4)).await.unwrap();
    }

    async fn node(&self) -> Node {
        let queue = QueueConfig::new(QueueName::new("work").unwrap()).with_partitions(4);
        let config = NodeConfig::new("n", RedisConfig::new(self.server.url()), vec![queue]);
        let registry = Registry::new().state(Arc::clone(&self.seen)).kind("note", note);
        Node::start(config, registry).await.unwrap()
    }

    fn count(&self) -> usize {
        self.seen.lock().unwrap().values().map(Vec::len).sum()
    }

    fn wait_empty(&self) {
        tokio::task::block_in_place(|| {
            eventually(SOON, "an empty outbox", || {
                (self.ask("select count(*) from gristmill.outbox where refused is null") == "0").then_some(())
            });
        });
    }
}

fn on_both<F: Future<Output = ()>>(test: impl FnOnce(World) -> F) {
    let postgres = match Postgres::start() {
        Ok(postgres) => postgres,
        Err(error @ Error::MissingServer { .. }) => return eprintln!("SKIPPED: {error}"),
        Err(error) => panic!("{error}"),
    };
    let server = Server::start(ServerOptions::new()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::new(&postgres.url()).unwrap();
        migrate(database.pool()).await.unwrap();
        test(World { postgres, server, database, seen: Seen::default() }).await;
    });
}

#[test]
fn many_writers_and_relays_that_are_dropped_anywhere_keep_each_key_in_order_and_each_job_once() {
    const KEYS: u64 = 20;
    const EACH: i64 = 40;
    on_both(|world| async move {
        world.create("work").await;
        let node = world.node().await;
        // Relays that live for a moment: dropped wherever they stand, as a kill would.
        let relays: Vec<_> = (0..3u64)
            .map(|n| {
                let relay = world.relay().poll_every(Duration::from_millis(50));
                tokio::spawn(async move {
                    let mut random = SplitMix64::new(0x0B0E + n);
                    loop {
                        let life = Duration::from_millis(20 + random.below(200));
                        // not a wait: how long this relay lives
                        relay.run(tokio::time::sleep(life)).await;
                    }
                })
            })
            .collect();
        let writers = (0..KEYS).map(|key| {
            let pool = world.database.pool().clone();
            tokio::spawn(async move {
                for version in 1..=EACH {
                    let insert = sqlx::query(
                        "insert into gristmill.outbox (queue, kind, key, version, payload)
                         values ('work', 'note', $1, $2, '1')",
                    );
                    insert.bind(format!("key {key}")).bind(version).execute(&pool).await.unwrap();
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        // The short-lived may take their time; whoever stays finishes.
        for relay in relays {
            relay.abort();
        }
        let last = world.relay();
        let stays = tokio::spawn({
            let last = last.clone();
            async move { last.run(std::future::pending()).await }
        });
        world.wait_empty();
        tokio::task::block_in_place(|| {
            eventually(SOON, "every job", || {
                (world.count() >= (KEYS as usize) * EACH as usize).then_some(())
            });
        });
        let expected: Vec<u64> = (1..=EACH as u64).collect();
        for (key, versions) in &*world.seen.lock().unwrap() {
            let versions: Vec<u64> = versions.iter().map(|(version, _)| *version).collect();
            assert_eq!(versions, expected, "{key}");
        }
        stays.abort();
        node.drain(std::future::pending()).await;
    });
}

async fn price(cents: i64, mut tx: Tx) -> Result<(), HandlerError> {
    let (sku, version) = (tx.key_text()?.to_owned(), tx.version()?);
    let put = sqlx::query(
        "insert into product values ($1, $2, $3) on conflict (sku) do update
         set version = excluded.version, cents = excluded.cents where product.version < excluded.version",
    );
    tx.newer(put.bind(sku).bind(version).bind(cents)).await?;
    Ok(())
}

/// A node counts both, and neither is an error: nothing is retried, nothing is dead.
#[test]
fn a_node_ends_jobs_as_duplicate_and_as_stale_and_counts_them() {
    on_both(|world| async move {
        world.ask("create table product (sku text primary key, version bigint, cents bigint)");
        let name = QueueName::new("work").unwrap();
        let queue = QueueConfig::new(name.clone()).with_partitions(4);
        let config = NodeConfig::new("n", RedisConfig::new(world.server.url()), vec![queue]);
        let registry = Registry::new().state(world.database.clone()).kind("price", price);
        let node = Node::start(config, registry).await.unwrap();
        let broker = Broker::connect(RedisConfig::new(world.server.url()));
        let enqueue = async |id: &str, version: u64| {
            let job = NewJob::new("price", "apple", &1).unwrap().with_id(id).unwrap().with_version(version);
            broker.enqueue(&name, job).await.unwrap()
        };
        let counts = |done, stale, duplicate| {
            tokio::task::block_in_place(|| {
                eventually(SOON, "the counts", || {
                    let now = node.counts();
                    assert_eq!((now.retried, now.dead, now.discarded), (0, 0, 0));
                    ((now.done, now.stale, now.duplicate) == (done, stale, duplicate)).then_some(())
                });
            });
        };
        enqueue("b", 2).await;
        counts(1, 0, 0);
        enqueue("a", 1).await;
        counts(1, 1, 0);
        // Redis forgets what it knew of the ids, as it does after a day or a failover.
        for id in ["a", "b"] {
            for partition in 0..4 {
                let _ =
                    world.server.command(&["DEL", &format!("gm:{{work:{partition}}}:seen:{id}")]).unwrap();
            }
            assert_eq!(enqueue(id, 9).await.duplicate_of, None);
        }
        counts(1, 1, 2);
        // And what it knows of them now absorbs them.
        assert_eq!(enqueue("b", 9).await.duplicate_of.as_deref(), Some("applied"));
        assert_eq!(world.ask("select version from product"), "2");
        node.drain(std::future::pending()).await;
    });
}

#[test]
fn a_row_that_is_no_job_stays_with_its_reason_and_one_without_a_queue_waits_for_it() {
    on_both(|world| async move {
        world.create("work").await;
        let node = world.node().await;
        let relay = world.relay().poll_every(Duration::from_millis(100));
        let running = tokio::spawn({
            let relay = relay.clone();
            async move { relay.run(std::future::pending()).await }
        });
        world.ask(
            "insert into gristmill.outbox (queue, kind, key, version, payload, headers) values
             ('work', 'note', 'a', 1, '{\"b\": 1,  \"a\": 2}', '{\"h\": \"!\"}'),
             ('work', 'note', 'a', 2, to_json(repeat('x', 1048574)), null),
             ('later', 'note', 'a', 3, '3', null),
             ('work', 'note', 'a', 4, '4', '[]'),
             ('work', 'note', 'a', 5, '5', null)",
        );
        tokio::task::block_in_place(|| eventually(SOON, "two jobs", || (world.count() == 2).then_some(())));
        let seen = world.seen.lock().unwrap()["a"].clone();
        assert_eq!(seen, [(1, "{\"b\": 1,  \"a\": 2}!".to_owned()), (5, "5".to_owned())], "byte by byte");
        let left = world.ask("select version, refused from gristmill.outbox order by version");
        let left: Vec<&str> = left.lines().collect();
        assert!(left[0].starts_with("2|") && left[0].contains("bytes"), "{left:?}");
        assert_eq!(left[1..], ["3|", "4|headers are a JSON object whose values are text"]);
        world.create("later").await;
        world.wait_empty();
        assert_eq!(world.ask("select count(*) from gristmill.outbox"), "2");
        assert_eq!((relay.counts().relayed, relay.counts().refused), (3, 2));
        let large = "insert into gristmill.outbox (queue, kind, key, payload) select 'q', 'k', 'a', to_json(repeat('x', 1048575))";
        assert!(world.postgres.ask(large).unwrap_err().to_string().contains("violates check constraint"));
        for bad in ["'Q', 'note', 'a'", "'q', 'a b', 'a'", "'q', '', 'a'", "'q', 'note', ''"] {
            let sql = format!("insert into gristmill.outbox (queue, kind, key, payload) values ({bad}, '1')");
            let refused = world.postgres.ask(&sql).unwrap_err().to_string();
            assert!(refused.contains("violates check constraint"), "{bad}: {refused}");
        }
        running.abort();
        node.drain(std::future::pending()).await;
    });
}

/// Back-pressure of one partition: its rows wait in order, and those of others go on, also in the same lane.
#[test]
fn rows_of_a_full_partition_wait_in_order_and_hold_up_no_other() {
    on_both(|world| async move {
        world.create("work").await;
        let lane =
            world.ask("select 'k' || n from generate_series(1, 2000) n where hashtext('k' || n) & 63 = 0");
        let in_lane = |partition: u16| {
            lane.lines().find(|key| partition_of(key.as_bytes(), 4) == partition).unwrap().to_owned()
        };
        let (full, free) = (in_lane(0), in_lane(1));
        let limit = |jobs: &str| world.server.command(&["HSET", "gm:{work:0}:meta", "limit", jobs]).unwrap();
        limit("3");
        world.ask(&format!(
            "insert into gristmill.outbox (queue, kind, key, version, payload)
             select 'work', 'note', key, n, '1' from generate_series(1, 10) n, (values ('{full}'), ('{free}')) k (key)
             order by n",
        ));
        let relay = world.relay().poll_every(Duration::from_millis(100));
        let running = tokio::spawn({
            let relay = relay.clone();
            async move { relay.run(std::future::pending()).await }
        });
        let left =
            || world.ask("select string_agg(key || ' ' || version, ',' order by seq) from gristmill.outbox");
        let expected = (4..=10).map(|version| format!("{full} {version}")).collect::<Vec<_>>().join(",");
        tokio::task::block_in_place(|| {
            eventually(SOON, "the others", || (left() == expected).then_some(()));
        });
        assert!(relay.counts().relayed == 13 && relay.counts().errors > 0);
        limit("0");
        world.wait_empty();
        let node = world.node().await;
        tokio::task::block_in_place(|| eventually(SOON, "all", || (world.count() == 20).then_some(())));
        for versions in world.seen.lock().unwrap().values() {
            assert!(versions.iter().map(|(version, _)| *version).eq(1..=10), "{versions:?}");
        }
        running.abort();
        node.drain(std::future::pending()).await;
    });
}

/// More than a transaction takes, by bytes: 40 MB of one key, in order.
#[test]
fn large_rows_go_in_several_transactions_and_in_order() {
    on_both(|world| async move {
        world.create("work").await;
        let node = world.node().await;
        world.ask(
            "insert into gristmill.outbox (queue, kind, key, version, payload)
             select 'work', 'note', 'k', n, to_json(repeat('x', 1000000)) from generate_series(1, 40) n",
        );
        let relay = world.relay();
        let running = tokio::spawn(async move { relay.run(std::future::pending()).await });
        tokio::task::block_in_place(|| eventually(SOON, "all", || (world.count() == 40).then_some(())));
        assert!(world.seen.lock().unwrap()["k"].iter().map(|seen| seen.0).eq(1..=40));
        running.abort();
        node.drain(std::future::pending()).await;
    });
}

/// A relay that is stuck between read and enqueue loses its lane, and what it sends late finds all of it done.
#[test]
fn a_stuck_relay_holds_its_lane_up_to_the_idle_limit_and_its_late_enqueue_is_absorbed() {
    on_both(|world| async move {
        world.create("work").await;
        let proxy = Proxy::start(world.server.port()).unwrap();
        let held = proxy.hold_next_request(":seen:late");
        let slow = Broker::connect(RedisConfig::new(world.server.url_at(proxy.port())));
        let slow = slow.with_patience(Duration::from_secs(3600));
        let stuck = Relay::new(&world.database.clone().idle_limit(Duration::from_secs(1)), slow);
        let first = tokio::spawn({
            let stuck = stuck.clone();
            async move { stuck.run(std::future::pending()).await }
        });
        world.ask("insert into gristmill.outbox (id, queue, kind, key, payload) values ('late', 'work', 'note', 'k', '1')");
        tokio::task::block_in_place(|| held.wait_held(SOON).unwrap());
        let free = world.relay().poll_every(Duration::from_millis(50));
        let second = tokio::spawn({
            let free = free.clone();
            async move { free.run(std::future::pending()).await }
        });
        world.wait_empty();
        assert_eq!((free.counts().relayed, stuck.counts().relayed), (1, 0));
        let node = world.node().await;
        tokio::task::block_in_place(|| {
            eventually(SOON, "the job", || (node.counts().done == 1).then_some(()));
            held.release(SOON).unwrap();
            eventually(SOON, "the end of what was stuck", || (stuck.counts().errors > 0).then_some(()));
        });
        world.ask("insert into gristmill.outbox (queue, kind, key, version, payload) values ('work', 'note', 'k', 2, '2')");
        tokio::task::block_in_place(|| eventually(SOON, "the next", || (world.count() == 2).then_some(())));
        assert_eq!(world.seen.lock().unwrap()["k"].iter().map(|seen| seen.0).collect::<Vec<_>>(), [0, 2]);
        first.abort();
        second.abort();
        node.drain(std::future::pending()).await;
    });
}

#[test]
fn the_bell_makes_the_latency_and_the_poll_is_the_net_under_it() {
    on_both(|world| async move {
        world.create("work").await;
        let node = world.node().await;
        let insert =
            "insert into gristmill.outbox (queue, kind, key, payload) values ('work', 'note', 'a', '1')";
        let relay = world.relay().poll_every(Duration::from_secs(3600));
        let running = tokio::spawn(async move { relay.run(std::future::pending()).await });
        let listens = "select count(*) from pg_stat_activity where query like 'LISTEN%'";
        tokio::task::block_in_place(|| {
            eventually(SOON, "the listener", || (world.ask(listens) == "1").then_some(()));
        });
        let mut waits = Vec::new();
        for n in 1..=20 {
            let began = Instant::now();
            world.ask(insert);
            tokio::task::block_in_place(|| {
                eventually(SOON, "the job", || (world.count() == n).then_some(()))
            });
            waits.push(began.elapsed());
        }
        waits.sort();
        println!("from insert to handler: half in {:?}, all in {:?}", waits[10], waits[19]);
        running.abort();
        // The net: no bell at all.
        world.ask("alter table gristmill.outbox disable trigger outbox_notify");
        let relay = world.relay().poll_every(Duration::from_millis(100));
        let running = tokio::spawn(async move { relay.run(std::future::pending()).await });
        world.ask(insert);
        tokio::task::block_in_place(|| eventually(SOON, "the job", || (world.count() == 21).then_some(())));
        running.abort();
        node.drain(std::future::pending()).await;
    });
}
