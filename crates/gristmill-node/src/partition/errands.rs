//! What a partition asks of Redis beside its numbered calls: the lease, parked jobs, the outbox. Each errand is a task that
//! comes back with a message; one that comes too late is dropped by its epoch or its number.

use super::surroundings::Surroundings;
use super::tenure::{Asking, Event};
use super::{AcquireAnswer, Message, Orphan, State, line};
use crate::partition::lanes::LaneId;
use gristmill_broker::admit::{Admission, Admit, Admitted};
use gristmill_broker::call::MAX_JOBS_PER_CALL;
use gristmill_broker::lease::acquire::{Acquire, Acquired};
use gristmill_broker::{CallError, Epoch, Fence};
use gristmill_job::{Place, QueueName};
use gristmill_telemetry::events::job::{EmittedUnsent, JobAbsolved, JobNotAbsolved, ParkedUnread};
use gristmill_telemetry::events::node::LimitUnanswered;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Between two tries to read parked jobs.
const LOAD_AGAIN: Duration = Duration::from_millis(100);
/// Between two tries to take back a charge.
const ABSOLVE_AGAIN: Duration = Duration::from_secs(1);
/// Between two tries to enqueue what lies in the outbox.
const FORWARD_AGAIN: Duration = Duration::from_secs(1);

impl State {
    /// Asks for the lease until there is an answer other than "look again".
    pub(super) fn acquire(&mut self, highest: Epoch, pause: Duration) {
        self.acquires += 1;
        let request = self.acquires;
        let (around, queue, partition) = (self.around.clone(), self.queue.clone(), self.shared.partition);
        let (myself, mut before) = (self.myself.clone(), self.before.clone());
        let limit = self.shared.length_limit;
        tokio::spawn(async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let connection = around.line_of(partition).connected().await;
            let mut outcome = loop {
                let sent = Instant::now();
                let acquire = Acquire {
                    queue: &queue,
                    partition,
                    incarnation: &around.incarnation,
                    ttl: around.lease_ttl,
                    highest,
                    before: &before,
                };
                match connection.acquire(&acquire).await {
                    Ok(Acquired::Changed(now)) => before = now,
                    // A flush took the queue: it is made again, by whoever meets it first.
                    Ok(Acquired::NoQueue) => match connection.create(&queue).await {
                        Ok(()) => {
                            if let Err(error) = connection.set_length_limit(&queue, limit).await {
                                break Err(error);
                            }
                        }
                        Err(error) => break Err(CallError::Unexpected(error.to_string())),
                    },
                    Ok(acquired) => break Ok((acquired, connection, sent)),
                    Err(error) => break Err(error),
                }
            };
            // Before anything starts it is known what is paused; without that the lease is of no use.
            let (asked, mut pauses) = (Instant::now(), None);
            if let Ok((Acquired::Granted(_), connection, _)) = &outcome {
                match connection.pauses(&queue.name).await {
                    Ok((now, all)) => pauses = Some((asked, now, all)),
                    Err(error) => outcome = Err(error),
                }
            }
            let answer = AcquireAnswer { before, outcome, pauses };
            let _ = myself.cast(Message::Acquired(request, Box::new(answer)));
        });
    }

    /// Takes back what the next owner of the partition made, or will make, of runs that were alone: this process lives.
    pub(super) fn absolve(&mut self) {
        for orphan in std::mem::take(&mut self.orphans) {
            let Orphan { place, turn, epoch } = orphan;
            let (around, keys, partition) =
                (self.around.clone(), self.shared.keys.clone(), self.shared.partition);
            tokio::spawn(async move {
                let run = Fence { incarnation: around.incarnation.clone(), epoch };
                loop {
                    let connection = around.line_of(partition).connected().await;
                    match connection.absolve(&keys, &run, turn, place).await {
                        Ok(absolved) => {
                            let absolved = &format!("{absolved:?}").to_lowercase();
                            around.telemetry.tell(&JobAbsolved { place: &place, absolved });
                            return;
                        }
                        Err(error) => {
                            around.telemetry.tell(&JobNotAbsolved { place: &place, error: &error });
                            tokio::time::sleep(ABSOLVE_AGAIN).await;
                        }
                    }
                }
            });
        }
    }

    /// Reads parked jobs again, until Redis answers or the tenure is over.
    pub(super) fn load(&self, lane: LaneId, places: Vec<Place>) {
        let Some(line) = &self.line else { return };
        let (connection, keys) = (line.connection().clone(), self.shared.keys.clone());
        let (epoch, myself) = (self.machine.epoch(), self.myself.clone());
        let telemetry = self.around.telemetry.clone();
        tokio::spawn(async move {
            let loaded = loop {
                match connection.load(&keys, &places).await {
                    Ok(loaded) => break loaded,
                    // A broken connection ends the tenure, which drops the lanes and whatever was to be read.
                    Err(error) if error.breaks_connection() => return,
                    Err(error) => {
                        telemetry.tell(&ParkedUnread { error: &error });
                        tokio::time::sleep(LOAD_AGAIN).await;
                    }
                }
            };
            let _ = myself.cast(Message::Event(epoch, Event::Loaded(lane, loaded)));
        });
    }

    /// Asks the limits of kinds whether runs may begin; one question for each kind. What comes back always comes back: a permit
    /// that nobody takes frees its slot.
    pub(super) fn admit(&self, asking: Vec<Asking>) {
        let (around, epoch, myself) = (self.around.clone(), self.machine.epoch(), self.myself.clone());
        let queue = self.queue.name.clone();
        tokio::spawn(async move {
            let mut of_kinds: BTreeMap<&'static str, Vec<Asking>> = BTreeMap::new();
            for one in asking {
                of_kinds.entry(one.permit.gate.kind).or_default().push(one);
            }
            for (kind, mut asking) in of_kinds {
                while !asking.is_empty() {
                    let rest = asking.split_off(asking.len().min(MAX_JOBS_PER_CALL));
                    let answers = ask(&around, &queue, kind, std::mem::replace(&mut asking, rest)).await;
                    let _ = myself.cast(Message::Event(epoch, Event::Admitted(answers)));
                }
            }
        });
    }

    /// Enqueues what lies in the outbox, each by its id, and tells which entries may be removed.
    pub(super) fn forward(&self) {
        let Some(line) = &self.line else { return };
        let (connection, keys, broker) =
            (line.connection().clone(), self.shared.keys.clone(), self.around.broker.clone());
        let (epoch, myself) = (self.machine.epoch(), self.myself.clone());
        let telemetry = self.around.telemetry.clone();
        tokio::spawn(async move {
            let forwarded = line::forward(&connection, &keys, &broker, &telemetry).await;
            let (ids, more) = match forwarded {
                Ok(forwarded) => forwarded,
                Err(error) => {
                    telemetry.tell(&EmittedUnsent { error: &error });
                    tokio::time::sleep(FORWARD_AGAIN).await;
                    (Vec::new(), true)
                }
            };
            let _ = myself.cast(Message::Event(epoch, Event::Forwarded { ids, more }));
        });
    }
}

