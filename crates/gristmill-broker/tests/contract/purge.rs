//! What a person purges: waiting, claimed, returned, for later; and what becomes of the owner and of what came later.

use crate::fixture::*;
use gristmill_broker::call::{Answer, Call};
use gristmill_broker::lease::acquire::Acquired;
use gristmill_broker::purge::{LeaseSeen, Purge, Purged};
use gristmill_broker::{Epoch, Settled, StateLine};
use gristmill_job::{Due, EncodedJob, JobId, Place};

fn at(place: Place, id: &str) -> Purge {
    Purge::At(place, JobId::new(id).unwrap())
}

async fn lease(world: &World) -> LeaseSeen {
    world.connection.purgeable(&world.keys, None, None).await.unwrap().lease
}

async fn purge(world: &World, jobs: &[Purge]) -> (Vec<bool>, bool) {
    match world.connection.purge(&world.keys, &lease(world).await, jobs).await.unwrap() {
        Purged::Done { jobs, tenure_ended } => (jobs, tenure_ended),
        changed => panic!("{changed:?}"),
    }
}

fn mark(world: &World, id: &str) -> Option<String> {
    world.raw(&[b"GET", &world.keys.seen(id.as_bytes())]).as_str().map(str::to_owned)
}

#[test]
fn v36_what_waits_is_gone_with_its_mark_and_its_id_may_come_again() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "k"), own("2", "k"), ours("3", "k")]).await;
        let slice = [at(places[0], "1"), at(places[1], "other"), at(places[2], "3"), at(places[0], "1")];
        assert_eq!(purge(world, &slice).await, (vec![true, false, true, false], false));
        assert_eq!((mark(world, "1"), world.length()), (None, 1));
        assert!(mark(world, "2").is_some(), "a place may come again with another job");
        assert_eq!(world.enqueue(&[own("1", "k")]).await.len(), 1);
        // The mark is of the job that came later.
        world.raw(&[b"SET", &world.keys.seen(b"2"), b"waiting 9-9"]);
        assert_eq!(purge(world, &[at(places[1], "2")]).await, (vec![true], false));
        assert_eq!(mark(world, "2").as_deref(), Some("waiting 9-9"));
    });
}

#[test]
fn what_its_owner_held_ends_its_tenure_and_the_run_is_refused() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "k"), own("2", "k"), own("3", "other")]).await;
        let mut a = world.acquire("a").await;
        let entries = world.claim(&mut a).await;
        world.settle(&mut a, vec![retry(&entries[1], HOUR)]).await;
        let epoch = a.fence.epoch;
        assert_eq!(purge(world, &[at(places[0], "1"), at(places[1], "2")]).await, (vec![true, true], true));
        assert_eq!(world.line(places[1]), None);
        let seen = lease(world).await;
        assert_eq!(
            (seen.owner.as_str(), seen.epoch),
            (a.fence.incarnation.as_str(), (epoch.0 + 1).to_string())
        );
        // Whatever the old tenure says is refused, a claim reads nothing, and its gate is closed.
        world.enqueue(&[own("4", "k")]).await;
        assert_fenced(
            &world.call_as(&a.fence, a.number + 1, &Call::Settle(vec![done(&entries[0])])).await,
            "a",
        );
        assert_fenced(&world.call_as(&a.fence, a.number + 2, &Call::Claim { count: 10 }).await, "a");
        assert_eq!(world.raw(&[b"EXISTS", &world.keys.gate(&a.fence)]).as_int(), Some(0));
        // The same owner goes on, in a later epoch, with what is left.
        let mut again = world.acquire("a").await;
        assert!(again.fence.epoch > Epoch(epoch.0 + 1));
        assert_eq!(ids(&world.recover(&mut again).await), ["3"]);
        assert_eq!(ids(&world.claim(&mut again).await), ["4"]);
        let held = world.try_acquire("b", HOUR, Epoch(0)).await;
        assert!(matches!(held, Acquired::Held { .. }), "its owner is kept: {held:?}");
    });
}

