//! A job that a person takes back: waiting, for later, claimed, returned, running; and what its owner is told.

use crate::fixture::*;
use bytes::Bytes;
use gristmill_broker::call::{Answer, Call};
use gristmill_broker::cancel::{Asked, Cancel, Cancelled, Stands};
use gristmill_broker::enqueue::{Accepted, EnqueueAnswer};
use gristmill_broker::said::Said;
use gristmill_broker::state::{JobState, Request};
use gristmill_broker::take::Taken;
use gristmill_broker::{Entry, Settle, Settled, StateLine, Verdict};
use gristmill_job::{Due, JobId, Key, Place};
use std::time::Duration;

fn cancel_of(place: Place, id: &str, key: &str) -> Cancel {
    Cancel {
        stands: Stands::At(place),
        id: JobId::new(id).unwrap(),
        key: Key::new(key).unwrap(),
        own_id: true,
        said: Said::new("me@home", "no longer wanted"),
    }
}

async fn cancel(world: &World, cancel: &Cancel) -> Cancelled {
    world.connection.cancel(&world.keys, 60_000, cancel).await.unwrap()
}

async fn take(world: &World, tenure: &mut Tenure) -> Taken {
    match world.call(tenure, Call::Take { after: 0, count: 10, cursor: Some(0) }).await {
        Answer::Taken(taken) => taken,
        other => panic!("not taken: {other:?}"),
    }
}

fn mark(world: &World, id: &str) -> String {
    world.raw(&[b"GET", &world.keys.seen(id.as_bytes())]).as_str().unwrap_or_default().to_owned()
}

fn request(line: Option<StateLine>) -> Said {
    match line.and_then(|line| line.request) {
        Some(Request::Cancel(said)) => said,
        other => panic!("not asked: {other:?}"),
    }
}

fn verdict(entry: &Entry, verdict: Verdict) -> Settle {
    verdict_on(entry, true, verdict)
}

#[test]
fn what_nobody_claimed_is_gone_at_once_and_its_id_starts_anew() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "k"), own("2", "k"), own("3", "k")]).await;
        let it = cancel_of(places[1], "2", "k");
        assert_eq!(cancel(world, &cancel_of(places[1], "other", "k")).await, Cancelled::NotWaiting);
        assert_eq!(world.length(), 3, "a place may come again with another job");
        assert_eq!(cancel(world, &it).await, Cancelled::Cancelled);
        assert_eq!(cancel(world, &it).await, Cancelled::NotWaiting, "once");
        let said = Said::parse(mark(world, "2").strip_prefix("cancelled ").unwrap());
        assert_eq!((said.who.as_str(), said.why.as_str()), ("me@home", "no longer wanted"));
        assert!(said.at.0 > 1_600_000_000_000, "{said:?}");
        assert!((1..=60_000).contains(&world.life_ms(&world.keys.seen(b"2"))));
        assert_eq!(world.changes(), 0, "nobody need hear of it");
        let mut a = world.acquire("a").await;
        assert_eq!(ids(&world.claim(&mut a).await), ["1", "3"]);
        assert!(matches!(
            world.try_enqueue(&[own("2", "k")]).await,
            Ok(EnqueueAnswer::Accepted(accepted)) if matches!(accepted[..], [Accepted::At(_)])
        ));
        assert!(mark(world, "2").starts_with("waiting "));
        assert_eq!(world.life_ms(&world.keys.seen(b"2")), -1, "as long as its job lives");
    });
}

