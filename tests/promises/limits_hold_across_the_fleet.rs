//! Limits hold across the fleet: of a limited kind no more run at a time, or in a stretch of time, than its limit says, whoever
//! dies or pauses; no slot is lost, and none is had twice. And a flooded queue keeps no other of its node waiting.

use gristmill_job::NewJob;
use gristmill_testkit::eventually;
use gristmill_testkit::history::{Run, now_us};
use gristmill_testkit::server::ServerOptions;
use gristmill_tests::fleet::{Fleet, PARTITIONS, QUEUE, SOON};
use gristmill_tests::node::NodeProcess;
use gristmill_tests::script::{SCARCE, Script};
use gristmill_tests::servers::{on_every_flavor, on_servers};
use std::collections::HashSet;

pub(crate) fn waits(wait_ms: u64) -> Script {
    Script { wait_ms, effect: true, ..Script::default() }
}

/// Jobs of the limited kind, each of a key of its own.
pub(crate) fn scarce(name: &str, count: usize, script: &Script) -> Vec<NewJob> {
    let job = |n: usize| Fleet::job_of(SCARCE, &format!("{name}{n}"), &format!("{name}.key{n}"), script);
    (0..count).map(job).collect()
}

/// The runs of these jobs.
pub(crate) fn runs_of(fleet: &Fleet, jobs: &[NewJob]) -> Vec<Run> {
    let ids: HashSet<String> = jobs.iter().map(|job| job.id.as_ref().unwrap().to_string()).collect();
    fleet.history().runs.into_iter().filter(|run| ids.contains(&run.job.id)).collect()
}

/// How many of these runs were alive at a time, at most; one that did not end ended then.
pub(crate) fn most_at_once(runs: &[Run], ended: impl Fn(&Run) -> u64) -> usize {
    let mut edges: Vec<(u64, i32)> = Vec::new();
    for run in runs {
        edges.push((run.started_us, 1));
        edges.push((run.ended.map_or_else(|| ended(run), |(at, _)| at), -1));
    }
    // Who ends goes before who starts at the same moment.
    edges.sort_unstable();
    let mut alive = 0;
    let counts = edges.into_iter().map(|(_, step)| {
        alive += step;
        alive
    });
    usize::try_from(counts.max().unwrap_or(0)).unwrap()
}

pub(crate) fn all_ended(run: &Run) -> u64 {
    panic!("a run did not end: {run:?}")
}

fn holders(fleet: &Fleet) -> u64 {
    let connection = fleet.connection();
    fleet.block_on(connection.holders(&fleet.queue().name, SCARCE, 1)).unwrap().1
}

pub(crate) fn wait_no_holders(fleet: &Fleet) {
    eventually(SOON, "every slot to be free", || (holders(fleet) == 0).then_some(()));
}

fn wait_owned_by(fleet: &Fleet, node: &NodeProcess) {
    eventually(SOON, "it to own all", || (fleet.owned_by(node) == usize::from(PARTITIONS)).then_some(()));
}

#[test]
fn no_more_run_than_the_limit_says_and_all_of_them_run() {
    on_every_flavor(|options| {
        let mut fleet = Fleet::start(options);
        let mut nodes =
            vec![fleet.node_with(&["--max-running", "3"]), fleet.node_with(&["--max-running", "3"])];
        fleet.wait_shared_by(2);
        let jobs = scarce("s", 90, &waits(20));
        fleet.enqueue(jobs.clone());
        fleet.wait_settled();
        let runs = runs_of(&fleet, &jobs);
        assert_eq!(runs.len(), jobs.len(), "no one ran twice, or was charged for waiting");
        assert_eq!(most_at_once(&runs, all_ended), 3);
        for node in &nodes {
            assert!(runs.iter().any(|run| run.node == node.incarnation), "{} ran none", node.incarnation);
        }
        wait_no_holders(&fleet);
        fleet.assert_effects(&jobs);
        for node in &mut nodes {
            let counts = fleet.drain(node).counts;
            assert_eq!(counts.tenures_lost(), 0, "{counts:?}");
        }
    });
}

