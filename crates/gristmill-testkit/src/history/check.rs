//! Runs to a report: what was lost, doubled, reordered, or ran beside another run of its key.
//!
//! The rules, per key:
//! * *lost*: an enqueued job of which no run succeeded.
//! * *out of order*: by start time, the versions of first successful runs do not rise.
//! * *overlapping*: a run starts before an earlier one has ended. A killed process' run ends with the kill.
//! * *repeated* (allowed): a job succeeds again, as recovery may make it. Whether its *effect* was applied again only the
//!   `applied` counts can tell: *doubled*, and *missing*.
//!
//! A process that was stopped (SIGSTOP) cannot be kept from finishing, or starting late, what it had begun; such overlaps are
//! counted as excused, and the `applied` counts show that their effects were refused.

use super::{
    event::Job,
    reader::{History, Run},
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
};

/// How long after it was resumed a process may still start a run it had decided on before.
const LATE_START_US: u64 = 1_000_000;

/// What the test did, and what it knows from elsewhere.
#[derive(Debug, Clone, Default)]
pub struct Expectations {
    killed: HashMap<String, u64>,
    paused: Vec<(String, u64, u64)>,
    settled_otherwise: HashSet<String>,
    order_not_promised: HashSet<String>,
    applied: Option<HashMap<String, u64>>,
    examples: usize,
}

impl Expectations {
    /// No fault, every job succeeds, effects not looked at, five examples per finding.
    pub fn new() -> Self {
        Self { examples: 5, ..Self::default() }
    }

    /// This process was killed with SIGKILL at a time ([`super::now_us`], read just before the signal was sent).
    pub fn killed(mut self, node: impl Into<String>, at_us: u64) -> Self {
        self.killed.insert(node.into(), at_us);
        self
    }

    /// This process was stopped and resumed at these times. Read the first before the SIGSTOP, the second after the SIGCONT.
    pub fn paused(mut self, node: impl Into<String>, from_us: u64, to_us: u64) -> Self {
        self.paused.push((node.into(), from_us, to_us));
        self
    }

    /// Jobs that need no successful run and have no effect: dead, cancelled, expired, stale, purged.
    pub fn settled_otherwise<S: Into<String>>(mut self, ids: impl IntoIterator<Item = S>) -> Self {
        self.settled_otherwise.extend(ids.into_iter().map(Into::into));
        self
    }

    /// Jobs without a promised place, such as those replayed after their lane went on.
    pub fn order_not_promised<S: Into<String>>(mut self, ids: impl IntoIterator<Item = S>) -> Self {
        self.order_not_promised.extend(ids.into_iter().map(Into::into));
        self
    }

    /// How many effects were applied, per key; a key that is not named has none. Compared with the distinct ids enqueued for it.
    pub fn applied<S: Into<String>>(mut self, per_key: impl IntoIterator<Item = (S, u64)>) -> Self {
        self.applied = Some(per_key.into_iter().map(|(key, count)| (key.into(), count)).collect());
        self
    }

    /// How many examples a finding keeps.
    pub fn examples(mut self, count: usize) -> Self {
        self.examples = count;
        self
    }

    fn end_of(&self, run: &Run) -> u64 {
        match (run.ended, self.killed.get(&run.node)) {
            (Some((at_us, _)), _) => at_us,
            (None, Some(killed_us)) => run.started_us.max(*killed_us),
            (None, None) => u64::MAX,
        }
    }

    fn excuses(&self, earlier: &Run, later: &Run) -> bool {
        self.paused.iter().any(|(node, from_us, to_us)| {
            let late_us = to_us.saturating_add(LATE_START_US);
            // Begun before it was stopped, or late after it was resumed: then the true owner's run may come second.
            let while_running =
                *node == earlier.node && *from_us <= later.started_us && late_us >= earlier.started_us;
            let started_late = *node == later.node && (*from_us..=late_us).contains(&later.started_us);
            while_running || started_late
        })
    }
}

/// A kind of violation: how often, and the first examples in words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Finding {
    /// How often.
    pub count: u64,
    /// The first of them.
    pub examples: Vec<String>,
}

impl Finding {
    fn add(&mut self, count: u64, keep: usize, example: impl FnOnce() -> String) {
        self.count += count;
        if self.examples.len() < keep {
            self.examples.push(example());
        }
    }
}

/// What the check found. The findings are violations; the plain numbers say how much was looked at.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Enqueued jobs of which no run succeeded.
    pub lost: Finding,
    /// Effects that were not applied (only with `applied` counts).
    pub missing: Finding,
    /// Effects that were applied more than once (only with `applied` counts).
    pub doubled: Finding,
    /// First successful runs whose version is lower than one before.
    pub out_of_order: Finding,
    /// Pairs of runs of one key at the same time.
    pub overlapping: Finding,
    /// Runs without an end in a process that was not killed.
    pub unended: Finding,
    /// Runs of jobs that were never enqueued, and ends that have no start: the history itself is incomplete.
    pub unexplained: Finding,
    /// Distinct jobs enqueued.
    pub jobs: u64,
    /// All runs.
    pub runs: u64,
    /// Successful runs of a job that had succeeded before.
    pub repeated: u64,
    /// Overlaps with a process that had been stopped.
    pub excused_overlaps: u64,
    /// Lines left unfinished by a kill.
    pub torn_lines: u64,
    /// Whether `applied` counts were compared.
    pub effects_compared: bool,
}

impl Report {
    /// Whether every promise held.
    pub fn is_clean(&self) -> bool {
        self.findings().iter().all(|(_, finding)| finding.count == 0)
    }

