//! One connection to Redis, kept alive by a task of its own.
//!
//! ```text
//!            made            broken, or useless (replica, loading, no script), or silent too often
//! Waiting ─────────▶ Connected ─────────────────────────────────────────────────────────────▶ Waiting (backoff, jitter)
//! ```
//!
//! A connection has a generation: a tenure belongs to one and ends with it. The library's own retries are off; every
//! response has a timeout, and a timeout is an unknown, not a failure.

use crate::error::CallError;
use crate::script;
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::events::others::{RedisConnected, RedisLost, RedisUnreachable};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, IntoConnectionInfo, Pipeline, Value};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// How Redis is reached.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisConfig {
    /// `redis://[user:password@]host:port[/db]`, or `rediss://` for TLS.
    pub url: String,
    /// The certificate authority to trust with `rediss://`, PEM; the system's where it is `None`.
    pub ca_pem: Option<Vec<u8>>,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest wait for an answer.
    pub response_timeout: Duration,
    /// Where is told what becomes of connections and calls.
    pub telemetry: Telemetry,
}

impl RedisConfig {
    /// Timeouts of 2 s and 1 s.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ca_pem: None,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(1),
            telemetry: Telemetry::default(),
        }
    }

    /// The address without user and password, also where it is misspelled, and without what follows a `?`.
    #[must_use]
    pub fn redacted_url(&self) -> String {
        let scheme = self.url.split_once("://").map_or("", |(scheme, _)| scheme);
        match (self.url.split_once('?'), self.url.rsplit_once('@')) {
            (Some((_, query)), _) if query.contains('@') => format!("{scheme}://***"),
            (Some((address, _)), None) => format!("{address}?***"),
            (_, Some((_, host))) => {
                format!("{scheme}://***@{}", host.split_once('?').map_or(host, |(host, _)| host))
            }
            (None, None) => self.url.clone(),
        }
    }

    fn client(&self) -> Result<redis::Client, CallError> {
        let refused = |e: redis::RedisError| {
            CallError::NotConnected(format!("{} is no usable Redis address: {e}", self.redacted_url()))
        };
        let settings = redis::io::tcp::TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(redis::io::tcp::socket2::TcpKeepalive::new().with_time(Duration::from_secs(10)))
            .set_user_timeout(Duration::from_secs(10));
        let info = self.url.as_str().into_connection_info().map_err(refused)?.set_tcp_settings(settings);
        match &self.ca_pem {
            Some(pem) if self.url.starts_with("rediss://") => redis::Client::build_with_tls(
                info,
                redis::TlsCertificates { client_tls: None, root_cert: Some(pem.clone()) },
            ),
            _ => redis::Client::open(info),
        }
        .map_err(refused)
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("url", &self.redacted_url())
            .field("ca_pem", &self.ca_pem.as_ref().map(|pem| pem.len()))
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .finish()
    }
}

/// Requests that the library keeps until they are written: more than there can be, since whoever asks waits for the answer.
/// One that found no room would not be sent by its first poll, and a later one of the same tenure could overtake it.
const UNWRITTEN: usize = 1 << 20;
/// Answers that may stay away in a row before the connection is replaced.
const SILENCES: u32 = 3;
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
const BACKOFF_CAP: Duration = Duration::from_secs(2);

/// One live connection. Cheap to clone; requests are sent in the order their futures are first polled.
#[derive(Clone)]
pub struct Connection {
    inner: MultiplexedConnection,
    generation: u64,
    health: Arc<Health>,
    response_timeout: Duration,
    telemetry: Telemetry,
}

#[derive(Default)]
struct Health {
    silences: AtomicU32,
    broken: Notify,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({})", self.generation)
    }
}

impl Connection {
    /// Which connection of its link this is, counted from 1.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The same connection, with `times` the patience for its answers.
    #[must_use]
    pub fn patient(&self, times: u32) -> Self {
        let mut patient = self.clone();
        patient.inner.set_response_timeout(self.response_timeout.saturating_mul(times));
        patient
    }

