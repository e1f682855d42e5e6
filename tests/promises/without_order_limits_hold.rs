//! Queues with ordering none: limits of kinds hold there as they do for keys. No more run than a limit says, whoever dies, stands
//! still or leaves; no slot is lost; what waits for a limit keeps no other kind waiting, and a slot that is free is used.

use crate::limits_hold_across_the_fleet::{all_ended, most_at_once, runs_of, scarce, wait_no_holders, waits};
use gristmill_job::NewJob;
use gristmill_testkit::eventually;
use gristmill_testkit::history::{Run, now_us};
use gristmill_tests::fleet::{Fleet, SOON};
use gristmill_tests::script::{SCARCE, Script};
use gristmill_tests::servers::{on_every_flavor, on_servers};

/// A timeout that is soon over, and a limit.
fn limited_to<'a>(most: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["--visibility-ms", "1500", "--max-running", most], more].concat()
}

/// How long it took from the first run's start to the last one's end, for whoever measures.
fn tell(what: &str, runs: &[Run]) {
    let first = runs.iter().map(|run| run.started_us).min().unwrap_or_default();
    let last =
        runs.iter().map(|run| run.ended.map_or(run.started_us, |(at, _)| at)).max().unwrap_or_default();
    eprintln!("{what}: {} ms", (last - first) / 1000);
}

#[test]
fn no_more_run_than_the_limit_says_and_all_of_them_run() {
    on_every_flavor(|options| {
        let mut fleet = Fleet::unordered(options);
        let mut nodes = [fleet.node_with(&limited_to("3", &[])), fleet.node_with(&limited_to("3", &[]))];
        let jobs = scarce("s", 90, &waits(20));
        fleet.enqueue(jobs.clone());
        fleet.wait_settled();
        let runs = runs_of(&fleet, &jobs);
        assert_eq!(runs.len(), jobs.len(), "no one ran twice");
        assert!(runs.iter().all(|run| run.attempt == 1), "waiting was no attempt");
        assert_eq!(most_at_once(&runs, all_ended), 3);
        tell("90 jobs of 20 ms, three at a time", &runs);
        wait_no_holders(&fleet);
        fleet.assert_effects(&jobs);
        let mut put_back = 0;
        for node in &mut nodes {
            let left = fleet.drain(node);
            assert_eq!(left.counts.of("claims_lost"), 0, "{}", left.line);
            put_back += left.counts.of("retried");
        }
        eprintln!("put back {put_back} times");
    });
}

#[test]
fn what_waits_for_a_limit_keeps_no_other_kind_waiting() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let _node = fleet.node_with(&["--max-running", "1", "--slots", "2"]);
        let holder = scarce("holder", 1, &waits(8000));
        fleet.enqueue(holder.clone());
        fleet.wait_started(1);
        fleet.enqueue(scarce("s", 1000, &Script::default()));
        let others: Vec<NewJob> =
            (0..200).map(|n| Fleet::job(&format!("o{n}"), &format!("other{n}"), 1, &waits(0))).collect();
        fleet.enqueue(others.clone());
        eventually(SOON, "the others to run", || {
            (runs_of(&fleet, &others).len() == others.len()).then_some(())
        });
        let held = runs_of(&fleet, &holder);
        assert_eq!(held.len(), 1, "{held:?}");
        assert!(held[0].ended.is_none(), "the others waited for the limit");
        fleet.wait_settled();
        wait_no_holders(&fleet);
        fleet.assert_promises();
    });
}

/// What waits at a node for its limit waits no longer once the node is busy with something else: another runs it.
#[test]
fn what_waits_at_a_busy_node_runs_at_another() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let busy = fleet.node_with(&["--max-running", "1", "--slots", "4"]);
        let holder = scarce("holder", 1, &waits(3000));
        fleet.enqueue(holder.clone());
        fleet.wait_run_on("holder0", &busy);
        let jobs = scarce("s", 3, &waits(0));
        fleet.enqueue(jobs.clone());
        // Longer than anything here waits.
        let long = Fleet::unlike(0, 4, &waits(600_000));
        fleet.enqueue(long[..3].to_vec());
        fleet.wait_started(4);
        fleet.enqueue(long[3..].to_vec());
        // The slot that the holder gave back: every slot of the node is taken for good.
        eventually(SOON, "the node to be busy", || (runs_of(&fleet, &long).len() == 4).then_some(()));
        let _other = fleet.node_with(&["--max-running", "1", "--slots", "4"]);
        eventually(SOON, "what waited there to run", || {
            let runs = runs_of(&fleet, &jobs);
            (runs.iter().filter(|run| run.is_done()).count() == jobs.len()).then_some(())
        });
    });
}

