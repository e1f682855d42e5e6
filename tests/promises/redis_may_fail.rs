//! Redis may fail: restarted, paused, gone for a while, full, flushed or tampered with, nothing it kept is lost, doubled or
//! stuck, and nodes wait instead of ending or spinning.

use gristmill_broker::EnqueueError;
use gristmill_testkit::eventually;
use gristmill_testkit::seed::{SplitMix64, seed};
use gristmill_testkit::server::{Appendonly, ServerOptions};
use gristmill_tests::fleet::{Fleet, PARTITIONS, SOON};
use gristmill_tests::node::NodeProcess;
use gristmill_tests::script::Script;
use gristmill_tests::servers::{on_every_flavor, on_servers};
use std::time::Duration;

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

/// How long a fault lasts.
fn lasts(duration: Duration) {
    // not a wait: how long the fault lasts
    std::thread::sleep(duration);
}

/// Processor time that a node uses in two seconds.
fn cpu_in_two_seconds(node: &NodeProcess) -> Duration {
    let before = node.cpu();
    // not a wait: the interval that is measured
    std::thread::sleep(Duration::from_secs(2));
    node.cpu() - before
}

#[test]
fn restarted_under_load() {
    on_servers(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options.appendonly(Appendonly::Always));
        let _nodes = fleet.nodes(2);
        let jobs = Fleet::versions(20, 60, &Script { wait_ms: 5, ..effect() });
        for portion in jobs.chunks(jobs.len() / 3) {
            fleet.enqueue(portion.to_vec());
            fleet.wait_started_more(1 + rng.below(100) as usize);
            fleet.server.restart().unwrap();
        }
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
    });
}

#[test]
fn paused_for_longer_than_every_lease() {
    on_every_flavor(|options| {
        let mut fleet = Fleet::start(options);
        let _nodes = fleet.nodes(2);
        let jobs = Fleet::versions(20, 60, &Script { wait_ms: 5, ..effect() });
        fleet.enqueue(jobs.clone());
        fleet.wait_started(50);
        fleet.server.pause().unwrap();
        lasts(Duration::from_secs(4));
        fleet.server.resume().unwrap();
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
    });
}

/// What the clock of Redis leaves behind when it is set back by an hour: the clock itself is the machine's, so what is
/// stored is moved instead, between the death of one owner and the start of the next.
#[test]
fn a_clock_set_back_leaves_no_partition_to_the_dead_and_no_name_of_theirs() {
    const AN_HOUR_MS: u64 = 3_600_000;
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut dead = fleet.node();
        let jobs = Fleet::versions(20, 20, &Script { wait_ms: 5, ..effect() });
        fleet.enqueue(jobs.clone());
        fleet.wait_started(50);
        fleet.kill(&mut dead);
        let keys = |partition| fleet.queue().partition(partition);
        for partition in 0..PARTITIONS {
            let later = ["HINCRBY", &keys(partition).lease, "expires", &AN_HOUR_MS.to_string()];
            assert!(fleet.server.command(&later).unwrap().as_int().is_some());
        }
        let nodes = format!("gm:{{{}}}:nodes", fleet.queue().name);
        let entries = fleet.server.command(&["HGETALL", &nodes]).unwrap();
        let entries = entries.as_array().unwrap();
        assert_eq!(entries.len(), 2, "the dead one's entry: {entries:?}");
        let (who, entry) = (entries[0].as_str().unwrap(), entries[1].as_str().unwrap());
        let words: Vec<u64> = entry.split(' ').map(|word| word.parse().unwrap()).collect();
        let late = format!("{} {} {} {}", words[0] + AN_HOUR_MS, words[1] + AN_HOUR_MS, words[2], words[3]);
        fleet.server.command(&["HSET", &nodes, who, &late]).unwrap();

        let _next = fleet.node();
        fleet.wait_settled();
        eventually(SOON, "the dead one to be gone from the registry", || {
            (fleet.server.command(&["HEXISTS", &nodes, who]).unwrap().as_int() == Some(0)).then_some(())
        });
        fleet.assert_effects(&jobs);
    });
}

