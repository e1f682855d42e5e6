//! How a partition stands, as the monitor reads it: the same on every server, and bounded.

use crate::fixture::{HOUR, SOON, World, dead, incarnation, on_each, own, retry};
use gristmill_broker::doctor::ClaimsOver;
use gristmill_broker::look::{Look, READ};
use gristmill_broker::state::Why;
use gristmill_broker::{Entry, Settle, Verdict};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

fn snooze(entry: &Entry) -> Settle {
    let mut settle = retry(entry, MINUTE);
    if let Verdict::Retry { why, .. } = &mut settle.verdict {
        *why = Why::Snooze;
    }
    settle
}

#[test]
fn a_partition_is_told_in_numbers_and_its_ages_are_of_the_servers_own_clock() {
    on_each(async |world| {
        let look = world.connection.look(&world.queue, 0..1).await.unwrap();
        assert_eq!(look, Look { partitions: 1, ..Look::default() }, "nothing was ever there");

        let jobs: Vec<_> = (0..6).map(|n| own(&format!("i{n}"), &format!("k{n}"))).collect();
        world.enqueue(&jobs[..5]).await;
        let mut tenure = world.acquire("a").await;
        let entries = world.claim(&mut tenure).await;
        world.enqueue(&jobs[5..]).await;
        let verdicts = vec![retry(&entries[0], MINUTE), snooze(&entries[1]), dead(&entries[2], "letter")];
        world.settle(&mut tenure, verdicts).await;
        // The first claims wait for a time; the others have stood for a moment, and the last job nobody has claimed.
        let aged = |look: &Look| {
            look.oldest_claim.is_some()
                && look.oldest_ready.is_some_and(|age| !age.is_zero())
                && look.blocked.is_some()
        };
        let deadline = std::time::Instant::now() + SOON;
        let look = loop {
            let look = world.connection.look(&world.queue, 0..1).await.unwrap();
            if aged(&look) {
                break look;
            }
            assert!(std::time::Instant::now() < deadline, "{look:?}");
        };
        let numbers = (look.added, look.jobs, look.claimed, look.dead, look.retries, look.waiting);
        assert_eq!(numbers, (6, 5, 4, 1, 1, 1), "{look:?}");
        assert_eq!((look.ready(), look.in_flight(), look.owned, look.partitions), (1, 2, 1, 1));
        for age in [look.oldest_ready, look.oldest_claim, look.blocked].into_iter().flatten() {
            assert!(age < SOON, "{look:?}");
        }
        assert_eq!((look.delayed, look.overdue), (0, None));
        let later = gristmill_job::EncodedJob { due: gristmill_job::Due::In(MINUTE), ..own("later", "k") };
        world.try_enqueue(&[later]).await.unwrap();
        let to_come = world.connection.look(&world.queue, 0..1).await.unwrap();
        assert_eq!((to_come.delayed, to_come.overdue, to_come.jobs), (1, None, 5));
        let member = b"0000000000000001:1:later";
        world.raw(&[b"ZADD", world.keys.delayed.as_bytes(), b"1000", member]);
        let overdue = world.connection.look(&world.queue, 0..1).await.unwrap().overdue;
        assert!(overdue.is_some_and(|late| late > Duration::from_secs(1_000_000_000)), "{overdue:?}");
        world.raw(&[b"SET", world.keys.delayed.as_bytes(), b"text"]);
        assert_eq!(world.connection.look(&world.queue, 0..1).await.unwrap().delayed, 0, "of another type");
        assert_eq!(world.connection.partitions(&world.queue).await.unwrap()[0].delayed, 0, "of another type");
        let both = look.clone().and(&look);
        assert_eq!((both.jobs, both.partitions, both.oldest_ready), (10, 2, look.oldest_ready));
    });
}

#[test]
fn a_lease_that_ran_out_is_no_owner_and_a_key_that_waits_for_a_person_is_blocked() {
    on_each(async |world| {
        world.dying("a").await;
        world.raw(&[b"HSET", world.keys.held.as_bytes(), b"k", b"letter 1000 5-0"]);
        let look = world.connection.look(&world.queue, 0..1).await.unwrap();
        assert_eq!((look.owned, look.partitions), (0, 1));
        assert!(look.blocked.is_some_and(|age| age > Duration::from_secs(1_000_000_000)), "{look:?}");
    });
}

#[test]
fn more_lines_than_are_read_are_counted_by_their_share() {
    on_each(async |world| {
        let lines = READ as u64 * 20;
        for n in 0..lines {
            let why = if n % 2 == 0 { "retry" } else { "snooze" };
            let (place, line) = (format!("{}-0", n + 1), format!("1 1 9000000000000 {why} - 0 - - 0 - "));
            world.raw(&[b"HSET", world.keys.state.as_bytes(), place.as_bytes(), line.as_bytes()]);
        }
        let look = world.connection.look(&world.queue, 0..1).await.unwrap();
        let (all, half) = (look.retries + look.waiting, lines / 2);
        assert!(all.abs_diff(lines) <= 1, "{look:?}");
        assert!(look.retries > half / 2 && look.retries < half * 3 / 2, "{look:?}");
    });
}

#[test]
fn the_claim_that_was_not_extended_for_longest_is_the_one_that_is_told() {
    on_each(async |world| {
        world.unordered().await;
        let over = async |world: &World| world.connection.claims_over(&world.queue, HOUR).await.unwrap();
        assert_eq!(over(world).await, ClaimsOver::default());
        world.enqueue(&[own("1", "k"), own("2", "other"), own("3", "third"), own("4", "fourth")]).await;
        let (mine, theirs) = (world.grab("a", 2).await, world.grab("b", 2).await);
        let idle = |world: &World, holder: &str, entry: &Entry, ms: &str| {
            let (stream, place) = (world.keys.stream.as_bytes(), entry.place.to_string());
            let words: [&[u8]; 9] = [
                b"XCLAIM",
                stream,
                b"workers",
                holder.as_bytes(),
                b"0",
                place.as_bytes(),
                b"IDLE",
                ms.as_bytes(),
                b"JUSTID",
            ];
            world.raw(&words);
        };
        let (a, b) = (incarnation("a"), incarnation("b"));
        let look = world.connection.look(&world.queue, 0..1).await.unwrap();
        assert!(look.oldest_claim.is_none_or(|oldest| oldest < HOUR), "{look:?}");
        // The first by place is not the oldest, and what was handed back is nobody's.
        idle(world, &format!("{a}#0"), &mine[1], "3700000");
        idle(world, &format!("{b}#0"), &theirs[0], "7200000");
        idle(world, "handed-back", &theirs[1], "7100000");
        let found = over(world).await;
        assert_eq!(
            (found.claims, found.at_least, found.holder.as_str()),
            (2, false, b.as_str()),
            "{found:?}"
        );
        assert!(found.oldest >= 2 * HOUR, "{found:?}");
        let look = world.connection.look(&world.queue, 0..1).await.unwrap();
        assert!(look.oldest_claim.is_some_and(|oldest| oldest >= 2 * HOUR), "{look:?}");
        world.raw(&[b"XGROUP", b"DESTROY", world.keys.stream.as_bytes(), b"workers"]);
        assert_eq!(over(world).await, ClaimsOver::default(), "without a group nothing is claimed");
    });
}