#[test]
fn the_slots_of_a_killed_node_lapse_or_are_inherited_and_none_is_lost() {
    on_every_flavor(|options| {
        let mut fleet = Fleet::unordered(options);
        let mut dies = fleet.node_with(&limited_to("2", &[]));
        let long = scarce("long", 2, &Script { recovered_wait_ms: Some(20), ..waits(60_000) });
        fleet.enqueue(long.clone());
        fleet.wait_started(2);
        // Some of them wait at the node that dies.
        let jobs = scarce("s", 40, &waits(10));
        fleet.enqueue(jobs.clone());
        let mut other = fleet.node_with(&limited_to("2", &[]));
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
        let mut fleet = Fleet::unordered(options);
        let mut old = fleet.node_with(&limited_to("1", &[]));
        let held = scarce("held", 1, &Script { recovered_wait_ms: Some(300), ..waits(1000) });
        fleet.enqueue(held.clone());
        fleet.wait_run_on("held0", &old);
        let jobs = scarce("s", 12, &waits(50));
        fleet.enqueue(jobs.clone());
        fleet.pause(&mut old);
        let mut new = fleet.node_with(&limited_to("1", &[]));
        // Past the timeout of its claims and past its slot.
        fleet.wait_run_on("held0", &new);
        fleet.resume(&mut old);
        fleet.wait_settled();
        wait_no_holders(&fleet);
        let all = [held, jobs].concat();
        // The run that was stopped is trusted by nobody.
        let stopped = |run: &Run| run.job.id == "held0" && run.node == old.incarnation;
        let trusted: Vec<Run> = runs_of(&fleet, &all).into_iter().filter(|run| !stopped(run)).collect();
        assert_eq!(trusted.len(), all.len(), "each ran once under a claim that stood: {trusted:?}");
        assert_eq!(most_at_once(&trusted, all_ended), 1);
        fleet.assert_effects(&all);

        // And both go on as before.
        let more = scarce("more", 16, &waits(10));
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
fn retries_drains_and_newcomers_lose_no_slot_and_give_none_twice() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let mut nodes = vec![fleet.node_with(&limited_to("2", &[]))];
        let jobs = scarce("s", 120, &Script { fail_until: 1, ..waits(15) });
        fleet.enqueue(jobs[..60].to_vec());
        fleet.wait_started(5);
        nodes.push(fleet.node_with(&limited_to("2", &[])));
        fleet.enqueue(jobs[60..].to_vec());
        fleet.wait_started_more(10);
        let left = fleet.drain(&mut nodes[0]);
        assert_eq!((left.abandoned, left.counts.of("claims_lost")), (0, 0), "{}", left.line);
        fleet.wait_settled();
        let runs = runs_of(&fleet, &jobs);
        assert_eq!(runs.len(), 2 * jobs.len(), "each failed once, and waiting was no attempt");
        assert!(most_at_once(&runs, all_ended) <= 2);
        tell("240 runs of 15 ms, two at a time", &runs);
        wait_no_holders(&fleet);
        fleet.assert_effects(&jobs);
    });
}

/// The token of each came no earlier than this, and its run no earlier than its token.
fn assert_spaced(runs: &[Run], enqueued_us: u64, interval_us: u64, burst: u64) {
    let mut starts: Vec<u64> = runs.iter().map(|run| run.started_us).collect();
    starts.sort_unstable();
    for (n, started_us) in starts.iter().enumerate() {
        let earliest = enqueued_us + interval_us * (n as u64 + 1).saturating_sub(burst);
        assert!(*started_us + 1000 >= earliest, "run {n} is {} us early", earliest - started_us);
    }
}

#[test]
fn a_rate_holds_under_two_nodes_one_of_which_is_killed() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let more = ["--rate", "40/s", "--rate-burst", "4", "--visibility-ms", "1500"];
        let mut nodes = [fleet.node_with(&more), fleet.node_with(&more)];
        let jobs = scarce("s", 64, &waits(0));
        let enqueued_us = now_us();
        fleet.enqueue(jobs.clone());
        fleet.wait_started(20);
        fleet.kill(&mut nodes[0]);
        fleet.wait_settled();
        let runs = runs_of(&fleet, &jobs);
        assert_spaced(&runs, enqueued_us, 25_000, 4);
        tell("64 jobs at 40 a second, a node killed", &runs);
        fleet.assert_effects(&jobs);
    });
}

#[test]
fn a_rate_per_key_spaces_the_jobs_of_each_key_and_no_others() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let more = ["--rate", "20/s", "--rate-burst", "1", "--rate-per-key"];
        let _nodes = [fleet.node_with(&more), fleet.node_with(&more)];
        // Each job writes an entity of its own version, so that no order of a key is told apart.
        let job =
            |n: usize| Fleet::job_of(SCARCE, &format!("s{n}"), &format!("key{}", n % 6), &Script::default());
        let jobs: Vec<NewJob> = (0..60).map(|n| job(n).with_version(1)).collect();
        let enqueued_us = now_us();
        fleet.enqueue(jobs.clone());
        fleet.wait_settled();
        for key in 0..6 {
            let of_key: Vec<NewJob> = jobs.iter().skip(key).step_by(6).cloned().collect();
            let runs = runs_of(&fleet, &of_key);
            assert_eq!(runs.len(), 10);
            assert_spaced(&runs, enqueued_us, 50_000, 1);
        }
        tell("ten jobs of each key at 20 a second", &runs_of(&fleet, &jobs));
    });
}
