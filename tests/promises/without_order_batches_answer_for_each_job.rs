//! Queues with ordering none: jobs that are handled together end each by its own answer there as well, whoever dies, stands still
//! or leaves.

use crate::batches_answer_for_each_job::{batches, one_fails_for_good};
use gristmill_job::NewJob;
use gristmill_tests::fleet::Fleet;
use gristmill_tests::script::{BATCHED, Script};
use gristmill_tests::servers::{on_every_flavor, on_servers};

const TIMEOUT: [&str; 2] = ["--visibility-ms", "1500"];

fn effect() -> Script {
    Script { effect: true, wait_ms: 5, ..Script::default() }
}

/// Jobs of different keys; every seventh fails at first.
fn jobs(from: usize, count: usize, script: &Script) -> Vec<NewJob> {
    let job = |n: usize| {
        let script = Script { fail_until: u32::from(n.is_multiple_of(7)), ..script.clone() };
        Fleet::job_of(BATCHED, &format!("b{n}"), &format!("key{n}"), &script)
    };
    (from..from + count).map(job).collect()
}

#[test]
fn once_although_a_node_is_killed_and_one_leaves() {
    on_every_flavor(|options| {
        let mut fleet = Fleet::unordered(options);
        let mut nodes = [fleet.node_with(&TIMEOUT), fleet.node_with(&TIMEOUT), fleet.node_with(&TIMEOUT)];
        let jobs = jobs(0, 400, &Script { wait_ms: 30, ..effect() });
        fleet.enqueue(jobs.clone());
        fleet.wait_started(60);
        fleet.kill(&mut nodes[0]);
        fleet.wait_started_more(40);
        let left = fleet.drain(&mut nodes[1]);
        assert_eq!((left.abandoned, left.counts.of("claims_lost")), (0, 0), "{}", left.line);
        fleet.wait_settled();
        let report = fleet.assert_effects(&jobs);
        assert!(report.runs > report.jobs, "it was killed while it ran jobs: {report}");
        let sizes = batches(&nodes[2]);
        assert!(sizes.iter().any(|size| *size > 1), "nothing was ever handled together: {sizes:?}");
        assert!(sizes.iter().all(|size| *size <= 8), "{sizes:?}");
    });
}

#[test]
fn once_although_a_node_stands_still_past_its_timeout_with_batches_in_hand() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let mut stands = fleet.node_with(&TIMEOUT);
        let jobs = jobs(0, 120, &Script { wait_ms: 200, recovered_wait_ms: Some(1), ..effect() });
        fleet.enqueue(jobs[..40].to_vec());
        fleet.wait_started(12);
        fleet.pause(&mut stands);
        let other = fleet.node_with(&TIMEOUT);
        fleet.enqueue(jobs[40..].to_vec());
        // Also what the one that stands still had claimed.
        fleet.wait_settled();
        fleet.resume(&mut stands);
        let more = self::jobs(120, 40, &effect());
        fleet.enqueue(more.clone());
        fleet.wait_settled();
        let left = fleet.drain(&mut stands);
        assert!(left.counts.of("claims_lost") > 0, "it lost what it had claimed: {}", left.line);
        assert!(batches(&other).iter().any(|size| *size > 1));
        fleet.assert_effects(&[jobs, more].concat());
    });
}

#[test]
fn one_that_fails_for_good_harms_no_other_of_its_batch() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let node = fleet.node();
        one_fails_for_good(fleet, &node);
    });
}
