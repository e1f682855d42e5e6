//! grab_new: what is new, read without a script, and only where the ordering is none.

use crate::fixture::*;
use gristmill_broker::call::{Call, Guard};
use gristmill_broker::grab::Grabbed;
use gristmill_broker::state::StateLine;
use gristmill_broker::{CallError, Entry, Fence, Mode, QueueDefinition};
use gristmill_job::{Due, EncodedJob, QueueName};

impl World {
    async fn grab_new(&self, name: &str, count: usize) -> Grabbed {
        self.connection.grab_new(&self.keys, &incarnation(name), count).await.unwrap()
    }

    async fn new_ones(&self, name: &str, count: usize) -> Vec<Entry> {
        match self.grab_new(name, count).await {
            Grabbed::Jobs { entries, delivered: None, .. } => entries,
            other => panic!("expected jobs, read without the script: {other:?}"),
        }
    }
}

#[test]
fn what_is_new_is_claimed_and_what_was_handed_back_is_left_to_grab() {
    on_each(async |world| {
        world.unordered().await;
        world.enqueue(&[ours("1", "k"), ours("2", "k"), ours("3", "k"), ours("4", "k")]).await;
        let first = world.grab("a", 1).await;
        let fence = Fence::unordered(&incarnation("a"));
        let back = Call::HandBack { places: vec![first[0].place], claims: vec![first[0].claim], stopped: 0 };
        world.connection.call(&back, Guard::unordered(&world.keys, &fence, WINDOW_MS)).await.unwrap();
        assert_eq!(ids(&world.new_ones("b", 2).await), ["2", "3"]);
        assert_eq!(ids(&world.new_ones("b", 2).await), ["4"]);
        assert_eq!(world.new_ones("b", 2).await, []);
        assert_eq!(ids(&world.grab("b", 2).await), ["1"]);
        let holders = world.holders();
        assert!(
            holders.len() == 4 && holders.iter().all(|(_, holder)| holder.starts_with("b~")),
            "{holders:?}"
        );
    });
}

#[test]
fn what_is_stored_of_a_job_comes_with_it_and_so_does_when_the_next_is_due() {
    on_each(async |world| {
        world.unordered().await;
        world.grab("a", 1).await;
        let places = world.enqueue(&[own("1", "k"), own("2", "k")]).await;
        world.try_enqueue(&[EncodedJob { due: Due::In(HOUR), ..own("3", "k") }]).await.unwrap();
        // As of one that failed before and was promoted.
        let line = StateLine { attempts: 2, ..StateLine::default() };
        let (state, second) = (world.keys.state.clone(), places[1].to_string());
        world.raw(&[b"HSET", state.as_bytes(), second.as_bytes(), &line.write()]);
        let Grabbed::Jobs { entries, next_due, now, .. } = world.grab_new("a", 5).await else { panic!() };
        assert_eq!(ids(&entries), ["1", "2"]);
        assert_eq!((entries[0].state.line(), entries[1].state.line()), (None, Some(&line)));
        let left = next_due.unwrap().0 - now.0;
        assert!((3_500_000..=3_600_000).contains(&left), "due in {left} ms");
    });
}

#[test]
fn in_a_queue_with_an_order_or_without_a_group_it_claims_nothing_and_says_why() {
    on_each(async |world| {
        world.unordered().await;
        world.grab("a", 1).await;
        world.enqueue(&[own("1", "k")]).await;
        world.raw(&[b"XGROUP", b"DESTROY", world.keys.stream.as_bytes(), b"workers"]);
        let gone = world.connection.grab_new(&world.keys, &incarnation("a"), 5).await.unwrap_err();
        assert!(matches!(gone, CallError::NoGroup(_)), "{gone}");
        world.connection.create(&world.queue).await.unwrap();
        assert_eq!(ids(&world.new_ones("a", 5).await), ["1"]);
        world.raw(&[b"FLUSHALL"]);
        let gone = world.grab_new("a", 5).await;
        assert_eq!(gone, Grabbed::Differs(String::new()));
        // Of the same name, and with an order: the gate is gone with all else, and nobody opens it.
        world.queue = QueueDefinition::new(QueueName::new("u").unwrap(), 1);
        assert_eq!(world.queue.mode, Mode::Key);
        world.connection.create(&world.queue).await.unwrap();
        world.enqueue(&[own("1", "k")]).await;
        assert_eq!(world.grab_new("a", 5).await, Grabbed::Differs("key".into()));
        assert!(world.holders().is_empty());
    });
}
