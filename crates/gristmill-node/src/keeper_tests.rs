use super::*;
use gristmill_broker::{Epoch, RedisConfig};
use gristmill_job::{DeadLetter, DeadReason, QueueName};
use gristmill_testkit::server::{Server, ServerOptions};

const HOUR_MS: u64 = 3_600_000;
/// The Redis clock as the node knows it.
const NOW_MS: u64 = 1_800_000_000_000;

struct Scene {
    server: Server,
    connection: Connection,
    keeper: Keeper,
}

impl Scene {
    /// Two partitions, of which this node serves the first.
    async fn new() -> Self {
        let server = Server::start(ServerOptions::new()).unwrap();
        let redis = RedisConfig::new(server.url());
        let connection = Connection::open(&redis, 1).await.unwrap();
        let queue = QueueDefinition::new(QueueName::new("q").unwrap(), 2);
        connection.create(&queue).await.unwrap();
        let share = |p| Arc::new(Shared::new(queue.name.clone(), p, queue.partition(p)));
        let partitions: Vec<Arc<Shared>> = (0..2).map(share).collect();
        partitions[0].open_gate(Some(Epoch(1)));
        for shared in &partitions {
            shared.redis_clock(UnixMillis(NOW_MS), Instant::now());
        }
        let keeper = Keeper {
            telemetry: Default::default(),
            link: Link::start(redis, "commands"),
            incarnation: Incarnation::of("n", 1),
            counters: Arc::default(),
            queues: vec![Kept {
                queue,
                max_age: Duration::from_millis(HOUR_MS),
                seen_window: Duration::from_secs(60),
                partitions,
            }],
        };
        Self { server, connection, keeper }
    }

    fn bury(&self, partition: u16, letter: &str, job: &str, age_ms: u64) {
        let keys = self.keeper.queues[0].queue.partition(partition);
        let at = NOW_MS - age_ms;
        let record = DeadLetter {
            job: job.into(),
            key: b"k".to_vec(),
            envelope: Vec::new(),
            place: "1-1".into(),
            turn: 0,
            reason: DeadReason::Exhausted,
            error: vec!["no".into()],
            class: None,
            attempts: 1,
            node: "n".into(),
            at: UnixMillis(at),
            ..DeadLetter::default()
        };
        let (score, record) = (at.to_string(), record.encode().unwrap());
        let command = |words: &[&[u8]]| self.server.command(words).unwrap();
        command(&[b"ZADD", keys.dead.as_bytes(), score.as_bytes(), letter.as_bytes()]);
        command(&[b"HSET", keys.dead_bodies.as_bytes(), letter.as_bytes(), &record]);
        let mark = format!("dead {letter}");
        command(&[b"SET", &keys.seen(job.as_bytes()), mark.as_bytes()]);
    }

    fn number(&self, words: &[&[u8]]) -> i64 {
        self.server.command(words).unwrap().as_int().unwrap()
    }

    async fn look(&self) {
        self.keeper.expire(&self.connection, &self.keeper.queues[0]).await;
    }
}

#[tokio::test]
async fn letters_beyond_their_age_are_discarded_in_pages_counted_and_noted() {
    let scene = Scene::new().await;
    let keys = scene.keeper.queues[0].queue.partition(0);
    let old = 2 * SLICE + 7;
    for n in 0..old {
        scene.bury(0, &format!("old{n}"), &format!("job{n}"), HOUR_MS + 1000 + n as u64);
    }
    scene.bury(0, "young", "young-job", HOUR_MS - 5000);
    scene.bury(1, "of another node", "other-job", 5 * HOUR_MS);
    // A record that somebody deleted.
    scene.server.command(&[b"HDEL", keys.dead_bodies.as_bytes(), b"old3"]).unwrap();

    scene.look().await;
    let other = scene.keeper.queues[0].queue.partition(1);
    assert_eq!(scene.number(&[b"ZCARD", keys.dead.as_bytes()]), 1, "the young one stays");
    assert_eq!(scene.number(&[b"HLEN", keys.dead_bodies.as_bytes()]), 1);
    assert_eq!(scene.number(&[b"ZCARD", other.dead.as_bytes()]), 1, "another node's partition");
    assert_eq!(scene.keeper.counters.snapshot().expired_letters, old as u64);
    let mark = scene.server.command(&[b"GET".as_slice(), &keys.seen(b"job0")]).unwrap();
    assert_eq!(mark.as_str(), Some("discarded"), "its id may come again");

    let log = scene.connection.audit_log(None, 10).await.unwrap();
    let steps: Vec<_> = log.iter().map(|(_, step)| (step.step, step.what.as_str(), step.count)).collect();
    assert_eq!(steps, [(AuditStep::Done, "expire", old as u64), (AuditStep::Begun, "expire", 0)]);
    assert_eq!(log[0].1.act, log[1].1.act);
    assert_eq!(
        (log[0].1.who.as_str(), log[0].1.filter.as_str()),
        (scene.keeper.incarnation.as_str(), "queue=q older than 3600000 ms")
    );

    scene.look().await;
    assert_eq!(scene.connection.audit_log(None, 10).await.unwrap().len(), 2, "nothing to do is no act");
}

#[tokio::test]
async fn nothing_is_discarded_before_the_clock_is_known_or_where_it_cannot_be_noted() {
    let scene = Scene::new().await;
    scene.bury(0, "old", "job", 2 * HOUR_MS);
    scene.keeper.queues[0].partitions[0].open_gate(None);
    scene.look().await;
    let keys = scene.keeper.queues[0].queue.partition(0);
    assert_eq!(scene.number(&[b"ZCARD", keys.dead.as_bytes()]), 1, "it serves nothing now");

    scene.keeper.queues[0].partitions[0].open_gate(Some(Epoch(2)));
    scene.server.command(&[b"SET", gristmill_broker::keys::AUDIT.as_bytes(), b"no stream"]).unwrap();
    scene.look().await;
    assert_eq!(scene.number(&[b"ZCARD", keys.dead.as_bytes()]), 1, "it was not noted");
    assert_eq!(scene.keeper.counters.snapshot().expired_letters, 0);
}
