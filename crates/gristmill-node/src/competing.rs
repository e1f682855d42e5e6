//! The actor of one partition whose ordering is none: performs what its state machine ([`machine`]) decides.
//!
//! There is one for every partition of every such queue the node serves, for the whole life of the process; all nodes serve
//! all of them. What it claims is extended by the heartbeat's thread ([`claims`]), so that a runtime that is blocked loses
//! nothing. Its calls carry no number and wait for no other: each is a task of its own.

mod calls;
pub(crate) mod claims;
mod events;
pub(crate) mod machine;

pub(crate) use events::{Action, Event, Now};

use crate::lease_manager::Message as ToManager;
use crate::partition::Message;
use crate::partition::notes::Notes;
use crate::partition::shared::Shared;
use crate::partition::surroundings::Surroundings;
use crate::partition::tenure::{self, Ended, Ran, Run};
use crate::partition::told::Told;
use calls::Caller;
use claims::Claims;
use gristmill_broker::{Epoch, Fence, QueueDefinition};
use gristmill_job::{Place, UnixMillis};
use gristmill_telemetry::events::job::{ClaimsLost, ClaimsRecovered, JobAbsolved, JobNotAbsolved};
use gristmill_telemetry::events::node::QueueDiffers;
use machine::{Bounds, Machine};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

pub(crate) struct Competing;

pub(crate) struct Arguments {
    pub(crate) shared: Arc<Shared>,
    pub(crate) queue: QueueDefinition,
    pub(crate) bounds: Bounds,
    pub(crate) told: Arc<Told>,
    pub(crate) around: Arc<Surroundings>,
}

/// A run whose claim was lost has so long to finish tidily; it is not stopped then, but its result is refused either way.
const LOST_WAIT: Duration = Duration::from_secs(5);
/// Between two tries to take back a charge.
const ABSOLVE_AGAIN: Duration = Duration::from_secs(1);

pub(crate) struct State {
    myself: ActorRef<Message>,
    shared: Arc<Shared>,
    queue: QueueDefinition,
    around: Arc<Surroundings>,
    machine: Machine,
    caller: Caller,
    notes: Notes,
    wake_at: Option<(Instant, u64)>,
    wakes: u64,
    actions: Vec<Action>,
    /// Runs of an actor that failed before this one are still alive: nothing is claimed until they ended.
    inherits_runs: bool,
}

impl Actor for Competing {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        Arguments { shared, queue, bounds, told, around }: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        // What an actor that failed before this one held is extended by nobody, and comes back by its timeout.
        shared.open_gate(None);
        around.doorbell.listen(&shared, None);
        around.alone.over(&shared);
        around.runs.ask(&shared, 0);
        drop(around.runs.withdraw(&shared));
        if let Some(claims) = &shared.claims {
            claims.clear();
        }
        shared.register(myself.clone());
        let inherits_runs = shared.alive() > 0;
        shared.take_ended();
        let now = Instant::now();
        // Of this life of the actor: it tells its runs from those of the one before, and names dead letters.
        let epoch = Epoch(wall().0.max(1));
        let node: Arc<str> = around.incarnation.as_str().into();
        let state = State {
            machine: Machine::new(bounds, node, shared.partition, epoch, now),
            caller: Caller::new(myself.clone(), shared.clone(), queue.clone(), around.clone()),
            notes: Notes::new(shared.clone(), around.clone(), &told),
            myself: myself.clone(),
            shared,
            queue,
            around,
            wake_at: None,
            wakes: 0,
            actions: Vec::new(),
            inherits_runs,
        };
        if !inherits_runs {
            state.shared.open_gate(Some(epoch));
        }
        let first = match state.around.heartbeat.is_draining() {
            true => Message::Yield(tenure::Why::Drain),
            false => Message::Competing(Event::Tick),
        };
        let _ = myself.cast(first);
        state.caller.hear_pauses();
        Ok(state)
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Competing(event) => state.decide(event),
            Message::Ended => {
                let ended = state.shared.take_ended();
                state.decide(Event::Ended(ended));
            }
            Message::Rung(place) => state.decide(Event::Rung(place)),
            Message::Bell => state.decide(Event::Bell),
            Message::Opened => state.decide(Event::Tick),
            Message::Pauses(pauses) => state.decide(Event::Pauses(pauses)),
            Message::Event(_, tenure::Event::Alone(place)) => state.decide(Event::Alone(place)),
            Message::Yield(tenure::Why::Drain) => {
                state.inherits_runs = false;
                state.decide(Event::Drain);
                if state.machine.has_left() {
                    state.tell_left();
                }
            }
            Message::Wake(wake) => {
                if state.wake_at.is_some_and(|(_, armed)| armed == wake) {
                    state.wake_at = None;
                    state.decide(Event::Tick);
                }
            }
            Message::Abandon => {
                let mut actions = std::mem::take(&mut state.actions);
                let abandoned = state.machine.abandon(&mut actions);
                state.perform(&mut actions);
                state.actions = actions;
                let (queue, partition) = (state.queue.name.clone(), state.shared.partition);
                state.around.tell_manager(ToManager::Abandoned(queue, partition, abandoned));
            }
            // Where nothing is leased, nobody asks for it.
            Message::Serve
            | Message::Report
            | Message::Yield(_)
            | Message::Event(..)
            | Message::Acquired(..) => {}
        }
        Ok(())
    }
}

