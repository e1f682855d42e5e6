//! What a person has paused does not start, on any node, whoever owns its partition and whatever dies meanwhile. What is not
//! paused goes on, and what is resumed goes on in order.

use gristmill_broker::pause::{Paused, Target};
use gristmill_job::{Key, NewJob};
use gristmill_testkit::eventually;
use gristmill_testkit::seed::seed;
use gristmill_tests::fleet::{Fleet, SOON};
use gristmill_tests::node::NodeProcess;
use gristmill_tests::script::{KIND, NEWER, Script};
use gristmill_tests::servers::{on_every_flavor, on_servers};
use std::time::Duration;

fn effect() -> Script {
    Script { effect: true, wait_ms: 2, ..Script::default() }
}

/// Every one of these nodes has heard of a change.
fn wait_heard(nodes: &[&NodeProcess]) {
    for node in nodes {
        node.process
            .wait_line(|line| line.text.contains("what is paused of a queue has changed"), SOON)
            .unwrap();
    }
}

fn ids_of(jobs: &[NewJob]) -> Vec<String> {
    jobs.iter().map(|job| job.id.as_ref().unwrap().to_string()).collect()
}

fn none_started(fleet: &Fleet, jobs: &[NewJob]) {
    for id in ids_of(jobs) {
        assert!(fleet.runs_of(&id).is_empty(), "{id} was started although its queue is paused");
    }
}

#[test]
fn a_queue_through_load_a_kill_a_take_over_and_a_reconnect_and_then_everything_in_order() {
    on_every_flavor(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let mut nodes = fleet.nodes(2);
        let mut jobs = Fleet::versions(30, 12, &effect());
        fleet.enqueue(jobs.clone());
        fleet.wait_started(40);
        assert!(matches!(fleet.stop_work(&Target::Queue, None), Paused::Paused { again: false, .. }));
        wait_heard(&[&nodes[0], &nodes[1]]);
        // Accepted, and started by nobody from here on: these are what is looked at.
        let late: Vec<NewJob> =
            (0..30).map(|k| Fleet::job(&format!("late:{k}"), &format!("key{k}"), 13, &effect())).collect();
        fleet.enqueue(late.clone());
        fleet.kill(&mut nodes[0]);
        eventually(SOON, "the other to own every partition", || {
            (fleet.owned_by(&nodes[1]) == 8).then_some(())
        });
        let third = fleet.node();
        fleet.wait_shared_by(2);
        fleet.server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
        let mut fourth = fleet.node();
        fleet.wait_shared_by(3);
        assert!(fleet.drain(&mut fourth).status.success());
        none_started(&fleet, &late);
        jobs.extend(late);
        assert!(fleet.let_work(&Target::Queue));
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        assert!(!fleet.let_work(&Target::Queue), "once");
        drop(third);
    });
}

#[test]
fn a_key_and_a_kind_while_others_of_their_partition_go_on() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let (key, other) = (Fleet::key_in(0, 0), Fleet::key_in(0, 1));
        let paused_key = Target::Key(Key::new(&key).unwrap());
        fleet.stop_work(&paused_key, None);
        fleet.stop_work(&Target::Kind(NEWER.into()), None);
        // More than the window of a partition holds, before the node is there: heard before its first start.
        let mut jobs: Vec<NewJob> =
            (1..=700).map(|version| Fleet::job(&format!("a:{version}"), &key, version, &effect())).collect();
        let newer: Vec<NewJob> = (2..40)
            .map(|n| Fleet::job_of(NEWER, &format!("newer:{n}"), &Fleet::key_in(0, n), &effect()))
            .collect();
        fleet.enqueue(jobs.clone());
        fleet.enqueue(newer.clone());
        let mut node = fleet.node_with(&["--kinds", NEWER, "--census-ms", "300"]);
        let others: Vec<NewJob> =
            (1..=50).map(|version| Fleet::job(&format!("b:{version}"), &other, version, &effect())).collect();
        fleet.enqueue(others.clone());
        eventually(SOON, "the other key to be done", || {
            fleet.entity(&other).filter(|entity| entity.version == 50).map(|_| ())
        });
        none_started(&fleet, &jobs);
        none_started(&fleet, &newer);
        fleet.kill(&mut node);
        let mut node = fleet.node_with(&["--kinds", NEWER, "--census-ms", "300"]);
        assert!(fleet.let_work(&Target::Kind(NEWER.into())));
        eventually(SOON, "the kind to go on", || {
            ids_of(&newer).iter().all(|id| fleet.runs_of(id).iter().any(|run| run.is_done())).then_some(())
        });
        none_started(&fleet, &jobs);
        assert!(fleet.let_work(&paused_key));
        jobs.extend(newer);
        jobs.extend(others);
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        assert_eq!(fleet.drain(&mut node).counts.tenures_lost(), 0, "nothing was lost sight of");
    });
}

#[test]
fn no_longer_than_until_its_end() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        fleet.stop_work(&Target::Kind(KIND.into()), Some(Duration::from_millis(1500)));
        let jobs = Fleet::versions(10, 3, &effect());
        fleet.enqueue(jobs.clone());
        let node = fleet.node();
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        assert!(!fleet.let_work(&Target::Kind(KIND.into())));
        drop(node);
    });
}
