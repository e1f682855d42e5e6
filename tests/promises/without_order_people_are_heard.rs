//! Queues with ordering none: what people and producers ask of jobs holds there as it does for a key. Cancel, expiry, pause and
//! purge.

use crate::what_is_too_late_does_not_start::wait_late;
use gristmill_broker::cancel::Cancelled;
use gristmill_broker::pause::{Paused, Target};
use gristmill_job::NewJob;
use gristmill_testkit::seed::seed;
use gristmill_tests::fleet::{Fleet, SOON};
use gristmill_tests::script::Script;
use gristmill_tests::servers::{on_every_flavor, on_servers};
use std::time::Duration;

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

fn ids_of(jobs: &[NewJob]) -> Vec<String> {
    jobs.iter().map(|job| job.id.as_ref().unwrap().to_string()).collect()
}

#[test]
fn a_job_is_cancelled_while_it_waits_and_while_it_runs() {
    on_every_flavor(|options| {
        seed();
        let mut fleet = Fleet::unordered(options);
        let (key, other, third) = (Fleet::key_in(0, 0), Fleet::key_in(0, 1), Fleet::key_in(0, 2));
        let long = Script { wait_ms: 120_000, fails_when_cancelled: true, ..effect() };
        let jobs = vec![
            Fleet::job("long", &key, 1, &long),
            Fleet::job("waits", &other, 1, &effect()),
            Fleet::job("goes", &third, 1, &effect()),
        ];
        fleet.enqueue(jobs.clone());
        assert_eq!(fleet.cancel("waits", &other), Cancelled::Cancelled, "nobody had claimed it");
        let mut node = fleet.node_with(&["--visibility-ms", "1500"]);
        fleet.wait_run_on("long", &node);
        // Its node hears with its next extend.
        assert_eq!(fleet.cancel("long", &key), Cancelled::Asked);
        assert_eq!(fleet.cancel("long", &key), Cancelled::Asked, "a second click");
        fleet.wait_standing("long", &key, "cancelled");
        fleet.wait_settled();
        let runs: Vec<usize> = ["long", "waits", "goes"].iter().map(|id| fleet.runs_of(id).len()).collect();
        assert_eq!(runs, [1, 0, 1], "it is not tried again");
        assert_eq!(fleet.server.command(&["EXISTS", &fleet.keys_of(&key).asked]).unwrap().as_int(), Some(0));
        fleet.expect_settled_otherwise(&["long", "waits"]);
        fleet.assert_effects(&jobs);
        let drained = fleet.drain(&mut node);
        assert_eq!(drained.counts.of("claims_lost"), 0);
        // The id may come again.
        assert!(fleet.enqueue(vec![jobs[0].clone()])[0].duplicate_of.is_none());
    });
}

#[test]
fn a_run_that_finishes_although_it_is_cancelled_wins() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::unordered(options);
        let key = Fleet::key_in(0, 0);
        let jobs = vec![Fleet::job("a", &key, 1, &Script { wait_ms: 1500, ..effect() })];
        fleet.enqueue(jobs.clone());
        let node = fleet.node_with(&["--visibility-ms", "1500"]);
        fleet.wait_run_on("a", &node);
        assert_eq!(fleet.cancel("a", &key), Cancelled::Asked);
        fleet.wait_standing("a", &key, "applied");
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
    });
}

#[test]
fn what_is_too_late_ends_unrun_and_asks_nobody() {
    on_every_flavor(|options| {
        seed();
        let mut fleet = Fleet::unordered(options);
        let (key, limit) = (Fleet::key_in(0, 0), Duration::from_millis(300));
        let jobs: Vec<NewJob> = (1..=40)
            .map(|n| {
                let job = Fleet::job(&format!("a:{n}"), &Fleet::key_in(0, n), 1, &effect());
                if n % 2 == 0 { job.expires_in(limit) } else { job }
            })
            .collect();
        fleet.enqueue(jobs.clone());
        let late: Vec<String> = ids_of(&jobs).into_iter().skip(1).step_by(2).collect();
        wait_late(&fleet, &late, limit);
        let _node = fleet.node();
        fleet.wait_settled();
        for id in &late {
            assert_eq!(fleet.standing_of(id, &key).as_deref(), Some("expired"));
            assert!(fleet.runs_of(id).is_empty(), "{id} ran");
        }
        assert!(fleet.dead().is_empty(), "{:?}", fleet.dead());
        fleet.expect_settled_otherwise(&late.iter().map(String::as_str).collect::<Vec<_>>());
        fleet.assert_effects(&jobs);
    });
}

#[test]
fn what_is_paused_is_not_claimed_and_goes_on_when_it_is_resumed() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::unordered(options);
        let nodes = [fleet.node(), fleet.node()];
        fleet.enqueue(vec![Fleet::job("before", &Fleet::key_in(0, 0), 1, &effect())]);
        fleet.wait_settled();
        assert!(matches!(fleet.stop_work(&Target::Queue, None), Paused::Paused { again: false, .. }));
        for node in &nodes {
            node.process
                .wait_line(|line| line.text.contains("what is paused of a queue has changed"), SOON)
                .unwrap();
        }
        let jobs = Fleet::unlike(0, 50, &effect());
        fleet.enqueue(jobs.clone());
        // A node that starts now hears of it before its first claim.
        let third = fleet.node();
        third.process.wait_line(|line| line.text.contains("what is paused"), SOON).unwrap();
        assert!(ids_of(&jobs).iter().all(|id| fleet.runs_of(id).is_empty()), "started although it is paused");
        assert!(fleet.let_work(&Target::Queue));
        fleet.wait_settled();
        for id in ids_of(&jobs) {
            assert_eq!(fleet.runs_of(&id).len(), 1, "{id}");
        }
    });
}

#[test]
fn a_purge_takes_what_waits_and_the_result_of_a_run_is_refused() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::unordered(options);
        let long = Script { wait_ms: 2_000, ..effect() };
        let running = Fleet::job("runs", &Fleet::key_in(1, 0), 1, &long);
        let mut node = fleet.node_with(&["--slots", "1"]);
        fleet.enqueue(vec![running]);
        fleet.wait_run_on("runs", &node);
        let before = Fleet::unlike(0, 100, &effect());
        fleet.enqueue(before.clone());
        let after = Fleet::unlike(100, 50, &effect());
        let purged = fleet.purge(|| {
            fleet.enqueue(after.clone());
        });
        assert!(purged >= 101, "{purged} of 101");
        let mut gone = ids_of(&before);
        gone.push("runs".into());
        fleet.expect_settled_otherwise(&gone.iter().map(String::as_str).collect::<Vec<_>>());
        fleet.wait_settled();
        for id in ids_of(&after) {
            assert_eq!(fleet.runs_of(&id).len(), 1, "{id} came after the purge began");
        }
        assert!(fleet.entity(&Fleet::key_in(1, 0)).is_none(), "the result of the purged run was written");
        assert!(fleet.drain(&mut node).status.success());
    });
}
