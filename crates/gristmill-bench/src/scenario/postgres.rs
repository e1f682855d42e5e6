//! Jobs whose effect is in Postgres, beside a bare loop of the same SQL on as many connections.

use super::beside::{Beside, Side};
use crate::failure::{Failure, Outcome};
use crate::ground::Ground;
use crate::jobs::Ids;
use crate::plan::Role;
use crate::report::{Figures, Table};
use crate::sql;
use crate::whole::Child;
use gristmill_testkit::Error;
use gristmill_testkit::server::Appendonly;

const NAME: &str = "effects in Postgres";

/// Alternates the two; without Postgres it says so, and there is no figure.
pub(crate) fn run(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    let (plan, jobs) = (&ground.plan, ground.plan.postgres_jobs);
    println!("\n{NAME}, {jobs} jobs, {} connections, fsync=on", plan.slots);
    let postgres = match ground.run(sql::start(plan.slots)) {
        Err(Failure::Testkit(missing @ Error::MissingServer { .. })) => {
            println!("  SKIPPED: {missing}");
            table.row(NAME, "SKIPPED", "PostgreSQL is missing: see above");
            return Ok(());
        }
        started => started?,
    };
    let redis = ground.server(Appendonly::Everysec)?;
    let workload = ground.workload(Ids::Ours)?;
    let bare = || {
        sql::clear(&postgres)?;
        let before = sql::cpu(&postgres)?;
        let did = ground.run(sql::bare(&postgres.url(), &workload, jobs, plan.slots))?;
        let asked = sql::cpu(&postgres)? - before;
        sql::check(&postgres, &workload, jobs)?;
        Ok(Side { did, asked })
    };
    let node = |url: &str| {
        sql::clear(&postgres)?;
        let before = sql::cpu(&postgres)?;
        let did = Child::elsewhere(plan, url, Role::Postgres, &postgres.url(), jobs)?.finish()?;
        let asked = sql::cpu(&postgres)? - before;
        sql::check(&postgres, &workload, jobs)?;
        Ok(Side { did, asked })
    };
    let beside = Beside { ground, redis: &redis, workload: &workload, jobs, name: NAME, asked: "Postgres" };
    figures.postgres_ratio = Some(beside.rounds(figures, table, bare, node)?);
    Ok(())
}
