//! Failures come together: poison, kills from outside, pauses, drains and people's acts at the same time still end every
//! job where it is expected, once, in order.

use gristmill_broker::release_key::ReleasedKey;
use gristmill_job::{DeadReason, NewJob};
use gristmill_testkit::eventually;
use gristmill_testkit::history::now_us;
use gristmill_testkit::proxy::Proxy;
use gristmill_testkit::seed::{SplitMix64, seed};
use gristmill_tests::fleet::{Fleet, PARTITIONS, SOON};
use gristmill_tests::script::{CAREFUL, Death, KIND, Script};
use gristmill_tests::servers::{on_every_flavor, on_servers};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const SIGTERM: i32 = 15;
const LONG: Duration = Duration::from_secs(150);

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

fn poison() -> Script {
    Script { dies: Some(Death::Abort), dies_after_ms: 30, ..effect() }
}

/// Two kills from outside are fewer than a budget of crashes: whatever they strike, no innocent job is dead.
#[test]
fn poison_and_two_kills_from_outside() {
    on_every_flavor(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options);
        let more = ["--slots", "8"];
        let mut nodes = [fleet.node_with(&more), fleet.node_with(&more), fleet.node_with(&more)];
        fleet.wait_shared_by(3);
        let mut jobs = Fleet::versions(40, 5, &Script { wait_ms: 80, ..effect() });
        jobs.insert(rng.below(100) as usize, Fleet::job("poison", "poison", 1, &poison()));
        fleet.enqueue(jobs.clone());
        // After so many runs, the last first.
        let mut kills = vec![101 + rng.below(99) as usize, 1 + rng.below(100) as usize];
        let victim = rng.below(3) as usize;
        let mut struck = 0;
        let mut deaths = 0;
        eventually(LONG, "everything settled", || {
            deaths += fleet.replace_dead(&mut nodes, &more);
            let started = fleet.history().runs.len();
            if kills.last().is_some_and(|at| *at <= started) {
                kills.pop();
                struck += 1;
                fleet.kill(&mut nodes[victim]);
                nodes[victim] = fleet.node_starting(&more);
            }
            fleet.is_settled().then_some(())
        });
        println!("{struck} kills, {deaths} deaths of the poison");
        assert!(deaths <= 5, "{deaths} processes died of one job");
        fleet.expect_settled_otherwise(&["poison"]);
        fleet.assert_effects(&jobs);
        assert_eq!(fleet.dead().len(), 1);
        assert_eq!(fleet.wait_letter("poison").1.reason, DeadReason::Crashed);
        assert!(fleet.history().runs.iter().all(|run| run.attempt == 1), "a death was counted as an attempt");
    });
}

/// What a person brings back survives the deaths of its owners, runs in order of place, and is applied once.
#[test]
fn replays_by_the_hundred_and_owners_that_die() {
    on_servers(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options);
        fleet.switch("broken", true);
        let hold = ["--after-dead-letter", "hold"];
        let mut node = fleet.node_with(&hold);
        let script = Script { permanent: true, fails_while: Some("broken".into()), wait_ms: 3, ..effect() };
        // Of each key the first version dies and holds the others.
        let jobs = Fleet::versions(120, 4, &script);
        fleet.enqueue(jobs.clone());
        let letters = eventually(SOON, "a letter of each key", || {
            Some(fleet.dead()).filter(|letters| letters.len() == 120)
        });
        fleet.switch("broken", false);
        let mut kills: Vec<usize> = (0..3).map(|_| rng.below(120) as usize).collect();
        kills.sort_unstable();
        for (n, view) in letters.iter().enumerate() {
            fleet.replay(view, view.letter.as_ref().unwrap());
            while kills.first() == Some(&n) {
                kills.remove(0);
                fleet.kill(&mut node);
                node = fleet.node_with(&hold);
            }
        }
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        assert_eq!((fleet.dead().len(), fleet.lines().len()), (0, 0));
    });
}

/// A poison job whose queue holds: its letter names the hold, and what waited goes on when a person says so.
#[test]
fn a_key_is_held_by_a_job_that_crashed() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let more = ["--after-dead-letter", "hold", "--crash-budget", "1"];
        let mut nodes = [fleet.node_with(&more)];
        let mut jobs = vec![Fleet::job("a:1", "a", 1, &poison())];
        jobs.push(Fleet::job("a:2", "a", 2, &effect()));
        fleet.enqueue(jobs.clone());
        let crashed = |fleet: &Fleet| fleet.letter_of("a:1").is_some();
        let deaths = fleet.replace_the_dead(&mut nodes, &more, LONG, "its letter", crashed);
        assert_eq!(deaths, 3);
        let others = Fleet::versions(20, 2, &effect());
        fleet.enqueue(others.clone());
        let keys: Vec<Vec<u8>> = (0..20).map(|k| format!("key{k}").into_bytes()).collect();
        eventually(SOON, "the others go on", || {
            fleet
                .entities(&keys)
                .iter()
                .all(|entity| entity.as_ref().is_some_and(|e| e.version == 2))
                .then_some(())
        });
        assert!(fleet.runs_of("a:2").is_empty(), "its key is held");
        assert!(matches!(fleet.release("a"), ReleasedKey::Released { .. }));
        fleet.wait_settled();
        fleet.expect_settled_otherwise(&["a:1"]);
        fleet.assert_effects(&[jobs, others].concat());
    });
}

