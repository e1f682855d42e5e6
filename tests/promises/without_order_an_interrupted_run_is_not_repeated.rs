//! Queues with ordering none: a handler that may not be repeated is not, there as well: after a kill, a stand-still past the
//! timeout, or a drain that stops it.

use crate::an_interrupted_run_is_not_repeated::{
    KINDS, SHORT_WINDOW, effect, endless, interrupted, jobs_of, looks,
};
use gristmill_job::{DeadReason, NewJob};
use gristmill_testkit::eventually;
use gristmill_testkit::seed::{SplitMix64, seed};
use gristmill_tests::fleet::{Fleet, SOON};
use gristmill_tests::node::NodeProcess;
use gristmill_tests::script::{BOOKED, CAREFUL, Death, Look, ONCE, Script};
use gristmill_tests::servers::{on_every_flavor, on_servers};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const SLOTS: usize = 4;

fn kinds<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&KINDS[..], &["--visibility-ms", "1500"], more].concat()
}

/// The jobs that wait for a person; each letter says so, and charges nothing.
fn asked_of_a_person(fleet: &Fleet) -> BTreeSet<String> {
    let of = |letter: gristmill_job::DeadLetter| {
        assert_eq!((letter.reason, letter.attempts), (DeadReason::Review, 0), "{letter:?}");
        String::from_utf8(letter.job).unwrap()
    };
    fleet.dead().into_iter().map(|view| of(view.letter.unwrap())).collect()
}

fn expect_otherwise(fleet: &mut Fleet, ids: &BTreeSet<String>) {
    fleet.expect_settled_otherwise(&ids.iter().map(String::as_str).collect::<Vec<_>>());
}

fn assert_none_ran_twice(fleet: &Fleet, jobs: &[NewJob]) {
    for job in jobs {
        let runs = fleet.runs_of(&job.id.as_ref().unwrap().to_string());
        assert!(runs.len() <= 1, "it ran twice: {runs:?}");
    }
}

#[test]
fn of_a_kind_that_says_review_goes_to_a_person_where_its_node_is_killed() {
    on_every_flavor(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::unordered(options);
        let mut node = fleet.node_with(&kinds(&["--slots", "4"]));
        let jobs = jobs_of(CAREFUL, 60, &Script { wait_ms: 200, ..effect() });
        fleet.enqueue(jobs.clone());
        fleet.wait_started(SLOTS + 1 + rng.below(20) as usize);
        fleet.kill(&mut node);
        let cut_short = interrupted(&fleet, &node);
        assert!(!cut_short.is_empty());
        let _other = fleet.node_with(&kinds(&[]));
        fleet.wait_settled();
        let asked = asked_of_a_person(&fleet);
        assert!(asked.is_superset(&cut_short), "{cut_short:?} were interrupted, {asked:?} went to a person");
        // Besides what ran: what had ended and was not settled, or was about to begin.
        assert!(asked.len() <= 2 * SLOTS, "{asked:?} went to a person, of {SLOTS} that can have run");
        assert_none_ran_twice(&fleet, &jobs);
        expect_otherwise(&mut fleet, &asked);
        fleet.assert_effects(&jobs);
    });
}

/// Nobody can know whether one that stands still will go on: its result is refused when it does.
#[test]
fn of_a_kind_that_says_review_goes_to_a_person_where_its_node_stands_still_and_its_result_is_refused() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let mut stands = fleet.node_with(&kinds(&["--slots", "4"]));
        let jobs = jobs_of(CAREFUL, 20, &Script { wait_ms: 800, ..effect() });
        fleet.enqueue(jobs.clone());
        fleet.wait_started(SLOTS);
        fleet.pause(&mut stands);
        let cut_short = interrupted(&fleet, &stands);
        let _other = fleet.node_with(&kinds(&[]));
        fleet.wait_settled();
        let asked = asked_of_a_person(&fleet);
        assert!(!cut_short.is_empty() && asked.is_superset(&cut_short), "{cut_short:?}, {asked:?}");
        fleet.resume(&mut stands);
        eventually(SOON, "what stood still to end", || interrupted(&fleet, &stands).is_empty().then_some(()));
        let left = fleet.drain(&mut stands);
        assert!(left.counts.of("claims_lost") > 0, "{}", left.line);
        assert_none_ran_twice(&fleet, &jobs);
        for id in &asked {
            assert_eq!(
                fleet.entity(id).map_or(0, |entity| entity.changes),
                0,
                "the result of {id} was written"
            );
        }
        assert_eq!(asked_of_a_person(&fleet), asked, "no letter came or went");
        expect_otherwise(&mut fleet, &asked);
        fleet.assert_effects(&jobs);
    });
}

