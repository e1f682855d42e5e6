//! One owner per partition: nodes that come and go move partitions by request, in order, without an expiry, and never is
//! a partition without somebody who may take it.

use gristmill_job::NewJob;
use gristmill_testkit::eventually;
use gristmill_testkit::history::now_us;
use gristmill_testkit::proxy::Proxy;
use gristmill_tests::fleet::{Fleet, PARTITIONS, SOON};
use gristmill_tests::node::NodeProcess;
use gristmill_tests::script::Script;
use gristmill_tests::servers::on_servers;
use std::time::Duration;

const ALL: usize = PARTITIONS as usize;

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

/// A job of this script, and shorter ones behind it in its key and in another key of the partition.
fn long_and_others(partition: u16, script: &Script) -> (NewJob, Vec<NewJob>) {
    let (key, other) = (Fleet::key_in(partition, 0), Fleet::key_in(partition, 1));
    let mut others = vec![Fleet::job("behind", &key, 2, &effect())];
    others.extend((1..=10).map(|v| Fleet::job(&format!("other{v}"), &other, v, &effect())));
    (Fleet::job("long", &key, 1, script), others)
}

fn joined(first: NewJob, others: Vec<NewJob>) -> Vec<NewJob> {
    [vec![first], others].concat()
}

fn wait_wanted(fleet: &Fleet, partition: u16, by: &NodeProcess) {
    let lease = fleet.queue().partition(partition).lease;
    eventually(SOON, "the partition to be wanted", || {
        let wanted = fleet.server.command(&["HGET", &lease, "wanted"]).unwrap();
        wanted.as_str().is_some_and(|wanted| wanted.starts_with(&format!("{}~", by.name))).then_some(())
    });
}

#[test]
fn who_joins_is_handed_partitions_and_who_leaves_hands_them_on_without_an_expiry() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        // Leases so long that whatever moves in this test was not moved by an expiry.
        let long = ["--lease-ms", "20000"];
        let mut first = fleet.node_with(&long);
        fleet.wait_shared_by(1);
        let jobs = Fleet::versions(40, 60, &Script { wait_ms: 10, ..effect() });
        fleet.enqueue(jobs.clone());
        // Its leases are made shorter only where it counts: how long a newcomer waits until it is taken for stable.
        let mut second = fleet.node_with(&["--lease-ms", "1500"]);
        let mut third = fleet.node_with(&["--lease-ms", "1500"]);
        fleet.wait_shared_by(3);
        let left = fleet.drain(&mut first);
        assert!(left.counts.of("end.handover") > 0, "{:?}", left.counts);
        assert_eq!(left.counts.tenures_lost(), 0, "{:?}", left.counts);
        fleet.wait_shared_by(2);
        let left = fleet.drain(&mut second);
        assert_eq!(left.counts.tenures_lost(), 0, "{:?}", left.counts);
        fleet.wait_shared_by(1);
        fleet.wait_settled();
        let report = fleet.assert_effects(&jobs);
        assert_eq!(report.runs, report.jobs, "a hand-over that costs a run was no clean one: {report}");
        let left = fleet.drain(&mut third);
        assert_eq!(left.counts.tenures_lost(), 0, "{:?}", left.counts);
    });
}

#[test]
fn nodes_that_come_and_go_under_load_break_no_order() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut nodes = fleet.nodes(1);
        let jobs = Fleet::versions(40, 150, &Script { wait_ms: 5, ..effect() });
        fleet.enqueue(jobs.clone());
        nodes.push(fleet.node());
        nodes.push(fleet.node());
        fleet.wait_shared_by(3);
        let mut leaver = nodes.remove(0);
        assert_eq!(fleet.drain(&mut leaver).counts.tenures_lost(), 0);
        fleet.wait_shared_by(2);
        nodes.push(fleet.node());
        fleet.wait_shared_by(3);
        fleet.wait_settled();
        let report = fleet.assert_effects(&jobs);
        assert_eq!(report.runs, report.jobs, "{report}");
        for node in &mut nodes {
            assert_eq!(fleet.drain(node).counts.tenures_lost(), 0);
        }
    });
}