/// Nodes that are stopped past their leases again and again while many suspects are about: every charge is taken back, and
/// no job dies of it.
#[test]
fn pauses_past_the_lease_among_suspects() {
    on_servers(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options);
        let more = ["--slots", "4"];
        let mut nodes = vec![fleet.node_with(&more), fleet.node_with(&more)];
        fleet.wait_shared_by(2);
        let jobs = Fleet::versions(20, 10, &Script { wait_ms: 400, ..effect() });
        fleet.enqueue(jobs.clone());
        fleet.wait_started(10);
        // Suspects first: a death of both.
        for node in &mut nodes {
            fleet.kill(node);
        }
        nodes = vec![fleet.node_with(&more), fleet.node_with(&more)];
        for _ in 0..2 {
            fleet.wait_started_more(1 + rng.below(10) as usize);
            let victim = rng.below(2) as usize;
            fleet.pause(&mut nodes[victim]);
            // not a wait: how long the fault lasts
            std::thread::sleep(Duration::from_millis(2500));
            fleet.resume(&mut nodes[victim]);
        }
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        let died: BTreeSet<String> = fleet.dead().iter().map(|view| view.id.clone()).collect();
        assert!(died.is_empty(), "{died:?}");
        assert!(fleet.lines().is_empty());
    });
}

/// A rolling deploy with poison about: no drain waits for it, loses it, or frees it of its suspicion.
#[test]
fn a_rolling_deploy_with_poison_about() {
    on_servers(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options);
        let more = ["--slots", "8"];
        let mut nodes = [fleet.node_with(&more), fleet.node_with(&more)];
        fleet.wait_shared_by(2);
        let mut jobs: Vec<NewJob> = Fleet::versions(30, 6, &Script { wait_ms: 80, ..effect() });
        jobs.insert(rng.below(60) as usize, Fleet::job("poison", "poison", 1, &poison()));
        fleet.enqueue(jobs.clone());
        let (mut deaths, mut turns) = (0, 0);
        eventually(LONG, "everything settled", || {
            deaths += fleet.replace_dead(&mut nodes, &more);
            // A node leaves, and another comes, whenever so many more runs have been started.
            if turns < 4 && fleet.history().runs.len() >= 30 * (turns + 1) {
                let mut leaves = std::mem::replace(&mut nodes[turns % 2], fleet.node_starting(&more));
                turns += 1;
                if leaves.process.terminate().is_ok() {
                    let status = leaves.process.wait(SOON * 2).unwrap();
                    // The poison may strike while it leaves; or it was told before it heard signals.
                    if status.signal() == Some(SIGTERM) {
                        fleet.wait_death(&mut leaves);
                    } else if status.code().is_none() {
                        fleet.wait_death(&mut leaves);
                        deaths += 1;
                    }
                }
            }
            fleet.is_settled().then_some(())
        });
        assert!(deaths <= 5, "{deaths} processes died of one job");
        fleet.expect_settled_otherwise(&["poison"]);
        fleet.assert_effects(&jobs);
        assert_eq!(fleet.dead().len(), 1);
        assert_eq!(fleet.wait_letter("poison").1.crashes.len(), 3);
    });
}

/// Two deaths make a strong suspect of it; then it is poison no more.
fn make_a_suspect(fleet: &mut Fleet, job: NewJob, more: &[&str]) {
    fleet.switch("poisonous", true);
    fleet.enqueue(vec![job]);
    for _ in 0..2 {
        let mut node = fleet.node_with(more);
        fleet.wait_death(&mut node);
    }
    fleet.switch("poisonous", false);
}

fn suspect(script: Script) -> NewJob {
    let script =
        Script { dies_while: Some("poisonous".into()), ..Script { dies: Some(Death::Abort), ..script } };
    Fleet::job("suspect", "suspect", 1, &script)
}

/// It holds its thread while the whole process waits for it: given up like any other, and the process goes on.
#[test]
fn a_suspect_that_is_stuck_while_it_runs_alone() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let more = ["--blocked-ms", "1000", "--max-attempts", "1", "--threads", "4"];
        make_a_suspect(&mut fleet, suspect(Script { block_ms: 15_000, ..effect() }), &more);
        let node = fleet.node_with(&more);
        fleet.wait_run_on("suspect", &node);
        let jobs = Fleet::versions(20, 5, &effect());
        fleet.enqueue(jobs.clone());
        let keys: Vec<Vec<u8>> = (0..20).map(|k| format!("key{k}").into_bytes()).collect();
        eventually(SOON, "the others go on", || {
            fleet
                .entities(&keys)
                .iter()
                .all(|entity| entity.as_ref().is_some_and(|e| e.version == 5))
                .then_some(())
        });
        assert!(fleet.runs_of("suspect").last().unwrap().ended.is_none(), "they waited until it ended");
        let letter = fleet.wait_letter("suspect").1;
        assert_eq!((letter.reason, letter.class.as_deref()), (DeadReason::Exhausted, Some("timeout")));
        eventually(SOON, "it ends", || fleet.runs_of("suspect").last().unwrap().ended);
        fleet.wait_settled();
        fleet.expect_settled_otherwise(&["suspect"]);
        fleet.assert_promises();
    });
}