#[test]
fn the_owner_of_a_claimed_job_is_told_once_and_ends_it() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "k"), own("2", "k"), ours("3", "k")]).await;
        let mut a = world.acquire("a").await;
        let entries = world.claim(&mut a).await;
        for (at, id) in [(1, "2"), (1, "2"), (2, "3")] {
            let own_id = id == "2";
            let it = Cancel { own_id, ..cancel_of(places[at], id, "k") };
            assert_eq!(cancel(world, &it).await, Cancelled::Asked);
        }
        let first = request(world.line(places[1]));
        let again = Cancel { said: Said::new("you", "x"), ..cancel_of(places[1], "2", "k") };
        assert_eq!(cancel(world, &again).await, Cancelled::Asked);
        assert_eq!(request(world.line(places[1])), first, "who asked first stays named");
        assert_eq!(world.changes(), 2);
        let taken = take(world, &mut a).await;
        let asked = |place, id: &str, own_id| Asked {
            place,
            own_id,
            id: JobId::new(id).unwrap(),
            key: Key::new("k").unwrap(),
        };
        let named: Vec<Asked> = taken.asked.iter().map(|(asked, _)| asked.clone()).collect();
        assert_eq!(named, [asked(places[1], "2", true), asked(places[2], "3", false)]);
        assert!(taken.asked.iter().all(|(_, line)| matches!(line.request, Some(Request::Cancel(_)))));
        assert!(!taken.more_asked && take(world, &mut a).await.asked.is_empty(), "told once");
        // In the middle of its lane, and nothing else changes.
        let ended =
            [verdict(&entries[1], Verdict::Cancelled), verdict_on(&entries[2], false, Verdict::Cancelled)];
        assert_eq!(world.settle(&mut a, ended.to_vec()).await, [Settled::Cancelled, Settled::Cancelled]);
        assert_eq!(Said::parse(mark(world, "2").strip_prefix("cancelled ").unwrap()), first);
        assert!(world.life_ms(&world.keys.seen(b"2")) > 0);
        assert_eq!((world.line(places[1]), world.length(), mark(world, "3")), (None, 1, String::new()));
        assert_eq!(cancel(world, &cancel_of(places[1], "2", "k")).await, Cancelled::NotWaiting);
    });
}

#[test]
fn a_run_that_finished_wins_and_one_that_failed_is_still_asked_for() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "k"), own("2", "other")]).await;
        let mut a = world.acquire("a").await;
        let entries = world.claim(&mut a).await;
        for (place, id, key) in [(places[0], "1", "k"), (places[1], "2", "other")] {
            assert_eq!(cancel(world, &cancel_of(place, id, key)).await, Cancelled::Asked);
        }
        let settles = vec![done(&entries[0]), retry(&entries[1], Duration::from_secs(60))];
        assert_eq!(world.settle(&mut a, settles).await, [Settled::Done, Settled::Retried]);
        assert_eq!((mark(world, "1").as_str(), world.line(places[0])), ("applied", None));
        request(world.line(places[1]));
        // The settle of the run was on its way when its owner was told.
        let taken = take(world, &mut a).await;
        let turns: Vec<u32> = taken.asked.iter().map(|(_, line)| line.turn).collect();
        assert_eq!(turns, [1], "the one that is done is not named");
        let ended = verdict(&at_turn(&entries[1], 1), Verdict::Cancelled);
        assert_eq!(world.settle(&mut a, vec![ended]).await, [Settled::Cancelled]);
    });
}

#[test]
fn the_next_owner_finds_what_was_asked_of_the_one_that_died() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "k")]).await;
        let mut a = world.dying("a").await;
        world.claim(&mut a).await;
        assert_eq!(cancel(world, &cancel_of(places[0], "1", "k")).await, Cancelled::Asked);
        // The answer that named it is lost with the tenure.
        take(world, &mut a).await;
        let mut b = world.acquire("b").await;
        let entries = world.recover(&mut b).await;
        request(entries[0].state.line().cloned());
        assert_eq!(
            world.settle(&mut b, vec![verdict(&entries[0], Verdict::Cancelled)]).await,
            [Settled::Cancelled]
        );
    });
}

