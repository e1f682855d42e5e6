//! One line per event, one write call per line.
//!
//! The file is opened for appending, so several threads and processes may share it: the system puts each write at the
//! end as a whole. A process that is killed loses at most the line it was writing. Each write begins with a line break of its own, so
//! that a torn line never swallows the next one.

use super::event::{Event, Job, Outcome, now_us};
use crate::Error;
use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Writes a history file; clones share it.
#[derive(Debug, Clone)]
pub struct HistoryWriter {
    file: Arc<File>,
    path: PathBuf,
}

impl HistoryWriter {
    /// Opens a file for appending, making it if need be.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        let file = File::options().create(true).append(true).open(&path);
        let file = file.map_err(Error::io(format!("cannot open the history {}", path.display())))?;
        Ok(Self { file: Arc::new(file), path })
    }

    /// The job was accepted. Write it when the enqueue was answered, or, where a lost answer is part of the test, when it is
    /// known in another way that the job is there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn enqueued(&self, job: &Job) -> Result<(), Error> {
        let Job { id, key, version } = job.clone();
        self.write(&Event::Enqueued { id, key, version })
    }

    /// A handler's first line. `node` names one start of a process. Dropped without an end (a cancelled future, a panic), the
    /// run is written as [`Outcome::Stopped`].
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn start(&self, job: &Job, node: &str, attempt: u32) -> Result<OpenRun, Error> {
        let Job { id, key, version } = job.clone();
        self.write(&Event::Started { id, key, version, node: node.to_owned(), attempt, at_us: now_us() })?;
        Ok(OpenRun { writer: self.clone(), job: job.clone(), node: node.to_owned(), attempt, ended: false })
    }

    /// Any event, with a time of the caller's.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, event: &Event) -> Result<(), Error> {
        let failed = || format!("cannot write to the history {}", self.path.display());
        let mut line = b"\n".to_vec();
        serde_json::to_writer(&mut line, event)
            .map_err(|error| Error::Io { what: failed(), source: error.into() })?;
        line.push(b'\n');
        let written = (&*self.file).write(&line).map_err(Error::io(failed()))?;
        if written == line.len() {
            Ok(())
        } else {
            let short = format!("{written} of {} bytes were written", line.len());
            Err(Error::Io { what: failed(), source: io::Error::new(io::ErrorKind::WriteZero, short) })
        }
    }
}

/// A run whose end is still to be written.
#[derive(Debug)]
#[must_use = "dropped at once, the run is recorded as stopped"]
pub struct OpenRun {
    writer: HistoryWriter,
    job: Job,
    node: String,
    attempt: u32,
    ended: bool,
}

impl OpenRun {
    /// The handler's last line.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn end(mut self, outcome: Outcome) -> Result<(), Error> {
        self.ended = true;
        self.write(outcome)
    }

    fn write(&self, outcome: Outcome) -> Result<(), Error> {
        let Job { id, key, version } = self.job.clone();
        let (node, attempt) = (self.node.clone(), self.attempt);
        self.writer.write(&Event::Ended { id, key, version, node, attempt, at_us: now_us(), outcome })
    }
}

impl Drop for OpenRun {
    fn drop(&mut self) {
        if !self.ended
            && let Err(error) = self.write(Outcome::Stopped)
        {
            eprintln!("testkit: {error}");
        }
    }
}
