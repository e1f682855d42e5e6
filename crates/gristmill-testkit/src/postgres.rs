//! A private Postgres cluster in a directory of its own, on a unix socket and on a port of 127.0.0.1 (for a
//! [`Proxy`](crate::proxy::Proxy)). Dropped, it is stopped and its directory removed.
//!
//! Postgres refuses to run as root; there it runs as the user `postgres`, whom Debian's package makes.

use crate::{
    Deadline, Error,
    guard::{Guard, Launch, find_program},
    server::{port::Port, snapshot::TempDir},
};
use nix::sys::signal::Signal;
use std::{
    env,
    ffi::OsString,
    fmt,
    fs::{self, File},
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// The variable that names the program `postgres`; `initdb` and `psql` lie beside it, or on PATH.
pub const VARIABLE: &str = "GRISTMILL_POSTGRES";
const START_WITHIN: Duration = Duration::from_secs(60);
const STOP_WITHIN: Duration = Duration::from_secs(5);
const ACCOUNT: &str = "postgres";
const LOG: &str = "postgres.log";

/// A running cluster. The fields are dropped in this order: the process first, its directory last.
pub struct Postgres {
    guard: Option<Guard>,
    programs: Programs,
    settings: Vec<String>,
    port: Port,
    dir: TempDir,
}

#[derive(Debug, Clone)]
struct Programs {
    postgres: PathBuf,
    initdb: PathBuf,
    psql: PathBuf,
}

impl Postgres {
    /// Makes a cluster, starts it and waits until it answers. Its data survive a kill of its processes, not of the machine.
    ///
    /// # Errors
    /// [`Error::MissingServer`] when it is not installed, [`Error::StartFailed`] with the end of its log.
    pub fn start() -> Result<Self, Error> {
        Self::start_with(&[])
    }

    /// The same with settings of Postgres (`name=value`), which win over those of the testkit, such as `fsync=on`.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub fn start_with(settings: &[&str]) -> Result<Self, Error> {
        let programs = Programs::find()?;
        let dir = TempDir::new("postgres")?;
        if is_root() {
            let (user, group) = account()?;
            chown(dir.path(), Some(user), Some(group))
                .map_err(Error::io("cannot give a cluster's directory to the user postgres"))?;
        }
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let mut postgres = Self { guard: None, programs, settings, port: Port::reserve()?, dir };
        postgres.init()?;
        postgres.launch()?;
        Ok(postgres)
    }

    /// Whether it is installed. A test that goes on without it must say so loudly.
    pub fn is_available() -> bool {
        Programs::find().is_ok()
    }

    /// What clients connect to: the unix socket, as a user with all rights.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The same for another database of the cluster.
    pub fn url_of(&self, database: &str) -> String {
        let (dir, port) = (self.dir.path().display(), self.port());
        format!("postgres:///{database}?host={dir}&port={port}&user=postgres")
    }

    /// Over TCP, at the cluster's own port or a [`Proxy`](crate::proxy::Proxy)'s.
    pub fn url_at(&self, port: u16) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=disable")
    }

    /// The port on 127.0.0.1. It stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The process id of the server's first process; none when it was killed or shut down.
    pub fn pid(&self) -> Option<u32> {
        self.guard.as_ref().map(Guard::pid)
    }

    /// Runs SQL and gives what it printed: a line per row, columns apart by `|`.
    ///
    /// # Errors
    /// [`Error::Refused`] with the server's words.
    pub fn ask(&self, sql: &str) -> Result<String, Error> {
        let output = Command::new(&self.programs.psql)
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &self.url(), "-c", sql])
            .output()
            .map_err(Error::io("cannot run psql"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
        }
        let message = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
        Err(Error::Refused { command: "psql".to_owned(), message })
    }

    /// SIGKILL to its first process; the others end by themselves when they see that. Data stay.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be reaped.
    pub fn kill(&mut self) -> Result<(), Error> {
        self.guard.take().map_or(Ok(()), |mut guard| guard.kill().map(drop))
    }

    /// Starts it again (killing it first if it runs), at the same address.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub fn restart(&mut self) -> Result<(), Error> {
        self.kill()?;
        let deadline = Deadline::after(START_WITHIN);
        loop {
            let log_length = fs::metadata(self.dir.path().join(LOG)).map_or(0, |log| log.len());
            match self.launch() {
                // The processes of the one that was killed are still about to end.
                Err(Error::StartFailed { .. }) if !deadline.passed() && self.is_survived(log_length) => {}
                other => return other,
            }
        }
    }

    /// Whether the last start, logged from `from` on, failed for the processes that a kill leaves behind for a moment.
    fn is_survived(&self, from: u64) -> bool {
        let log = fs::read(self.dir.path().join(LOG)).unwrap_or_default();
        let last = log.get(usize::try_from(from).unwrap_or(usize::MAX)..).unwrap_or_default();
        String::from_utf8_lossy(last).contains("shared memory block")
    }

    /// The last lines of its log, for messages.
    pub fn log_tail(&self) -> String {
        let text = fs::read(self.dir.path().join(LOG)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn init(&self) -> Result<(), Error> {
        let args = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"];
        let (program, mut all) = as_account(&self.programs.initdb);
        all.extend(args.map(OsString::from));
        all.extend(["--pgdata".into(), self.data().into_os_string()]);
        let output = Command::new(program)
            .args(all)
            .current_dir(self.dir.path())
            .output()
            .map_err(Error::io("cannot run initdb"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(Error::StartFailed {
                what: "initdb".to_owned(),
                reason: output.status.to_string(),
                output: String::from_utf8_lossy(&output.stderr).into_owned(),
            }),
        }
    }

    fn launch(&mut self) -> Result<(), Error> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join(LOG))
            .map_err(Error::io("cannot open a cluster's log"))?;
        let errors = log.try_clone().map_err(Error::io("cannot share a cluster's log"))?;
        let (program, mut args) = as_account(&self.programs.postgres);
        args.extend(["-D".into(), self.data().into_os_string()]);
        args.extend(["-k".into(), self.dir.path().as_os_str().to_owned()]);
        let port = self.port().to_string();
        // A kill of its processes loses nothing that was written; only the machine's end would.
        let own = ["fsync=off", "listen_addresses=127.0.0.1", "shared_buffers=16MB", "jit=off"];
        for setting in own.into_iter().chain(self.settings.iter().map(String::as_str)) {
            args.extend(["-c".into(), setting.into()]);
        }
        args.extend(["-p".into(), port.into()]);
        self.guard = Some(Guard::start(Launch {
            program: program.as_os_str(),
            args: &args,
            envs: &[],
            stdin: Path::new("/dev/null"),
            stdout: log.into(),
            stderr: errors.into(),
            dir: Some(self.dir.path()),
        })?);
        self.wait_ready()
    }

    fn wait_ready(&mut self) -> Result<(), Error> {
        let mut last = String::new();
        let ready = Deadline::after(START_WITHIN).poll("a Postgres cluster to answer", || {
            if let Some(Ok(Some(status))) = self.guard.as_mut().map(Guard::try_wait) {
                return Some(Err(format!("it ended with {status}")));
            }
            match self.ask("select 1") {
                Ok(_) => Some(Ok(())),
                Err(error) => {
                    last = error.to_string();
                    None
                }
            }
        });
        let reason = match ready {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(reason)) => reason,
            Err(_) => format!("no answer in {START_WITHIN:?}; the last try: {last}"),
        };
        Err(Error::StartFailed { what: "a Postgres cluster".to_owned(), reason, output: self.log_tail() })
    }
}

