//! A purge removes what was there, beside running producers and nodes; what is enqueued after it began is kept, and runs once, in
//! order. A run of a purged job has no effect any more.

use gristmill_job::NewJob;
use gristmill_testkit::eventually;
use gristmill_testkit::seed::seed;
use gristmill_tests::fleet::{Fleet, SOON};
use gristmill_tests::script::Script;
use gristmill_tests::servers::{on_every_flavor, on_servers};

fn effect() -> Script {
    Script { effect: true, wait_ms: 5, ..Script::default() }
}

fn ids_of(jobs: &[NewJob]) -> Vec<String> {
    jobs.iter().map(|job| job.id.as_ref().unwrap().to_string()).collect()
}

#[test]
fn under_load_and_what_came_later_runs() {
    on_every_flavor(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let mut nodes = fleet.nodes(2);
        let before = Fleet::versions(40, 60, &effect());
        fleet.enqueue(before.clone());
        fleet.wait_started(60);
        // Of other keys, so that it is known which effects there must be.
        let after: Vec<NewJob> = (1..=20)
            .flat_map(|version| (0..20).map(move |k| (k, version)))
            .map(|(k, version)| {
                Fleet::job(&format!("after{k}:{version}"), &format!("after{k}"), version, &effect())
            })
            .collect();
        let purged = fleet.purge(|| {
            fleet.enqueue(after.clone());
        });
        assert!(purged > 0, "it was there");
        let before = ids_of(&before);
        fleet.expect_settled_otherwise(&before.iter().map(String::as_str).collect::<Vec<_>>());
        fleet.wait_settled();
        fleet.assert_promises();
        for k in 0..20 {
            let entity = fleet.entity(&format!("after{k}")).expect("what came later runs");
            assert_eq!((entity.version, entity.changes), (20, 20));
        }
        // Of each job that was purged the id may come again, and it is enqueued.
        let again = Fleet::job(&before[before.len() - 1], "key39", 61, &effect());
        assert!(fleet.try_enqueue(&[again]).unwrap()[0].duplicate_of.is_none());
        eventually(SOON, "it to run", || {
            fleet.entity("key39").filter(|entity| entity.version == 61).map(|_| ())
        });
        for node in &mut nodes {
            assert!(fleet.drain(node).status.success());
        }
    });
}

#[test]
fn while_it_runs_and_its_result_is_refused() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let node = fleet.node_with(&["--census-ms", "300"]);
        let key = Fleet::key_in(0, 0);
        let (long, short) = (Script { wait_ms: 2_000, ..effect() }, effect());
        let jobs: Vec<NewJob> = (1..=40)
            .map(|version| {
                Fleet::job(&format!("a:{version}"), &key, version, if version == 1 { &long } else { &short })
            })
            .collect();
        fleet.enqueue(jobs.clone());
        fleet.wait_run_on("a:1", &node);
        eventually(SOON, "all to be claimed", || {
            let view = fleet.partitions().into_iter().find(|view| view.partition == 0)?;
            (view.claimed == 40).then_some(())
        });
        assert_eq!(fleet.purge(|| {}), 40);
        let later = Fleet::job("later", &key, 41, &effect());
        fleet.enqueue(vec![later]);
        fleet.wait_settled();
        let entity = fleet.entity(&key).expect("the later one runs");
        assert_eq!((entity.version, entity.changes), (41, 1), "the run of the purged job had no effect");
        let ids = ids_of(&jobs);
        assert!(ids[1..].iter().all(|id| fleet.runs_of(id).is_empty()));
        fleet.expect_settled_otherwise(&ids.iter().map(String::as_str).collect::<Vec<_>>());
        fleet.assert_promises();
        drop(node);
    });
}
