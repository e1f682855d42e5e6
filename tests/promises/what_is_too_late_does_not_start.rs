//! A job that expires does not start later than it says after it became ready: behind a key that waits, or where no node was
//! there. It ends once, its key goes on, and its mark says so. What a person brings back is asked for, however old.

use gristmill_broker::replay::Replayed;
use gristmill_job::{NewJob, Place};
use gristmill_testkit::eventually;
use gristmill_testkit::seed::seed;
use gristmill_testkit::server::Reply;
use gristmill_tests::fleet::{Fleet, SOON};
use gristmill_tests::script::{CAREFUL, ONCE, Script};
use gristmill_tests::servers::{on_every_flavor, on_servers};
use std::time::Duration;

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

fn key() -> String {
    Fleet::key_in(0, 0)
}

/// Waits until the clock of Redis shows more than so long after the place of the last of these jobs.
pub(crate) fn wait_late(fleet: &Fleet, ids: &[String], limit: Duration) {
    let ready = |id: &String| {
        let standing = fleet.standing_of(id, &key()).unwrap_or_default();
        standing.strip_prefix("waiting ").and_then(|place| place.parse::<Place>().ok()).map(|place| place.ms)
    };
    let last = ids.iter().filter_map(ready).max().expect("they wait");
    let late = last + limit.as_millis() as u64;
    eventually(SOON, "the clock to pass their limit", || {
        let time = fleet.server.command(&["TIME"]).unwrap();
        let part = |n: usize| time.as_array()?.get(n).and_then(Reply::as_str)?.parse::<u64>().ok();
        let now = part(0).unwrap() * 1000 + part(1).unwrap() / 1000;
        (now > late).then_some(())
    });
}

fn ids_of(jobs: &[NewJob]) -> Vec<String> {
    jobs.iter().map(|job| job.id.as_ref().unwrap().to_string()).collect()
}

#[test]
fn behind_a_key_that_waits_and_the_others_of_the_key_go_on() {
    on_every_flavor(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        fleet.switch("broken", true);
        let mut node = fleet.node_with(&["--backoff-ms", "240000", "--census-ms", "300"]);
        let first = Script { fail_until: 1, fails_while: Some("broken".into()), ..effect() };
        let limit = Duration::from_millis(400);
        let jobs: Vec<NewJob> = (1..=100)
            .map(|version| {
                let script = if version == 1 { &first } else { &effect() };
                let job = Fleet::job(&format!("a:{version}"), &key(), version, script);
                if version % 2 == 0 { job.expires_in(limit) } else { job }
            })
            .collect();
        fleet.enqueue(jobs.clone());
        fleet.wait_line(&key(), "the first to wait", |line| line.attempts == 1);
        let late: Vec<String> = (1..=50).map(|n| format!("a:{}", 2 * n)).collect();
        wait_late(&fleet, &late, limit);
        fleet.switch("broken", false);
        fleet.release(&key());
        fleet.wait_settled();
        for id in &late {
            assert_eq!(fleet.standing_of(id, &key()).as_deref(), Some("expired"));
            assert!(fleet.runs_of(id).is_empty(), "{id} ran");
        }
        fleet.expect_settled_otherwise(&late.iter().map(String::as_str).collect::<Vec<_>>());
        fleet.assert_effects(&jobs);
        // The same id has had its time.
        assert_eq!(fleet.enqueue(vec![jobs[1].clone()])[0].duplicate_of.as_deref(), Some("expired"));
        assert_eq!(fleet.drain(&mut node).counts.tenures_lost(), 0);
    });
}

#[test]
fn where_no_node_was_there_whatever_its_kind_says_of_marks() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let limit = Duration::from_millis(300);
        let kinds = [CAREFUL, ONCE];
        let mut late: Vec<NewJob> = kinds
            .iter()
            .map(|kind| Fleet::job_of(kind, &format!("late:{kind}"), &key(), &effect()).expires_in(limit))
            .collect();
        late.push(Fleet::job("late:plain", &key(), 1, &effect()).expires_in(limit));
        fleet.enqueue(late.clone());
        wait_late(&fleet, &ids_of(&late), limit);
        // Long enough for a node to come, and its queue's own limit is longer than that.
        let fresh = vec![
            Fleet::job("fresh:1", &key(), 2, &effect()).expires_in(Duration::from_secs(600)),
            Fleet::job("fresh:2", &key(), 3, &effect()),
        ];
        fleet.enqueue(fresh.clone());
        let node = fleet.node_with(&["--kinds", "careful,once", "--expires-ms", "600000"]);
        fleet.wait_settled();
        let late = ids_of(&late);
        for id in &late {
            assert_eq!(fleet.standing_of(id, &key()).as_deref(), Some("expired"), "{id}");
            assert!(fleet.runs_of(id).is_empty(), "{id} ran");
        }
        fleet.expect_settled_otherwise(&late.iter().map(String::as_str).collect::<Vec<_>>());
        fleet.assert_effects(&fresh);
        drop(node);
    });
}

#[test]
fn but_what_a_person_brings_back_does_and_a_queue_may_say_so_for_all() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        fleet.switch("broken", true);
        let broken = Script { permanent: true, fails_while: Some("broken".into()), ..effect() };
        let jobs = vec![Fleet::job("a:1", &key(), 1, &broken)];
        let mut node = fleet.node_with(&["--expires-ms", "3000"]);
        fleet.enqueue(jobs.clone());
        let (view, letter) = fleet.wait_letter("a:1");
        fleet.drain(&mut node);
        let silent = vec![Fleet::job("a:2", &key(), 2, &effect())];
        fleet.enqueue(silent);
        // Later than that is the letter's job too.
        wait_late(&fleet, &["a:2".into()], Duration::from_millis(3000));
        let node = fleet.node_with(&["--expires-ms", "3000"]);
        fleet.wait_standing("a:2", &key(), "expired");
        fleet.switch("broken", false);
        assert_eq!(fleet.replay(&view, &letter), Replayed::Replayed);
        fleet.wait_standing("a:1", &key(), "applied");
        fleet.expect_settled_otherwise(&["a:2"]);
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        drop(node);
    });
}
