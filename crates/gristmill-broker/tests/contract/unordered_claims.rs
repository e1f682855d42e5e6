//! Queues with ordering none: what becomes of a claim that its node lays down, loses, or makes again.

use crate::fixture::*;
use crate::unordered::{NOW, line_of};
use gristmill_broker::call::{Answer, Call};
use gristmill_broker::start::{How, Marked};
use gristmill_broker::state::{StateLine, Suspicion};
use gristmill_broker::{Entry, Fence, Settled};

#[test]
fn what_was_handed_back_is_taken_at_once_and_not_suspected() {
    on_each(async |world| {
        world.unordered().await;
        world.enqueue(&[own("1", "k"), own("2", "k"), own("3", "k")]).await;
        let a = world.grab("a", 2).await;
        let b = world.grab("b", 1).await;
        assert_eq!(world.mark_as("a", &a[1], How::Beside).await, Marked::Started);
        assert_eq!(world.mark_as("a", &b[0], How::Beside).await, Marked::Gone, "of another");
        // Of three places the first was stopped hard; one of them is another's, and stays so.
        let places = vec![a[1].place, b[0].place, a[0].place];
        let call = Call::HandBack { places, claims: vec![1, 1, 1], stopped: 1 };
        assert_eq!(world.unleased("a", call).await, Answer::Done);
        assert_eq!(world.holder(&b[0]), Some(Fence::unordered(&incarnation("b")).consumer()));
        let taken = world.grab("c", 5).await;
        assert_eq!(ids(&taken), ["1", "2"]);
        assert_eq!(taken[0].state.line(), None);
        let line = StateLine { interrupted: true, ..StateLine::default() };
        assert_eq!(line_of(&taken[1]), line, "the mark is gone, and it is noted as interrupted");
        assert_eq!(world.settle_as("a", vec![done(&a[0])]).await, [Settled::Gone]);
    });
}

#[test]
fn a_hand_back_that_is_late_leaves_a_newer_claim_of_its_own_sender_alone() {
    on_each(async |world| {
        world.unordered().await;
        world.enqueue(&[own("1", "k"), own("2", "k")]).await;
        let first = world.grab("a", 2).await;
        assert_eq!(first.iter().map(|entry| entry.claim).collect::<Vec<_>>(), [1, 1]);
        let back = |entries: &[Entry]| Call::HandBack {
            places: entries.iter().map(|entry| entry.place).collect(),
            claims: entries.iter().map(|entry| entry.claim).collect(),
            stopped: 0,
        };
        // Its answer stayed away; meanwhile the claims lapsed, another node had them, and gave them back.
        let late = back(&first);
        let lapsed = world.reclaimed("b", NOW, 5).await;
        assert_eq!(lapsed.iter().map(|entry| entry.claim).collect::<Vec<_>>(), [2, 2]);
        assert_eq!(world.extend("b", &lapsed).await, [], "the same claim");
        assert_eq!(world.unleased("b", back(&lapsed)).await, Answer::Done);
        let again = world.grab("a", 2).await;
        assert_eq!(again.iter().map(|entry| entry.claim).collect::<Vec<_>>(), [3, 3]);
        assert_eq!(world.mark_as("a", &again[0], How::Alone).await, Marked::Started);
        let line = world.line(again[0].place);
        assert_eq!(world.unleased("a", late).await, Answer::Done);
        let mine = Some(Fence::unordered(&incarnation("a")).consumer());
        assert_eq!((world.holder(&again[0]), world.line(again[0].place)), (mine.clone(), line));
        // A settle that Redis refuses is no new claim, and no older one.
        world.raw(&[b"SET", &world.keys.entity(b"k"), b"a text"]);
        let refused = world.settle_as("a", vec![put(&again[1], 1, "s")]).await;
        assert!(matches!(refused[..], [Settled::Rejected(_)]), "{refused:?}");
        assert_eq!(world.unleased("a", back(&first)).await, Answer::Done);
        assert_eq!(world.holder(&again[1]), mine);
        assert_eq!(world.unleased("a", back(&again)).await, Answer::Done);
        assert_eq!(world.holder(&again[1]).as_deref(), Some("handed-back"));
        assert_eq!(ids(&world.grab("c", 5).await), ["1", "2"]);
    });
}

#[test]
fn what_is_stored_of_a_job_that_somebody_deleted_goes_with_the_next_census_of_any_node() {
    on_each(async |world| {
        world.unordered().await;
        world.enqueue(&[own("1", "k"), own("2", "k")]).await;
        let entries = world.grab("a", 2).await;
        for entry in &entries {
            assert_eq!(world.mark_as("a", entry, How::Beside).await, Marked::Started);
        }
        let gone = entries[0].place;
        world.raw(&[b"XDEL", world.keys.stream.as_bytes(), gone.to_string().as_bytes()]);
        let census = async |world: &World| match world.unleased("b", Call::Census { cursors: (0, 0) }).await {
            Answer::Counted(Some(census)) => (census.claimed, census.lines_removed),
            other => panic!("not counted: {other:?}"),
        };
        assert_eq!(census(world).await, (2, 0), "its run may go on");
        // Recovery meets that there is no such job; the other is another's now, and stays.
        assert_eq!(ids(&world.reclaimed("b", NOW, 5).await), ["2"]);
        assert_eq!(census(world).await, (1, 1));
        assert_eq!(world.line(gone), None);
        assert!(world.line(entries[1].place).is_some());
        assert_eq!(census(world).await, (1, 0));
    });
}

#[test]
fn poison_is_found_step_by_step_and_an_own_claim_is_not_suspected() {
    on_each(async |world| {
        world.unordered().await;
        world.enqueue(&[own("1", "k")]).await;
        let entry = &world.grab("a", 1).await[0];
        // A claim whose answer was lost comes back to its own node.
        assert_eq!(line_of(&world.reclaimed("a", NOW, 5).await[0]), StateLine::default());
        let mut suspicions = Vec::new();
        for (node, how) in [("b", How::Beside), ("c", How::Alone), ("d", How::Alone), ("e", How::Alone)] {
            let taken = world.reclaimed(node, NOW, 5).await;
            let line = line_of(&taken[0]);
            suspicions.push((line.suspicion, line.crashes.len()));
            assert_eq!(world.mark_as(node, entry, how).await, Marked::Started);
        }
        use Suspicion::{Strong, Weak};
        assert_eq!(suspicions, [(Weak, 0), (Strong, 0), (Strong, 1), (Strong, 2)]);
        // A settle removes everything.
        assert_eq!(world.settle_as("e", vec![done(entry)]).await, [Settled::Done]);
        assert_eq!(world.line(entry.place), None);
    });
}
