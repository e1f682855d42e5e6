//! gristmill whole: a node in a process of its own, as the parent sees it.

use crate::failure::{Failure, Outcome, ensure};
use crate::plan::{Plan, Role, Told};
use gristmill_testkit::process::Process;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

/// How a process ends that aborts: SIGABRT.
const ABORTED: Option<i32> = Some(6);
/// The longest a child may take to start.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// The longest a child may take for all it has to do.
const DEADLINE: Duration = Duration::from_secs(3600);

/// A running child.
pub(crate) struct Child {
    process: Process,
    expect: u64,
}

/// What a child said at its end.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    figures: BTreeMap<String, f64>,
    /// Tenures that a fault ended, by cause.
    pub(crate) lost: Vec<(String, u64)>,
}

impl Report {
    /// A figure by name; 0 where the child did not tell it.
    pub(crate) fn get(&self, name: &str) -> f64 {
        self.figures.get(name).copied().unwrap_or(0.0)
    }
}

impl Child {
    /// Starts a node and waits until it is ready; it leaves by itself after `expect` jobs, never if that is 0.
    pub(crate) fn node(plan: &Plan, url: &str, name: &str, role: Role, expect: usize) -> Outcome<Self> {
        Self::start("node", plan, url, name, role, expect)?.ready()
    }

    /// The same, of whose jobs so many of a hundred fail once.
    pub(crate) fn failing(plan: &Plan, url: &str, percent: u64, expect: usize) -> Outcome<Self> {
        let mut arguments = arguments("node", plan, url, "bench", Role::FailOnce, expect);
        arguments.push(format!("--fail-percent={percent}"));
        arguments.extend(plan.default_retry_budget.then(|| "--default-retry-budget".to_owned()));
        Self::spawn(&arguments, expect)?.ready()
    }

    /// The same, which tells so much of itself.
    pub(crate) fn told(plan: &Plan, url: &str, told: Told, collector: &str, expect: usize) -> Outcome<Self> {
        let mut arguments = arguments("node", plan, url, "bench", Role::Plain, expect);
        arguments.extend([format!("--told={}", told.word()), format!("--collector={collector}")]);
        Self::spawn(&arguments, expect)?.ready()
    }

    /// Starts a node whose work is done elsewhere, so many runs at a time.
    pub(crate) fn elsewhere(
        plan: &Plan,
        url: &str,
        role: Role,
        target: &str,
        expect: usize,
    ) -> Outcome<Self> {
        let mut arguments = arguments("node", plan, url, "bench", role, expect);
        arguments.extend([format!("--target={target}"), format!("--slots={}", plan.slots)]);
        Self::spawn(&arguments, expect)?.ready()
    }

    /// The same, whose queue has no order, and the lease time as its visibility timeout.
    pub(crate) fn unordered(plan: &Plan, url: &str, name: &str, role: Role, expect: usize) -> Outcome<Self> {
        let mut arguments = arguments("node", plan, url, name, role, expect);
        arguments.push("--unordered".to_owned());
        Self::spawn(&arguments, expect)?.ready()
    }

    /// Starts a node that has the plan's schedules.
    pub(crate) fn recurring(plan: &Plan, url: &str, role: Role, expect: usize) -> Outcome<Self> {
        let mut arguments = arguments("node", plan, url, "bench", role, expect);
        arguments.push(format!("--schedules={}", plan.schedules));
        Self::spawn(&arguments, expect)?.ready()
    }

    /// Starts the site that answers requests. Gives its address, too.
    pub(crate) fn site() -> Outcome<(Self, String)> {
        let site = Self::spawn(&["site".to_owned()], 0)?;
        let line = site.process.wait_line(|line| line.text.starts_with("http://"), READY_WITHIN)?;
        Ok((site, line.text))
    }

    /// Starts a node that may die before it is ready.
    pub(crate) fn mortal(plan: &Plan, url: &str, name: &str, role: Role) -> Outcome<Self> {
        Self::start("node", plan, url, name, role, 0)
    }