fn wall() -> UnixMillis {
    UnixMillis::from_system(SystemTime::now())
}

impl State {
    fn decide(&mut self, event: Event) {
        if self.inherits_runs {
            if self.shared.alive() > 0 {
                return self.wake_at(Instant::now() + INHERITED_WAIT);
            }
            self.inherits_runs = false;
            self.shared.open_gate(Some(self.machine.epoch()));
        }
        let (instant, wall) = (Instant::now(), wall());
        let shared = self.shared.clone();
        let trusts =
            |place: Place| shared.claims.as_ref().is_some_and(|claims| claims.trusts(place, instant));
        let runs = self.around.runs.clone();
        let free_slots = || runs.free_slots();
        let now = Now {
            instant,
            wall,
            redis: self.shared.redis_now(instant).unwrap_or(wall),
            random: rand::random(),
            free_slots: &free_slots,
            trusts: &trusts,
        };
        let mut actions = std::mem::take(&mut self.actions);
        self.machine.decide(event, now, &mut actions);
        self.perform(&mut actions);
        self.actions = actions;
    }

    fn claims(&self, act: impl FnOnce(&Claims)) {
        if let Some(claims) = &self.shared.claims {
            act(claims);
        }
    }

    fn perform(&mut self, actions: &mut Vec<Action>) {
        for action in actions.drain(..) {
            match action {
                Action::Ask(slots) => self.around.runs.ask(&self.shared, slots),
                Action::Grab(call, count, which) => self.caller.grab(call, count, which),
                Action::Reclaim(call, reclaim) => self.caller.reclaim(call, reclaim),
                Action::Send(number, call, pause) => self.caller.send(number, call, pause),
                Action::Make => self.caller.make(),
                Action::Forward => self.caller.forward(),
                Action::Promoted { moved, late, lost } => self.notes.promoted(moved, late, lost),
                Action::Promote(slice) => self.caller.promote(slice),
                Action::Differs(mode) => self.differs(&mode),
                Action::Admit(asking) => self.caller.admit(asking),
                Action::Start(runs) => self.around.runs.push(&self.shared, runs),
                Action::Forget(place) => self.claims(|claims| claims.remove(place)),
                Action::Cancel(place) => self.shared.cancel(place),
                Action::SoftCancel(place) => {
                    self.shared.soft_cancel_at(place, Instant::now() + LOST_WAIT);
                }
                Action::AskAlone(place) => {
                    self.around.alone.ask(&self.shared, self.machine.epoch(), place);
                }
                Action::AloneOver => self.around.alone.over(&self.shared),
                Action::Orphaned { place, turn } => self.absolve(place, turn),
                Action::Lost(claims) => self.lost(claims),
                Action::Recovered(claims) => self.recovered(claims),
                Action::Over(worst) => self.claims(|claims| claims.saw_over(worst)),
                Action::Recall => self.withdraw(),
                Action::Withdraw => {
                    self.shared.leave();
                    self.withdraw();
                }
                Action::Listen(from) => self.around.doorbell.listen(&self.shared, from),
                Action::WakeAt(at) => self.wake_at(at),
                Action::Left => {
                    self.shared.open_gate(None);
                    self.tell_left();
                }
                Action::Done(jobs) => self.around.counters.done(jobs),
                Action::Ran(runs) => self.notes.ran(runs),
                Action::HandedBack(jobs) => self.notes.handed_back(jobs),
                Action::Unstarted(jobs) => self.notes.unstarted(jobs),
                Action::Repaired(things) => self.notes.repaired(things),
                Action::Outcome { entry, settled, reason } => self.notes.outcome(&entry, &settled, reason),
            }
        }
    }

