//! A bare loop and a node that does the same work, alternated.

use crate::cost;
use crate::failure::{Outcome, ensure};
use crate::ground::Ground;
use crate::jobs::{Workload, check_drained, fill};
use crate::rate::{Samples, median};
use crate::report::{Figures, Table, per_second};
use crate::whole::Report;
use gristmill_testkit::server::Server;
use std::time::Duration;

/// What one side did, and the CPU time of whoever it asked to.
pub(super) struct Side<T> {
    pub(super) did: T,
    pub(super) asked: Duration,
}

/// What is compared, of how many jobs, and who is asked by both.
pub(super) struct Beside<'a> {
    pub(super) ground: &'a Ground,
    /// The queue of the node.
    pub(super) redis: &'a Server,
    pub(super) workload: &'a Workload,
    pub(super) jobs: usize,
    pub(super) name: &'a str,
    pub(super) asked: &'a str,
}

impl Beside<'_> {
    /// Alternates the two, and gives the median of the node's rate over that of the bare loop.
    pub(super) fn rounds(
        &self,
        figures: &mut Figures,
        table: &mut Table,
        mut bare: impl FnMut() -> Outcome<Side<Samples>>,
        mut node: impl FnMut(&str) -> Outcome<Side<Report>>,
    ) -> Outcome<f64> {
        let (mut rounds, url) = (Vec::new(), self.redis.url());
        for round in 1..=self.ground.plan.rounds {
            let before = cost::cpu("self")?;
            let side = bare()?;
            let own = cost::cpu("self")? - before;
            let (done, due) = (side.did.last(), self.jobs as u64);
            ensure(done == due, || format!("{due} jobs were due, {done} were done"))?;
            let bare = side.did.rate(due);
            self.tell(round, "bare", bare, bare, &[("client", own), (self.asked, side.asked)]);

            self.redis.flush()?;
            self.ground.run(fill(&url, self.workload, self.jobs))?;
            let before = cost::server_cpu(self.redis)?;
            let side = node(&url)?;
            let redis = cost::server_cpu(self.redis)? - before;
            self.ground.run(check_drained(&url, &self.workload.queue))?;
            let (done, due) = (side.did.get("done"), self.jobs as f64);
            ensure(done == due, || format!("{due} jobs were due, {done} were done"))?;
            let (node, own) = (side.did.get("rate"), Duration::from_secs_f64(side.did.get("cpu_ms") / 1e3));
            self.tell(
                round,
                "node",
                node,
                bare,
                &[("node", own), (self.asked, side.asked), ("Redis", redis)],
            );
            figures.tell_lost(round, &side.did);
            rounds.push((bare, node));
        }
        let middle = |of: fn(&(f64, f64)) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
        let ratio = middle(|(bare, node)| node / bare);
        table.row(format!("{}: bare loop", self.name), per_second(middle(|round| round.0)), "");
        table.row(format!("{}: node", self.name), per_second(middle(|round| round.1)), "");
        table.row(format!("{}: node of bare loop", self.name), format!("{ratio:.3}"), "at least 0.6");
        Ok(ratio)
    }

    fn tell(&self, round: usize, side: &str, rate: f64, bare: f64, costs: &[(&str, Duration)]) {
        let micros = |cpu: &Duration| cpu.as_secs_f64() * 1e6 / self.jobs as f64;
        let costs: Vec<String> =
            costs.iter().map(|(of, cpu)| format!("{of} {:.1} µs", micros(cpu))).collect();
        println!(
            "  round {round}  {side}  {:>16}  {:.2} of bare  CPU per job: {}",
            per_second(rate),
            rate / bare,
            costs.join(", "),
        );
    }
}
