//! Keys stay in order: the jobs of a key succeed in the order of their places, one at a time, through retries, kills,
//! drains, hand-overs, broken connections and lost answers.

use gristmill_job::NewJob;
use gristmill_testkit::eventually;
use gristmill_testkit::seed::{SplitMix64, seed};
use gristmill_tests::fleet::{Fleet, SOON};
use gristmill_tests::script::Script;
use gristmill_tests::servers::on_servers;
use std::time::Duration;

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

/// Versions of many keys; some fail, some panic, before they succeed.
fn troubled(keys: usize, versions: u64, rng: &mut SplitMix64) -> Vec<NewJob> {
    let mut jobs = Vec::new();
    for version in 1..=versions {
        for k in 0..keys {
            let mut script = Script { wait_ms: rng.below(6), ..effect() };
            match rng.below(10) {
                0 => script.fail_until = 1 + rng.below(3) as u32,
                1 => script.panic_until = 1,
                _ => {}
            }
            jobs.push(Fleet::job(&format!("key{k}:{version}"), &format!("key{k}"), version, &script));
        }
    }
    jobs
}

#[test]
fn across_retries_and_kills() {
    on_servers(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options);
        let mut nodes = fleet.nodes(2);
        let jobs = troubled(30, 30, &mut rng);
        fleet.enqueue(jobs.clone());
        for victim in [0, 1, 0] {
            fleet.wait_started_more(1 + rng.below(200) as usize);
            fleet.kill(&mut nodes[victim]);
            nodes[victim] = fleet.node();
        }
        fleet.wait_settled();
        let report = fleet.assert_effects(&jobs);
        assert!(report.runs > report.jobs, "{report}");
    });
}

#[test]
fn across_a_rolling_deploy() {
    on_servers(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options);
        let mut nodes = fleet.nodes(3);
        let jobs = troubled(30, 60, &mut rng);
        fleet.enqueue(jobs.clone());
        for node in &mut nodes {
            fleet.wait_started_more(1 + rng.below(100) as usize);
            // Surge first, as a deployment does: the new node takes partitions while the old one still serves.
            let new = fleet.node();
            let left = fleet.drain(node);
            assert!(left.status.success() && left.abandoned == 0, "{}", left.line);
            assert_eq!(left.counts.tenures_lost(), 0, "{:?}", left.counts);
            *node = new;
        }
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        assert!(fleet.dead().is_empty());
    });
}

#[test]
fn across_broken_connections() {
    on_servers(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options);
        let mut nodes = fleet.nodes(2);
        let jobs = troubled(30, 40, &mut rng);
        fleet.enqueue(jobs.clone());
        let mut killed = 0;
        for _ in 0..6 {
            fleet.wait_started_more(1 + rng.below(120) as usize);
            // None where they are still being made again after the last time.
            killed += fleet.server.kill_client_connections().unwrap();
        }
        assert!(killed > 0);
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        let ends: u64 = nodes.iter_mut().map(|node| fleet.drain(node).counts.of("end.connection")).sum();
        assert!(ends > 0, "the connections were replaced, and their tenures with them");
    });
}

/// V1: the claim was executed, its answer is lost, the lease is kept: what it took must not be overtaken, nor lie for ever.
#[test]
fn when_the_answer_of_a_claim_is_lost() {
    on_servers(|options| {
        let (mut fleet, proxy) = Fleet::behind_proxy(options);
        let key = Fleet::key_in(3, 0);
        let jobs: Vec<NewJob> =
            (1..=6).map(|v| Fleet::job(&format!("{key}:{v}"), &key, v, &effect())).collect();
        fleet.enqueue(jobs[..2].to_vec());
        let answer = proxy.hold_next_reply(fleet.claim_of(3));
        let _node = fleet.node();
        answer.wait_held(SOON).unwrap();
        assert_eq!(fleet.partitions()[3].claimed, 2, "claimed, and its owner does not know");
        fleet.enqueue(jobs[2..].to_vec());
        fleet.wait_settled();
        answer.release();
        fleet.assert_effects(&jobs);
    });
}

