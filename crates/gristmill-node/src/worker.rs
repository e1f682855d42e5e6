//! A worker runs handlers. It pulls one run at a time, polls it once where it stands, and lets what does not finish at
//! once go on as a task of its own; so a cheap handler costs no task, and a blocked one holds up one worker and one job.
//!
//! ```text
//!   asleep ──Wake──▶ pulling ──(no run, or no slot)──▶ asleep
//! ```
//!
//! A panic in a handler costs that job's attempt, never a slot or a worker. A handler that holds its thread is given up
//! ([`watch`]) and its worker replaced; the worker that it holds ends with it.

pub(crate) mod alone;
pub(crate) mod attempt;
pub(crate) mod execution;
pub(crate) mod grant;
pub(crate) mod panics;
pub(crate) mod run_queue;
pub(crate) mod slot;
pub(crate) mod stealable;
pub(crate) mod turns;
pub(crate) mod watch;
pub(crate) mod watched;

use execution::Executor;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use run_queue::RunQueue;
use std::sync::Arc;
use watched::Watched;

/// There may be runs to pull.
#[derive(Debug)]
pub(crate) struct Wake;

pub(crate) struct Worker;

pub(crate) struct State {
    index: usize,
    queue: Arc<RunQueue>,
    executor: Arc<Executor>,
    watched: Arc<Watched>,
}

/// Runs before the worker lets other tasks of its thread have their turn.
const RUNS_PER_TURN: usize = 64;

impl Actor for Worker {
    type Msg = Wake;
    type State = State;
    type Arguments = (usize, Arc<RunQueue>, Arc<Executor>);

    async fn pre_start(
        &self,
        myself: ActorRef<Wake>,
        (index, queue, executor): Self::Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let watched = queue.register(index, myself);
        Ok(State { index, queue, executor, watched })
    }

    async fn handle(&self, _: ActorRef<Wake>, _: Wake, state: &mut State) -> Result<(), ActorProcessingErr> {
        loop {
            let mut runs = 0;
            while let Some((partition, run)) = state.queue.pull() {
                if !state.executor.run(&state.watched, partition, run).await {
                    return Ok(());
                }
                runs += 1;
                if runs % RUNS_PER_TURN == 0 {
                    tokio::task::yield_now().await;
                }
            }
            if state.queue.sleep(state.index) {
                return Ok(());
            }
        }
    }
}
