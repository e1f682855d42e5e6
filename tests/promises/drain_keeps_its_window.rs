//! A drain keeps its window: what runs may finish, what does not is laid down uncharged for others at once, and the process
//! is gone in time whatever its handlers do.

use gristmill_job::NewJob;
use gristmill_testkit::eventually;
use gristmill_testkit::history::now_us;
use gristmill_testkit::proxy::Proxy;
use gristmill_testkit::server::Appendonly;
use gristmill_tests::fleet::{Fleet, PARTITIONS, SOON};
use gristmill_tests::node::{Drained, NodeProcess};
use gristmill_tests::script::Script;
use gristmill_tests::servers::{on_every_flavor, on_servers};
use std::time::{Duration, Instant};

/// For the machine, beyond what is promised.
const SLACK: Duration = Duration::from_millis(700);
/// Leases longer than any test waits, so that what is free was released.
const LONG_LEASE: [&str; 2] = ["--lease-ms", "60000"];
/// A window of 1 s, and a grace of 2 s.
const SHORT: [&str; 6] = ["--lease-ms", "60000", "--window-ms", "1000", "--grace-ms", "2000"];
const PROMISED: Duration = Duration::from_secs(3);

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

/// One job of this script in each of the first `count` partitions.
fn one_each(count: u16, script: &Script) -> Vec<NewJob> {
    (0..count).map(|p| Fleet::job(&format!("long{p}"), &Fleet::key_in(p, 0), 1, script)).collect()
}

/// Drains, and says how long it took until the process was gone.
fn timed(fleet: &mut Fleet, node: &mut NodeProcess) -> (Drained, Duration) {
    let began = Instant::now();
    let left = fleet.drain(node);
    (left, began.elapsed())
}

fn wait_owned_by(fleet: &Fleet, node: &NodeProcess) {
    eventually(SOON, "every partition to be taken", || {
        (fleet.owned_by(node) == usize::from(PARTITIONS)).then_some(())
    });
}

#[test]
fn an_idle_node_is_gone_at_once_and_its_partitions_are_free() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut node = fleet.node_with(&LONG_LEASE);
        fleet.wait_shared_by(1);
        let (left, took) = timed(&mut fleet, &mut node);
        assert!(left.status.success(), "{}", left.line);
        assert_eq!((left.finished, left.handed_back, left.abandoned), (0, 0, 0), "{}", left.line);
        assert!(took < Duration::from_secs(2), "{took:?}");
        assert_eq!(left.counts.of("end.drain"), u64::from(PARTITIONS), "{:?}", left.counts);
        let other = fleet.node();
        wait_owned_by(&fleet, &other);
    });
}

#[test]
fn what_runs_finishes_and_what_waits_is_handed_back_uncharged() {
    on_every_flavor(|options| {
        let mut fleet = Fleet::start(options);
        let mut node = fleet.node_with(&[&LONG_LEASE[..], &["--slots", "8"]].concat());
        let jobs = Fleet::versions(16, 4, &Script { wait_ms: 700, ..effect() });
        fleet.enqueue(jobs.clone());
        fleet.wait_started(8);
        let left = fleet.drain(&mut node);
        assert!(left.status.success(), "{}", left.line);
        assert!(left.finished >= 1 && left.handed_back >= 1 && left.abandoned == 0, "{}", left.line);
        assert_eq!(left.counts.tenures_lost(), 0, "{:?}", left.counts);
        let _other = fleet.node();
        fleet.wait_settled();
        let report = fleet.assert_effects(&jobs);
        assert_eq!(report.runs, report.jobs, "what finished does not run again: {report}");
        assert!(fleet.history().runs.iter().all(|run| run.attempt == 1), "a drain was charged");
    });
}

