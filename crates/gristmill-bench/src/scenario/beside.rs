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

/// One side of one round: jobs per second without the ends, and what a job cost in all processes together.
#[derive(Clone, Copy)]
struct Told {
    rate: f64,
    cpu_us: f64,
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
            let rate = side.did.rate(due);
            let bare = self.tell(round, "bare", rate, rate, &[("client", own), (self.asked, side.asked)]);

            self.redis.flush()?;
            self.ground.run(fill(&url, self.workload, self.jobs))?;
            let before = cost::server_cpu(self.redis)?;
            let side = node(&url)?;
            let redis = cost::server_cpu(self.redis)? - before;
            self.ground.run(check_drained(&url, &self.workload.queue))?;
            let (done, due) = (side.did.get("done"), self.jobs as f64);
            ensure(done == due, || format!("{due} jobs were due, {done} were done"))?;
            let own = Duration::from_secs_f64(side.did.get("cpu_ms") / 1e3);
            let costs = [("node", own), (self.asked, side.asked), ("Redis", redis)];
            let node = self.tell(round, "node", side.did.get("rate"), bare.rate, &costs);
            figures.tell_lost(round, &side.did);
            rounds.push((bare, node));
        }
        let middle = |of: fn(&(Told, Told)) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
        let (ratio, name) = (middle(|(bare, node)| node.rate / bare.rate), self.name);
        let cost = |cpu_us: f64| format!("{cpu_us:.0} µs of CPU a job, in all processes");
        table.row(
            format!("{name}: bare loop"),
            per_second(middle(|round| round.0.rate)),
            cost(middle(|round| round.0.cpu_us)),
        );
        table.row(
            format!("{name}: node"),
            per_second(middle(|round| round.1.rate)),
            cost(middle(|round| round.1.cpu_us)),
        );
        let by_cpu = middle(|(bare, node)| bare.cpu_us / node.cpu_us);
        table.row(
            format!("{name}: node of bare loop"),
            format!("{ratio:.3}"),
            format!("at least 0.6; by CPU {by_cpu:.3}"),
        );
        Ok(ratio)
    }

    fn tell(&self, round: usize, side: &str, rate: f64, bare: f64, costs: &[(&str, Duration)]) -> Told {
        let micros = |cpu: &Duration| cpu.as_secs_f64() * 1e6 / self.jobs as f64;
        let each: Vec<String> = costs.iter().map(|(of, cpu)| format!("{of} {:.1} µs", micros(cpu))).collect();
        println!(
            "  round {round}  {side}  {:>16}  {:.2} of bare  CPU per job: {}",
            per_second(rate),
            rate / bare,
            each.join(", "),
        );
        Told { rate, cpu_us: costs.iter().map(|(_, cpu)| micros(cpu)).sum() }
    }
}
