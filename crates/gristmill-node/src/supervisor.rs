//! Starts the actors of a node, starts again what fails, and stops them in order.
//!
//! A failed actor is a bug, not a job's error. It is started again; more than [`RESTARTS`] within [`RESTART_SPAN`] is
//! escalated: the node ends with an error, and its leases expire or are released by whoever starts it again.

use crate::competing::{self, Competing};
use crate::lease_manager::{self, LeaseManager, Message as ToManager};
use crate::partition::shared::Shared;
use crate::partition::surroundings::Surroundings;
use crate::partition::tenure::Bounds;
use crate::partition::told::Told;
use crate::partition::{self, Message as ToPartition, Partition};
use crate::scheduler::{self, Message as ToScheduler, Scheduled, Scheduler};
use crate::worker::Worker;
use crate::worker::execution::Executor;
use crate::worker::watch::Watch;
use gristmill_broker::{Mode, QueueDefinition};
use gristmill_job::JobLimits;
use gristmill_telemetry::events::node::ActorRestarted;
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Restarts within [`RESTART_SPAN`] beyond which the node gives up.
const RESTARTS: usize = 10;
const RESTART_SPAN: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) enum Message {
    /// Give everything up; answered when nothing is left.
    Drain(oneshot::Sender<()>),
    /// The last act before exit: release also what still runs.
    Abandon,
    /// The worker of this seat is held by a handler: another takes its seat.
    Replace(usize),
    /// Say that you move.
    Tick,
    /// Stop every actor, workers last.
    Stop(oneshot::Sender<()>),
}

pub(crate) struct Supervisor;

/// One queue, with what its partitions share.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) definition: QueueDefinition,
    pub(crate) bounds: Bounds,
    /// Of a queue with ordering none.
    pub(crate) visibility_timeout: Duration,
    pub(crate) told: Arc<Told>,
    pub(crate) partitions: Vec<Arc<Shared>>,
}

pub(crate) struct Arguments {
    pub(crate) queues: Vec<Served>,
    pub(crate) around: Arc<Surroundings>,
    pub(crate) executor: Arc<Executor>,
    pub(crate) watch: Arc<Watch>,
    /// Recurring jobs of these queues.
    pub(crate) schedules: Vec<Scheduled>,
    pub(crate) limits: JobLimits,
    /// Told when the node cannot go on.
    pub(crate) failed: mpsc::UnboundedSender<String>,
}

/// Which child an actor is, to start it again.
#[derive(Clone)]
enum Child {
    Manager,
    Scheduler,
    Worker(usize),
    Partition(usize, u16),
}

pub(crate) struct State {
    arguments: Arguments,
    children: HashMap<ActorId, (Child, ActorCell)>,
    manager: Option<ActorRef<ToManager>>,
    scheduler: Option<ActorRef<ToScheduler>>,
    draining: bool,
    restarts: VecDeque<Instant>,
    stopping: bool,
}

impl Actor for Supervisor {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let mut state = State {
            children: HashMap::new(),
            manager: None,
            scheduler: None,
            draining: false,
            restarts: VecDeque::new(),
            stopping: false,
            arguments,
        };
        for index in 0..state.arguments.around.runs.workers() {
            state.start(&myself, Child::Worker(index)).await?;
        }
        for queue in 0..state.arguments.queues.len() {
            for partition in 0..state.arguments.queues[queue].definition.partitions {
                state.start(&myself, Child::Partition(queue, partition)).await?;
            }
        }
        if !state.arguments.schedules.is_empty() {
            state.start(&myself, Child::Scheduler).await?;
        }
        // Last: it begins to ask for partitions at once.
        state.start(&myself, Child::Manager).await?;
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Drain(left) => {
                state.draining = true;
                if let Some(scheduler) = &state.scheduler {
                    let _ = scheduler.cast(ToScheduler::Leave);
                }
                if let Some(manager) = &state.manager {
                    let _ = manager.cast(ToManager::Drain(left));
                }
            }
            Message::Abandon => {
                for partition in state.arguments.queues.iter().flat_map(|queue| &queue.partitions) {
                    partition.cast(ToPartition::Abandon);
                }
            }
            Message::Replace(index) => state.replace(&myself, index).await,
            Message::Tick => state.arguments.watch.moved(Instant::now()),
            Message::Stop(stopped) => {
                state.stop().await;
                let _ = stopped.send(());
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Message>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let (cell, why) = match event {
            SupervisionEvent::ActorFailed(cell, error) => (cell, error.to_string()),
            SupervisionEvent::ActorTerminated(cell, _, reason) => {
                (cell, reason.unwrap_or_else(|| "ended".into()))
            }
            _ => return Ok(()),
        };
        let Some((child, _)) = state.children.remove(&cell.get_id()) else { return Ok(()) };
        if state.stopping {
            return Ok(());
        }
        let event = ActorRestarted { actor: &child.name(), why: &why };
        state.arguments.around.telemetry.tell(&event);
        state.arguments.around.counters.restarted();
        if state.too_many_restarts(Instant::now()) {
            let _ = state.arguments.failed.send(format!("{} failed too often, last: {why}", child.name()));
            return Ok(());
        }
        if let Err(error) = state.start(&myself, child.clone()).await {
            let _ = state.arguments.failed.send(format!("{} cannot be started again: {error}", child.name()));
        }
        Ok(())
    }
}

