//! Nodes that die by their jobs, and are started again as a supervisor of processes does it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's scaffold fails loudly where it stands")]

use crate::fleet::{Fleet, SOON};
use crate::node::NodeProcess;
use gristmill_testkit::eventually;
use gristmill_testkit::history::now_us;
use std::time::Duration;

impl Fleet {
    /// Whether the node is dead by itself; recorded.
    fn is_dead(&mut self, node: &mut NodeProcess) -> bool {
        let dead = node.process.try_wait().unwrap().is_some();
        if dead {
            self.killed.push((node.incarnation.clone(), now_us()));
        }
        dead
    }

    /// Waits until the node dies by what it runs.
    pub fn wait_death(&mut self, node: &mut NodeProcess) {
        let status = node.process.wait(SOON).unwrap();
        self.killed.push((node.incarnation.clone(), now_us()));
        assert!(status.code().is_none(), "{} was to be killed, and ended: {status}", node.name);
    }

    /// Starts another for each node that dies, until something is so. Returns how many died.
    pub fn replace_the_dead(
        &mut self,
        nodes: &mut [NodeProcess],
        more: &[&str],
        deadline: Duration,
        what: &str,
        mut until: impl FnMut(&Self) -> bool,
    ) -> usize {
        let mut deaths = 0;
        eventually(deadline, what, || {
            deaths += self.replace_dead(nodes, more);
            until(self).then_some(())
        });
        deaths
    }

    /// Starts another for each node that is dead now. Returns how many died.
    pub fn replace_dead(&mut self, nodes: &mut [NodeProcess], more: &[&str]) -> usize {
        let mut deaths = 0;
        for node in nodes {
            if self.is_dead(node) {
                deaths += 1;
                *node = self.node_starting(more);
            }
        }
        deaths
    }

    /// Turns a switch on or off that jobs' scripts name.
    pub fn switch(&self, name: &str, on: bool) {
        let path = self.folder.join(crate::fleet::SWITCHES).join(name);
        match on {
            true => std::fs::write(path, "").unwrap(),
            false => std::fs::remove_file(path).unwrap(),
        }
    }
}