#[test]
fn a_returned_job_and_one_for_later_can_be_cancelled_too() {
    on_each(async |world| {
        let place = Place { ms: 5, seq: 1 };
        world.come_back(place, &own("1", "k"), &StateLine { turn: 1, replays: 1, ..StateLine::default() });
        let mut a = world.acquire("a").await;
        assert_eq!(cancel(world, &cancel_of(place, "1", "k")).await, Cancelled::Asked);
        let taken = take(world, &mut a).await;
        assert_eq!((taken.entries.len(), taken.asked.len()), (1, 1));
        let ended = verdict(&taken.entries[0], Verdict::Cancelled);
        assert_eq!(world.settle(&mut a, vec![ended]).await, [Settled::Cancelled]);
        assert!(take(world, &mut a).await.entries.is_empty());

        let later = |id| gristmill_job::EncodedJob { due: Due::In(HOUR), ..own(id, "k") };
        let Ok(EnqueueAnswer::Accepted(accepted)) = world.try_enqueue(&[later("2"), later("3")]).await else {
            panic!("not accepted")
        };
        let Accepted::Delayed(member) = &accepted[0] else { panic!("{accepted:?}") };
        let it = Cancel { stands: Stands::Delayed(member.clone()), ..cancel_of(Place::ZERO, "2", "k") };
        assert_eq!(cancel(world, &it).await, Cancelled::Cancelled);
        assert_eq!(cancel(world, &it).await, Cancelled::NotWaiting);
        assert!(mark(world, "2").starts_with("cancelled ") && mark(world, "3").starts_with("waiting "));
        assert_eq!(world.raw(&[b"ZCARD", world.keys.delayed.as_bytes()]).as_int(), Some(1));
        assert_eq!(world.raw(&[b"HLEN", world.keys.delayed_bodies.as_bytes()]).as_int(), Some(1));
    });
}

#[test]
fn many_are_named_slice_by_slice_and_what_is_no_request_is_passed_over() {
    on_each(async |world| {
        let mut a = world.acquire("a").await;
        let jobs: Vec<_> = (0..150).map(|n| own(&n.to_string(), "k")).collect();
        let places = world.enqueue(&jobs).await;
        assert_eq!(world.claim(&mut a).await.len() + world.claim(&mut a).await.len(), 150);
        world.raw(&[b"RPUSH", world.keys.asked.as_bytes(), b"nonsense", b"7-7 1 1 xk"]);
        for (n, place) in places.iter().enumerate() {
            cancel(world, &cancel_of(*place, &n.to_string(), "k")).await;
        }
        let first = take(world, &mut a).await;
        assert!(first.more_asked && first.asked.len() == 98, "{}", first.asked.len());
        let second = take(world, &mut a).await;
        assert_eq!((second.more_asked, second.asked.len()), (false, 52));
        // A key of another type is not written to, and nothing else is.
        world.raw(&[b"SET", world.keys.asked.as_bytes(), b"x"]);
        let more = world.enqueue(&[own("more", "k")]).await[0];
        let refused = world.connection.cancel(&world.keys, 1, &cancel_of(more, "more", "k")).await;
        assert!(refused.is_err() && mark(world, "more").starts_with("waiting "), "{refused:?}");
    });
}

#[test]
fn an_expired_job_leaves_no_effect_and_its_mark_says_so() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "k"), own("2", "k")]).await;
        let mut a = world.acquire("a").await;
        let entries = world.claim(&mut a).await;
        let ended = vec![verdict(&entries[0], Verdict::Expired)];
        assert_eq!(world.settle(&mut a, ended.clone()).await, [Settled::Expired]);
        assert_eq!((mark(world, "1").as_str(), world.length()), ("expired", 1));
        assert!(world.life_ms(&world.keys.seen(b"1")) > 0);
        assert_eq!(world.settle(&mut a, ended).await, [Settled::Gone]);
        assert_eq!(world.standing("1").await, "expired", "the same id is absorbed: it had its time");
        // A copy of its id that came before the mark is no duplicate: the first had no effect.
        let copy = Entry { place: places[1], id: entries[0].id.clone(), ..entries[1].clone() };
        assert_eq!(world.settle(&mut a, vec![put(&copy, 1, "state")]).await, [Settled::Done]);
    });
}

#[test]
fn what_is_asked_of_a_job_survives_being_put_back_in_memory_too() {
    let said = Said::new("me", "why");
    let asked = JobState::default().asked(Request::Cancel(said.clone()));
    let back = asked.put_back(1, gristmill_broker::state::Why::Retry, false, Bytes::new());
    assert_eq!(back.line().unwrap().request, Some(Request::Cancel(said)));
    let skipped = JobState::default().asked(Request::Skip);
    assert_eq!(
        skipped.put_back(1, gristmill_broker::state::Why::Retry, false, Bytes::new()).line().unwrap().request,
        None
    );
}
