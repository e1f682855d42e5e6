//! The scenarios, one private server each, and what is said at the end.

mod beside;
mod blocked;
mod dead;
mod drain;
mod enqueue;
mod fail_once;
mod fairness;
mod http;
mod latency;
mod long;
mod memory;
mod pinging;
mod poison;
mod postgres;
mod promote;
mod recovery;
mod schedules;
mod sharing;
mod telemetry;
mod unordered;

use crate::cost;
use crate::failure::Outcome;
use crate::ground::Ground;
use crate::plan::{Only, Plan};
use crate::report::{Figures, Table, per_second};
use crate::whole::{Child, Report};
use gristmill_testkit::server::Server;
use std::time::Duration;

/// One side of a comparison of nodes.
struct Side {
    report: Report,
    /// CPU of the server while the node was there, and of the node.
    server_cpu: Duration,
    node_cpu: Duration,
}

impl Side {
    /// Lets a node do its work to its end.
    fn of(server: &Server, node: impl FnOnce() -> Outcome<Child>) -> Outcome<Self> {
        let before = cost::server_cpu(server)?;
        let report = node()?.finish()?;
        let server_cpu = cost::server_cpu(server)? - before;
        let node_cpu = Duration::from_secs_f64(report.get("cpu_ms") / 1e3);
        Ok(Self { report, server_cpu, node_cpu })
    }

    fn get(&self, name: &str) -> f64 {
        self.report.get(name)
    }

    /// As a line of its round; `first` is the side it is compared with.
    fn tell(&self, round: usize, name: &str, first: &Self, jobs: usize) {
        let micros = |cpu: Duration| cpu.as_secs_f64() * 1e6 / jobs as f64;
        println!(
            "  round {round}  {name:<7}  {:>16}  {:.2} of the first  {:.0} ms in all  CPU per job: Redis {:.2} µs, node {:.2} µs",
            per_second(self.get("rate")),
            self.get("rate") / first.get("rate"),
            self.get("whole_ms"),
            micros(self.server_cpu),
            micros(self.node_cpu),
        );
    }
}

type Scenario = fn(&Ground, &mut Figures, &mut Table) -> Outcome<()>;

const SCENARIOS: [(Only, Scenario); 16] = [
    (Only::Drain, drain::run),
    (Only::Enqueue, enqueue::run),
    (Only::Latency, latency::run),
    (Only::Memory, memory::run),
    (Only::Recovery, recovery::run),
    (Only::Unordered, unordered::run),
    (Only::Blocked, blocked::run),
    (Only::FailOnce, fail_once::run),
    (Only::Poison, poison::run),
    (Only::Dead, dead::run),
    (Only::Promote, promote::run),
    (Only::Fairness, fairness::run),
    (Only::Schedules, schedules::run),
    (Only::Telemetry, telemetry::run),
    (Only::Postgres, postgres::run),
    (Only::Http, http::run),
];

/// Runs what the plan wants, prints the table and the last line.
pub(crate) fn all(plan: &Plan) -> Outcome<()> {
    let ground = Ground::new(plan)?;
    let mut figures = Figures { lease_ms: plan.lease.as_millis() as u64, ..Figures::default() };
    let mut table = Table::default();
    println!(
        "bench: {} jobs a side and round, {} rounds, {} partitions, {} keys, {} bytes of payload",
        plan.jobs, plan.rounds, plan.partitions, plan.keys, plan.payload_bytes
    );
    if plan.long {
        long::run(&ground, &mut figures, &mut table)?;
        dead::run(&ground, &mut figures, &mut table)?;
    } else {
        for (_, scenario) in SCENARIOS.iter().filter(|(which, _)| plan.wants(*which)) {
            scenario(&ground, &mut figures, &mut table)?;
        }
    }
    let lost = figures.tenures_lost.values().sum::<u64>();
    let causes: Vec<String> = figures.tenures_lost.iter().map(|(cause, n)| format!("{cause} {n}")).collect();
    table.row("tenures lost without a fault", lost.to_string(), format!("must be 0 {}", causes.join(", ")));
    println!("\n{table}");
    println!("{figures}");
    Ok(())
}