    /// Starts the bare client.
    pub(crate) fn bare(plan: &Plan, url: &str, expect: usize) -> Outcome<Self> {
        Self::start("bare", plan, url, "bare", Role::Latency, expect)?.ready()
    }

    fn start(command: &str, plan: &Plan, url: &str, name: &str, role: Role, expect: usize) -> Outcome<Self> {
        Self::spawn(&arguments(command, plan, url, name, role, expect), expect)
    }

    fn spawn(arguments: &[String], expect: usize) -> Outcome<Self> {
        let program = std::env::current_exe()?;
        let process = Process::spawn(program, arguments, [] as [(&str, &str); 0])?;
        Ok(Self { process, expect: expect as u64 })
    }

    fn ready(self) -> Outcome<Self> {
        self.process.wait_line(|line| line.text == "ready", READY_WITHIN)?;
        Ok(self)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> String {
        self.process.pid().to_string()
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> Outcome<bool> {
        Ok(self.process.try_wait()?.is_none())
    }

    /// Whether it has aborted; an error where it ended otherwise.
    pub(crate) fn aborted(&mut self) -> Outcome<bool> {
        let Some(status) = self.process.try_wait()? else { return Ok(false) };
        ensure(status.signal() == ABORTED, || {
            format!("a child was to abort and ended with {status}: {}", self.process.stderr_tail())
        })?;
        Ok(true)
    }

    /// Waits for its end and checks that it ran and settled every job once.
    pub(crate) fn finish(mut self) -> Outcome<Report> {
        let report = self.leave()?;
        let (runs, expect) = (report.get("runs"), self.expect as f64);
        ensure(expect == 0.0 || runs == expect, || format!("{expect} jobs were due, {runs} runs happened"))?;
        Ok(report)
    }

    /// Waits for the end of a node whose runs others have counted.
    pub(crate) fn end(mut self) -> Outcome<Report> {
        self.leave()
    }

    /// Tells it to leave and waits for its end.
    pub(crate) fn terminate(mut self) -> Outcome<Report> {
        self.process.terminate()?;
        self.leave()
    }

    fn leave(&mut self) -> Outcome<Report> {
        let status = self.process.wait(DEADLINE)?;
        ensure(status.success(), || format!("a child ended with {status}: {}", self.process.stderr_tail()))?;
        let lines = self.process.lines();
        let said = lines.iter().rev().find_map(|line| line.text.strip_prefix("report "));
        let said = said.ok_or_else(|| Failure::Broken("a child ended without a report".into()))?;
        let figure = |word: &str| {
            let (name, value) = word.split_once('=')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        let lost = |line: &str| {
            let (cause, count) = line.strip_prefix("tenure_lost ")?.split_once(' ')?;
            Some((cause.to_owned(), count.parse().ok()?))
        };
        Ok(Report {
            figures: said.split_whitespace().filter_map(figure).collect(),
            lost: lines.iter().filter_map(|line| lost(&line.text)).collect(),
        })
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) -> Outcome<()> {
        self.process.kill()?;
        Ok(())
    }

    /// Waits until it says when it started a recovered job, in nanoseconds since 1970.
    pub(crate) fn recovered(&self, within: Duration) -> Outcome<u64> {
        let line = self.process.wait_line(|line| line.text.starts_with("recovered "), within)?;
        let nanos = line.text.strip_prefix("recovered ").and_then(|nanos| nanos.parse().ok());
        nanos.ok_or_else(|| Failure::Broken(format!("a child said {:?}", line.text)))
    }
}

/// What a child is started with.
fn arguments(command: &str, plan: &Plan, url: &str, name: &str, role: Role, expect: usize) -> Vec<String> {
    vec![
        command.to_owned(),
        format!("--url={url}"),
        format!("--name={name}"),
        format!("--partitions={}", plan.partitions),
        format!("--lease-ms={}", plan.lease.as_millis()),
        format!("--role={}", role.word()),
        format!("--expect={expect}"),
    ]
}
