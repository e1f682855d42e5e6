//! Decides which partitions this node asks for, and asks. What it decides is in [`plan`]; it holds no lease itself.

mod assignment;
mod plan;

pub(crate) use plan::Look;

use crate::partition::Message as ToPartition;
use crate::partition::shared::Shared;
use crate::partition::surroundings::Surroundings;
use crate::partition::tenure::Why;
use crate::worker::run_queue::lock;
use gristmill_broker::announce::Member;
use gristmill_broker::lease::want::Wanted;
use gristmill_broker::{Connection, QueueDefinition};
use gristmill_job::QueueName;
use gristmill_telemetry::Stage;
use gristmill_telemetry::events::job::RunsAbandoned;
use plan::{Ask, Plan};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

#[derive(Debug)]
pub(crate) enum Message {
    /// Time to look.
    Tick,
    /// Who serves a queue.
    Members(QueueName, Vec<Member>),
    /// What was seen of a partition.
    Looked(QueueName, u16, Look),
    /// Who owns the partitions of a queue at all.
    Owners(QueueName, Vec<bool>),
    /// A wish for a partition was noted.
    Wanted(QueueName, u16),
    /// Leave: ask for nothing more, give up everything; answer when nothing is left.
    Drain(oneshot::Sender<()>),
    /// A partition without an order holds nothing any more.
    Left(QueueName, u16),
    /// A partition was abandoned with so many runs alive.
    Abandoned(QueueName, u16, usize),
}

pub(crate) struct LeaseManager;

pub(crate) struct Arguments {
    /// Queues whose partitions are leased.
    pub(crate) queues: Vec<(QueueDefinition, Vec<Arc<Shared>>)>,
    /// The partitions of the other queues: nobody owns them, and they are only asked to leave.
    pub(crate) unordered: Vec<Arc<Shared>>,
    pub(crate) around: Arc<Surroundings>,
}

pub(crate) struct State {
    queues: HashMap<QueueName, Queue>,
    /// Partitions without an order that may hold something.
    unordered: Vec<Arc<Shared>>,
    around: Arc<Surroundings>,
    left: Option<oneshot::Sender<()>>,
}

struct Queue {
    definition: QueueDefinition,
    partitions: Vec<Arc<Shared>>,
    plan: Plan,
    owners_at: Instant,
}

/// How often the plan is looked at.
const TICK: Duration = Duration::from_millis(50);

impl Actor for LeaseManager {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        Arguments { queues, unordered, around }: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        *lock(&around.manager) = Some(myself.clone());
        around.heartbeat.register_manager(myself.clone());
        let now = Instant::now();
        queues.iter().flat_map(|(_, partitions)| partitions).for_each(|held| held.cast(ToPartition::Report));
        let queues = queues.into_iter().map(|(definition, partitions)| {
            let plan = Plan::new(around.incarnation.clone(), around.lease_ttl, definition.partitions, now);
            let owners_at = now + around.lease_ttl;
            (definition.name.clone(), Queue { definition, partitions, plan, owners_at })
        });
        drop(myself.send_after(TICK, || Message::Tick));
        Ok(State { queues: queues.collect(), unordered, around, left: None })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let now = Instant::now();
        match message {
            Message::Tick => {
                state.look(&myself, now);
                drop(myself.send_after(TICK, || Message::Tick));
            }
            Message::Members(queue, members) => {
                if let Some(queue) = state.queues.get_mut(&queue) {
                    queue.plan.members(members);
                }
                state.look(&myself, now);
                if state.queues.values().all(|queue| queue.plan.is_known()) {
                    state.around.telemetry.reach(Stage::Ready);
                }
            }
            Message::Looked(queue, partition, look) => {
                if let Some(queue) = state.queues.get_mut(&queue) {
                    queue.plan.looked(partition, look, now);
                }
                state.leave_if_empty();
            }
            Message::Owners(queue, owned) => {
                if let Some(queue) = state.queues.get_mut(&queue) {
                    queue.plan.owners(&owned, now);
                }
            }
            Message::Wanted(queue, partition) => {
                if let Some(queue) = state.queues.get_mut(&queue) {
                    queue.plan.wanted(partition, now);
                }
            }
            Message::Drain(left) => {
                state.left = Some(left);
                state.around.heartbeat.drain();
                for queue in state.queues.values_mut() {
                    queue.plan.drain();
                    for partition in &queue.partitions {
                        partition.cast(ToPartition::Yield(Why::Drain));
                    }
                }
                for partition in &state.unordered {
                    partition.cast(ToPartition::Yield(Why::Drain));
                }
                state.leave_if_empty();
            }
            Message::Left(queue, partition) => {
                state.unordered.retain(|shared| (&shared.queue, shared.partition) != (&queue, partition));
                state.leave_if_empty();
            }
            Message::Abandoned(queue, partition, runs) => {
                if runs > 0 {
                    let (partition, runs) = (u64::from(partition), runs as u64);
                    state.around.telemetry.tell(&RunsAbandoned { queue: &queue, partition, runs });
                }
            }
        }
        Ok(())
    }
}

impl State {
    /// Answers a drain once no partition is mine.
    fn leave_if_empty(&mut self) {
        if self.queues.values().all(|queue| queue.plan.busy() == 0)
            && self.unordered.is_empty()
            && let Some(left) = self.left.take()
        {
            let _ = left.send(());
        }
    }

    fn look(&mut self, myself: &ActorRef<Message>, now: Instant) {
        for queue in self.queues.values_mut() {
            for ask in queue.plan.ask(now) {
                match ask {
                    Ask::Serve(partition) => {
                        if let Some(shared) = queue.partitions.get(usize::from(partition)) {
                            shared.cast(ToPartition::Serve);
                        }
                    }
                    Ask::Want(partition) => {
                        if let (Some(shared), Some(connection)) =
                            (queue.partitions.get(usize::from(partition)), self.around.link.current())
                        {
                            tokio::spawn(want(
                                self.around.clone(),
                                connection,
                                shared.clone(),
                                myself.clone(),
                            ));
                        }
                    }
                }
            }
            if now >= queue.owners_at
                && let Some(connection) = self.around.link.current()
            {
                queue.owners_at = now + self.around.lease_ttl;
                tokio::spawn(owners(connection, queue.definition.clone(), myself.clone()));
            }
        }
    }
}

async fn want(
    around: Arc<Surroundings>,
    connection: Connection,
    shared: Arc<Shared>,
    myself: ActorRef<Message>,
) {
    // Two lease times: long enough for a slow owner, and over by itself if this node dies.
    let wanted = connection.want(&shared.keys, &around.incarnation, around.lease_ttl * 2).await;
    if matches!(wanted, Ok(Wanted::Noted | Wanted::Free)) {
        let _ = myself.cast(Message::Wanted(shared.queue.clone(), shared.partition));
    }
}

async fn owners(connection: Connection, queue: QueueDefinition, myself: ActorRef<Message>) {
    if let Ok(owned) = connection.owned(&queue).await {
        let _ = myself.cast(Message::Owners(queue.name, owned));
    }
}