    /// Connects once and loads every script.
    ///
    /// # Errors
    /// [`CallError::NotConnected`] with what Redis or the network said.
    pub async fn open(config: &RedisConfig, generation: u64) -> Result<Self, CallError> {
        // Only the first call installs it; later ones find it there.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let settings = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(Some(config.connect_timeout))
            .set_response_timeout(Some(config.response_timeout))
            .set_pipeline_buffer_size(UNWRITTEN);
        let client = config.client()?;
        let connecting = client.get_multiplexed_async_connection_with_config(&settings);
        let inner = tokio::time::timeout(config.connect_timeout * 2, connecting)
            .await
            .map_err(|_| CallError::NotConnected(format!("{} did not answer", config.redacted_url())))?
            .map_err(|e| CallError::NotConnected(format!("{}: {e}", config.redacted_url())))?;
        let response_timeout = config.response_timeout;
        let telemetry = config.telemetry.clone();
        let connection = Self { inner, generation, health: Arc::default(), response_timeout, telemetry };
        // A server that wants a password closes the connection at the first long script, and says why only to a short command.
        crate::reply::text(connection.one(redis::cmd("PING")).await?)?;
        let mut load = Pipeline::with_capacity(script::ALL.len());
        for script in script::ALL {
            load.add_command(script.load());
        }
        for answer in connection.many(load, script::ALL.len()).await? {
            crate::reply::text(answer)?;
        }
        Ok(connection)
    }

    /// Sends commands in one pipeline and waits for `answers` values. Sent when first polled.
    pub(crate) async fn many(&self, pipeline: Pipeline, answers: usize) -> Result<Vec<Value>, CallError> {
        let result = self.inner.clone().send_packed_commands(&pipeline, 0, answers).await;
        self.judge(result)
    }

    /// Sends one command. Sent when first polled.
    pub(crate) async fn one(&self, command: Cmd) -> Result<Value, CallError> {
        let result = self.inner.clone().send_packed_command(&command).await;
        let value = self.judge(result)?;
        match value {
            Value::ServerError(error) => self.judge(Err(redis::RedisError::from(error))),
            value => Ok(value),
        }
    }

    /// Measures a call until its answer; without one there is nothing to measure.
    pub(crate) async fn timed<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let sent = Instant::now();
        let answered = call.await;
        if answered.is_ok() {
            self.telemetry.called(operation, sent.elapsed());
        }
        answered
    }

    /// Keeps the count of silences and reports a connection that is of no more use.
    fn judge<T>(&self, result: redis::RedisResult<T>) -> Result<T, CallError> {
        match result {
            Ok(value) => {
                self.health.silences.store(0, Ordering::Relaxed);
                Ok(value)
            }
            Err(error) => {
                let error = CallError::from(error);
                self.report(&error);
                Err(error)
            }
        }
    }

    /// Tells the link what a call met, so that a useless connection is replaced.
    pub fn report(&self, error: &CallError) {
        let silences = match error {
            CallError::Unknown => self.health.silences.fetch_add(1, Ordering::Relaxed) + 1,
            error if error.breaks_connection() => SILENCES,
            _ => 0,
        };
        if silences >= SILENCES {
            self.health.broken.notify_one();
        }
    }

    /// Sends a numbered call of a tenure. Sent when first polled, so the caller decides the order.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::Unknown`] and [`CallError::Lost`] leave open whether it ran.
    pub async fn call(
        &self,
        call: &crate::call::Call,
        guard: crate::call::Guard<'_>,
    ) -> Result<crate::call::Answer, CallError> {
        let pipeline = call.write(guard);
        let answers = pipeline.len();
        let values = self.timed(call.name(), self.many(pipeline, answers)).await?;
        let answer = call.read(values);
        if let Err(error) = &answer {
            self.report(error);
        }
        answer
    }
}

/// The current connection, if any, and the task that keeps there being one.
#[derive(Clone)]
pub struct Link {
    current: watch::Receiver<Option<Connection>>,
    replaced: Arc<AtomicU64>,
    // Dropping the last handle ends the task.
    _alive: Arc<watch::Sender<()>>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({:?})", self.current.borrow())
    }
}

