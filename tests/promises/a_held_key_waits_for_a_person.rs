//! A key whose job died waits for a person, where its queue says so: through kills and drains, beside keys that go on. What
//! a person does about it is heard within a second or so, keeps the order of the key, and happens once.

use gristmill_broker::discard::Discarded;
use gristmill_broker::release_key::ReleasedKey;
use gristmill_broker::replay::Replayed;
use gristmill_broker::skip::Skipped;
use gristmill_broker::state::Why;
use gristmill_job::{DeadReason, NewJob};
use gristmill_testkit::eventually;
use gristmill_testkit::seed::seed;
use gristmill_testkit::server::ServerOptions;
use gristmill_tests::fleet::{Fleet, SOON};
use gristmill_tests::node::NodeProcess;
use gristmill_tests::script::Script;
use gristmill_tests::servers::{on_every_flavor, on_servers};
use std::time::{Duration, Instant};

/// A renewal of the leases of tests takes 300 ms; the rest is for the machine.
const HEARD: Duration = Duration::from_millis(3000);
const HOLD: [&str; 4] = ["--after-dead-letter", "hold", "--census-ms", "500"];
/// Waits of minutes.
const PATIENT: [&str; 4] = ["--backoff-ms", "240000", "--census-ms", "500"];

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

/// Fails for good, until it is mended.
fn broken() -> Script {
    Script { permanent: true, fails_while: Some("broken".into()), ..effect() }
}

/// The key of these tests.
fn key() -> String {
    Fleet::key_in(0, 0)
}

/// Versions of the key, the first of them with a script of its own.
fn lane(first: &Script, versions: u64) -> Vec<NewJob> {
    let script = |version| if version == 1 { first.clone() } else { effect() };
    (1..=versions)
        .map(|version| Fleet::job(&format!("a:{version}"), &key(), version, &script(version)))
        .collect()
}

/// A fleet with one broken job whose letter holds its key, and others behind it.
fn held(options: ServerOptions, versions: u64) -> (Fleet, NodeProcess, Vec<NewJob>) {
    seed();
    let mut fleet = Fleet::start(options);
    fleet.switch("broken", true);
    let node = fleet.node_with(&HOLD);
    let jobs = lane(&broken(), versions);
    fleet.enqueue(jobs.clone());
    let (view, letter) = fleet.wait_letter("a:1");
    assert_eq!(letter.reason, DeadReason::Permanent);
    let hold = fleet.hold_of(&key()).expect("written with the letter");
    assert_eq!((hold.letter, hold.since), (view.id, view.at));
    (fleet, node, jobs)
}

/// Jobs of other keys of the partition, enqueued now, are done; the held key has not moved meanwhile.
fn others_go_on(fleet: &Fleet, round: usize) -> Vec<NewJob> {
    let keys = (1 + 20 * round..).map(|number| Fleet::key_in(0, number)).take(20);
    let jobs: Vec<NewJob> = keys.map(|key| Fleet::job(&format!("o{key}"), &key, 1, &effect())).collect();
    fleet.enqueue(jobs.clone());
    let keys: Vec<Vec<u8>> = jobs.iter().map(|job| job.key.as_bytes().to_vec()).collect();
    eventually(SOON, "the other keys are done", || {
        fleet.entities(&keys).iter().all(Option::is_some).then_some(())
    });
    assert!(fleet.runs_of("a:2").is_empty(), "the held key went on by itself");
    jobs
}

/// How long it takes until the key stands at this version.
fn until_at(fleet: &Fleet, version: u64) -> Duration {
    let began = Instant::now();
    eventually(SOON, "the key goes on", || {
        fleet.entity(&key()).filter(|entity| entity.version >= version).map(|_| ())
    });
    began.elapsed()
}

