//! The turnstile for jobs that have killed their process more than once: such a job runs alone in the process, so that the
//! next death names the right one.
//!
//! ```text
//!   ask ──▶ waiting ──(first)──▶ clearing ──(no run is alive)──▶ holding ──over──▶ the next one's turn
//!                                   │ ALONE_WAIT: others are asked to stop; and again: they are stopped
//! ```
//!
//! From `clearing` on, workers get no run but the holder's lone one. A partition asks for one place at a time. Whoever asks
//! says [`Alone::over`] in the end, however its tenure ends; until then nothing else starts in the process.

use crate::partition::Message;
use crate::partition::shared::Shared;
use crate::partition::tenure::Event;
use crate::worker::run_queue::{RunQueue, lock};
use gristmill_broker::Epoch;
use gristmill_job::Place;
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::events::job::JobAlone;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// How long other runs may take to finish before they are asked to stop, and again before they are stopped.
pub(crate) const ALONE_WAIT: Duration = Duration::from_secs(5);

/// So many waits in a row; then everything may start again for as long.
const ALONE_WAITS: u32 = 6;

struct Asked {
    ticket: u64,
    partition: Arc<Shared>,
    epoch: Epoch,
    place: Place,
}

#[derive(Default)]
struct Turns {
    tickets: u64,
    /// Whoever is first clears the process, or holds it.
    asked: VecDeque<Asked>,
    holds: bool,
    clearing: Option<AbortHandle>,
}

pub(crate) struct Alone {
    runs: Arc<RunQueue>,
    /// Every partition of the process.
    partitions: Vec<Arc<Shared>>,
    wait: Duration,
    turns: Mutex<Turns>,
    telemetry: Telemetry,
}

impl Alone {
    pub(crate) fn new(
        runs: Arc<RunQueue>,
        partitions: Vec<Arc<Shared>>,
        wait: Duration,
        telemetry: Telemetry,
    ) -> Self {
        Self { runs, partitions, wait, turns: Mutex::default(), telemetry }
    }

    /// The job at this place is to run alone. Its partition is told ([`Event::Alone`]) once it may. Asked again, it is told
    /// again; asked for another place, it goes to the end of the line.
    pub(crate) fn ask(self: &Arc<Self>, shared: &Arc<Shared>, epoch: Epoch, place: Place) {
        let mut turns = lock(&self.turns);
        let mine = turns.asked.iter().position(|asked| Arc::ptr_eq(&asked.partition, shared));
        if let Some(at) = mine {
            if (turns.asked[at].epoch, turns.asked[at].place) == (epoch, place) {
                if at == 0 && turns.holds {
                    shared.cast(Message::Event(epoch, Event::Alone(place)));
                }
                return;
            }
            self.leave(&mut turns, at);
        }
        turns.tickets += 1;
        let asked = Asked { ticket: turns.tickets, partition: shared.clone(), epoch, place };
        turns.asked.push_back(asked);
        self.next_turn(&mut turns);
    }

    /// Ends what that partition asked for or holds, if anything.
    pub(crate) fn over(self: &Arc<Self>, shared: &Shared) {
        let mut turns = lock(&self.turns);
        let mine = turns.asked.iter().position(|asked| std::ptr::eq(Arc::as_ptr(&asked.partition), shared));
        if let Some(at) = mine {
            self.leave(&mut turns, at);
            self.next_turn(&mut turns);
        }
    }

    fn leave(&self, turns: &mut Turns, at: usize) {
        turns.asked.remove(at);
        if at == 0 {
            turns.holds = false;
            if let Some(clearing) = turns.clearing.take() {
                clearing.abort();
            }
            self.runs.close();
        }
    }

    /// Begins to clear the process for whoever is first, unless that is under way; opens it where nobody asks.
    fn next_turn(self: &Arc<Self>, turns: &mut Turns) {
        let Some(first) = turns.asked.front() else {
            self.runs.open();
            return;
        };
        if turns.holds || turns.clearing.is_some() {
            return;
        }
        // Before the look at what is alive: from here on nothing begins.
        self.runs.close();
        let (queue, partition) = (first.partition.queue.as_str(), first.partition.partition);
        let (ticket, place) = (first.ticket, first.place);
        self.telemetry.tell(&JobAlone { queue, partition: u64::from(partition), place: &place });
        let alone = self.clone();
        turns.clearing = Some(tokio::spawn(async move { alone.clear(ticket).await }).abort_handle());
    }

    async fn clear(self: Arc<Self>, ticket: u64) {
        let mut waits = 0;
        while tokio::time::timeout(self.wait, self.runs.quiet()).await.is_err() {
            waits += 1;
            if waits == 1 {
                let hard_stop_at = Instant::now() + self.wait;
                self.partitions.iter().for_each(|shared| shared.soft_cancel(hard_stop_at));
            } else if waits < ALONE_WAITS {
                // Again and again: a first poll may take long, and only after it a run can be stopped.
                self.partitions.iter().for_each(|shared| shared.stop_repeatable());
            } else {
                // A run that may not be stopped goes on for long: the others are not kept waiting for it, the suspect is.
                waits = 0;
                self.runs.open();
                tokio::time::sleep(self.wait * ALONE_WAITS).await;
                self.runs.close();
            }
        }
        let mut turns = lock(&self.turns);
        let Some(first) = turns.asked.front().filter(|first| first.ticket == ticket) else { return };
        self.runs.lend(&first.partition);
        first.partition.cast(Message::Event(first.epoch, Event::Alone(first.place)));
        turns.holds = true;
        turns.clearing = None;
    }
}

#[cfg(test)]
#[path = "alone_tests.rs"]
mod tests;
