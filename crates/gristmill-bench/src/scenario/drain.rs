//! Draining a full queue: the raw loop, the scripts' ceiling, gristmill whole; alternated, in five variants.

use crate::ceiling;
use crate::cost;
use crate::failure::{Outcome, ensure};
use crate::ground::Ground;
use crate::jobs::{Ids, Workload, check_drained, check_effects, fill};
use crate::plan::{Role, Variant};
use crate::rate::{Samples, median};
use crate::raw;
use crate::report::{Figures, Table, per_second};
use crate::whole::{Child, Report};
use gristmill_testkit::server::{Appendonly, Server};
use std::time::Duration;

const VARIANTS: [Variant; 5] =
    [Variant::Plain, Variant::OwnIds, Variant::Effect, Variant::OwnIdsEffect, Variant::Aof];

impl Variant {
    fn ids(self) -> Ids {
        match self {
            Self::OwnIds | Self::OwnIdsEffect => Ids::Producers,
            Self::Plain | Self::Effect | Self::Aof => Ids::Ours,
        }
    }

    fn effect(self) -> bool {
        matches!(self, Self::Effect | Self::OwnIdsEffect)
    }

    fn appendonly(self) -> Appendonly {
        if self == Self::Aof { Appendonly::Everysec } else { Appendonly::Off }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Plain => "drain, ids made by us",
            Self::OwnIds => "drain, producer's ids",
            Self::Effect => "drain, ids made by us, a versioned effect each",
            Self::OwnIdsEffect => "drain, producer's ids, a versioned effect each",
            Self::Aof => "drain, ids made by us, appendfsync everysec",
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Side {
    Raw,
    Ceiling,
    Whole,
}

/// One side of one round.
#[derive(Debug)]
struct Drained {
    /// Jobs per second, without the ends.
    rate: f64,
    /// CPU of the server and of the client, start and end included.
    server_cpu: Duration,
    client_cpu: Duration,
    /// What the node said at its end.
    report: Option<Report>,
}

/// Runs the variants that the plan wants.
pub(crate) fn run(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    for variant in VARIANTS {
        if ground.plan.variant.is_none_or(|only| only == variant) {
            run_one(ground, variant, figures, table)?;
        }
    }
    Ok(())
}

fn run_one(ground: &Ground, variant: Variant, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    println!("\n{}", variant.describe());
    let server = ground.server(variant.appendonly())?;
    let workload = ground.workload(variant.ids())?;
    let mut rounds = Vec::new();
    for round in 1..=ground.plan.rounds {
        let sides = [Side::Raw, Side::Ceiling, Side::Whole]
            .map(|side| drain(ground, &server, &workload, variant.effect(), side));
        let [raw, ceiling, whole] = sides;
        let (raw, ceiling, whole) = (raw?, ceiling?, whole?);
        let jobs = ground.plan.jobs as f64;
        let micros = |cpu: Duration| cpu.as_secs_f64() * 1e6 / jobs;
        for (name, side) in [("raw", &raw), ("ceiling", &ceiling), ("whole", &whole)] {
            println!(
                "  round {round}  {name:<7}  {:>16}  {:.2} of raw  CPU per job: Redis {:.2} µs, client {:.2} µs",
                per_second(side.rate),
                side.rate / raw.rate,
                micros(side.server_cpu),
                micros(side.client_cpu),
            );
        }
        if let Some(report) = &whole.report {
            figures.tell_lost(round, report);
        }
        rounds.push((raw.rate, ceiling.rate, whole.rate));
    }
    let middle = |of: fn(&(f64, f64, f64)) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
    let ratio = middle(|(raw, _, whole)| whole / raw);
    let of_ceiling = middle(|(_, ceiling, whole)| whole / ceiling);
    let (at_least, slot) = match variant {
        Variant::Plain => ("at least 0.40", Some(&mut figures.drain_ratio)),
        Variant::OwnIds => ("at least 0.22", Some(&mut figures.drain_own_ids_ratio)),
        Variant::Effect => ("at least 0.15", Some(&mut figures.drain_effect_ratio)),
        Variant::OwnIdsEffect => ("", None),
        Variant::Aof => ("", Some(&mut figures.drain_aof_ratio)),
    };
    if let Some(slot) = slot {
        *slot = Some(ratio);
    }
    let name = variant.describe();
    table.row(format!("{name}: raw"), per_second(middle(|round| round.0)), "");
    table.row(format!("{name}: scripts' ceiling"), per_second(middle(|round| round.1)), "");
    table.row(format!("{name}: gristmill whole"), per_second(middle(|round| round.2)), "");
    table.row(format!("{name}: whole of raw"), format!("{ratio:.3}"), at_least);
    if variant == Variant::Plain {
        figures.drain_of_ceiling = Some(of_ceiling);
        table.row(format!("{name}: whole of ceiling"), format!("{of_ceiling:.3}"), "at least 0.75");
    } else {
        table.row(format!("{name}: whole of ceiling"), format!("{of_ceiling:.3}"), "");
    }
    Ok(())
}

fn drain(
    ground: &Ground,
    server: &Server,
    workload: &Workload,
    effect: bool,
    side: Side,
) -> Outcome<Drained> {
    let (plan, url, queue) = (&ground.plan, server.url(), &workload.queue);
    server.flush()?;
    ground.run(fill(&url, workload, plan.jobs))?;
    let (server_before, client_before) = (cost::server_cpu(server)?, cost::cpu("self")?);
    let own = |samples: Samples| -> Outcome<(f64, Duration, Option<Report>)> {
        let jobs = plan.jobs as u64;
        ensure(samples.last() == jobs, || format!("{jobs} jobs were due, {} were settled", samples.last()))?;
        Ok((samples.rate(jobs), cost::cpu("self")? - client_before, None))
    };
    let (rate, client_cpu, report) = match side {
        Side::Raw => own(ground.run(raw::drain(&url, queue, plan.raw_batch, plan.in_flight))?)?,
        Side::Ceiling => {
            own(ground.run(ceiling::drain(&url, queue, effect, plan.ceiling_batch, plan.in_flight))?)?
        }
        Side::Whole => {
            let role = if effect { Role::Effect } else { Role::Plain };
            let report = Child::node(plan, &url, "bench", role, plan.jobs)?.finish()?;
            let (done, jobs) = (report.get("done"), plan.jobs as f64);
            ensure(done == jobs, || format!("{jobs} jobs were due, {done} were done"))?;
            let cpu = Duration::from_secs_f64(report.get("cpu_ms") / 1000.0);
            (report.get("rate"), cpu, Some(report))
        }
    };
    let server_cpu = cost::server_cpu(server)? - server_before;
    ground.run(check_drained(&url, queue))?;
    if effect && !matches!(side, Side::Raw) {
        ground.run(check_effects(&url, workload, plan.jobs))?;
    }
    Ok(Drained { rate, server_cpu, client_cpu, report })
}
