//! One node process: what it counts, what it costs, and what it says when it leaves.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's scaffold fails loudly where it stands")]

use crate::fleet::SOON;
use gristmill_testkit::process::{Process, Signal};
use std::collections::BTreeMap;
use std::process::ExitStatus;
use std::time::Duration;

/// One node process.
pub struct NodeProcess {
    /// The process; stopped with the value.
    pub process: Process,
    /// Its name, the start of its incarnation in Redis.
    pub name: String,
    /// Its name in the history: name and process id.
    pub incarnation: String,
    pub(crate) paused_at: Option<u64>,
}

/// What a node has counted: a number per name. Ends of tenures are named `end.<cause>`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counted(BTreeMap<String, u64>);

impl Counted {
    fn parse(line: &str) -> Self {
        let pair = |word: &str| {
            let (name, number) = word.split_once('=')?;
            Some((name.to_owned(), number.parse().ok()?))
        };
        Self(line.split_whitespace().filter_map(pair).collect())
    }

    /// One count.
    ///
    /// # Panics
    /// When the node has no such count.
    pub fn of(&self, name: &str) -> u64 {
        *self.0.get(name).unwrap_or_else(|| panic!("a node counts no `{name}`, only {self:?}"))
    }

    /// Tenures that ended, whatever the cause.
    pub fn tenures(&self) -> u64 {
        self.0.iter().filter(|(name, _)| name.starts_with("end.")).map(|(_, count)| count).sum()
    }

    /// Tenures that ended by a fault.
    pub fn tenures_lost(&self) -> u64 {
        self.tenures() - self.of("end.handover") - self.of("end.drain")
    }
}

/// What a node said when it left.
#[derive(Debug, Clone)]
pub struct Drained {
    /// The line for people.
    pub line: String,
    /// How the process ended.
    pub status: ExitStatus,
    /// Jobs settled during the drain.
    pub finished: u64,
    /// Jobs laid down for others.
    pub handed_back: u64,
    /// Runs that could not be stopped.
    pub abandoned: u64,
    /// What it had counted in its life.
    pub counts: Counted,
}

impl NodeProcess {
    /// Asks for its counts.
    pub fn counts(&mut self) -> Counted {
        let before = self.process.lines().len();
        self.process.signal(Signal::SIGUSR1).unwrap();
        let found = self.process.wait_line_from(before, |line| line.text.starts_with("counts "), SOON);
        Counted::parse(&found.unwrap().1.text)
    }

    /// Processor time it has used, in all its threads.
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.pid())).unwrap();
        // The second field is the program's name in parentheses and may hold blanks.
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        // USER_HZ is 100 on Linux.
        Duration::from_millis(ticks * 10)
    }

    /// What it said, once it is gone.
    pub(crate) fn left(&mut self, within: Duration) -> Drained {
        let status = self.process.wait(within).unwrap();
        let lines: Vec<String> = self.process.lines().into_iter().map(|line| line.text).collect();
        let starting = |word: &str| lines.iter().rev().find(|line| line.starts_with(word)).cloned();
        let line =
            starting("drained:").unwrap_or_else(|| panic!("no drain line; {}", self.process.stderr_tail()));
        let said = Counted::parse(&line);
        let counts = Counted::parse(&starting("counts ").unwrap());
        let (finished, handed_back, abandoned) =
            (said.of("finished"), said.of("handed_back"), said.of("abandoned"));
        Drained { line, status, finished, handed_back, abandoned, counts }
    }
}

/// Where logs and histories of a failed test are kept, if anybody asked for them.
pub(crate) fn kept() -> Option<std::path::PathBuf> {
    let folder = std::env::var_os("GRISTMILL_TEST_KEEP").filter(|_| std::thread::panicking())?;
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder.into())
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        if let Some(folder) = kept() {
            let lines: String = self.process.lines().iter().map(|line| format!("{}\n", line.text)).collect();
            let _ = std::fs::write(folder.join(format!("{}.log", self.incarnation)), lines);
        }
    }
}
