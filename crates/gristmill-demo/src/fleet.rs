//! The node processes of a run: started, watched, killed at work, drained.

use crate::{failure::Failure, history_tail::HistoryTail, worker::Order};
use gristmill_testkit::{
    history::now_us,
    process::{Process, Signal},
};
use std::{
    collections::HashSet,
    env, fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const READY_WITHIN: Duration = Duration::from_secs(20);
const STOPPED_WITHIN: Duration = Duration::from_secs(2);
/// Drain window and grace of a node, and some.
const LEFT_WITHIN: Duration = Duration::from_secs(40);

/// One node process.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) process: Process,
    tail: Option<HistoryTail>,
    /// When it was sent SIGTERM.
    leaving: Option<Instant>,
}

/// A kill, and what it interrupted.
#[derive(Debug)]
pub(crate) struct Kill {
    pub(crate) node: String,
    pub(crate) at_us: u64,
    /// Ids of the jobs whose handlers were running.
    pub(crate) running: HashSet<String>,
}

/// How a node left that was asked to.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) node: String,
    pub(crate) took: Duration,
    /// What it said at its end: the drain's report, and its counts.
    pub(crate) said: Vec<String>,
    pub(crate) clean: bool,
}

/// All of them, in the order of their start. Dropped, they are killed.
#[derive(Debug)]
pub(crate) struct Fleet {
    program: PathBuf,
    order: Order,
    histories: Option<PathBuf>,
    started: usize,
    pub(crate) members: Vec<Member>,
    logs: Vec<(String, Vec<String>)>,
}

impl Fleet {
    /// `order` is what every member is told, name and history aside; these follow from `histories`.
    pub(crate) fn new(order: Order, histories: Option<&Path>) -> Result<Self, Failure> {
        let program = env::current_exe().map_err(Failure::while_doing("finding this program"))?;
        let histories = histories.map(Path::to_owned);
        Ok(Self { program, order, histories, started: 0, members: Vec::new(), logs: Vec::new() })
    }

    /// Starts one more process, without waiting for it. Gives its name.
    pub(crate) fn start(&mut self) -> Result<&mut Member, Failure> {
        let letter = char::from(b'a' + u8::try_from(self.started % 26).unwrap_or(0));
        let name = format!("node-{letter}");
        self.started += 1;
        let history = self.histories.as_ref().map(|dir| dir.join(format!("{name}.jsonl")));
        let tail = history.clone().map(HistoryTail::new);
        let order = Order { name: name.clone(), history, ..self.order.clone() };
        let order = serde_json::to_string(&order).map_err(Failure::while_doing("writing a node's order"))?;
        let no_more: [(&str, &str); 0] = [];
        let process = Process::spawn(&self.program, ["node", order.as_str()], no_more)?;
        self.members.push(Member { name, process, tail, leaving: None });
        self.members.last_mut().ok_or_else(|| Failure::Run("a node that was started is not there".to_owned()))
    }