impl Child {
    fn name(&self) -> String {
        match self {
            Self::Manager => "the lease manager".into(),
            Self::Scheduler => "the scheduler".into(),
            Self::Worker(index) => format!("worker {index}"),
            Self::Partition(_, partition) => format!("partition {partition}"),
        }
    }
}

impl State {
    fn too_many_restarts(&mut self, now: Instant) -> bool {
        self.restarts.retain(|at| now.duration_since(*at) < RESTART_SPAN);
        self.restarts.push_back(now);
        self.restarts.len() > RESTARTS
    }

    async fn start(&mut self, myself: &ActorRef<Message>, child: Child) -> Result<(), ActorProcessingErr> {
        let supervisor = myself.get_cell();
        let Arguments { queues, around, executor, .. } = &self.arguments;
        let cell = match &child {
            Child::Manager => {
                let (leased, unordered): (Vec<&Served>, Vec<&Served>) =
                    queues.iter().partition(|queue| queue.definition.mode == Mode::Key);
                let of = |queue: &Served| (queue.definition.clone(), queue.partitions.clone());
                let arguments = lease_manager::Arguments {
                    queues: leased.into_iter().map(of).collect(),
                    unordered: unordered.into_iter().flat_map(|queue| queue.partitions.clone()).collect(),
                    around: around.clone(),
                };
                let (manager, _) = Actor::spawn_linked(None, LeaseManager, arguments, supervisor).await?;
                self.manager = Some(manager.clone());
                manager.get_cell()
            }
            Child::Scheduler => {
                let arguments = scheduler::Arguments {
                    schedules: self.arguments.schedules.clone(),
                    limits: self.arguments.limits,
                    around: around.clone(),
                };
                let (scheduler, _) = Actor::spawn_linked(None, Scheduler, arguments, supervisor).await?;
                if self.draining {
                    let _ = scheduler.cast(ToScheduler::Leave);
                }
                self.scheduler = Some(scheduler.clone());
                scheduler.get_cell()
            }
            Child::Worker(index) => {
                let arguments = (*index, around.runs.clone(), executor.clone());
                Actor::spawn_linked(None, Worker, arguments, supervisor).await?.0.get_cell()
            }
            Child::Partition(queue, partition) => {
                let queue = &queues[*queue];
                if queue.definition.mode == Mode::None {
                    let arguments = competing::Arguments {
                        shared: queue.partitions[usize::from(*partition)].clone(),
                        queue: queue.definition.clone(),
                        bounds: competing::machine::Bounds {
                            claim_jobs: queue.bounds.claim_jobs,
                            visibility_timeout: queue.visibility_timeout,
                            census_every: queue.bounds.census_every,
                            policy: queue.bounds.policy.clone(),
                        },
                        told: queue.told.clone(),
                        around: around.clone(),
                    };
                    let started = Actor::spawn_linked(None, Competing, arguments, supervisor).await?;
                    self.children.insert(started.0.get_id(), (child, started.0.get_cell()));
                    return Ok(());
                }
                let arguments = partition::Arguments {
                    shared: queue.partitions[usize::from(*partition)].clone(),
                    queue: queue.definition.clone(),
                    bounds: queue.bounds.clone(),
                    told: queue.told.clone(),
                    around: around.clone(),
                };
                Actor::spawn_linked(None, Partition, arguments, supervisor).await?.0.get_cell()
            }
        };
        self.children.insert(cell.get_id(), (child, cell));
        Ok(())
    }

    /// The worker before ends by itself, once its handler lets go.
    async fn replace(&mut self, myself: &ActorRef<Message>, index: usize) {
        if self.stopping {
            return;
        }
        let held =
            self.children.iter().find(|(_, (child, _))| matches!(child, Child::Worker(at) if *at == index));
        if let Some(id) = held.map(|(id, _)| *id)
            && let Some((_, cell)) = self.children.remove(&id)
        {
            cell.stop(None);
        }
        if let Err(error) = self.start(myself, Child::Worker(index)).await {
            let _ = self.arguments.failed.send(format!("worker {index} cannot be replaced: {error}"));
        }
    }

    /// In order: who asks for partitions, who owns them, who runs jobs. A parent that stops kills its children, so they
    /// are stopped before it.
    async fn stop(&mut self) {
        self.stopping = true;
        let rank = |child: &Child| match child {
            Child::Manager | Child::Scheduler => 0,
            Child::Partition(..) => 1,
            Child::Worker(_) => 2,
        };
        let mut children: Vec<(Child, ActorCell)> = self.children.drain().map(|(_, child)| child).collect();
        children.sort_by_key(|(child, _)| rank(child));
        for (_, cell) in children {
            let _ = cell.stop_and_wait(None, Some(STOP_WAIT)).await;
        }
    }
}

/// How long one actor may take to stop; a worker held by a handler that blocks its thread does not stop at all.
const STOP_WAIT: Duration = Duration::from_millis(100);
