//! A handler that may not be repeated is not: after a run that was interrupted, its kind's own function looks, or a person
//! does; and a kind that runs at most once runs at most once. What a dead node had merely claimed runs as if nothing were.

use gristmill_job::{DeadReason, NewJob};
use gristmill_testkit::eventually;
use gristmill_testkit::seed::{SplitMix64, seed};
use gristmill_tests::fleet::{Fleet, PARTITIONS, SOON};
use gristmill_tests::node::NodeProcess;
use gristmill_tests::script::{BOOKED, CAREFUL, Death, Look, ONCE, Script};
use gristmill_tests::servers::{on_every_flavor, on_servers};
use std::collections::BTreeSet;

pub(crate) const KINDS: [&str; 2] = ["--kinds", "careful,booked,once"];
/// A window so short that what runs is stopped hard.
pub(crate) const SHORT_WINDOW: [&str; 6] =
    ["--kinds", "careful,booked,once", "--window-ms", "200", "--grace-ms", "1500"];

pub(crate) fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

pub(crate) fn endless() -> Script {
    Script { wait_ms: 60_000, ..effect() }
}

/// How often a node was asked to look at interrupted runs.
pub(crate) fn looks(node: &NodeProcess) -> usize {
    node.process.lines().iter().filter(|line| line.text.starts_with("looks at ")).count()
}

/// Jobs of that kind, each of its own key.
pub(crate) fn jobs_of(kind: &str, count: usize, script: &Script) -> Vec<NewJob> {
    (0..count).map(|n| Fleet::job_of(kind, &format!("{kind}{n}"), &format!("{kind}{n}"), script)).collect()
}

/// Jobs whose runs had begun and not ended when their node died.
pub(crate) fn interrupted(fleet: &Fleet, node: &NodeProcess) -> BTreeSet<String> {
    let runs = fleet.history().runs.into_iter();
    runs.filter(|run| run.node == node.incarnation && run.ended.is_none()).map(|run| run.job.id).collect()
}

/// V33: only what was running when its node was killed goes to a person, and nothing of it runs again.
#[test]
fn of_a_kind_that_says_review_goes_to_a_person_and_what_was_merely_claimed_does_not() {
    on_every_flavor(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options);
        let slots = 4;
        let mut node = fleet.node_with(&[&KINDS[..], &["--slots", "4"]].concat());
        let jobs = jobs_of(CAREFUL, 60, &Script { wait_ms: 200, ..effect() });
        fleet.enqueue(jobs.clone());
        fleet.wait_started(slots + 1 + rng.below(20) as usize);
        fleet.kill(&mut node);
        let cut_short = interrupted(&fleet, &node);
        assert!(!cut_short.is_empty());
        let _other = fleet.node_with(&KINDS);
        fleet.wait_settled();
        let letters = fleet.dead();
        let mut asked = BTreeSet::new();
        for view in &letters {
            let letter = view.letter.as_ref().unwrap();
            assert_eq!((letter.reason, letter.attempts), (DeadReason::Review, 0), "{letter:?}");
            asked.insert(String::from_utf8(letter.job.clone()).unwrap());
        }
        assert!(asked.is_superset(&cut_short), "{cut_short:?} were interrupted, {asked:?} went to a person");
        // Besides what ran: what had ended and was not settled, or was about to begin.
        assert!(
            asked.len() <= 2 * slots + usize::from(PARTITIONS),
            "{} went to a person, of {slots} that can have run",
            asked.len()
        );
        for job in &jobs {
            let runs = fleet.runs_of(&job.id.as_ref().unwrap().to_string());
            assert!(runs.len() <= 1, "it ran twice: {runs:?}");
        }
        let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
        fleet.expect_settled_otherwise(&asked);
        fleet.assert_effects(&jobs);
    });
}

/// Its node lives, and what it had been answered is not forgotten with a connection.
#[test]
fn of_a_kind_that_says_review_runs_once_although_connections_break() {
    on_every_flavor(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options);
        let node = fleet.node_with(&KINDS);
        let jobs = jobs_of(CAREFUL, 300, &Script { wait_ms: 20, ..effect() });
        fleet.enqueue(jobs.clone());
        for _ in 0..8 {
            fleet.wait_started_more(1 + rng.below(30) as usize);
            // What is in memory starts also while all connections are down from the time before.
            eventually(SOON, "a connection to break", || {
                (fleet.server.kill_client_connections().unwrap() > 0).then_some(())
            });
        }
        fleet.wait_settled();
        let mut asked = Vec::new();
        for job in &jobs {
            let id = job.id.as_ref().unwrap().to_string();
            let runs = fleet.runs_of(&id);
            assert!(runs.len() <= 1, "it ran twice on {}: {runs:?}", node.name);
            asked.extend(fleet.letter_of(&id).map(|(_, letter)| (id, letter.reason)));
        }
        assert!(asked.iter().all(|(_, reason)| *reason == DeadReason::Review), "{asked:?}");
        println!("{} went to a person", asked.len());
    });
}

