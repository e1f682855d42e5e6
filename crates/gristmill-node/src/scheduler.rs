//! Fires the slots of this node's schedules. Every node that serves a queue does, for all schedules of it: whoever comes first
//! wins, the others are told. What is to be done is decided in [`ticker`] (pure); this actor asks Redis for it.
//!
//! ```text
//!             Wake              define, fire: tasks beside the actor              Asked
//!   timer ───────────▶ look ──────────────────────────────────────▶ Redis ──────────────────▶ look
//!                       └─ sets the timer to the next slot, or the next time to confirm
//! ```
//!
//! While Redis is away, slots wait; when it is back, what was missed is made up for as each schedule says. A node that
//! leaves fires nothing more; others, or the next one, do.

mod clock;
mod ticker;
mod told;

use crate::partition::surroundings::Surroundings;
use clock::RedisClock;
use gristmill_broker::call::{MAX_BYTES_PER_CALL, MAX_JOBS_PER_CALL};
use gristmill_broker::schedule::define::{Define, DefineAnswer, Defined};
use gristmill_broker::schedule::fire::{Fire, FireAnswer, Fired};
use gristmill_broker::{CallError, PartitionKeys, QueueDefinition};
use gristmill_job::{EncodeError, JobLimits, UnixMillis, partition_of};
use gristmill_schedule::Schedule;
use gristmill_telemetry::trace::Traces;
use gristmill_telemetry::trace::sending::Sending;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use ticker::{Ask, News, Now, Ticker};
use tokio::task::AbortHandle;

/// Calls of fire that are on their way at a time.
const MOST_FIRES: usize = 64;
/// Longest time without a look, whatever the tickers say.
const LONGEST_REST: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) enum Message {
    /// Time to look.
    Wake,
    /// How definitions stand.
    Defined { who: Vec<usize>, sent: Instant, heard: Instant, answer: Result<DefineAnswer, CallError> },
    /// What became of a slot.
    Fired { who: usize, sent: Instant, heard: Instant, answer: Result<FireAnswer, CallError> },
    /// Fire nothing more.
    Leave,
}

pub(crate) struct Scheduler;

/// A schedule with where its jobs go.
#[derive(Clone)]
pub(crate) struct Scheduled {
    pub(crate) schedule: Schedule,
    pub(crate) queue: QueueDefinition,
}

pub(crate) struct Arguments {
    pub(crate) schedules: Vec<Scheduled>,
    pub(crate) limits: JobLimits,
    pub(crate) around: Arc<Surroundings>,
}

struct Seat {
    ticker: Ticker,
    queue: QueueDefinition,
    partition: u16,
    keys: Arc<PartitionKeys>,
    /// The span of the call that is on its way, whose context its job carries.
    sending: Option<Sending>,
}

impl Seat {
    fn fire(&mut self, traces: Option<&Traces>) -> Result<Fire, EncodeError> {
        let (queue, sending) = (&self.queue.name, &mut self.sending);
        self.ticker.fire(UnixMillis::from_system(SystemTime::now()), |schedule, slot, job| {
            let sent = traces.and_then(|it| it.send(queue, job.kind.as_str(), &mut job.headers, None));
            *sending = sent.map(|sent| sent.of_slot(schedule.name().as_str(), slot.0));
        })
    }

    /// Of the nodes that fire a slot one enqueues its job, and with it the context of its span. The others' are of nothing.
    fn fired(&mut self, now: Now, redis: UnixMillis, fired: Fired, traces: Option<&Traces>) -> News {
        let place = if let Fired::At(place) = &fired { Some(*place) } else { None };
        let news = self.ticker.fired(now, redis, fired);
        let sending = self.sending.take();
        if let (News::Fired { slot, .. }, Some(sending), Some(traces)) = (&news, sending, traces) {
            let id = self.ticker.schedule().job_id(*slot);
            traces.sent(sending, Ok((id.to_string(), place)));
        }
        news
    }
}

pub(crate) struct State {
    seats: Vec<Seat>,
    /// Whose turn it is to be looked at first.
    first: usize,
    fires: usize,
    clock: RedisClock,
    timer: Option<AbortHandle>,
    around: Arc<Surroundings>,
    leaving: bool,
}

impl Actor for Scheduler {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        Arguments { schedules, limits, around }: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let seat = |Scheduled { schedule, queue }| Seat {
            partition: partition_of(Schedule::key(&schedule).as_bytes(), queue.partitions),
            keys: Arc::new(queue.partition(partition_of(schedule.key().as_bytes(), queue.partitions))),
            ticker: Ticker::new(schedule, around.incarnation.as_str(), limits),
            queue,
            sending: None,
        };
        let seats = schedules.into_iter().map(seat).collect();
        let _ = myself.cast(Message::Wake);
        let clock = RedisClock::default();
        Ok(State { seats, first: 0, fires: 0, clock, timer: None, around, leaving: false })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let mut looks = true;
        match message {
            Message::Wake => {}
            Message::Leave => state.leaving = true,
            Message::Defined { who, sent, heard, answer } => state.defined(&who, sent, heard, answer),
            Message::Fired { who, sent, heard, answer } => {
                state.fired(who, sent, heard, answer);
                // As long as enough calls are on their way, their answers make room for many at once.
                looks = state.fires <= MOST_FIRES / 2;
            }
        }
        if looks && !state.leaving {
            state.look(&myself);
        }
        Ok(())
    }
}

impl State {
    fn now(&self, instant: Instant) -> Now {
        Now { instant, redis: self.clock.at(instant) }
    }

