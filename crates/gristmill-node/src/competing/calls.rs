//! The calls of a partition without an order. Each is a task that comes back with a message; none waits for another.

use super::events::{Event, Which};
use crate::partition::errands::ask;
use crate::partition::shared::Shared;
use crate::partition::surroundings::Surroundings;
use crate::partition::tenure::Asking;
use crate::partition::{Message, line};
use gristmill_broker::call::Guard;
use gristmill_broker::delayed::Member;
use gristmill_broker::grab::Grabbed;
use gristmill_broker::reclaim::{Reclaim, Reclaimed};
use gristmill_broker::{Call, CallError, Connection, Entry, Fence, QueueDefinition};
use gristmill_job::UnixMillis;
use gristmill_telemetry::events::job::EmittedUnsent;
use ractor::ActorRef;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two tries to enqueue what lies in the outbox.
const FORWARD_AGAIN: Duration = Duration::from_secs(1);

/// Between two tries to hear what is paused.
const PAUSES_AGAIN: Duration = Duration::from_millis(200);

#[derive(Clone)]
pub(super) struct Caller {
    actor: ActorRef<Message>,
    shared: Arc<Shared>,
    queue: QueueDefinition,
    around: Arc<Surroundings>,
}

impl Caller {
    pub(super) fn new(
        actor: ActorRef<Message>,
        shared: Arc<Shared>,
        queue: QueueDefinition,
        around: Arc<Surroundings>,
    ) -> Self {
        Self { actor, shared, queue, around }
    }

    fn connection(&self) -> Result<Connection, CallError> {
        let none = || CallError::NotConnected("none at present".into());
        self.around.line_of(self.shared.partition).current().ok_or_else(none)
    }

    /// Tells the actor, unless it is another one by now.
    fn tell(&self, event: Event) {
        let _ = self.actor.cast(Message::Competing(event));
    }

    /// From now on they are extended.
    fn hold(&self, entries: &[Entry], now: UnixMillis, sent: Instant) {
        self.shared.redis_clock(now, sent);
        if let Some(claims) = &self.shared.claims {
            claims.add(entries.iter().map(|entry| entry.place), sent);
        }
    }

    pub(super) fn grab(&self, call: u64, count: usize, which: Which) {
        let caller = self.clone();
        tokio::spawn(async move {
            let sent = Instant::now();
            let grabbed = match caller.connection() {
                Ok(connection) => {
                    let (keys, incarnation) = (&caller.shared.keys, &caller.around.incarnation);
                    match which {
                        Which::All => connection.grab(keys, incarnation, count).await,
                        Which::New => connection.grab_new(keys, incarnation, count).await,
                    }
                }
                Err(error) => Err(error),
            };
            if let Ok(Grabbed::Jobs { entries, now, .. }) = &grabbed {
                caller.hold(entries, *now, sent);
            }
            caller.tell(Event::Grabbed(call, grabbed));
        });
    }

    pub(super) fn reclaim(&self, call: u64, reclaim: Reclaim) {
        let caller = self.clone();
        tokio::spawn(async move {
            let sent = Instant::now();
            let reclaimed = match caller.connection() {
                Ok(connection) => {
                    connection.reclaim(&caller.shared.keys, &caller.around.incarnation, reclaim).await
                }
                Err(error) => Err(error),
            };
            if let Ok(Reclaimed::Slice { entries, now, .. }) = &reclaimed {
                caller.hold(entries, *now, sent);
            }
            caller.tell(Event::Reclaimed(call, reclaimed));
        });
    }

    pub(super) fn send(&self, number: u64, call: Arc<Call>, pause: Duration) {
        let caller = self.clone();
        tokio::spawn(async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let answered = match caller.connection() {
                Ok(connection) => {
                    let fence = Fence::unordered(&caller.around.incarnation);
                    let guard = Guard::unordered(&caller.shared.keys, &fence, caller.shared.seen_window_ms);
                    connection.call(&call, guard).await
                }
                Err(error) => Err(error),
            };
            caller.tell(Event::Answered(number, answered));
        });
    }

    pub(super) fn promote(&self, slice: Vec<Member>) {
        let caller = self.clone();
        tokio::spawn(async move {
            let promoted = match caller.connection() {
                Ok(connection) => connection.promote(&caller.shared.keys, &slice).await,
                Err(error) => Err(error),
            };
            caller.tell(Event::Promoted(promoted));
        });
    }

    /// Asks the limits of kinds, one question for each kind. What comes back always comes back: a permit hangs on it.
    pub(super) fn admit(&self, asking: Vec<Asking>) {
        let caller = self.clone();
        tokio::spawn(async move {
            let mut of_kinds: BTreeMap<&'static str, Vec<Asking>> = BTreeMap::new();
            for one in asking {
                of_kinds.entry(one.permit.gate.kind).or_default().push(one);
            }
            for (kind, asking) in of_kinds {
                let answers = ask(&caller.around, &caller.queue.name, kind, asking).await;
                caller.tell(Event::Admitted(answers));
            }
        });
    }

    /// What is paused is asked for before the first claim; later the heartbeat tells.
    pub(super) fn hear_pauses(&self) {
        let caller = self.clone();
        tokio::spawn(async move {
            let name = &caller.queue.name;
            let Some(board) = caller.around.heartbeat.pauses(name).cloned() else { return };
            loop {
                let connection = caller.around.line_of(caller.shared.partition).connected().await;
                let asked = Instant::now();
                if let Ok((_, pauses)) = connection.pauses(name).await {
                    caller.around.heartbeat.hear_pauses(name, asked, &pauses);
                    break;
                }
                tokio::time::sleep(PAUSES_AGAIN).await;
            }
            let _ = caller.actor.cast(Message::Pauses(board.now()));
        });
    }

    /// Makes the queue anew: by whoever meets first that it is gone.
    pub(super) fn make(&self) {
        let caller = self.clone();
        tokio::spawn(async move {
            let made = match caller.connection() {
                Ok(connection) => connection.create(&caller.queue).await.is_ok(),
                Err(_) => false,
            };
            caller.tell(Event::Made(made));
        });
    }

    /// Enqueues what lies in the outbox, each by its id, and tells which entries may be removed.
    pub(super) fn forward(&self) {
        let caller = self.clone();
        tokio::spawn(async move {
            let Caller { shared, around, .. } = &caller;
            let forwarded = match caller.connection() {
                Ok(connection) => {
                    line::forward(&connection, &shared.keys, &around.broker, &around.telemetry).await
                }
                Err(error) => Err(error),
            };
            let (ids, more) = match forwarded {
                Ok(forwarded) => forwarded,
                Err(error) => {
                    around.telemetry.tell(&EmittedUnsent { error: &error });
                    tokio::time::sleep(FORWARD_AGAIN).await;
                    (Vec::new(), true)
                }
            };
            caller.tell(Event::Forwarded { ids, more });
        });
    }
}
