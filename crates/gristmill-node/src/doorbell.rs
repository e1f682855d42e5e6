//! The doorbell: one task and one connection that wait for new entries of every partition that may claim, and for the bells of
//! their jobs for later.

use crate::partition::Message as ToPartition;
use crate::partition::shared::Shared;
use crate::worker::run_queue::lock;
use gristmill_broker::{CallError, Connection, Link};
use gristmill_job::Place;
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::events::node::DoorbellLost;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

struct Listener {
    shared: Arc<Shared>,
    from: Place,
}

/// Which partitions want to be rung.
#[derive(Default)]
pub(crate) struct Doorbell {
    listeners: Mutex<HashMap<String, Listener>>,
    /// The last that was heard of each bell of jobs for later: it is not heard once more when its partition listens again.
    bells: Mutex<HashMap<String, Place>>,
    /// There is something to wait for.
    filled: Notify,
    /// The set has grown while a wait may be under way.
    changed: Notify,
    /// Counts the changes, and the last one that the wait under way knows.
    version: AtomicU64,
    known: AtomicU64,
    /// The server's number of the connection that waits, 0 while none does.
    waiting: AtomicU64,
    telemetry: Telemetry,
}

impl Doorbell {
    pub(crate) fn new(telemetry: Telemetry) -> Self {
        Self { telemetry, ..Self::default() }
    }

    /// Rings for entries behind `from`; `None`: does not ring any more.
    pub(crate) fn listen(&self, shared: &Arc<Shared>, from: Option<Place>) {
        let mut listeners = lock(&self.listeners);
        match from {
            Some(from) => {
                listeners.insert(shared.keys.stream.clone(), Listener { shared: shared.clone(), from });
                self.version.fetch_add(1, Ordering::SeqCst);
                drop(listeners);
                self.filled.notify_one();
                self.changed.notify_one();
            }
            // Its entry may wake the wait once for nothing; that is cheaper than ending the wait now.
            None => {
                listeners.remove(&shared.keys.stream);
            }
        }
    }

    fn streams(&self) -> Vec<(String, Place)> {
        let listeners = lock(&self.listeners);
        self.known.store(self.version.load(Ordering::SeqCst), Ordering::SeqCst);
        let bells = lock(&self.bells);
        let mut streams = Vec::with_capacity(2 * listeners.len());
        for (stream, listener) in listeners.iter() {
            let bell = &listener.shared.keys.delayed_bell;
            streams.push((stream.clone(), listener.from));
            streams.push((bell.clone(), bells.get(bell).copied().unwrap_or(Place::ZERO)));
        }
        streams
    }

    fn ring(&self, news: Vec<(String, Place)>) {
        let mut listeners = lock(&self.listeners);
        for (stream, place) in news {
            if let Some(listener) = listeners.get_mut(&stream) {
                listener.from = listener.from.max(place);
                listener.shared.cast(ToPartition::Rung(place));
                continue;
            }
            // Rare: a new first job for later. One that does not listen now hears of it with its renewal.
            let mine = |listener: &&Listener| listener.shared.keys.delayed_bell == stream;
            if let Some(listener) = listeners.values().find(mine) {
                listener.shared.cast(ToPartition::Bell);
                lock(&self.bells).insert(stream, place);
            }
        }
    }

    /// Waits for ever on a link of its own; `commands` is the link that ends a wait when the set changes.
    pub(crate) async fn run(self: Arc<Self>, own: Link, commands: Link, wait: Duration) {
        tokio::join!(self.wait_for_entries(own, wait), self.wake_on_change(commands));
    }

    async fn wait_for_entries(&self, own: Link, wait: Duration) {
        loop {
            let connection = own.connected().await;
            let Ok(client) = connection.client_id().await else {
                tokio::task::yield_now().await;
                continue;
            };
            if let Err(error) = self.wait_on(&connection, client, wait).await {
                self.telemetry.tell(&DoorbellLost { error: &error });
                connection.report(&CallError::Lost(error.to_string()));
                let mut current = own.watch();
                let generation = connection.generation();
                let replaced =
                    |c: &Option<Connection>| c.as_ref().is_none_or(|c| c.generation() != generation);
                let _ = current.wait_for(replaced).await;
            }
            self.waiting.store(0, Ordering::SeqCst);
        }
    }

    async fn wait_on(&self, connection: &Connection, client: u64, wait: Duration) -> Result<(), CallError> {
        loop {
            // Before the look at the set: whoever changes it after the look must find somebody to wake.
            self.waiting.store(client, Ordering::SeqCst);
            let streams = self.streams();
            if streams.is_empty() {
                self.waiting.store(0, Ordering::SeqCst);
                let _ = tokio::time::timeout(wait, self.filled.notified()).await;
                continue;
            }
            let asked: Vec<(&str, Place)> =
                streams.iter().map(|(stream, from)| (stream.as_str(), *from)).collect();
            let news = connection.doorbell(&asked, wait).await?;
            self.ring(news);
        }
    }

    async fn wake_on_change(&self, commands: Link) {
        loop {
            self.changed.notified().await;
            // The wait may be on its way to Redis and not there yet: ended again until it knows the change. A wait that
            // cannot be ended ends by itself within one renewal interval.
            while self.known.load(Ordering::SeqCst) < self.version.load(Ordering::SeqCst) {
                let client = self.waiting.load(Ordering::SeqCst);
                match commands.current() {
                    Some(connection) if client != 0 => match connection.wake(client).await {
                        Ok(true) => break,
                        Ok(false) => tokio::time::sleep(Duration::from_millis(1)).await,
                        Err(_) => break,
                    },
                    _ => break,
                }
            }
        }
    }
}
