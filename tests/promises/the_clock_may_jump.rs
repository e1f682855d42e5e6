//! The clock of Redis may jump, by hours, forward and back, while nodes run and while they die: nothing is lost, doubled or
//! reordered, and nothing stands still for as long as the clock was set back but what is for a time by that very clock.

use gristmill_job::{NewJob, partition_of};
use gristmill_schedule::{CatchUp, Schedule, Timing, slot_of_job};
use gristmill_testkit::eventually;
use gristmill_testkit::history::now_us;
use gristmill_testkit::seed::{SplitMix64, seed};
use gristmill_tests::fleet::{Fleet, PARTITIONS, QUEUE, SOON};
use gristmill_tests::node::NodeProcess;
use gristmill_tests::script::{KIND, SCARCE, Script};
use gristmill_tests::servers::{on_every_flavor, on_servers, with_a_clock};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const AN_HOUR_S: i64 = 3600;
/// The lease of nodes in tests, and a beat: until then each of them has noticed.
const NOTICED_US: u64 = 2_000_000;

fn effect() -> Script {
    Script { effect: true, ..Script::default() }
}

fn waits(wait_ms: u64) -> Script {
    Script { wait_ms, ..effect() }
}

/// The clock jumps under these nodes. Until they notice, two may run one key, of which one is refused.
fn jump(fleet: &mut Fleet, nodes: &[NodeProcess], ahead_s: i64) {
    let from = now_us();
    fleet.server.set_clock(ahead_s).unwrap();
    for node in nodes {
        fleet.cut_off(node, from, from + NOTICED_US);
    }
}

/// How long nothing is to happen.
fn pass(time: Duration) {
    let since = Instant::now();
    eventually(SOON, "time to pass", || (since.elapsed() > time).then_some(()));
}

#[test]
fn hours_forward_and_back_under_load_cost_recoveries_and_nothing_else() {
    on_every_flavor(with_a_clock(|options| {
        let mut rng = SplitMix64::new(seed());
        let mut fleet = Fleet::start(options);
        let mut nodes = fleet.nodes(2);
        let jobs = Fleet::versions(20, 120, &waits(3));
        let portions: Vec<_> = jobs.chunks(jobs.len() / 6).collect();
        for (n, portion) in portions.into_iter().enumerate() {
            fleet.enqueue(portion.to_vec());
            fleet.wait_started_more(1 + rng.below(100) as usize);
            let hours = 1 + rng.below(5) as i64;
            jump(&mut fleet, &nodes, if n % 2 == 0 { hours } else { -hours } * AN_HOUR_S);
        }
        fleet.wait_settled();
        fleet.assert_effects(&jobs);
        fleet.wait_shared_by(2);
        for node in &mut nodes {
            let left = fleet.drain(node);
            assert!(left.status.success(), "{}", left.line);
            assert_eq!((left.counts.of("restarts"), left.counts.of("dead")), (0, 0), "{:?}", left.counts);
        }
    }));
}

/// Its leases and its name in the registry are of before the clock was set back, whether it died before that or after.
#[test]
fn a_clock_set_back_leaves_no_partition_to_the_dead() {
    on_servers(with_a_clock(|options| {
        for dies_first in [true, false] {
            let mut fleet = Fleet::start(options.clone());
            fleet.server.set_clock(5 * AN_HOUR_S).unwrap();
            let mut dies = fleet.node();
            fleet.wait_shared_by(1);
            let jobs = Fleet::versions(20, 20, &waits(5));
            fleet.enqueue(jobs.clone());
            fleet.wait_started(50);
            if dies_first {
                fleet.kill(&mut dies);
                fleet.server.set_clock(-AN_HOUR_S).unwrap();
            } else {
                fleet.server.set_clock(-AN_HOUR_S).unwrap();
                fleet.kill(&mut dies);
            }
            let since = Instant::now();
            let next = fleet.node();
            fleet.wait_settled_within(SOON);
            assert_eq!(fleet.owned_by(&next), usize::from(PARTITIONS));
            assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
            fleet.assert_effects(&jobs);
        }
    }));
}

/// Beside a node that lives: the dead one's share.
#[test]
fn a_node_that_dies_after_a_jump_back_is_replaced_by_one_that_lived_through_it() {
    on_servers(with_a_clock(|options| {
        let mut fleet = Fleet::start(options);
        let mut nodes = fleet.nodes(2);
        let jobs = Fleet::versions(20, 60, &waits(10));
        fleet.enqueue(jobs.clone());
        fleet.wait_started(100);
        jump(&mut fleet, &nodes, -3 * AN_HOUR_S);
        fleet.kill(&mut nodes[0]);
        fleet.wait_settled_within(SOON);
        fleet.assert_effects(&jobs);
        assert_eq!(fleet.owned_by(&nodes[1]), usize::from(PARTITIONS));
    }));
}

