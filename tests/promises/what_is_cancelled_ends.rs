//! A job that a person cancels ends once, wherever it stands, and its key goes on; a run that finishes all the same wins.

use gristmill_broker::cancel::Cancelled;
use gristmill_job::NewJob;
use gristmill_testkit::eventually;
use gristmill_testkit::seed::seed;
use gristmill_tests::fleet::{Fleet, SOON};
use gristmill_tests::script::Script;
use gristmill_tests::servers::{on_every_flavor, on_servers};

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

fn key() -> String {
    Fleet::key_in(0, 0)
}

/// Versions of the key, the first of them with a script of its own.
fn lane(first: &Script, versions: u64) -> Vec<NewJob> {
    let script = |version| if version == 1 { first.clone() } else { effect() };
    (1..=versions)
        .map(|version| Fleet::job(&format!("a:{version}"), &key(), version, &script(version)))
        .collect()
}

#[test]
fn in_the_middle_of_its_key_and_while_it_runs() {
    on_every_flavor(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let mut node = fleet.node_with(&["--census-ms", "300"]);
        let first = Script { wait_ms: 120_000, fails_when_cancelled: true, ..effect() };
        let jobs = lane(&first, 60);
        fleet.enqueue(jobs.clone());
        fleet.wait_run_on("a:1", &node);
        // In memory, and parked: while the first of the key runs.
        for id in ["a:3", "a:50"] {
            assert_eq!(fleet.cancel(id, &key()), Cancelled::Asked);
            let standing = fleet.wait_standing(id, &key(), "cancelled");
            assert!(standing.contains("no%20longer%20wanted"), "{standing}");
            assert_eq!(fleet.cancel(id, &key()), Cancelled::NotWaiting, "a second click");
        }
        assert!(fleet.runs_of("a:2").is_empty(), "the first goes on");
        assert_eq!(fleet.cancel("a:1", &key()), Cancelled::Asked);
        fleet.wait_standing("a:1", &key(), "cancelled");
        fleet.wait_settled();
        fleet.expect_settled_otherwise(&["a:1", "a:3", "a:50"]);
        fleet.assert_effects(&jobs);
        let runs: Vec<usize> = ["a:1", "a:3", "a:50"].iter().map(|id| fleet.runs_of(id).len()).collect();
        assert_eq!(runs, [1, 0, 0], "it is not tried again, and the others never began");
        // Its id may come again.
        let again = fleet.enqueue(vec![jobs[2].clone()]);
        assert!(again[0].duplicate_of.is_none(), "{again:?}");
        fleet.wait_settled();
        assert_eq!(fleet.drain(&mut node).counts.tenures_lost(), 0);
    });
}

#[test]
fn a_run_that_finishes_all_the_same_wins() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let node = fleet.node();
        let jobs = lane(&Script { wait_ms: 2_000, ..effect() }, 3);
        fleet.enqueue(jobs.clone());
        fleet.wait_run_on("a:1", &node);
        assert_eq!(fleet.cancel("a:1", &key()), Cancelled::Asked);
        fleet.wait_standing("a:1", &key(), "applied");
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
    });
}

#[test]
fn although_its_owner_is_killed_when_it_was_asked() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let patient = ["--backoff-ms", "240000", "--census-ms", "300"];
        let mut node = fleet.node_with(&patient);
        fleet.switch("broken", true);
        // The first waits for minutes, and its key with it.
        let first = Script { fail_until: 1, fails_while: Some("broken".into()), ..effect() };
        let jobs = lane(&first, 200);
        fleet.enqueue(jobs.clone());
        fleet.wait_line(&key(), "the first to wait", |line| line.attempts == 1);
        eventually(SOON, "all to be claimed", || {
            let view = fleet.partitions().into_iter().find(|view| view.partition == 0)?;
            (view.claimed == 200).then_some(())
        });
        let many: Vec<String> = (2..=120).map(|n| format!("a:{n}")).collect();
        for id in &many {
            assert_eq!(fleet.cancel(id, &key()), Cancelled::Asked);
        }
        fleet.kill(&mut node);
        let mut node = fleet.node_with(&patient);
        for id in &many {
            fleet.wait_standing(id, &key(), "cancelled");
        }
        // The one that waits, too.
        assert_eq!(fleet.cancel("a:1", &key()), Cancelled::Asked);
        fleet.wait_settled();
        let mut ended: Vec<&str> = many.iter().map(String::as_str).collect();
        ended.push("a:1");
        fleet.expect_settled_otherwise(&ended);
        fleet.assert_effects(&jobs);
        assert!(many.iter().all(|id| fleet.runs_of(id).is_empty()));
        assert_eq!(fleet.drain(&mut node).counts.tenures_lost(), 0);
    });
}
