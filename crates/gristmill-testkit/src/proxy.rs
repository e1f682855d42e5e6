//! A TCP proxy before a server that injects faults, also *after* the server applied a call.
//!
//! ```text
//! client ──requests──▶ queue ──▶ upstream     hold_requests, hold_next_request, cut_before…, cut_after…
//! client ◀──replies─── queue ◀── upstream     hold_replies, hold_next_reply
//! ```
//!
//! * `frame`: where a request or reply ends · `state`: switches, armed faults, queues · `pump`: the threads
//!
//! The stream is split into whole requests and replies, so that a fault strikes exactly the first request that contains
//! its needle. Whether that request was *executed* is known from an ECHO of our own behind it, whose reply the client
//! never sees. Through TLS only [`Proxy::cut`], [`Proxy::refuse`], [`Proxy::hold_requests`], [`Proxy::hold_replies`] and
//! [`Proxy::retarget`] work. Needles must not strike inside MULTI (choose the EXEC) nor before AUTH. Nothing is bounded:
//! this is for tests, not for load.

mod frame;
mod pump;
mod state;

use crate::{Deadline, Error};
use state::{Kind, Shared, Stage};
use std::{
    fmt,
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::Arc,
    thread::{self, JoinHandle},
};

/// A running proxy. Dropped, it closes all its connections and its port.
pub struct Proxy {
    shared: Arc<Shared>,
    port: u16,
    acceptor: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy on a free port of 127.0.0.1 before a server's port. It passes everything on.
    ///
    /// # Errors
    /// [`Error::Io`] when no port can be had.
    pub fn start(upstream_port: u16) -> Result<Self, Error> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::io("cannot bind a proxy"))?;
        let port = listener.local_addr().map_err(Error::io("cannot read a proxy's port"))?.port();
        let shared = Arc::new(Shared::default());
        shared.lock().target = upstream_port;
        let for_thread = Arc::clone(&shared);
        let acceptor = thread::spawn(move || accept(&for_thread, &listener));
        Ok(Self { shared, port, acceptor: Some(acceptor) })
    }

    /// The port that clients connect to; see [`crate::server::Server::url_at`] for servers with a password or TLS.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `redis://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// How many clients are connected now.
    pub fn connections(&self) -> usize {
        self.shared.lock().connections.values().filter(|connection| !connection.client_gone).count()
    }

    /// Ends refusing and holding, disarms every fault that has not struck, and releases what is held.
    pub fn pass(&self) {
        self.shared.change(|state| {
            state.refuse = false;
            state.hold_requests = false;
            state.hold_replies = false;
            state.armed.clear();
            let held: Vec<_> = state.connections.values().filter_map(|c| c.request_held_by).collect();
            for fault in held {
                state.release_request(fault);
            }
            for connection in state.connections.values_mut() {
                connection.reply_held_by = None;
            }
        });
    }

    /// Closes all connections now. Requests that are held stay and can still be released: packets under way.
    pub fn cut(&self) {
        self.shared.change(state::State::cut_all);
    }

    /// Closes every new connection at once, until [`Proxy::pass`]. Those that are open stay.
    pub fn refuse(&self) {
        self.shared.change(|state| state.refuse = true);
    }

    /// From now on requests are passed on and executed, and their replies kept back.
    pub fn hold_replies(&self) {
        self.shared.change(|state| state.hold_replies = true);
    }

    /// Delivers the replies that were kept back, to clients that are still there.
    pub fn release_replies(&self) {
        self.shared.change(|state| state.hold_replies = false);
    }

    /// From now on requests are kept back, each connection's in order.
    pub fn hold_requests(&self) {
        self.shared.change(|state| state.hold_requests = true);
    }

    /// Sends the requests that were kept back, also those of clients that are gone. Poll for their effect.
    pub fn release_requests(&self) {
        self.shared.change(|state| state.hold_requests = false);
    }

    /// Waits until any request or reply is kept back.
    ///
    /// # Errors
    /// [`Error::Timeout`].
    pub fn wait_held(&self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        let deadline = deadline.into();
        self.shared
            .wait(Some(deadline), |state| state.holds_something().then_some(()))
            .ok_or_else(|| deadline.timeout("the proxy to hold something", String::new()))
    }

    /// The next request that contains `needle` is executed, and the client cut off before its reply: applied, but the reply is
    /// lost. Replies to earlier requests that have not been delivered are lost with it.
    pub fn cut_after_next_request(&self, needle: impl AsRef<[u8]>) -> Fault {
        self.arm(needle, Kind::CutAfter)
    }

    /// The next request that contains `needle` is dropped and the client cut off: never applied.
    pub fn cut_before_next_request(&self, needle: impl AsRef<[u8]>) -> Fault {
        self.arm(needle, Kind::CutBefore)
    }

    /// The next request that contains `needle`, and what follows it on its connection, is kept until
    /// [`HeldRequest::release`], even when its client is gone by then: a request that arrives late.
    pub fn hold_next_request(&self, needle: impl AsRef<[u8]>) -> HeldRequest {
        HeldRequest(self.arm(needle, Kind::HoldRequest))
    }

    /// The next request that contains `needle` is executed; its reply, and others on its connection, are kept until
    /// [`HeldReply::release`].
    pub fn hold_next_reply(&self, needle: impl AsRef<[u8]>) -> HeldReply {
        HeldReply(self.arm(needle, Kind::HoldReply))
    }

    /// Later connections go to another port; those that are open stay where they are.
    pub fn retarget(&self, upstream_port: u16) {
        self.shared.change(|state| state.target = upstream_port);
    }

    /// A failover that clients do not see: later connections *and those that are open* go to another port. A request whose reply
    /// is outstanding is answered with an error, as a proxy that hides failovers does; greetings (AUTH, HELLO, SELECT, CLIENT) are repeated.
    ///
    /// # Errors
    /// [`Error::Io`] when the new server cannot be reached (connections not yet moved stay), [`Error::BadOption`]
    /// when a connection speaks TLS.
    pub fn fail_over_unseen(&self, upstream_port: u16) -> Result<(), Error> {
        self.retarget(upstream_port);
        self.shared.change(|state| {
            if state.connections.values().any(|connection| connection.raw) {
                return Err(Error::BadOption("a failover of a TLS connection cannot be hidden".to_owned()));
            }
            for (id, connection) in &mut state.connections {
                pump::reconnect(&self.shared, *id, connection, upstream_port)
                    .map_err(Error::io(format!("cannot move a connection to port {upstream_port}")))?;
            }
            Ok(())
        })
    }

    fn arm(&self, needle: impl AsRef<[u8]>, kind: Kind) -> Fault {
        let needle = needle.as_ref().to_vec();
        let text = String::from_utf8_lossy(&needle).into_owned();
        let id = self.shared.change(|state| {
            let id = state.id();
            state.stages.insert(id, Stage::Armed);
            state.armed.push((id, needle, kind));
            id
        });
        Fault { shared: Arc::clone(&self.shared), id, needle: text }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.change(|state| {
            state.stopping = true;
            let ids: Vec<_> = state.connections.keys().copied().collect();
            for id in ids {
                state.close(id);
            }
        });
        // Wakes the acceptor, which then sees `stopping`.
        let woken = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok();
        if let Some(acceptor) = self.acceptor.take()
            && woken
        {
            let _ = acceptor.join();
        }
    }
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    for client in listener.incoming() {
        let (stopping, refuse) = {
            let state = shared.lock();
            (state.stopping, state.refuse)
        };
        if stopping {
            return;
        }
        let Ok(client) = client else { continue };
        if refuse {
            let _ = client.shutdown(Shutdown::Both);
            continue;
        }
        // An upstream that is away: the client sees its connection closed, as it would without us.
        let _ = pump::serve(shared, client);
    }
}