const NAME: &str = "tick";

fn schedule(timing: Timing, window: Duration) -> Schedule {
    let payload = serde_json::to_value(effect()).unwrap();
    let schedule = Schedule::new(NAME, QUEUE, KIND, timing).unwrap().with_payload(payload).unwrap();
    schedule.with_catch_up(CatchUp::All, window).unwrap()
}

fn ticking(fleet: &mut Fleet, schedule: &Schedule) -> [NodeProcess; 2] {
    let definition = format!("{NAME}={}", schedule.stored());
    let mut node = || fleet.node_with(&["--name", "host", "--schedule", &definition]);
    [node(), node()]
}

/// The slots whose job was run to its end, with as many jobs as there ever were.
fn slots(fleet: &Fleet) -> Vec<u64> {
    let done = fleet.history().runs.into_iter().filter(|run| run.is_done());
    let slots: BTreeSet<u64> = done.map(|run| slot_of_job(run.job.id.as_bytes()).unwrap().1.0).collect();
    slots.into_iter().collect()
}

/// Jobs that were ever put into the partition of the schedule: nothing else lies there.
fn jobs_ever(fleet: &Fleet) -> usize {
    let stream = fleet.queue().partition(partition_of(NAME.as_bytes(), PARTITIONS)).stream;
    let info = fleet.server.command(&["XINFO", "STREAM", &stream]).unwrap();
    let words = info.as_array().unwrap();
    let at = words.iter().position(|word| word.as_str() == Some("entries-added")).unwrap();
    words[at + 1].as_int().unwrap() as usize
}

fn redis_ms(fleet: &Fleet) -> u64 {
    let time = fleet.server.command(&[b"TIME"]).unwrap();
    let part = |n: usize| time.as_array().unwrap()[n].as_str().unwrap().parse::<u64>().unwrap();
    part(0) * 1000 + part(1) / 1000
}

/// Each of these has had its job, and only one; the entity changed once per slot.
#[track_caller]
fn assert_each_once(fleet: &Fleet, nodes: &mut [NodeProcess]) -> Vec<u64> {
    fleet.wait_settled();
    for node in nodes {
        node.process.terminate().unwrap();
        node.process.wait(SOON).unwrap();
    }
    let slots = slots(fleet);
    let waiting: u64 = fleet.partitions().iter().map(|view| view.ready).sum();
    assert_eq!(jobs_ever(fleet), slots.len() + waiting as usize, "{slots:?}");
    assert_eq!(fleet.entity(NAME).unwrap().changes, slots.len() as u64, "each was applied once");
    slots
}

#[test]
fn every_hour_that_a_cron_schedule_was_carried_over_has_one_job() {
    on_every_flavor(with_a_clock(|options| {
        let mut fleet = Fleet::start(options);
        // Half an hour into an hour, so that the test crosses none by itself.
        let to_half = 1800 - (redis_ms(&fleet) / 1000 % 3600) as i64;
        fleet.server.set_clock(to_half).unwrap();
        let cron = schedule(Timing::cron("0 * * * *", "UTC").unwrap(), Duration::from_secs(24 * 3600));
        let mut nodes = ticking(&mut fleet, &cron);
        let begun = redis_ms(&fleet);
        let wait = |fleet: &Fleet, count| {
            eventually(SOON, &format!("{count} slots"), || (slots(fleet).len() == count).then_some(()));
        };
        let set =
            |fleet: &mut Fleet, nodes: &[NodeProcess], hours| jump(fleet, nodes, to_half + hours * AN_HOUR_S);
        set(&mut fleet, &nodes, 1);
        wait(&fleet, 1);
        set(&mut fleet, &nodes, 4);
        wait(&fleet, 4);
        // What comes again is fired no second time.
        set(&mut fleet, &nodes, -2);
        pass(Duration::from_secs(3));
        set(&mut fleet, &nodes, 2);
        pass(Duration::from_secs(3));
        assert_eq!(jobs_ever(&fleet), 4);
        fleet.kill(&mut nodes[0]);
        set(&mut fleet, &nodes, 9);
        wait(&fleet, 9);
        let slots = assert_each_once(&fleet, &mut nodes[1..]);
        let first = begun.next_multiple_of(3_600_000);
        assert_eq!(slots, (0..9).map(|n| first + n * 3_600_000).collect::<Vec<_>>());
        let order: Vec<u64> = fleet.history().runs.iter().map(|run| run.job.version).collect();
        assert!(order.is_sorted(), "in their order: {order:?}");
    }));
}

