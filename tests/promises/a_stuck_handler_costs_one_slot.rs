//! A handler that blocks its thread cannot be stopped. It costs its slot until it is given up, is named for people, and its
//! late result is refused. Too many of them end the node: its leases move on.

use gristmill_broker::hung::HungRun;
use gristmill_job::{DeadReason, NewJob};
use gristmill_node::SPARE_THREADS;
use gristmill_testkit::eventually;
use gristmill_testkit::history::Outcome;
use gristmill_testkit::server::ServerOptions;
use gristmill_tests::fleet::{Fleet, SOON};
use gristmill_tests::node::NodeProcess;
use gristmill_tests::script::{BATCHED, Script};
use std::time::{Duration, Instant};

/// As a node of the program has them on two cores.
const THREADS: usize = 2 + SPARE_THREADS;

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

fn node(fleet: &mut Fleet, slots: usize, threads: usize) -> NodeProcess {
    let (slots, threads) = (slots.to_string(), threads.to_string());
    // A job that hangs is a dead letter at once.
    let more = ["--blocked-ms", "1000", "--max-attempts", "1", "--slots", &slots, "--threads", &threads];
    fleet.node_with(&more)
}

/// Jobs of many keys, some in each partition.
fn others(from: usize, count: usize) -> Vec<NewJob> {
    let key = |number: usize| Fleet::key_in(u16::try_from(number % 8).unwrap(), number / 8);
    (from..from + count).map(|number| Fleet::job(&format!("o{number}"), &key(number), 1, &effect())).collect()
}

fn wait_applied(fleet: &Fleet, jobs: &[NewJob]) {
    let keys: Vec<Vec<u8>> = jobs.iter().map(|job| job.key.as_bytes().to_vec()).collect();
    eventually(SOON, "the other jobs are done", || {
        fleet.entities(&keys).iter().all(Option::is_some).then_some(())
    });
}

fn hung(fleet: &Fleet) -> Vec<HungRun> {
    let connection = fleet.connection();
    fleet.block_on(connection.hung(&fleet.queue().name)).unwrap()
}

fn ended(fleet: &Fleet, id: &str) -> bool {
    fleet.runs_of(id)[0].ended.is_some()
}

fn with_slots(slots: usize) {
    let mut fleet = Fleet::start(ServerOptions::new());
    let mut node = node(&mut fleet, slots, THREADS);
    let key = Fleet::key_in(0, 500);
    let blocks = Script { block_ms: 8000, ..effect() };
    fleet.expect_settled_otherwise(&["stuck"]);
    fleet.enqueue(vec![Fleet::job("stuck", &key, 1, &blocks), Fleet::job("next", &key, 2, &effect())]);
    let began = Instant::now();
    fleet.wait_run_on("stuck", &node);
    let jobs = others(0, 80);
    fleet.enqueue(jobs.clone());
    wait_applied(&fleet, &jobs);
    assert!(!ended(&fleet, "stuck"), "the others waited for it: {:?}", began.elapsed());

    let named = eventually(SOON, "it is named", || hung(&fleet).pop());
    assert_eq!(
        (named.kind.as_str(), named.job.to_string().as_str(), named.partition),
        ("scripted", "stuck", 0)
    );
    assert!(named.incarnation.as_str().starts_with(&format!("{}~", node.name)), "{}", named.incarnation);
    let letters = eventually(SOON, "its dead letter", || Some(fleet.dead()).filter(|dead| !dead.is_empty()));
    let letter = letters[0].letter.as_ref().unwrap();
    assert_eq!((letter.reason, letter.class.as_deref()), (DeadReason::Exhausted, Some("timeout")));
    assert!(letter.error[0].contains("held its thread for"), "{:?}", letter.error);
    assert!(!ended(&fleet, "stuck"));

    // Its partition and its slots are as good as before, also once it has ended.
    let more = others(80, 40);
    fleet.enqueue(more.clone());
    wait_applied(&fleet, &more);
    let run = eventually(SOON, "the stuck run to end", || {
        fleet.runs_of("stuck").into_iter().find(|run| run.ended.is_some())
    });
    assert_eq!(run.ended.map(|(_, outcome)| outcome), Some(Outcome::Done));
    eventually(SOON, "its name to be taken away", || hung(&fleet).is_empty().then_some(()));
    fleet.wait_settled();
    let next = fleet.runs_of("next");
    assert!(next[0].started_us >= run.ended.unwrap().0, "the next of its key ran beside it: {next:?}");
    let entity = fleet.entity(&key).map(|entity| (entity.version, entity.changes));
    assert_eq!(entity, Some((2, 1)), "the late result is refused, and its key goes on");
    let left = fleet.drain(&mut node);
    assert_eq!(left.abandoned, 0, "{}", left.line);
    assert_eq!((left.counts.tenures_lost(), left.counts.of("restarts")), (0, 0), "{:?}", left.counts);
    fleet.assert_promises();
}

