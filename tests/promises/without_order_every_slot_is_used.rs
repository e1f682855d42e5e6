//! Queues with ordering none: any node with a free slot takes what comes, each job takes effect once, and what a dead or slow
//! node held is taken over.

use gristmill_job::DeadReason;
use gristmill_testkit::eventually;
use gristmill_testkit::history::now_us;
use gristmill_tests::fleet::{Fleet, PARTITIONS, SOON};
use gristmill_tests::script::{Death, Script};
use gristmill_tests::servers::{on_every_flavor, on_servers};
use std::time::Duration;

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

#[test]
fn two_nodes_settle_everything_once_and_leave_nothing_behind() {
    on_every_flavor(|options| {
        let mut fleet = Fleet::unordered(options);
        let (mut one, mut other) = (fleet.node(), fleet.node());
        let jobs = Fleet::unlike(0, 1000, &Script { wait_ms: 2, ..effect() });
        fleet.enqueue(jobs.clone());
        fleet.wait_settled();
        let report = fleet.assert_effects(&jobs);
        assert_eq!((report.jobs, report.runs), (1000, 1000));
        let (one, other) = (fleet.drain(&mut one), fleet.drain(&mut other));
        assert!(one.status.success() && other.status.success(), "{} {}", one.line, other.line);
        let done = [one.counts.of("done"), other.counts.of("done")];
        assert_eq!(done.iter().sum::<u64>(), 1000);
        assert!(done.iter().all(|done| *done > 0), "one of them had nothing to do: {done:?}");
        assert_eq!((one.counts.of("claims_lost"), other.counts.of("claims_lost")), (0, 0));
    });
}

#[test]
fn what_a_killed_node_held_is_taken_over() {
    on_every_flavor(|options| {
        let mut fleet = Fleet::unordered(options);
        let timeout = ["--visibility-ms", "1500"];
        let mut first = fleet.node_with(&timeout);
        let jobs = Fleet::unlike(0, 200, &Script { wait_ms: 20, ..effect() });
        fleet.enqueue(jobs.clone());
        fleet.wait_started(60);
        fleet.kill(&mut first);
        let _second = fleet.node_with(&timeout);
        fleet.wait_settled();
        let report = fleet.assert_effects(&jobs);
        assert!(report.runs > report.jobs, "it was killed while it ran jobs");
    });
}

#[test]
fn a_long_job_never_keeps_a_second_one_waiting_while_another_node_idles() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let _nodes = [fleet.node_with(&["--slots", "1"]), fleet.node_with(&["--slots", "1"])];
        // All of one partition: a node that claims ahead of its slots would take some with the long one.
        let job = |n: usize, wait_ms| {
            Fleet::job(&format!("j{n}"), &Fleet::key_in(3, n), 1, &Script { wait_ms, ..effect() })
        };
        let jobs: Vec<_> = std::iter::once(job(0, 600_000)).chain((1..40).map(|n| job(n, 1))).collect();
        fleet.enqueue(jobs.clone());
        let short = |fleet: &Fleet| fleet.history().runs.iter().filter(|run| run.ended.is_some()).count();
        eventually(SOON, "all the short ones have run", || (short(&fleet) == 39).then_some(()));
        let long = fleet.runs_of("j0");
        assert_eq!(long.len(), 1, "and the long one runs on");
    });
}

#[test]
fn failures_are_tried_again_from_the_delayed_set_and_end_as_letters() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let _nodes = [fleet.node_with(&["--max-attempts", "3"]), fleet.node_with(&["--max-attempts", "3"])];
        let mut jobs = Fleet::unlike(0, 40, &Script { fail_until: 2, ..effect() });
        let dying = Fleet::unlike(40, 10, &Script { fail_until: 9, ..effect() });
        let ids: Vec<String> = (40..50).map(|n| format!("job{n}")).collect();
        fleet.expect_settled_otherwise(&ids.iter().map(String::as_str).collect::<Vec<_>>());
        fleet.enqueue(jobs.clone());
        fleet.enqueue(dying);
        jobs.truncate(40);
        eventually(SOON * 2, "40 done, 10 dead", || {
            (fleet.dead().len() == 10 && fleet.is_settled() && fleet.delayed() == 0).then_some(())
        });
        let report = fleet.assert_effects(&jobs);
        assert_eq!(report.runs, 50 * 3);
        assert!(
            fleet.dead().iter().all(|letter| letter.letter.as_ref().is_ok_and(|letter| letter.attempts == 3))
        );
    });
}

#[test]
fn a_drain_hands_back_what_does_not_end_in_time_and_charges_nothing() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let mut first = fleet.node_with(&["--window-ms", "300", "--grace-ms", "2000"]);
        let script = Script { wait_ms: 60_000, recovered_wait_ms: None, ..effect() };
        let long = Fleet::unlike(0, 5, &script);
        fleet.enqueue(long);
        fleet.wait_started(5);
        let left = fleet.drain(&mut first);
        assert!(left.status.success(), "{}", left.line);
        assert_eq!((left.handed_back, left.abandoned), (5, 0), "{}", left.line);
        // At once, and long before any visibility timeout; as a first attempt.
        let second = fleet.node();
        for n in 0..5 {
            let run = fleet.wait_run_on(&format!("job{n}"), &second);
            assert_eq!(run.attempt, 1, "{run:?}");
        }
    });
}

