//! Waiting until the partitions stand as a scenario needs them, two nodes among them.

use crate::failure::{Failure, Outcome};
use crate::ground::Ground;
use crate::jobs::{Workload, patient};
use gristmill_broker::inspect::PartitionView;
use gristmill_broker::{Broker, Incarnation};
use gristmill_testkit::Deadline;
use gristmill_testkit::server::Server;
use std::time::Duration;

/// How long a state may take to come about.
pub(super) const WITHIN: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Whether a partition is this node's.
pub(super) fn is(view: &PartitionView, node: &str) -> bool {
    Incarnation::from_stored(&view.owner).node() == node
}

fn owned(views: &[PartitionView], node: &str) -> usize {
    views.iter().filter(|view| is(view, node) && view.expires > view.now).count()
}

/// Whether these two nodes own everything, more than a quarter each.
pub(super) fn share(views: &[PartitionView], nodes: [&str; 2]) -> bool {
    let owned = nodes.map(|node| owned(views, node));
    owned.iter().all(|owned| *owned > views.len() / 4) && owned[0] + owned[1] == views.len()
}

/// Looks until `holds`.
pub(super) fn until(
    ground: &Ground,
    server: &Server,
    workload: &Workload,
    what: &str,
    holds: impl Fn(&[PartitionView]) -> bool,
) -> Outcome<()> {
    let deadline = Deadline::after(WITHIN);
    let url = server.url();
    loop {
        let views = ground.run(async {
            let broker = Broker::connect(patient(&url));
            Ok(broker.connection().await?.partitions(&workload.queue).await?)
        })?;
        if holds(&views) {
            return Ok(());
        }
        if deadline.passed() {
            return Err(Failure::Broken(format!("waited {WITHIN:?} for {what}, in vain: {views:?}")));
        }
        ground.pause(LOOK_EVERY);
    }
}