/// A person has looked, and says that it may run: the replay runs it.
#[test]
fn of_a_kind_that_says_review_runs_again_when_a_person_says_so() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let mut node = fleet.node_with(&KINDS);
        let script = Script { recovered_wait_ms: Some(10), ..endless() };
        let jobs = vec![Fleet::job_of(CAREFUL, "a:1", "a", &Script { wait_ms: 1000, ..script })];
        fleet.enqueue(jobs.clone());
        fleet.wait_run_on("a:1", &node);
        fleet.kill(&mut node);
        let _other = fleet.node_with(&KINDS);
        let (view, letter) = fleet.wait_letter("a:1");
        assert!(letter.error.concat().contains("interrupted"), "{:?}", letter.error);
        fleet.replay(&view, &letter);
        eventually(SOON, "it is done", || fleet.entity("a"));
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        assert_eq!(fleet.dead().len(), 0);
    });
}

/// What kills its process is interrupted by its own death: a person hears of it after one.
#[test]
fn of_a_kind_that_says_review_that_kills_its_process_goes_to_a_person_after_one_death() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let mut nodes = [fleet.node_with(&KINDS)];
        let script = Script { dies: Some(Death::Abort), ..effect() };
        let jobs = vec![Fleet::job_of(CAREFUL, "a:1", "a", &script), Fleet::job("a:2", "a", 2, &effect())];
        fleet.enqueue(jobs.clone());
        let deaths =
            fleet.replace_the_dead(&mut nodes, &KINDS, SOON * 2, "everything settled", Fleet::is_settled);
        assert_eq!(deaths, 1);
        assert_eq!(fleet.wait_letter("a:1").1.reason, DeadReason::Review);
        fleet.expect_settled_otherwise(&["a:1"]);
        fleet.assert_effects(&jobs);
    });
}

/// Neither a handler nor a look that kills its process does so for ever.
#[test]
fn of_a_kind_with_a_look_whose_handler_or_look_kills_its_process_is_a_dead_letter() {
    on_servers(|options| {
        seed();
        let budget = 2;
        for look in [Look::Again, Look::Dies] {
            let mut fleet = Fleet::start(options.clone());
            let more = [&KINDS[..], &["--crash-budget", "2"]].concat();
            let mut nodes = [fleet.node_with(&more)];
            let script = Script { dies: Some(Death::Abort), look, ..effect() };
            let mut jobs = vec![Fleet::job_of(BOOKED, "a:1", "a", &script)];
            jobs.push(Fleet::job("a:2", "a", 2, &effect()));
            fleet.enqueue(jobs.clone());
            let deaths =
                fleet.replace_the_dead(&mut nodes, &more, SOON * 2, "everything settled", Fleet::is_settled);
            assert!(deaths <= budget + 2, "{deaths} processes died of one job, whose look says {look:?}");
            let letter = fleet.wait_letter("a:1").1;
            assert_eq!((letter.reason, letter.crashes.len()), (DeadReason::Crashed, budget));
            fleet.expect_settled_otherwise(&["a:1"]);
            fleet.assert_effects(&jobs);
        }
    });
}

/// A drain that stops such a run hard interrupts it as a kill does.
#[test]
fn of_a_kind_that_says_review_that_a_drain_stops_goes_to_a_person() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let mut node = fleet.node_with(&SHORT_WINDOW);
        let mut jobs = jobs_of(CAREFUL, 1, &endless());
        jobs.push(Fleet::job("after", "careful0", 2, &effect()));
        fleet.enqueue(jobs.clone());
        fleet.wait_run_on("careful0", &node);
        let left = fleet.drain(&mut node);
        assert_eq!((left.handed_back, left.abandoned), (2, 0), "{}", left.line);
        let _other = fleet.node_with(&KINDS);
        let letter = fleet.wait_letter("careful0").1;
        assert_eq!((letter.reason, letter.attempts), (DeadReason::Review, 0));
        fleet.wait_settled();
        assert_eq!(fleet.runs_of("careful0").len(), 1, "it ran again");
        fleet.expect_settled_otherwise(&["careful0"]);
        fleet.assert_effects(&jobs);
    });
}

