//! Jobs that are handled together end each by its own answer: what fails is tried again alone, keys stay in order, effects are
//! applied once, and a limit counts jobs, not batches.

use gristmill_job::NewJob;
use gristmill_testkit::history::Outcome;
use gristmill_tests::fleet::{Fleet, SOON};
use gristmill_tests::node::NodeProcess;
use gristmill_tests::script::{BATCHED, Script};
use gristmill_tests::servers::{on_every_flavor, on_servers};

fn effect() -> Script {
    Script { effect: true, wait_ms: 5, ..Script::default() }
}

/// Versions 1 to `versions` of each of `keys` keys; every seventh fails at first.
fn jobs(keys: usize, versions: u64) -> Vec<NewJob> {
    let each = |version| (0..keys).map(move |key| (key, version));
    let job = |(n, (key, version)): (usize, (usize, u64))| {
        let script = Script { fail_until: u32::from(n % 7 == 0), ..effect() };
        Fleet::job_of(BATCHED, &format!("b{key}:{version}"), &format!("key{key}"), &script)
            .with_version(version)
    };
    (1..=versions).flat_map(each).enumerate().map(job).collect()
}

/// The sizes of the batches that a node has handled.
pub(crate) fn batches(node: &NodeProcess) -> Vec<usize> {
    let lines = node.process.lines();
    lines.iter().filter_map(|line| line.text.strip_prefix("batch of ")?.parse().ok()).collect()
}

#[test]
fn in_order_and_once_although_a_node_is_killed_and_one_leaves() {
    on_every_flavor(|options| {
        let mut fleet = Fleet::start(options);
        let mut nodes = fleet.nodes(3);
        let jobs = jobs(24, 12);
        fleet.enqueue(jobs.clone());
        fleet.wait_started(60);
        let mut killed = nodes.remove(0);
        fleet.kill(&mut killed);
        fleet.wait_started_more(40);
        let left = fleet.drain(&mut nodes.remove(0));
        assert_eq!(left.abandoned, 0, "{}", left.line);
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        let sizes = batches(&nodes[0]);
        assert!(sizes.iter().any(|size| *size > 1), "nothing was ever handled together: {sizes:?}");
        assert!(sizes.iter().all(|size| *size <= 8), "{sizes:?}");
    });
}

/// Of eight jobs of one batch, the fourth fails for good, and no other does.
pub(crate) fn one_fails_for_good(mut fleet: Fleet, node: &NodeProcess) {
    let script = |n: usize| Script { permanent: n == 3, ..effect() };
    let job = |n: usize| Fleet::job_of(BATCHED, &format!("b{n}"), &format!("key{n}"), &script(n));
    let jobs: Vec<NewJob> = (0..8).map(job).collect();
    fleet.expect_settled_otherwise(&["b3"]);
    fleet.enqueue(jobs);
    fleet.wait_settled();
    for n in 0..8 {
        let runs = fleet.runs_of(&format!("b{n}"));
        let outcomes: Vec<_> = runs.iter().map(|run| run.ended.map(|(_, outcome)| outcome)).collect();
        let expected = if n == 3 { Outcome::Failed } else { Outcome::Done };
        assert_eq!(outcomes, [Some(expected)], "job {n}");
    }
    assert_eq!(fleet.dead().len(), 1);
    fleet.assert_promises();
    assert_eq!(batches(node).iter().sum::<usize>(), 8);
}

#[test]
fn one_that_fails_for_good_harms_no_other_of_its_batch() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let node = fleet.node();
        fleet.wait_shared_by(1);
        one_fails_for_good(fleet, &node);
    });
}

#[test]
fn with_fewer_slots_than_a_batch_has_jobs_it_is_capped_and_says_so() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let node = fleet.node_with(&["--slots", "2"]);
        let says =
            |line: &gristmill_testkit::process::Line| line.text.contains("batches are capped at the slots");
        node.process.wait_line(says, SOON).unwrap();
        let jobs = jobs(6, 4);
        fleet.enqueue(jobs.clone());
        fleet.wait_settled();
        let sizes = batches(&node);
        assert!(sizes.iter().all(|size| *size <= 2), "{sizes:?}");
        fleet.assert_effects(&jobs);
    });
}
