//! Requests that arrive late, answers that get lost, failovers to an older prefix.

use crate::fixture::*;
use gristmill_broker::call::{Answer, Call, Guard};
use gristmill_broker::lease::acquire::Acquired;
use gristmill_broker::lease::renew::{Renew, Renewed};
use gristmill_broker::{CallError, Connection, Epoch, RedisConfig, Refusal, Settled};
use gristmill_testkit::proxy::Proxy;
use gristmill_testkit::server::{Flavor, Server, ServerOptions};
use std::time::Duration;

fn flavor_of(server: &Server) -> Flavor {
    let same = |flavor: &Flavor| flavor.version().is_ok_and(|version| version == server.version());
    Flavor::available().into_iter().find(same).unwrap()
}

/// The commands of a claim as they are sent, each a list of words.
fn commands(world: &World, tenure: &Tenure) -> Vec<Vec<Vec<u8>>> {
    let guard = Guard { keys: &world.keys, fence: &tenure.fence, number: 1, seen_window_ms: 0 };
    let argument = |argument| match argument {
        redis::Arg::Simple(bytes) => Vec::from(bytes),
        _ => panic!("an argument that is no bytes"),
    };
    let pipeline = Call::Claim { count: 9 }.write(guard);
    pipeline.cmd_iter().map(|command| command.args_iter().map(argument).collect()).collect()
}

#[test]
fn v1_a_claim_whose_answer_is_lost_is_found_by_the_next_tenure() {
    on_each(async |world| {
        let proxy = Proxy::start(world.server.port()).unwrap();
        let through = world.connect(&proxy.url()).await;
        world.enqueue(&[own("1", "k"), own("2", "k")]).await;
        let a = world.acquire("a").await;
        let fault = proxy.cut_after_next_request(&commands(world, &a).last().unwrap()[0]);
        let lost = world.send(&through, &a.fence, 1, &Call::Claim { count: 9 }).await;
        assert!(matches!(lost, Err(CallError::Lost(_))), "{lost:?}");
        fault.wait(SOON).unwrap();
        let claim = Call::Claim { count: 9 };
        assert!(!claim.repeatable());
        assert_eq!(world.call_as(&a.fence, 1, &claim).await, Answer::Already, "a repeat is told so");
        assert_eq!(world.call_as(&a.fence, 2, &claim).await, Answer::Claimed(vec![]), "and shows nothing");
        let mut again = world.acquire("a").await;
        let recovered = world.recover(&mut again).await;
        assert_eq!(ids(&recovered), ["1", "2"]);
        assert!(recovered.iter().all(|entry| entry.recovered));
    });
}

/// Whether the whole claim is late or only its end: it reads nothing in the new epoch of the same owner.
#[test]
fn v2_a_late_claim_of_an_old_tenure_reads_nothing() {
    for whole in [true, false] {
        on_each(async |world| {
            let proxy = Proxy::start(world.server.port()).unwrap();
            let through = world.connect(&proxy.url()).await;
            world.enqueue(&[own("1", "k"), own("2", "k")]).await;
            let mut a = world.acquire("a").await;
            a.number = 1;
            let commands = commands(world, &a);
            let command = if whole { commands.first() } else { commands.last() };
            let held = proxy.hold_next_request(&command.unwrap()[0]);
            let claim = world.spawn(&through, &a, Call::Claim { count: 9 });
            held.wait_held(SOON).unwrap();
            proxy.cut();
            let lost = claim.await.unwrap();
            assert!(matches!(lost, Err(CallError::Lost(_))), "{lost:?}");
            let mut again = world.acquire("a").await;
            assert_eq!(world.recover(&mut again).await, []);
            let seen = world.server.info("commandstats", "cmdstat_xreadgroup").unwrap_or_default();
            held.release(SOON).unwrap();
            gristmill_testkit::eventually(SOON, "the late read to be executed", || {
                (world.server.info("commandstats", "cmdstat_xreadgroup").unwrap_or_default() != seen)
                    .then_some(())
            });
            assert_eq!(world.holders(), [], "whole: {whole}");
            assert_eq!(ids(&world.claim(&mut again).await), ["1", "2"]);
        });
    }
}

