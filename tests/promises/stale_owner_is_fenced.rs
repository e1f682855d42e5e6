//! A stale owner is fenced: a node that was stopped past its lease may finish what it runs, and changes nothing any more.

use gristmill_job::NewJob;
use gristmill_testkit::eventually;
use gristmill_testkit::seed::{SplitMix64, seed};
use gristmill_tests::fleet::{Fleet, PARTITIONS, SOON};
use gristmill_tests::script::Script;
use gristmill_tests::servers::on_every_flavor;
use gristmill_tests::servers::on_servers;

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

#[test]
fn stopped_past_its_lease_and_resumed_it_changes_nothing() {
    on_every_flavor(|options| {
        let mut fleet = Fleet::start(options);
        let mut old = fleet.node();
        fleet.wait_shared_by(1);
        let script = Script { wait_ms: 300, ..effect() };
        let jobs: Vec<NewJob> = Fleet::versions(16, 6, &script);
        fleet.enqueue(jobs.clone());
        fleet.wait_started(20);
        fleet.pause(&mut old);
        let mut new = fleet.node();
        eventually(SOON, "the other to own all", || {
            (fleet.owned_by(&new) == usize::from(PARTITIONS)).then_some(())
        });
        fleet.wait_started_more(20);
        // Both finish what they run: the old one's settles arrive among the new one's.
        fleet.resume(&mut old);
        fleet.wait_settled();
        let report = fleet.assert_effects(&jobs);
        assert!(report.runs > report.jobs, "nothing ran twice: the old owner had nothing to finish");
        let fenced = fleet.drain(&mut old).counts;
        assert!(fenced.of("fenced") > 0, "{fenced:?}");
        let left = fleet.drain(&mut new);
        assert_eq!((left.counts.of("fenced"), left.counts.tenures_lost()), (0, 0), "{:?}", left.counts);
    });
}

#[test]
fn stopped_again_and_again_under_load() {
    on_servers(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options);
        let mut nodes = fleet.nodes(2);
        let jobs = Fleet::versions(30, 60, &Script { wait_ms: 10, ..effect() });
        for portion in jobs.chunks(jobs.len() / 3) {
            fleet.enqueue(portion.to_vec());
            fleet.wait_started_more(1 + rng.below(150) as usize);
            let (stopped, other) = if rng.one_in(2) { (0, 1) } else { (1, 0) };
            fleet.pause(&mut nodes[stopped]);
            eventually(SOON, "the other to own all", || {
                (fleet.owned_by(&nodes[other]) == usize::from(PARTITIONS)).then_some(())
            });
            fleet.resume(&mut nodes[stopped]);
            fleet.wait_shared_by(2);
        }
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
    });
}

#[test]
fn without_a_fault_no_tenure_is_lost() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut nodes = fleet.nodes(3);
        let jobs = Fleet::versions(40, 100, &Script { wait_ms: 2, ..effect() });
        fleet.enqueue(jobs.clone());
        fleet.wait_settled();
        let report = fleet.assert_effects(&jobs);
        assert_eq!(report.runs, report.jobs);
        for node in &mut nodes {
            let counts = fleet.drain(node).counts;
            assert_eq!((counts.tenures_lost(), counts.of("fenced")), (0, 0), "{counts:?}");
        }
    });
}