/// Asks for runs of one kind, and tells their permits.
pub(crate) async fn ask(
    around: &Surroundings,
    queue: &QueueName,
    kind: &'static str,
    asking: Vec<Asking>,
) -> Vec<(Asking, Option<Admitted>)> {
    let limit = asking.first().map(|one| one.permit.gate.limit).unwrap_or_default();
    let runs: Vec<Admit> = asking.iter().map(|one| one.permit.asks(one.entry.key.clone())).collect();
    let (incarnation, ttl) = (&around.incarnation, around.lease_ttl);
    let has_none = asking.first().is_none_or(|one| one.permit.gate.holds() == 0);
    let admission = Admission { queue, kind, limit: &limit, incarnation, ttl, has_none };
    let sent = Instant::now();
    let said = match around.link.current() {
        Some(connection) => connection.admit(&admission, &runs).await,
        None => Err(CallError::NotConnected("no connection".into())),
    };
    let asked = &around.telemetry.metrics().limit_asked_total;
    let said: Vec<Option<Admitted>> = match said {
        Ok(said) => said.into_iter().map(Some).collect(),
        Err(error) => {
            around.telemetry.tell(&LimitUnanswered {
                queue: queue.as_str(),
                kind,
                answer: "unanswered",
                error: &error,
            });
            vec![None; asking.len()]
        }
    };
    let until = sent + around.heartbeat.trust();
    for (one, said) in asking.iter().zip(&said) {
        one.permit.answered(*said, until, rand::random());
        if let Some(said) = said {
            asked.with(&[queue.as_str(), kind, word(*said)]).add(1);
        }
    }
    asking.into_iter().zip(said).collect()
}

fn word(said: Admitted) -> &'static str {
    match said {
        Admitted::Slot | Admitted::Passed => "admitted",
        Admitted::Full(_) => "full",
        Admitted::Until(_) | Admitted::KeyUntil(_) => "rate",
        Admitted::Fenced => "fenced",
    }
}