#[test]
fn v3_a_late_release_frees_no_later_epoch() {
    on_each(async |world| {
        let proxy = Proxy::start(world.server.port()).unwrap();
        let through = world.connect(&proxy.url()).await;
        let mut a = world.acquire("a").await;
        a.number = 1;
        let held = proxy.hold_next_request("EVALSHA");
        let release = world.spawn(&through, &a, Call::Release);
        held.wait_held(SOON).unwrap();
        proxy.cut();
        assert!(release.await.unwrap().is_err());
        let mut again = world.acquire("a").await;
        assert!(again.fence.epoch > a.fence.epoch, "the same owner gets another epoch");
        held.release(SOON).unwrap();
        assert!(matches!(world.try_acquire("b", HOUR, Epoch(0)).await, Acquired::Held { .. }));
        world.enqueue(&[own("1", "k")]).await;
        assert_eq!(ids(&world.claim(&mut again).await), ["1"], "its gate is open still");
    });
}

/// The worst moment: between the guard of a claim and its read another acquires. The gate alone keeps it out, also where
/// nothing holds the two together.
#[test]
fn v4_a_claim_cut_in_half_by_another_owner_reads_nothing() {
    on_each(async |world| {
        world.enqueue(&[own("1", "k"), own("2", "k")]).await;
        let a = world.acquire_for("a", Duration::ZERO).await;
        let commands = commands(world, &a);
        let half = |name: &[u8]| commands.iter().find(|command| command[0] == name).unwrap();
        let (mut guard, mut read) = (world.server.connection().unwrap(), world.server.connection().unwrap());
        let answer = guard.command(half(b"EVALSHA")).unwrap();
        assert_eq!(answer.as_array().unwrap()[0].as_str(), Some("ok"), "its guard still passes");
        let mut b = world.acquire("b").await;
        let refused = read.command(half(b"XREADGROUP")).unwrap_err().to_string();
        assert!(refused.contains("NOGROUP"), "{refused}");
        assert_eq!(world.holders(), []);
        assert_eq!(ids(&world.claim(&mut b).await), ["1", "2"]);
    });
}

/// The failover is hidden by what stands between: the tenure's own connection goes on.
#[test]
fn v9_calls_that_follow_lost_ones_do_nothing() {
    on_each(async |world| {
        let proxy = Proxy::start(world.server.port()).unwrap();
        let through = world.connect(&proxy.url()).await;
        world.enqueue(&[own("1", "k"), own("2", "k")]).await;
        let mut a = world.acquire("a").await;
        let claimed = world.claim(&mut a).await;
        let snapshot = world.server.snapshot().unwrap();
        let first = Call::Settle(vec![put(&claimed[0], 1, "one")]);
        let answer = world.send(&through, &a.fence, 2, &first).await.unwrap();
        assert_eq!(settled(answer), [Settled::Done]);

        let options = ServerOptions::new().flavor(flavor_of(&world.server)).snapshot(&snapshot);
        let older = Server::start(options).unwrap();
        // Its scripts are there: other clients are older than our connection.
        let direct = world.connect(&older.url()).await;
        proxy.fail_over_unseen(older.port()).unwrap();
        let second = Call::Settle(vec![put(&claimed[1], 2, "two")]);
        let answer = world.send(&through, &a.fence, 3, &second).await.unwrap();
        assert_eq!(answer, gap(1), "or the second effect came before the first");
        let renew = Renew { keys: world.keys.clone(), fence: a.fence.clone(), answered: 2 };
        let renewed = through.renew(&[renew], HOUR).await.unwrap();
        assert_eq!(renewed, [Renewed::Refused(Refusal::Gap { last: 1 })]);
        let view = direct.partitions(&world.queue).await.unwrap().remove(0);
        assert_eq!((view.ready, view.claimed), (2, 2));
        assert_eq!(direct.entity(&world.queue, b"k").await.unwrap(), None);
    });
}