#[test]
fn an_interval_makes_up_its_window_after_a_jump_forward_and_fires_nothing_again_after_one_back() {
    on_servers(with_a_clock(|options| {
        let mut fleet = Fleet::start(options);
        let each_second = schedule(Timing::every("1s", None).unwrap(), Duration::from_secs(30));
        let mut nodes = ticking(&mut fleet, &each_second);
        let wait_more = |fleet: &Fleet, count: usize| {
            let wanted = slots(fleet).len() + count;
            eventually(SOON, "so many slots done", || (slots(fleet).len() >= wanted).then_some(()));
        };
        wait_more(&fleet, 3);
        let before = redis_ms(&fleet);
        jump(&mut fleet, &nodes, 2 * AN_HOUR_S);
        wait_more(&fleet, 33);
        let latest = *slots(&fleet).last().unwrap();
        assert!(latest > before + 7_000_000, "it goes on by the new clock");
        jump(&mut fleet, &nodes, 0);
        eventually(SOON, "what was fired to be run", || fleet.is_settled().then_some(()));
        let fired = jobs_ever(&fleet);
        pass(Duration::from_secs(4));
        assert_eq!(jobs_ever(&fleet), fired, "a slot was fired again");
        // The clock is right again where it was, and a little later.
        jump(&mut fleet, &nodes, 2 * AN_HOUR_S);
        wait_more(&fleet, 3);
        let slots = assert_each_once(&fleet, &mut nodes);
        let gaps: Vec<_> = slots.windows(2).filter(|pair| pair[1] - pair[0] != 1000).collect();
        assert_eq!(gaps.len(), 1, "all but what lies further back than its window: {gaps:?}");
        let (left_out, goes_on) = (gaps[0][0], gaps[0][1]);
        assert!(left_out <= before + 1000 && goes_on > before + 7_160_000, "{before} {gaps:?}");
    }));
}

#[test]
fn jobs_for_later_come_when_the_clock_of_redis_says_so_and_none_is_lost() {
    on_servers(with_a_clock(|options| {
        let mut fleet = Fleet::start(options);
        let nodes = fleet.nodes(2);
        let later = |n: usize, in_s: u64| {
            Fleet::job(&format!("later{n}"), &format!("key{n}"), 1, &effect())
                .due_in(Duration::from_secs(in_s))
        };
        let in_an_hour: Vec<NewJob> = (0..40).map(|n| later(n, 3600)).collect();
        fleet.enqueue(in_an_hour.clone());
        jump(&mut fleet, &nodes, AN_HOUR_S + 60);
        fleet.wait_settled_within(SOON);
        let soon: Vec<NewJob> = (40..80).map(|n| later(n, 5)).collect();
        fleet.enqueue(soon.clone());
        jump(&mut fleet, &nodes, 0);
        pass(Duration::from_secs(7));
        assert_eq!(fleet.delayed(), 40, "each waits for its time by the clock it was given by");
        // What is enqueued from now on is for the clock as it is now.
        let now: Vec<NewJob> = (80..90).map(|n| later(n, 1)).collect();
        fleet.enqueue(now.clone());
        // Around a jump two nodes may run one key: what is asked is that each has run, not how often.
        let ran = |n: usize| !fleet.runs_of(&format!("later{n}")).is_empty();
        eventually(SOON, "those of now to run", || (80..90).all(ran).then_some(()));
        assert!(!(40..80).any(ran), "before their time");
        jump(&mut fleet, &nodes, 2 * AN_HOUR_S);
        fleet.wait_settled_within(SOON);
        fleet.assert_effects(&[in_an_hour, soon, now].concat());
    }));
}

/// Of a queue with order: the node that holds a job waits by its own clock.
#[test]
fn retries_come_after_their_backoff_however_the_clock_is_set() {
    on_servers(with_a_clock(|options| {
        for ahead_s in [-AN_HOUR_S, AN_HOUR_S] {
            let mut fleet = Fleet::start(options.clone());
            let nodes = [fleet.node()];
            fleet.wait_shared_by(1);
            let script = Script { fail_until: 1, retry_after_ms: 6000, ..effect() };
            let jobs: Vec<NewJob> =
                (0..20).map(|n| Fleet::job(&format!("j{n}"), &format!("key{n}"), 1, &script)).collect();
            fleet.enqueue(jobs.clone());
            fleet.wait_started(20);
            jump(&mut fleet, &nodes, ahead_s);
            fleet.wait_settled_within(SOON);
            fleet.assert_effects(&jobs);
        }
    }));
}

