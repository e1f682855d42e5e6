//! A poison job dies alone: one that kills its process is a dead letter after as many deaths as its budget and two more, and
//! no other job is charged for them, wherever it stood and whatever ran beside it.

use gristmill_broker::state::Suspicion;
use gristmill_job::{DeadLetter, DeadReason, NewJob};
use gristmill_testkit::eventually;
use gristmill_testkit::history::Run;
use gristmill_testkit::seed::{SplitMix64, seed};
use gristmill_testkit::server::ServerOptions;
use gristmill_tests::fleet::{Fleet, SOON};
use gristmill_tests::node::NodeProcess;
use gristmill_tests::script::{Death, Script};
use gristmill_tests::servers::{on_every_flavor, on_servers};
use std::time::{Duration, Instant};

/// What a job's own deaths may cost, beyond its budget of crashes.
const UNCHARGED_DEATHS: usize = 2;
const LONG: Duration = Duration::from_secs(120);
/// A window so short that what runs is stopped hard.
const SHORT_WINDOW: [&str; 4] = ["--window-ms", "200", "--grace-ms", "1500"];

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

fn poison(death: Death) -> Script {
    Script { dies: Some(death), dies_after_ms: 40, ..effect() }
}

/// 200 jobs of 40 keys, each of which takes so long that they are about at every death.
fn good_ones() -> Vec<NewJob> {
    Fleet::versions(40, 5, &Script { wait_ms: 250, ..effect() })
}

fn two_nodes(fleet: &mut Fleet, more: &[&str]) -> [NodeProcess; 2] {
    let nodes = [fleet.node_with(more), fleet.node_with(more)];
    fleet.wait_shared_by(2);
    nodes
}

/// No job but the poison is charged, and all but it end well, once, in order.
fn assert_only_these_died(fleet: &mut Fleet, jobs: &[NewJob], poison: &[&str]) {
    fleet.expect_settled_otherwise(poison);
    fleet.assert_effects(jobs);
    let mut died: Vec<Vec<u8>> = fleet.dead().into_iter().map(|view| view.letter.unwrap().job).collect();
    died.sort();
    assert_eq!(died, poison.iter().map(|id| id.as_bytes().to_vec()).collect::<Vec<_>>());
    let runs = fleet.history().runs;
    let charged: Vec<_> = runs.iter().filter(|run| run.attempt != 1).collect();
    assert!(charged.is_empty(), "a death was counted as an attempt: {charged:?}");
}

/// V28, V29: in every process whose death was charged, nothing ran beside it.
fn assert_charged_alone(fleet: &Fleet, id: &str, letter: &DeadLetter) {
    let runs = fleet.history().runs;
    for crash in &letter.crashes {
        let name = crash.node.split('~').next().unwrap();
        let here = || runs.iter().filter(|run| run.node.split('#').next() == Some(name));
        let fatal = here().find(|run| run.job.id == id && run.ended.is_none()).expect("the run that died");
        let beside = |run: &&Run| {
            run.job.id != id && run.ended.is_none_or(|(ended_us, _)| ended_us > fatal.started_us)
        };
        assert_eq!(here().find(beside), None, "beside {fatal:?}");
    }
}

