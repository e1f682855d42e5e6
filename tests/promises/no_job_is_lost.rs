//! No job is lost: whatever dies, every job ends by its handler or as a dead letter.

use gristmill_testkit::server::ServerOptions;
use gristmill_tests::fleet::Fleet;
use gristmill_tests::script::Script;

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

#[test]
fn one_node_settles_everything_once_and_in_order() {
    let mut fleet = Fleet::start(ServerOptions::new());
    let mut node = fleet.node();
    let jobs = Fleet::versions(20, 50, &effect());
    fleet.enqueue(jobs.clone());
    fleet.wait_settled();
    let report = fleet.assert_effects(&jobs);
    assert_eq!((report.jobs, report.repeated), (1000, 0));
    let (line, status) = fleet.drain(&mut node);
    assert!(status.success(), "{line}");
}

#[test]
fn what_a_killed_node_held_is_recovered_by_another() {
    let mut fleet = Fleet::start(ServerOptions::new());
    let mut first = fleet.node();
    let script = Script { wait_ms: 20, ..effect() };
    let jobs = Fleet::versions(20, 20, &script);
    fleet.enqueue(jobs.clone());
    fleet.wait_started(100);
    fleet.kill(&mut first);
    let _second = fleet.node();
    fleet.wait_settled();
    let report = fleet.assert_effects(&jobs);
    assert!(report.runs > report.jobs, "it was killed while it ran jobs");
}