/// V22, V27: a hold is stored, and what waits behind it fills no window.
#[test]
fn through_a_kill_and_a_drain_and_others_go_on() {
    on_every_flavor(|options| {
        let (mut fleet, mut node, mut jobs) = held(options, 700);
        jobs.extend(others_go_on(&fleet, 0));
        fleet.kill(&mut node);
        let mut node = fleet.node_with(&HOLD);
        jobs.extend(others_go_on(&fleet, 1));
        assert!(fleet.drain(&mut node).status.success());
        // Whatever the policy says meanwhile: the hold is stored.
        let mut node = fleet.node();
        jobs.extend(others_go_on(&fleet, 2));

        let ReleasedKey::Released { letter } = fleet.release(&key()) else { panic!("it is held") };
        let took = until_at(&fleet, 2);
        assert!(took < HEARD, "the owner heard of it after {took:?}");
        fleet.wait_settled();
        assert_eq!(fleet.letter_of("a:1").map(|(view, _)| view.id), Some(letter), "the letter stays");
        fleet.expect_settled_otherwise(&["a:1"]);
        fleet.assert_effects(&jobs);
        assert_eq!(fleet.release(&key()), ReleasedKey::Nothing);
        assert_eq!(fleet.drain(&mut node).counts.tenures_lost(), 0);
    });
}

/// V23, V24.
#[test]
fn until_its_letter_is_discarded() {
    on_servers(|options| {
        let (mut fleet, _node, jobs) = held(options, 5);
        let (view, _) = fleet.wait_letter("a:1");
        assert_eq!(fleet.discard(&view), Discarded::Discarded);
        let took = until_at(&fleet, 2);
        assert!(took < HEARD, "the owner heard of it after {took:?}");
        fleet.wait_settled();
        assert_eq!((fleet.hold_of(&key()), fleet.dead().len()), (None, 0));
        assert_eq!(fleet.discard(&view), Discarded::Gone, "a second click");
        fleet.expect_settled_otherwise(&["a:1"]);
        fleet.assert_effects(&jobs);
    });
}

/// V17, V24: it comes before the newer ones of its key, and its id keeps its effect single.
#[test]
fn until_its_letter_is_replayed_which_runs_before_newer_ones_and_once() {
    on_every_flavor(|options| {
        let (fleet, _node, jobs) = held(options, 20);
        let (view, letter) = fleet.wait_letter("a:1");
        fleet.switch("broken", false);
        assert_eq!(fleet.replay(&view, &letter), Replayed::Replayed);
        assert_eq!(fleet.replay(&view, &letter), Replayed::Gone, "a second click");
        fleet.wait_settled();
        // In order, each once: the versions of successes rise.
        fleet.assert_effects(&jobs);
        let done = fleet.runs_of("a:1").iter().filter(|run| run.is_done()).count();
        assert_eq!((done, fleet.dead().len(), fleet.hold_of(&key())), (1, 0, None));
        let again = fleet.enqueue(vec![jobs[0].clone()]);
        assert!(again[0].duplicate_of.is_some(), "its id is known as before");
        fleet.wait_settled();
        assert_eq!(fleet.entity(&key()).unwrap().changes, 20);
    });
}

/// V17: each death has a letter of its own, which says how often the job came back before.
#[test]
fn again_where_the_replayed_job_dies_again() {
    on_servers(|options| {
        let (mut fleet, mut node, mut jobs) = held(options, 3);
        let mut before = Vec::new();
        for replays in 0..3 {
            let (view, letter) = eventually(SOON, "its next letter", || {
                fleet.letter_of("a:1").filter(|(view, _)| !before.contains(&view.id))
            });
            assert_eq!((letter.replays, letter.attempts), (replays, 1), "attempts begin anew");
            assert_eq!(fleet.dead().len(), 1);
            assert_eq!(fleet.hold_of(&key()).unwrap().letter, view.id);
            jobs.extend(others_go_on(&fleet, replays as usize));
            if replays == 1 {
                // Also where the owner dies between.
                fleet.kill(&mut node);
                node = fleet.node_with(&HOLD);
            }
            if replays == 2 {
                fleet.switch("broken", false);
            }
            assert_eq!(fleet.replay(&view, &letter), Replayed::Replayed);
            before.push(view.id);
        }
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        assert_eq!(fleet.dead().len(), 0);
    });
}

