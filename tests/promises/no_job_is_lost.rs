//! No job is lost: whatever dies, every job ends by its handler or as a dead letter.

use gristmill_broker::inspect::DeadView;
use gristmill_job::{ContentType, DeadReason, NewJob};
use gristmill_testkit::eventually;
use gristmill_testkit::seed::{SplitMix64, seed};
use gristmill_tests::fleet::{Fleet, PARTITIONS, SOON};
use gristmill_tests::script::Script;
use gristmill_tests::servers::{on_every_flavor, on_servers};

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

#[test]
fn one_node_settles_everything_once_and_in_order() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut node = fleet.node();
        let jobs = Fleet::versions(20, 50, &effect());
        fleet.enqueue(jobs.clone());
        fleet.wait_settled();
        let report = fleet.assert_effects(&jobs);
        assert_eq!((report.jobs, report.runs), (1000, 1000));
        let left = fleet.drain(&mut node);
        assert!(left.status.success(), "{}", left.line);
        assert_eq!(left.counts.of("done"), 1000);
        assert_eq!((left.counts.tenures_lost(), left.counts.of("restarts")), (0, 0), "{:?}", left.counts);
    });
}

#[test]
fn what_a_killed_node_held_is_recovered_by_another() {
    on_every_flavor(|options| {
        let mut fleet = Fleet::start(options);
        let mut first = fleet.node();
        let script = Script { wait_ms: 20, ..effect() };
        let jobs = Fleet::versions(20, 20, &script);
        fleet.enqueue(jobs.clone());
        fleet.wait_started(100);
        fleet.kill(&mut first);
        let _second = fleet.node();
        fleet.wait_settled();
        let report = fleet.assert_effects(&jobs);
        assert!(report.runs > report.jobs, "it was killed while it ran jobs");
    });
}

#[test]
fn three_nodes_are_killed_at_random_moments_and_replaced() {
    on_servers(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options);
        let mut nodes = fleet.nodes(3);
        let script = Script { wait_ms: 5, ..effect() };
        let jobs = Fleet::versions(40, 50, &script);
        for (round, portion) in jobs.chunks(400).enumerate() {
            // Each kill has work of its own: what was there before may be done by the time the next node is ready.
            fleet.enqueue(portion.to_vec());
            fleet.wait_started(400 * round + 1 + rng.below(250) as usize);
            let victim = rng.below(3) as usize;
            fleet.kill(&mut nodes[victim]);
            nodes[victim] = fleet.node();
        }
        fleet.wait_settled();
        let report = fleet.assert_effects(&jobs);
        assert!(report.runs > report.jobs, "none of the kills struck a run: {report}");
    });
}

type Fields = &'static [(&'static [u8], &'static [u8])];

/// Writes entries that no producer of ours makes, some in the middle of a key's jobs. Returns their envelopes.
fn write_garbage(fleet: &Fleet) -> Vec<&'static [u8]> {
    let entries: [(Fields, &[u8]); 7] = [
        (&[(b"i", b"raw-1"), (b"k", b"key1"), (b"d", b"\xc1 no messagepack")], b"\xc1 no messagepack"),
        (&[(b"i", b"raw-2"), (b"k", b"key2"), (b"d", b"")], b""),
        (&[(b"i", b"raw-3"), (b"k", b"key3")], b""),
        (&[(b"\xff\xfe", b"\x80"), (b"k", b"key4"), (b"d", b"\xff\xff")], b"\xff\xff"),
        (&[(b"i", b"raw-5"), (b"d", b"without a key")], b"without a key"),
        (&[(b"something", b"else")], b""),
        (&[(b"d", b"1"), (b"d", b"the last of two wins"), (b"k", b"key5")], b"the last of two wins"),
    ];
    for partition in 0..PARTITIONS {
        for (fields, _) in &entries {
            fleet.write_raw(partition, fields);
        }
    }
    entries.iter().map(|(_, envelope)| *envelope).collect()
}

#[test]
fn what_cannot_be_decoded_becomes_a_dead_letter_and_stops_no_reader() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let jobs = Fleet::versions(20, 10, &effect());
        let (before, after) = jobs.split_at(100);
        fleet.enqueue(before.to_vec());
        let mut envelopes = write_garbage(&fleet);
        fleet.enqueue(after.to_vec());
        let mut node = fleet.node();
        fleet.wait_settled();
        // And once more while it runs.
        write_garbage(&fleet);
        let last = vec![Fleet::job("last", "key1", 11, &effect())];
        fleet.enqueue(last.clone());
        fleet.wait_settled();
        fleet.assert_effects(&[jobs, last].concat());

        let dead = fleet.dead();
        assert_eq!(dead.len(), 2 * 7 * usize::from(PARTITIONS));
        let letters = dead.iter().map(|view| view.letter.as_ref().unwrap());
        let mut found: Vec<&[u8]> = letters
            .filter(|letter| letter.place.contains('-') && !letter.error.is_empty())
            .inspect(|letter| assert_eq!(letter.reason, DeadReason::Undecodable, "{letter:?}"))
            .map(|letter| letter.envelope.as_slice())
            .collect();
        found.sort_unstable();
        envelopes = envelopes.repeat(2 * usize::from(PARTITIONS));
        envelopes.sort_unstable();
        assert_eq!(found, envelopes, "the raw bytes are kept");
        let left = fleet.drain(&mut node);
        assert_eq!((left.counts.tenures_lost(), left.counts.of("restarts")), (0, 0), "{:?}", left.counts);
    });
}

