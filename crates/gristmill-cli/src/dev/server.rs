//! A private Redis in a folder of its own, on a port of its own, that dies with this process.
//!
//! It is started through a line of `sh` which leaves a watchdog beside it: the watchdog reads a pipe whose only writer is
//! this process. When we end, for whatever reason (SIGKILL included), that read ends and the watchdog kills the server and
//! removes its folder. The server leads a process group of its own, so a Ctrl-C in the terminal reaches only us, and the
//! drain still has its Redis.

use crate::exit::Failure;
use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// `$0`: the folder to remove · the rest: the program. The watchdog keeps the group's number taken while it lives, so
/// `$$` never names a stranger.
const WATCHED: &str = r#"
exec 3<&0
trap '' HUP
( trap '' INT QUIT TERM; read -r _; kill -9 $$; rm -rf -- "$0" ) <&3 >/dev/null 2>&1 &
trap - HUP
exec "$@" </dev/null 3<&-
"#;

/// Names the program where it is not `redis-server` on PATH.
const VARIABLE: &str = "GRISTMILL_REDIS_7";
const START_WITHIN: Duration = Duration::from_secs(15);
const LOG: &str = "server.log";

pub(super) struct Server {
    child: Child,
    folder: PathBuf,
    url: String,
}

impl Server {
    /// Starts it and waits until it answers. A free port where `port` is 0.
    pub(super) fn start(port: u16) -> Result<Self, Failure> {
        let program = std::env::var_os(VARIABLE)
            .filter(|path| !path.is_empty())
            .unwrap_or_else(|| "redis-server".into());
        let answer = Command::new(&program).arg("--version").output();
        if !answer.is_ok_and(|answer| answer.status.success()) {
            return Err(Failure::Failed(format!(
                "cannot run {}; install Redis 7.0 or newer, or name its program in {VARIABLE}",
                program.to_string_lossy()
            )));
        }
        let port = match port {
            0 => TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port(),
            port => TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map(|_| port).map_err(|error| {
                Failure::Failed(format!("port {port} cannot be had: {error}; name another, or 0"))
            })?,
        };
        let folder = make_folder()?;
        let log = fs::File::create(folder.join(LOG))?;
        let errors = log.try_clone()?;
        let child = Command::new("sh")
            .args(["-c", WATCHED])
            .arg(&folder)
            .arg(&program)
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "yes"])
            .args(["--maxmemory-policy", "noeviction", "--daemonize", "no", "--dir"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(log)
            .stderr(errors)
            .process_group(0)
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(error) => {
                let _ = fs::remove_dir_all(&folder);
                return Err(error.into());
            }
        };
        let mut server = Self { child, folder, url: format!("redis://127.0.0.1:{port}") };
        server.wait_until_it_answers(port)?;
        Ok(server)
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    fn wait_until_it_answers(&mut self, port: u16) -> Result<(), Failure> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                let said = tail(&self.folder.join(LOG));
                return Err(Failure::Failed(format!(
                    "the private Redis ended at its start ({status}); it said:\n{said}"
                )));
            }
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(());
            }
            if started.elapsed() > START_WITHIN {
                return Err(Failure::Failed("the private Redis does not listen".into()));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The watchdog removes it too, once the pipe closes; whoever comes second finds nothing.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A new folder that nobody else can read.
fn make_folder() -> std::io::Result<PathBuf> {
    let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let folder = std::env::temp_dir().join(format!("gristmill-dev-{}-{nanos}", std::process::id()));
    fs::DirBuilder::new().mode(0o700).create(&folder)?;
    Ok(folder)
}

fn tail(path: &Path) -> String {
    let mut text = String::new();
    let _ = fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text));
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}
