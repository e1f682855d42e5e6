//! A process and whatever it started: one process group, asked to end and killed as one, and gone when this value is.
//!
//! Where the node is the first process of a container, what loses its parent becomes a child of the node. So all of a group
//! is reaped here, not its leader alone.

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, timeout_at};

/// How long the killed rest of a group is waited for.
const REST: Duration = Duration::from_secs(1);

pub(crate) struct Group(Option<Leader>);

struct Leader {
    child: Child,
    pid: Pid,
    reaped: bool,
}

/// The three streams of a process.
pub(crate) struct Streams {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

impl Group {
    pub(crate) fn start(mut command: Command) -> io::Result<(Self, Streams)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn()?;
        let missing = || io::Error::other("the process started without its streams");
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw).ok_or_else(missing)?;
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let group = Self(Some(Leader { child, pid, reaped: false }));
        match streams {
            (Some(stdin), Some(stdout), Some(stderr)) => Ok((group, Streams { stdin, stdout, stderr })),
            _ => Err(missing()),
        }
    }

    /// Asks all of it to end.
    pub(crate) fn terminate(&self) {
        self.0.iter().for_each(|leader| leader.signal(Signal::SIGTERM));
    }

    /// Ends all of it.
    pub(crate) fn kill(&self) {
        self.0.iter().for_each(|leader| leader.signal(Signal::SIGKILL));
    }

    /// Waits for the first process to end, and kills what it left. Safe to drop and to call again.
    pub(crate) async fn ended(&mut self) -> io::Result<ExitStatus> {
        match &mut self.0 {
            Some(leader) => leader.ended().await,
            None => Err(io::Error::other("the process was given up")),
        }
    }

    /// Whether the first process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.as_ref().is_none_or(Leader::has_ended)
    }
}

impl Leader {
    async fn ended(&mut self) -> io::Result<ExitStatus> {
        let mut deaths = signal(SignalKind::child())?;
        while !self.has_ended() {
            deaths.recv().await;
        }
        // Before it is reaped: until then nobody else can get its number.
        self.signal(Signal::SIGKILL);
        let status = self.child.wait().await;
        self.reaped = true;
        let by = Instant::now() + REST;
        loop {
            match waitpid(Pid::from_raw(-self.pid.as_raw()), Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) if timeout_at(by, deaths.recv()).await.is_err() => break,
                Ok(_) | Err(Errno::EINTR) => {}
                // None of it is our child, or none is left.
                Err(_) => break,
            }
        }
        status
    }

    /// Looks without reaping it, so that its number stays its own.
    fn has_ended(&self) -> bool {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        self.reaped || !matches!(waitid(Id::Pid(self.pid), look), Ok(WaitStatus::StillAlive))
    }

    fn signal(&self, signal: Signal) {
        if !self.reaped {
            // What fails is a group that is gone already.
            let _ = killpg(self.pid, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Some(mut leader) = self.0.take().filter(|leader| !leader.reaped) else { return };
        leader.signal(Signal::SIGKILL);
        // Without a runtime the process itself is about to end, and all of this with it.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { leader.ended().await });
        }
    }
}
