//! A bare loop and a node that does the same work, alternated.

use crate::cost;
use crate::failure::{Outcome, ensure};
use crate::ground::Ground;
use crate::rate::{Samples, median};
use crate::report::{Figures, Table, per_second};
use crate::whole::Report;
use std::time::Duration;

/// One side of one round: jobs per second without the ends, and the processor time of the client or node.
struct Timed {
    rate: f64,
    cpu: Duration,
}

/// What is compared: of how many jobs, under which names.
pub(super) struct Beside<'a> {
    pub(super) ground: &'a Ground,
    pub(super) jobs: usize,
    pub(super) name: &'a str,
    pub(super) mark: &'a str,
}

impl Beside<'_> {
    /// Alternates the two, and gives the median of the node's rate over that of the bare loop.
    pub(super) fn rounds(
        &self,
        figures: &mut Figures,
        table: &mut Table,
        mut bare: impl FnMut() -> Outcome<Samples>,
        mut node: impl FnMut() -> Outcome<Report>,
    ) -> Outcome<f64> {
        let mut rounds = Vec::new();
        for round in 1..=self.ground.plan.rounds {
            let bare = self.bare(&mut bare)?;
            self.tell(round, "bare", &bare, &bare);
            let report = node()?;
            let node = self.node(&report)?;
            self.tell(round, "node", &node, &bare);
            figures.tell_lost(round, &report);
            rounds.push((bare.rate, node.rate));
        }
        let middle = |of: fn(&(f64, f64)) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
        let ratio = middle(|(bare, node)| node / bare);
        table.row(format!("{}: bare loop", self.name), per_second(middle(|round| round.0)), "");
        table.row(format!("{}: node", self.name), per_second(middle(|round| round.1)), "");
        table.row(format!("{}: node of bare loop", self.name), format!("{ratio:.3}"), self.mark);
        Ok(ratio)
    }

    fn bare(&self, run: &mut impl FnMut() -> Outcome<Samples>) -> Outcome<Timed> {
        let before = cost::cpu("self")?;
        let (samples, jobs) = (run()?, self.jobs as u64);
        ensure(samples.last() == jobs, || format!("{jobs} jobs were due, {} were done", samples.last()))?;
        Ok(Timed { rate: samples.rate(jobs), cpu: cost::cpu("self")? - before })
    }

    fn node(&self, report: &Report) -> Outcome<Timed> {
        let (done, jobs) = (report.get("done"), self.jobs as f64);
        ensure(done == jobs, || format!("{jobs} jobs were due, {done} were done"))?;
        Ok(Timed { rate: report.get("rate"), cpu: Duration::from_secs_f64(report.get("cpu_ms") / 1e3) })
    }

    fn tell(&self, round: usize, side: &str, timed: &Timed, bare: &Timed) {
        println!(
            "  round {round}  {side}  {:>16}  {:.2} of bare  CPU per job of {side} itself: {:.1} µs",
            per_second(timed.rate),
            timed.rate / bare.rate,
            timed.cpu.as_secs_f64() * 1e6 / self.jobs as f64,
        );
    }
}