/// V1 again, by a connection that breaks behind the claim, again and again.
#[test]
fn when_connections_break_right_behind_claims() {
    on_servers(|options| {
        let (mut fleet, proxy) = Fleet::behind_proxy(options);
        let _node = fleet.node();
        let jobs = Fleet::versions(16, 40, &Script { wait_ms: 2, ..effect() });
        for portion in jobs.chunks(120) {
            let fault = proxy.cut_after_next_request("XREADGROUP");
            fleet.enqueue(portion.to_vec());
            fault.wait(SOON).unwrap();
        }
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
    });
}

/// V2: a claim of the tenure before arrives late. It must take nothing: nobody would know of it.
#[test]
fn when_a_claim_of_the_connection_before_arrives_late() {
    on_servers(|options| {
        let (mut fleet, proxy) = Fleet::behind_proxy(options);
        let key = Fleet::key_in(5, 0);
        let _node = fleet.node();
        fleet.wait_shared_by(1);
        // A slow look for work, held on its way; then its connection breaks.
        let late = proxy.hold_next_request(fleet.claim_of(5));
        late.wait_held(SOON).unwrap();
        let next = proxy.hold_next_request(fleet.claim_of(5));
        proxy.cut();
        // The next tenure's first claim is held too, so that the late one comes first.
        next.wait_held(SOON).unwrap();
        let jobs: Vec<NewJob> =
            (1..=4).map(|v| Fleet::job(&format!("{key}:{v}"), &key, v, &effect())).collect();
        fleet.enqueue(jobs.clone());
        late.release(SOON).unwrap();
        let view = fleet.partitions()[5].clone();
        assert_eq!((view.ready, view.claimed), (4, 0), "the late claim took something");
        next.release(SOON).unwrap();
        fleet.wait_settled();
        let report = fleet.assert_effects(&jobs);
        assert_eq!(report.runs, 4);
    });
}

/// V11: answers that come late and in bulk bring no settled job back to life.
#[test]
fn when_answers_come_late_in_bulk() {
    on_servers(|options| {
        let (mut fleet, proxy) = Fleet::behind_proxy(options);
        let mut node = fleet.node();
        let jobs = Fleet::versions(20, 60, &Script { wait_ms: 10, ..effect() });
        fleet.enqueue(jobs.clone());
        for _ in 0..4 {
            fleet.wait_started_more(40);
            proxy.hold_replies();
            proxy.wait_held(SOON).unwrap();
            // not a wait: how long the fault lasts, shorter than any timeout
            std::thread::sleep(Duration::from_millis(400));
            proxy.release_replies();
        }
        fleet.wait_settled();
        let report = fleet.assert_effects(&jobs);
        assert_eq!(report.runs, report.jobs, "a settled job ran again: {report}");
        assert_eq!(fleet.drain(&mut node).counts.tenures_lost(), 0);
    });
}

/// A head that waits for its next attempt holds back its own key, and no other.
#[test]
fn a_failing_head_blocks_its_key_alone() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let _node = fleet.node_with(&["--backoff-ms", "3000"]);
        let (stuck, free) = (Fleet::key_in(2, 0), Fleet::key_in(2, 1));
        let mut jobs = vec![Fleet::job("head", &stuck, 1, &Script { fail_until: 2, ..effect() })];
        jobs.push(Fleet::job("behind", &stuck, 2, &effect()));
        jobs.extend((1..=20).map(|v| Fleet::job(&format!("free{v}"), &free, v, &effect())));
        fleet.enqueue(jobs.clone());
        eventually(SOON, "the other key's jobs", || {
            fleet.entity(&free).is_some_and(|entity| entity.changes == 20).then_some(())
        });
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        let (head, behind) = (fleet.runs_of("head"), fleet.runs_of("behind"));
        assert_eq!((head.len(), behind.len()), (3, 1));
        assert!(behind[0].started_us > head[2].started_us);
    });
}
