//! A running server: start, pause, kill, restart, roll back. Dropped, it is killed and its directory removed.

use super::{
    certificates::CertificateFiles,
    clock::Leftovers,
    options::{ADMIN, ServerOptions},
    port::Port,
    resp::{self, Connection, Reply},
    snapshot::{Snapshot, TempDir},
};
use crate::{Deadline, Error, guard::Guard};
use nix::sys::signal::Signal;
use std::{
    collections::hash_map::RandomState,
    fmt, fs,
    hash::{BuildHasher, Hasher},
    path::{Path, PathBuf},
    time::Duration,
};

const STOP_WITHIN: Duration = Duration::from_secs(10);
/// Each try takes other ports.
const START_TRIES: u32 = 5;
const LOG: &str = "server.log";

/// A private server. The fields are dropped in this order: the process first, its directory last.
pub struct Server {
    pub(super) guard: Option<Guard>,
    pub(super) leftovers: Option<Leftovers>,
    pub(super) options: ServerOptions,
    pub(super) plain: Port,
    pub(super) tls: Option<Port>,
    pub(super) certificates: Option<CertificateFiles>,
    pub(super) admin_password: String,
    pub(super) version: String,
    /// The last start failed because another program holds the port.
    pub(super) lost_its_port: bool,
    pub(super) dir: TempDir,
}

impl Server {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// [`Error::MissingServer`] when its program is not installed, [`Error::BadOption`] for options that do not fit, [`Error::NoTls`],
    /// [`Error::StartFailed`] with the end of its log when it ends or stays silent for 30 s.
    pub fn start(options: ServerOptions) -> Result<Self, Error> {
        let version = options.flavor.version()?;
        let mut last = None;
        for _ in 0..START_TRIES {
            let dir = TempDir::new("server")?;
            let certificates = options.tls.then(|| CertificateFiles::make_in(dir.path())).transpose()?;
            let mut server = Self {
                guard: None,
                leftovers: None,
                plain: Port::reserve()?,
                tls: options.tls.then(Port::reserve).transpose()?,
                certificates,
                admin_password: format!("{:016x}", RandomState::new().build_hasher().finish()),
                version: version.clone(),
                lost_its_port: false,
                dir,
                options: options.clone(),
            };
            let snapshot = server.options.snapshot.clone();
            match server.launch(snapshot.as_ref()) {
                Ok(()) => return Ok(server),
                // Something outside the testkit took the port in between.
                Err(error) if server.lost_its_port => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::BadOption("no try was made to start a server".to_owned())))
    }

    /// What clients connect to: `redis://` or `rediss://`, with user and password if any. Holds the secret: do not print it.
    pub fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// The same with another port, such as a [`crate::proxy::Proxy`]'s.
    pub fn url_at(&self, port: u16) -> String {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        let login = match &self.options.password {
            None => String::new(),
            Some(password) => {
                let user = self.options.user.as_deref().unwrap_or("");
                format!("{}:{}@", percent_encoded(user), percent_encoded(password))
            }
        };
        format!("{scheme}://{login}127.0.0.1:{port}")
    }

