//! Reading a history while it is being written: which runs are open right now.

use crate::failure::Failure;
use gristmill_testkit::history::Event;
use std::{
    collections::HashSet,
    fs::File,
    io::{ErrorKind, Read, Seek, SeekFrom},
    path::PathBuf,
};

#[derive(Debug)]
pub(crate) struct HistoryTail {
    path: PathBuf,
    read_to: u64,
    open: HashSet<String>,
}

impl HistoryTail {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, read_to: 0, open: HashSet::new() }
    }

    /// Ids of jobs whose run has started and not ended, as far as the file tells by now.
    pub(crate) fn open_runs(&mut self) -> Result<&HashSet<String>, Failure> {
        const WHAT: &str = "following a node's history";
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(&self.open),
            Err(error) => return Err(Failure::while_doing(WHAT)(error)),
        };
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(self.read_to)).map_err(Failure::while_doing(WHAT))?;
        file.read_to_end(&mut bytes).map_err(Failure::while_doing(WHAT))?;
        // Whole lines only; the rest is read next time.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        for line in bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line).map_err(Failure::while_doing(WHAT))? {
                Event::Started { id, .. } => self.open.insert(id),
                Event::Ended { id, .. } => self.open.remove(&id),
                Event::Enqueued { .. } => false,
            };
        }
        self.read_to += whole as u64;
        Ok(&self.open)
    }
}