#[test]
fn a_long_run_stops_the_hand_over_and_not_the_partition() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut first = fleet.node_with(&["--handover-ms", "300"]);
        fleet.wait_shared_by(1);
        // One in every partition, so that whichever is wanted has a long run.
        let long = Script { wait_ms: 6000, ..effect() };
        let longs: Vec<NewJob> = (0..PARTITIONS)
            .map(|p| Fleet::job(&format!("long{p}"), &Fleet::key_in(p, 0), 1, &long))
            .collect();
        fleet.enqueue(longs.clone());
        fleet.wait_started(ALL);
        let second = fleet.node();
        let lease = |p| fleet.queue().partition(p).lease;
        let wanted = eventually(SOON, "a partition to be wanted", || {
            let is_wanted =
                |p: &u16| !fleet.server.command(&["HGET", &lease(*p), "wanted"]).unwrap().is_nil();
            (0..PARTITIONS).find(is_wanted)
        });
        let other = Fleet::key_in(wanted, 1);
        let others: Vec<NewJob> =
            (1..=20).map(|v| Fleet::job(&format!("other{v}"), &other, v, &effect())).collect();
        fleet.enqueue(others.clone());
        eventually(Duration::from_secs(5), "jobs of other keys beside the long run", || {
            fleet.entity(&other).is_some_and(|entity| entity.changes == 20).then_some(())
        });
        let running = fleet.runs_of(&format!("long{wanted}"));
        assert!(running[0].ended.is_none(), "the long run was over already: nothing was shown");
        assert_eq!(fleet.owned_by(&first), ALL);
        // Once the long runs end, the hand-over happens.
        eventually(SOON, "the hand-over", || (fleet.owned_by(&second) > 0).then_some(()));
        fleet.wait_settled();
        let report = fleet.assert_effects(&[longs, others].concat());
        assert_eq!(report.runs, report.jobs, "{report}");
        assert_eq!(fleet.drain(&mut first).counts.tenures_lost(), 0);
    });
}

/// V38: a node that leaves counts no more, and its partitions are taken while it still runs its last job.
#[test]
fn the_partitions_of_a_node_that_drains_are_taken_before_it_is_gone() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut leaver = fleet.node();
        fleet.wait_shared_by(1);
        // What only two of its lease times without an owner set free would be free too late for this test.
        let stays = fleet.node_with(&["--lease-ms", "4000"]);
        fleet.wait_shared_by(2);
        let held = fleet.partitions_of(&leaver)[0];
        let (long, others) = long_and_others(held, &Script { wait_ms: 5000, ..effect() });
        fleet.enqueue(vec![long.clone()]);
        fleet.wait_run_on("long", &leaver);
        leaver.process.terminate().unwrap();
        eventually(SOON, "the other to own all but the one that is still busy", || {
            (fleet.owned_by(&stays) == ALL - 1).then_some(())
        });
        assert!(fleet.runs_of("long")[0].ended.is_none(), "the long run was over already: nothing was shown");
        assert_eq!(fleet.partitions_of(&leaver), [held]);
        let flowing: Vec<NewJob> = (0..PARTITIONS)
            .filter(|p| *p != held)
            .map(|p| Fleet::job(&format!("flows{p}"), &Fleet::key_in(p, 2), 1, &effect()))
            .collect();
        fleet.enqueue([others.clone(), flowing.clone()].concat());
        let left = fleet.drained(&mut leaver);
        assert!(left.status.success() && left.handed_back + left.abandoned == 0, "{}", left.line);
        assert_eq!(left.counts.tenures_lost(), 0, "{:?}", left.counts);
        fleet.wait_settled();
        let report = fleet.assert_effects(&[joined(long, others), flowing].concat());
        assert_eq!(report.runs, report.jobs, "{report}");
        fleet.wait_shared_by(1);
    });
}

/// V12: who wanted a partition dies; the wish ends with it, and the owner goes on.
#[test]
fn a_wish_ends_with_the_node_that_had_it() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut owner = fleet.node();
        fleet.wait_shared_by(1);
        let long = Script { wait_ms: 3000, ..effect() };
        let longs: Vec<NewJob> = (0..PARTITIONS)
            .map(|p| Fleet::job(&format!("long{p}"), &Fleet::key_in(p, 0), 1, &long))
            .collect();
        fleet.enqueue(longs.clone());
        fleet.wait_started(ALL);
        let mut wanter = fleet.node();
        let lease = |p| fleet.queue().partition(p).lease;
        eventually(SOON, "a wish", || {
            let is_wanted =
                |p: &u16| !fleet.server.command(&["HGET", &lease(*p), "wanted"]).unwrap().is_nil();
            (0..PARTITIONS).find(is_wanted)
        });
        fleet.kill(&mut wanter);
        let after: Vec<NewJob> = (0..PARTITIONS)
            .flat_map(|p| [(p, 0, 2), (p, 1, 1)])
            .map(|(p, k, v)| Fleet::job(&format!("after{p}.{k}"), &Fleet::key_in(p, k), v, &effect()))
            .collect();
        fleet.enqueue(after.clone());
        fleet.wait_settled();
        let report = fleet.assert_effects(&[longs, after].concat());
        assert_eq!(report.runs, report.jobs, "{report}");
        eventually(SOON, "the owner to own everything", || (fleet.owned_by(&owner) == ALL).then_some(()));
        // It does not stop and start for ever after a wish that nobody has.
        let ends = owner.counts().tenures();
        fleet.enqueue(Fleet::versions(20, 20, &effect()));
        fleet.wait_settled();
        assert_eq!(owner.counts().tenures(), ends);
    });
}