#[test]
fn killed_and_back_after_several_seconds() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options.appendonly(Appendonly::Always));
        let mut nodes = fleet.nodes(2);
        let jobs = Fleet::versions(20, 60, &Script { wait_ms: 5, ..effect() });
        fleet.enqueue(jobs.clone());
        fleet.wait_started(50);
        fleet.server.kill().unwrap();
        lasts(Duration::from_secs(3));
        let used: Vec<Duration> = nodes.iter().map(cpu_in_two_seconds).collect();
        assert!(used.iter().all(|used| *used < Duration::from_millis(600)), "spinning: {used:?}");
        fleet.server.restart().unwrap();
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        for node in &mut nodes {
            assert_eq!(node.counts().of("restarts"), 0);
        }
    });
}

#[test]
fn away_when_a_node_starts() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options.appendonly(Appendonly::Always));
        let jobs = Fleet::versions(10, 10, &effect());
        fleet.enqueue(jobs.clone());
        fleet.server.kill().unwrap();
        let mut node = fleet.node_starting(&[]);
        let tries = |line: &str| line.contains("cannot connect") && line.contains("failures=4");
        node.process.wait_line(|line| tries(&line.text), SOON).unwrap();
        assert!(node.process.try_wait().unwrap().is_none(), "it waits; it does not end");
        fleet.server.restart().unwrap();
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
    });
}

#[test]
fn flushed_under_running_nodes() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut nodes = fleet.nodes(2);
        let lost: Vec<_> = Fleet::versions(40, 30, &Script { wait_ms: 5, ..effect() });
        fleet.try_enqueue(&lost).unwrap();
        fleet.wait_started(50);
        let before: Vec<u64> = nodes.iter_mut().map(|node| node.counts().tenures()).collect();
        fleet.server.flush().unwrap();
        // Keys of their own: what ran when the data went may still be running.
        let jobs: Vec<_> = (0..200)
            .map(|n| Fleet::job(&format!("new{n}"), &format!("new{}", n % 20), n, &effect()))
            .collect();
        fleet.enqueue_until_accepted(&jobs);
        fleet.wait_settled();
        let keys: Vec<Vec<u8>> = (0..20).map(|k| format!("new{k}").into_bytes()).collect();
        let changes: u64 = fleet.entities(&keys).into_iter().map(|entity| entity.unwrap().changes).sum();
        assert_eq!(changes, 200, "a queue that was flushed is a queue like any other");
        fleet.wait_shared_by(2);
        let used: Vec<Duration> = nodes.iter().map(cpu_in_two_seconds).collect();
        assert!(used.iter().all(|used| *used < Duration::from_millis(600)), "spinning: {used:?}");
        for (node, before) in nodes.iter_mut().zip(before) {
            let counts = node.counts();
            let ends = counts.tenures() - before;
            assert!(ends <= 5 * u64::from(PARTITIONS), "{ends} tenures after one flush: {counts:?}");
            assert_eq!(counts.of("restarts"), 0);
        }
    });
}

#[test]
fn read_only_for_a_while() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut nodes = fleet.nodes(2);
        let jobs = Fleet::versions(20, 60, &Script { wait_ms: 5, ..effect() });
        fleet.enqueue(jobs.clone());
        fleet.wait_started(50);
        // A replica of nobody: it keeps its data and refuses every write.
        fleet.server.command(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
        lasts(Duration::from_millis(2500));
        let used: Vec<Duration> = nodes.iter().map(cpu_in_two_seconds).collect();
        assert!(used.iter().all(|used| *used < Duration::from_millis(600)), "spinning: {used:?}");
        fleet.server.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        for node in &mut nodes {
            assert!(fleet.drain(node).status.success());
        }
    });
}