    fn defined(
        &mut self,
        who: &[usize],
        sent: Instant,
        heard: Instant,
        answer: Result<DefineAnswer, CallError>,
    ) {
        let (answers, failed) = match answer {
            Ok(DefineAnswer::Defined(redis, defined)) => {
                self.clock.heard(redis, sent, heard);
                (defined, String::new())
            }
            Ok(DefineAnswer::NoQueue) => (Vec::new(), "its queue is gone, and is made again".to_owned()),
            Err(error) => (Vec::new(), error.to_string()),
        };
        let now = self.now(heard);
        let mut answers: Vec<Option<Defined>> = answers.into_iter().map(Some).collect();
        answers.resize(who.len(), None);
        for (index, answer) in who.iter().zip(answers) {
            let Some(seat) = self.seats.get_mut(*index) else { continue };
            let news = match answer {
                Some(defined) => seat.ticker.defined(now, defined),
                None => seat.ticker.failed(now, &failed),
            };
            told::tell(&self.around.telemetry, &seat.ticker, news);
        }
    }

    fn fired(&mut self, who: usize, sent: Instant, heard: Instant, answer: Result<FireAnswer, CallError>) {
        self.fires = self.fires.saturating_sub(1);
        let (fired, failed) = match answer {
            Ok(FireAnswer::Fired(redis, fired)) => {
                self.clock.heard(redis, sent, heard);
                (Some((redis, fired)), String::new())
            }
            Ok(FireAnswer::NoQueue) => (None, "its queue is gone, and is made again".to_owned()),
            Ok(FireAnswer::Differs { partitions }) => {
                (None, format!("its queue was made anew with {partitions} partitions; restart this node"))
            }
            Err(error) => (None, error.to_string()),
        };
        let now = self.now(heard);
        let Some(seat) = self.seats.get_mut(who) else { return };
        let news = match fired {
            Some((redis, fired)) => seat.fired(now, redis, fired, self.around.telemetry.traces()),
            None => seat.ticker.failed(now, &failed),
        };
        told::tell(&self.around.telemetry, &seat.ticker, news);
    }

    /// Asks for what is to be done now, and sets the timer to when there will be more.
    fn look(&mut self, myself: &ActorRef<Message>) {
        let instant = Instant::now();
        let now = self.now(instant);
        let connection = self.around.link.current();
        let mut wake = instant + LONGEST_REST;
        let mut defines: BTreeMap<(String, u16), Vec<(usize, Define)>> = BTreeMap::new();
        let count = self.seats.len();
        for step in 0..count {
            let index = (self.first + step) % count;
            let Some(seat) = self.seats.get_mut(index) else { continue };
            match seat.ticker.ask(now) {
                Ask::Nothing(until) => wake = wake.min(until),
                // Whoever waits for a connection is looked at soon.
                _ if connection.is_none() => wake = wake.min(instant + NO_CONNECTION_REST),
                Ask::Define => {
                    let partition = (seat.queue.name.to_string(), seat.partition);
                    defines.entry(partition).or_default().push((index, seat.ticker.define()));
                }
                // An answer makes room, and looks again: at this one first.
                Ask::Fire if self.fires >= MOST_FIRES => {
                    self.first = index;
                    break;
                }
                Ask::Fire => match (seat.fire(self.around.telemetry.traces()), &connection) {
                    (Ok(fire), Some(connection)) => {
                        self.fires += 1;
                        let (connection, keys) = (connection.clone(), seat.keys.clone());
                        let partitions = seat.queue.partitions;
                        let myself = myself.clone();
                        tokio::spawn(async move {
                            let sent = Instant::now();
                            let answer = connection.fire(&keys, partitions, &fire).await;
                            let heard = Instant::now();
                            let _ = myself.cast(Message::Fired { who: index, sent, heard, answer });
                        });
                    }
                    (Err(error), _) => {
                        let news = seat.ticker.failed(now, &error.to_string());
                        told::tell(&self.around.telemetry, &seat.ticker, news);
                        wake = wake.min(instant + NO_CONNECTION_REST);
                    }
                    (Ok(_), None) => {}
                },
            }
        }
        if let Some(connection) = connection {
            for batch in defines.into_values().flat_map(batches) {
                self.define(&connection, myself, batch);
            }
        }
        if let Some(timer) = self.timer.take() {
            timer.abort();
        }
        let timer = myself.send_after(wake.saturating_duration_since(instant), || Message::Wake);
        self.timer = Some(timer.abort_handle());
    }

    fn define(
        &self,
        connection: &gristmill_broker::Connection,
        myself: &ActorRef<Message>,
        batch: Vec<(usize, Define)>,
    ) {
        let (who, definitions): (Vec<usize>, Vec<Define>) = batch.into_iter().unzip();
        let Some(seat) = who.first().and_then(|index| self.seats.get(*index)) else { return };
        let (connection, keys, myself) = (connection.clone(), seat.keys.clone(), myself.clone());
        tokio::spawn(async move {
            let sent = Instant::now();
            let answer = connection.define(&keys, &definitions).await;
            let _ = myself.cast(Message::Defined { who, sent, heard: Instant::now(), answer });
        });
    }
}

/// How soon a connection is looked for again.
const NO_CONNECTION_REST: Duration = Duration::from_millis(50);

/// What one call takes.
fn batches(all: Vec<(usize, Define)>) -> Vec<Vec<(usize, Define)>> {
    let mut batches: Vec<Vec<(usize, Define)>> = Vec::new();
    let mut bytes = 0;
    for one in all {
        bytes += one.1.definition.len() + 256;
        match batches.last_mut() {
            Some(batch) if batch.len() < MAX_JOBS_PER_CALL && bytes <= MAX_BYTES_PER_CALL => batch.push(one),
            _ => {
                bytes = one.1.definition.len() + 256;
                batches.push(vec![one]);
            }
        }
    }
    batches
}