    /// The port that [`Server::url`] names. It stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.tls.as_ref().unwrap_or(&self.plain).number()
    }

    /// The certificate authority (PEM) that clients of a TLS server must trust.
    pub fn ca_path(&self) -> Option<&Path> {
        self.certificates.as_ref().map(|files| files.ca.as_path())
    }

    /// The server's own process id; none when it was killed or shut down.
    pub fn pid(&self) -> Option<u32> {
        self.guard.as_ref().map(Guard::pid)
    }

    /// Its real version, such as `7.0.15`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Its directory: configuration, data, log.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The last lines of its log, for messages.
    pub fn log_tail(&self) -> String {
        log_tail(&self.log_path())
    }

    /// A connection of the testkit (plain, with all rights).
    ///
    /// # Errors
    /// [`Error::Io`] when it does not answer.
    pub fn connection(&self) -> Result<Connection, Error> {
        self.connection_within(resp::TIMEOUT)
    }

    pub(super) fn connection_within(&self, timeout: Duration) -> Result<Connection, Error> {
        let login = self.options.password.is_some().then_some((ADMIN, self.admin_password.as_str()));
        Connection::open(self.plain.number(), login, timeout)
    }

    /// One command on a connection of its own.
    ///
    /// # Errors
    /// As [`Connection::command`].
    pub fn command<A: AsRef<[u8]>>(&self, args: &[A]) -> Result<Reply, Error> {
        self.connection()?.command(args)
    }

    /// SIGSTOP: it answers nothing, and its connections stay open.
    ///
    /// # Errors
    /// [`Error::NotRunning`] after a kill or shutdown.
    pub fn pause(&mut self) -> Result<(), Error> {
        self.running()?.signal(Signal::SIGSTOP)
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// As [`Server::pause`].
    pub fn resume(&mut self) -> Result<(), Error> {
        self.running()?.signal(Signal::SIGCONT)
    }

    /// SIGKILL, also of a paused server. Its directory and port stay for [`Server::restart`].
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be reaped.
    pub fn kill(&mut self) -> Result<(), Error> {
        match self.guard.take() {
            Some(mut guard) => guard.kill().map(drop),
            None => Ok(()),
        }
    }

    /// SIGTERM and wait: a clean end, the append-only file complete.
    ///
    /// # Errors
    /// [`Error::Timeout`] after 10 s; it is killed then.
    pub fn shutdown(&mut self) -> Result<(), Error> {
        let mut guard = self.guard.take().ok_or_else(not_running)?;
        // A paused server would see the SIGTERM only once resumed.
        guard.signal(Signal::SIGTERM)?;
        guard.signal(Signal::SIGCONT)?;
        guard.wait(Deadline::after(STOP_WITHIN), "the server").map(drop)
    }

    /// Starts it again (killing it first if it runs) with the same directory, port and options; what its persistence kept is
    /// there again when this returns.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn restart(&mut self) -> Result<(), Error> {
        self.kill()?;
        self.launch(None)
    }

    /// Kills it and starts it again with the data of a snapshot: what clients see after a failover to a replica that
    /// lacked the last writes, at the same address.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn roll_back_to(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        self.kill()?;
        self.launch(Some(snapshot))
    }

    /// Its data as of now (SAVE), to start another server from ([`ServerOptions::snapshot`]) or to roll back to.
    ///
    /// # Errors
    /// As [`Server::command`], or when the file cannot be copied.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        self.command(&["SAVE"])?;
        Snapshot::copy_of(self.dir.path())
    }

    /// FLUSHALL: data, groups and functions' state are gone; scripts and users stay.
    ///
    /// # Errors
    /// As [`Server::command`].
    pub fn flush(&self) -> Result<(), Error> {
        self.command(&["FLUSHALL"]).map(drop)
    }

    /// Closes all connections of ordinary clients; returns how many.
    ///
    /// # Errors
    /// As [`Server::command`].
    pub fn kill_client_connections(&self) -> Result<u64, Error> {
        let reply = self.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])?;
        reply.as_int().and_then(|count| u64::try_from(count).ok()).ok_or_else(|| Error::UnexpectedReply {
            expected: "a number of connections",
            got: format!("{reply:?}"),
        })
    }

    /// One field of `INFO section`.
    ///
    /// # Errors
    /// As [`Server::command`], and [`Error::UnexpectedReply`] when there is no such field.
    pub fn info(&self, section: &str, field: &str) -> Result<String, Error> {
        info(&mut self.connection()?, section, field)
    }

    /// Bytes of memory in use by data (`used_memory`).
    ///
    /// # Errors
    /// As [`Server::info`].
    pub fn used_memory(&self) -> Result<u64, Error> {
        let text = self.info("memory", "used_memory")?;
        text.parse().map_err(|_| Error::UnexpectedReply { expected: "a number of bytes", got: text })
    }

    fn running(&mut self) -> Result<&mut Guard, Error> {
        self.guard.as_mut().ok_or_else(not_running)
    }

    pub(super) fn log_path(&self) -> PathBuf {
        self.dir.path().join(LOG)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Server");
        shown.field("version", &self.version).field("port", &self.port()).field("pid", &self.pid());
        shown.field("dir", &self.dir.path()).finish_non_exhaustive()
    }
}

fn not_running() -> Error {
    Error::NotRunning {
        what: "the server".to_owned(),
        hint: "; it was killed or shut down, `restart` it first",
    }
}

pub(super) fn info(connection: &mut Connection, section: &str, field: &str) -> Result<String, Error> {
    let reply = connection.command(&["INFO", section])?;
    let text = reply.as_str().unwrap_or_default();
    let found = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    found.map(|value| value.trim().to_owned()).ok_or_else(|| Error::UnexpectedReply {
        expected: "INFO with the field that was asked for",
        got: format!("no `{field}` in section `{section}`"),
    })
}

fn log_tail(path: &Path) -> String {
    let text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

/// All but unreserved characters, for user and password in a URL.
fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_what_a_url_would_misread() {
        assert_eq!(percent_encoded("a:b@c/ü~"), "a%3Ab%40c%2F%C3%BC~");
    }
}
