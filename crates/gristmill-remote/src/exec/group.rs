//! A process and whatever it started: one process group, asked to end and killed as one, and gone when this value is.

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::io;
use std::process::{ExitStatus, Stdio};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};

pub(crate) struct Group {
    child: Child,
    leader: Pid,
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
        let leader =
            child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw).ok_or_else(missing)?;
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let group = Self { child, leader, reaped: false };
        match streams {
            (Some(stdin), Some(stdout), Some(stderr)) => Ok((group, Streams { stdin, stdout, stderr })),
            _ => Err(missing()),
        }
    }

    /// Asks all of it to end.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Ends all of it.
    pub(crate) fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    /// Waits for the first process to end, and kills what it left. Safe to drop and to call again.
    pub(crate) async fn ended(&mut self) -> io::Result<ExitStatus> {
        let mut deaths = signal(SignalKind::child())?;
        while !self.has_ended() {
            deaths.recv().await;
        }
        // Before it is reaped: until then nobody else can get its number.
        self.kill();
        self.reaped = true;
        self.child.wait().await
    }

    /// Whether the first process has ended. It is not reaped here, and its number stays its own.
    pub(crate) fn has_ended(&self) -> bool {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        self.reaped || !matches!(waitid(Id::Pid(self.leader), look), Ok(WaitStatus::StillAlive))
    }

    fn signal(&self, signal: Signal) {
        if !self.reaped {
            // What fails is a group that is gone already.
            let _ = killpg(self.leader, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The runtime reaps what it still knows.
        self.kill();
    }
}
