//! Queues with ordering none: jobs for later become ready when they are due, never early and once each, whoever dies, stands still
//! or leaves meanwhile.

use crate::jobs_come_when_due::{
    a_new_first_is_heard_of, clocks, jobs_of, punctual, the_first_node_promotes,
};
use gristmill_job::{NewJob, UnixMillis};
use gristmill_testkit::eventually;
use gristmill_testkit::seed::{SplitMix64, seed};
use gristmill_tests::fleet::{Fleet, SOON};
use gristmill_tests::script::Script;
use gristmill_tests::servers::{on_every_flavor, on_servers};
use std::time::Duration;

const TIMEOUT: [&str; 2] = ["--visibility-ms", "1500"];

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

/// Jobs of different keys, each due so many ms (of `steps` steps of 20 ms) behind `first`; some fail at first.
fn due_later(count: usize, first: u64, steps: u64, rng: &mut SplitMix64) -> Vec<(u64, NewJob)> {
    let mut job = |n: usize| {
        let at = first + 20 * rng.below(steps);
        let script = Script { fail_until: u32::from(rng.below(12) == 0), ..effect() };
        (at, Fleet::job(&format!("job{n}"), &format!("key{n}"), 1, &script).due_at(UnixMillis(at)))
    };
    (0..count).map(&mut job).collect()
}

#[test]
fn never_early_and_soon_although_nodes_are_killed_stand_still_and_leave() {
    on_every_flavor(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::unordered(options);
        let mut nodes = [fleet.node_with(&TIMEOUT), fleet.node_with(&TIMEOUT), fleet.node_with(&TIMEOUT)];
        let clocks = clocks(&fleet);
        let planned = due_later(1500, clocks.0 + 1500, 250, &mut rng);
        planned.chunks(100).for_each(|chunk| drop(fleet.enqueue(jobs_of(chunk))));
        fleet.wait_started_more(1 + rng.below(200) as usize);
        fleet.kill(&mut nodes[0]);
        fleet.wait_started_more(1 + rng.below(200) as usize);
        fleet.pause(&mut nodes[1]);
        fleet.wait_started_more(1 + rng.below(200) as usize);
        nodes[0] = fleet.node_with(&TIMEOUT);
        fleet.wait_started_more(1 + rng.below(100) as usize);
        fleet.resume(&mut nodes[1]);
        let left = fleet.drain(&mut nodes[2]);
        assert_eq!(left.abandoned, 0, "{}", left.line);
        fleet.wait_settled();
        fleet.assert_effects(&jobs_of(&planned));
        punctual(&fleet, &planned, clocks, "killed, stopped and drained");
    });
}

#[test]
fn a_new_first_is_heard_of_without_waiting_for_a_look() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let _nodes = [fleet.node(), fleet.node()];
        a_new_first_is_heard_of(&mut fleet);
    });
}

#[test]
fn thousands_due_at_once_come_and_other_jobs_go_on_beside_them() {
    on_servers(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::unordered(options);
        let _nodes = [fleet.node(), fleet.node()];
        let clocks = clocks(&fleet);
        let planned = due_later(4000, clocks.0 + 2500, 2, &mut rng);
        fleet.enqueue(jobs_of(&planned));
        let job = |n: usize| Fleet::job(&format!("beside{n}"), &format!("beside{n}"), 1, &effect());
        let beside: Vec<NewJob> = (0..100).map(job).collect();
        eventually(SOON, "some of them to run", || (fleet.history().runs.len() > 200).then_some(()));
        fleet.enqueue(beside.clone());
        fleet.wait_settled();
        let all: Vec<NewJob> = jobs_of(&planned).into_iter().chain(beside).collect();
        fleet.assert_effects(&all);
        punctual(&fleet, &planned, clocks, "four thousand at once");
    });
}

/// A node dies with a promote that was executed and not answered, or sent and not executed, which then arrives late.
#[test]
fn a_promote_whose_answer_is_lost_or_that_arrives_late_moves_each_job_once() {
    on_servers(|options| {
        for late in [false, true] {
            let (mut fleet, proxy) = Fleet::unordered_behind_proxy(options.clone());
            let mut first = fleet.node_with(&TIMEOUT);
            let job = |n: usize| Fleet::job(&format!("due{n}"), &Fleet::key_in(2, n), 1, &effect());
            let jobs: Vec<NewJob> = (0..6).map(|n| job(n).due_in(Duration::from_millis(300))).collect();
            // What only a promote that moves these jobs contains.
            let needle = ":1:due0";
            let (request, reply) = match late {
                true => (Some(proxy.hold_next_request(needle)), None),
                false => (None, Some(proxy.hold_next_reply(needle))),
            };
            fleet.enqueue(jobs.clone());
            if let Some(reply) = &reply {
                reply.wait_held(SOON).unwrap();
            }
            if let Some(request) = &request {
                request.wait_held(SOON).unwrap();
                assert_eq!(fleet.partitions()[2].delayed, 6, "not executed yet");
            }
            fleet.kill(&mut first);
            let _second = fleet.node_with(&TIMEOUT);
            fleet.wait_settled();
            if let Some(request) = request {
                // It finds nothing any more, or nobody's connection; either way nothing happens.
                let _ = request.release(SOON);
            }
            drop(reply);
            fleet.wait_settled();
            let report = fleet.assert_effects(&jobs);
            assert!(report.runs <= 12, "each ran once, or was running when its node died: {report}");
        }
    });
}

#[test]
fn with_no_node_nothing_is_promoted_and_the_first_node_promotes_at_once() {
    on_servers(|options| {
        the_first_node_promotes(Fleet::unordered(options), Fleet::unlike(0, 30, &effect()));
    });
}

/// Through the outbox of the parent's partition and the delayed set of the child's, by nodes that die.
#[test]
fn emitted_jobs_for_later_arrive_once_although_nodes_die() {
    on_servers(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::unordered(options);
        let script = Script { emit: Some("second".into()), emit_in_ms: 400, ..effect() };
        let jobs = Fleet::unlike(0, 240, &script);
        fleet.expect_emitted("second", &jobs);
        let more = ["--visibility-ms", "1500", "--queues", "work,second=key"];
        let mut nodes = [fleet.node_with(&more), fleet.node_with(&more)];
        fleet.enqueue(jobs.clone());
        for victim in [0, 1] {
            fleet.wait_started_more(1 + rng.below(100) as usize);
            fleet.kill(&mut nodes[victim]);
            nodes[victim] = fleet.node_with(&more);
        }
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
    });
}
