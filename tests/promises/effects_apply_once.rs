//! Effects apply once: whatever is repeated, killed or left without an answer, an entity changes once per job.

use gristmill_job::{DeadReason, NewJob, partition_of};
use gristmill_testkit::seed::{SplitMix64, seed};
use gristmill_tests::fleet::{Fleet, PARTITIONS, SOON};
use gristmill_tests::script::Script;
use gristmill_tests::servers::on_servers;

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

#[test]
fn an_id_that_is_enqueued_again_before_or_after_its_verdict_changes_nothing() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let jobs = Fleet::versions(10, 10, &effect());
        let first = fleet.enqueue(jobs.clone());
        assert!(first.iter().all(|enqueued| enqueued.duplicate_of.is_none()), "{first:?}");
        let waiting = fleet.enqueue(jobs.clone());
        assert!(waiting.iter().all(|enqueued| enqueued.duplicate_of.is_some()), "{waiting:?}");
        // A mark lives as long as its job, however long that waits, and its window begins at the verdict (V34, V35).
        let seen = fleet.queue().partition(partition_of(b"key0", PARTITIONS)).seen(b"key0:1");
        let ends_in = |fleet: &Fleet| fleet.server.command(&[&b"PTTL"[..], &seen]).unwrap().as_int();
        assert_eq!(ends_in(&fleet), Some(-1));
        let mut node = fleet.node();
        fleet.wait_settled();
        assert!(ends_in(&fleet) > Some(0));
        let settled = fleet.enqueue(jobs.clone());
        assert!(settled.iter().all(|enqueued| enqueued.duplicate_of.is_some()), "{settled:?}");
        fleet.wait_settled();
        let report = fleet.assert_effects(&jobs);
        assert_eq!(report.runs, 100);
        assert_eq!(fleet.drain(&mut node).counts.of("done"), 100);
    });
}

#[test]
fn of_two_copies_of_an_id_one_applies() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let jobs = Fleet::versions(10, 1, &effect());
        fleet.enqueue(jobs.clone());
        // The marks are lost, as in a failover to a history that had them not: the ids come in once more.
        for job in &jobs {
            let keys = fleet.queue().partition(partition_of(job.key.as_bytes(), PARTITIONS));
            let seen = keys.seen(job.id.as_ref().unwrap().as_bytes());
            assert_eq!(fleet.server.command(&[&b"DEL"[..], &seen]).unwrap().as_int(), Some(1));
        }
        fleet.enqueue(jobs.clone());
        let mut node = fleet.node();
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        let counts = fleet.drain(&mut node).counts;
        assert_eq!((counts.of("done"), counts.of("duplicate")), (10, 10), "{counts:?}");
    });
}

#[test]
fn a_version_that_is_not_newer_changes_nothing() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut node = fleet.node();
        let job = |id: &str, version| Fleet::job(id, "a", version, &effect());
        let jobs = vec![job("five", 5), job("three", 3), job("five again", 5), job("six", 6)];
        fleet.expect_settled_otherwise(&["three", "five again"]);
        fleet.expect_no_order(&["three", "five again"]);
        fleet.enqueue(jobs.clone());
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        let entity = fleet.entity("a").unwrap();
        assert_eq!((entity.version, &entity.state[..], entity.changes), (6, &b"6"[..], 2));
        assert_eq!(fleet.drain(&mut node).counts.of("stale"), 2);
    });
}

#[test]
fn kills_and_a_producer_that_repeats_itself_double_nothing() {
    on_servers(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options);
        let mut nodes = fleet.nodes(2);
        let jobs = Fleet::versions(30, 30, &Script { wait_ms: 3, ..effect() });
        let (mut sent, mut killed) = (0, 0);
        while sent < jobs.len() {
            let count = (1 + rng.below(60) as usize).min(jobs.len() - sent);
            fleet.enqueue(jobs[sent..sent + count].to_vec());
            sent += count;
            // Something that was enqueued before, in whatever state it is by now.
            let again = rng.below(sent as u64) as usize;
            fleet.enqueue(jobs[again..(again + 20).min(sent)].to_vec());
            if killed < 4 && rng.one_in(6) {
                fleet.wait_started_more(1);
                let victim = rng.below(2) as usize;
                fleet.kill(&mut nodes[victim]);
                nodes[victim] = fleet.node();
                killed += 1;
            }
        }
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
    });
}

#[test]
fn a_settle_whose_answer_is_lost_applies_once_and_ends() {
    on_servers(|options| {
        let (mut fleet, proxy) = Fleet::behind_proxy(options);
        let mut node = fleet.node();
        let jobs = Fleet::versions(6, 30, &Script { wait_ms: 5, ..effect() });
        let needles = [fleet.settle_of("key1"), fleet.settle_of("key4")];
        let executed = needles.iter().map(|needle| proxy.cut_after_next_request(needle));
        let mut faults: Vec<_> = executed.collect();
        fleet.enqueue(jobs.clone());
        for fault in &faults {
            fault.wait(SOON).unwrap();
        }
        // And a few that were lost before they reached the server.
        faults = needles.iter().map(|needle| proxy.cut_before_next_request(needle)).collect();
        for fault in &faults {
            fault.wait(SOON).unwrap();
        }
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        let left = fleet.drain(&mut node);
        assert!(left.counts.of("end.connection") > 0, "{:?}", left.counts);
    });
}

