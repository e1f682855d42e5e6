//! What a fleet shows: partitions and who owns them, entities, dead letters, runs; and waiting until it shows something.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's scaffold fails loudly where it stands")]

use crate::fleet::{Fleet, PARTITIONS, SOON};
use crate::node::NodeProcess;
use gristmill_broker::QueueDefinition;
use gristmill_broker::inspect::{DeadView, EntityView, PartitionView};
use gristmill_testkit::eventually;
use gristmill_testkit::history::Run;
use std::collections::BTreeMap;
use std::time::Duration;

impl Fleet {
    /// Every dead letter of the test queue.
    pub fn dead(&self) -> Vec<DeadView> {
        let connection = self.connection();
        let letters = |p| self.runtime.block_on(connection.dead_letters(&self.queue, p, 0, 10_000)).unwrap();
        (0..PARTITIONS).flat_map(letters).collect()
    }

    /// Every partition of the test queue, or nothing while Redis is away.
    pub fn partitions(&self) -> Vec<PartitionView> {
        self.partitions_in(&self.queue)
    }

    fn partitions_in(&self, queue: &QueueDefinition) -> Vec<PartitionView> {
        let connection = self.connection();
        self.runtime.block_on(connection.partitions(queue)).unwrap_or_default()
    }

    /// How many partitions each owner has, by its incarnation in Redis.
    pub fn owners(&self) -> BTreeMap<String, usize> {
        let mut owners = BTreeMap::new();
        for view in self.partitions() {
            if !view.owner.is_empty() && view.expires > view.now {
                *owners.entry(view.owner).or_default() += 1;
            }
        }
        owners
    }

    /// How many partitions this node owns.
    pub fn owned_by(&self, node: &NodeProcess) -> usize {
        let mine = format!("{}~", node.name);
        self.owners().iter().filter(|(owner, _)| owner.starts_with(&mine)).map(|(_, count)| count).sum()
    }

    /// Which partitions this node owns.
    pub fn partitions_of(&self, node: &NodeProcess) -> Vec<u16> {
        let mine = format!("{}~", node.name);
        let views = self.partitions().into_iter();
        let held = views.filter(|view| view.owner.starts_with(&mine) && view.expires > view.now);
        held.map(|view| view.partition).collect()
    }

    /// Waits until `nodes` nodes share all partitions evenly.
    pub fn wait_shared_by(&self, nodes: usize) -> BTreeMap<String, usize> {
        let share = usize::from(PARTITIONS).div_ceil(nodes);
        eventually(SOON, "all partitions owned, evenly, by so many nodes", || {
            let owners = self.owners();
            let all = owners.values().sum::<usize>() == usize::from(PARTITIONS);
            (owners.len() == nodes && all && owners.values().all(|held| *held <= share)).then_some(owners)
        })
    }

    /// Jobs for later in the test queue, those among them that were put back where the ordering is none.
    pub fn delayed(&self) -> i64 {
        let count = |p| {
            let delayed = self.queue.partition(p).delayed;
            self.server.command(&[b"ZCARD", delayed.as_bytes()]).unwrap().as_int().unwrap()
        };
        (0..PARTITIONS).map(count).sum()
    }

    /// Waits until nothing is ready, claimed or in an outbox any more.
    pub fn wait_settled(&self) {
        self.wait_settled_within(SOON * 2);
    }

    /// The same, with a deadline of its own.
    pub fn wait_settled_within(&self, deadline: Duration) {
        eventually(deadline, "everything settled", || {
            let empty = |view: &PartitionView| view.ready + view.claimed + view.outbox + view.delayed == 0;
            // In the order in which jobs are emitted from one into the next.
            let settled = self.queues.iter().all(|queue| {
                let views = self.partitions_in(queue);
                !views.is_empty() && views.iter().all(empty)
            });
            (settled && !self.any_returned()).then_some(())
        });
    }

    /// Whether nothing is ready, claimed or came back from the dead.
    pub fn is_settled(&self) -> bool {
        let views = self.partitions();
        let empty = |view: &PartitionView| view.ready + view.claimed + view.outbox + view.delayed == 0;
        !views.is_empty() && views.iter().all(empty) && !self.any_returned()
    }

    /// Entities by key.
    pub fn entities(&self, keys: &[Vec<u8>]) -> Vec<Option<EntityView>> {
        self.entities_in(&self.queue, keys)
    }

    /// Entities of another queue by key.
    pub fn entities_in(&self, queue: &QueueDefinition, keys: &[Vec<u8>]) -> Vec<Option<EntityView>> {
        let connection = self.connection();
        self.runtime.block_on(connection.entities(queue, keys)).unwrap()
    }

    /// One entity.
    pub fn entity(&self, key: &str) -> Option<EntityView> {
        self.entities(&[key.as_bytes().to_vec()]).pop().flatten()
    }

    /// Waits until so many runs have been started in all.
    pub fn wait_started(&self, runs: usize) {
        eventually(SOON, "so many runs started", || (self.history().runs.len() >= runs).then_some(()));
    }

    /// Waits until so many more runs have been started than now.
    pub fn wait_started_more(&self, runs: usize) {
        self.wait_started(self.history().runs.len() + runs);
    }

    /// Runs of this job, by start.
    pub fn runs_of(&self, id: &str) -> Vec<Run> {
        self.history().runs.into_iter().filter(|run| run.job.id == id).collect()
    }

    /// Waits for a run of this job on this node.
    pub fn wait_run_on(&self, id: &str, node: &NodeProcess) -> Run {
        eventually(SOON, &format!("a run of {id} on {}", node.name), || {
            self.runs_of(id).into_iter().find(|run| run.node == node.incarnation)
        })
    }
}