/// A job of a kind with a look is interrupted by a kill, or by a drain. Returns who looked.
fn interrupted_and_looked_at(fleet: &mut Fleet, jobs: &[NewJob], by_drain: bool) -> NodeProcess {
    let mut node = fleet.node_with(&SHORT_WINDOW);
    fleet.enqueue(jobs.to_vec());
    fleet.wait_run_on("a:1", &node);
    if by_drain {
        assert_eq!(fleet.drain(&mut node).abandoned, 0);
    } else {
        fleet.kill(&mut node);
    }
    assert_eq!(looks(&node), 0, "nothing was interrupted yet");
    let other = fleet.node_with(&KINDS);
    let said = other.process.wait_line(|line| line.text == "looks at a:1", SOON);
    said.unwrap();
    other
}

fn booked(look: Look, script: &Script) -> Vec<NewJob> {
    let script = Script { look, ..script.clone() };
    vec![Fleet::job_of(BOOKED, "a:1", "a", &script), Fleet::job("a:2", "a", 2, &effect())]
}

#[test]
fn a_look_that_finds_it_done_settles_it_with_what_it_found() {
    on_every_flavor(|options| {
        seed();
        for by_drain in [false, true] {
            let mut fleet = Fleet::start(options.clone());
            let jobs = booked(Look::Done, &endless());
            let other = interrupted_and_looked_at(&mut fleet, &jobs, by_drain);
            fleet.wait_settled();
            assert_eq!(fleet.runs_of("a:1").len(), 1, "its handler ran again");
            let entity = fleet.entity("a").unwrap();
            assert_eq!((entity.version, entity.changes), (2, 2), "what the look found was written");
            assert_eq!((looks(&other), fleet.dead().len()), (1, 0));
        }
    });
}

#[test]
fn a_look_that_finds_it_undone_lets_it_run_again_uncharged() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let script = Script { recovered_wait_ms: Some(10), ..endless() };
        let jobs = booked(Look::Again, &script);
        let other = interrupted_and_looked_at(&mut fleet, &jobs, false);
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        let attempts: Vec<u32> = fleet.runs_of("a:1").iter().map(|run| run.attempt).collect();
        assert_eq!((attempts.as_slice(), looks(&other)), (&[1, 1][..], 1));
    });
}

#[test]
fn a_look_that_cannot_tell_asks_a_person() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let jobs = booked(Look::Person, &endless());
        let other = interrupted_and_looked_at(&mut fleet, &jobs, false);
        let letter = fleet.wait_letter("a:1").1;
        assert_eq!(letter.reason, DeadReason::Review);
        assert!(letter.error.concat().contains("as the job's script says"), "{:?}", letter.error);
        fleet.wait_settled();
        assert_eq!((fleet.runs_of("a:1").len(), looks(&other)), (1, 1));
        fleet.expect_settled_otherwise(&["a:1"]);
        fleet.assert_effects(&jobs);
    });
}

/// It was acknowledged before it began: killed, it is gone, and the next of its key goes on.
#[test]
fn of_a_kind_that_runs_at_most_once_is_gone_with_its_process() {
    on_every_flavor(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let mut node = fleet.node_with(&KINDS);
        let once = Script { wait_ms: 60_000, ..Script::default() };
        let jobs = vec![Fleet::job_of(ONCE, "a:1", "a", &once), Fleet::job("a:2", "a", 2, &effect())];
        fleet.enqueue(jobs.clone());
        fleet.wait_run_on("a:1", &node);
        let waits: Vec<u64> = fleet.partitions().iter().map(|view| view.ready).collect();
        assert_eq!(waits.iter().sum::<u64>(), 1, "it is acknowledged, and the next waits for its run");
        fleet.kill(&mut node);
        let _other = fleet.node_with(&KINDS);
        fleet.wait_settled();
        assert_eq!((fleet.runs_of("a:1").len(), fleet.dead().len()), (1, 0));
        fleet.expect_settled_otherwise(&["a:1"]);
        fleet.assert_effects(&jobs);
    });
}

