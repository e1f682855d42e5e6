//! Files to runs.

use super::event::{Event, Job, Outcome};
use crate::Error;
use std::{
    collections::{HashMap, VecDeque},
    fs,
    path::Path,
};

/// One run of a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its job.
    pub job: Job,
    /// The process start that ran it.
    pub node: String,
    /// The attempt as the handler was told.
    pub attempt: u32,
    /// First line, in microseconds.
    pub started_us: u64,
    /// Last line and outcome; none when it was never written (killed, or still running).
    pub ended: Option<(u64, Outcome)>,
}

impl Run {
    /// Whether the handler succeeded.
    pub fn is_done(&self) -> bool {
        matches!(self.ended, Some((_, Outcome::Done)))
    }
}

/// All that was recorded.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Accepted jobs in the order of the files, repeats included.
    pub enqueued: Vec<Job>,
    /// Runs by start time.
    pub runs: Vec<Run>,
    /// Ends whose start is nowhere: a sign that a file is missing.
    pub ends_without_start: Vec<Job>,
    /// Lines that a killed process left unfinished.
    pub torn_lines: u64,
}

impl History {
    /// Reads files written on one machine, in any order.
    ///
    /// # Errors
    /// [`Error::Io`] when a file cannot be read, [`Error::BadHistory`] for a whole line that is no event.
    pub fn read<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Self, Error> {
        let (mut events, mut torn_lines) = (Vec::new(), 0);
        for path in paths {
            let path = path.as_ref();
            let bytes =
                fs::read(path).map_err(Error::io(format!("cannot read the history {}", path.display())))?;
            for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
                match serde_json::from_slice(line) {
                    _ if line.is_empty() => {}
                    Ok(event) => events.push(event),
                    // An unfinished line is a prefix of an object and so ends before its closing brace.
                    Err(error) if error.is_eof() => torn_lines += 1,
                    Err(_) if std::str::from_utf8(line).is_err_and(|e| e.error_len().is_none()) => {
                        torn_lines += 1
                    }
                    Err(error) => {
                        return Err(Error::BadHistory {
                            file: path.to_owned(),
                            line: index + 1,
                            reason: error.to_string(),
                        });
                    }
                }
            }
        }
        Ok(Self { torn_lines, ..Self::from_events(events) })
    }

    /// The history of events in any order.
    pub fn from_events(events: impl IntoIterator<Item = Event>) -> Self {
        let mut history = Self::default();
        let mut ends = Vec::new();
        for event in events {
            match event {
                Event::Enqueued { id, key, version } => history.enqueued.push(Job { id, key, version }),
                Event::Started { id, key, version, node, attempt, at_us } => history.runs.push(Run {
                    job: Job { id, key, version },
                    node,
                    attempt,
                    started_us: at_us,
                    ended: None,
                }),
                Event::Ended { id, key, version, node, attempt, at_us, outcome } => {
                    ends.push((Job { id, key, version }, node, attempt, at_us, outcome));
                }
            }
        }
        history.runs.sort_by_key(|run| run.started_us);
        ends.sort_by_key(|(_, _, _, at_us, _)| *at_us);
        // A process runs a job once at a time, so the first open start belongs to the first end.
        let mut open: HashMap<_, VecDeque<usize>> = HashMap::new();
        for (index, run) in history.runs.iter().enumerate() {
            open.entry((run.job.id.clone(), run.node.clone(), run.attempt)).or_default().push_back(index);
        }
        for (job, node, attempt, at_us, outcome) in ends {
            let start = open.get_mut(&(job.id.clone(), node, attempt)).and_then(VecDeque::pop_front);
            match start {
                Some(index) => history.runs[index].ended = Some((at_us, outcome)),
                None => history.ends_without_start.push(job),
            }
        }
        history
    }
}
