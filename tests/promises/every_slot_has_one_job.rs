//! A slot of a schedule has one job, whatever happens to the nodes that fire it, to the clock and to the record.

use gristmill_broker::schedule::Record;
use gristmill_job::{UnixMillis, partition_of};
use gristmill_schedule::{CatchUp, Schedule, Timing, slot_of_job};
use gristmill_testkit::eventually;
use gristmill_testkit::server::Appendonly;
use gristmill_tests::fleet::{Fleet, PARTITIONS, QUEUE, SOON};
use gristmill_tests::node::NodeProcess;
use gristmill_tests::script::{KIND, Script};
use gristmill_tests::servers::{on_every_flavor, on_servers};
use std::collections::BTreeSet;
use std::time::Duration;

pub(crate) const NAME: &str = "tick";

/// Every so many seconds, a job that notes its slot as the state of the key `tick`.
pub(crate) fn schedule(every_s: u64) -> Schedule {
    let timing = Timing::every(&format!("{every_s}s"), None).unwrap();
    let script = Script { effect: true, ..Script::default() };
    let payload = serde_json::to_value(script).unwrap();
    let schedule = Schedule::new(NAME, QUEUE, KIND, timing).unwrap().with_payload(payload).unwrap();
    schedule.with_catch_up(CatchUp::All, Duration::from_secs(3600)).unwrap()
}

/// Cron, by the second.
pub(crate) fn cron(text: &str) -> Schedule {
    let timing = Timing::cron(text, "Europe/Berlin").unwrap();
    let every = schedule(1);
    let script = serde_json::to_value(Script { effect: true, ..Script::default() }).unwrap();
    let schedule = Schedule::new(NAME, QUEUE, KIND, timing).unwrap().with_payload(script).unwrap();
    schedule.with_catch_up(CatchUp::All, every.rules().window).unwrap()
}

/// A node of the same host name as the others.
pub(crate) fn node(fleet: &mut Fleet, schedule: &Schedule) -> NodeProcess {
    let definition = format!("{NAME}={}", schedule.stored());
    fleet.node_with(&["--name", "host", "--schedule", &definition])
}

/// The slots whose job was run to its end, in their order.
pub(crate) fn slots(fleet: &Fleet) -> Vec<u64> {
    let done = fleet.history().runs.into_iter().filter(|run| run.is_done());
    let slots: BTreeSet<u64> =
        done.map(|run| slot_of_job(run.job.id.as_bytes()).expect("a job of a slot").1.0).collect();
    slots.into_iter().collect()
}

/// Waits until so many more slots are done.
pub(crate) fn wait_more(fleet: &Fleet, count: usize) {
    let wanted = slots(fleet).len() + count;
    eventually(SOON, "so many slots done", || (slots(fleet).len() >= wanted).then_some(()));
}

/// Jobs that were ever put into the partition of the schedule's key: nothing else lies there.
pub(crate) fn jobs_ever(fleet: &Fleet) -> usize {
    let stream = fleet.queue().partition(partition_of(NAME.as_bytes(), PARTITIONS)).stream;
    let info = fleet.server.command(&["XINFO", "STREAM", &stream]).unwrap();
    let words = info.as_array().unwrap();
    let at = words.iter().position(|word| word.as_str() == Some("entries-added")).unwrap();
    words[at + 1].as_int().unwrap() as usize
}

/// Each slot from the first to the last has a job, and only one.
#[track_caller]
fn assert_each_once(fleet: &Fleet, nodes: &mut [NodeProcess], every_s: u64) -> Vec<u64> {
    for node in nodes {
        leave(node);
    }
    // A connection that broke with Redis is noticed by its first use.
    eventually(SOON, "Redis to answer", || (!fleet.partitions().is_empty()).then_some(()));
    let jobs = jobs_ever(fleet);
    let slots = slots(fleet);
    let gaps: Vec<_> = slots.windows(2).filter(|pair| pair[1] - pair[0] != every_s * 1000).collect();
    assert!(gaps.is_empty(), "slots without a job: {gaps:?}");
    // What was enqueued last may lie there still; nothing was enqueued twice.
    let waiting: u64 = fleet.partitions().iter().map(|view| view.ready).sum();
    assert_eq!(jobs, slots.len() + waiting as usize, "{slots:?}");
    let entity = fleet.entity(NAME).unwrap();
    assert_eq!(entity.changes, slots.len() as u64, "each was applied once");
    slots
}

pub(crate) fn leave(node: &mut NodeProcess) {
    node.process.terminate().unwrap();
    node.process.wait(SOON).unwrap();
}

pub(crate) fn record(fleet: &Fleet) -> Option<Record> {
    let key = fleet.queue().partition(partition_of(NAME.as_bytes(), PARTITIONS)).schedules;
    let record = fleet.server.command(&["HGET", &key, NAME]).unwrap();
    Record::parse(record.as_str()?.as_bytes())
}