/// Redis stood still for longer than a claim stands: the node itself takes over what it had claimed, and these had begun.
#[test]
fn of_a_kind_that_says_review_is_not_repeated_by_its_own_node_whose_claim_was_over() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let node = fleet.node_with(&kinds(&["--slots", "4"]));
        let jobs = jobs_of(CAREFUL, SLOTS, &Script { wait_ms: 1800, ..effect() });
        fleet.enqueue(jobs.clone());
        fleet.wait_started(SLOTS);
        fleet.server.pause().unwrap();
        let since = Instant::now();
        eventually(SOON, "claims and runs to be over", || {
            let over = since.elapsed() > Duration::from_millis(2500);
            (over && interrupted(&fleet, &node).is_empty()).then_some(())
        });
        fleet.server.resume().unwrap();
        fleet.wait_settled();
        assert_none_ran_twice(&fleet, &jobs);
        let asked = asked_of_a_person(&fleet);
        assert_eq!(asked.len(), SLOTS, "{asked:?}");
        expect_otherwise(&mut fleet, &asked);
        fleet.assert_effects(&jobs);
    });
}

#[test]
fn of_a_kind_that_says_review_runs_again_when_a_person_says_so() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let mut node = fleet.node_with(&kinds(&[]));
        let script = Script { recovered_wait_ms: Some(10), ..endless() };
        let jobs = vec![Fleet::job_of(CAREFUL, "a:1", "a", &Script { wait_ms: 1000, ..script })];
        fleet.enqueue(jobs.clone());
        fleet.wait_run_on("a:1", &node);
        fleet.kill(&mut node);
        let _other = fleet.node_with(&kinds(&[]));
        let (view, letter) = fleet.wait_letter("a:1");
        assert!(letter.error.concat().contains("interrupted"), "{:?}", letter.error);
        fleet.replay(&view, &letter);
        eventually(SOON, "it is done", || fleet.entity("a"));
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        assert_eq!(fleet.dead().len(), 0);
    });
}

#[test]
fn of_a_kind_that_says_review_that_kills_its_process_goes_to_a_person_after_one_death() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let more = kinds(&[]);
        let mut nodes = [fleet.node_with(&more)];
        let script = Script { dies: Some(Death::Abort), ..effect() };
        let jobs = vec![Fleet::job_of(CAREFUL, "a:1", "a", &script), Fleet::job("b:1", "b", 1, &effect())];
        fleet.enqueue(jobs.clone());
        let deaths =
            fleet.replace_the_dead(&mut nodes, &more, SOON * 2, "everything settled", Fleet::is_settled);
        assert_eq!(deaths, 1);
        assert_eq!(fleet.wait_letter("a:1").1.reason, DeadReason::Review);
        fleet.expect_settled_otherwise(&["a:1"]);
        fleet.assert_effects(&jobs);
    });
}

#[test]
fn of_a_kind_that_says_review_that_a_drain_stops_goes_to_a_person() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let mut node = fleet.node_with(&SHORT_WINDOW);
        let jobs = jobs_of(CAREFUL, 3, &endless());
        fleet.enqueue(jobs.clone());
        fleet.wait_started(3);
        let left = fleet.drain(&mut node);
        assert_eq!((left.handed_back, left.abandoned), (3, 0), "{}", left.line);
        let _other = fleet.node_with(&kinds(&[]));
        fleet.wait_settled();
        let asked = asked_of_a_person(&fleet);
        assert_eq!(asked.len(), 3);
        assert_none_ran_twice(&fleet, &jobs);
        expect_otherwise(&mut fleet, &asked);
        fleet.assert_effects(&jobs);
    });
}

/// A job of a kind with a look is interrupted. Returns who looked.
fn interrupted_and_looked_at(fleet: &mut Fleet, jobs: &[NewJob], by_drain: bool) -> NodeProcess {
    let mut node = fleet.node_with(&[&SHORT_WINDOW[..], &["--visibility-ms", "1500"]].concat());
    fleet.enqueue(jobs.to_vec());
    fleet.wait_run_on("a:1", &node);
    if by_drain {
        assert_eq!(fleet.drain(&mut node).abandoned, 0);
    } else {
        fleet.kill(&mut node);
    }
    assert_eq!(looks(&node), 0, "nothing was interrupted yet");
    let other = fleet.node_with(&kinds(&[]));
    other.process.wait_line(|line| line.text == "looks at a:1", SOON).unwrap();
    other
}

fn booked(look: Look, script: &Script) -> Vec<NewJob> {
    vec![Fleet::job_of(BOOKED, "a:1", "a", &Script { look, ..script.clone() })]
}

#[test]
fn a_look_that_finds_it_done_settles_it_with_what_it_found() {
    on_every_flavor(|options| {
        for by_drain in [false, true] {
            let mut fleet = Fleet::unordered(options.clone());
            let jobs = booked(Look::Done, &endless());
            let other = interrupted_and_looked_at(&mut fleet, &jobs, by_drain);
            fleet.wait_settled();
            assert_eq!(fleet.runs_of("a:1").len(), 1, "its handler ran again");
            assert_eq!(fleet.entity("a").unwrap().changes, 1, "what the look found was written");
            assert_eq!((looks(&other), fleet.dead().len()), (1, 0));
        }
    });
}

