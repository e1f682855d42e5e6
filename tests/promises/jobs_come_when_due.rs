//! Jobs for later become ready when they are due: in the order of due time and then of enqueue, whoever dies meanwhile, a
//! hundred or thousands at once, and beside everything else.

use gristmill_job::{NewJob, UnixMillis};
use gristmill_testkit::eventually;
use gristmill_testkit::history::now_us;
use gristmill_testkit::seed::{SplitMix64, seed};
use gristmill_tests::fleet::{Fleet, SOON};
use gristmill_tests::script::Script;
use gristmill_tests::servers::on_servers;
use std::collections::BTreeMap;
use std::time::Duration;

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

/// What the clocks of Redis (ms) and of the histories (µs) show at the same moment.
pub(crate) fn clocks(fleet: &Fleet) -> (u64, u64) {
    let time = fleet.server.command(&[b"TIME"]).unwrap();
    let part = |n: usize| time.as_array().unwrap()[n].as_str().unwrap().parse::<u64>().unwrap();
    (part(0) * 1000 + part(1) / 1000, now_us())
}

/// Jobs of many keys, each due so many ms (of `steps` steps of 20 ms) behind `first`; the versions of a key rise in the order in
/// which they must run. In the order in which they are enqueued, with their due times.
fn due_later(keys: usize, each: usize, first: u64, steps: u64, rng: &mut SplitMix64) -> Vec<(u64, NewJob)> {
    let mut planned: Vec<(u64, usize)> = Vec::new();
    for _ in 0..each {
        planned.extend((0..keys).map(|key| (first + 20 * rng.below(steps), key)));
    }
    let mut versions: BTreeMap<usize, Vec<(u64, usize)>> = BTreeMap::new();
    for (index, (at, key)) in planned.iter().enumerate() {
        versions.entry(*key).or_default().push((*at, index));
    }
    versions.values_mut().for_each(|order| order.sort_unstable());
    let job = |(index, (at, key)): (usize, &(u64, usize))| {
        let version = versions[key].iter().position(|(_, planned)| *planned == index).unwrap() as u64 + 1;
        let mut script = effect();
        if rng.below(12) == 0 {
            script.fail_until = 1;
        }
        let job = Fleet::job(&format!("key{key}:{version}"), &format!("key{key}"), version, &script);
        (*at, job.due_at(UnixMillis(*at)))
    };
    planned.iter().enumerate().map(job).collect()
}

pub(crate) fn jobs_of(planned: &[(u64, NewJob)]) -> Vec<NewJob> {
    planned.iter().map(|(_, job)| job.clone()).collect()
}

/// Nothing started before it was due. Tells how late first runs started, at the middle and at the 99th of 100.
pub(crate) fn punctual(fleet: &Fleet, planned: &[(u64, NewJob)], (redis_ms, at_us): (u64, u64), what: &str) {
    let history = fleet.history();
    let mut first: BTreeMap<&str, u64> = BTreeMap::new();
    for run in &history.runs {
        let started = first.entry(&run.job.id).or_insert(u64::MAX);
        *started = run.started_us.min(*started);
    }
    let mut late: Vec<i64> = Vec::new();
    for (due, job) in planned {
        let started = first[job.id.as_ref().unwrap().to_string().as_str()];
        let due_us = (at_us + due * 1000) as i64 - (redis_ms * 1000) as i64;
        late.push(started as i64 - due_us);
    }
    late.sort_unstable();
    // The clock of Redis was read in whole milliseconds, and a moment before the other.
    assert!(late[0] > -5_000, "a job started {} µs before it was due", -late[0]);
    let at = |percent: usize| late[(late.len() - 1) * percent / 100];
    eprintln!("{what}: due to start p50 {} µs, p99 {} µs, of {} jobs", at(50), at(99), late.len());
}

#[test]
fn in_the_order_of_due_time_and_then_of_enqueue_and_never_early() {
    on_servers(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options);
        let _nodes = fleet.nodes(2);
        let clocks = clocks(&fleet);
        let planned = due_later(12, 12, clocks.0 + 5000, 8, &mut rng);
        // One call each, so that no batch hides the order.
        for (_, job) in &planned {
            let enqueued = fleet.enqueue(vec![job.clone()]);
            assert!(enqueued[0].delayed.is_some(), "{enqueued:?}");
        }
        fleet.wait_settled();
        fleet.assert_effects(&jobs_of(&planned));
        punctual(&fleet, &planned, clocks, "calm");
    });
}

