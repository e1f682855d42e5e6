//! What an acquire hears besides: what is paused is told to every partition of the queue at this node.

use super::restart_tests::Stage;
use super::*;
use crate::stage;
use gristmill_broker::lease::acquire::Acquired;
use gristmill_broker::pause::{Pause, Target};
use gristmill_broker::said::Said;
use gristmill_broker::{Connection, RedisConfig};
use gristmill_job::QueueName;
use gristmill_testkit::server::{Server, ServerOptions};
use std::time::Duration;
use tokio::sync::mpsc;

const SOON: Duration = Duration::from_secs(10);

/// The next pauses that an actor in the place of a partition is told of.
async fn pauses(hears: &mut mpsc::UnboundedReceiver<Message>) -> Arc<Pauses> {
    let told = async {
        loop {
            if let Some(Message::Pauses(pauses)) = hears.recv().await {
                return pauses;
            }
        }
    };
    tokio::time::timeout(SOON, told).await.expect("a partition is not told what another's acquire heard")
}

/// Another partition of the queue, with or without a lease of this node.
async fn another(partition: u16) -> (Arc<Shared>, mpsc::UnboundedReceiver<Message>) {
    let name = QueueName::new("q").unwrap();
    let keys = QueueDefinition::new(name.clone(), 4).partition(partition);
    let shared = Arc::new(Shared::new(name, partition, keys));
    let (actor, hears) = stage::listener().await;
    shared.register(actor);
    (shared, hears)
}

/// The beats of this node's heartbeat find nothing new afterwards: who is not told now is never told.
#[tokio::test]
async fn where_an_acquire_is_the_first_to_hear_what_is_paused_or_resumed_all_partitions_are_told() {
    let server = Server::start(ServerOptions::new()).unwrap();
    let connection = Connection::open(&RedisConfig::new(server.url()), 1).await.unwrap();
    let stage = Stage::new();
    let partition = stage.start().await;
    let (held, mut hears) = another(1).await;
    let fence = Fence { incarnation: stage.around.incarnation.clone(), epoch: Epoch(3) };
    stage.around.heartbeat.hold(&held, fence, Instant::now());
    let (of_another_node, mut hears_nothing) = another(2).await;

    let acquired = |pauses: Vec<Pause>, request, epoch| {
        let granted = (Acquired::Granted(Epoch(epoch)), connection.clone(), Instant::now());
        let pauses = Some((Instant::now(), UnixMillis(1), pauses));
        let answer = AcquireAnswer { before: Before::default(), outcome: Ok(granted), pauses };
        partition.cast(Message::Acquired(request, Box::new(answer))).unwrap();
    };
    // There is no Redis at this node's address: the answer to what it asks is given here.
    partition.cast(Message::Serve).unwrap();
    let queue = Pause { target: Target::Queue, since: UnixMillis(1), until: None, said: Said::default() };
    acquired(vec![queue], 1, 7);
    assert!(pauses(&mut hears).await.queue());
    assert!(stage.around.heartbeat.pauses(&held.queue).unwrap().now().queue());

    // The tenure is over, and the next acquire hears that it was resumed.
    partition.cast(Message::Event(Epoch(7), Event::Lost(tenure::End::Fenced))).unwrap();
    acquired(vec![], 2, 9);
    assert!(pauses(&mut hears).await.are_none());
    assert!(hears_nothing.try_recv().is_err(), "one that is not served here asks when it acquires");
    drop(of_another_node);
}
