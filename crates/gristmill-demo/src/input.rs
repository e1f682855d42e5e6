//! The events, and the truth they must lead to.
//!
//! * `git`: a repository's first-parent history, and its tree as the truth;
//! * `files`: lines of JSON and a table, each line checked;
//! * `made`: a small world that changes by chance, where there is no history.
//!
//! Invariants: ids are unique; the versions of a key rise in the order of the events; the truth is never computed from
//! the events.

mod files;
mod git;
mod made;

use crate::{args::Args, failure::Failure, projection::FileState};
use gristmill_job::{EncodeError, NewJob};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

/// Events of an input that is made because there is no history.
const MADE_EVENTS: u32 = 5_000;

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Op {
    Add,
    Modify,
    Delete,
}

/// One change of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Event {
    /// Unique.
    pub(crate) id: String,
    /// The path.
    pub(crate) key: String,
    /// 1, 2, 3 … per path.
    pub(crate) version: u64,
    pub(crate) op: Op,
    pub(crate) mode: String,
    pub(crate) blob: String,
}

/// What a run works on.
#[derive(Debug)]
pub(crate) struct Input {
    /// Where it comes from, in words.
    pub(crate) source: String,
    /// Oldest first.
    pub(crate) events: Vec<Event>,
    /// Events that stand in the input more than once (same id, same content), by index: these are enqueued again too.
    pub(crate) repeated: Vec<usize>,
    /// Path to state, of every file that is there at the end.
    pub(crate) truth: BTreeMap<String, FileState>,
}

impl Input {
    /// Where the arguments say, else the repository around, else made.
    pub(crate) fn load(args: &Args, seed: u64) -> Result<Self, Failure> {
        let input = match (&args.repo, &args.events, &args.truth, args.made) {
            (Some(repo), ..) => git::read(repo).map_err(|why| {
                Failure::Input(format!(
                    "--repo {}: expected a git repository with a commit; {why}",
                    repo.display()
                ))
            })?,
            (_, Some(events), Some(truth), _) => files::read(events, truth)?,
            (.., Some(count)) => made::make(count, seed),
            _ => match git::read(Path::new(".")) {
                Ok(input) => input,
                Err(why) => {
                    println!("no git history here ({why}): an input is made instead");
                    made::make(MADE_EVENTS, seed)
                }
            },
        };
        if input.events.is_empty() {
            return Err(Failure::Input(format!("{}: expected at least one event, found none", input.source)));
        }
        Ok(input)
    }

    /// How many events each path has.
    pub(crate) fn per_key(&self) -> HashMap<&str, u64> {
        let mut counts = HashMap::new();
        for event in &self.events {
            *counts.entry(event.key.as_str()).or_default() += 1;
        }
        counts
    }
}

impl Event {
    /// The job of this change.
    pub(crate) fn job(&self) -> Result<NewJob, EncodeError> {
        self.job_as(&self.id, self.version)
    }

    /// The same change under another id and version.
    pub(crate) fn job_as(&self, id: &str, version: u64) -> Result<NewJob, EncodeError> {
        let change = crate::projection::Change { op: self.op, state: self.state() };
        let job = NewJob::new(crate::projection::KIND, &self.key, &change)?;
        Ok(job.with_id(id)?.with_version(version))
    }

    /// The state of the file after this change, where it is not a deletion.
    pub(crate) fn state(&self) -> FileState {
        FileState { mode: self.mode.clone(), blob: self.blob.clone() }
    }

    /// As the histories name it.
    pub(crate) fn told(&self) -> gristmill_testkit::history::Job {
        gristmill_testkit::history::Job::new(&self.id, &self.key, self.version)
    }
}

/// Why mode and blob cannot be what they should.
fn check_state(mode: &str, blob: &str) -> Result<(), String> {
    let octal = mode.len() == 6 && mode.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    if !octal {
        return Err(format!("expected a mode of six octal digits, got {:?}", shortened(mode)));
    }
    let hex = (blob.len() == 40 || blob.len() == 64) && blob.bytes().all(|byte| byte.is_ascii_hexdigit());
    if hex {
        Ok(())
    } else {
        Err(format!("expected a blob of 40 or 64 hexadecimal digits, got {:?}", shortened(blob)))
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}
