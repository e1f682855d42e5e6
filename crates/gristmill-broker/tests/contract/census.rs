//! census: what is counted, and what is found to wait for nothing.

use crate::fixture::*;
use crate::returned::{holding, place, replayed};
use gristmill_broker::Settled;
use gristmill_broker::call::{Answer, Call};
use gristmill_broker::census::Census;

#[test]
fn census_counts_and_removes_what_waits_for_nothing() {
    on_each(async |world| {
        let waiting = world.enqueue(&[own("1", "a"), own("2", "b"), own("3", "c"), own("4", "d")]).await;
        let mut a = world.acquire("a").await;
        let Answer::Claimed(e) = world.call(&mut a, Call::Claim { count: 3 }).await else { panic!() };
        world.come_back(place(1), &own("back", "k"), &replayed(1));
        world.come_back(place(2), &own("without", "k"), &replayed(1));
        world.raw(&[b"HDEL", world.keys.state.as_bytes(), place(2).to_string().as_bytes()]);
        let words = world.settle(&mut a, vec![retry(&e[0], HOUR), holding(dead(&e[1], "letter"))]).await;
        assert_eq!(words, [Settled::Retried, Settled::Dead]);
        let whole = Census {
            claimed: 2,
            returned: 2,
            cursors: (0, 0),
            holds_removed: 0,
            lines_removed: 0,
            changes: 2,
        };
        let (state, held) = (world.hash(&world.keys.state), world.hash(&world.keys.held));
        assert_eq!(world.census(&mut a, (0, 0)).await, whole);
        assert_eq!(
            (world.hash(&world.keys.state), world.hash(&world.keys.held)),
            (state.clone(), held.clone())
        );
        assert_eq!(world.changes(), 2, "nothing changed");

        world.hold("nobody", "no such letter");
        world.raw(&[b"HSET", world.keys.held.as_bytes(), b"foreign", b""]);
        let lines = [
            place(7).to_string(),
            e[1].place.to_string(),
            "no place".into(),
            "9-".into(),
            "9".repeat(40) + "-1",
        ];
        for line in &lines {
            world.raw(&[b"HSET", world.keys.state.as_bytes(), line.as_bytes(), &replayed(1).write()]);
        }
        let stays =
            world.raw(&[b"HSET", world.keys.state.as_bytes(), waiting[3].to_string().as_bytes(), b"x"]);
        assert_eq!(stays.as_int(), Some(1), "of a job that waits in the stream");
        let repaired = world.census(&mut a, (0, 0)).await;
        assert_eq!(repaired, Census { holds_removed: 2, lines_removed: 5, changes: 3, ..whole });
        let mut expected = state;
        expected.insert(waiting[3].to_string(), "x".into());
        assert_eq!((world.hash(&world.keys.state), world.hash(&world.keys.held)), (expected, held));
        assert_eq!(world.changes(), 3, "the owner reads the held keys again");
        assert_eq!((world.returned().len(), world.bodies().len(), world.holders().len()), (2, 2, 2));

        world.hold("nobody", "no such letter");
        let call = Call::Census { cursors: (0, 0) };
        assert_eq!(world.call_as(&a.fence, a.number, &call).await, Answer::Counted(None), "a repeat");
        assert_eq!(world.call_as(&a.fence, a.number + 2, &call).await, gap(a.number));
        world.acquire("a").await;
        assert_fenced(&world.call_as(&a.fence, a.number + 1, &call).await, "a");
        assert!(world.hash(&world.keys.held).contains_key("nobody"));
    });
}

/// Thousands of lines and holds are looked at a slice at a time, each census going on where the last one stopped.
#[test]
fn census_goes_through_all_of_it_in_the_end() {
    on_each(async |world| {
        world.enqueue(&[own("1", "a")]).await;
        let mut a = world.acquire("a").await;
        let entry = world.claim(&mut a).await.remove(0);
        world.settle(&mut a, vec![retry(&entry, HOUR)]).await;
        for n in 0..900 {
            world.hold(&format!("key{n}"), "no such letter");
            world.set_line(place(n), &replayed(1).write());
        }
        let (mut cursors, mut rounds, mut removed) = ((0, 0), 0, (0, 0));
        while removed != (900, 900) {
            let census = world.census(&mut a, cursors).await;
            let now = (removed.0 + census.holds_removed, removed.1 + census.lines_removed);
            assert!(now.0 - removed.0 < 800 && now.1 - removed.1 < 800, "a slice: {census:?}");
            (cursors, rounds, removed) = (census.cursors, rounds + 1, now);
            assert!(rounds < 100, "{removed:?}");
        }
        assert!(rounds > 1);
        let left: Vec<_> = world.hash(&world.keys.state).into_keys().collect();
        assert_eq!(left, [entry.place.to_string()]);
        assert_eq!(world.raw(&[b"EXISTS", world.keys.held.as_bytes()]).as_int(), Some(0));
    });
}
