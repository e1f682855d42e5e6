//! Jobs of a kind that is served by HTTP, beside a bare loop of the same requests, as many at a time, to the same site.

use super::beside::{Beside, Side};
use crate::failure::{Outcome, ensure};
use crate::ground::Ground;
use crate::jobs::Ids;
use crate::plan::Role;
use crate::report::{Figures, Table};
use crate::web;
use crate::whole::Child;
use gristmill_testkit::server::Appendonly;
use std::time::Duration;

const NAME: &str = "served by HTTP";

/// Alternates the two. The site is a process of its own, another one for each side.
pub(crate) fn run(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    let (plan, jobs) = (&ground.plan, ground.plan.http_jobs);
    println!("\n{NAME}, {jobs} jobs, {} requests at a time", plan.slots);
    let redis = ground.server(Appendonly::Everysec)?;
    let workload = ground.workload(Ids::Ours)?;
    let heard = |site: Child| -> Outcome<Duration> {
        let report = site.terminate()?;
        let heard = (report.get("requests"), report.get("bytes"));
        let due = (jobs as f64, (jobs * workload.payload.len()) as f64);
        ensure(heard == due, || format!("requests and bytes: {due:?} were due, the site heard {heard:?}"))?;
        Ok(Duration::from_secs_f64(report.get("cpu_ms") / 1e3))
    };
    let bare = || {
        let (site, address) = Child::site()?;
        let did = ground.run(web::bare(&address, &workload, jobs, plan.slots))?;
        Ok(Side { did, asked: heard(site)? })
    };
    let node = |url: &str| {
        let (site, address) = Child::site()?;
        let did = Child::elsewhere(plan, url, Role::Http, &address, jobs)?.end()?;
        Ok(Side { did, asked: heard(site)? })
    };
    let beside = Beside { ground, redis: &redis, workload: &workload, jobs, name: NAME, asked: "site" };
    figures.http_ratio = Some(beside.rounds(figures, table, bare, node)?);
    Ok(())
}