#[test]
fn with_one_slot_the_others_go_on_once_it_is_given_up() {
    with_slots(1);
}

#[test]
fn with_two_slots_they_go_on_at_once() {
    with_slots(2);
}

/// The jobs of a batch hold one thread together. Each is given up and named; more of them than there are spare threads are no
/// reason to end the node.
#[test]
fn a_batch_costs_its_slots_until_it_is_given_up() {
    let mut fleet = Fleet::start(ServerOptions::new());
    let mut node = node(&mut fleet, 12, THREADS);
    let blocks = Script { block_ms: 8000, ..effect() };
    let stuck: Vec<String> = (0..8).map(|number| format!("stuck{number}")).collect();
    let more = Fleet::job("single", &Fleet::key_in(0, 600), 1, &blocks);
    let batch = stuck.iter().enumerate().map(|(number, id)| {
        Fleet::job_of(BATCHED, id, &Fleet::key_in(u16::try_from(number).unwrap(), 500), &blocks)
    });
    let expected: Vec<&str> = stuck.iter().map(String::as_str).chain(["single"]).collect();
    fleet.expect_settled_otherwise(&expected);
    fleet.enqueue(batch.chain([more]).collect());
    for id in &expected {
        fleet.wait_run_on(id, &node);
    }
    let jobs = others(0, 80);
    fleet.enqueue(jobs.clone());
    wait_applied(&fleet, &jobs);
    let named =
        eventually(SOON, "all are named", || Some(hung(&fleet)).filter(|hung| hung.len() == expected.len()));
    let mut names: Vec<String> = named.iter().map(|run| run.job.to_string()).collect();
    names.sort();
    let mut wanted = expected.clone();
    wanted.sort_unstable();
    assert_eq!(names, wanted);
    eventually(SOON, "their dead letters", || (fleet.dead().len() == expected.len()).then_some(()));
    assert!(expected.iter().all(|id| !ended(&fleet, id)), "they are given up while they hold their threads");
    let more = others(80, 40);
    fleet.enqueue(more.clone());
    wait_applied(&fleet, &more);
    eventually(SOON, "their names to be taken away", || hung(&fleet).is_empty().then_some(()));
    fleet.wait_settled();
    let keys: Vec<Vec<u8>> = (0..8).map(|number| Fleet::key_in(number, 500).into_bytes()).collect();
    assert!(fleet.entities(&keys).iter().all(Option::is_none), "late results are refused");
    let left = fleet.drain(&mut node);
    assert_eq!((left.abandoned, left.counts.of("restarts")), (0, 0), "{}", left.line);
    fleet.assert_promises();
}

#[test]
fn a_drain_leaves_a_run_that_was_given_up_behind_and_says_so() {
    let mut fleet = Fleet::start(ServerOptions::new());
    let more = [
        "--blocked-ms",
        "1000",
        "--max-attempts",
        "1",
        "--threads",
        "10",
        "--window-ms",
        "500",
        "--grace-ms",
        "2000",
    ];
    let mut node = fleet.node_with(&more);
    let blocks = Script { block_ms: 60_000, ..effect() };
    fleet.enqueue(vec![Fleet::job("stuck", &Fleet::key_in(0, 500), 1, &blocks)]);
    eventually(SOON, "it is given up", || (!hung(&fleet).is_empty()).then_some(()));
    let began = Instant::now();
    let left = fleet.drain(&mut node);
    assert!(began.elapsed() < Duration::from_millis(3500), "{:?}", began.elapsed());
    assert_eq!(left.abandoned, 1, "{}", left.line);
    assert_eq!(left.status.code(), Some(4), "an abandoned run must show in the exit code");
    assert!(hung(&fleet).is_empty(), "who leaves takes its names away");
    assert!(fleet.owners().is_empty(), "{:?}", fleet.owners());
}

