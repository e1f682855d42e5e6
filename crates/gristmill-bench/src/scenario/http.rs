//! Jobs of a kind that is served by HTTP, beside a bare loop of the same requests, as many at a time, to the same site.

use super::beside::Beside;
use crate::failure::{Outcome, ensure};
use crate::ground::Ground;
use crate::jobs::{Ids, check_drained, fill};
use crate::plan::Role;
use crate::report::{Figures, Table};
use crate::web;
use crate::whole::Child;
use gristmill_testkit::server::Appendonly;

const NAME: &str = "served by HTTP";

/// Alternates the two. The site is a process of its own, another one for each side.
pub(crate) fn run(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    let (plan, jobs) = (&ground.plan, ground.plan.http_jobs);
    println!("\n{NAME}, {jobs} jobs, {} requests at a time", plan.slots);
    let server = ground.server(Appendonly::Everysec)?;
    let workload = ground.workload(Ids::Ours)?;
    let url = server.url();
    let heard = |site: Child| {
        let report = site.terminate()?;
        let heard = (report.get("requests"), report.get("bytes"));
        let due = (jobs as f64, (jobs * workload.payload.len()) as f64);
        println!("           site  CPU per job: {:.1} µs", report.get("cpu_ms") * 1e3 / jobs as f64);
        ensure(heard == due, || format!("requests and bytes: {due:?} were due, the site heard {heard:?}"))
    };
    let bare = || {
        let (site, address) = Child::site()?;
        let samples = ground.run(web::bare(&address, &workload, jobs, plan.slots))?;
        heard(site)?;
        Ok(samples)
    };
    let node = || {
        let (site, address) = Child::site()?;
        server.flush()?;
        ground.run(fill(&url, &workload, jobs))?;
        let report = Child::elsewhere(plan, &url, Role::Http, &address, jobs)?.end()?;
        ground.run(check_drained(&url, &workload.queue))?;
        heard(site)?;
        Ok(report)
    };
    let beside = Beside { ground, jobs, name: NAME, mark: "at least 0.6" };
    figures.http_ratio = Some(beside.rounds(figures, table, bare, node)?);
    Ok(())
}
