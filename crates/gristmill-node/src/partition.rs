//! The actor of one partition: performs what its state machine ([`tenure`]) decides.
//!
//! There is one for every partition of every queue the node serves, for the whole life of the process: idle while
//! another node owns the partition. It sends the calls of a tenure in order through one task ([`line`]).
//!
//! Here: the actor and its messages. `lease` is what it holds while it owns the partition, `errands` what it asks Redis beside the
//! numbered calls, `notes` what it counts and logs, `surroundings` what it shares with the other partitions.

pub(crate) mod calls;
pub(crate) mod errands;
mod key_hasher;
pub(crate) mod lanes;
mod lease;
pub(crate) mod line;
pub(crate) mod notes;
pub(crate) mod pauses;
pub(crate) mod policy;
pub(crate) mod shared;
pub(crate) mod spans;
pub(crate) mod surroundings;
pub(crate) mod tenure;
pub(crate) mod told;
pub(crate) mod verdict;
pub(crate) mod way;

use crate::competing;
use crate::lease_manager::{Look, Message as ToManager};
use gristmill_broker::lease::acquire::Before;
use gristmill_broker::{Answer, CallError, Connection, Epoch, Fence, QueueDefinition};
use gristmill_job::{Place, UnixMillis};
use lease::AcquireAnswer;
use line::Line;
use notes::Notes;
use pauses::Pauses;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use shared::Shared;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use surroundings::Surroundings;
use tenure::{Action, Bounds, Ended, Event, Now, Ran, Run, Tenure, Why};
use told::Told;

#[derive(Debug)]
pub(crate) enum Message {
    /// Try to own it.
    Serve,
    /// Tell the lease manager if it is held: a manager that was started again knows nothing.
    Report,
    /// Give it up.
    Yield(Why),
    /// Something that belongs to the tenure of this epoch.
    Event(Epoch, Event),
    /// This is paused of the queue, and nothing else.
    Pauses(Arc<Pauses>),
    /// Acquire was answered, for this request.
    Acquired(u64, Box<AcquireAnswer>),
    /// Runs have ended; see [`Shared::take_ended`].
    Ended,
    /// The limit of a kind lets a lane of it ask.
    Opened,
    /// The doorbell rang.
    Rung(Place),
    /// The bell of jobs for later rang.
    Bell,
    /// The time asked for has come.
    Wake(u64),
    /// The last act before exit.
    Abandon,
    /// Something that belongs to a partition whose ordering is none.
    Competing(competing::Event),
}

pub(crate) struct Partition;

pub(crate) struct Arguments {
    pub(crate) shared: Arc<Shared>,
    pub(crate) queue: QueueDefinition,
    pub(crate) bounds: Bounds,
    pub(crate) told: Arc<Told>,
    pub(crate) around: Arc<Surroundings>,
}

/// A run that was alone when its tenure ended; see [`tenure::Action::Orphaned`].
#[derive(Debug, Clone, Copy)]
struct Orphan {
    place: Place,
    turn: u32,
    epoch: Epoch,
}

pub(crate) struct State {
    myself: ActorRef<Message>,
    shared: Arc<Shared>,
    queue: QueueDefinition,
    around: Arc<Surroundings>,
    machine: Tenure,
    /// The connection and the task of the tenure.
    line: Option<Line>,
    granted: Option<(Fence, Connection, Instant)>,
    before: Before,
    acquires: u64,
    wake_at: Option<(Instant, u64)>,
    wakes: u64,
    actions: Vec<Action>,
    /// Tenures in a row that ended soon, since an answer stayed away: an answer may be large, and the network slow.
    unheard: u32,
    held_since: Instant,
    /// Runs that may be charged with a death that did not happen.
    orphans: Vec<Orphan>,
    /// Runs of an actor that failed before this one are still alive: nothing is served until they ended.
    inherits_runs: bool,
    told: Arc<Told>,
    notes: Notes,
    /// Since when it is given up.
    yields_since: Option<Instant>,
}

impl Actor for Partition {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        Arguments { shared, queue, bounds, told, around }: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        // An actor that failed before this one may have held a lease: nobody renews it any more, and the manager asks again.
        shared.open_gate(None);
        around.heartbeat.drop_lease(&shared);
        around.doorbell.listen(&shared, None);
        around.alone.over(&shared);
        around.promotions.over(&shared);
        drop(around.runs.withdraw(&shared));
        // Before the look at what has ended: who tells after it must wake this actor, not the one before.
        shared.register(myself.clone());
        let inherits_runs = shared.alive() > 0;
        shared.take_ended();
        let idle = Look::Idle { end: None, released: false };
        around.tell_manager(ToManager::Looked(queue.name.clone(), shared.partition, idle));
        let node: Arc<str> = around.incarnation.as_str().into();
        let machine = Tenure::new(bounds, node, shared.partition);
        told.stands(&shared.stands, machine.standing());
        let notes = Notes::new(shared.clone(), around.clone(), &told);
        Ok(State {
            myself,
            shared,
            queue,
            around,
            machine,
            line: None,
            granted: None,
            before: Before::default(),
            acquires: 0,
            wake_at: None,
            wakes: 0,
            actions: Vec::new(),
            unheard: 0,
            held_since: Instant::now(),
            orphans: Vec::new(),
            inherits_runs,
            told,
            notes,
            yields_since: None,
        })
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Serve => {
                state.inherits_runs &= state.shared.alive() > 0;
                if state.inherits_runs {
                    state.report(Look::Busy);
                } else {
                    state.report_held();
                    state.decide(Event::Serve);
                }
            }
            Message::Report => state.report_held(),
            Message::Yield(why) => {
                if state.machine.is_idle() {
                    state.report(Look::Idle { end: None, released: false });
                }
                state.decide(Event::Yield(why));
            }
            Message::Event(epoch, event) => {
                if state.machine.epoch() == epoch {
                    state.decide(event);
                }
            }
            Message::Pauses(pauses) => state.decide(Event::Pauses(pauses)),
            Message::Acquired(request, answer) => state.acquired(request, *answer),
            Message::Ended => {
                let ended = state.shared.take_ended();
                state.decide(Event::Ended(ended));
            }
            Message::Opened => state.decide(Event::Tick),
            Message::Rung(place) => state.decide(Event::Rung(place)),
            Message::Bell => state.decide(Event::Bell),
            Message::Wake(wake) => {
                if state.wake_at.is_some_and(|(_, armed)| armed == wake) {
                    state.wake_at = None;
                    state.decide(Event::Tick);
                }
            }
            // The supervisor starts another actor for such a partition.
            Message::Competing(_) => {}
            Message::Abandon => {
                let mut actions = std::mem::take(&mut state.actions);
                let abandoned = state.machine.abandon(&mut actions);
                state.perform(&mut actions);
                state.actions = actions;
                state.around.tell_manager(ToManager::Abandoned(
                    state.queue.name.clone(),
                    state.shared.partition,
                    abandoned,
                ));
            }
        }
        Ok(())
    }
}