/// An empty set, nodes that sleep, and a job that is due before they would look again: the bell tells.
pub(crate) fn a_new_first_is_heard_of(fleet: &mut Fleet) {
    let (began_ms, _) = clocks(fleet);
    for n in 1..=30 {
        let job = Fleet::job(&format!("job{n}"), &format!("key{}", n % 5), n, &Script::default());
        let job = job.due_in(Duration::from_millis(60));
        assert!(fleet.enqueue(vec![job])[0].delayed.is_some());
        let id = format!("job{n}");
        eventually(SOON, "the job to run", || (!fleet.runs_of(&id).is_empty()).then_some(()));
    }
    fleet.wait_settled();
    assert_eq!(fleet.assert_promises().runs, 30);
    let (end_ms, _) = clocks(fleet);
    eprintln!("30 jobs, each due 60 ms after the one before ran: {} ms", end_ms - began_ms);
}

#[test]
fn a_new_first_is_heard_of_without_waiting_for_a_renewal() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let _node = fleet.node();
        fleet.wait_shared_by(1);
        a_new_first_is_heard_of(&mut fleet);
    });
}

#[test]
fn thousands_due_at_once_come_in_order_and_other_jobs_go_on_beside_them() {
    on_servers(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options);
        let _nodes = fleet.nodes(2);
        let clocks = clocks(&fleet);
        let planned = due_later(100, 40, clocks.0 + 5000, 2, &mut rng);
        fleet.enqueue(jobs_of(&planned));
        let beside = Fleet::versions(20, 5, &Script { effect: true, ..Script::default() });
        let beside: Vec<NewJob> = beside
            .into_iter()
            .map(|job| NewJob { key: gristmill_job::Key::new(format!("beside {}", job.key)).unwrap(), ..job })
            .map(|job| job.clone().with_id(&format!("beside {}", job.id.unwrap())).unwrap())
            .collect();
        eventually(SOON, "some of them to run", || (fleet.history().runs.len() > 200).then_some(()));
        fleet.enqueue(beside.clone());
        fleet.wait_settled();
        let all: Vec<NewJob> = jobs_of(&planned).into_iter().chain(beside).collect();
        fleet.assert_effects(&all);
        punctual(&fleet, &planned, clocks, "four thousand at once");
    });
}

#[test]
fn kills_during_promotions_lose_and_double_nothing() {
    on_servers(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options);
        let mut nodes = fleet.nodes(2);
        let clocks = clocks(&fleet);
        let planned = due_later(60, 40, clocks.0 + 5000, 60, &mut rng);
        let enqueued = fleet.enqueue(jobs_of(&planned));
        assert!(enqueued.iter().all(|job| job.delayed.is_some()), "some were due before they were enqueued");
        for victim in [0, 1, 0] {
            fleet.wait_started_more(1 + rng.below(300) as usize);
            fleet.kill(&mut nodes[victim]);
            nodes[victim] = fleet.node();
        }
        fleet.wait_settled();
        fleet.assert_effects(&jobs_of(&planned));
    });
}

/// The owner dies with a promote that was executed and not answered, or sent and not executed, which then arrives late.
#[test]
fn a_promote_whose_answer_is_lost_or_that_arrives_late_moves_each_job_once() {
    on_servers(|options| {
        for late in [false, true] {
            let (mut fleet, proxy) = Fleet::behind_proxy(options.clone());
            let key = Fleet::key_in(2, 0);
            let mut first = fleet.node();
            fleet.wait_shared_by(1);
            let job = |v: u64| Fleet::job(&format!("{key}:{v}"), &key, v, &effect());
            let jobs: Vec<NewJob> = (1..=6).map(|v| job(v).due_in(Duration::from_millis(300))).collect();
            // What only a promote that moves these jobs contains.
            let needle = format!(":1:{key}:1");
            let (request, reply) = if late {
                (Some(proxy.hold_next_request(&needle)), None)
            } else {
                (None, Some(proxy.hold_next_reply(&needle)))
            };
            fleet.enqueue(jobs.clone());
            if let Some(reply) = &reply {
                reply.wait_held(SOON).unwrap();
                assert_eq!(fleet.partitions()[2].ready, 6, "executed, and its owner does not know");
            }
            if let Some(request) = &request {
                request.wait_held(SOON).unwrap();
                assert_eq!(fleet.partitions()[2].delayed, 6, "not executed yet");
            }
            fleet.kill(&mut first);
            let _second = fleet.node();
            fleet.wait_settled();
            if let Some(request) = request {
                // It finds another owner, or nobody's connection; either way nothing happens.
                let _ = request.release(SOON);
            }
            drop(reply);
            let report = fleet.assert_effects(&jobs);
            assert_eq!(report.runs, 6, "nothing ran twice: {report}");
        }
    });
}