/// Writes the record as it would stand if the clock had been set between its last writing and now.
fn shift(fleet: &Fleet, by_ms: i64) {
    let key = fleet.queue().partition(partition_of(NAME.as_bytes(), PARTITIONS)).schedules;
    let Record { timing, whole, after, fired, call, confirmed } = record(fleet).unwrap();
    let moved = |at: UnixMillis| at.0.checked_add_signed(by_ms).unwrap();
    let (after, fired, confirmed) = (moved(after), moved(fired), moved(confirmed));
    let line = format!("{timing} {whole} {after} {fired} {call} {confirmed}");
    fleet.server.command(&["HSET", &key, NAME, &line]).unwrap();
}

/// How a node of the schedule is started.
pub(crate) type Starts = fn(&mut Fleet, &Schedule) -> NodeProcess;

/// Twenty slots under two nodes of one name: each stands still for a while, one is killed, the other ends as `ends` says.
pub(crate) fn twenty_slots(
    fleet: &mut Fleet,
    node: Starts,
    ends: impl FnOnce(&mut Fleet, &mut NodeProcess),
) -> NodeProcess {
    let tick = cron("* * * * * *");
    let (mut a, mut b) = (node(fleet, &tick), node(fleet, &tick));
    wait_more(fleet, 4);
    // Whichever fires, the other does while it stands still; and then it wakes with what it had in mind.
    fleet.pause(&mut a);
    wait_more(fleet, 4);
    fleet.resume(&mut a);
    fleet.pause(&mut b);
    wait_more(fleet, 4);
    fleet.resume(&mut b);
    wait_more(fleet, 2);
    fleet.kill(&mut a);
    wait_more(fleet, 3);
    let c = node(fleet, &tick);
    wait_more(fleet, 2);
    ends(fleet, &mut b);
    wait_more(fleet, 3);
    c
}

/// Six seconds without a node; the nodes that make them up.
pub(crate) fn no_node_lives_for_a_while(fleet: &mut Fleet, node: Starts) -> [NodeProcess; 2] {
    let mut a = node(fleet, &schedule(1));
    wait_more(fleet, 2);
    fleet.kill(&mut a);
    let last = record(fleet).unwrap().after;
    eventually(SOON, "slots to be missed", || {
        let now = UnixMillis::from_system(std::time::SystemTime::now());
        (now.0 > last.0 + 6000).then_some(())
    });
    let nodes = [node(fleet, &schedule(1)), node(fleet, &schedule(1))];
    wait_more(fleet, 8);
    nodes
}

/// Three seconds without Redis; the nodes that make them up.
pub(crate) fn redis_is_away_for_a_while(fleet: &mut Fleet, node: Starts) -> [NodeProcess; 2] {
    let nodes = [node(fleet, &schedule(1)), node(fleet, &schedule(1))];
    wait_more(fleet, 3);
    fleet.server.kill().unwrap();
    let down = std::time::Instant::now();
    eventually(SOON, "three seconds", || (down.elapsed() > Duration::from_secs(3)).then_some(()));
    fleet.server.restart().unwrap();
    wait_more(fleet, 5);
    nodes
}

#[test]
fn twenty_cron_slots_under_two_owners_of_one_name_paused_resumed_and_killed() {
    on_every_flavor(|options| {
        let mut fleet = Fleet::start(options);
        let last = twenty_slots(&mut fleet, node, |fleet, b| fleet.kill(b));
        let slots = assert_each_once(&fleet, &mut [last], 1);
        assert!(slots.len() >= 20, "{slots:?}");
    });
}

#[test]
fn slots_while_no_node_lived_are_made_up_in_their_order() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut nodes = no_node_lives_for_a_while(&mut fleet, node);
        assert_each_once(&fleet, &mut nodes, 1);
        let order: Vec<u64> = fleet.history().runs.iter().map(|run| run.job.version).collect();
        assert!(order.is_sorted(), "{order:?}");
    });
}

#[test]
fn slots_while_redis_was_away_are_made_up() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options.appendonly(Appendonly::Always));
        let mut nodes = redis_is_away_for_a_while(&mut fleet, node);
        assert_each_once(&fleet, &mut nodes, 1);
    });
}

#[test]
fn when_answers_about_its_definition_and_its_slots_are_lost() {
    on_servers(|options| {
        let (mut fleet, proxy) = Fleet::behind_proxy(options);
        let [define, fire] = ["define", "fire"].map(|script| fleet.script_hash_of(&["schedule", script]));
        // The first of all, and then any.
        let first = proxy.cut_after_next_request(&define);
        let mut nodes = [node(&mut fleet, &schedule(1)), node(&mut fleet, &schedule(1))];
        first.wait(SOON).unwrap();
        wait_more(&fleet, 2);
        for script in [&fire, &define, &fire, &fire, &define, &fire] {
            let lost = proxy.cut_after_next_request(script);
            lost.wait(SOON).unwrap();
            wait_more(&fleet, 2);
        }
        assert_each_once(&fleet, &mut nodes, 1);
    });
}

