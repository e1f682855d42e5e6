//! What ends a connection, what makes it again, and what is said about it.

use crate::fixture::*;
use futures_util::FutureExt;
use gristmill_broker::call::{Call, Guard};
use gristmill_broker::{Broker, CallError, Connection, Link, RedisConfig};
use gristmill_job::{NewJob, Place};
use gristmill_testkit::proxy::Proxy;
use gristmill_testkit::server::{Server, ServerOptions};
use std::time::Duration;

/// Waits until the link has a connection after the `before`th.
async fn connected_after(link: &Link, before: u64) -> Connection {
    let mut watch = link.watch();
    let found = watch.wait_for(|current| current.as_ref().is_some_and(|c| c.generation() > before));
    tokio::time::timeout(SOON, found).await.expect("no new connection").unwrap().clone().unwrap()
}

#[test]
fn a_server_that_forgot_the_scripts_gets_them_again() {
    on_each(async |world| {
        let a = world.acquire("a").await;
        let link = Link::start(RedisConfig::new(world.server.url()), "test");
        let first = link.connected().await;
        world.raw(&[b"SCRIPT", b"FLUSH"]);
        let refused = first.enqueue(&world.keys, 1, "c", &[own("1", "k")]).await;
        assert!(matches!(&refused, Err(CallError::Unserved(why)) if why.contains("NoScript")), "{refused:?}");
        let second = connected_after(&link, first.generation()).await;
        assert!(second.enqueue(&world.keys, 1, "c", &[own("1", "k")]).await.is_ok());
        world.raw(&[b"SCRIPT", b"FLUSH"]);
        for call in [Call::Claim { count: 1 }, Call::Release] {
            let refused = world.send(&second, &a.fence, 1, &call).await;
            assert!(matches!(&refused, Err(CallError::Unserved(_))), "{refused:?}");
        }
        let third = connected_after(&link, second.generation()).await;
        assert!(third.enqueue(&world.keys, 1, "d", &[own("2", "k")]).await.is_ok());
        // Whether or not the claim read something behind the guard that did not run: the next tenure has it.
        let mut again = world.acquire("a").await;
        let mut found = world.recover(&mut again).await;
        found.extend(world.claim(&mut again).await);
        assert_eq!(ids(&found), ["1", "2"]);
        assert_eq!(link.replacements(), 2);
    });
}

#[test]
fn a_replica_is_left_until_it_is_a_primary() {
    on_each(async |world| {
        let options = ServerOptions::new();
        let primary = Server::start(options).unwrap();
        let port = primary.port().to_string();
        let link = Link::start(RedisConfig::new(world.server.url()), "test");
        let first = link.connected().await;
        world.raw(&[b"REPLICAOF", b"127.0.0.1", port.as_bytes()]);
        let refused = first.enqueue(&world.keys, 1, "c", &[own("1", "k")]).await;
        assert!(matches!(&refused, Err(CallError::Unserved(why)) if why.contains("ReadOnly")), "{refused:?}");
        let second = connected_after(&link, first.generation()).await;
        world.raw(&[b"REPLICAOF", b"NO", b"ONE"]);
        // It may have copied the primary's empty data by now.
        second.create(&world.queue).await.unwrap();
        assert!(second.enqueue(&world.keys, 1, "c", &[own("1", "k")]).await.is_ok());
    });
}

#[test]
fn a_connection_that_stays_silent_is_replaced() {
    on_each(async |world| {
        let mut config = RedisConfig::new(world.server.url());
        config.response_timeout = Duration::from_millis(50);
        let link = Link::start(config, "test");
        let first = link.connected().await;
        world.server.pause().unwrap();
        for _ in 0..3 {
            assert!(link.current().is_some(), "one timeout is no broken connection");
            let silent = first.enqueue(&world.keys, 1, "c", &[own("1", "k")]).await;
            assert_eq!(silent, Err(CallError::Unknown));
        }
        world.server.resume().unwrap();
        let second = connected_after(&link, first.generation()).await;
        assert!(second.enqueue(&world.keys, 1, "c", &[own("1", "k")]).await.is_ok());
    });
}