/// A long run of this kind is under way when a suspect is to run alone.
fn a_long_run_and_a_suspect(kind: &str) {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let more = ["--kinds", "careful"];
        // Its first run on a node makes room for the long one.
        make_a_suspect(&mut fleet, suspect(Script { snooze_ms: 2000, wait_ms: 300, ..effect() }), &more);
        let node = fleet.node_with(&more);
        fleet.wait_run_on("suspect", &node);
        let long = Fleet::job_of(kind, "long", "long", &Script { wait_ms: 13_000, ..effect() });
        fleet.enqueue(vec![long.clone()]);
        let on_this = |fleet: &Fleet| {
            fleet
                .runs_of("suspect")
                .into_iter()
                .filter(|run| run.node == node.incarnation)
                .collect::<Vec<_>>()
        };
        eventually(SOON, "its second run ends", || {
            on_this(&fleet).get(1).filter(|run| run.ended.is_some()).map(|_| ())
        });
        let lone = on_this(&fleet).remove(1);
        fleet.wait_settled();
        let mut long_runs = fleet.runs_of("long");
        assert!(long_runs[0].started_us < lone.started_us, "the long run came first");
        let beside = |run: &&gristmill_testkit::history::Run| {
            run.started_us < lone.ended.unwrap().0 && run.ended.unwrap().0 > lone.started_us
        };
        assert_eq!(long_runs.iter().find(beside), None, "beside the lone run");
        // One that may be repeated is stopped and runs again, uncharged; another is waited for.
        let expected = if kind == CAREFUL { 1 } else { 2 };
        assert_eq!(long_runs.len(), expected, "{long_runs:?}");
        long_runs.retain(|run| run.attempt != 1);
        assert!(long_runs.is_empty(), "it was charged");
        assert_eq!(fleet.dead().len(), 0);
        let jobs = [suspect(effect()), long];
        fleet.assert_effects(&jobs);
    });
}

#[test]
fn a_suspect_and_a_long_run_that_may_be_repeated() {
    a_long_run_and_a_suspect(KIND);
}

#[test]
fn a_suspect_and_a_long_run_that_may_not_be_repeated() {
    a_long_run_and_a_suspect(CAREFUL);
}

/// The node of a lone run is cut off, loses the partition to another, and comes back: nothing else waits for that run.
#[test]
fn a_lone_run_that_ends_while_its_node_is_cut_off_leaves_the_process_open() {
    on_servers(|options| {
        seed();
        let mut fleet = Fleet::start(options);
        let proxy = Proxy::start(fleet.server.port()).unwrap();
        let url = fleet.server.url_at(proxy.port());
        let alone = fleet.node_with(&["--redis", &url]);
        let mut other = fleet.node();
        fleet.wait_shared_by(2);
        let partition = fleet.partitions_of(&other)[0];
        let key = Fleet::key_in(partition, 0);
        let script = Script { wait_ms: 8000, recovered_wait_ms: Some(4000), ..effect() };
        let suspect = Fleet::job("suspect", &key, 1, &script);
        let place = fleet.enqueue(vec![suspect.clone()])[0].place.unwrap();
        fleet.wait_run_on("suspect", &other);
        fleet.pause(&mut other);
        // What two deaths would have written.
        let state = fleet.queue().partition(partition).state;
        fleet.server.command(&["HSET", &state, &place.to_string(), "0 0 0 - strong 0 - - 0 - "]).unwrap();
        fleet.wait_run_on("suspect", &alone);
        let cut_at = now_us();
        proxy.refuse();
        proxy.cut();
        fleet.resume(&mut other);
        eventually(SOON, "its partitions are another's, and its run ends", || {
            let ended = fleet
                .runs_of("suspect")
                .iter()
                .any(|run| run.node == alone.incarnation && run.ended.is_some());
            (ended && fleet.owned_by(&other) == usize::from(PARTITIONS)).then_some(())
        });
        fleet.cut_off(&alone, cut_at, now_us());
        proxy.pass();
        fleet.wait_shared_by(2);
        let jobs = Fleet::versions(40, 3, &effect());
        fleet.enqueue(jobs.clone());
        fleet.wait_settled();
        fleet.assert_effects(&[jobs, vec![suspect]].concat());
        assert!(
            fleet.history().runs.iter().any(|run| run.node == alone.incarnation && run.job.id != "suspect")
        );
        assert_eq!(fleet.dead().len(), 0);
    });
}