/// Cuts a node off in the middle of a long run, lets another take over and run the job, and then brings the lease back while
/// the old run still lives. The others of the key and of the partition are enqueued before it comes back.
fn cut_off_and_back(fleet: &mut Fleet, long: &NewJob, others: &[NewJob], settled_by_other: bool) {
    let proxy = Proxy::start(fleet.server.port()).unwrap();
    let url = fleet.server.url_at(proxy.port());
    let mut first = fleet.node_with(&["--redis", &url]);
    fleet.wait_shared_by(1);
    fleet.enqueue(vec![long.clone()]);
    fleet.wait_run_on("long", &first);
    let cut_at = now_us();
    proxy.refuse();
    proxy.cut();
    let mut second = fleet.node();
    fleet.wait_run_on("long", &second);
    if settled_by_other {
        fleet.wait_settled();
    }
    fleet.kill(&mut second);
    fleet.enqueue(others.to_vec());
    proxy.pass();
    eventually(SOON, "other keys of the partition to go on", || {
        fleet.runs_of("other10").iter().any(|run| run.node == first.incarnation).then_some(())
    });
    fleet.cut_off(&first, cut_at, now_us());
    let old = fleet.wait_run_on("long", &first);
    assert!(old.ended.is_none(), "the old run was over already: nothing was shown");
    assert!(fleet.runs_of("behind").is_empty());
    fleet.wait_settled();
    // Among others: no process ran a key beside itself.
    fleet.assert_effects(&joined(long.clone(), others.to_vec()));
    assert_eq!(fleet.runs_of("long").iter().filter(|run| run.node == first.incarnation).count(), 1);
    assert!(first.counts().tenures_lost() > 0);
}

/// V8: a lease comes back to a node whose run from before it was lost still lives: the job is not started beside it.
#[test]
fn a_lease_that_comes_back_starts_nothing_beside_the_run_from_before() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let (long, others) = long_and_others(4, &Script { wait_ms: 9000, ..effect() });
        cut_off_and_back(&mut fleet, &long, &others, false);
    });
}

/// V8 with its job done by the other meanwhile: the next one of the key waits for the old run, whose result is dropped.
#[test]
fn a_lease_that_comes_back_starts_no_later_job_beside_the_run_from_before() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let script = Script { wait_ms: 9000, recovered_wait_ms: Some(10), ..effect() };
        let (long, others) = long_and_others(4, &script);
        cut_off_and_back(&mut fleet, &long, &others, true);
    });
}

/// V3: a release of the connection before arrives when the partition has another owner, or the same in a newer tenure.
#[test]
fn a_release_that_arrives_late_frees_nothing() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let proxy = Proxy::start(fleet.server.port()).unwrap();
        let url = fleet.server.url_at(proxy.port());
        let mut first = fleet.node_with(&["--redis", &url]);
        fleet.wait_shared_by(1);
        let late = proxy.hold_next_request(fleet.script_hash("release"));
        let second = fleet.node();
        late.wait_held(SOON).unwrap();
        proxy.cut();
        // The one that let go takes it back, knows that it is wanted, and lets go again.
        let shares = fleet.wait_shared_by(2);
        let epochs: Vec<u64> = fleet.partitions().iter().map(|view| view.epoch).collect();
        late.release(SOON).unwrap();
        assert_eq!(fleet.owners(), shares);
        let after: Vec<u64> = fleet.partitions().iter().map(|view| view.epoch).collect();
        assert_eq!(after, epochs, "a late release ended a tenure");
        let jobs = Fleet::versions(30, 20, &effect());
        fleet.enqueue(jobs.clone());
        fleet.wait_settled();
        let report = fleet.assert_effects(&jobs);
        assert_eq!(report.runs, report.jobs);
        assert!(fleet.owned_by(&second) > 0);
        assert!(fleet.drain(&mut first).status.success());
    });
}

/// A wish is noted in the lease of its partition, by the name of its node.
#[test]
fn a_wish_names_who_wants() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let _owner = fleet.node();
        fleet.wait_shared_by(1);
        let long = Script { wait_ms: 3000, ..effect() };
        let longs: Vec<NewJob> = (0..PARTITIONS)
            .map(|p| Fleet::job(&format!("long{p}"), &Fleet::key_in(p, 0), 1, &long))
            .collect();
        fleet.enqueue(longs.clone());
        fleet.wait_started(ALL);
        let wanter = fleet.node();
        let lease = |p| fleet.queue().partition(p).lease;
        let wanted = eventually(SOON, "a wish", || {
            let is_wanted =
                |p: &u16| !fleet.server.command(&["HGET", &lease(*p), "wanted"]).unwrap().is_nil();
            (0..PARTITIONS).find(is_wanted)
        });
        wait_wanted(&fleet, wanted, &wanter);
        // The owner heeds it as soon as its run is over.
        eventually(SOON, "the hand-over", || fleet.partitions_of(&wanter).contains(&wanted).then_some(()));
        fleet.wait_settled();
        let report = fleet.assert_effects(&longs);
        assert_eq!(report.runs, report.jobs, "{report}");
    });
}
