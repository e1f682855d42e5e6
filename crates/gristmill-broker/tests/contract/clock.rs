//! What a Redis clock that was set back leaves behind: every stored time is further away than it was ever meant to be. Most of these
//! tests write that; where Redis itself keeps the time, they set the server's clock.

use crate::fixture::*;
use gristmill_broker::Epoch;
use gristmill_broker::lease::acquire::Acquired;
use gristmill_broker::lease::renew::{Renew, Renewed};
use gristmill_broker::reclaim::{Reclaim, Reclaimed};
use gristmill_job::Place;
use gristmill_testkit::server::ServerOptions;
use std::time::{Duration, Instant};

const TTL: Duration = Duration::from_secs(5);

impl World {
    /// The time in a field of the lease, an hour later than it is.
    fn an_hour_later(&self, field: &str) {
        let lease = self.keys.lease.as_bytes();
        assert!(self.raw(&[b"HINCRBY", lease, field.as_bytes(), b"3600000"]).as_int().is_some());
    }
}

#[test]
fn a_lease_from_before_the_clock_was_set_back_stands_for_its_ttl_and_no_longer() {
    on_each(async |world| {
        let a = world.acquire_for("a", TTL).await;
        world.an_hour_later("expires");
        for other in ["b", "c"] {
            match world.try_acquire(other, HOUR, Epoch(0)).await {
                Acquired::Held { left, .. } => assert!(left <= TTL && left > TTL / 2, "{left:?} for {other}"),
                other => panic!("{other:?}"),
            }
        }
        // Its owner lives: it is prolonged as ever, and by its own ttl.
        let renew = || Renew { keys: world.keys.clone(), fence: a.fence.clone(), answered: 0 };
        let renewed = world.connection.renew(&[renew()], TTL).await.unwrap().remove(0);
        assert!(matches!(renewed, Renewed::Ok { .. }), "{renewed:?}");
        // Its owner is dead: it runs out.
        let gone = world.connection.renew(&[renew()], Duration::from_millis(1)).await.unwrap();
        assert_eq!(gone.len(), 1);
        let deadline = std::time::Instant::now() + SOON;
        while !matches!(world.try_acquire("b", HOUR, Epoch(0)).await, Acquired::Granted(_)) {
            assert!(
                std::time::Instant::now() < deadline,
                "a lease stays for as long as the clock was set back"
            );
        }
    });
}

#[test]
fn a_longer_lease_of_another_node_is_not_cut_to_the_length_of_mine() {
    on_each(async |world| {
        world.acquire("a").await;
        match world.try_acquire("b", Duration::from_millis(1), Epoch(0)).await {
            Acquired::Held { left, .. } => assert!(left > HOUR / 2, "{left:?}"),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_lease_that_was_prolonged_by_more_than_it_was_granted_for_stands_for_that() {
    on_each(async |world| {
        let a = world.acquire_for("a", Duration::from_millis(1)).await;
        let renew = Renew { keys: world.keys.clone(), fence: a.fence, answered: 0 };
        let renewed = world.connection.renew(&[renew], HOUR).await.unwrap().remove(0);
        assert!(matches!(renewed, Renewed::Ok { .. }), "{renewed:?}");
        match world.try_acquire("b", HOUR, Epoch(0)).await {
            Acquired::Held { left, .. } => assert!(left > HOUR / 2, "{left:?}"),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_node_from_before_the_clock_was_set_back_lives_for_its_ttl_and_has_been_there_since_now() {
    on_each(async |world| {
        let name = world.queue.name.clone();
        let announce = async |who: &str, ttl| {
            let mut living =
                world.connection.announce(&name, &incarnation(who), ttl, false, "").await.unwrap();
            living.sort_by(|a, b| a.incarnation.as_str().cmp(b.incarnation.as_str()));
            living
        };
        announce("dead", Duration::from_millis(1)).await;
        announce("lives", HOUR).await;
        let nodes = format!("gm:{{{name}}}:nodes");
        for who in ["dead", "lives"] {
            let field = incarnation(who).to_string();
            let entry = world.raw(&[b"HGET", nodes.as_bytes(), field.as_bytes()]);
            let Some(entry) = entry.as_str() else { continue };
            let words: Vec<u64> = entry.split(' ').map(|word| word.parse().unwrap()).collect();
            let late = format!("{} {} {} {}", words[0] + 9_000_000, words[1] + 9_000_000, words[2], words[3]);
            world.raw(&[b"HSET", nodes.as_bytes(), field.as_bytes(), late.as_bytes()]);
        }
        let deadline = std::time::Instant::now() + SOON;
        while announce("me", HOUR).await.len() > 2 {
            assert!(
                std::time::Instant::now() < deadline,
                "who died stays for as long as the clock was set back"
            );
        }
        let living = announce("me", HOUR).await;
        assert_eq!(living[0].incarnation, incarnation("lives"));
        assert_eq!(living[0].since, Duration::ZERO);
        let again = announce("lives", HOUR).await;
        assert!(again[0].since < SOON, "it grows from here on: {:?}", again[0].since);
    });
}

/// Past the harness, which keeps to itself what a test that passes prints.
fn can_set_a_clock() -> bool {
    let missing = ServerOptions::find_faketime().err();
    if let Some(missing) = &missing {
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("SKIPPED what a clock that is set leaves behind: {missing}\n"),
        );
    }
    missing.is_none()
}

#[test]
fn a_claim_from_before_the_clock_was_set_back_stands_for_its_timeout_and_no_longer() {
    if !can_set_a_clock() {
        return;
    }
    on_each_with(&ServerOptions::new().settable_clock(), async |world| {
        let timeout = Duration::from_millis(300);
        world.unordered().await;
        world.enqueue(&[ours("1", "k"), ours("2", "k")]).await;
        assert_eq!(world.grab("dead", 1).await.len() + world.grab("lives", 1).await.len(), 2);
        world.server.set_clock(-36_000).unwrap();
        let reclaim = async |count| {
            let reclaim = Reclaim { timeout, cursor: Place::ZERO, count };
            match world.connection.reclaim(&world.keys, &incarnation("b"), reclaim).await.unwrap() {
                Reclaimed::Slice { entries, .. } => ids(&entries),
                other => panic!("{other:?}"),
            }
        };
        // A look is enough, and takes nothing.
        assert_eq!((reclaim(0).await.len(), reclaim(9).await.len()), (0, 0));
        let counted = world.raw(&[b"XPENDING", world.keys.stream.as_bytes(), b"workers", b"-", b"+", b"9"]);
        let counted = counted.as_array().unwrap().iter().map(|row| row.as_array().unwrap()[3].as_int());
        assert_eq!(counted.collect::<Vec<_>>(), [Some(1); 2], "nothing was delivered");
        let deadline = Instant::now() + SOON;
        let mut taken = Vec::new();
        while taken.len() < 2 {
            taken.extend(reclaim(9).await);
            assert!(Instant::now() < deadline, "a claim stays for as long as the clock was set back");
        }
    });
}