    /// For tests.
    ///
    /// # Panics
    /// With the whole report unless every promise held, and when nothing was looked at.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert!(self.jobs > 0, "the history holds no job: nothing was checked");
        assert!(self.is_clean(), "promises were broken\n{self}");
    }

    fn findings(&self) -> [(&'static str, &Finding); 7] {
        [
            ("lost", &self.lost),
            ("missing effects", &self.missing),
            ("doubled effects", &self.doubled),
            ("out of order", &self.out_of_order),
            ("overlapping", &self.overlapping),
            ("unended", &self.unended),
            ("unexplained", &self.unexplained),
        ]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} jobs, {} runs, {} repeated, {} overlaps excused, {} torn lines, effects {}",
            self.jobs,
            self.runs,
            self.repeated,
            self.excused_overlaps,
            self.torn_lines,
            if self.effects_compared { "compared" } else { "not compared" }
        )?;
        for (name, finding) in self.findings().into_iter().filter(|(_, finding)| finding.count > 0) {
            writeln!(f, "{name}: {}", finding.count)?;
            for example in &finding.examples {
                writeln!(f, "  {example}")?;
            }
        }
        Ok(())
    }
}

/// Checks a history against what is expected.
pub fn check(history: &History, expected: &Expectations) -> Report {
    let mut report = Report {
        runs: history.runs.len() as u64,
        torn_lines: history.torn_lines,
        effects_compared: expected.applied.is_some(),
        ..Report::default()
    };
    let enqueued: BTreeMap<&str, &Job> = history.enqueued.iter().map(|job| (job.id.as_str(), job)).collect();
    report.jobs = enqueued.len() as u64;
    check_completeness(history, expected, &enqueued, &mut report);
    check_effects(expected, &enqueued, &mut report);
    let mut keys: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
    for run in &history.runs {
        keys.entry(&run.job.key).or_default().push(run);
    }
    for runs in keys.values() {
        check_order(runs, expected, &mut report);
        check_overlaps(runs, expected, &mut report);
    }
    report
}

fn check_completeness(
    history: &History,
    expected: &Expectations,
    enqueued: &BTreeMap<&str, &Job>,
    report: &mut Report,
) {
    let done: HashSet<&str> =
        history.runs.iter().filter(|run| run.is_done()).map(|run| run.job.id.as_str()).collect();
    for (id, job) in enqueued {
        if !done.contains(id) && !expected.settled_otherwise.contains(*id) {
            let tries = history.runs.iter().filter(|run| run.job.id == *id).count();
            report.lost.add(1, expected.examples, || {
                format!("{} was enqueued and never succeeded ({tries} runs)", name(job))
            });
        }
    }
    for run in &history.runs {
        if run.ended.is_none() && !expected.killed.contains_key(&run.node) {
            report.unended.add(1, expected.examples, || {
                format!("{} has no end, and its process was not killed", told(run))
            });
        }
        if !enqueued.contains_key(run.job.id.as_str()) {
            report.unexplained.add(1, expected.examples, || format!("{}: nobody enqueued it", told(run)));
        }
    }
    for job in &history.ends_without_start {
        report.unexplained.add(1, expected.examples, || format!("{} ended without a start", name(job)));
    }
}

fn check_effects(expected: &Expectations, enqueued: &BTreeMap<&str, &Job>, report: &mut Report) {
    let Some(applied) = &expected.applied else { return };
    let mut due: BTreeMap<&str, u64> = applied.keys().map(|key| (key.as_str(), 0)).collect();
    for (id, job) in enqueued {
        *due.entry(&job.key).or_default() += u64::from(!expected.settled_otherwise.contains(*id));
    }
    for (key, due) in due {
        let applied = applied.get(key).copied().unwrap_or(0);
        let words = || format!("key {key}: {due} effects were due, {applied} were applied");
        if applied < due {
            report.missing.add(due - applied, expected.examples, words);
        } else if applied > due {
            report.doubled.add(applied - due, expected.examples, words);
        }
    }
}

/// `runs` of one key, by start time.
fn check_order(runs: &[&Run], expected: &Expectations, report: &mut Report) {
    let mut succeeded = HashSet::new();
    let mut newest: Option<&Run> = None;
    for run in runs.iter().filter(|run| run.is_done()) {
        if !succeeded.insert(run.job.id.as_str()) {
            report.repeated += 1;
            continue;
        }
        if expected.order_not_promised.contains(&run.job.id) {
            continue;
        }
        match newest {
            Some(before) if run.job.version < before.job.version => {
                report
                    .out_of_order
                    .add(1, expected.examples, || format!("{} after {}", told(run), told(before)));
            }
            _ => newest = Some(run),
        }
    }
}

/// `runs` of one key, by start time.
fn check_overlaps(runs: &[&Run], expected: &Expectations, report: &mut Report) {
    let mut open: Vec<&Run> = Vec::new();
    for later in runs {
        open.retain(|earlier| expected.end_of(earlier) > later.started_us);
        for earlier in &open {
            if expected.excuses(earlier, later) {
                report.excused_overlaps += 1;
            } else {
                report
                    .overlapping
                    .add(1, expected.examples, || format!("{} while {}", told(later), told(earlier)));
            }
        }
        open.push(later);
    }
}

fn name(job: &Job) -> String {
    format!("job {} (key {}, version {})", job.id, job.key, job.version)
}

fn told(run: &Run) -> String {
    let end = match run.ended {
        Some((at_us, outcome)) => format!("{outcome:?} at {at_us} us").to_lowercase(),
        None => "no end".to_owned(),
    };
    format!("{} on {}, attempt {}, from {} us, {end}", name(&run.job), run.node, run.attempt, run.started_us)
}