/// What cannot be decoded has a key, and holds it as any other.
#[test]
fn also_where_what_died_could_not_be_decoded() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let _node = fleet.node_with(&HOLD);
        fleet.write_raw(0, &[(b"i", b"raw"), (b"k", key().as_bytes()), (b"d", b"no envelope")]);
        let jobs = vec![Fleet::job("a:2", &key(), 2, &effect())];
        fleet.enqueue(jobs.clone());
        let (view, letter) = fleet.wait_letter("raw");
        assert_eq!((letter.reason, letter.kind), (DeadReason::Undecodable, None));
        assert_eq!(fleet.hold_of(&key()).unwrap().letter, view.id);
        others_go_on(&fleet, 0);
        // A replay mends nothing, and says so once more.
        assert_eq!(fleet.replay(&view, &fleet.wait_letter("raw").1), Replayed::Replayed);
        let (again, letter) = eventually(SOON, "its next letter", || {
            fleet.letter_of("raw").filter(|(next, _)| next.id != view.id)
        });
        assert_eq!((letter.reason, letter.replays), (DeadReason::Undecodable, 1));
        assert_eq!(letter.envelope, b"no envelope");
        assert!(fleet.runs_of("a:2").is_empty());
        assert_eq!(fleet.discard(&again), Discarded::Discarded);
        eventually(SOON, "its key goes on", || fleet.entity(&key()));
        fleet.wait_settled();
    });
}

/// The partition has no owner while a person acts.
#[test]
fn also_where_nobody_owns_its_partition() {
    on_servers(|options| {
        let (mut fleet, mut node, jobs) = held(options, 5);
        assert!(fleet.drain(&mut node).status.success());
        fleet.switch("broken", false);
        let (view, letter) = fleet.wait_letter("a:1");
        assert_eq!(fleet.replay(&view, &letter), Replayed::Replayed);
        let _node = fleet.node_with(&HOLD);
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
    });
}

#[test]
fn until_a_person_passes_over_it() {
    on_servers(|options| {
        let (mut fleet, _node, jobs) = held(options, 5);
        assert!(matches!(fleet.skip(&key()), Skipped::Discarded { .. }));
        fleet.wait_settled();
        assert_eq!(fleet.dead().len(), 0);
        fleet.expect_settled_otherwise(&["a:1"]);
        fleet.assert_effects(&jobs);
    });
}

/// No hold by default: later versions go on, and what comes back then is as late as it is.
#[test]
fn not_at_all_by_default_and_what_comes_back_late_is_stale() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        fleet.switch("broken", true);
        let mut node = fleet.node();
        let slow = Script { wait_ms: 1500, ..effect() };
        let mut jobs = lane(&broken(), 1);
        jobs.push(Fleet::job("a:2", &key(), 2, &slow));
        jobs.push(Fleet::job("a:3", &key(), 3, &effect()));
        fleet.enqueue(jobs.clone());
        let (view, letter) = fleet.wait_letter("a:1");
        assert_eq!(fleet.hold_of(&key()), None);
        fleet.wait_run_on("a:2", &node);
        fleet.switch("broken", false);
        assert_eq!(fleet.replay(&view, &letter), Replayed::Replayed);
        fleet.wait_settled();
        // Behind what ran when it came back, before what did not.
        let order: Vec<u64> = fleet.history().runs.iter().map(|run| run.job.version).collect();
        assert_eq!(order, [1, 2, 1, 3]);
        let entity = fleet.entity(&key()).unwrap();
        assert_eq!((entity.version, entity.changes), (3, 2), "an older version changes nothing");
        assert_eq!(fleet.drain(&mut node).counts.of("stale"), 1);
        fleet.expect_settled_otherwise(&["a:1"]);
        fleet.expect_no_order(&["a:1"]);
        fleet.assert_effects(&jobs);
    });
}