/// An armed fault.
#[must_use = "wait for the fault, or nobody knows whether it struck"]
pub struct Fault {
    shared: Arc<Shared>,
    id: u64,
    needle: String,
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault").field("needle", &self.needle).field("struck", &self.struck()).finish()
    }
}

impl Fault {
    /// Waits until the fault has struck, its request executed where it says so and the client cut off.
    ///
    /// # Errors
    /// [`Error::Timeout`] when no such request came, or upstream did not answer it.
    pub fn wait(&self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        self.wait_stage(Stage::InForce, deadline.into())
    }

    /// Whether it has struck.
    pub fn struck(&self) -> bool {
        self.shared.lock().stages.get(&self.id).is_some_and(|stage| *stage >= Stage::InForce)
    }

    fn wait_stage(&self, wanted: Stage, deadline: Deadline) -> Result<(), Error> {
        let mut last = None;
        let reached = self.shared.wait(Some(deadline), |state| {
            last = state.stages.get(&self.id).copied();
            (last >= Some(wanted)).then_some(())
        });
        reached.ok_or_else(|| {
            let needle = self.needle.escape_debug();
            deadline
                .timeout(format!("the fault at a request with \"{needle}\""), format!(" (it is {last:?})"))
        })
    }
}

/// A request that is, or will be, kept back.
#[must_use = "a held request that nobody releases never arrives"]
#[derive(Debug)]
pub struct HeldRequest(Fault);

impl HeldRequest {
    /// Waits until the request is held.
    ///
    /// # Errors
    /// [`Error::Timeout`] when none came.
    pub fn wait_held(&self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        self.0.wait(deadline)
    }

    /// Sends it upstream and waits until it was executed (or refused) there. If its upstream connection has ended
    /// meanwhile (a restart, a failover), it goes to where the proxy points now, on a new connection.
    ///
    /// # Errors
    /// [`Error::Timeout`] when it is not held, or upstream does not answer; [`Error::Io`] when upstream cannot be
    /// reached.
    pub fn release(&self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        self.0.shared.change(|state| {
            let target = state.target;
            let Some(id) = state.release_request(self.0.id) else { return Ok(()) };
            match state.connections.get_mut(&id) {
                Some(connection) if connection.upstream_gone => {
                    pump::reconnect(&self.0.shared, id, connection, target)
                        .map_err(Error::io(format!("cannot send a held request to port {target}")))
                }
                _ => Ok(()),
            }
        })?;
        self.0.wait_stage(Stage::Executed, deadline.into())
    }
}

/// A reply that is, or will be, kept back.
#[must_use = "a held reply that nobody releases never arrives"]
#[derive(Debug)]
pub struct HeldReply(Fault);

impl HeldReply {
    /// Waits until the request was executed and its reply is held.
    ///
    /// # Errors
    /// [`Error::Timeout`] when none came.
    pub fn wait_held(&self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        self.0.wait(deadline)
    }

    /// Delivers it, if its client is still there.
    pub fn release(&self) {
        self.0.shared.change(|state| {
            for connection in state.connections.values_mut() {
                if connection.reply_held_by == Some(self.0.id) {
                    connection.reply_held_by = None;
                }
            }
        });
    }
}
