//! Starting a server's process and knowing that it, and no other on its port, answers with its data loaded.

use super::{
    clock::{self, Leftovers},
    options::{Appendonly, Ports},
    port::Port,
    running::{Server, info},
    snapshot::{Snapshot, first_appendonly},
};
use crate::{
    Deadline, Error,
    guard::{Guard, Launch},
};
use std::{
    ffi::OsStr,
    fs::{self, File},
    path::Path,
    time::Duration,
};

/// Loading a large append-only file on a busy machine with two cores.
const START_WITHIN: Duration = Duration::from_secs(30);
/// One look at a server that is starting: a stranger on its port may accept and never answer.
const PROBE_WITHIN: Duration = Duration::from_secs(1);

impl Server {
    /// Starts the process and waits until it, and no other server on its port, answers with its data loaded.
    pub(super) fn launch(&mut self, snapshot: Option<&Snapshot>) -> Result<(), Error> {
        if let Some(snapshot) = snapshot {
            snapshot.install(self.dir.path())?;
        }
        let appendonly = first_appendonly(self.options.appendonly, snapshot.is_some());
        let ports = Ports { plain: self.plain.number(), tls: self.tls.as_ref().map(Port::number) };
        let config = self.options.config(
            self.dir.path(),
            ports,
            &self.admin_password,
            appendonly,
            self.certificates.as_ref(),
        )?;
        let config_path = self.dir.path().join("server.conf");
        fs::write(&config_path, config).map_err(Error::io("cannot write a server's configuration"))?;
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path())
            .map_err(Error::io("cannot open a server's log"))?;
        let errors = log.try_clone().map_err(Error::io("cannot share a server's log"))?;
        let binary = self.options.flavor.binary()?;
        let (program, args) = match self.options.settable_clock {
            true => (OsStr::new("env"), clock::launch(&binary, config_path, self.dir.path())?),
            false => (binary.as_os_str(), vec![config_path.into_os_string()]),
        };
        let mut guard = Guard::start(Launch {
            program,
            args: &args,
            envs: &[],
            stdin: Path::new("/dev/null"),
            stdout: log.into(),
            stderr: errors.into(),
            dir: Some(self.dir.path()),
        })?;
        self.leftovers = self.options.settable_clock.then(|| Leftovers { pid: guard.pid() });
        self.wait_ready(&mut guard)?;
        self.guard = Some(guard);
        if appendonly != self.options.appendonly {
            self.turn_appendonly_on()?;
        }
        Ok(())
    }

    fn wait_ready(&mut self, guard: &mut Guard) -> Result<(), Error> {
        let deadline = Deadline::after(START_WITHIN);
        let mut last = "it never listened".to_owned();
        let ready = deadline.poll("a server to answer", || {
            if let Ok(Some(status)) = guard.try_wait() {
                self.lost_its_port = self.log_tail().contains("Address already in use");
                return Some(Err(format!("it ended with {status}")));
            }
            match self.answers_as(guard.pid()) {
                Ok(true) => Some(Ok(())),
                Ok(false) => {
                    self.lost_its_port = true;
                    Some(Err("another server answers on its port".to_owned()))
                }
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
        let what = format!("the server for {} (version {})", self.options.flavor, self.version);
        let output = self.log_tail();
        if output.contains("Failed finding TLS support") {
            return Err(Error::NoTls { what });
        }
        Err(Error::StartFailed { what, reason, output })
    }

    fn answers_as(&self, pid: u32) -> Result<bool, Error> {
        let mut connection = self.connection_within(PROBE_WITHIN)?;
        if info(&mut connection, "server", "process_id")? != pid.to_string() {
            return Ok(false);
        }
        // INFO is answered while data is being loaded; PING is refused until it is done.
        connection.command(&["PING"])?;
        Ok(true)
    }

    /// After a start from an RDB file, as an administrator would switch: the file is there when this returns.
    fn turn_appendonly_on(&self) -> Result<(), Error> {
        let sync = match self.options.appendonly {
            Appendonly::Off => return Ok(()),
            Appendonly::Everysec => "everysec",
            Appendonly::Always => "always",
        };
        self.command(&["CONFIG", "SET", "appendfsync", sync, "appendonly", "yes"])?;
        Deadline::after(START_WITHIN).poll("the append-only file to be written", || {
            let done = |field, value| self.info("persistence", field).is_ok_and(|got| got == value);
            (done("aof_rewrite_in_progress", "0")
                && done("aof_rewrite_scheduled", "0")
                && done("aof_enabled", "1"))
            .then_some(())
        })
    }
}