#[test]
fn a_settle_that_is_repeated_within_its_tenure_applies_once() {
    on_servers(|options| {
        let (mut fleet, proxy) = Fleet::behind_proxy(options);
        // Trusted for long and renewed seldom, so that no other call of the connection stays without an answer.
        let mut node = fleet.node_with(&["--lease-ms", "60000"]);
        fleet.wait_shared_by(1);
        // One through each partition, so that nothing of a tenure's beginning is under way any more.
        let first = |p| Fleet::job(&format!("first{p}"), &Fleet::key_in(p, 0), 1, &effect());
        fleet.enqueue((0..PARTITIONS).map(first).collect());
        fleet.wait_settled();
        let jobs = Fleet::versions(1, 20, &effect());
        let needle = fleet.settle_of("key0");
        let answer = proxy.hold_next_reply(&needle);
        fleet.enqueue(jobs[..1].to_vec());
        answer.wait_held(SOON).unwrap();
        assert_eq!(fleet.entity("key0").unwrap().changes, 1, "it was executed, and its answer held");
        // The owner's patience ends and it sends the call again, under the same number.
        let repeat = proxy.hold_next_request(&needle);
        repeat.wait_held(SOON).unwrap();
        answer.release();
        repeat.release(SOON).unwrap();
        fleet.enqueue(jobs[1..].to_vec());
        fleet.wait_settled();
        let report = fleet.assert_promises();
        assert_eq!(fleet.entity("key0").unwrap().changes, 20);
        assert_eq!(report.runs, report.jobs, "the repeat was answered, so nothing ran again: {report}");
        let left = fleet.drain(&mut node);
        assert_eq!(left.counts.tenures_lost(), 0, "{:?}", left.counts);
    });
}

#[test]
fn a_settle_whose_answer_never_comes_applies_once_and_ends() {
    on_servers(|options| {
        let (mut fleet, proxy) = Fleet::behind_proxy(options);
        let _node = fleet.node();
        let jobs = Fleet::versions(4, 20, &effect());
        let answer = proxy.hold_next_reply(fleet.settle_of("key0"));
        fleet.enqueue(jobs.clone());
        answer.wait_held(SOON).unwrap();
        // The connection stays silent for ever; the node must give it up by itself.
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        answer.release();
    });
}

/// Jobs that emit one job each into another queue.
fn emitting() -> Vec<NewJob> {
    Fleet::versions(4, 5, &Script { emit: Some("second".into()), ..effect() })
}

/// Kills the only node when its next call of `script`, on the way of emitted jobs, is under way; lets the call arrive late.
fn emitted_jobs_arrive_once_although_killed_before(script: &str) {
    on_servers(|options| {
        let (mut fleet, proxy) = Fleet::behind_proxy(options);
        let jobs = emitting();
        fleet.expect_emitted("second", &jobs);
        let queues = ["--queues", "work,second"];
        let mut first = fleet.node_with(&queues);
        let held = proxy.hold_next_request(fleet.script_hash(script));
        fleet.enqueue(jobs.clone());
        held.wait_held(SOON).unwrap();
        assert!(fleet.partitions().iter().any(|view| view.outbox > 0), "settled, and not yet forwarded");
        fleet.kill(&mut first);
        let _other = fleet.node_with(&queues);
        fleet.wait_settled();
        held.release(SOON).unwrap();
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
    });
}

#[test]
fn emitted_jobs_arrive_once_although_the_node_dies_between_settle_and_forward() {
    emitted_jobs_arrive_once_although_killed_before("enqueue");
}

#[test]
fn emitted_jobs_arrive_once_although_the_node_dies_between_forward_and_its_note() {
    emitted_jobs_arrive_once_although_killed_before("forward");
}

/// V39: what Redis refuses to write is a dead letter by itself; the other jobs of its batch are settled.
#[test]
fn a_job_whose_effect_cannot_be_written_harms_no_other() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let jobs = Fleet::versions(20, 3, &effect());
        fleet.enqueue(jobs.clone());
        let spoilt = fleet.settle_of("key7");
        fleet.server.command(&[&b"SET"[..], &spoilt, b"no entity"]).unwrap();
        let mut node = fleet.node();
        fleet.wait_settled();
        assert!(fleet.server.command(&[&b"DEL"[..], &spoilt]).is_ok());
        fleet.expect_settled_otherwise(&["key7:1", "key7:2", "key7:3"]);
        fleet.assert_effects(&jobs);
        let dead = fleet.dead();
        let reasons: Vec<_> = dead.iter().map(|view| view.letter.as_ref().unwrap().reason).collect();
        assert_eq!(reasons, [DeadReason::Rejected; 3]);
        let counts = fleet.drain(&mut node).counts;
        assert_eq!((counts.of("rejected"), counts.of("dead")), (3, 3), "{counts:?}");
    });
}

/// V18: a retry that is repeated, or whose answer is lost with the connection, is charged once.
#[test]
fn a_retry_whose_answer_is_lost_is_charged_once() {
    on_servers(|options| {
        let (mut fleet, proxy) = Fleet::behind_proxy(options);
        let _node = fleet.node();
        let retry = "$5\r\nretry\r\n";
        let fault = proxy.cut_after_next_request(retry);
        let jobs = vec![
            Fleet::job("fails", "a", 1, &Script { fail_until: 3, ..effect() }),
            Fleet::job("behind", "a", 2, &effect()),
        ];
        fleet.enqueue(jobs.clone());
        fault.wait(SOON).unwrap();
        let answer = proxy.hold_next_reply(retry);
        answer.wait_held(SOON).unwrap();
        let repeat = proxy.hold_next_request(retry);
        // Repeated within its tenure, or by then the connection was given up and the next attempt fails in the next one.
        repeat.wait_held(SOON).unwrap();
        answer.release();
        repeat.release(SOON).unwrap();
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        let attempts: Vec<u32> = fleet.runs_of("fails").iter().map(|run| run.attempt).collect();
        assert_eq!(attempts, [1, 2, 3, 4]);
    });
}