/// Ends by itself, with words that say what to do; what comes then is done by the other node.
fn ends_and_its_leases_move_on(fleet: &mut Fleet, node: &mut NodeProcess, words: &str) {
    let status = node.process.wait(SOON).unwrap();
    assert!(!status.success());
    let said: Vec<String> = node.process.lines().into_iter().map(|line| line.text).collect();
    let error = said.iter().find(|line| line.starts_with("error: ")).unwrap();
    assert!(error.contains(words) && error.to_lowercase().contains("restart the node"), "{error}");
    let _other = fleet.node();
    let jobs = others(400, 80);
    fleet.enqueue(jobs.clone());
    wait_applied(fleet, &jobs);
}

/// Handlers that compute for seconds hold their workers: these are replaced, nothing is given up, and all is well.
#[test]
fn handlers_that_hold_every_worker_for_seconds_cost_their_slots_alone() {
    let mut fleet = Fleet::start(ServerOptions::new());
    let threads = THREADS.to_string();
    let mut node = fleet.node_with(&["--threads", &threads]);
    let blocks = Script { block_ms: 8000, ..effect() };
    let long =
        |number: usize| Fleet::job(&format!("long{number}"), &Fleet::key_in(1, 500 + number), 1, &blocks);
    let mut all: Vec<NewJob> = (0..4).map(long).collect();
    fleet.enqueue(all.clone());
    fleet.wait_started(2);
    let began = Instant::now();
    let jobs = others(0, 80);
    fleet.enqueue(jobs.clone());
    wait_applied(&fleet, &jobs);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(6), "the others waited for them: {took:?}");
    fleet.wait_settled();
    all.extend(jobs);
    fleet.assert_effects(&all);
    let counts = fleet.drain(&mut node).counts;
    assert_eq!((counts.of("dead"), counts.of("restarts"), counts.tenures_lost()), (0, 0, 0), "{counts:?}");
}

#[test]
fn more_of_them_than_spare_threads_end_the_node_and_its_leases_move_on() {
    let mut fleet = Fleet::start(ServerOptions::new());
    let mut node = node(&mut fleet, 20, THREADS);
    let blocks = Script { block_ms: 60_000, ..effect() };
    let stuck = |number: usize| Fleet::job(&format!("stuck{number}"), &Fleet::key_in(1, number), 1, &blocks);
    fleet.enqueue((0..=SPARE_THREADS).map(stuck).collect());
    ends_and_its_leases_move_on(&mut fleet, &mut node, "hold their threads");
}

#[test]
fn handlers_that_hold_every_thread_end_the_node_and_its_leases_move_on() {
    let mut fleet = Fleet::start(ServerOptions::new());
    let mut node = node(&mut fleet, 20, 2);
    let blocks = Script { block_ms: 60_000, recovered_free: true, ..effect() };
    let stuck = |number: usize| Fleet::job(&format!("stuck{number}"), &Fleet::key_in(1, number), 1, &blocks);
    fleet.enqueue((0..4).map(stuck).collect());
    ends_and_its_leases_move_on(&mut fleet, &mut node, "nothing has moved");
}

/// What its worker woke right before it began to hold the thread is not held with it.
#[test]
fn what_ran_right_before_it_is_settled_while_it_is_stuck() {
    let mut fleet = Fleet::start(ServerOptions::new());
    let _node = node(&mut fleet, 4, THREADS);
    fleet.wait_shared_by(1);
    let blocks = Script { block_ms: 4000, ..effect() };
    for round in 0..5 {
        let number = |n: usize| Fleet::key_in(2, round * 100 + n);
        let mut jobs: Vec<NewJob> =
            (0..30).map(|n| Fleet::job(&format!("{round}.{n}"), &number(n), 1, &effect())).collect();
        let quick = jobs.clone();
        jobs.insert(15, Fleet::job(&format!("stuck{round}"), &number(50), 1, &blocks));
        let began = Instant::now();
        fleet.enqueue(jobs);
        wait_applied(&fleet, &quick);
        let took = began.elapsed();
        assert!(took < Duration::from_millis(900), "round {round}: it waited to be given up: {took:?}");
        // It holds one of the two workers until then.
        let id = format!("stuck{round}");
        eventually(SOON, "it is given up", || {
            hung(&fleet).iter().any(|run| run.job.to_string() == id).then_some(())
        });
    }
}
