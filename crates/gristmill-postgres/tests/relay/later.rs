//! Rows whose jobs are for later.

use super::*;

#[test]
fn rows_for_later_become_jobs_for_later_and_keep_their_times() {
    on_both(|world| async move {
        world.create("work").await;
        let relay = world.relay().poll_every(Duration::from_millis(50));
        let running = tokio::spawn(async move { relay.run(std::future::pending()).await });
        world.ask(
            "insert into gristmill.outbox (id, queue, kind, key, payload, due_at, delay_ms) values
             ('now', 'work', 'note', 'k', '1', null, null),
             ('past', 'work', 'note', 'k', '1', '1960-01-01Z', null),
             ('at', 'work', 'note', 'k', '1', '2035-12-24T07:00:00.123Z', null),
             ('in', 'work', 'note', 'k', '1', null, 3600000),
             ('far', 'work', 'note', 'k', '1', '2250-01-01Z', null)",
        );
        world.wait_empty();
        let refused = world.ask("select refused from gristmill.outbox where id = 'far'");
        assert!(refused.contains("within ten years"), "{refused}");
        for wrong in ["'infinity', null", "now(), 5", "null, -1", "null, 400000000000"] {
            let insert = format!(
                "insert into gristmill.outbox (queue, kind, key, payload, due_at, delay_ms) values ('work', 'note', 'k', '1', {wrong})"
            );
            assert!(world.postgres.ask(&insert).is_err(), "{wrong}");
        }
        let keys = QueueDefinition::new(QueueName::new("work").unwrap(), 4).partition(partition_of(b"k", 4));
        let ready = world.server.command(&["XLEN", keys.stream.as_str()]).unwrap();
        assert_eq!(ready.as_int(), Some(2), "what is over is due now");
        let later =
            world.server.command(&["ZRANGE", keys.delayed.as_str(), "0", "-1", "WITHSCORES"]).unwrap();
        let later: Vec<&str> = later.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
        assert!(later[0].ends_with(":1:in") && later[2].ends_with(":1:at"), "{later:?}");
        assert_eq!(later[3], "2082092400123");
        running.abort();
    });
}

/// What a handler emits with its transaction, and what a release before this wrote, in one table.
#[test]
fn a_handler_emits_for_later_in_its_transaction() {
    async fn emits(_: gristmill_handler::Raw, mut tx: Tx) -> Result<(), HandlerError> {
        let queue = QueueName::new("work").unwrap();
        let job = |id: &str| NewJob::new("note", "k", &1).unwrap().with_id(id).unwrap();
        tx.emit(&queue, job("in").due_in(Duration::from_micros(1_500_100))).await?;
        tx.emit(&queue, job("at").due_at(gristmill_job::UnixMillis(2_082_092_400_123))).await?;
        tx.emit(&queue, job("now")).await?;
        match tx.emit(&queue, job("far").due_in(Duration::from_secs(4000 * 86_400))).await {
            Err(_) => Ok(()),
            Ok(_) => Err(HandlerError::permanent("it was to be refused")),
        }
    }
    on_both(|world| async move {
        world.create("work").await;
        let queue = QueueConfig::new(QueueName::new("work").unwrap()).with_partitions(4);
        let config = NodeConfig::new("n", RedisConfig::new(world.server.url()), vec![queue]);
        let registry = Registry::new().state(world.database.clone()).kind("emits", emits);
        let node = Node::start(config, registry).await.unwrap();
        let broker = Broker::connect(RedisConfig::new(world.server.url()));
        let job = NewJob::new("emits", "k", &1).unwrap().with_id("parent").unwrap();
        broker.enqueue(&QueueName::new("work").unwrap(), job).await.unwrap();
        let rows = tokio::task::block_in_place(|| {
            eventually(SOON, "three rows", || {
                let rows = world.ask(
                    "select string_agg(concat_ws(' ', id, delay_ms, extract(epoch from due_at)::numeric(20, 3)), ',' order by seq)
                     from gristmill.outbox",
                );
                rows.contains("now").then_some(rows)
            })
        });
        assert_eq!(rows, "in 1501,at 2082092400.123,now");
        node.drain(std::future::pending()).await;
    });
}