#[test]
fn a_kind_that_nobody_knows_is_dead_and_its_key_goes_on() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let _node = fleet.node_with(&["--unknown-kind-ms", "1500"]);
        let unknown = NewJob::from_bytes("unheard-of", "key1", &b"{}"[..], ContentType::Json).unwrap();
        let unknown = unknown.with_id("unknown").unwrap().with_version(6);
        let mut jobs = Fleet::versions(3, 5, &effect());
        jobs.push(unknown);
        jobs.push(Fleet::job("after", "key1", 7, &effect()));
        fleet.expect_settled_otherwise(&["unknown"]);
        fleet.enqueue(jobs.clone());
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        let letter = the_only(&fleet.dead());
        assert_eq!((letter.reason, letter.job.as_slice()), (DeadReason::UnknownKind, &b"unknown"[..]));
        assert!(letter.error.concat().contains("unheard-of"), "{:?}", letter.error);
    });
}

fn the_only(dead: &[DeadView]) -> gristmill_job::DeadLetter {
    assert_eq!(dead.len(), 1, "{dead:?}");
    dead[0].letter.clone().unwrap()
}

#[test]
fn a_panic_costs_an_attempt_and_no_slot() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        // Three slots, and thirty jobs that panic at once and again.
        let mut node = fleet.node_with(&["--slots", "3"]);
        let panics = |n: usize| {
            let script = Script { panic_until: 2, wait_ms: (n % 2) as u64, ..effect() };
            Fleet::job(&format!("panics{n}"), &format!("panics{n}"), 1, &script)
        };
        let mut jobs: Vec<NewJob> = (0..30).map(panics).collect();
        jobs.extend(Fleet::versions(10, 5, &effect()));
        fleet.enqueue(jobs.clone());
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        let attempts: Vec<u32> = fleet.runs_of("panics7").iter().map(|run| run.attempt).collect();
        assert_eq!(attempts, [1, 2, 3]);
        let left = fleet.drain(&mut node);
        assert_eq!((left.counts.of("retried"), left.counts.of("restarts")), (60, 0), "{:?}", left.counts);
    });
}

#[test]
fn attempts_survive_the_node_and_an_exhausted_job_is_a_dead_letter() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let policy = ["--max-attempts", "5", "--backoff-ms", "300"];
        let mut first = fleet.node_with(&policy);
        let exhausts = Fleet::job("exhausts", "a", 1, &Script { fail_until: 99, ..effect() });
        let recovers = Fleet::job("recovers", "b", 1, &Script { fail_until: 4, ..effect() });
        let after = Fleet::job("after", "a", 2, &effect());
        let jobs = vec![exhausts, recovers, after];
        fleet.expect_settled_otherwise(&["exhausts"]);
        fleet.enqueue(jobs.clone());
        eventually(SOON, "the second attempt of both", || {
            let second = |id| fleet.runs_of(id).iter().any(|run| run.attempt == 2);
            (second("exhausts") && second("recovers")).then_some(())
        });
        fleet.kill(&mut first);
        let _second = fleet.node_with(&policy);
        fleet.wait_settled();
        fleet.assert_effects(&jobs);

        for (id, last) in [("exhausts", 5), ("recovers", 5)] {
            let attempts: Vec<u32> = fleet.runs_of(id).iter().map(|run| run.attempt).collect();
            // The attempt that the kill cut short is run again under its number; none is skipped or forgotten.
            assert_eq!((attempts[0], *attempts.last().unwrap()), (1, last), "{id}: {attempts:?}");
            assert!(attempts.windows(2).all(|w| w[1] == w[0] || w[1] == w[0] + 1), "{id}: {attempts:?}");
            let repeated = attempts.windows(2).filter(|w| w[1] == w[0]).count();
            assert!(repeated <= 1, "{id}: only the kill repeats an attempt: {attempts:?}");
        }
        let letter = the_only(&fleet.dead());
        assert_eq!((letter.reason, letter.attempts), (DeadReason::Exhausted, 5));
        assert_eq!((letter.job.as_slice(), letter.key.as_slice()), (&b"exhausts"[..], &b"a"[..]));
        assert!(letter.error.concat().contains("at attempt 5"), "{:?}", letter.error);
        assert_eq!(letter.class.as_deref(), Some("transient"));
        assert!(letter.node.starts_with("node2~"), "{}", letter.node);
        assert!(!letter.envelope.is_empty());
    });
}

#[test]
fn a_permanent_error_is_dead_at_once() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let _node = fleet.node();
        let mut jobs = vec![Fleet::job("hopeless", "a", 1, &Script { permanent: true, ..effect() })];
        jobs.push(Fleet::job("after", "a", 2, &effect()));
        fleet.expect_settled_otherwise(&["hopeless"]);
        fleet.enqueue(jobs.clone());
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        assert_eq!(fleet.runs_of("hopeless").len(), 1);
        let letter = the_only(&fleet.dead());
        assert_eq!((letter.reason, letter.attempts), (DeadReason::Permanent, 1));
        assert_eq!(letter.class.as_deref(), Some("permanent"));
    });
}
