//! Listens, serves connections, leaves when asked to.
//!
//! ```text
//!   listening ──asked to leave──▶ no new connections; requests under way are answered ──▶ left
//!                                    └─ asked again, or the window is over: cut off
//! ```

use crate::answer::{Shared, answer};
use crate::config::IngestConfig;
use crate::explain::Explain;
use crate::tokens::Tokens;
use gristmill_broker::Broker;
use gristmill_telemetry::events::others::{ConnectionBroke, NotAccepted};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

/// Connections at a time; more wait to be accepted.
const MOST_CONNECTIONS: usize = 1024;
/// How long the head of a request may take, and a connection may lie idle.
const HEAD_WITHIN: Duration = Duration::from_secs(15);
/// How long a connection lives: one whose other side reads no answers would stay for ever.
const CONNECTION_LIFE: Duration = Duration::from_secs(600);
/// How long the request that is under way then may take on top of the time for its body.
const LAST_WITHIN: Duration = Duration::from_secs(30);
/// Largest head of a request.
const HEAD_BYTES: usize = 64 * 1024;
/// Rest after a connection could not be accepted: mostly, the system has no more files to give.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Why it does not listen.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The file of tokens.
    #[error("the tokens cannot be read: {0}")]
    Tokens(String),
    /// Everybody could enqueue.
    #[error("expected a file of tokens, or a loopback address to listen at, got {0} without tokens")]
    Open(SocketAddr),
    /// The address.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        error: std::io::Error,
    },
}

/// How it left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// Requests that were answered, in all.
    pub answered: u64,
    /// Connections that were cut off while a request was under way.
    pub cut_off: usize,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "drained: answered={} cut_off={}", self.answered, self.cut_off)
    }
}

/// A server that listens.
pub struct Ingest {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Ingest {
    /// Reads the tokens and listens; connections wait until [`Ingest::serve`].
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn bind(
        config: IngestConfig,
        broker: Broker,
        explain: Arc<dyn Explain>,
    ) -> Result<Self, StartError> {
        let tokens = config.tokens_file.clone().map(Tokens::open).transpose().map_err(StartError::Tokens)?;
        if tokens.is_none() && !config.listen.ip().is_loopback() {
            return Err(StartError::Open(config.listen));
        }
        let refused = |error| StartError::Listen { address: config.listen, error };
        let listener = TcpListener::bind(config.listen).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let shared = Arc::new(Shared::new(config, broker, tokens, explain));
        Ok(Self { listener, address, shared })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until it is asked to leave, by one message or the end of `leave`; a second message hurries it.
    pub async fn serve(self, mut leave: mpsc::Receiver<()>) -> Left {
        let Self { listener, shared, .. } = self;
        let (stop, stopping) = watch::channel(false);
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let answered = Arc::new(AtomicU64::new(0));
        let mut connections = JoinSet::new();
        let following = Arc::clone(&shared);
        let follow = tokio::spawn(async move {
            match &following.tokens {
                Some(tokens) => tokens.follow(&following.config.telemetry).await,
                None => std::future::pending().await,
            }
        });
        let accept = || async {
            // Never closed, so there always is a place in the end.
            let place = Arc::clone(&places).acquire_owned().await.ok();
            (listener.accept().await, place)
        };
        loop {
            tokio::select! {
                (accepted, place) = accept() => {
                    match accepted {
                        Ok((stream, _)) => {
                            let (shared, answered) = (Arc::clone(&shared), Arc::clone(&answered));
                            let stopping = stopping.clone();
                            connections.spawn(async move {
                                let _place = place;
                                connection(stream, shared, answered, stopping).await;
                            });
                        }
                        Err(error) => {
                            shared.config.telemetry.tell(&NotAccepted { error: &error });
                            tokio::time::sleep(ACCEPT_AGAIN).await;
                        }
                    }
                }
                Some(_) = connections.join_next() => {}
                _ = leave.recv() => break,
            }
        }
        drop(listener);
        let _ = stop.send(true);
        let window = shared.config.drain_window;
        let ended = async { while connections.join_next().await.is_some() {} };
        tokio::select! {
            () = ended => {}
            () = tokio::time::sleep(window) => {}
            Some(()) = leave.recv() => {}
        }
        follow.abort();
        let cut_off = connections.len();
        connections.shutdown().await;
        Left { answered: answered.load(Ordering::Relaxed), cut_off }
    }
}

async fn connection(
    stream: TcpStream,
    shared: Arc<Shared>,
    answered: Arc<AtomicU64>,
    mut stopping: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let telemetry = shared.config.telemetry.clone();
    let last_within = shared.config.body_timeout + LAST_WITHIN;
    let service = service_fn(move |request| {
        let (shared, answered) = (Arc::clone(&shared), Arc::clone(&answered));
        async move {
            let answer = answer(&shared, request).await;
            answered.fetch_add(1, Ordering::Relaxed);
            let requests = &shared.config.telemetry.metrics().ingest_requests_total;
            requests.with(&[answer.status().as_str()]).add(1);
            Ok::<_, Infallible>(answer)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = pin!(served);
    let asked = async {
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    let lives = tokio::time::timeout(CONNECTION_LIFE, asked);
    let ended = tokio::select! {
        ended = served.as_mut() => Ok(ended),
        over = lives => {
            served.as_mut().graceful_shutdown();
            match over {
                // All connections have the same window then.
                Ok(()) => Ok(served.await),
                Err(_) => tokio::time::timeout(last_within, served).await,
            }
        }
    };
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => telemetry.tell(&ConnectionBroke { error: &error }),
        Err(_) => telemetry.tell(&ConnectionBroke { error: &"its other side reads nothing" }),
    }
}
