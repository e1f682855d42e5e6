//! What a failed actor leaves behind, and what is made of it by those that are started after it.

use super::*;
use crate::counters::Counters;
use crate::heartbeat::{Heartbeat, Rhythm};
use crate::lease_manager;
use crate::lease_manager::Message as ToManager;
use crate::stage;
use crate::worker::alone::{ALONE_WAIT, Alone};
use crate::worker::run_queue::{RunQueue, lock};
use gristmill_broker::{Broker, Incarnation, Link, RedisConfig};
use gristmill_job::QueueName;
use gristmill_telemetry::Telemetry;
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::mpsc;

const SOON: Duration = Duration::from_secs(10);

/// One partition of a node that reaches no Redis.
pub(super) struct Stage {
    pub(super) around: Arc<Surroundings>,
    shared: Arc<Shared>,
    definition: QueueDefinition,
}

impl Stage {
    pub(super) fn new() -> Self {
        let redis = RedisConfig::new("redis://127.0.0.1:1");
        let link = Link::start(redis.clone(), "commands");
        let counters = Arc::new(Counters::default());
        let incarnation = Incarnation::of("n", 1);
        let name = QueueName::new("q").unwrap();
        let rhythm = Rhythm {
            redis,
            incarnation: incarnation.clone(),
            queues: vec![name.clone()],
            kinds: "".into(),
            ttl: Duration::from_secs(5),
            renewal: Duration::from_secs(1),
            margin: Duration::from_millis(1500),
        };
        let runs = Arc::new(RunQueue::new(1, 1));
        let definition = QueueDefinition::new(name.clone(), 1);
        let shared = Arc::new(Shared::new(name, 0, definition.partition(0)));
        let around = Surroundings {
            incarnation,
            broker: Broker::over(link.clone()),
            link,
            lines: Vec::new(),
            heartbeat: Arc::new(Heartbeat::new(rhythm, counters.clone(), Telemetry::default())),
            doorbell: Arc::default(),
            promotions: crate::promotions::Promotions::default(),
            alone: Arc::new(Alone::new(runs.clone(), vec![shared.clone()], ALONE_WAIT, Telemetry::default())),
            runs,
            counters,
            telemetry: Telemetry::default(),
            lease_ttl: Duration::from_secs(5),
            manager: Mutex::default(),
        };
        Self { around: Arc::new(around), shared, definition }
    }

    pub(super) async fn start(&self) -> ActorRef<Message> {
        let bounds = stage::bounds();
        let (shared, queue, around) = (self.shared.clone(), self.definition.clone(), self.around.clone());
        let told = Told::new(&around.telemetry, &queue.name, std::iter::empty());
        let arguments = Arguments { shared, queue, bounds, told, around };
        Actor::spawn(None, Partition, arguments).await.unwrap().0
    }

    async fn listen(&self) -> mpsc::UnboundedReceiver<ToManager> {
        let (manager, hears) = stage::listener().await;
        *lock(&self.around.manager) = Some(manager);
        hears
    }
}

/// The next look that a lease manager is told of.
async fn look(hears: &mut mpsc::UnboundedReceiver<ToManager>) -> Option<Look> {
    loop {
        match hears.recv().await? {
            ToManager::Looked(_, _, look) => return Some(look),
            _ => continue,
        }
    }
}

#[tokio::test]
async fn the_lease_of_a_failed_actor_is_renewed_no_more_and_asked_for_again() {
    let stage = Stage::new();
    stage.start().await.kill();
    let fence = Fence { incarnation: stage.around.incarnation.clone(), epoch: Epoch(7) };
    stage.around.heartbeat.hold(&stage.shared, fence.clone(), Instant::now());
    stage.shared.open_gate(Some(Epoch(7)));
    let run = tenure::Run { epoch: Epoch(7), ..stage::run(stage::entry(1, "k")) };
    assert!(stage.shared.may_start(&run, Instant::now()));
    let mut hears = stage.listen().await;

    stage.start().await;
    assert!(!stage.around.heartbeat.holds(&stage.shared, &fence), "nobody serves what is still renewed");
    assert!(!stage.shared.may_start(&run, Instant::now()));
    let look = tokio::time::timeout(SOON, look(&mut hears)).await.expect("the manager believes it is served");
    assert_eq!(look, Some(Look::Idle { end: None, released: false }));
}

#[tokio::test]
async fn a_manager_that_is_started_again_hears_what_is_held() {
    let stage = Stage::new();
    let partition = stage.start().await;
    // There is no Redis, so that it goes on asking for its lease.
    partition.cast(Message::Serve).unwrap();
    let mut hears = stage.listen().await;

    let queues = vec![(stage.definition.clone(), vec![stage.shared.clone()])];
    let arguments = lease_manager::Arguments { queues, unordered: Vec::new(), around: stage.around.clone() };
    let before = lock(&stage.around.manager).clone();
    Actor::spawn(None, lease_manager::LeaseManager, arguments).await.unwrap();
    // What the new manager asked is answered to the listener.
    *lock(&stage.around.manager) = before;
    partition.cast(Message::Report).unwrap();
    let look = tokio::time::timeout(SOON, look(&mut hears)).await.expect("it says nothing");
    assert_eq!(look, Some(Look::Mine));
}