/// As many crashes as the budget allows, each of another process.
fn assert_crashed(letter: &DeadLetter, budget: usize) {
    assert_eq!((letter.reason, letter.attempts), (DeadReason::Crashed, 0), "{letter:?}");
    let mut nodes: Vec<&str> = letter.crashes.iter().map(|crash| crash.node.as_str()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!((letter.crashes.len(), nodes.len()), (budget, budget), "{letter:?}");
    assert!(letter.crashes.iter().all(|crash| crash.at.0 > 0 && crash.at <= letter.at), "{letter:?}");
    assert!(!letter.envelope.is_empty() && letter.error.concat().contains("processes died"), "{letter:?}");
}

fn among_good_ones(options: ServerOptions, death: Death) {
    let mut rng = SplitMix64::new(seed());
    let mut fleet = Fleet::start(options);
    let more = ["--slots", "8"];
    let mut nodes = two_nodes(&mut fleet, &more);
    let mut jobs = good_ones();
    jobs.insert(rng.below(100) as usize, Fleet::job("poison", "poison", 1, &poison(death)));
    let began = Instant::now();
    fleet.enqueue(jobs.clone());
    let deaths = fleet.replace_the_dead(&mut nodes, &more, LONG, "everything settled", Fleet::is_settled);
    println!("{deaths} deaths, {:?}", began.elapsed());
    assert!((1..=3 + UNCHARGED_DEATHS).contains(&deaths), "{deaths} processes died of one job");
    assert_only_these_died(&mut fleet, &jobs, &["poison"]);
    let letter = fleet.wait_letter("poison").1;
    assert_crashed(&letter, 3);
    assert_charged_alone(&fleet, "poison", &letter);
}

/// V28, V29: whatever ran beside it, in whatever partition.
#[test]
fn one_that_aborts_among_two_hundred_good_ones() {
    on_every_flavor(|options| among_good_ones(options, Death::Abort));
}

#[test]
fn one_that_is_killed_among_two_hundred_good_ones() {
    on_servers(|options| among_good_ones(options, Death::Kill));
}

#[test]
fn one_that_needs_more_memory_than_there_is() {
    on_servers(|options| among_good_ones(options, Death::Memory));
}

/// Each of the two is alone when it is charged.
#[test]
fn two_of_them_are_charged_each_for_its_own_deaths() {
    on_servers(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options);
        let more = ["--slots", "8", "--crash-budget", "2"];
        let mut nodes = two_nodes(&mut fleet, &more);
        let mut jobs = good_ones();
        for (id, death) in [("poison1", Death::Abort), ("poison2", Death::Kill)] {
            jobs.insert(rng.below(100) as usize, Fleet::job(id, id, 1, &poison(death)));
        }
        fleet.enqueue(jobs.clone());
        let deaths = fleet.replace_the_dead(&mut nodes, &more, LONG, "everything settled", Fleet::is_settled);
        assert!(deaths <= 2 * (2 + UNCHARGED_DEATHS), "{deaths} processes died of two jobs");
        assert_only_these_died(&mut fleet, &jobs, &["poison1", "poison2"]);
        for id in ["poison1", "poison2"] {
            let letter = fleet.wait_letter(id).1;
            assert_crashed(&letter, 2);
            assert_charged_alone(&fleet, id, &letter);
        }
    });
}

/// It is the first of its key that is suspected, not the key.
#[test]
fn one_behind_others_of_its_key_leaves_them_and_what_follows_alone() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let mut nodes = two_nodes(&mut fleet, &[]);
        let waits = Script { wait_ms: 20, ..effect() };
        let script = |version| if version == 3 { poison(Death::Abort) } else { waits.clone() };
        let jobs: Vec<NewJob> = (1..=8)
            .map(|version| Fleet::job(&format!("a:{version}"), "a", version, &script(version)))
            .collect();
        fleet.enqueue(jobs.clone());
        let deaths = fleet.replace_the_dead(&mut nodes, &[], LONG, "everything settled", Fleet::is_settled);
        assert!(deaths <= 3 + UNCHARGED_DEATHS, "{deaths} processes died of one job");
        assert_only_these_died(&mut fleet, &jobs, &["a:3"]);
        assert_crashed(&fleet.wait_letter("a:3").1, 3);
        let entity = fleet.entity("a").unwrap();
        assert_eq!((entity.version, entity.changes), (8, 7));
        let mut order: Vec<u64> = fleet.history().runs.iter().map(|run| run.job.version).collect();
        order.dedup();
        assert_eq!(order, [1, 2, 3, 4, 5, 6, 7, 8], "in order, with the poison in its place");
    });
}

/// A panic is an answer: it costs an attempt, and its process lives.
#[test]
fn one_that_panics_kills_nobody() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let mut nodes = [fleet.node_with(&["--max-attempts", "4"])];
        let panics = Script { panic_until: 99, ..effect() };
        let mut jobs = good_ones();
        jobs.insert(20, Fleet::job("panics", "panics", 1, &panics));
        fleet.expect_settled_otherwise(&["panics"]);
        fleet.enqueue(jobs.clone());
        let deaths = fleet.replace_the_dead(&mut nodes, &[], LONG, "everything settled", Fleet::is_settled);
        assert_eq!(deaths, 0);
        fleet.assert_effects(&jobs);
        let letter = fleet.wait_letter("panics").1;
        assert_eq!((letter.reason, letter.attempts), (DeadReason::Exhausted, 4));
        assert_eq!((letter.class.as_deref(), letter.crashes.len()), (Some("panic"), 0));
    });
}

