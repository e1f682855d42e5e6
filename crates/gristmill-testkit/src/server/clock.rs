//! A server whose wall clock the test sets while it runs. libfaketime is preloaded into it and reads from a file by how much its clock
//! is ahead of the machine's. Its monotonic clock stays the machine's, as when a clock is set.

use super::{options::ServerOptions, running::Server};
use crate::Error;
use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

const VARIABLE: &str = "GRISTMILL_FAKETIME";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";
const FILE: &str = "clock";

impl ServerOptions {
    /// Lets the test set the server's clock ([`Server::set_clock`]). Needs libfaketime: [`ServerOptions::find_faketime`].
    pub fn settable_clock(mut self) -> Self {
        self.settable_clock = true;
        self
    }

    /// The library by which a server's clock is set: what `GRISTMILL_FAKETIME` names, else that of the package `libfaketime`.
    ///
    /// # Errors
    /// [`Error::MissingFaketime`]. A variable that is set but names no file is an error, never a reason to fall back.
    pub fn find_faketime() -> Result<PathBuf, Error> {
        if let Some(given) = env::var_os(VARIABLE).filter(|given| !given.is_empty()) {
            let path = PathBuf::from(given);
            let found = format!("{VARIABLE}={} is no file", path.display());
            return path.is_file().then_some(path).ok_or(Error::MissingFaketime { found });
        }
        let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
        let installed = folders.map(|folder| folder.join(LIBRARY)).find(|path| path.is_file());
        let found = format!("{VARIABLE} is not set and the package `libfaketime` is not installed");
        installed.ok_or(Error::MissingFaketime { found })
    }
}

impl Server {
    /// Sets the server's clock: so many seconds ahead of the machine's, or behind it. It holds over restarts. Valkey may take a
    /// millisecond to see it.
    ///
    /// # Errors
    /// [`Error::BadOption`] where it was started without [`ServerOptions::settable_clock`], [`Error::Io`].
    pub fn set_clock(&self, ahead_s: i64) -> Result<(), Error> {
        if !self.options.settable_clock {
            return Err(Error::BadOption("the server was started without a clock to set".to_owned()));
        }
        write(self.dir(), ahead_s)
    }
}

/// In one step: it is read at every look at the clock.
fn write(dir: &Path, ahead_s: i64) -> Result<(), Error> {
    let new = dir.join("clock.new");
    fs::write(&new, format!("{ahead_s:+}\n"))
        .and_then(|()| fs::rename(&new, dir.join(FILE)))
        .map_err(Error::io("cannot set a server's clock"))
}

/// The arguments of `env` that start `program` with a clock to set: the preloaded library is for it alone, not for the shell that
/// watches it.
pub(super) fn launch(program: &Path, config: PathBuf, dir: &Path) -> Result<Vec<OsString>, Error> {
    let library = ServerOptions::find_faketime()?;
    if !dir.join(FILE).exists() {
        write(dir, 0)?;
    }
    let setting = |name: &str, value: &Path| {
        let mut setting = OsString::from(name);
        setting.push("=");
        setting.push(value);
        setting
    };
    // An allocator that replaces libc's asks for the time while the library, which asks for memory, is not ready yet: both would
    // wait for ever. libc's own comes first instead.
    let mut preload = setting("LD_PRELOAD", &library);
    preload.push(" libc.so.6");
    Ok(vec![
        preload,
        setting("FAKETIME_TIMESTAMP_FILE", &dir.join(FILE)),
        "FAKETIME_NO_CACHE=1".into(),
        "FAKETIME_DONT_FAKE_MONOTONIC=1".into(),
        program.into(),
        config.into(),
    ])
}

/// What the library leaves in shared memory where its process is killed; removed on drop.
pub(super) struct Leftovers {
    pub(super) pid: u32,
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        for name in ["faketime_shm_", "sem.faketime_sem_"] {
            let _ = fs::remove_file(format!("/dev/shm/{name}{}", self.pid));
        }
    }
}