#[test]
fn without_order_what_the_dead_held_is_taken_over_and_what_lives_goes_on() {
    on_every_flavor(with_a_clock(|options| {
        let mut fleet = Fleet::unordered(options);
        let timeout = ["--visibility-ms", "1500", "--slots", "10"];
        let mut nodes = [fleet.node_with(&timeout), fleet.node_with(&timeout)];
        let jobs = Fleet::unlike(0, 600, &waits(20));
        fleet.enqueue(jobs.clone());
        fleet.wait_started(60);
        // Every claim is over at once, and most are of nodes that live.
        jump(&mut fleet, &nodes, 3 * AN_HOUR_S);
        fleet.wait_started_more(60);
        // What the dead one held was claimed at a time that is hours away now.
        jump(&mut fleet, &nodes, -AN_HOUR_S);
        fleet.kill(&mut nodes[0]);
        let since = Instant::now();
        fleet.wait_settled_within(SOON);
        assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
        fleet.assert_effects(&jobs);
    }));
}

/// A dead one's claims alone, and a retry: they wait in the delayed set for the clock by which they were put there.
#[test]
fn without_order_a_clock_set_back_leaves_no_claim_to_the_dead() {
    on_servers(with_a_clock(|options| {
        let mut fleet = Fleet::unordered(options);
        let timeout = ["--visibility-ms", "1500"];
        let mut dies = fleet.node_with(&timeout);
        let script = Script { recovered_wait_ms: Some(1), ..waits(60_000) };
        let jobs = Fleet::unlike(0, 10, &script);
        fleet.enqueue(jobs.clone());
        fleet.wait_started(10);
        fleet.kill(&mut dies);
        fleet.server.set_clock(-AN_HOUR_S).unwrap();
        let _next = fleet.node_with(&timeout);
        fleet.wait_settled_within(SOON);
        fleet.assert_effects(&jobs);
    }));
}

#[test]
fn without_order_a_retry_waits_for_its_time_by_the_clock_of_redis() {
    on_servers(with_a_clock(|options| {
        let mut fleet = Fleet::unordered(options);
        let nodes = [fleet.node()];
        let script = Script { fail_until: 1, retry_after_ms: 2000, ..effect() };
        let jobs = Fleet::unlike(0, 20, &script);
        fleet.enqueue(jobs.clone());
        eventually(SOON, "all of them to be put back", || (fleet.delayed() == 20).then_some(()));
        jump(&mut fleet, &nodes, -AN_HOUR_S);
        pass(Duration::from_secs(4));
        assert_eq!(fleet.delayed(), 20);
        jump(&mut fleet, &nodes, 0);
        fleet.wait_settled_within(SOON);
        fleet.assert_effects(&jobs);
    }));
}

#[test]
fn a_rate_stands_still_for_no_longer_than_its_own_time() {
    on_servers(with_a_clock(|options| {
        let mut fleet = Fleet::start(options);
        let limits = ["--rate", "50/s", "--max-running", "3"];
        let nodes = [fleet.node_with(&limits), fleet.node_with(&limits)];
        fleet.wait_shared_by(2);
        let job = |n: usize| Fleet::job_of(SCARCE, &format!("s{n}"), &format!("key{n}"), &waits(5));
        let jobs: Vec<NewJob> = (0..500).map(job).collect();
        fleet.enqueue(jobs.clone());
        let since = Instant::now();
        for ahead_s in [2 * AN_HOUR_S, -AN_HOUR_S, AN_HOUR_S, -3 * AN_HOUR_S] {
            fleet.wait_started_more(60);
            jump(&mut fleet, &nodes, ahead_s);
        }
        fleet.wait_settled_within(SOON);
        assert!(since.elapsed() < Duration::from_secs(30), "at 50 a second: {:?}", since.elapsed());
        fleet.assert_effects(&jobs);
    }));
}

#[test]
fn a_limit_set_back_leaves_no_slot_to_the_dead() {
    on_servers(with_a_clock(|options| {
        let mut fleet = Fleet::start(options);
        let limits = ["--max-running", "2"];
        let mut dies = fleet.node_with(&limits);
        fleet.wait_shared_by(1);
        let job =
            |n: usize, script: &Script| Fleet::job_of(SCARCE, &format!("s{n}"), &format!("key{n}"), script);
        let long = Script { recovered_wait_ms: Some(1), ..waits(60_000) };
        let held: Vec<NewJob> = (0..2).map(|n| job(n, &long)).collect();
        fleet.enqueue(held.clone());
        fleet.wait_started(2);
        let jobs: Vec<NewJob> = (2..40).map(|n| job(n, &waits(1))).collect();
        fleet.enqueue(jobs.clone());
        fleet.kill(&mut dies);
        fleet.server.set_clock(-AN_HOUR_S).unwrap();
        let _next = fleet.node_with(&limits);
        fleet.wait_settled_within(SOON);
        let connection = fleet.connection();
        eventually(SOON, "every slot to be free", || {
            let held = fleet.block_on(connection.holders(&fleet.queue().name, SCARCE, 1)).unwrap().1;
            (held == 0).then_some(())
        });
        fleet.assert_effects(&[jobs, held].concat());
    }));
}
