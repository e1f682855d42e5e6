//! Queues with ordering none: a slot of a schedule has one job there as well, and that job has its effect once, whatever happens
//! to the nodes that fire it and to those that run it.

use crate::every_slot_has_one_job::{
    NAME, jobs_ever, leave, no_node_lives_for_a_while, node, redis_is_away_for_a_while, schedule, slots,
    twenty_slots, wait_more,
};
use gristmill_job::partition_of;
use gristmill_testkit::eventually;
use gristmill_testkit::server::Appendonly;
use gristmill_tests::fleet::{Fleet, PARTITIONS, SOON};
use gristmill_tests::node::NodeProcess;
use gristmill_tests::servers::{on_every_flavor, on_servers};

/// Each slot from the first to the last has a job, only one, and it has run to its end.
#[track_caller]
fn assert_each_once(fleet: &Fleet, nodes: &mut [NodeProcess], every_s: u64) -> Vec<u64> {
    // A connection that broke with Redis is noticed by its first use.
    eventually(SOON, "Redis to answer", || (!fleet.partitions().is_empty()).then_some(()));
    // What nobody extends any more comes back; a slot may be fired at any moment, so that it is not waited for an empty queue.
    eventually(SOON, "no slot without a job that ran", || {
        let slots = slots(fleet);
        slots.windows(2).all(|pair| pair[1] - pair[0] == every_s * 1000).then_some(())
    });
    for node in nodes {
        leave(node);
    }
    let (jobs, slots) = (jobs_ever(fleet), slots(fleet));
    let gaps: Vec<_> = slots.windows(2).filter(|pair| pair[1] - pair[0] != every_s * 1000).collect();
    assert!(gaps.is_empty(), "slots without a job: {gaps:?}");
    // What was enqueued last may lie there still; nothing was enqueued twice.
    let waiting: u64 = fleet.partitions().iter().map(|view| view.ready + view.claimed).sum();
    assert_eq!(jobs, slots.len() + waiting as usize, "{slots:?}");
    // One that ends behind the next of its key is older than what stands: it changes nothing.
    let entity = fleet.entity(NAME).unwrap();
    assert!(entity.changes <= slots.len() as u64, "one was applied twice: {entity:?}");
    slots
}

fn unordered(fleet: &mut Fleet, of: &gristmill_schedule::Schedule) -> NodeProcess {
    let definition = format!("{NAME}={}", of.stored());
    fleet.node_with(&["--name", "host", "--visibility-ms", "1500", "--schedule", &definition])
}

#[test]
fn twenty_cron_slots_under_two_nodes_of_one_name_paused_resumed_killed_and_drained() {
    on_every_flavor(|options| {
        let mut fleet = Fleet::unordered(options);
        let last = twenty_slots(&mut fleet, unordered, |_, b| leave(b));
        let slots = assert_each_once(&fleet, &mut [last], 1);
        assert!(slots.len() >= 20, "{slots:?}");
    });
}

#[test]
fn interval_slots_while_no_node_lived_are_made_up() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let mut nodes = no_node_lives_for_a_while(&mut fleet, unordered);
        assert_each_once(&fleet, &mut nodes, 1);
    });
}

#[test]
fn slots_while_redis_was_away_are_made_up() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options.appendonly(Appendonly::Always));
        let mut nodes = redis_is_away_for_a_while(&mut fleet, unordered);
        assert_each_once(&fleet, &mut nodes, 1);
    });
}

#[test]
fn a_stream_a_group_and_a_record_deleted_by_hand_are_made_again_and_slots_go_on() {
    on_servers(|options| {
        let mut fleet = Fleet::unordered(options);
        let mut nodes = [node(&mut fleet, &schedule(1)), node(&mut fleet, &schedule(1))];
        let keys = fleet.queue().partition(partition_of(NAME.as_bytes(), PARTITIONS));
        for what in [&keys.schedules, &keys.schedule_definitions] {
            wait_more(&fleet, 2);
            fleet.server.command(&["DEL", what]).unwrap();
        }
        wait_more(&fleet, 2);
        fleet.server.command(&["XGROUP", "DESTROY", &keys.stream, "workers"]).unwrap();
        wait_more(&fleet, 2);
        fleet.server.command(&["DEL", &keys.stream]).unwrap();
        wait_more(&fleet, 3);
        nodes.iter_mut().for_each(leave);
        let slots = slots(&fleet);
        // The job of one slot may have lain in the stream that was deleted.
        let lost: u64 = slots.windows(2).map(|pair| (pair[1] - pair[0]) / 1000 - 1).sum();
        assert!(lost <= 1, "{slots:?}");
        let entity = fleet.entity(NAME).unwrap();
        assert!(entity.changes <= slots.len() as u64, "one was applied twice: {entity:?}");
    });
}
