//! A copy of a server's data, to start another server from or to roll the same one back to.

use super::options::Appendonly;
use crate::Error;
use std::{
    env, fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

pub(super) const RDB: &str = "dump.rdb";
const AOF_DIR: &str = "appendonlydir";

/// The data of a server at one moment. It outlives its server; the file is removed with the last clone.
#[derive(Debug, Clone)]
pub struct Snapshot {
    dir: Arc<TempDir>,
}

impl Snapshot {
    /// Copies the RDB file that SAVE has just written into `server_dir`.
    pub(super) fn copy_of(server_dir: &Path) -> Result<Self, Error> {
        let dir = TempDir::new("snapshot")?;
        copy(&server_dir.join(RDB), &dir.path().join(RDB))?;
        Ok(Self { dir: Arc::new(dir) })
    }

    /// The RDB file.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join(RDB)
    }

    /// Makes this the only data in `server_dir`.
    pub(super) fn install(&self, server_dir: &Path) -> Result<(), Error> {
        remove_data(server_dir)?;
        copy(&self.path(), &server_dir.join(RDB))
    }
}

/// The form of persistence in which a server starts: one that keeps an append-only file would ignore an RDB file.
pub(super) fn first_appendonly(asked: Appendonly, from_snapshot: bool) -> Appendonly {
    if from_snapshot { Appendonly::Off } else { asked }
}

fn remove_data(server_dir: &Path) -> Result<(), Error> {
    let gone = |result: std::io::Result<()>| match result {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    gone(fs::remove_file(server_dir.join(RDB)))
        .and_then(|()| gone(fs::remove_dir_all(server_dir.join(AOF_DIR))))
        .map_err(Error::io("cannot remove a server's old data"))
}

fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    fs::copy(from, to).map(drop).map_err(Error::io(format!(
        "cannot copy {} to {}",
        from.display(),
        to.display()
    )))
}

/// A directory that is removed on drop.
#[derive(Debug)]
pub(crate) struct TempDir {
    path: PathBuf,
}

impl TempDir {
    pub(crate) fn new(purpose: &str) -> Result<Self, Error> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = env::temp_dir().join(format!("gristmill-{purpose}-{}-{number}", process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                // Left by an earlier process with our number.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                Err(source) => {
                    return Err(Error::Io { what: format!("cannot make {}", path.display()), source });
                }
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path)
            && error.kind() != ErrorKind::NotFound
        {
            eprintln!("testkit: cannot remove {}: {error}", self.path.display());
        }
    }
}
