//! Any program as a captured child: wait for a line, signal it, wait for its end. Killed and reaped on drop, and by the
//! [watchdog](crate::guard) when this process dies.

use crate::{
    Deadline, Error,
    guard::{Guard, Launch},
};
use std::{
    ffi::{OsStr, OsString},
    fmt,
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

pub use nix::sys::signal::Signal;

/// How many lines [`Process::stderr_tail`] and error messages show.
const TAIL_LINES: usize = 20;

/// Where a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// One captured line.
#[derive(Debug, Clone)]
pub struct Line {
    /// The stream it was written to. Lines of one stream are in order; between the two the order is that of arrival.
    pub from: Output,
    /// The text without its line end; bytes that are not UTF-8 are replaced.
    pub text: String,
    /// When it was read, on this machine's monotonic clock.
    pub at: Instant,
}

#[derive(Default)]
struct Captured {
    lines: Vec<Line>,
    open_streams: usize,
}

#[derive(Default)]
struct Capture {
    captured: Mutex<Captured>,
    changed: Condvar,
}

impl Capture {
    fn lock(&self) -> MutexGuard<'_, Captured> {
        self.captured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(self: &Arc<Self>, from: Output, stream: impl Read + Send + 'static) {
        self.lock().open_streams += 1;
        let capture = Arc::clone(self);
        thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            let mut bytes = Vec::new();
            while reader.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
                let text = String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']).to_owned();
                bytes.clear();
                capture.lock().lines.push(Line { from, text, at: Instant::now() });
                capture.changed.notify_all();
            }
            capture.lock().open_streams -= 1;
            capture.changed.notify_all();
        });
    }

    fn wait<T>(&self, deadline: Deadline, mut look: impl FnMut(&Captured) -> Option<T>) -> Option<T> {
        let mut captured = self.lock();
        loop {
            if let Some(found) = look(&captured) {
                return Some(found);
            }
            if deadline.passed() {
                return None;
            }
            captured = self
                .changed
                .wait_timeout(captured, deadline.remaining())
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

/// What to start; [`Process::spawn`] is the short form.
#[derive(Debug, Clone)]
pub struct ProcessOptions {
    program: OsString,
    args: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
    stdin: PathBuf,
}

impl ProcessOptions {
    /// A program by path, or by name on PATH.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            args: vec![],
            envs: vec![],
            stdin: PathBuf::from("/dev/null"),
        }
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Adds environment variables to the inherited ones.
    pub fn envs<N: AsRef<OsStr>, V: AsRef<OsStr>>(mut self, envs: impl IntoIterator<Item = (N, V)>) -> Self {
        self.envs.extend(
            envs.into_iter().map(|(name, value)| (name.as_ref().to_owned(), value.as_ref().to_owned())),
        );
        self
    }

    /// The file to read as standard input; nothing by default.
    pub fn stdin(mut self, file: impl Into<PathBuf>) -> Self {
        self.stdin = file.into();
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// [`Error::MissingProgram`] when there is no such executable file, [`Error::Io`] when it cannot be started.
    pub fn spawn(self) -> Result<Process, Error> {
        let mut guard = Guard::start(Launch {
            program: &self.program,
            args: &self.args,
            envs: &self.envs,
            stdin: &self.stdin,
            stdout: Stdio::piped(),
            stderr: Stdio::piped(),
            dir: None,
        })?;
        let capture = Arc::new(Capture::default());
        let (stdout, stderr) = guard.outputs();
        if let Some(stdout) = stdout {
            capture.read(Output::Stdout, stdout);
        }
        if let Some(stderr) = stderr {
            capture.read(Output::Stderr, stderr);
        }
        Ok(Process { name: self.program.to_string_lossy().into_owned(), guard, capture })
    }
}

/// A running (or ended) program.
pub struct Process {
    name: String,
    guard: Guard,
    capture: Arc<Capture>,
}

impl Process {
    /// Starts a program with arguments and additional environment variables, its standard input empty.
    ///
    /// # Errors
    /// As [`ProcessOptions::spawn`].
    pub fn spawn<A, N, V>(
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = A>,
        envs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, Error>
    where
        A: AsRef<OsStr>,
        N: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        ProcessOptions::new(program).args(args).envs(envs).spawn()
    }

    /// The program's own process id.
    pub fn pid(&self) -> u32 {
        self.guard.pid()
    }

    /// All lines so far.
    pub fn lines(&self) -> Vec<Line> {
        self.capture.lock().lines.clone()
    }

    /// The first line (from the start of the program) for which `pred` holds, waiting for it if need be.
    ///
    /// # Errors
    /// [`Error::Timeout`] at the deadline, and at once when the program has ended and no such line came; both show the end
    /// of its output.
    pub fn wait_line(
        &self,
        pred: impl Fn(&Line) -> bool,
        deadline: impl Into<Deadline>,
    ) -> Result<Line, Error> {
        self.wait_line_from(0, pred, deadline).map(|(_, line)| line)
    }

    /// As [`Process::wait_line`], looking only at lines from number `first` (0-based) on; also gives the line's number.
    ///
    /// # Errors
    /// As [`Process::wait_line`].
    pub fn wait_line_from(
        &self,
        first: usize,
        pred: impl Fn(&Line) -> bool,
        deadline: impl Into<Deadline>,
    ) -> Result<(usize, Line), Error> {
        let deadline = deadline.into();
        let mut seen = first;
        let found = self.capture.wait(deadline, |captured| {
            while let Some(line) = captured.lines.get(seen) {
                seen += 1;
                if pred(line) {
                    return Some(Some((seen - 1, line.clone())));
                }
            }
            (captured.open_streams == 0).then_some(None)
        });
        let reason = match found {
            Some(Some(found)) => return Ok(found),
            Some(None) => "its output ended",
            None => "it is still running",
        };
        Err(deadline.timeout(
            format!("a line of {}", self.name),
            format!("; {reason}. Its last lines:\n{}", self.tail(None)),
        ))
    }

    /// Sends a signal to the program.
    ///
    /// # Errors
    /// [`Error::NotRunning`] when it has ended already.
    pub fn signal(&mut self, signal: Signal) -> Result<(), Error> {
        self.guard.signal(signal)
    }

    /// SIGSTOP: it does nothing until [`Process::resume`], and its sockets stay open.
    ///
    /// # Errors
    /// As [`Process::signal`].
    pub fn pause(&mut self) -> Result<(), Error> {
        self.signal(Signal::SIGSTOP)
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// As [`Process::signal`].
    pub fn resume(&mut self) -> Result<(), Error> {
        self.signal(Signal::SIGCONT)
    }

    /// SIGTERM: asks it to leave; follow with [`Process::wait`].
    ///
    /// # Errors
    /// As [`Process::signal`].
    pub fn terminate(&mut self) -> Result<(), Error> {
        self.signal(Signal::SIGTERM)
    }

    /// SIGKILL to it and all it started, then reaps it. Gives the exit status, also when it had ended before.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be reaped.
    pub fn kill(&mut self) -> Result<ExitStatus, Error> {
        self.guard.kill()
    }

    /// The exit status if it has ended.
    ///
    /// # Errors
    /// [`Error::Io`] when the system cannot say.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.guard.try_wait()
    }

    /// Waits for its end; afterwards [`Process::lines`] is complete.
    ///
    /// # Errors
    /// [`Error::Timeout`] when it still runs at the deadline (it is left running).
    pub fn wait(&mut self, deadline: impl Into<Deadline>) -> Result<ExitStatus, Error> {
        let status = self.guard.wait(deadline.into(), &self.name).map_err(|error| self.with_tail(error))?;
        // The pipes end with the process group; a grandchild that left the group may hold them, hence the limit.
        let drained = Deadline::after(Duration::from_secs(2));
        self.capture.wait(drained, |captured| (captured.open_streams == 0).then_some(()));
        Ok(status)
    }

    /// The last lines of standard error, for messages.
    pub fn stderr_tail(&self) -> String {
        self.tail(Some(Output::Stderr))
    }

    fn tail(&self, from: Option<Output>) -> String {
        let captured = self.capture.lock();
        let chosen: Vec<_> =
            captured.lines.iter().filter(|line| from.is_none_or(|from| from == line.from)).collect();
        let tail = &chosen[chosen.len().saturating_sub(TAIL_LINES)..];
        tail.iter().map(|line| format!("  {}\n", line.text)).collect()
    }

    fn with_tail(&self, error: Error) -> Error {
        match error {
            Error::Timeout { what, waited, .. } => {
                Error::Timeout { what, waited, detail: format!(". Its last lines:\n{}", self.tail(None)) }
            }
            other => other,
        }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("name", &self.name).field("pid", &self.pid()).finish_non_exhaustive()
    }
}