impl Link {
    /// Starts the task on the current runtime. `role` names the connection in logs.
    #[must_use]
    pub fn start(config: RedisConfig, role: &'static str) -> Self {
        let (publish, current) = watch::channel(None);
        let (alive, gone) = watch::channel(());
        let replaced = Arc::new(AtomicU64::new(0));
        tokio::spawn(keep_connected(config, role, publish, gone, replaced.clone()));
        Self { current, replaced, _alive: Arc::new(alive) }
    }

    /// The connection of this moment.
    #[must_use]
    pub fn current(&self) -> Option<Connection> {
        self.current.borrow().clone()
    }

    /// Follows the connection: a value for each that is made, `None` in between.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Option<Connection>> {
        self.current.clone()
    }

    /// Waits until there is a connection.
    pub async fn connected(&self) -> Connection {
        let mut current = self.current.clone();
        loop {
            if let Ok(found) = current.wait_for(Option::is_some).await
                && let Some(connection) = found.clone()
            {
                return connection;
            }
            // The task ends only with the last handle, and we hold one.
            tokio::task::yield_now().await;
        }
    }

    /// How often a connection was replaced.
    #[must_use]
    pub fn replacements(&self) -> u64 {
        self.replaced.load(Ordering::Relaxed)
    }
}

async fn keep_connected(
    config: RedisConfig,
    role: &'static str,
    publish: watch::Sender<Option<Connection>>,
    mut gone: watch::Receiver<()>,
    replaced: Arc<AtomicU64>,
) {
    let mut generation = 0;
    let mut failures = 0_u32;
    loop {
        tokio::select! {
            opened = Connection::open(&config, generation + 1) => match opened {
                Ok(connection) => {
                    generation += 1;
                    failures = 0;
                    let redis = &config.redacted_url();
                    config.telemetry.connected(&RedisConnected { role, generation, redis });
                    let health = connection.health.clone();
                    let _ = publish.send(Some(connection));
                    tokio::select! {
                        () = health.broken.notified() => {}
                        _ = gone.changed() => return,
                    }
                    let _ = publish.send(None);
                    replaced.fetch_add(1, Ordering::Relaxed);
                    config.telemetry.lost(&RedisLost { role, generation });
                }
                Err(error) => {
                    failures += 1;
                    config.telemetry.unreachable(&RedisUnreachable {
                        role,
                        failures: u64::from(failures),
                        error: &error,
                    });
                }
            },
            _ = gone.changed() => return,
        }
        tokio::select! {
            () = tokio::time::sleep(backoff(failures, rand::random())) => {}
            _ = gone.changed() => return,
        }
    }
}

/// Full jitter above half of an exponential that ends at [`BACKOFF_CAP`]. `random` is uniform in `[0, 1)`.
fn backoff(failures: u32, random: f64) -> Duration {
    let ceiling = BACKOFF_FIRST.saturating_mul(1 << failures.min(10)).min(BACKOFF_CAP);
    ceiling / 2 + (ceiling / 2).mul_f64(random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_to_its_cap() {
        assert!(backoff(0, 0.5) < backoff(3, 0.5));
        assert_eq!(backoff(40, 1.0), BACKOFF_CAP);
    }

    #[test]
    fn no_password_is_shown() {
        let config = RedisConfig::new("rediss://user:se@cret@db.example:6380/0");
        assert_eq!(config.redacted_url(), "rediss://***@db.example:6380/0");
        assert!(!format!("{config:?}").contains("cret"));
        let misspelled = [
            "redis:/user:secret@db:6379",
            "user:secret@db:6379",
            "redis://user:sec?ret@db:6379",
            "unix:///run/redis.sock?user=u&pass=secret",
            "unix:///run/redis.sock?pass=a@secret",
        ];
        for url in misspelled {
            let shown = RedisConfig::new(url).redacted_url();
            assert!(!shown.contains("ret") && !shown.contains("user"), "{shown}");
        }
        assert_eq!(RedisConfig::new("redis://db:6379/0").redacted_url(), "redis://db:6379/0");
    }
}
