//! What cannot be read ends clearly: whatever a foreign producer or a person's hand wrote, it is refused with words that
//! help, runs, or is a dead letter with its raw bytes; and the jobs beside it go on.

use gristmill_broker::discard::Discarded;
use gristmill_broker::replay::Replayed;
use gristmill_broker::state::Why;
use gristmill_job::envelope::SCHEMA_VERSION;
use gristmill_job::{ContentType, DeadReason, JobLimits, NewJob, UnixMillis, partition_of};
use gristmill_testkit::eventually;
use gristmill_testkit::seed::seed;
use gristmill_tests::fleet::{Fleet, PARTITIONS, SOON};
use gristmill_tests::script::{KIND, NEWER, Script};
use gristmill_tests::servers::{on_every_flavor, on_servers};
use std::time::Duration;

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

/// The envelope of a job of this payload, whatever its size.
fn envelope(payload: &[u8], content_type: ContentType) -> Vec<u8> {
    let job = NewJob::from_bytes(KIND, "a", payload.to_vec(), content_type).unwrap();
    let limits = JobLimits { max_envelope_bytes: usize::MAX };
    job.encode(UnixMillis(0), limits).unwrap().envelope.to_vec()
}

/// Writes an entry past the producer into the partition of its key.
fn write(fleet: &Fleet, id: &str, key: &[u8], envelope: &[u8]) {
    let partition = partition_of(key, PARTITIONS);
    fleet.write_raw(partition, &[(b"i", id.as_bytes()), (b"k", key), (b"d", envelope)]);
}

/// Each entry, in the middle of good jobs of its key, is a dead letter of this reason whose error says these words and whose
/// envelope is what was written; and nothing else is touched.
fn each_is_a_letter(more: &[&str], reason: DeadReason, entries: &[(&str, Vec<u8>, &str)]) {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let mut node = fleet.node_with(more);
        let jobs = Fleet::versions(entries.len(), 4, &effect());
        let (before, after) = jobs.split_at(2 * entries.len());
        fleet.enqueue(before.to_vec());
        for (n, (id, envelope, _)) in entries.iter().enumerate() {
            write(&fleet, id, format!("key{n}").as_bytes(), envelope);
        }
        fleet.enqueue(after.to_vec());
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        assert_eq!(fleet.dead().len(), entries.len());
        for (id, envelope, words) in entries {
            let letter = fleet.wait_letter(id).1;
            assert_eq!(letter.reason, reason, "{id}: {:?}", letter.error);
            assert!(letter.error.concat().contains(words), "{id}: {:?}", letter.error);
            assert!(letter.envelope == *envelope, "{id}: its raw bytes are kept");
        }
        let counts = fleet.drain(&mut node).counts;
        assert_eq!((counts.tenures_lost(), counts.of("restarts")), (0, 0), "{counts:?}");
    });
}

#[test]
fn an_envelope_that_is_too_large_too_deep_or_of_tomorrow() {
    let good = envelope(b"{}", ContentType::Json);
    let mut newer = good.clone();
    assert_eq!(&newer[1..4], [0xa1, b'v', SCHEMA_VERSION], "the schema version comes first");
    newer[3] = 99;
    let deep = [vec![0x91; 100_000], vec![0xc0]].concat();
    let entries = [
        ("newer", newer, "schema 99 is newer"),
        ("deep", deep, "not an envelope"),
        ("cut", good[..good.len() / 2].to_vec(), "not an envelope"),
        ("behind", [&good[..], b"more"].concat(), "bytes behind the end"),
        ("large", envelope(&vec![b' '; 200_000], ContentType::Json), "may have 65536 bytes"),
    ];
    // The deep one has 100 KB.
    each_is_a_letter(&["--max-bytes", "150000"], DeadReason::Undecodable, &entries[..4]);
    each_is_a_letter(&["--max-bytes", "65536"], DeadReason::Undecodable, &entries[4..]);
}