#[test]
fn a_call_is_sent_by_its_first_poll_however_many_requests_wait_before_it() {
    let server = Server::start(ServerOptions::new()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // On one thread, and without its turns: the connection's own task writes nothing while requests are made.
    runtime.block_on(tokio::task::unconstrained(async {
        let mut world = World::over(server).await;
        let fence = world.acquire("a").await.fence;
        world.enqueue(&[own("1", "k")]).await;
        let mut reads = Vec::new();
        for _ in 0..5000 {
            let mut read = Box::pin(world.connection.load(&world.keys, &[Place::ZERO]));
            assert!((&mut read).now_or_never().is_none());
            reads.push(read);
        }
        let guard = Guard { keys: &world.keys, fence: &fence, number: 1, seen_window_ms: WINDOW_MS };
        let call = Call::Claim { count: 1 };
        let mut claim = Box::pin(world.connection.call(&call, guard));
        assert!((&mut claim).now_or_never().is_none());
        for read in reads {
            read.await.unwrap();
        }
        // Behind the claim, on the same connection, which was not polled again.
        let view = &world.connection.partitions(&world.queue).await.unwrap()[0];
        assert_eq!(view.claimed, 1, "{view:?}");
        drop(claim);
    }));
}

#[test]
fn a_producer_whose_answer_is_lost_enqueues_once() {
    on_each(async |world| {
        let proxy = Proxy::start(world.server.port()).unwrap();
        let broker = Broker::connect(RedisConfig::new(proxy.url()));
        broker.create(&world.queue).await.unwrap();
        let fault = proxy.cut_after_next_request("EVALSHA");
        let job = NewJob::new("kind", "k", "payload").unwrap();
        let enqueued = broker.enqueue(&world.queue.name, job).await.unwrap();
        fault.wait(SOON).unwrap();
        assert_eq!(
            (enqueued.place, enqueued.duplicate_of),
            (None, None),
            "accepted by the call that was lost"
        );
        assert_eq!(world.length(), 1, "without a mark of its own");
    });
}

/// The errors of opening, and what they must not say.
async fn refused(config: &RedisConfig, secret: &str) -> String {
    let error = Connection::open(config, 1).await.expect_err("it was let in");
    assert!(matches!(error, CallError::NotConnected(_)), "{error:?}");
    let shown = format!("{error} {error:?} {config:?}");
    assert!(!shown.contains(secret), "the secret is shown: {shown}");
    error.to_string()
}

#[test]
fn a_password_and_tls_let_in_who_has_both() {
    let server = Server::start(ServerOptions::new().tls().user("worker", "pa:ss/w@rd")).unwrap();
    let ca = std::fs::read(server.ca_path().unwrap()).unwrap();
    block_on(async {
        let good = RedisConfig { ca_pem: Some(ca), ..RedisConfig::new(server.url()) };
        let queue = gristmill_broker::QueueDefinition::new(gristmill_job::QueueName::new("q").unwrap(), 1);
        let connection = Connection::open(&good, 1).await.unwrap();
        connection.create(&queue).await.unwrap();
        assert_eq!(connection.queues().await.unwrap(), [queue]);

        let wrong = RedisConfig { url: good.url.replace("worker:", "worker:hunter2"), ..good.clone() };
        let said = refused(&wrong, "hunter2").await;
        assert!(said.contains("127.0.0.1") && said.to_lowercase().contains("password"), "{said}");
        let untrusted = RedisConfig { ca_pem: None, ..good.clone() };
        refused(&untrusted, "pa%3Ass").await;
    });
}

#[test]
fn a_wrong_password_and_a_missing_one_are_told_without_it() {
    on_each_with(&ServerOptions::new(), async |world| {
        world.raw(&[b"CONFIG", b"SET", b"requirepass", b"right"]);
        let address = format!("127.0.0.1:{}", world.server.port());
        let said = refused(&RedisConfig::new(format!("redis://:hunter2@{address}")), "hunter2").await;
        assert!(said.contains(&address), "{said}");
        let none = Connection::open(&RedisConfig::new(format!("redis://{address}")), 1).await;
        let said = none.expect_err("it was let in without a password").to_string();
        assert!(said.contains("NOAUTH"), "{said}");
    });
}

#[test]
fn an_address_that_is_none_is_told_without_its_secret() {
    block_on(async {
        let bad = [
            "http://user:hunter2@db:6379",
            "redis:/user:hunter2@db:6379",
            "redis://user:hunter2@db:port",
            "user:hunter2@db:6379",
            "redis://user:hunter2@127.0.0.1:6379/no-number",
        ];
        for url in bad {
            refused(&RedisConfig::new(url), "hunter2").await;
        }
        let said = refused(&RedisConfig::new(""), "hunter2").await;
        assert!(said.contains("no usable Redis address"), "{said}");
        let mut nobody = RedisConfig::new("redis://127.0.0.1:1");
        nobody.connect_timeout = Duration::from_millis(500);
        assert!(refused(&nobody, "hunter2").await.contains("127.0.0.1:1"));
    });
}