/// What had not begun when its node was killed is not lost with it.
#[test]
fn of_a_kind_that_runs_at_most_once_no_more_is_gone_than_could_run() {
    on_servers(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options);
        let slots = 4;
        let mut node = fleet.node_with(&[&KINDS[..], &["--slots", "4"]].concat());
        let jobs = jobs_of(ONCE, 60, &Script { wait_ms: 200, ..Script::default() });
        fleet.enqueue(jobs.clone());
        fleet.wait_started(slots + 1 + rng.below(20) as usize);
        fleet.kill(&mut node);
        let _other = fleet.node_with(&KINDS);
        fleet.wait_settled();
        let ids = jobs.iter().map(|job| job.id.as_ref().unwrap().to_string());
        let runs: Vec<usize> = ids.map(|id| fleet.runs_of(&id).len()).collect();
        assert!(runs.iter().all(|runs| *runs <= 1), "one ran twice: {runs:?}");
        let never = runs.iter().filter(|runs| **runs == 0).count();
        assert!(
            never <= slots + usize::from(PARTITIONS),
            "{never} of {} were lost before they began, with {slots} slots",
            jobs.len()
        );
    });
}

/// A drain loses none of them: what began ends, and what did not is another's.
#[test]
fn of_a_kind_that_runs_at_most_once_all_run_once_where_their_node_leaves_in_time() {
    on_servers(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options);
        let mut node = fleet.node_with(&[&KINDS[..], &["--slots", "4"]].concat());
        let jobs = jobs_of(ONCE, 60, &Script { wait_ms: 200, ..Script::default() });
        fleet.enqueue(jobs.clone());
        fleet.wait_started(5 + rng.below(20) as usize);
        let left = fleet.drain(&mut node);
        assert_eq!(left.abandoned, 0, "{}", left.line);
        let _other = fleet.node_with(&KINDS);
        // It is acknowledged when it begins.
        eventually(SOON, "all have run", || {
            let runs = fleet.history().runs;
            (runs.iter().filter(|run| run.is_done()).count() == 60).then_some(())
        });
        fleet.wait_settled();
        let report = fleet.assert_promises();
        assert_eq!((report.runs, fleet.dead().len()), (60, 0));
    });
}

/// A drain that stops one hard lives to tell it: a person hears of what became of it.
#[test]
fn of_a_kind_that_runs_at_most_once_that_a_drain_stops_goes_to_a_person() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let mut node = fleet.node_with(&SHORT_WINDOW);
        let once = Script { wait_ms: 60_000, ..Script::default() };
        let jobs = vec![Fleet::job_of(ONCE, "a:1", "a", &once), Fleet::job("a:2", "a", 2, &effect())];
        fleet.enqueue(jobs.clone());
        fleet.wait_run_on("a:1", &node);
        assert_eq!(fleet.drain(&mut node).abandoned, 0);
        let _other = fleet.node_with(&KINDS);
        let letter = fleet.wait_letter("a:1").1;
        assert_eq!(letter.reason, DeadReason::Review);
        fleet.wait_settled();
        assert_eq!(fleet.runs_of("a:1").len(), 1);
        fleet.expect_settled_otherwise(&["a:1"]);
        fleet.assert_effects(&jobs);
    });
}

/// Its node lives to tell what became of it, whatever happened to the lease meanwhile.
#[test]
fn of_a_kind_that_runs_at_most_once_that_fails_behind_a_broken_connection_is_a_dead_letter_too() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let node = fleet.node_with(&KINDS);
        let fails = Script { wait_ms: 1500, fail_until: 1, ..Script::default() };
        fleet.enqueue(vec![Fleet::job_of(ONCE, "a:1", "a", &fails)]);
        fleet.wait_run_on("a:1", &node);
        assert!(fleet.server.kill_client_connections().unwrap() > 0);
        eventually(SOON, "this test's own connection", || (!fleet.partitions().is_empty()).then_some(()));
        let letter = fleet.wait_letter("a:1").1;
        assert_eq!((letter.reason, letter.attempts), (DeadReason::Exhausted, 1));
        assert_eq!(fleet.runs_of("a:1").len(), 1);
    });
}

/// It cannot be put back: its error is a dead letter at once, whatever its class.
#[test]
fn of_a_kind_that_runs_at_most_once_that_fails_is_a_dead_letter_at_once() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let _node = fleet.node_with(&KINDS);
        let fails = Script { wait_ms: 300, fail_until: 1, ..Script::default() };
        let jobs = vec![Fleet::job_of(ONCE, "a:1", "a", &fails), Fleet::job("a:2", "a", 2, &effect())];
        fleet.enqueue(jobs.clone());
        let letter = fleet.wait_letter("a:1").1;
        assert_eq!((letter.reason, letter.attempts), (DeadReason::Exhausted, 1));
        assert_eq!(letter.class.as_deref(), Some("transient"));
        assert!(!letter.envelope.is_empty(), "from the node's own copy");
        fleet.wait_settled();
        assert_eq!(fleet.runs_of("a:1").len(), 1);
        fleet.expect_settled_otherwise(&["a:1"]);
        fleet.assert_effects(&jobs);
    });
}
