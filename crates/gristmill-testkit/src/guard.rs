//! How children die with their parent, without `unsafe` and on any Unix.
//!
//! A program is started through a line of `sh` that forks a watchdog and then *becomes* the program (`exec`). So the
//! program is our direct child with the process id we know, and its exit status is its own. The watchdog reads a pipe whose
//! only writer is this process: when we end for whatever reason, SIGKILL included, the read ends, and the watchdog kills
//! the program (also a stopped one), removes its directory, and kills whatever else is in its process group.
//!
//! The program leads a process group of its own: a Ctrl-C in the terminal reaches only us. As long as the watchdog lives
//! in that group the number cannot be given to another process, so killing the group never hits a stranger.
//!
//! The watchdog ignores SIGHUP: when we die while the program is stopped, its group becomes an orphaned one with a stopped
//! member, and the kernel then sends SIGHUP and SIGCONT to all of it.

use crate::{Deadline, Error};
use nix::{
    errno::Errno,
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use std::{
    env,
    ffi::OsStr,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio},
};

/// `$0`: file for the program's standard input · `$1`: directory to remove, or empty · the rest: the program.
const WATCHED: &str = r#"
exec 3<&0
trap '' HUP
( trap '' INT QUIT TERM; read -r _; kill -9 $$; [ -z "$1" ] || rm -rf -- "$1"; kill -9 -- -$$ ) <&3 >/dev/null 2>&1 &
trap - HUP
shift
exec "$@" <"$0" 3<&-
"#;

/// A program that ends at the latest when this value, or this process, does.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
    /// The status, once the program was reaped; its group is gone by then too.
    ended: Option<ExitStatus>,
}

/// What a guarded program is started with.
pub(crate) struct Launch<'a> {
    pub(crate) program: &'a OsStr,
    pub(crate) args: &'a [std::ffi::OsString],
    pub(crate) envs: &'a [(std::ffi::OsString, std::ffi::OsString)],
    pub(crate) stdin: &'a Path,
    pub(crate) stdout: Stdio,
    pub(crate) stderr: Stdio,
    /// Removed by the watchdog if this process is killed; in every other case the caller removes it.
    pub(crate) dir: Option<&'a Path>,
}

impl Guard {
    pub(crate) fn start(launch: Launch<'_>) -> Result<Self, Error> {
        require_executable(launch.program)?;
        let child = Command::new("sh")
            .arg("-c")
            .arg(WATCHED)
            .arg(launch.stdin)
            .arg(launch.dir.unwrap_or(Path::new("")))
            .arg(launch.program)
            .args(launch.args)
            .envs(launch.envs.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(launch.stdout)
            .stderr(launch.stderr)
            .process_group(0)
            .spawn()
            .map_err(Error::io(format!("cannot start {}", launch.program.to_string_lossy())))?;
        Ok(Self { child, ended: None })
    }

    /// The program's own process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn outputs(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
        (self.child.stdout.take(), self.child.stderr.take())
    }

    /// The status if the program has ended. The rest of its group is killed then.
    pub(crate) fn try_wait(&mut self) -> Result<Option<ExitStatus>, Error> {
        if self.ended.is_none() {
            let status = self.child.try_wait().map_err(Error::io("cannot wait for a child"))?;
            if status.is_some() {
                self.kill_group();
                self.ended = status;
            }
        }
        Ok(self.ended)
    }

    /// Sends a signal to the program alone.
    pub(crate) fn signal(&mut self, signal: Signal) -> Result<(), Error> {
        if self.try_wait()?.is_some() {
            return Err(Error::NotRunning {
                what: format!("process {}", self.pid()),
                hint: "; it has ended already",
            });
        }
        kill(self.group(), signal).map_err(|source| Error::Signal { pid: self.pid(), source })
    }

    /// SIGKILL to the program and all it started, then reaps it.
    pub(crate) fn kill(&mut self) -> Result<ExitStatus, Error> {
        if let Some(status) = self.ended {
            return Ok(status);
        }
        self.kill_group();
        let status = self.child.wait().map_err(Error::io("cannot reap a killed child"))?;
        self.ended = Some(status);
        Ok(status)
    }

    pub(crate) fn wait(&mut self, deadline: Deadline, what: &str) -> Result<ExitStatus, Error> {
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            if deadline.passed() {
                return Err(deadline.timeout(format!("the end of {what}"), String::new()));
            }
            std::thread::sleep(std::time::Duration::from_millis(3));
        }
    }

    fn group(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX))
    }

    fn kill_group(&self) {
        // ESRCH: the watchdog is gone too; nothing is left to kill.
        if let Err(errno) = killpg(self.group(), Signal::SIGKILL)
            && errno != Errno::ESRCH
        {
            eprintln!("testkit: cannot kill process group {}: {errno}", self.group());
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            eprintln!("testkit: {error}");
        }
    }
}

/// Found before the start, because `sh` would report it only as exit code 127.
fn require_executable(program: &OsStr) -> Result<(), Error> {
    if find_program(program).is_some() {
        Ok(())
    } else {
        Err(Error::MissingProgram { program: program.to_string_lossy().into_owned() })
    }
}

/// The path of an executable file: as given where it has a slash, else the first on PATH.
pub fn find_program(program: impl AsRef<OsStr>) -> Option<std::path::PathBuf> {
    let program = Path::new(program.as_ref());
    if program.components().count() > 1 {
        return is_executable(program).then(|| program.to_path_buf());
    }
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(program)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