/// Runs that last longer than the window, of one kind of handler.
fn longer_than_the_window(script: &Script) {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut node = fleet.node_with(&SHORT);
        fleet.wait_shared_by(1);
        // Another is there and waits; only a release can give it a partition so early.
        let other = fleet.node();
        let jobs = one_each(PARTITIONS, script);
        fleet.enqueue(jobs.clone());
        fleet.wait_started(8);
        let (left, took) = timed(&mut fleet, &mut node);
        assert!(left.status.success(), "{}", left.line);
        assert_eq!(left.abandoned, 0, "{}", left.line);
        assert!(took <= PROMISED + SLACK, "{took:?} instead of {PROMISED:?}");
        wait_owned_by(&fleet, &other);
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        let unfinished: Vec<_> = jobs
            .iter()
            .map(|job| fleet.runs_of(&job.id.as_ref().unwrap().to_string()))
            .filter(|runs| runs.iter().any(|run| run.node == node.incarnation && !run.is_done()))
            .collect();
        assert_eq!(left.handed_back, unfinished.len() as u64, "{}", left.line);
        for runs in unfinished {
            let attempts: Vec<u32> = runs.iter().map(|run| run.attempt).collect();
            assert_eq!(attempts, [1, 1], "a run that a drain stopped was charged: {runs:?}");
        }
    });
}

#[test]
fn a_run_that_ignores_its_cancellation_is_stopped_and_handed_back() {
    longer_than_the_window(&Script { wait_ms: 8000, ..effect() });
}

#[test]
fn a_run_that_heeds_its_cancellation_ends_early() {
    longer_than_the_window(&Script { wait_ms: 8000, heeds_cancel: true, ..effect() });
}

#[test]
fn a_run_that_fails_because_it_was_cancelled_is_handed_back_uncharged() {
    longer_than_the_window(&Script { wait_ms: 8000, fails_when_cancelled: true, ..effect() });
}

/// V40: a thread that nobody can stop is abandoned; its partition is kept until the last moment, and then released.
#[test]
fn a_run_that_blocks_its_thread_is_abandoned_in_time() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut node = fleet.node_with(&SHORT);
        fleet.wait_shared_by(1);
        let other = fleet.node();
        let script = Script { block_ms: 9000, ..effect() };
        let blocked = vec![Fleet::job("blocks", &Fleet::key_in(6, 0), 1, &script)];
        fleet.enqueue(blocked.clone());
        fleet.wait_run_on("blocks", &node);
        let (began, began_us) = (Instant::now(), now_us());
        Fleet::terminate(&mut node);
        let released = eventually(SOON, "the partition to be released", || {
            (!fleet.partitions_of(&node).contains(&6)).then(|| began.elapsed())
        });
        let left = fleet.drained(&mut node);
        let took = began.elapsed();
        fleet.abandoned(&node, began_us);
        assert!(took <= PROMISED + SLACK, "{took:?} instead of {PROMISED:?}");
        assert_eq!(left.abandoned, 1, "{}", left.line);
        assert!(!left.status.success(), "an abandoned run must show in the exit code");
        assert!(released >= Duration::from_secs(2), "released after {released:?}, before the hard stop");
        assert!(
            took - released < Duration::from_millis(1500),
            "released {:?} before the exit",
            took - released
        );
        fleet.wait_run_on("blocks", &other);
        fleet.wait_settled();
        fleet.assert_effects(&blocked);
        let attempts: Vec<u32> = fleet.runs_of("blocks").iter().map(|run| run.attempt).collect();
        assert_eq!(attempts, [1, 1]);
    });
}

#[test]
fn runs_that_block_every_thread_of_the_runtime_are_abandoned_in_time() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut node = fleet.node_with(&SHORT);
        fleet.wait_shared_by(1);
        let jobs = one_each(PARTITIONS, &Script { block_ms: 7000, ..effect() });
        fleet.enqueue(jobs.clone());
        fleet.wait_started(2);
        let (began, began_us) = (Instant::now(), now_us());
        node.process.terminate().unwrap();
        let status = node.process.wait(SOON).unwrap();
        let took = began.elapsed();
        fleet.abandoned(&node, began_us);
        assert!(took <= PROMISED + SLACK, "{took:?} instead of {PROMISED:?}");
        assert!(!status.success());
    });
}

