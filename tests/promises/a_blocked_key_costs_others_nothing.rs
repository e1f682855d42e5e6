//! A key costs other keys nothing: neither one with thousands of jobs, nor one whose head fails and waits.

use gristmill_job::NewJob;
use gristmill_testkit::eventually;
use gristmill_testkit::server::ServerOptions;
use gristmill_tests::fleet::{Fleet, SOON};
use gristmill_tests::script::Script;

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

/// Versions 1 to `versions` of one key; the first with a script of its own.
fn lane(key: &str, versions: u64, first: &Script) -> Vec<NewJob> {
    let script = |version| if version == 1 { first.clone() } else { effect() };
    (1..=versions)
        .map(|version| Fleet::job(&format!("{key}:{version}"), key, version, &script(version)))
        .collect()
}

fn keys(from: usize, count: usize) -> Vec<String> {
    (from..from + count).map(|number| Fleet::key_in(0, number)).collect()
}

/// Waits until every one of these keys stands at this version.
fn wait_all_at(fleet: &Fleet, keys: &[String], version: u64) {
    let names: Vec<Vec<u8>> = keys.iter().map(|key| key.as_bytes().to_vec()).collect();
    eventually(SOON, "the other keys are done", || {
        let entities = fleet.entities(&names);
        entities.iter().all(|entity| entity.as_ref().is_some_and(|e| e.version == version)).then_some(())
    });
}

#[test]
fn a_hot_key_does_not_fill_the_window_of_its_partition() {
    let mut fleet = Fleet::start(ServerOptions::new());
    let hot = keys(0, 1).remove(0);
    let others = keys(1, 40);
    let mut jobs = lane(&hot, 4000, &effect());
    jobs.extend(others.iter().flat_map(|key| lane(key, 3, &effect())));
    fleet.enqueue(jobs.clone());
    let _node = fleet.node();
    wait_all_at(&fleet, &others, 3);
    let reached = fleet.entity(&hot).map_or(0, |entity| entity.version);
    assert!(reached < 3500, "the other keys waited until the hot key stood at {reached} of 4000");
    fleet.wait_settled();
    let report = fleet.assert_effects(&jobs);
    assert_eq!(report.runs, jobs.len() as u64);
}

#[test]
fn keys_in_backoff_do_not_fill_the_window_of_their_partition() {
    let mut fleet = Fleet::start(ServerOptions::new());
    let fails = Script { fail_until: 1000, ..effect() };
    let (blocked, others) = (keys(0, 4), keys(4, 20));
    let mut jobs: Vec<NewJob> = blocked.iter().flat_map(|key| lane(key, 500, &fails)).collect();
    jobs.extend(others.iter().flat_map(|key| lane(key, 20, &effect())));
    fleet.enqueue(jobs);
    // Waits of minutes: the first, with full jitter, are parked sooner or later.
    let patience = ["--backoff-ms", "240000"];
    let mut node = fleet.node_with(&patience);
    wait_all_at(&fleet, &others, 20);
    let waiting = fleet.partitions()[0].claimed;
    assert_eq!(waiting, 4 * 500, "what is blocked is claimed and waits");
    for key in &blocked {
        assert!(fleet.entity(key).is_none(), "{key} is held up by its first version");
    }
    // What is parked is handed back and found again like any claim.
    let left = fleet.drain(&mut node);
    assert_eq!(left.handed_back, 2000, "{}", left.line);
    let _other = fleet.node_with(&patience);
    let more = keys(24, 20);
    fleet.enqueue(more.iter().flat_map(|key| lane(key, 20, &effect())).collect());
    wait_all_at(&fleet, &more, 20);
}

/// V27: what waits for the retry budget is as blocked as what waits for its time.
#[test]
fn keys_over_the_retry_budget_do_not_fill_the_window_of_their_partition() {
    let mut fleet = Fleet::start(ServerOptions::new());
    fleet.switch("down", true);
    let fails = Script { fail_until: 1000, fails_while: Some("down".into()), ..effect() };
    // More of them than a window holds.
    let (blocked, others) = (keys(0, 700), keys(700, 50));
    let jobs: Vec<NewJob> = blocked.iter().flat_map(|key| lane(key, 1, &fails)).collect();
    fleet.enqueue(jobs.clone());
    let more = ["--retry-per-second", "10", "--retry-share", "0", "--max-attempts", "1000"];
    let _node = fleet.node_with(&[&more[..], &["--backoff-ms", "50"]].concat());
    let over = |fleet: &Fleet| {
        fleet.lines().iter().filter(|line| line.line.why == gristmill_broker::state::Why::Budget).count()
    };
    eventually(SOON, "the budget is used up", || (over(&fleet) > 300).then_some(()));
    let began = std::time::Instant::now();
    let good: Vec<NewJob> = others.iter().flat_map(|key| lane(key, 3, &effect())).collect();
    fleet.enqueue(good.clone());
    wait_all_at(&fleet, &others, 3);
    let took = began.elapsed();
    assert!(took < std::time::Duration::from_secs(5), "the other keys waited for the budget: {took:?}");
}

/// Hundreds of calls leave in one burst then, and must leave in their order.
#[test]
fn thirty_thousand_parked_jobs_are_handed_back_in_one_tenure() {
    let mut fleet = Fleet::start(ServerOptions::new());
    let fails = Script { fail_until: 1000, ..effect() };
    let key = keys(0, 1).remove(0);
    fleet.enqueue(lane(&key, 30_000, &fails));
    let mut node = fleet.node_with(&["--backoff-ms", "2400000"]);
    eventually(SOON, "all of them are claimed", || (fleet.partitions()[0].claimed == 30_000).then_some(()));
    let left = fleet.drain(&mut node);
    assert_eq!((left.handed_back, left.counts.tenures_lost()), (30_000, 0), "{}", left.line);
}

#[test]
fn parked_jobs_run_in_order_when_their_head_succeeds_also_after_a_kill() {
    let mut fleet = Fleet::start(ServerOptions::new());
    let recovers = Script { fail_until: 2, ..effect() };
    let keys = keys(0, 6);
    let jobs: Vec<NewJob> = keys.iter().flat_map(|key| lane(key, 150, &recovers)).collect();
    fleet.enqueue(jobs.clone());
    let patience = ["--backoff-ms", "5000"];
    let mut node = fleet.node_with(&patience);
    fleet.wait_started(keys.len());
    fleet.kill(&mut node);
    let _other = fleet.node_with(&patience);
    fleet.wait_settled();
    fleet.assert_effects(&jobs);
}
