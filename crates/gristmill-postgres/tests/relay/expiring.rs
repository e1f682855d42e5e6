//! Rows whose jobs expire, and tables of before such rows could be.

use super::*;
use gristmill_broker::delayed::Member;
use gristmill_job::{Envelope, JobId, Place};

/// How long after it becomes ready the job may start, as it lies in its queue; `None` if it says nothing.
async fn left_ms(world: &World, id: &str) -> Option<u128> {
    let broker = Broker::connect(RedisConfig::new(world.server.url()));
    let connection = broker.connection().await.unwrap();
    let queue = QueueDefinition::new(QueueName::new("work").unwrap(), 4);
    let (_, marks) = connection.marks(&queue, &JobId::new(id).unwrap()).await.unwrap();
    let keys = queue.partition(marks[0].partition);
    let waits = marks[0].standing.strip_prefix("waiting ").unwrap();
    let envelope = match Place::parse(waits.as_bytes()) {
        Some(place) => connection.job_at(&keys, place).await.unwrap().unwrap().envelope,
        None => {
            let member = Member::from_stored(waits.to_owned().into());
            connection.delayed_at(&keys, &member).await.unwrap().unwrap().body.envelope
        }
    };
    Envelope::expires_in(&envelope, usize::MAX).map(|limit| limit.as_millis())
}

async fn standing(world: &World, id: &str) -> String {
    let broker = Broker::connect(RedisConfig::new(world.server.url()));
    let queue = QueueDefinition::new(QueueName::new("work").unwrap(), 4);
    let connection = broker.connection().await.unwrap();
    connection.marks(&queue, &JobId::new(id).unwrap()).await.unwrap().1.remove(0).standing
}

#[test]
fn rows_that_expire_become_jobs_that_expire() {
    on_both(|world| async move {
        world.create("work").await;
        let relay = world.relay().poll_every(Duration::from_millis(50));
        let running = tokio::spawn(async move { relay.run(std::future::pending()).await });
        world.ask(
            "insert into gristmill.outbox (id, queue, kind, key, payload, due_at, delay_ms, expires_at, expires_in_ms) values
             ('never', 'work', 'note', 'k', '1', null, null, null, null),
             ('in', 'work', 'note', 'k', '1', null, null, null, 3600000),
             ('at', 'work', 'note', 'k', '1', null, null, now() + interval '1 hour', null),
             ('over', 'work', 'note', 'k', '1', null, null, now() - interval '1 hour', null),
             ('due', 'work', 'note', 'k', '1', '2035-01-01Z', null, '2035-01-01 00:10Z', null),
             ('past', 'work', 'note', 'k', '1', '1960-01-01Z', null, now() + interval '1 hour', null),
             ('wait', 'work', 'note', 'k', '1', null, 1800000, now() + interval '1 hour', null)",
        );
        world.wait_empty();
        let hour = 3_600_000;
        let nearly =
            |left: Option<u128>, all: u128| left.is_some_and(|left| left <= all && left > all - 120_000);
        assert_eq!(left_ms(&world, "never").await, None);
        assert_eq!(left_ms(&world, "in").await, Some(hour));
        assert_eq!(left_ms(&world, "over").await, Some(0));
        assert_eq!(left_ms(&world, "due").await, Some(600_000), "from when it is due");
        for (id, all) in [("at", hour), ("past", hour), ("wait", hour / 2)] {
            let left = left_ms(&world, id).await;
            assert!(nearly(left, all), "{id}: {left:?}");
        }
        for wrong in ["'infinity', null", "now(), 5", "null, 0", "null, -1"] {
            let insert = format!(
                "insert into gristmill.outbox (queue, kind, key, payload, expires_at, expires_in_ms)
                 values ('work', 'note', 'k', '1', {wrong})"
            );
            assert!(world.postgres.ask(&insert).is_err(), "{wrong}");
        }

        let node = world.node().await;
        tokio::task::block_in_place(|| {
            eventually(SOON, "all but one", || (world.count() == 4).then_some(()))
        });
        node.drain(std::future::pending()).await;
        let over = standing(&world, "over").await;
        assert!(!over.starts_with("waiting"), "four ran, and it ended unrun: {over}");
        running.abort();
    });
}

/// A release of this kind may be there before its migration was made, and sees when it was.
#[test]
fn a_table_of_before_serves_until_it_is_migrated() {
    async fn emits(_: gristmill_handler::Raw, mut tx: Tx) -> Result<(), HandlerError> {
        let queue = QueueName::new("work").unwrap();
        let job = |id: &str| NewJob::new("later", "k", &1).unwrap().with_id(id).unwrap();
        tx.emit(&queue, job("plain")).await?;
        tx.emit(&queue, job("emitted").expires_in(Duration::from_secs(3600))).await?;
        Ok(())
    }
    on_both(|world| async move {
        world.create("work").await;
        world.ask("alter table gristmill.outbox drop column expires_at, drop column expires_in_ms");
        world.ask("delete from gristmill.migration where version = 3");
        let relay = world.relay().poll_every(Duration::from_millis(50));
        let counts = relay.clone();
        let running = tokio::spawn(async move { relay.run(std::future::pending()).await });
        let before = "insert into gristmill.outbox (id, queue, kind, key, payload, delay_ms) values
                      ('before', 'work', 'note', 'k', '1', 60000)";
        world.ask(before);
        world.wait_empty();
        assert_eq!(left_ms(&world, "before").await, None);

        migrate(world.database.pool()).await.unwrap();
        world.ask(
            "insert into gristmill.outbox (id, queue, kind, key, payload, expires_in_ms)
             values ('after', 'work', 'later', 'k', '1', 3600000)",
        );
        world.wait_empty();
        assert_eq!(left_ms(&world, "after").await, Some(3_600_000), "the relay that runs heeds it");

        let queue = QueueConfig::new(QueueName::new("work").unwrap()).with_partitions(4);
        let config = NodeConfig::new("n", RedisConfig::new(world.server.url()), vec![queue]);
        let registry = Registry::new().state(world.database.clone()).kind("emits", emits);
        let node = Node::start(config, registry).await.unwrap();
        let broker = Broker::connect(RedisConfig::new(world.server.url()));
        let parent = NewJob::new("emits", "parent", &1).unwrap();
        broker.enqueue(&QueueName::new("work").unwrap(), parent).await.unwrap();
        tokio::task::block_in_place(|| {
            eventually(SOON, "what was emitted", || (counts.counts().relayed == 4).then_some(()));
        });
        assert_eq!(left_ms(&world, "plain").await, None);
        assert_eq!(left_ms(&world, "emitted").await, Some(3_600_000));
        assert_eq!(counts.counts().errors, 0);
        node.drain(std::future::pending()).await;
        running.abort();
    });
}