/// V13: at its limit of memory, leases are renewed, partitions move, jobs are settled; only enqueue is refused.
#[test]
fn full_memory_stops_enqueue_and_nothing_else() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut first = fleet.node();
        fleet.wait_shared_by(1);
        let jobs = Fleet::versions(30, 40, &Script { wait_ms: 60, ..effect() });
        fleet.enqueue(jobs.clone());
        fleet.server.command(&["CONFIG", "SET", "maxmemory", "1mb"]).unwrap();
        let more = vec![Fleet::job("more", "more", 1, &effect())];
        let refused = fleet.try_enqueue(&more);
        assert!(matches!(refused, Err(EnqueueError::Call(_))), "{refused:?}");
        // A hand-over in all its parts, and a death.
        let second = fleet.node();
        fleet.wait_shared_by(2);
        let left = fleet.drain(&mut first);
        assert!(left.status.success(), "{}", left.line);
        assert_eq!(left.counts.tenures_lost(), 0, "{:?}", left.counts);
        let mut third = fleet.node();
        fleet.wait_shared_by(2);
        fleet.kill(&mut third);
        eventually(SOON, "the survivor to own all", || {
            (fleet.owned_by(&second) == usize::from(PARTITIONS)).then_some(())
        });
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        fleet.server.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
        fleet.enqueue(more.clone());
        fleet.wait_settled();
        fleet.assert_effects(&[jobs, more].concat());
    });
}

/// What a person may delete by mistake. The jobs stay in all but one case, and work goes on in all.
fn deleted_by_hand(delete: impl Fn(&Fleet, u16)) {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut node = fleet.node();
        fleet.wait_shared_by(1);
        let jobs = Fleet::versions(30, 40, &Script { wait_ms: 5, ..effect() });
        fleet.enqueue(jobs.clone());
        fleet.wait_started(100);
        for partition in 0..PARTITIONS {
            delete(&fleet, partition);
        }
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        let used = cpu_in_two_seconds(&node);
        assert!(used < Duration::from_millis(600), "spinning: {used:?}");
        let left = fleet.drain(&mut node);
        assert!(left.counts.tenures() <= 5 * u64::from(PARTITIONS), "{:?}", left.counts);
        assert_eq!(left.counts.of("restarts"), 0);
    });
}

#[test]
fn the_group_is_deleted_by_hand() {
    deleted_by_hand(|fleet, partition| {
        let stream = fleet.queue().partition(partition).stream;
        fleet.server.command(&["XGROUP", "DESTROY", &stream, "workers"]).unwrap();
    });
}

#[test]
fn the_lease_is_deleted_by_hand() {
    deleted_by_hand(|fleet, partition| {
        fleet.server.command(&["DEL", &fleet.queue().partition(partition).lease]).unwrap();
    });
}

#[test]
fn the_stream_is_deleted_by_hand() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut node = fleet.node();
        fleet.wait_shared_by(1);
        let lost = Fleet::versions(30, 40, &Script { wait_ms: 5, ..effect() });
        fleet.try_enqueue(&lost).unwrap();
        fleet.wait_started(100);
        for partition in 0..PARTITIONS {
            fleet.server.command(&["DEL", &fleet.queue().partition(partition).stream]).unwrap();
        }
        let jobs: Vec<_> = (0..200)
            .map(|n| Fleet::job(&format!("new{n}"), &format!("new{}", n % 20), n, &effect()))
            .collect();
        fleet.enqueue_until_accepted(&jobs);
        fleet.wait_settled();
        let keys: Vec<Vec<u8>> = (0..20).map(|k| format!("new{k}").into_bytes()).collect();
        let changes: u64 = fleet.entities(&keys).into_iter().map(|entity| entity.unwrap().changes).sum();
        assert_eq!(changes, 200);
        let used = cpu_in_two_seconds(&node);
        assert!(used < Duration::from_millis(600), "spinning: {used:?}");
        assert_eq!(fleet.drain(&mut node).counts.of("restarts"), 0);
    });
}

/// The link of a node is encrypted and asks for a password, which is never shown. On Redis 7 alone: the others may be built
/// without TLS.
#[test]
fn over_tls_with_a_password() {
    let mut fleet = Fleet::start(ServerOptions::new().tls().user("worker", "s3cr3t/pass@word"));
    let mut nodes = fleet.nodes(2);
    let jobs = Fleet::versions(20, 20, &Script { wait_ms: 2, ..effect() });
    fleet.enqueue(jobs.clone());
    fleet.wait_started(50);
    assert!(fleet.server.kill_client_connections().unwrap() > 0);
    fleet.wait_settled();
    fleet.assert_effects(&jobs);
    for node in &mut nodes {
        assert!(fleet.drain(node).status.success());
        let said: Vec<String> = node.process.lines().into_iter().map(|line| line.text).collect();
        assert!(!said.iter().any(|line| line.contains("s3cr3t")), "the password was shown");
    }
}