#[test]
fn a_look_that_finds_it_undone_lets_it_run_again_uncharged() {
    on_servers(|options| {
        for by_drain in [false, true] {
            let mut fleet = Fleet::unordered(options.clone());
            let jobs = booked(Look::Again, &Script { recovered_wait_ms: Some(10), ..endless() });
            let other = interrupted_and_looked_at(&mut fleet, &jobs, by_drain);
            if by_drain {
                // Nobody died: it waits as long as it would.
                fleet.wait_run_on("a:1", &other);
            } else {
                fleet.wait_settled();
                fleet.assert_effects(&jobs);
            }
            let attempts: Vec<u32> = fleet.runs_of("a:1").iter().map(|run| run.attempt).collect();
            assert_eq!((attempts.as_slice(), looks(&other)), (&[1, 1][..], 1));
        }
    });
}

#[test]
fn a_look_that_cannot_tell_asks_a_person() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let jobs = booked(Look::Person, &endless());
        let other = interrupted_and_looked_at(&mut fleet, &jobs, false);
        let letter = fleet.wait_letter("a:1").1;
        assert_eq!(letter.reason, DeadReason::Review);
        fleet.wait_settled();
        assert_eq!((fleet.runs_of("a:1").len(), looks(&other)), (1, 1));
        fleet.expect_settled_otherwise(&["a:1"]);
        fleet.assert_effects(&jobs);
    });
}

#[test]
fn of_a_kind_that_runs_at_most_once_what_ran_is_gone_with_its_node_and_the_rest_runs() {
    on_every_flavor(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::unordered(options);
        let mut node = fleet.node_with(&kinds(&["--slots", "4"]));
        let jobs = jobs_of(ONCE, 60, &Script { wait_ms: 200, ..Script::default() });
        fleet.enqueue(jobs.clone());
        fleet.wait_started(SLOTS + 1 + rng.below(20) as usize);
        fleet.kill(&mut node);
        let _other = fleet.node_with(&kinds(&[]));
        fleet.wait_settled();
        assert_none_ran_twice(&fleet, &jobs);
        let ran = |job: &&NewJob| fleet.runs_of(&job.id.as_ref().unwrap().to_string()).is_empty();
        let never = jobs.iter().filter(ran).count();
        assert!(never <= SLOTS, "{never} were lost before they began, with {SLOTS} slots");
        assert_eq!(fleet.dead().len(), 0);
    });
}

/// What was acknowledged runs on although nothing is claimed any more; what was not is another's, once.
#[test]
fn of_a_kind_that_runs_at_most_once_all_run_once_where_their_node_stands_still() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let mut stands = fleet.node_with(&kinds(&["--slots", "4"]));
        let jobs = jobs_of(ONCE, 40, &Script { wait_ms: 300, ..Script::default() });
        fleet.enqueue(jobs.clone());
        fleet.wait_started(SLOTS + 1);
        fleet.pause(&mut stands);
        let _other = fleet.node_with(&kinds(&[]));
        fleet.wait_settled();
        fleet.resume(&mut stands);
        eventually(SOON, "what stood still to end", || interrupted(&fleet, &stands).is_empty().then_some(()));
        assert_none_ran_twice(&fleet, &jobs);
        let ran = |job: &&NewJob| fleet.runs_of(&job.id.as_ref().unwrap().to_string()).is_empty();
        let never = jobs.iter().filter(ran).count();
        assert!(never <= SLOTS, "{never} were lost before they began, with {SLOTS} slots");
        assert_eq!(fleet.dead().len(), 0);
    });
}

#[test]
fn of_a_kind_that_runs_at_most_once_all_run_once_where_their_node_leaves_in_time() {
    on_servers(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::unordered(options);
        let mut node = fleet.node_with(&kinds(&["--slots", "4"]));
        let jobs = jobs_of(ONCE, 60, &Script { wait_ms: 200, ..Script::default() });
        fleet.enqueue(jobs.clone());
        fleet.wait_started(SLOTS + 1 + rng.below(20) as usize);
        let left = fleet.drain(&mut node);
        assert_eq!(left.abandoned, 0, "{}", left.line);
        let _other = fleet.node_with(&kinds(&[]));
        eventually(SOON, "all have run", || {
            let runs = fleet.history().runs;
            (runs.iter().filter(|run| run.is_done()).count() == 60).then_some(())
        });
        fleet.wait_settled();
        let report = fleet.assert_promises();
        assert_eq!((report.runs, fleet.dead().len()), (60, 0));
    });
}