/// Thirty jobs are overdue before the first node comes.
pub(crate) fn the_first_node_promotes(mut fleet: Fleet, jobs: Vec<NewJob>) {
    let jobs: Vec<NewJob> = jobs.into_iter().map(|job| job.due_in(Duration::from_millis(1))).collect();
    fleet.enqueue(jobs.clone());
    let overdue = eventually(SOON, "all of them overdue", || {
        let views = fleet.partitions();
        let late = |view: &gristmill_broker::inspect::PartitionView| {
            view.delayed == 0 || view.due.is_some_and(|due| due < view.now)
        };
        views.iter().all(late).then(|| views.iter().map(|view| view.delayed).sum::<u64>())
    });
    assert_eq!(overdue, 30);
    let _node = fleet.node();
    fleet.wait_settled();
    fleet.assert_effects(&jobs);
}

#[test]
fn with_no_owner_nothing_is_promoted_and_the_first_owner_promotes_at_once() {
    on_servers(|options| the_first_node_promotes(Fleet::start(options), Fleet::versions(10, 3, &effect())));
}

#[test]
fn a_delayed_set_deleted_by_hand_takes_its_jobs_and_nothing_else() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut nodes = fleet.nodes(2);
        let later: Vec<NewJob> = Fleet::versions(16, 2, &effect())
            .into_iter()
            .map(|job| job.clone().with_id(&format!("lost {}", job.id.unwrap())).unwrap())
            .map(|job| job.due_in(Duration::from_secs(3600)))
            .collect();
        fleet.try_enqueue(&later).unwrap();
        for partition in 0..fleet.queue().partitions {
            let keys = fleet.queue().partition(partition);
            let (set, bodies) = (keys.delayed.into_bytes(), keys.delayed_bodies.into_bytes());
            match partition % 3 {
                0 => fleet.server.command(&[&b"DEL"[..], &set, &bodies]).unwrap(),
                1 => fleet.server.command(&[&b"DEL"[..], &set]).unwrap(),
                // Named still, and due now.
                _ => {
                    fleet.server.command(&[&b"DEL"[..], &bodies]).unwrap();
                    let members = fleet.server.command(&[&b"ZRANGE"[..], &set, b"0", b"-1"]).unwrap();
                    for member in members.as_array().unwrap() {
                        let member = member.as_str().unwrap().as_bytes();
                        fleet.server.command(&[&b"ZADD"[..], &set, b"5", member]).unwrap();
                    }
                    fleet.server.command(&[&b"ZCARD"[..], &set]).unwrap()
                }
            };
        }
        let jobs = Fleet::versions(16, 4, &effect());
        let (now, soon) = jobs.split_at(32);
        let soon: Vec<NewJob> =
            soon.iter().map(|job| job.clone().due_in(Duration::from_millis(200))).collect();
        fleet.enqueue(now.to_vec());
        fleet.enqueue(soon);
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        for node in &mut nodes {
            assert_eq!(fleet.drain(node).counts.tenures_lost(), 0, "no tenure ended of it");
        }
    });
}

/// Through the outbox of the parent's partition and the delayed set of the child's, by owners that die.
#[test]
fn emitted_jobs_for_later_arrive_once_although_their_owners_die() {
    on_servers(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options);
        let script = Script { emit: Some("second".into()), emit_in_ms: 400, ..effect() };
        let jobs = Fleet::versions(20, 12, &script);
        fleet.expect_emitted("second", &jobs);
        let queues = ["--queues", "work,second"];
        let mut nodes = [fleet.node_with(&queues), fleet.node_with(&queues)];
        fleet.enqueue(jobs.clone());
        for victim in [0, 1] {
            fleet.wait_started_more(1 + rng.below(100) as usize);
            fleet.kill(&mut nodes[victim]);
            nodes[victim] = fleet.node_with(&queues);
        }
        fleet.wait_settled();
        // A delay counts from the settle of each parent; those of a key are settled in order, and so come in order.
        fleet.assert_effects(&jobs);
    });
}