impl State {
    fn decide(&mut self, event: Event) {
        let instant = Instant::now();
        let wall = UnixMillis::from_system(SystemTime::now());
        let now = Now {
            instant,
            wall,
            redis: self.shared.redis_now(instant).unwrap_or(wall),
            trusted: self.shared.trusted(instant),
            waits: self.shared.waits(),
            random: rand::random(),
        };
        let mut actions = std::mem::take(&mut self.actions);
        self.machine.decide(event, now, &mut actions);
        self.told.stands(&self.shared.stands, self.machine.standing());
        self.perform(&mut actions);
        self.actions = actions;
    }

    fn report(&self, look: Look) {
        self.around.tell_manager(ToManager::Looked(self.queue.name.clone(), self.shared.partition, look));
    }

    fn report_held(&self) {
        if !self.machine.is_idle() {
            self.report(Look::Mine);
        }
    }

    fn perform(&mut self, actions: &mut Vec<Action>) {
        for action in actions.drain(..) {
            match action {
                Action::Acquire { highest, pause } => self.acquire(highest, pause),
                Action::Hold(epoch) => self.hold(epoch),
                Action::Drop => self.drop_tenure(),
                Action::Send(number, call) => {
                    if let Some(line) = &self.line {
                        line.send(number, call);
                    }
                }
                Action::Start(runs) => self.around.runs.push(&self.shared, runs),
                Action::Withdraw => {
                    self.yields_since = Some(Instant::now());
                    self.shared.leave();
                    self.withdraw(|run| !run.acknowledged);
                }
                Action::Recall => self.withdraw(|run| !run.acknowledged),
                Action::Cancel(place) => self.cancel(place),
                Action::Listen(from) => self.around.doorbell.listen(&self.shared, from),
                Action::Load(lane, places) => self.load(lane, places),
                Action::Forward => self.forward(),
                Action::Admit(asking) => self.admit(asking),
                Action::Orphaned { place, turn, epoch } => self.orphans.push(Orphan { place, turn, epoch }),
                Action::Repaired(things) => self.notes.repaired(things),
                Action::Unstarted(jobs) => self.notes.unstarted(jobs),
                Action::AskAlone(place) => {
                    self.around.alone.ask(&self.shared, self.machine.epoch(), place);
                }
                Action::AloneOver => self.around.alone.over(&self.shared),
                Action::WakeAt(at) => self.wake_at(at),
                Action::Idle { end, released } => {
                    if let Some(end) = end {
                        self.around.counters.tenure_ended(end);
                        self.left(end);
                    }
                    self.report(Look::Idle { end, released });
                }
                Action::Ended(end) => self.ended(end),
                Action::AskPromote => self.around.promotions.ask(&self.shared, self.machine.epoch()),
                Action::PromoteOver => self.around.promotions.over(&self.shared),
                Action::Promoted { moved, late, lost } => self.notes.promoted(moved, late, lost),
                Action::Done(jobs) => self.around.counters.done(jobs),
                Action::Ran(runs) => self.notes.ran(runs),
                Action::HandedBack(jobs) => self.notes.handed_back(jobs),
                Action::Outcome { entry, settled, reason } => self.notes.outcome(&entry, &settled, reason),
            }
        }
    }

    /// What has not started comes back as such; the others go on waiting for their worker.
    fn withdraw(&self, back: impl Fn(&Run) -> bool) {
        let (back, rest): (Vec<Run>, Vec<Run>) =
            self.around.runs.withdraw(&self.shared).into_iter().partition(back);
        for Run { epoch, lane, entry, turn, .. } in back {
            self.shared.tell(Ended { epoch, lane, entry, turn, ran: Ran::NotStarted, attempt: None });
        }
        self.around.runs.push(&self.shared, rest);
    }

    /// Its run has not started and comes back, or is asked to stop.
    fn cancel(&self, place: Place) {
        self.shared.cancel(place);
        self.withdraw(|run| run.entry.place == place && !run.acknowledged);
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

/// Whether a numbered answer tells that Redis executed it.
fn was_answered(result: &Result<Answer, CallError>) -> bool {
    matches!(result, Ok(answer) if !matches!(answer, Answer::Refused(_)))
}

#[cfg(test)]
#[path = "partition/lease_tests.rs"]
mod lease_tests;

#[cfg(test)]
#[path = "partition/restart_tests.rs"]
mod restart_tests;