#[test]
fn what_waits_for_a_limit_keeps_no_other_kind_waiting() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let _node = fleet.node_with(&["--max-running", "1", "--slots", "2"]);
        fleet.wait_shared_by(1);
        let holder = scarce("holder", 1, &waits(8000));
        fleet.enqueue(holder.clone());
        fleet.wait_started(1);
        // More than a window of each partition.
        let waiting = scarce("s", 8 * 600, &Script::default());
        fleet.enqueue(waiting);
        let others: Vec<NewJob> =
            (0..200).map(|n| Fleet::job(&format!("o{n}"), &format!("other{n}"), 1, &waits(0))).collect();
        fleet.enqueue(others.clone());
        eventually(SOON, "the others to run", || {
            (runs_of(&fleet, &others).len() == others.len()).then_some(())
        });
        let held = runs_of(&fleet, &holder);
        assert_eq!(held.len(), 1, "{held:?}");
        assert!(held[0].ended.is_none(), "the others waited for the limit");
        // One after the other, thousands of them.
        fleet.wait_settled_within(SOON * 6);
        wait_no_holders(&fleet);
        fleet.assert_promises();
    });
}

#[test]
fn the_slots_of_a_killed_node_are_inherited_or_lapse_and_none_is_lost() {
    on_every_flavor(|options| {
        let mut fleet = Fleet::start(options);
        let mut dies = fleet.node_with(&["--max-running", "2"]);
        wait_owned_by(&fleet, &dies);
        let long = scarce("long", 2, &Script { recovered_wait_ms: Some(20), ..waits(60_000) });
        fleet.enqueue(long.clone());
        fleet.wait_started(2);
        let jobs = scarce("s", 40, &waits(10));
        fleet.enqueue(jobs.clone());
        let mut other = fleet.node_with(&["--max-running", "2"]);
        assert_eq!(holders(&fleet), 2);
        let killed_at = now_us();
        fleet.kill(&mut dies);
        fleet.wait_settled();
        wait_no_holders(&fleet);
        let all = [long, jobs].concat();
        assert_eq!(most_at_once(&runs_of(&fleet, &all), |_| killed_at), 2);
        fleet.assert_effects(&all);
        fleet.drain(&mut other);
    });
}

#[test]
fn of_a_limit_of_one_whose_holder_is_stopped_taken_over_and_resumed_never_two_run_and_none_is_lost() {
    on_every_flavor(|options| {
        let mut fleet = Fleet::start(options);
        let mut old = fleet.node_with(&["--max-running", "1"]);
        wait_owned_by(&fleet, &old);
        let held = scarce("held", 1, &Script { recovered_wait_ms: Some(300), ..waits(1000) });
        fleet.enqueue(held.clone());
        fleet.wait_run_on("held0", &old);
        let jobs = scarce("s", 12, &waits(50));
        fleet.enqueue(jobs.clone());
        fleet.pause(&mut old);
        let mut new = fleet.node_with(&["--max-running", "1"]);
        wait_owned_by(&fleet, &new);
        fleet.wait_run_on("held0", &new);
        // It goes on with its run, frees what is no longer its own, and keeps it no more.
        fleet.resume(&mut old);
        fleet.wait_settled();
        wait_no_holders(&fleet);
        let all = [held, jobs].concat();
        // The run that was stopped is trusted by nobody.
        let trusted: Vec<Run> = runs_of(&fleet, &all)
            .into_iter()
            .filter(|run| !(run.job.id == "held0" && run.node == old.incarnation))
            .collect();
        assert_eq!(trusted.len(), all.len(), "each ran once under a lease that stood: {trusted:?}");
        assert_eq!(most_at_once(&trusted, all_ended), 1);
        fleet.assert_effects(&all);

        // And both go on as before.
        let more = scarce("more", 16, &waits(10));
        fleet.wait_shared_by(2);
        fleet.enqueue(more.clone());
        fleet.wait_settled();
        assert_eq!(most_at_once(&runs_of(&fleet, &more), all_ended), 1);
        wait_no_holders(&fleet);
        for node in [&mut old, &mut new] {
            fleet.drain(node);
        }
    });
}

#[test]
fn hand_overs_retries_and_drains_lose_no_slot_and_give_none_twice() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let more = ["--max-running", "2", "--handover-ms", "200"];
        let mut nodes = vec![fleet.node_with(&more)];
        let script = Script { fail_until: 1, ..waits(15) };
        let jobs = scarce("s", 120, &script);
        fleet.enqueue(jobs[..60].to_vec());
        fleet.wait_started(5);
        nodes.push(fleet.node_with(&more));
        fleet.wait_shared_by(2);
        fleet.enqueue(jobs[60..].to_vec());
        fleet.wait_started_more(10);
        let mut first = nodes.remove(0);
        let counts = fleet.drain(&mut first).counts;
        assert_eq!(counts.tenures_lost(), 0, "{counts:?}");
        fleet.wait_settled();
        let runs = runs_of(&fleet, &jobs);
        assert_eq!(runs.len(), 2 * jobs.len(), "each failed once, and waiting was no attempt");
        assert!(most_at_once(&runs, all_ended) <= 2);
        wait_no_holders(&fleet);
        fleet.assert_effects(&jobs);
    });
}

