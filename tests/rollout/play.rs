//! A Deployment that is played: its pods, the controller's looks, what is done to it, and what came of it.

use crate::deployment::{Acts, Seen, Strategy};
use crate::pod::{Ended, Pod, Template};
use gristmill_testkit::history::History;
use gristmill_tests::fleet::Fleet;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Between two looks of the controller.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) struct Play {
    pub(crate) strategy: Strategy,
    template: Template,
    pub(crate) program: PathBuf,
    folder: PathBuf,
    started: usize,
    generation: usize,
    /// What pods are told beside the template.
    pub(crate) more: Vec<(&'static str, String)>,
    pub(crate) old: Vec<Pod>,
    pub(crate) new: Vec<Pod>,
    leaving: Vec<Pod>,
    pub(crate) ended: Vec<Ended>,
    pub(crate) most_pods: usize,
}

impl Play {
    pub(crate) fn new(
        strategy: Strategy,
        template: Template,
        program: PathBuf,
        folder: PathBuf,
        more: Vec<(&'static str, String)>,
    ) -> Self {
        let (old, new, leaving) = (Vec::new(), Vec::new(), Vec::new());
        let ended = Vec::new();
        Self {
            strategy,
            template,
            program,
            folder,
            started: 0,
            generation: 0,
            more,
            old,
            new,
            leaving,
            ended,
            most_pods: 0,
        }
    }

    /// Another pod template: what runs is old from now on.
    pub(crate) fn roll(&mut self) {
        self.old.append(&mut self.new);
        self.generation += 1;
    }

    /// One look of the controller, and of the kubelets.
    pub(crate) fn look(&mut self, fleet: &mut Fleet) {
        let seen =
            |pods: &[Pod]| pods.iter().map(|pod| Seen { ready_for: pod.ready_for() }).collect::<Vec<_>>();
        let Acts { start, stop_old, stop_new } = self.strategy.decide(&seen(&self.old), &seen(&self.new));
        for (pods, mut stop) in [(&mut self.old, stop_old), (&mut self.new, stop_new)] {
            stop.sort_unstable();
            for at in stop.into_iter().rev() {
                let mut pod = pods.remove(at);
                pod.terminate();
                self.leaving.push(pod);
            }
        }
        for _ in 0..start {
            let pod = self.start(fleet);
            self.new.push(pod);
        }
        for pod in self.old.iter().chain(&self.new) {
            assert!(!pod.is_dead(), "{} was found dead by its liveness probe", pod.name);
        }
        self.most_pods = self.most_pods.max(self.old.len() + self.new.len() + self.leaving.len());
        let mut still = Vec::new();
        for mut pod in self.leaving.drain(..) {
            match pod.gone() {
                None => still.push(pod),
                Some((ended, killed_at)) => {
                    if let Some(at) = killed_at {
                        fleet.killed_at(&pod.incarnation, at);
                    }
                    self.ended.push(ended);
                }
            }
        }
        self.leaving = still;
    }

    fn start(&mut self, fleet: &Fleet) -> Pod {
        self.started += 1;
        let name = format!("worker-{}-{}", self.generation, self.started);
        let history = fleet.history_file(&name).display().to_string();
        let more: Vec<(&str, String)> =
            self.more.iter().cloned().chain([("PROMISE_HISTORY", history)]).collect();
        Pod::start(&self.template, &self.program, &self.folder, &name, &more)
    }

    pub(crate) fn is_done(&self) -> bool {
        let seen =
            |pods: &[Pod]| pods.iter().map(|pod| Seen { ready_for: pod.ready_for() }).collect::<Vec<_>>();
        self.leaving.is_empty() && self.strategy.is_done(&seen(&self.old), &seen(&self.new))
    }

    /// Looks until it is done, and until `also` is.
    pub(crate) fn until(
        &mut self,
        fleet: &mut Fleet,
        within: Duration,
        what: &str,
        also: impl Fn(&Self, &Fleet) -> bool,
    ) {
        let began = Instant::now();
        loop {
            self.look(fleet);
            if self.is_done() && also(self, fleet) {
                return;
            }
            if began.elapsed() > within {
                let tell = |pods: &[Pod]| {
                    let one = |pod: &Pod| {
                        format!("{} {:?}\n{}", pod.name, pod.ready_for(), pod.process.stderr_tail())
                    };
                    pods.iter().map(one).collect::<Vec<_>>().join("\n")
                };
                panic!("no {what} within {within:?}\nold:\n{}\nnew:\n{}", tell(&self.old), tell(&self.new));
            }
            // not a wait: the pace of the controller
            std::thread::sleep(LOOK);
        }
    }

    /// All pods leave at once, as when the release is removed.
    pub(crate) fn remove(&mut self, fleet: &mut Fleet) {
        self.strategy.replicas = 0;
        self.until(fleet, Duration::from_secs(60), "end of all pods", |_, _| true);
    }
}

/// The longest time for which a key stood still though a job of it was in the queue: from the end of the run before, or
/// from its own enqueue, to the start of its first run.
pub(crate) fn longest_pause(history: &History, enqueued: &HashMap<String, u64>) -> (Duration, String) {
    let mut by_key: BTreeMap<&str, Vec<(u64, u64, &str)>> = BTreeMap::new();
    for run in &history.runs {
        let ended = run.ended.map_or(run.started_us, |(at_us, _)| at_us);
        by_key.entry(&run.job.key).or_default().push((run.started_us, ended, &run.job.id));
    }
    let mut longest = (Duration::ZERO, String::new());
    for (key, mut runs) in by_key {
        runs.sort_unstable();
        let mut free_from = 0;
        for (started, ended, id) in runs {
            let waits_from = free_from.max(enqueued.get(id).copied().unwrap_or(started));
            let pause = Duration::from_micros(started.saturating_sub(waits_from));
            if pause > longest.0 {
                longest = (pause, format!("{key} before {id}"));
            }
            free_from = free_from.max(ended);
        }
    }
    longest
}
