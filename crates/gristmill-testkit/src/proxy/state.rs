//! What the threads of a proxy share: the switches, the armed faults, and the queues of each connection. Pure but for
//! shutting sockets down; all of it lies under one lock, and one condition variable tells of every change.

use super::frame::is_push;
use crate::Deadline;
use std::{
    collections::{HashMap, VecDeque},
    net::{Shutdown, TcpStream},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// What an armed fault does to the first request that holds its needle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    CutBefore,
    CutAfter,
    HoldRequest,
    HoldReply,
}

/// How far a fault got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Armed,
    /// The request came, and the fault is in force.
    InForce,
    /// A released request was executed.
    Executed,
}

/// Whose answer the next reply from upstream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    Client,
    /// Our own ECHO behind a request: all before it is executed.
    Marker(Option<(u64, Kind)>),
    /// A repeated greeting on a new upstream connection.
    Discard,
}

pub(super) const MARKER: &[u8] = b"*2\r\n$4\r\nECHO\r\n$7\r\ntestkit\r\n";
const LOST: &[u8] = b"-ERR upstream failure: the reply to this command is lost\r\n";

pub(super) struct Connection {
    pub(super) client: TcpStream,
    pub(super) upstream: TcpStream,
    /// Grows with every new upstream connection; a reader of an older one stops.
    pub(super) generation: u64,
    /// TLS or Postgres: bytes are passed on as they come.
    pub(super) raw: bool,
    /// What the client said before its first real command, to be said again on a new upstream connection.
    pub(super) greeting: Vec<Vec<u8>>,
    pub(super) greeted: bool,
    pub(super) requests: VecDeque<Vec<u8>>,
    pub(super) request_held_by: Option<u64>,
    /// The request in front was held by this fault and may go now.
    released: Option<u64>,
    pub(super) expected: VecDeque<Expect>,
    pub(super) replies: VecDeque<Vec<u8>>,
    pub(super) reply_held_by: Option<u64>,
    /// Nothing more is passed to the client.
    pub(super) muted: bool,
    pub(super) client_gone: bool,
    /// Upstream closed; what it had answered is still delivered.
    pub(super) upstream_gone: bool,
}

impl Connection {
    pub(super) fn new(client: TcpStream, upstream: TcpStream) -> Self {
        Self {
            client,
            upstream,
            generation: 0,
            raw: false,
            greeting: Vec::new(),
            greeted: false,
            requests: VecDeque::new(),
            request_held_by: None,
            released: None,
            expected: VecDeque::new(),
            replies: VecDeque::new(),
            reply_held_by: None,
            muted: false,
            client_gone: false,
            upstream_gone: false,
        }
    }

    fn cut_client(&mut self) {
        self.client_gone = true;
        self.muted = true;
        self.replies.clear();
        // An error means that the peer has closed it already.
        let _ = self.client.shutdown(Shutdown::Both);
    }

    pub(super) fn awaits_marker(&self) -> bool {
        self.expected.iter().any(|expect| matches!(expect, Expect::Marker(_)))
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) target: u16,
    pub(super) refuse: bool,
    pub(super) hold_requests: bool,
    pub(super) hold_replies: bool,
    pub(super) stopping: bool,
    /// A waiting thread changed something that others wait for.
    dirty: bool,
    pub(super) next_id: u64,
    pub(super) armed: Vec<(u64, Vec<u8>, Kind)>,
    pub(super) stages: HashMap<u64, Stage>,
    pub(super) connections: HashMap<u64, Connection>,
}

impl State {
    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Closes both sides and forgets the connection; its threads end when they notice.
    pub(super) fn close(&mut self, id: u64) {
        if let Some(mut connection) = self.connections.remove(&id) {
            connection.cut_client();
            let _ = connection.upstream.shutdown(Shutdown::Both);
        }
    }

    /// Closes the client's side; requests that are held stay, to be sent when they are released.
    pub(super) fn cut_all(&mut self) {
        let hold_requests = self.hold_requests;
        let ids: Vec<_> = self.connections.keys().copied().collect();
        for id in ids {
            match self.connections.get_mut(&id) {
                Some(connection) if connection.holds_request(hold_requests) => {
                    connection.cut_client();
                }
                _ => self.close(id),
            }
        }
    }

    /// The armed fault that this request sets off, disarmed.
    fn set_off(&mut self, request: &[u8]) -> Option<(u64, Kind)> {
        let hit = self.armed.iter().position(|(_, needle, _)| contains(request, needle))?;
        let (fault, _, kind) = self.armed.remove(hit);
        Some((fault, kind))
    }