#[test]
fn a_record_deleted_by_hand_under_running_nodes_is_made_again_where_it_was() {
    on_every_flavor(|options| {
        let mut fleet = Fleet::start(options);
        let mut nodes = [node(&mut fleet, &schedule(1)), node(&mut fleet, &schedule(1))];
        let keys = fleet.queue().partition(partition_of(NAME.as_bytes(), PARTITIONS));
        for hash in [&keys.schedules, &keys.schedule_definitions, &keys.schedules] {
            wait_more(&fleet, 2);
            fleet.server.command(&["DEL", hash]).unwrap();
        }
        wait_more(&fleet, 3);
        assert_each_once(&fleet, &mut nodes, 1);
    });
}

#[test]
fn a_clock_set_forward_fires_what_it_skips_to_once_and_one_set_back_nothing_again() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut nodes = [node(&mut fleet, &schedule(1)), node(&mut fleet, &schedule(1))];
        wait_more(&fleet, 3);
        let before = jobs_ever(&fleet);
        // Half a minute forward: as if all that is stored were so much older.
        shift(&fleet, -30_000);
        eventually(SOON, "what it skipped to is fired", || (jobs_ever(&fleet) >= before + 2).then_some(()));
        let caught_up = jobs_ever(&fleet);
        assert!(caught_up < before + 20, "slots that had their jobs have no other: {before}, {caught_up}");
        // An hour back: nothing is due before the slot that was fired last comes again.
        shift(&fleet, 3_600_000);
        let stands = record(&fleet).unwrap().after;
        let since = std::time::Instant::now();
        eventually(SOON, "three seconds", || (since.elapsed() > Duration::from_secs(3)).then_some(()));
        assert_eq!(record(&fleet).unwrap().after, stands);
        // A person who does not want to wait for that removes the record.
        let fired = jobs_ever(&fleet);
        let keys = fleet.queue().partition(partition_of(NAME.as_bytes(), PARTITIONS));
        fleet.server.command(&["DEL", &keys.schedules]).unwrap();
        eventually(SOON, "it fires again", || (jobs_ever(&fleet) > fired + 2).then_some(()));
        nodes.iter_mut().for_each(leave);
        let runs = fleet.history().runs;
        let ids: BTreeSet<&str> = runs.iter().map(|run| run.job.id.as_str()).collect();
        assert_eq!(ids.len(), runs.len(), "a slot has run twice");
    });
}

#[test]
fn a_rolling_deploy_changes_the_definition_once_and_loses_no_slot() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let old = schedule(1);
        let new = schedule(1).with_catch_up(CatchUp::All, Duration::from_secs(1800)).unwrap();
        let (mut a, mut b) = (node(&mut fleet, &old), node(&mut fleet, &old));
        wait_more(&fleet, 3);
        let c = node(&mut fleet, &new);
        c.process
            .wait_line(|line| line.text.contains("another definition of the schedule stands"), SOON)
            .unwrap();
        leave(&mut a);
        wait_more(&fleet, 3);
        assert_eq!(
            record(&fleet).unwrap().whole,
            old.fingerprint().whole,
            "the old one stands while a node has it"
        );
        let d = node(&mut fleet, &new);
        leave(&mut b);
        let stands = "this node's definition of the schedule stands";
        for node in [&c, &d] {
            node.process.wait_line(|line| line.text.contains(stands), SOON).unwrap();
        }
        wait_more(&fleet, 4);
        assert_eq!(record(&fleet).unwrap().whole, new.fingerprint().whole);
        for node in [&b, &c, &d] {
            let said = node.process.lines().iter().filter(|line| line.text.contains(stands)).count();
            assert_eq!(said, 1, "{} said so {said} times: it flapped", node.incarnation);
        }
        assert_each_once(&fleet, &mut [c, d], 1);
    });
}

#[test]
fn other_slots_begin_where_the_nodes_of_the_old_definition_left() {
    on_servers(|options| {
        let mut fleet = Fleet::start(options);
        let mut a = node(&mut fleet, &schedule(1));
        wait_more(&fleet, 2);
        // Both at once: the old one goes on alone.
        let mut b = node(&mut fleet, &schedule(2));
        wait_more(&fleet, 3);
        leave(&mut a);
        let last_of_old = record(&fleet).unwrap().after.0;
        wait_more(&fleet, 3);
        leave(&mut b);
        let slots = slots(&fleet);
        let (old, new): (Vec<u64>, Vec<u64>) = slots.iter().partition(|slot| **slot <= last_of_old);
        assert!(old.windows(2).all(|pair| pair[1] - pair[0] == 1000), "{old:?}");
        assert!(
            new.iter().all(|slot| slot % 2000 == 0) && new.windows(2).all(|pair| pair[1] - pair[0] == 2000),
            "{new:?}"
        );
        assert!(new[0] - last_of_old <= 4000, "no slot is left out between them: {last_of_old}, {new:?}");
    });
}