    /// Waits until every member says that it serves.
    pub(crate) async fn ready(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + READY_WITHIN;
        while !self.members.iter().all(Member::is_ready) {
            self.check()?;
            if Instant::now() > deadline {
                let late: Vec<&str> =
                    self.members.iter().filter(|m| !m.is_ready()).map(|m| m.name.as_str()).collect();
                return Err(Failure::Run(format!("{} not ready within {READY_WITHIN:?}", late.join(", "))));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Fails when a member that nobody asked to leave has ended.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        for member in self.members.iter_mut().filter(|member| member.leaving.is_none()) {
            if let Some(status) = member.process.try_wait()? {
                let (name, tail) = (&member.name, member.process.stderr_tail());
                return Err(Failure::Run(format!(
                    "{name} ended by itself ({status}); its last lines:\n{tail}"
                )));
            }
        }
        Ok(())
    }

    /// SIGKILL to the member that runs most handlers; none where no handler runs at this moment. It is stopped first, so
    /// that what its history shows as running is running when the kill comes.
    pub(crate) async fn kill_at_work(&mut self) -> Result<Option<Kill>, Failure> {
        let mut busiest = (0, 0);
        for (at, member) in self.members.iter_mut().enumerate() {
            if member.leaving.is_none() {
                busiest = busiest.max((member.running()?.len(), at));
            }
        }
        if busiest.0 == 0 {
            return Ok(None);
        }
        let member = &mut self.members[busiest.1];
        member.process.pause()?;
        member.stopped().await?;
        let running = member.running()?.clone();
        if running.is_empty() {
            member.process.resume()?;
            return Ok(None);
        }
        let at_us = now_us();
        member.process.kill()?;
        let member = self.members.remove(busiest.1);
        let kill = Kill { node: member.name.clone(), at_us, running };
        self.keep(&member);
        Ok(Some(kill))
    }

    /// SIGTERM to the member at this place.
    pub(crate) fn ask_to_leave(&mut self, at: usize) -> Result<String, Failure> {
        let member = &mut self.members[at];
        member.process.terminate()?;
        member.leaving = Some(Instant::now());
        Ok(member.name.clone())
    }

    /// The members that were asked to leave and have left since the last question.
    pub(crate) fn left(&mut self) -> Result<Vec<Left>, Failure> {
        let mut left = Vec::new();
        let mut at = 0;
        while at < self.members.len() {
            let member = &mut self.members[at];
            let Some(since) = member.leaving else {
                at += 1;
                continue;
            };
            let Some(status) = member.process.try_wait()? else {
                if since.elapsed() > LEFT_WITHIN {
                    let (name, tail) = (&member.name, member.process.stderr_tail());
                    let why = format!("{name} did not leave within {LEFT_WITHIN:?}; its last lines:\n{tail}");
                    return Err(Failure::Run(why));
                }
                at += 1;
                continue;
            };
            let took = since.elapsed();
            // It has ended: this only collects the rest of its output.
            member.process.wait(Duration::from_secs(5))?;
            let wanted = ["drained:", "counts:"];
            let lines = member.process.lines();
            let said = lines.iter().filter(|line| wanted.iter().any(|word| line.text.starts_with(word)));
            let said: Vec<String> = said.map(|line| line.text.clone()).collect();
            let clean = status.success() && said.len() == wanted.len();
            left.push(Left { node: member.name.clone(), took, said, clean });
            let member = self.members.remove(at);
            self.keep(&member);
        }
        Ok(left)
    }

    /// Asks all members to leave and waits for their ends.
    pub(crate) async fn dissolve(&mut self) -> Result<Vec<Left>, Failure> {
        for at in 0..self.members.len() {
            if self.members[at].leaving.is_none() {
                self.ask_to_leave(at)?;
            }
        }
        let mut left = Vec::new();
        while !self.members.is_empty() {
            left.extend(self.left()?);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(left)
    }

    fn keep(&mut self, member: &Member) {
        let lines = member.process.lines().into_iter().map(|line| line.text).collect();
        self.logs.push((member.name.clone(), lines));
    }

    /// Copies every history and log so far into a folder.
    pub(crate) fn save(&self, into: &Path) -> Result<(), Failure> {
        let what = || Failure::while_doing("keeping histories and logs");
        fs::create_dir_all(into).map_err(what())?;
        let alive = self.members.iter().map(|member| {
            (member.name.clone(), member.process.lines().into_iter().map(|line| line.text).collect())
        });
        for (name, lines) in self.logs.iter().cloned().chain(alive) {
            fs::write(into.join(format!("{name}.log")), lines.join("\n")).map_err(what())?;
        }
        for file in self.histories.iter().flat_map(|dir| history_files(dir)) {
            let name = file.file_name().unwrap_or_default();
            fs::copy(&file, into.join(name)).map_err(what())?;
        }
        Ok(())
    }
}

/// Every history in a folder.
pub(crate) fn history_files(dir: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect()
}

impl Member {
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    fn is_ready(&self) -> bool {
        self.process.lines().iter().any(|line| line.text.starts_with("ready "))
    }

    fn running(&mut self) -> Result<&HashSet<String>, Failure> {
        match &mut self.tail {
            Some(tail) => tail.open_runs(),
            None => Err(Failure::Run(format!("{} writes no history", self.name))),
        }
    }

    /// Waits until the SIGSTOP has reached every thread.
    async fn stopped(&self) -> Result<(), Failure> {
        let tasks = PathBuf::from(format!("/proc/{}/task", self.process.pid()));
        let is_stopped = |task: &Path| {
            let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
            // `pid (name) state …`; a name may hold anything.
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        };
        let deadline = Instant::now() + STOPPED_WITHIN;
        loop {
            let threads: Vec<PathBuf> = fs::read_dir(&tasks)
                .map_err(Failure::while_doing("looking at a process's threads"))?
                .flatten()
                .map(|entry| entry.path())
                .collect();
            if threads.iter().all(|task| is_stopped(task)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let (name, signal) = (&self.name, Signal::SIGSTOP);
                return Err(Failure::Run(format!(
                    "{name} did not stop within {STOPPED_WITHIN:?} of {signal}"
                )));
            }
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
    }
}