/// A job whose first attempt failed waits for minutes, and five others behind it.
fn in_backoff(options: ServerOptions, more: &[&str]) -> (Fleet, NodeProcess, Vec<NewJob>) {
    seed();
    let mut fleet = Fleet::start(options);
    let node = fleet.node_with(&[&PATIENT[..], more].concat());
    let jobs = lane(&Script { fail_until: 1, ..effect() }, 6);
    fleet.enqueue(jobs.clone());
    let (_, line) = fleet.wait_line(&key(), "it waits", |line| line.why == Why::Retry);
    assert_eq!((line.turn, line.attempts), (1, 1));
    (fleet, node, jobs)
}

/// One act lets it go on, whatever the policy after a dead letter is: the person has decided.
fn passed_over(options: ServerOptions, policy: &str) {
    let (mut fleet, _node, jobs) = in_backoff(options, &["--after-dead-letter", policy]);
    assert_eq!(fleet.skip(&key()), Skipped::Asked);
    let took = until_at(&fleet, 2);
    assert!(took < HEARD, "the owner heard of it after {took:?}");
    fleet.wait_settled();
    let letter = fleet.wait_letter("a:1").1;
    assert_eq!((letter.reason, letter.attempts), (DeadReason::Skipped, 1));
    assert_eq!(letter.history.len(), 1, "what had happened to it is kept");
    assert_eq!(fleet.hold_of(&key()), None);
    fleet.expect_settled_otherwise(&["a:1"]);
    fleet.assert_effects(&jobs);
}

#[test]
fn a_key_in_backoff_goes_on_when_a_person_passes_over_its_job() {
    on_every_flavor(|options| passed_over(options, "continue"));
}

#[test]
fn a_key_in_backoff_goes_on_also_where_letters_hold_their_keys() {
    on_servers(|options| passed_over(options, "hold"));
}

#[test]
fn a_key_in_backoff_is_woken_by_a_person() {
    on_servers(|options| {
        let (fleet, _node, jobs) = in_backoff(options, &[]);
        assert_eq!(fleet.release(&key()), ReleasedKey::Woken);
        let took = until_at(&fleet, 1);
        assert!(took < HEARD, "the owner heard of it after {took:?}");
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        assert_eq!(fleet.runs_of("a:1").len(), 2);
    });
}

/// V23: a letter that was deleted by hand holds nothing for longer than until the next count.
#[test]
fn no_longer_than_until_the_count_where_its_letter_was_deleted_by_hand() {
    on_every_flavor(|options| {
        let (mut fleet, mut node, jobs) = held(options, 5);
        let (view, _) = fleet.wait_letter("a:1");
        let keys = fleet.keys_of(&key());
        fleet.server.command(&["HDEL", &keys.dead_bodies, &view.id]).unwrap();
        fleet.server.command(&["ZREM", &keys.dead, &view.id]).unwrap();
        let took = until_at(&fleet, 5);
        assert!(took < HEARD, "it was found after {took:?}");
        fleet.wait_settled();
        assert_eq!(fleet.hold_of(&key()), None);
        assert!(fleet.drain(&mut node).counts.of("repaired") >= 1);
        fleet.expect_settled_otherwise(&["a:1"]);
        fleet.assert_effects(&jobs);
    });
}

/// A claim that somebody acknowledged by hand under its owner leaves no key behind that waits for nothing.
#[test]
fn a_job_that_was_deleted_by_hand_leaves_no_key_behind() {
    on_every_flavor(|options| {
        let (mut fleet, mut node, jobs) = in_backoff(options, &[]);
        let stream = fleet.keys_of(&key()).stream;
        let (place, _) = fleet.line_of(&key()).unwrap();
        fleet.server.command(&["XACK", &stream, "workers", &place.to_string()]).unwrap();
        fleet.server.command(&["XDEL", &stream, &place.to_string()]).unwrap();
        let took = until_at(&fleet, 6);
        assert!(took < HEARD, "it was found after {took:?}");
        fleet.wait_settled();
        eventually(SOON, "its line is swept away", || fleet.lines().is_empty().then_some(()));
        let counts = fleet.drain(&mut node).counts;
        assert!(counts.of("repaired") >= 1 && counts.of("end.census") >= 1, "{counts:?}");
        fleet.expect_settled_otherwise(&["a:1"]);
        fleet.assert_effects(&jobs);
    });
}