/// V26: it lies beside the stream and in no pending list; its claim is its start mark.
#[test]
fn one_that_came_back_from_the_dead_is_found_too() {
    on_every_flavor(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let more = ["--crash-budget", "2"];
        let mut nodes = two_nodes(&mut fleet, &more);
        fleet.switch("broken", true);
        let script = Script {
            permanent: true,
            fails_while: Some("broken".into()),
            dies_while: Some("poisonous".into()),
            ..poison(Death::Abort)
        };
        let mut jobs = vec![Fleet::job("poison", "poison", 1, &script)];
        jobs.extend(Fleet::versions(20, 5, &Script { wait_ms: 20, ..effect() }));
        fleet.enqueue(jobs.clone());
        let (view, letter) = fleet.wait_letter("poison");
        assert_eq!((letter.reason, letter.replays), (DeadReason::Permanent, 0));
        fleet.wait_settled();

        fleet.switch("poisonous", true);
        fleet.replay(&view, &letter);
        let crashed = |fleet: &Fleet| fleet.letter_of("poison").is_some();
        let deaths = fleet.replace_the_dead(&mut nodes, &more, LONG, "its second letter", crashed);
        assert!(deaths <= 2 + UNCHARGED_DEATHS, "{deaths} processes died of a job that came back");
        let (view, letter) = fleet.wait_letter("poison");
        assert_crashed(&letter, 2);
        assert_eq!(letter.replays, 1);

        // What died so is known: it runs alone from the start, and every death of it is charged.
        fleet.replay(&view, &letter);
        let deaths = fleet.replace_the_dead(&mut nodes, &more, LONG, "its third letter", crashed);
        assert_eq!(deaths, 2);
        let (view, letter) = fleet.wait_letter("poison");
        assert_crashed(&letter, 2);
        assert_eq!(letter.replays, 2);

        // And where it was mended, it ends well.
        fleet.switch("poisonous", false);
        fleet.switch("broken", false);
        fleet.replay(&view, &letter);
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        assert_eq!(fleet.dead().len(), 0);
    });
}

/// V30, V31: a drain between two deaths, also one that stops its run hard, forgets no suspicion and charges nothing.
#[test]
fn a_drain_between_two_deaths_forgets_no_suspicion() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let more = [&SHORT_WINDOW[..], &["--crash-budget", "1"]].concat();
        let script = Script { dies_while: Some("poisonous".into()), wait_ms: 60_000, ..poison(Death::Abort) };
        fleet.switch("poisonous", true);
        fleet.enqueue(vec![Fleet::job("poison", "poison", 1, &script)]);
        fleet.expect_settled_otherwise(&["poison"]);
        for suspicion in [Suspicion::Weak, Suspicion::Strong] {
            let mut node = fleet.node_with(&more);
            fleet.wait_death(&mut node);
            fleet.switch("poisonous", false);
            let mut node = fleet.node_with(&more);
            fleet.wait_run_on("poison", &node);
            let (_, line) = fleet.line_of("poison").unwrap();
            let mark = line.mark.as_ref().expect("a suspect runs under a start mark");
            assert_eq!((line.suspicion, mark.alone), (suspicion, suspicion == Suspicion::Strong));
            let left = fleet.drain(&mut node);
            assert_eq!((left.handed_back, left.abandoned), (1, 0), "{}", left.line);
            let (_, line) = fleet.line_of("poison").unwrap();
            assert_eq!((line.suspicion, line.mark, line.crashes.len()), (suspicion, None, 0));
            assert!(line.interrupted, "its run was stopped hard");
            fleet.switch("poisonous", true);
        }
        let mut node = fleet.node_with(&more);
        fleet.wait_death(&mut node);
        let _other = fleet.node_with(&more);
        assert_crashed(&fleet.wait_letter("poison").1, 1);
        fleet.wait_settled();
        fleet.assert_promises();
    });
}

/// V32: a node that is stopped past its lease while a suspect runs alone in it is taken for dead; it lives, and says so.
#[test]
fn a_charge_for_a_pause_is_taken_back() {
    on_every_flavor(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let script = Script { dies_while: Some("poisonous".into()), wait_ms: 5000, ..poison(Death::Abort) };
        fleet.switch("poisonous", true);
        let jobs = vec![Fleet::job("suspect", "suspect", 1, &script)];
        fleet.enqueue(jobs.clone());
        for _ in 0..2 {
            let mut node = fleet.node();
            fleet.wait_death(&mut node);
        }
        fleet.switch("poisonous", false);
        let mut pauses = fleet.node();
        fleet.wait_run_on("suspect", &pauses);
        let alone =
            |line: &gristmill_broker::state::StateLine| line.mark.as_ref().is_some_and(|mark| mark.alone);
        fleet.wait_line("suspect", "it runs alone", alone);
        let other = fleet.node();
        fleet.pause(&mut pauses);
        let (_, line) = fleet.wait_line("suspect", "it is charged", |line| line.crashes.len() == 1);
        assert!(line.crashes[0].fence.incarnation.as_str().starts_with(&format!("{}~", pauses.name)));
        fleet.wait_run_on("suspect", &other);
        fleet.resume(&mut pauses);
        fleet.wait_line("suspect", "the charge is taken back", |line| line.crashes.is_empty());
        eventually(SOON, "it ends well", || fleet.entity("suspect"));
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        assert_eq!(fleet.dead().len(), 0);
    });
}