    /// The next bytes for upstream, or none while there is nothing to send. Faults strike here.
    pub(super) fn next_request(&mut self, id: u64) -> Option<Vec<u8>> {
        let connection = self.connections.get_mut(&id)?;
        if self.hold_requests || connection.request_held_by.is_some() || connection.upstream_gone {
            return None;
        }
        let raw = connection.raw;
        let request = connection.requests.front()?.clone();
        let fault = match connection.released.take() {
            Some(fault) => {
                connection.requests.pop_front();
                connection.expected.push_back(Expect::Client);
                return Some(connection.with_marker(request, Some((fault, Kind::HoldRequest))));
            }
            None if raw => None,
            None => self.set_off(&request),
        };
        let connection = self.connections.get_mut(&id)?;
        match fault {
            Some((fault, Kind::HoldRequest)) => {
                connection.request_held_by = Some(fault);
                self.stages.insert(fault, Stage::InForce);
                self.dirty = true;
                return None;
            }
            Some((fault, Kind::CutBefore)) => {
                self.close(id);
                self.stages.insert(fault, Stage::InForce);
                return None;
            }
            Some((_, Kind::CutAfter)) => {
                connection.muted = true;
                connection.replies.clear();
                connection.requests.truncate(1);
            }
            Some((fault, Kind::HoldReply)) => connection.reply_held_by = Some(fault),
            None => {}
        }
        connection.requests.pop_front();
        if raw {
            return Some(request);
        }
        connection.expected.push_back(Expect::Client);
        Some(connection.with_marker(request, fault))
    }

    /// Lets a held request go; the id of its connection, if it is held.
    pub(super) fn release_request(&mut self, fault: u64) -> Option<u64> {
        let held_here = |connection: &Connection| connection.request_held_by == Some(fault);
        let (id, connection) = self.connections.iter_mut().find(|(_, connection)| held_here(connection))?;
        connection.request_held_by = None;
        connection.released = Some(fault);
        Some(*id)
    }

    /// Upstream closed its side of a connection.
    pub(super) fn upstream_closed(&mut self, id: u64) {
        let hold_requests = self.hold_requests;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.upstream_gone = true;
        if connection.holds_request(hold_requests) {
            connection.cut_client();
        } else if connection.replies.is_empty() || connection.muted {
            self.close(id);
        }
    }

    /// A message from upstream.
    pub(super) fn reply(&mut self, id: u64, message: Vec<u8>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let expected =
            if connection.raw || is_push(&message) { None } else { connection.expected.pop_front() };
        match expected {
            None | Some(Expect::Client) => {
                if !connection.muted {
                    connection.replies.push_back(message);
                }
            }
            Some(Expect::Discard | Expect::Marker(None)) => {}
            Some(Expect::Marker(Some((fault, Kind::CutAfter)))) => {
                self.close(id);
                self.stages.insert(fault, Stage::InForce);
            }
            Some(Expect::Marker(Some((fault, Kind::HoldReply)))) => {
                self.stages.insert(fault, Stage::InForce);
            }
            Some(Expect::Marker(Some((fault, _)))) => {
                self.stages.insert(fault, Stage::Executed);
            }
        }
    }

    pub(super) fn next_reply(&mut self, id: u64) -> Option<Vec<u8>> {
        let connection = self.connections.get_mut(&id)?;
        if self.hold_replies || connection.reply_held_by.is_some() {
            return None;
        }
        connection.replies.pop_front()
    }

    /// Whether any request or reply is kept back now.
    pub(super) fn holds_something(&self) -> bool {
        self.connections.values().any(|connection| {
            connection.holds_request(self.hold_requests)
                || (!connection.replies.is_empty()
                    && (self.hold_replies || connection.reply_held_by.is_some()))
        })
    }
}

impl Connection {
    fn holds_request(&self, hold_requests: bool) -> bool {
        !self.requests.is_empty() && (hold_requests || self.request_held_by.is_some())
    }

    fn with_marker(&mut self, mut request: Vec<u8>, fault: Option<(u64, Kind)>) -> Vec<u8> {
        // Without a client only the marker says when the request was executed and upstream may be closed.
        if fault.is_some() || self.client_gone {
            request.extend_from_slice(MARKER);
            self.expected.push_back(Expect::Marker(fault));
        }
        request
    }

    /// Replaces the upstream connection: outstanding requests are answered with an error, the greeting is repeated.
    pub(super) fn replace_upstream(&mut self, upstream: TcpStream) -> Vec<u8> {
        let _ = self.upstream.shutdown(Shutdown::Both);
        self.upstream = upstream;
        self.upstream_gone = false;
        self.generation += 1;
        for expect in self.expected.drain(..) {
            if expect == Expect::Client && !self.muted {
                self.replies.push_back(LOST.to_vec());
            }
        }
        self.expected.extend(self.greeting.iter().map(|_| Expect::Discard));
        self.greeting.concat()
    }
}

/// The shared state, its lock and its bell.
#[derive(Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and tells everybody.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    /// Waits until `look` finds something in the state; `look` may change it.
    pub(super) fn wait<T>(
        &self,
        deadline: Option<Deadline>,
        mut look: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.lock();
        loop {
            let found = look(&mut state);
            if std::mem::take(&mut state.dirty) {
                self.changed.notify_all();
            }
            if let Some(found) = found {
                drop(state);
                self.changed.notify_all();
                return Some(found);
            }
            state = match deadline {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) if deadline.passed() => return None,
                Some(deadline) => {
                    self.changed
                        .wait_timeout(state, deadline.remaining())
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
    }
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    needle.is_empty() || bytes.windows(needle.len()).any(|window| window == needle)
}
