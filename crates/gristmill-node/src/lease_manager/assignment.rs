//! Who should serve which partition: rendezvous hashing with a cap. Pure, and the same at every node that sees the same
//! members, so that nodes agree without a leader.

use gristmill_broker::Incarnation;
use std::collections::HashMap;
use xxhash_rust::xxh64::xxh64;

/// The node for each partition, by index. Empty if there is no node.
///
/// Every partition goes to the node with the highest hash of (node, partition) that has room. Every node has room for
/// `partitions / nodes`, rounded down, and as many as remain for one more, so that shares differ by one at most. A node
/// that comes or leaves moves little more than its share.
#[must_use]
pub(crate) fn assign(partitions: u16, nodes: &[Incarnation]) -> Vec<Incarnation> {
    if nodes.is_empty() {
        return Vec::new();
    }
    let even = usize::from(partitions) / nodes.len();
    let mut one_more = usize::from(partitions) % nodes.len();
    let mut held: HashMap<&Incarnation, usize> = HashMap::new();
    (0..partitions)
        .map(|partition| {
            let mut ranked: Vec<(u64, &Incarnation)> =
                nodes.iter().map(|node| (weight(node, partition), node)).collect();
            ranked.sort_by(|a, b| b.cmp(a));
            let share = |node: &Incarnation| held.get(node).copied().unwrap_or(0);
            let room = |node: &Incarnation| share(node) < even || (share(node) == even && one_more > 0);
            // The rooms add up to the number of partitions, so there is always one.
            let free = ranked.iter().find(|(_, node)| room(node));
            let node = free.or(ranked.first()).map_or(&nodes[0], |(_, node)| *node);
            one_more -= usize::from(share(node) == even && one_more > 0);
            *held.entry(node).or_default() += 1;
            node.clone()
        })
        .collect()
}

fn weight(node: &Incarnation, partition: u16) -> u64 {
    xxh64(node.as_str().as_bytes(), u64::from(partition))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(n: u64) -> Vec<Incarnation> {
        (0..n).map(|i| Incarnation::of("node", i * 7919)).collect()
    }

    #[test]
    fn every_partition_has_a_node_and_shares_differ_by_one_at_most() {
        for (partitions, count) in [(8, 3), (64, 1), (64, 7), (3, 8), (8, 7), (256, 5)] {
            let nodes = nodes(count);
            let assigned = assign(partitions, &nodes);
            assert_eq!(assigned.len(), usize::from(partitions));
            for node in &nodes {
                let share = assigned.iter().filter(|n| *n == node).count();
                let even = usize::from(partitions) / nodes.len();
                assert!((even..=even + 1).contains(&share), "{share} of {partitions} over {count}");
            }
        }
        assert!(assign(8, &[]).is_empty());
    }

    #[test]
    fn the_order_in_which_nodes_are_listed_does_not_matter() {
        let mut nodes = nodes(5);
        let before = assign(64, &nodes);
        nodes.reverse();
        assert_eq!(before, assign(64, &nodes));
    }

    #[test]
    fn a_node_that_leaves_moves_little_more_than_its_share() {
        let nodes = nodes(8);
        let (before, after) = (assign(256, &nodes), assign(256, &nodes[1..]));
        let moved = before.iter().zip(&after).filter(|(b, a)| b != a).count();
        let share = before.iter().filter(|n| **n == nodes[0]).count();
        assert!(moved <= share * 3, "{moved} moved for a share of {share}");
    }
}