#[test]
fn a_job_that_kills_its_process_dies_alone_and_the_others_run() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let more = ["--visibility-ms", "1000", "--slots", "8"];
        let mut nodes = [fleet.node_with(&more), fleet.node_with(&more)];
        let jobs = Fleet::unlike(0, 100, &Script { wait_ms: 100, ..effect() });
        let poison = Script { dies: Some(Death::Abort), dies_after_ms: 40, ..effect() };
        fleet.expect_settled_otherwise(&["poison"]);
        let mut all = jobs.clone();
        all.insert(50, Fleet::job("poison", "poison", 1, &poison));
        fleet.enqueue(all);
        let deaths =
            fleet.replace_the_dead(&mut nodes, &more, SOON * 4, "everything settled", Fleet::is_settled);
        assert!((1..=5).contains(&deaths), "{deaths} processes died of one job");
        fleet.assert_effects(&jobs);
        let letters: Vec<_> = fleet.dead().into_iter().map(|view| view.letter.unwrap()).collect();
        assert_eq!(letters.len(), 1, "{letters:?}");
        assert_eq!((letters[0].job.as_slice(), letters[0].reason), (&b"poison"[..], DeadReason::Crashed));
        assert_eq!((letters[0].attempts, letters[0].crashes.len()), (0, 3), "{letters:?}");
        assert!(fleet.history().runs.iter().all(|run| run.attempt == 1), "a death was counted as an attempt");
    });
}

#[test]
fn the_claims_of_a_dead_node_are_found_behind_hundreds_of_a_live_one() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let jobs = |from: usize, jobs: usize, wait_ms| -> Vec<_> {
            let script = Script { wait_ms, recovered_wait_ms: Some(1), ..effect() };
            let job = |n| Fleet::job(&format!("j{n}"), &Fleet::key_in(0, n), 1, &script);
            (from..from + jobs).map(job).collect()
        };
        let _live = fleet.node_with(&["--visibility-ms", "1500", "--slots", "300"]);
        fleet.enqueue(jobs(0, 300, 600_000));
        fleet.wait_started(300);
        let mut dying = fleet.node_with(&["--visibility-ms", "1500", "--slots", "20"]);
        fleet.enqueue(jobs(300, 20, 600_000));
        fleet.wait_started(320);
        fleet.kill(&mut dying);
        let _third = fleet.node_with(&["--visibility-ms", "1500", "--slots", "8"]);
        // More than ten times of what one slice takes lies before them.
        let done = |fleet: &Fleet| fleet.history().runs.iter().filter(|run| run.is_done()).count();
        eventually(SOON, "what the dead one held is done", || (done(&fleet) == 20).then_some(()));
        let runs = fleet.history().runs;
        let again = runs.iter().filter(|run| run.started_us > 0 && run.is_done());
        assert!(again.clone().all(|run| run.job.id[1..].parse::<usize>().unwrap() >= 300), "of the live one");
        assert_eq!(runs.len(), 340, "and nothing else ran twice");
    });
}

#[test]
fn a_node_that_dies_while_it_recovers_loses_nothing() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let timeout = ["--visibility-ms", "1000"];
        let jobs = Fleet::unlike(0, 300, &Script { wait_ms: 50, ..effect() });
        let mut node = fleet.node_with(&timeout);
        fleet.enqueue(jobs.clone());
        fleet.wait_started(40);
        for _ in 0..3 {
            fleet.kill(&mut node);
            node = fleet.node_with(&timeout);
            node.process.wait_line(|line| line.text.contains("nobody extended any more"), SOON).unwrap();
        }
        fleet.kill(&mut node);
        let _last = fleet.node_with(&timeout);
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
    });
}

#[test]
fn a_node_with_a_twentieth_of_a_processor_doubles_no_effect() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let timeout = ["--visibility-ms", "1000"];
        let (_quick, mut slow) = (fleet.node_with(&timeout), fleet.node_with(&timeout));
        let from = now_us();
        let mut jobs = Vec::new();
        for burst in 0..5 {
            let burst = Fleet::unlike(burst * 200, 200, &Script { wait_ms: 3, ..effect() });
            fleet.enqueue(burst.clone());
            jobs.extend(burst);
            // 10 ms of 200.
            for _ in 0..5 {
                slow.process.pause().unwrap();
                std::thread::sleep(Duration::from_millis(190)); // not a wait: the share of the processor
                slow.process.resume().unwrap();
                std::thread::sleep(Duration::from_millis(10)); // not a wait: the same
            }
        }
        fleet.wait_settled();
        fleet.cut_off(&slow, from, now_us());
        fleet.assert_effects(&jobs);
        assert!(slow.counts().of("done") > 0, "the slow one did nothing");
    });
}

#[test]
fn a_stream_and_a_group_that_are_deleted_by_hand_are_made_again() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let _nodes = [fleet.node(), fleet.node()];
        let before = Fleet::unlike(0, 50, &effect());
        fleet.enqueue(before.clone());
        fleet.wait_settled();
        for partition in 0..PARTITIONS {
            let stream = fleet.queue().partition(partition).stream;
            let command: &[&[u8]] = match partition % 2 {
                0 => &[b"DEL", stream.as_bytes()],
                _ => &[b"XGROUP", b"DESTROY", stream.as_bytes(), b"workers"],
            };
            fleet.server.command(command).unwrap();
        }
        let after = Fleet::unlike(50, 100, &effect());
        fleet.enqueue(after.clone());
        let all = [before, after].concat();
        let done = |fleet: &Fleet| fleet.history().runs.iter().filter(|run| run.is_done()).count();
        eventually(SOON, "all of them have run", || (done(&fleet) >= 150).then_some(()));
        fleet.wait_settled();
        fleet.assert_effects(&all);
    });
}