#[test]
fn a_rate_holds_under_two_nodes() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let more = ["--rate", "40/s", "--rate-burst", "4"];
        let _nodes = [fleet.node_with(&more), fleet.node_with(&more)];
        fleet.wait_shared_by(2);
        let jobs = scarce("s", 64, &waits(0));
        let enqueued_us = now_us();
        fleet.enqueue(jobs.clone());
        fleet.wait_settled();
        let mut starts: Vec<u64> = runs_of(&fleet, &jobs).iter().map(|run| run.started_us).collect();
        starts.sort_unstable();
        assert_eq!(starts.len(), jobs.len());
        // The token of each came no earlier than this, and its run no earlier than its token.
        for (n, started_us) in starts.iter().enumerate() {
            let earliest = enqueued_us + 25_000 * (n as u64).saturating_sub(3);
            assert!(*started_us + 1000 >= earliest, "run {n} is {} us early", earliest - started_us);
        }
        fleet.assert_effects(&jobs);
    });
}

#[test]
fn a_rate_per_key_spaces_the_jobs_of_each_key_and_no_others() {
    let mut fleet = Fleet::start(ServerOptions::new());
    let more = ["--rate", "20/s", "--rate-burst", "1", "--rate-per-key"];
    let _nodes = [fleet.node_with(&more), fleet.node_with(&more)];
    fleet.wait_shared_by(2);
    let jobs: Vec<NewJob> = (0..60)
        .map(|n| Fleet::job_of(SCARCE, &format!("s{n}"), &format!("key{}", n % 6), &waits(0)))
        .map(|job| job.with_version(1))
        .collect();
    let jobs: Vec<NewJob> =
        jobs.into_iter().enumerate().map(|(n, job)| job.with_version(1 + n as u64 / 6)).collect();
    let enqueued_us = now_us();
    fleet.enqueue(jobs.clone());
    fleet.wait_settled();
    for key in 0..6 {
        let of_key: Vec<NewJob> = jobs.iter().skip(key).step_by(6).cloned().collect();
        for (n, run) in runs_of(&fleet, &of_key).iter().enumerate() {
            let earliest = enqueued_us + 50_000 * n as u64;
            assert!(run.started_us + 1000 >= earliest, "run {n} of key {key} is early");
        }
    }
    fleet.assert_effects(&jobs);
}

#[test]
fn a_small_queue_beside_a_flooded_one_has_its_turn() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let _node = fleet.node_with(&["--queues", "work,small", "--slots", "4"]);
        let flood: Vec<NewJob> =
            (0..3000).map(|n| Fleet::job(&format!("f{n}"), &format!("flood{n}"), 1, &waits(4))).collect();
        fleet.enqueue_into(QUEUE, flood);
        fleet.wait_started(200);
        let small: Vec<NewJob> =
            (0..20).map(|n| Fleet::job(&format!("small{n}"), &format!("key{n}"), 1, &waits(4))).collect();
        fleet.enqueue_into("small", small.clone());
        let runs = eventually(SOON, "the small queue to be done", || {
            let runs = runs_of(&fleet, &small);
            (runs.len() == small.len() && runs.iter().all(|run| run.ended.is_some())).then_some(runs)
        });
        let (first, last) = (
            runs.iter().map(|run| run.started_us).min().unwrap(),
            runs.iter().map(|run| run.started_us).max().unwrap(),
        );
        let of_flood = |run: &&Run| run.job.id.starts_with('f') && (first..last).contains(&run.started_us);
        let beside = fleet.history().runs.iter().filter(of_flood).count();
        // Turn and turn about, and a few more: the jobs of eight partitions are claimed and settled a few at a time.
        assert!(
            beside < 400,
            "{beside} runs of the flooded queue between the first and the last of the small one"
        );
        fleet.wait_settled();
        fleet.assert_promises();
    });
}