    fn tell_left(&self) {
        self.around.tell_manager(ToManager::Left(self.queue.name.clone(), self.shared.partition));
    }

    /// What has not started comes back as such; what was acknowledged goes on waiting for its worker.
    fn withdraw(&self) {
        let (rest, back): (Vec<Run>, Vec<Run>) =
            self.around.runs.withdraw(&self.shared).into_iter().partition(|run| run.acknowledged);
        for Run { epoch, lane, entry, turn, .. } in back {
            self.shared.tell(Ended { epoch, lane, entry, turn, ran: Ran::NotStarted, attempt: None });
        }
        self.around.runs.push(&self.shared, rest);
    }

    fn differs(&self, mode: &str) {
        self.around.telemetry.tell(&QueueDiffers {
            queue: &self.queue.name,
            partitions: &format!("ordering {mode:?}"),
            configured: u64::from(self.queue.partitions),
        });
    }

    fn lost(&self, claims: usize) {
        self.around.counters.claims_lost(claims);
        let (queue, partition) = (self.queue.name.as_str(), u64::from(self.shared.partition));
        self.around.telemetry.tell(&ClaimsLost { queue, partition, claims: claims as u64 });
    }

    fn recovered(&self, claims: usize) {
        let (queue, partition) = (self.queue.name.as_str(), u64::from(self.shared.partition));
        self.around.telemetry.tell(&ClaimsRecovered { queue, partition, claims: claims as u64 });
    }

    /// Takes back what another node made, or will make, of a run that was alone: this process lives.
    fn absolve(&self, place: Place, turn: u32) {
        let (around, keys, partition) =
            (self.around.clone(), self.shared.keys.clone(), self.shared.partition);
        tokio::spawn(async move {
            let run = Fence::unordered(&around.incarnation);
            loop {
                let connection = around.line_of(partition).connected().await;
                match connection.absolve(&keys, &run, turn, place).await {
                    Ok(absolved) => {
                        let absolved = &format!("{absolved:?}").to_lowercase();
                        return around.telemetry.tell(&JobAbsolved { place: &place, absolved });
                    }
                    Err(error) => {
                        around.telemetry.tell(&JobNotAbsolved { place: &place, error: &error });
                        tokio::time::sleep(ABSOLVE_AGAIN).await;
                    }
                }
            }
        });
    }

    fn wake_at(&mut self, at: Instant) {
        if self.wake_at.is_some_and(|(armed, _)| armed <= at) {
            return;
        }
        self.wakes += 1;
        let wake = self.wakes;
        self.wake_at = Some((at, wake));
        let after = at.saturating_duration_since(Instant::now());
        drop(self.myself.send_after(after, move || Message::Wake(wake)));
    }
}

/// Between two looks whether runs of an actor that failed have ended.
const INHERITED_WAIT: Duration = Duration::from_millis(200);