/// The clock of the server that takes over may be behind; the epoch is above what this incarnation held all the same.
#[test]
fn v14_an_acquire_after_a_failover_is_above_every_epoch_held_before() {
    on_each(async |world| {
        let snapshot = world.server.snapshot().unwrap();
        let lost = world.acquire("a").await.fence.epoch;
        world.server.roll_back_to(&snapshot).unwrap();
        world.reconnect().await;
        let far = Epoch(lost.0 + 3_600_000);
        for highest in [lost, far] {
            let Acquired::Granted(epoch) = world.try_acquire("a", HOUR, highest).await else {
                panic!("not granted");
            };
            assert!(epoch > highest, "{epoch} after {highest}");
        }
        let Acquired::Granted(after) = world.try_acquire("a", HOUR, Epoch(0)).await else {
            panic!("not granted")
        };
        assert!(after > far, "also where only Redis remembers");
    });
}

#[test]
fn a_settle_whose_answer_is_lost_is_repeated_under_its_number() {
    on_each(async |world| {
        let proxy = Proxy::start(world.server.port()).unwrap();
        let through = world.connect(&proxy.url()).await;
        world.enqueue(&[own("1", "k"), ours("2", "k"), own("3", "k")]).await;
        let mut a = world.acquire("a").await;
        let claimed = world.claim(&mut a).await;
        let call = Call::Settle(vec![put(&claimed[0], 1, "x"), plain(&claimed[1]), retry(&claimed[2], HOUR)]);
        assert!(call.repeatable());
        let fault = proxy.cut_after_next_request("EVALSHA");
        let lost = world.send(&through, &a.fence, 2, &call).await;
        assert!(matches!(lost, Err(CallError::Lost(_))), "{lost:?}");
        fault.wait(SOON).unwrap();
        let words = repeated(world.call_as(&a.fence, 2, &call).await);
        assert_eq!(words, [Settled::Gone, Settled::Gone, Settled::AtTurn(1)]);
        let entity = world.connection.entity(&world.queue, b"k").await.unwrap().unwrap();
        assert_eq!(entity.changes, 1);

        let through = world.connect(&proxy.url()).await;
        let fault = proxy.cut_before_next_request("EVALSHA");
        let call = Call::Settle(vec![done(&claimed[0]), plain(&claimed[1])]);
        let lost = world.send(&through, &a.fence, 3, &call).await;
        assert!(matches!(lost, Err(CallError::Lost(_))), "{lost:?}");
        fault.wait(SOON).unwrap();
        let answer = world.call_as(&a.fence, 3, &call).await;
        assert_eq!(settled(answer), [Settled::Gone, Settled::Gone], "it never ran: this is the first");
    });
}

#[test]
fn a_settle_that_is_answered_too_late_is_repeated_on_the_same_connection() {
    on_each(async |world| {
        let proxy = Proxy::start(world.server.port()).unwrap();
        let mut config = RedisConfig::new(proxy.url());
        config.response_timeout = Duration::from_millis(200);
        let through = Connection::open(&config, 1).await.unwrap();
        world.enqueue(&[own("1", "k")]).await;
        let mut a = world.acquire("a").await;
        let claimed = world.claim(&mut a).await;
        let call = Call::Settle(vec![put(&claimed[0], 1, "x")]);
        let held = proxy.hold_next_reply("EVALSHA");
        assert_eq!(world.send(&through, &a.fence, 2, &call).await, Err(CallError::Unknown));
        held.wait_held(SOON).unwrap();
        held.release();
        let words = repeated(world.send(&through, &a.fence, 2, &call).await.unwrap());
        assert_eq!(words, [Settled::Gone], "the late answer is not taken for this one");
        let release = proxy.hold_next_reply("EVALSHA");
        assert_eq!(world.send(&through, &a.fence, 3, &Call::Release).await, Err(CallError::Unknown));
        release.wait_held(SOON).unwrap();
        release.release();
        assert_eq!(world.send(&through, &a.fence, 3, &Call::Release).await, Ok(Answer::Done));
    });
}