#[test]
fn a_second_signal_goes_to_the_hard_stop() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut node = fleet.node_with(&[&LONG_LEASE[..], &["--grace-ms", "2000"]].concat());
        let jobs = one_each(4, &Script { wait_ms: 20_000, ..effect() });
        fleet.enqueue(jobs);
        fleet.wait_started(4);
        Fleet::terminate(&mut node);
        let (left, took) = timed(&mut fleet, &mut node);
        assert!(left.status.success(), "{}", left.line);
        assert_eq!((left.finished, left.handed_back, left.abandoned), (0, 4, 0), "{}", left.line);
        assert!(took <= Duration::from_secs(2) + SLACK, "{took:?} although told to hurry");
        let views = fleet.partitions();
        assert!(views.iter().all(|view| view.owner.is_empty()), "not released: {views:?}");
        assert_eq!(views.iter().map(|view| view.ready).sum::<u64>(), 4);
    });
}

#[test]
fn two_nodes_leave_at_once() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut nodes = fleet.nodes(3);
        let jobs = Fleet::versions(30, 60, &Script { wait_ms: 10, ..effect() });
        fleet.enqueue(jobs.clone());
        fleet.wait_started(100);
        let stays = nodes.remove(1);
        for node in &mut nodes {
            node.process.terminate().unwrap();
        }
        for node in &mut nodes {
            let left = fleet.drained(node);
            assert!(left.status.success() && left.abandoned == 0, "{}", left.line);
            assert_eq!(left.counts.tenures_lost(), 0, "{:?}", left.counts);
        }
        wait_owned_by(&fleet, &stays);
        fleet.wait_settled();
        let report = fleet.assert_effects(&jobs);
        assert_eq!(report.runs, report.jobs, "{report}");
    });
}

#[test]
fn a_node_leaves_in_time_although_redis_is_away() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options.appendonly(Appendonly::Always));
        let mut node = fleet.node_with(&["--window-ms", "1000", "--grace-ms", "2000"]);
        let jobs = Fleet::versions(20, 4, &Script { wait_ms: 600, ..effect() });
        fleet.enqueue(jobs.clone());
        fleet.wait_started(30);
        fleet.server.kill().unwrap();
        let (left, took) = timed(&mut fleet, &mut node);
        assert!(took <= PROMISED + SLACK, "{took:?} instead of {PROMISED:?}");
        assert_eq!(left.abandoned, 0, "{}", left.line);
        let runs = fleet.history().runs;
        assert!(
            runs.iter().all(gristmill_testkit::history::Run::is_done),
            "cut off in their window: {runs:?}"
        );
        fleet.server.restart().unwrap();
        let _other = fleet.node();
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
    });
}

/// The lease is another's by now, and the result will be refused; but what the handler does outside is done whole.
#[test]
fn a_run_that_outlives_its_lease_may_finish_too() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let proxy = Proxy::start(fleet.server.port()).unwrap();
        let url = fleet.server.url_at(proxy.port());
        let mut node = fleet.node_with(&["--redis", &url]);
        let script = Script { wait_ms: 5000, recovered_wait_ms: Some(10), ..effect() };
        let jobs = one_each(PARTITIONS, &script);
        fleet.enqueue(jobs.clone());
        fleet.wait_started(8);
        let cut_at = now_us();
        proxy.refuse();
        proxy.cut();
        let other = fleet.node();
        wait_owned_by(&fleet, &other);
        fleet.cut_off(&node, cut_at, now_us());
        proxy.pass();
        let left = fleet.drain(&mut node);
        assert!(left.status.success(), "{}", left.line);
        let runs = fleet.history().runs;
        let cut_short: Vec<_> = runs.iter().filter(|run| !run.is_done()).collect();
        assert!(cut_short.is_empty(), "cut short in their window, and not told: {} {cut_short:?}", left.line);
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
    });
}