#[test]
fn a_lease_that_changed_hands_since_it_was_read_is_not_touched() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "k")]).await;
        let before = lease(world).await;
        let mut a = world.acquire("a").await;
        world.claim(&mut a).await;
        let answer = world.connection.purge(&world.keys, &before, &[at(places[0], "1")]).await.unwrap();
        let Purged::Changed(now) = answer else { panic!("{answer:?}") };
        assert_eq!((now.owner.as_str(), world.length()), (a.fence.incarnation.as_str(), 1));
        assert_eq!(world.settle(&mut a, vec![]).await, []);
    });
}

#[test]
fn all_that_was_there_goes_and_what_came_later_stays() {
    on_each(async |world| {
        let place = Place { ms: 5, seq: 1 };
        world.come_back(place, &own("back", "k"), &StateLine { turn: 1, replays: 1, ..StateLine::default() });
        let later = |id: &str| EncodedJob { due: Due::In(HOUR), ..own(id, "k") };
        world.try_enqueue(&[later("soon"), later("late")]).await.unwrap();
        let jobs: Vec<_> = (0..500).map(|n| own(&n.to_string(), &format!("k{}", n % 7))).collect();
        for jobs in jobs.chunks(100) {
            world.enqueue(jobs).await;
        }
        let mut a = world.acquire("a").await;
        world.claim(&mut a).await;
        let until = world.connection.purgeable(&world.keys, None, None).await.unwrap().until;
        world.enqueue(&[own("after", "k")]).await;
        world.try_enqueue(&[later("for later, after")]).await.unwrap();
        let mut purged = 0;
        world.connection.purge_waiting(&world.keys, &until, |jobs| purged += jobs).await.unwrap();
        assert_eq!((purged, world.length()), (503, 1));
        let count = |command: &[u8], key: &str| world.raw(&[command, key.as_bytes()]).as_int().unwrap();
        assert_eq!(
            (count(b"ZCARD", &world.keys.returned), count(b"HLEN", &world.keys.returned_bodies)),
            (0, 0)
        );
        assert_eq!(
            (count(b"ZCARD", &world.keys.delayed), count(b"HLEN", &world.keys.delayed_bodies)),
            (1, 1)
        );
        assert_eq!(
            (count(b"HLEN", &world.keys.state), mark(world, "soon"), mark(world, "7")),
            (0, None, None)
        );
        assert!(mark(world, "after").is_some() && mark(world, "for later, after").is_some());
        let pending = world.raw(&[b"XPENDING", world.keys.stream.as_bytes(), b"workers"]);
        assert_eq!(pending.as_array().unwrap()[0].as_int(), Some(0));
        let mut b = world.acquire("a").await;
        world.recover(&mut b).await;
        assert_eq!(ids(&world.claim(&mut b).await), ["after"]);
        // Once more finds nothing.
        let mut again = 0;
        world.connection.purge_waiting(&world.keys, &until, |jobs| again += jobs).await.unwrap();
        assert_eq!(again, 0);
        assert!(matches!(
            world.call(&mut b, Call::Census { cursors: (0, 0) }).await,
            Answer::Counted(Some(_))
        ));
        let entries = world.raw(&[b"XLEN", world.keys.stream.as_bytes()]).as_int();
        assert_eq!(entries, Some(1));
    });
}

#[test]
fn a_key_of_another_type_is_read_first_and_nothing_is_purged() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "k")]).await;
        world.raw(&[b"SET", world.keys.originals.as_bytes(), b"x"]);
        let seen = lease(world).await;
        assert!(world.connection.purge(&world.keys, &seen, &[at(places[0], "1")]).await.is_err());
        assert_eq!((world.length(), mark(world, "1").is_some()), (1, true));
        let mut a = world.acquire("a").await;
        let entries = world.claim(&mut a).await;
        assert_eq!(world.settle(&mut a, vec![done(&entries[0])]).await, [Settled::Done]);
    });
}
