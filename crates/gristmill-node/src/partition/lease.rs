//! The lease of a partition: what an acquire answers, and what stands as long as it is held.

use super::State;
use super::line::Line;
use super::pauses::Board;
use super::tenure::Event;
use crate::lease_manager::Look;
use gristmill_broker::lease::acquire::{Acquired, Before};
use gristmill_broker::pause::Pause;
use gristmill_broker::{CallError, Connection, Epoch, Fence};
use gristmill_job::UnixMillis;
use gristmill_telemetry::events::node::{AcquireFailed, QueueDiffers};
use std::sync::Arc;
use std::time::Instant;

/// Answers are waited for twice as long after each tenure that ended soon without one, so often at most.
const MOST_PATIENCE: u32 = 5;

#[derive(Debug)]
pub(crate) struct AcquireAnswer {
    pub(super) before: Before,
    pub(super) outcome: Result<(Acquired, Connection, Instant), CallError>,
    /// What of the queue is paused, when that was asked, and what the Redis clock showed then, where the lease was granted.
    pub(super) pauses: Option<(Instant, UnixMillis, Vec<Pause>)>,
}

impl State {
    pub(super) fn acquired(&mut self, request: u64, answer: AcquireAnswer) {
        if request != self.acquires {
            return;
        }
        self.before = answer.before;
        match answer.outcome {
            Ok((Acquired::Granted(epoch), connection, sent)) => {
                let fence = Fence { incarnation: self.around.incarnation.clone(), epoch };
                self.taken_over(epoch);
                self.before.owner = fence.incarnation.as_str().to_owned();
                self.before.epoch = epoch.to_string();
                self.granted = Some((fence, connection, sent));
                self.absolve();
                self.decide(Event::Acquired(Ok(epoch)));
                // Behind it: from now on the heartbeat tells what it hears, and nothing has started yet.
                if let (Some((asked, now, pauses)), Some(board)) = (answer.pauses, self.board()) {
                    self.shared.redis_clock(now, asked);
                    // Through the heartbeat: it tells the other partitions, which would not hear of a change that is known.
                    self.around.heartbeat.hear_pauses(&self.queue.name, asked, &pauses);
                    self.decide(Event::Pauses(board.now()));
                }
            }
            Ok((Acquired::Held { owner, epoch, left, wanted_by }, ..)) => {
                self.before.owner = owner.as_str().to_owned();
                self.before.epoch = epoch.to_string();
                self.report(Look::Held { owner, left, wanted_by });
                self.absolve();
                self.decide(Event::Acquired(Err(())));
            }
            Ok((Acquired::Differs { partitions }, ..)) => {
                self.around.telemetry.tell(&QueueDiffers {
                    queue: &self.queue.name,
                    partitions: &partitions,
                    configured: u64::from(self.queue.partitions),
                });
                self.decide(Event::Acquired(Err(())));
            }
            Ok((Acquired::Unordered, ..)) => {
                self.around.telemetry.tell(&QueueDiffers {
                    queue: &self.queue.name,
                    partitions: "ordering none",
                    configured: u64::from(self.queue.partitions),
                });
                self.decide(Event::Acquired(Err(())));
            }
            Ok((Acquired::Changed(_) | Acquired::NoQueue, ..)) => self.decide(Event::Acquired(Err(()))),
            Err(error) => {
                self.around.telemetry.tell(&AcquireFailed {
                    queue: &self.queue.name,
                    partition: u64::from(self.shared.partition),
                    error: &error,
                });
                self.decide(Event::Acquired(Err(())));
            }
        }
    }

    /// A tenure begins, or goes on after a hand-over was given up.
    pub(super) fn hold(&mut self, epoch: Epoch) {
        if let Some((fence, connection, sent)) = self.granted.take() {
            self.shared.answered.store(0, std::sync::atomic::Ordering::SeqCst);
            self.around.heartbeat.hold(&self.shared, fence.clone(), sent);
            let unheard = self.unheard.min(MOST_PATIENCE);
            self.held_since = Instant::now();
            self.line = Some(Line::start(
                connection.patient(1 << unheard),
                self.around.line_of(self.shared.partition).clone(),
                fence,
                self.shared.clone(),
                self.shared.seen_window_ms,
                self.around.telemetry.clone(),
            ));
            self.report(Look::Mine);
        }
        self.shared.open_gate(Some(epoch));
    }

    pub(super) fn drop_tenure(&mut self) {
        self.shared.open_gate(None);
        self.around.heartbeat.drop_lease(&self.shared);
        self.around.doorbell.listen(&self.shared, None);
        self.around.promotions.over(&self.shared);
        self.line = None;
        self.withdraw(|_| true);
    }

    /// The pauses of its queue.
    fn board(&self) -> Option<Arc<Board>> {
        self.around.heartbeat.pauses(&self.queue.name).cloned()
    }
}