/// The handler's own decoding: wrong types, and payloads that would exhaust a stack.
#[test]
fn a_payload_that_is_no_such_payload() {
    let nested = |open: &str, close: &str| [open.repeat(50_000), close.repeat(50_000)].concat().into_bytes();
    let json = |payload: &[u8]| envelope(payload, ContentType::Json);
    let packed = |payload: &[u8]| envelope(payload, ContentType::MessagePack);
    let entries = [
        ("text", json(br#""a text""#), "script"),
        ("types", json(br#"{"wait_ms":"soon"}"#), "expected u64"),
        ("fields", json(br#"{"no_such_field":1}"#), "no_such_field"),
        ("cut", json(br#"{"wait_ms":"#), ""),
        ("nothing", json(b""), ""),
        ("binary", json(b"\xff\xfe\x00"), ""),
        ("deep", json(&nested("[", "]")), "nest"),
        ("deeper", json(&nested(r#"{"look":"#, "}")), "nest"),
        ("packed", packed(&[vec![0x91; 100_000], vec![0xc0]].concat()), "nest"),
        ("sized", packed(b"\xdd\xff\xff\xff\xff"), ""),
    ];
    each_is_a_letter(&[], DeadReason::Permanent, &entries);
}

#[test]
fn a_field_of_fifty_megabytes() {
    on_every_flavor(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let mut node = fleet.node();
        let large = vec![b'x'; 50 << 20];
        let mut jobs = vec![Fleet::job("before", "a", 1, &effect())];
        fleet.enqueue(jobs.clone());
        write(&fleet, "large", b"a", &large);
        jobs.push(Fleet::job("after", "a", 2, &effect()));
        jobs.extend(Fleet::versions(20, 5, &effect()));
        fleet.enqueue(jobs[1..].to_vec());
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        let letter = fleet.wait_letter("large").1;
        assert_eq!(letter.reason, DeadReason::Undecodable);
        assert!(letter.error.concat().contains("this has 52428800"), "{:?}", letter.error);
        assert!(letter.envelope == large, "its raw bytes are kept");
        assert_eq!(fleet.drain(&mut node).counts.of("restarts"), 0);
    });
}

/// The producer says what is wrong before anything is written.
#[test]
fn what_no_queue_takes_is_refused_with_words() {
    let build = |key: Vec<u8>| NewJob::from_bytes(KIND, key, &b"{}"[..], ContentType::Json);
    let error = |key: Vec<u8>| build(key).unwrap_err().to_string();
    assert!(error(Vec::new()).contains("needs a key of 1 to 1024 bytes, got none"));
    assert!(error(vec![b'k'; 10_240]).contains("at most 1024 bytes, got 10240"));
    let fleet = Fleet::start(gristmill_testkit::server::ServerOptions::new());
    let large = NewJob::from_bytes(KIND, "a", vec![b' '; 2 << 20], ContentType::Json).unwrap();
    let refused = fleet.try_enqueue(&[large]).unwrap_err().to_string();
    assert!(refused.contains("may have 1048576 bytes"), "{refused}");
    assert_eq!(fleet.partitions().iter().map(|view| view.ready).sum::<u64>(), 0);
}

/// Keys are bytes; what a foreign producer calls its entities, however long, is no reason to lose its jobs.
#[test]
fn a_key_of_any_bytes() {
    on_every_flavor(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let mut node = fleet.node_with(&["--backoff-ms", "50"]);
        let keys: [Vec<u8>; 6] = [
            b"\xff\xfe\x00\x80".to_vec(),
            b"a b\r\n$5\r\nc".to_vec(),
            b"{other}:stream".to_vec(),
            "schl\u{fc}ssel \u{1f511}".as_bytes().to_vec(),
            vec![0],
            vec![b'k'; 1024],
        ];
        let long = vec![b'l'; 10_240];
        // Of each key the first fails once, so that its line, and its lane, are by this key.
        let fails = serde_json::to_vec(&Script { fail_until: 1, ..effect() }).unwrap();
        for (n, key) in keys.iter().enumerate() {
            let job = |version: u64, payload: &[u8]| {
                let job = NewJob::from_bytes(KIND, key, payload.to_vec(), ContentType::Json).unwrap();
                job.with_id(&format!("{n}:{version}")).unwrap().with_version(version)
            };
            let second = serde_json::to_vec(&effect()).unwrap();
            fleet.try_enqueue(&[job(1, &fails), job(2, &second)]).unwrap();
        }
        write(&fleet, "long", &long, &envelope(&fails, ContentType::Json));
        write(&fleet, "empty", b"", &envelope(&fails, ContentType::Json));
        fleet.wait_settled();
        for (key, entity) in keys.iter().zip(fleet.entities(&keys)) {
            let entity = entity.unwrap_or_else(|| panic!("{:?} has no state", String::from_utf8_lossy(key)));
            assert_eq!((entity.version, entity.changes), (2, 2));
        }
        // The version of an envelope that says none is 0, which is newer than nothing.
        let long = fleet.entities(&[long]).remove(0).expect("a key that no producer of ours makes");
        assert_eq!(long.changes, 1);
        let letter = fleet.wait_letter("empty").1;
        assert!(letter.error.concat().contains("key"), "{:?}", letter.error);
        let counts = fleet.drain(&mut node).counts;
        assert_eq!((counts.tenures_lost(), counts.of("restarts")), (0, 0), "{counts:?}");
    });
}

/// A newer release brings a kind: its jobs wait, uncharged, until a node of it is there.
#[test]
fn an_unknown_kind_waits_for_a_node_that_serves_it() {
    on_every_flavor(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let mut old = fleet.node();
        let mut jobs = vec![Fleet::job_of(NEWER, "newer", "a", &effect())];
        jobs.push(Fleet::job("after", "a", 2, &effect()));
        fleet.enqueue(jobs.clone());
        let (_, line) = fleet.wait_line("a", "it waits", |line| line.why == Why::Kind);
        assert_eq!(line.attempts, 0, "waiting is no attempt");
        let others = Fleet::versions(20, 5, &effect());
        fleet.enqueue(others.clone());
        let keys: Vec<Vec<u8>> = others.iter().map(|job| job.key.as_bytes().to_vec()).collect();
        let done = |fleet: &Fleet| fleet.entities(&keys).iter().flatten().all(|entity| entity.version == 5);
        eventually(SOON, "the others go on", || done(&fleet).then_some(()));
        assert!(fleet.entity("a").is_none(), "the next of its key waits");
        let _new = fleet.node_with(&["--kinds", NEWER]);
        assert!(fleet.drain(&mut old).status.success());
        fleet.wait_settled();
        fleet.assert_effects(&[jobs, others].concat());
        let attempts: Vec<u32> = fleet.runs_of("newer").iter().map(|run| run.attempt).collect();
        assert_eq!((attempts, fleet.dead().len()), (vec![1], 0));
    });
}

/// Its job counts as never put back: it runs again rather than never, and its effect is applied once.
#[test]
fn a_line_that_was_deleted_or_overwritten_by_hand() {
    on_every_flavor(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let mut node = fleet.node();
        let written: [Option<&[u8]>; 5] =
            [None, Some(b"garbage"), Some(b"\xff\xfe\x00"), Some(b""), Some(b"7 3 0 retry - 0 - - 0 - ")];
        let waits = Script { snooze_ms: 1500, ..effect() };
        let key = |n: usize| format!("a{n}");
        let mut jobs: Vec<NewJob> =
            (0..written.len()).map(|n| Fleet::job(&format!("{n}:1"), &key(n), 1, &waits)).collect();
        jobs.extend((0..written.len()).map(|n| Fleet::job(&format!("{n}:2"), &key(n), 2, &effect())));
        fleet.enqueue(jobs.clone());
        for (n, text) in written.iter().enumerate() {
            let (place, _) = fleet.wait_line(&key(n), "it waits", |line| line.why == Why::Snooze);
            let state = fleet.keys_of(&key(n)).state;
            let place = place.to_string();
            match text {
                None => fleet.server.command(&[b"HDEL", state.as_bytes(), place.as_bytes()]).unwrap(),
                Some(text) => {
                    fleet.server.command(&[b"HSET", state.as_bytes(), place.as_bytes(), text]).unwrap()
                }
            };
        }
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        assert_eq!((fleet.lines().len(), fleet.dead().len()), (0, 0));
        assert_eq!(fleet.drain(&mut node).counts.of("restarts"), 0);
    });
}

/// A key of another type in one partition stops that partition until a person deletes it, and no other.
#[test]
fn a_key_of_another_type_stops_its_partition_alone() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let node = fleet.node();
        fleet.wait_shared_by(1);
        let state = fleet.queue().partition(0).state;
        fleet.server.command(&["SET", &state, "not a hash"]).unwrap();
        // It must be put back, which its partition cannot write.
        let fails = Script { fail_until: 1, ..effect() };
        let stuck = vec![Fleet::job("stuck", &Fleet::key_in(0, 0), 1, &fails)];
        fleet.enqueue(stuck.clone());
        fleet.wait_run_on("stuck", &node);
        let others: Vec<NewJob> =
            (1..PARTITIONS).map(|p| Fleet::job(&format!("o{p}"), &Fleet::key_in(p, 0), 1, &fails)).collect();
        fleet.enqueue(others.clone());
        eventually(SOON, "the other partitions go on", || {
            let done = |job: &NewJob| fleet.entity(&job.key.to_string()).is_some();
            others.iter().all(done).then_some(())
        });
        let before = node.cpu();
        // not a wait: the interval that is measured
        std::thread::sleep(Duration::from_secs(2));
        let used = node.cpu() - before;
        assert!(used < Duration::from_millis(600), "spinning: {used:?}");
        fleet.server.command(&["DEL", &state]).unwrap();
        fleet.wait_settled();
        fleet.assert_effects(&[stuck, others].concat());
    });
}

/// Half a letter is listed as what it is, can be discarded, and hides no other.
#[test]
fn a_letter_whose_record_is_gone_or_unreadable() {
    on_every_flavor(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        fleet.switch("broken", true);
        let _node = fleet.node();
        let broken = Script { permanent: true, fails_while: Some("broken".into()), ..effect() };
        let key = |n: usize| Fleet::key_in(0, n);
        let jobs: Vec<NewJob> = (0..4).map(|n| Fleet::job(&format!("a{n}"), &key(n), 1, &broken)).collect();
        fleet.enqueue(jobs.clone());
        let letters: Vec<_> = (0..4).map(|n| fleet.wait_letter(&format!("a{n}"))).collect();
        let keys = fleet.queue().partition(0);
        fleet.server.command(&["HDEL", &keys.dead_bodies, &letters[0].0.id]).unwrap();
        fleet.server.command(&["HSET", &keys.dead_bodies, &letters[1].0.id, "garbage"]).unwrap();
        let listed = fleet.dead();
        let errors: Vec<&str> =
            listed.iter().filter_map(|view| view.letter.as_ref().err()).map(String::as_str).collect();
        assert_eq!((listed.len(), errors.len()), (4, 2));
        assert!(errors.contains(&"its record is gone"), "{errors:?}");
        // Nothing can be replayed from nothing; the others can.
        assert_eq!(fleet.replay(&letters[0].0, &letters[0].1), Replayed::Gone);
        for broken in listed.iter().filter(|view| view.letter.is_err()) {
            assert_eq!(fleet.discard(broken), Discarded::Discarded);
        }
        assert_eq!(fleet.dead().len(), 2);
        fleet.switch("broken", false);
        for (view, letter) in &letters[2..] {
            assert_eq!(fleet.replay(view, letter), Replayed::Replayed);
        }
        fleet.wait_settled();
        fleet.expect_settled_otherwise(&["a0", "a1"]);
        fleet.assert_effects(&jobs);
        assert_eq!(fleet.dead().len(), 0);
    });
}
