//! A failover to an older state loses what it loses; what survives is settled, once, in order, and nothing hangs.
//!
//! A single node here: between a failover and the moment a node notices it, two nodes may run one key, which nobody can
//! close (only its effects are refused).

use gristmill_testkit::seed::{SplitMix64, seed};
use gristmill_testkit::server::{ServerOptions, Snapshot};
use gristmill_tests::fleet::Fleet;
use gristmill_tests::script::Script;
use gristmill_tests::servers::on_servers;

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

/// A snapshot in the middle of the work, and then some more work that it does not know of.
fn snapshot_amid_work(fleet: &Fleet, rng: &mut SplitMix64) -> Snapshot {
    fleet.wait_started_more(1 + rng.below(120) as usize);
    let data = fleet.server.snapshot().unwrap();
    fleet.wait_started_more(1 + rng.below(120) as usize);
    data
}

/// V9, V10: the connection breaks and the node sees it.
#[test]
fn that_the_node_sees() {
    on_servers(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options);
        let mut node = fleet.node();
        let jobs = Fleet::versions(20, 60, &Script { wait_ms: 5, ..effect() });
        fleet.enqueue(jobs.clone());
        for _ in 0..2 {
            let data = snapshot_amid_work(&fleet, &mut rng);
            fleet.server.roll_back_to(&data).unwrap();
        }
        fleet.wait_settled();
        let report = fleet.assert_effects(&jobs);
        assert!(report.repeated > 0, "nothing was lost by the failovers: {report}");
        assert!(fleet.drain(&mut node).counts.of("end.connection") > 0);
    });
}

/// V9: a proxy hides it, so that the same tenure goes on in another history. Only the numbers of its calls can tell.
#[test]
fn that_a_proxy_hides() {
    on_servers(|options: ServerOptions| {
        let mut rng = SplitMix64::new(seed());
        let (mut fleet, proxy) = Fleet::behind_proxy(options.clone());
        let mut node = fleet.node();
        let jobs = Fleet::versions(20, 60, &Script { wait_ms: 5, ..effect() });
        fleet.enqueue(jobs.clone());
        for _ in 0..2 {
            let data = snapshot_amid_work(&fleet, &mut rng);
            fleet.fail_over_unseen(&proxy, options.clone(), &data);
        }
        fleet.wait_settled();
        let report = fleet.assert_effects(&jobs);
        assert!(report.repeated > 0, "nothing was lost by the failovers: {report}");
        let counts = fleet.drain(&mut node).counts;
        assert!(counts.tenures_lost() > 0, "{counts:?}");
    });
}

/// V9 with the newest job running: the surviving history has an older one of its key to be done first.
#[test]
fn a_result_of_the_lost_history_does_not_overtake() {
    on_servers(|options: ServerOptions| {
        let (mut fleet, proxy) = Fleet::behind_proxy(options.clone());
        // Renewed so seldom that nothing but the settle itself can find out.
        let _node = fleet.node_with(&["--lease-ms", "60000"]);
        fleet.wait_shared_by(1);
        let slow = Script { wait_ms: 1500, ..effect() };
        let first = Fleet::job("first", "a", 1, &Script { wait_ms: 300, ..effect() });
        let jobs = vec![first, Fleet::job("second", "a", 2, &slow), Fleet::job("third", "a", 3, &effect())];
        fleet.enqueue(jobs.clone());
        fleet.wait_started(1);
        let data = fleet.server.snapshot().unwrap();
        fleet.wait_started(2);
        assert_eq!(fleet.entity("a").map(|entity| entity.version), Some(1));
        fleet.fail_over_unseen(&proxy, options.clone(), &data);
        assert_eq!(fleet.entity("a"), None, "the first is to be done again");
        fleet.wait_settled();
        // Three effects in order: had the second's result been written first, the first's would have been stale.
        fleet.assert_effects(&jobs);
        assert_eq!(fleet.runs_of("first").len(), 2);
    });
}

/// What was accepted after the snapshot is lost, as an asynchronous replica may lose it; a producer that repeats itself mends it.
#[test]
fn what_it_loses_may_be_enqueued_again() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let _node = fleet.node();
        let jobs = Fleet::versions(20, 20, &Script { wait_ms: 2, ..effect() });
        let (early, late) = jobs.split_at(200);
        fleet.enqueue(early.to_vec());
        fleet.wait_started_more(50);
        let data = fleet.server.snapshot().unwrap();
        fleet.enqueue(late.to_vec());
        fleet.wait_started_more(100);
        fleet.server.roll_back_to(&data).unwrap();
        fleet.enqueue_until_accepted(&jobs);
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
    });
}