impl Drop for Postgres {
    /// Asked to stop at once, it gives back its shared memory, which a kill would leave behind.
    fn drop(&mut self) {
        if let Some(guard) = &mut self.guard
            && guard.signal(Signal::SIGQUIT).is_ok()
        {
            let _ = guard.wait(Deadline::after(STOP_WITHIN), "a Postgres cluster");
        }
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("port", &self.port())
            .field("pid", &self.pid())
            .finish_non_exhaustive()
    }
}

impl Programs {
    fn find() -> Result<Self, Error> {
        let missing = |found: String| Error::MissingServer {
            flavor: "PostgreSQL",
            found,
            hint: ", or install Debian's package `postgresql`",
        };
        let postgres = match env::var_os(VARIABLE).filter(|given| !given.is_empty()) {
            Some(given) => find_program(&given).ok_or_else(|| {
                missing(format!("{VARIABLE}={} is no executable file", given.to_string_lossy()))
            })?,
            None => debian().or_else(|| find_program("postgres")).ok_or_else(|| {
                missing(format!("{VARIABLE} is not set, and it is neither where Debian has it nor on PATH"))
            })?,
        };
        let beside = |name: &str| {
            let own = postgres.parent().and_then(|folder| find_program(folder.join(name)));
            own.or_else(|| find_program(name)).ok_or_else(|| {
                missing(format!("there is no {name} beside {} or on PATH", postgres.display()))
            })
        };
        Ok(Self { initdb: beside("initdb")?, psql: beside("psql")?, postgres })
    }
}

/// Debian keeps it off PATH: `/usr/lib/postgresql/<major>/bin`. The newest.
fn debian() -> Option<PathBuf> {
    let majors = fs::read_dir("/usr/lib/postgresql").ok()?;
    let major = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let newest = majors.filter_map(Result::ok).filter_map(major).max()?;
    find_program(format!("/usr/lib/postgresql/{newest}/bin/postgres"))
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// The program, or what runs it as the user `postgres` and becomes it.
fn as_account(program: &Path) -> (PathBuf, Vec<OsString>) {
    if !is_root() {
        return (program.to_path_buf(), Vec::new());
    }
    let args = [format!("--reuid={ACCOUNT}"), format!("--regid={ACCOUNT}"), "--clear-groups".to_owned()];
    let mut args: Vec<OsString> = args.map(OsString::from).into();
    args.push(program.as_os_str().to_owned());
    (PathBuf::from("setpriv"), args)
}

/// User and group of `postgres`.
fn account() -> Result<(u32, u32), Error> {
    let number = |switch: &str| {
        let output = Command::new("id").args([switch, ACCOUNT]).output().ok()?;
        String::from_utf8_lossy(&output.stdout).trim().parse::<u32>().ok()
    };
    number("-u").zip(number("-g")).ok_or_else(|| {
        Error::BadOption("as root, Postgres runs as the user `postgres`, and there is none".to_owned())
    })
}
