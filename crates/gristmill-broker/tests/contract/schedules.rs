//! Recurring jobs: who fires a slot, and how often, whatever nodes, people and the clock do.

use crate::fixture::*;
use bytes::Bytes;
use gristmill_broker::schedule::define::{Define, DefineAnswer, Defined};
use gristmill_broker::schedule::fire::{Fire, FireAnswer, Fired};
use gristmill_broker::schedule::pause_schedule::PausedSchedule;
use gristmill_broker::schedule::remove_schedule::RemovedSchedule;
use gristmill_broker::schedule::{DEFINITION_STANDS, Record, ScheduleView};
use gristmill_broker::{Call, CallError, Settled};
use gristmill_job::{Due, EncodedJob, JobId, Key, UnixMillis};
use gristmill_testkit::server::Reply;
use std::time::Duration;

const NAME: &str = "tick";

/// A definition by its number; 0 and 1 have the same slots, 2 has others.
fn definition(number: u8) -> Define {
    Define {
        name: NAME.into(),
        timing: format!("{:016x}", number / 2),
        whole: format!("{number:016x}"),
        definition: format!("{{\"number\":{number}}}"),
        known: None,
    }
}

/// How one stands; the answer's clock first.
async fn define(world: &World, one: &Define) -> (UnixMillis, Defined) {
    match world.connection.define(&world.keys, std::slice::from_ref(one)).await.unwrap() {
        DefineAnswer::Defined(now, mut defined) => (now, defined.remove(0)),
        other => panic!("not defined: {other:?}"),
    }
}

/// The same where it stands: up to where all was dealt with.
async fn stands(world: &World, one: &Define) -> UnixMillis {
    match define(world, one).await.1 {
        Defined::Stands { after, .. } => after,
        other => panic!("does not stand: {other:?}"),
    }
}

fn record(world: &World) -> Record {
    let record = world.raw(&[b"HGET", world.keys.schedules.as_bytes(), NAME.as_bytes()]);
    Record::parse(record.as_str().unwrap_or_default().as_bytes()).unwrap()
}

/// Writes the record by hand: as if that had happened then.
fn edit(world: &World, edit: impl FnOnce(&mut Record)) {
    let mut r = record(world);
    edit(&mut r);
    let line = format!("{} {} {} {} {} {}", r.timing, r.whole, r.after, r.fired, r.call, r.confirmed);
    world.raw(&[b"HSET", world.keys.schedules.as_bytes(), NAME.as_bytes(), line.as_bytes()]);
}

/// A record that was made an hour ago.
async fn begun(world: &World) -> UnixMillis {
    stands(world, &definition(0)).await;
    edit(world, |record| record.after.0 -= 3_600_000);
    record(world).after
}

fn job(slot: UnixMillis) -> EncodedJob {
    EncodedJob {
        id: JobId::new(&format!("{NAME}@{slot}")).unwrap(),
        key: Key::new("k").unwrap(),
        envelope: Bytes::from(format!("slot {slot}")),
        own_id: true,
        due: Due::Now,
    }
}

/// The slot so many seconds after the last, of a node that knows how the record stands.
fn fire(world: &World, seconds: u64, call: &str) -> Fire {
    let Record { timing, whole, after, fired, .. } = record(world);
    let slot = UnixMillis(after.0 + seconds * 1000);
    Fire {
        name: NAME.into(),
        timing,
        whole,
        after,
        fired,
        before: job(fired).id,
        slot,
        job: job(slot),
        pass: false,
        unless_alive: false,
        call: call.into(),
    }
}

async fn send(world: &World, fire: &Fire) -> Fired {
    match world.connection.fire(&world.keys, 1, fire).await.unwrap() {
        FireAnswer::Fired(_, fired) => fired,
        other => panic!("not fired: {other:?}"),
    }
}

fn moved(fired: &Fired) -> bool {
    matches!(fired, Fired::Moved { .. })
}

async fn kept(world: &World) -> Vec<ScheduleView> {
    world.connection.schedules(&world.queue).await.unwrap().1
}

#[test]
fn a_new_schedule_begins_now_and_is_shown_with_what_is_known_of_it() {
    on_each(async |world| {
        let (now, answer) = define(world, &definition(0)).await;
        let expected = Defined::Stands { after: now, fired: UnixMillis(0), call: "-".into(), paused: false };
        assert_eq!(answer, expected);
        let view = kept(world).await.remove(0);
        assert_eq!((view.name.as_str(), view.definition.as_ref()), (NAME, &b"{\"number\":0}"[..]));
        assert_eq!((view.record.as_ref().unwrap().after, &view.pause), (now, &None));
        assert!(view.is_defined(now) && !view.is_defined(UnixMillis(now.0 + 15_000)));
        // Without its text it stands as long as there is a record, and is asked for where there is none.
        let told = Define { definition: String::new(), ..definition(0) };
        assert_eq!(stands(world, &told).await, now);
        world.raw(&[b"DEL", world.keys.schedules.as_bytes()]);
        assert_eq!(define(world, &told).await.1, Defined::Tell);
        world.raw(&[b"DEL", world.keys.meta.as_bytes()]);
        let answer = world.connection.define(&world.keys, &[told]).await.unwrap();
        assert_eq!(answer, DefineAnswer::NoQueue);
    });
}

#[test]
fn a_slot_is_fired_by_one_of_two_nodes_and_its_repeat_does_nothing() {
    on_each(async |world| {
        let after = begun(world).await;
        let (a, b) = (fire(world, 60, "a1"), fire(world, 60, "b1"));
        let Fired::At(place) = send(world, &a).await else { panic!("not fired") };
        assert!(moved(&send(world, &b).await));
        assert_eq!(send(world, &a).await, Fired::Already { fired: a.slot });
        assert_eq!(world.length(), 1);
        assert_eq!(world.standing(&a.job.id.to_string()).await, format!("waiting {place}"));
        let now = record(world);
        assert_eq!((now.after, now.fired), (a.slot, a.slot));
        assert_eq!(a.slot.0, after.0 + 60_000);
        // The job is like any other.
        let mut owner = world.acquire("a").await;
        let entry = world.claim(&mut owner).await.remove(0);
        assert_eq!((entry.id.clone(), entry.envelope.clone()), (a.job.id.clone(), a.job.envelope.clone()));
        assert_eq!(world.settle(&mut owner, vec![put(&entry, 1, "x")]).await, [Settled::Done]);
        // Others went on since: the late repeat of the first call still does nothing.
        assert!(matches!(send(world, &fire(world, 60, "b2")).await, Fired::At(_)));
        assert!(moved(&send(world, &a).await));
        assert_eq!(world.length(), 1);
    });
}

#[test]
fn what_is_not_to_be_fired_writes_nothing() {
    on_each(async |world| {
        let answer = world.connection.fire(&world.keys, 1, &fire_of_nobody()).await.unwrap();
        assert!(matches!(answer, FireAnswer::Fired(_, Fired::Unknown)), "{answer:?}");
        begun(world).await;
        let before = record(world);
        let good = fire(world, 60, "a");
        let behind = Fire { slot: before.after, job: job(before.after), ..good.clone() };
        let early = Fire { slot: UnixMillis(before.after.0 + 7_200_000), ..good.clone() };
        let other = Fire { whole: definition(1).whole, ..good.clone() };
        let stale = Fire { after: UnixMillis(before.after.0 - 1), ..good.clone() };
        let older = Fire { fired: UnixMillis(1), ..good.clone() };
        let cases = [(&behind, Fired::Behind), (&early, Fired::Early), (&other, Fired::Other)];
        for (fire, expected) in cases {
            assert_eq!(send(world, fire).await, expected);
        }
        for outdated in [&stale, &older] {
            let told = Fired::Moved { after: before.after, fired: before.fired, call: before.call.clone() };
            assert_eq!(send(world, outdated).await, told);
        }
        let answer = world.connection.fire(&world.keys, 2, &good).await.unwrap();
        assert_eq!(answer, FireAnswer::Differs { partitions: "1".into() });
        world.raw(&[b"HSET", world.keys.meta.as_bytes(), b"limit", b"1"]);
        world.enqueue(&[own("x", "k")]).await;
        assert_eq!(send(world, &good).await, Fired::Full { limit: "1".into() });
        assert_eq!((record(world), world.length()), (before, 1));
        world.raw(&[b"HSET", world.keys.meta.as_bytes(), b"limit", b"2"]);
        assert!(matches!(send(world, &good).await, Fired::At(_)), "and the very same call is then");
        world.raw(&[b"DEL", world.keys.meta.as_bytes()]);
        assert_eq!(world.connection.fire(&world.keys, 1, &good).await.unwrap(), FireAnswer::NoQueue);
    });
}

/// Of a schedule that is not there.
fn fire_of_nobody() -> Fire {
    Fire {
        name: "nobody".into(),
        timing: "0".into(),
        whole: "0".into(),
        after: UnixMillis(0),
        fired: UnixMillis(0),
        before: job(UnixMillis(0)).id,
        slot: UnixMillis(1),
        job: job(UnixMillis(1)),
        pass: false,
        unless_alive: false,
        call: "a".into(),
    }
}

#[test]
fn a_slot_is_passed_over_when_asked_or_while_the_job_before_is_not_done() {
    on_each(async |world| {
        begun(world).await;
        let passed = Fire { pass: true, ..fire(world, 60, "a") };
        assert_eq!(send(world, &passed).await, Fired::Passed);
        assert_eq!((record(world).after, record(world).fired), (passed.slot, UnixMillis(0)));
        let careful = |world: &World, call: &str| Fire { unless_alive: true, ..fire(world, 60, call) };
        // Nothing was fired yet: nothing overlaps.
        assert!(matches!(send(world, &careful(world, "b")).await, Fired::At(_)));
        assert_eq!(send(world, &careful(world, "c")).await, Fired::Overlaps);
        // Claimed, put back, back from the dead: it is not done.
        let mut owner = world.acquire("a").await;
        let entry = world.claim(&mut owner).await.remove(0);
        assert_eq!(send(world, &careful(world, "d")).await, Fired::Overlaps);
        assert_eq!(world.settle(&mut owner, vec![dead(&entry, "l")]).await, [Settled::Dead]);
        assert!(matches!(send(world, &careful(world, "e")).await, Fired::At(_)), "a dead one is done");
        assert_eq!(send(world, &careful(world, "f")).await, Fired::Overlaps);
        // A job that a person removed by hand does not stop its schedule for ever.
        world.raw(&[b"XTRIM", world.keys.stream.as_bytes(), b"MAXLEN", b"0"]);
        assert!(matches!(send(world, &careful(world, "g")).await, Fired::At(_)));
        assert_eq!(record(world).fired, record(world).after);
    });
}

#[test]
fn two_definitions_side_by_side_do_not_flap_and_the_new_one_takes_over_once() {
    on_each(async |world| {
        begun(world).await;
        let old = fire(world, 60, "old");
        let (now, answer) = define(world, &definition(2)).await;
        assert!(matches!(answer, Defined::Other { confirmed } if confirmed.age_at(now) < DEFINITION_STANDS));
        assert_eq!(world.raw(&[b"HLEN", world.keys.schedule_definitions.as_bytes()]).as_int(), Some(1));
        // The old one goes on firing, and the new one cannot.
        let new = Fire { timing: definition(2).timing, whole: definition(2).whole, ..old.clone() };
        assert_eq!(send(world, &new).await, Fired::Other);
        assert!(matches!(send(world, &old).await, Fired::At(_)));
        // Its nodes leave; it was confirmed 20 s ago for the last time.
        edit(world, |record| record.confirmed.0 -= 20_000);
        let confirmed = record(world).confirmed;
        let told = Define { definition: String::new(), ..definition(2) };
        assert_eq!(define(world, &told).await.1, Defined::Tell);
        assert_eq!(stands(world, &definition(2)).await, confirmed, "its slots are those since then");
        assert_eq!(
            send(world, &Fire { after: old.slot, fired: old.slot, ..old.clone() }).await,
            Fired::Other
        );
        assert!(
            matches!(define(world, &definition(0)).await.1, Defined::Other { .. }),
            "nor does the old one"
        );
        assert_eq!(kept(world).await[0].definition.as_ref(), b"{\"number\":2}");
    });
}

#[test]
fn a_definition_with_the_same_slots_goes_on_where_the_one_before_was() {
    on_each(async |world| {
        let after = begun(world).await;
        edit(world, |record| record.confirmed.0 -= 20_000);
        assert_eq!(stands(world, &definition(1)).await, after);
        assert_eq!(record(world).whole, definition(1).whole);
    });
}

#[test]
fn a_record_deleted_under_nodes_that_know_it_loses_and_doubles_nothing() {
    on_each(async |world| {
        begun(world).await;
        let now = stands(world, &definition(0)).await;
        let first = fire(world, 3598, "a");
        assert!(matches!(send(world, &first).await, Fired::At(_)));
        world.raw(&[b"DEL", world.keys.schedules.as_bytes()]);
        let next = Fire { after: first.slot, fired: first.slot, call: "b".into(), ..first.clone() };
        assert_eq!(send(world, &next).await, Fired::Unknown);
        // A node that does not know of the first slot says how far it knows; the slot's mark says the rest.
        let known = Define { known: Some(UnixMillis(first.slot.0 - 1000)), ..definition(0) };
        assert_eq!(stands(world, &known).await, UnixMillis(first.slot.0 - 1000));
        assert_eq!(send(world, &fire(world, 1, "c")).await, Fired::Before);
        assert_eq!((record(world).after, record(world).fired), (first.slot, first.slot));
        assert!(matches!(send(world, &fire(world, 1, "d")).await, Fired::At(_)));
        assert_eq!(world.length(), 2);
        // What a node knew long ago, or of another clock, is not believed.
        for known in [now.0 - 1_000_000, 0, now.0 + 1_000_000_000] {
            world.raw(&[b"DEL", world.keys.schedules.as_bytes()]);
            let known = Define { known: Some(UnixMillis(known)), ..definition(0) };
            let (now, answer) = define(world, &known).await;
            let Defined::Stands { after, .. } = answer else { panic!("{answer:?}") };
            assert!(after <= now && after.0 >= now.0 - 10_000, "{after} at {now}");
        }
    });
}

#[test]
fn a_clock_set_back_fires_nothing_again_and_one_set_forward_fires_once() {
    on_each(async |world| {
        begun(world).await;
        // As if the clock had stood an hour later when these were written.
        edit(world, |record| {
            record.after.0 += 7_200_000;
            record.confirmed.0 += 3_600_000;
        });
        assert_eq!(send(world, &fire(world, 0, "a")).await, Fired::Behind);
        assert_eq!(send(world, &fire(world, 60, "a")).await, Fired::Early);
        let past = UnixMillis(record(world).after.0 - 7_000_000);
        let again = Fire { slot: past, job: job(past), ..fire(world, 1, "a") };
        assert_eq!(send(world, &again).await, Fired::Behind, "due by the clock, and dealt with");
        // A definition that was confirmed in the future stands for its time from now on at most.
        let (now, answer) = define(world, &definition(2)).await;
        assert_eq!(answer, Defined::Other { confirmed: now });
        assert_eq!(record(world).confirmed, now);
    });
}

#[test]
fn a_paused_schedule_fires_nothing_and_resumes_now() {
    on_each(async |world| {
        let paused = world.connection.pause_schedule(&world.keys, NAME, "ann@host", "a\nb").await.unwrap();
        assert!(matches!(paused, PausedSchedule::Paused(_)), "also before a node has defined it");
        begun(world).await;
        let one = fire(world, 60, "a");
        assert_eq!(send(world, &one).await, Fired::Paused);
        assert!(matches!(define(world, &definition(0)).await.1, Defined::Stands { paused: true, .. }));
        let again = world.connection.pause_schedule(&world.keys, NAME, "bob@host", "c").await.unwrap();
        let PausedSchedule::Already(pause) = again else { panic!("{again:?}") };
        assert_eq!((pause.who.as_str(), pause.reason.as_str()), ("ann@host", "a b"));
        assert_eq!(kept(world).await[0].pause, Some(pause.clone()));
        let resumed = world.connection.resume_schedule(&world.keys, NAME).await.unwrap();
        assert_eq!(resumed, Some(pause));
        assert!(record(world).after.0 >= one.after.0 + 3_600_000, "what was paused is not made up");
        assert!(moved(&send(world, &one).await));
        assert_eq!(world.connection.resume_schedule(&world.keys, NAME).await.unwrap(), None);
    });
}

#[test]
fn a_record_is_removed_where_nobody_has_it_and_its_jobs_stay() {
    on_each(async |world| {
        let remove = async |world: &World, also| {
            world.connection.remove_schedule(&world.keys, NAME, also).await.unwrap()
        };
        assert_eq!(remove(world, false).await, RemovedSchedule::Nothing);
        begun(world).await;
        assert!(matches!(send(world, &fire(world, 60, "a")).await, Fired::At(_)));
        assert!(matches!(remove(world, false).await, RemovedSchedule::Stands { .. }));
        edit(world, |record| record.confirmed.0 -= 15_000);
        assert_eq!(remove(world, false).await, RemovedSchedule::Removed);
        assert_eq!((kept(world).await.len(), world.length()), (0, 1));
        begun(world).await;
        world.connection.pause_schedule(&world.keys, NAME, "a", "b").await.unwrap();
        assert_eq!(remove(world, true).await, RemovedSchedule::Removed);
        assert_eq!((kept(world).await.len(), world.length()), (0, 1));
    });
}

#[test]
fn a_full_memory_refuses_a_slot_and_takes_what_people_say() {
    on_each(async |world| {
        begun(world).await;
        let one = fire(world, 60, "a");
        world.raw(&[b"CONFIG", b"SET", b"maxmemory", b"1"]);
        let refused = world.connection.fire(&world.keys, 1, &one).await;
        assert!(matches!(refused, Err(CallError::OutOfMemory(_))), "{refused:?}");
        stands(world, &definition(0)).await;
        world.connection.pause_schedule(&world.keys, NAME, "a", "b").await.unwrap();
        world.connection.resume_schedule(&world.keys, NAME).await.unwrap();
        world.raw(&[b"CONFIG", b"SET", b"maxmemory", b"0"]);
        assert!(matches!(send(world, &fire(world, 60, "b")).await, Fired::At(_) | Fired::Early));
    });
}

#[test]
fn a_record_that_a_hand_has_broken_begins_anew() {
    on_each(async |world| {
        begun(world).await;
        for broken in [&b"garbage"[..], b"0 0 5 0 - ", b"0 0 -5 0 - 7", b"0 0 5 0 - 1000000000000000", b""] {
            world.raw(&[b"HSET", world.keys.schedules.as_bytes(), NAME.as_bytes(), broken]);
            assert!(kept(world).await[0].record.is_none());
            assert_eq!(send(world, &Fire { name: NAME.into(), ..fire_of_nobody() }).await, Fired::Unknown);
            let (now, answer) = define(world, &definition(0)).await;
            assert!(matches!(answer, Defined::Stands { after, .. } if after == now), "{answer:?}");
        }
        world.raw(&[b"SET", world.keys.schedules.as_bytes(), b"x"]);
        let refused = world.connection.define(&world.keys, &[definition(0)]).await;
        assert!(matches!(refused, Err(CallError::Unexpected(_))), "{refused:?}");
        let rest = world.raw(&[b"EXISTS", world.keys.schedule_definitions.as_bytes()]);
        assert_eq!(rest, Reply::Int(1));
    });
}

#[test]
fn a_settle_of_its_job_marks_its_id_for_the_window() {
    on_each(async |world| {
        begun(world).await;
        let one = fire(world, 60, "a");
        send(world, &one).await;
        assert_eq!(world.life_ms(&world.keys.seen(one.job.id.as_bytes())), -1, "as long as its job lives");
        let mut owner = world.acquire("a").await;
        let entry = world.claim(&mut owner).await.remove(0);
        world.settle(&mut owner, vec![put(&entry, 1, "x")]).await;
        let left = world.life_ms(&world.keys.seen(one.job.id.as_bytes()));
        assert!(left > 0 && left <= WINDOW_MS as i64, "{left}");
        assert_eq!(world.call(&mut owner, Call::Claim { count: 1 }).await, claimed_nothing());
        assert!(Duration::from_millis(WINDOW_MS) > gristmill_broker::schedule::RESTORED);
    });
}

fn claimed_nothing() -> gristmill_broker::Answer {
    gristmill_broker::Answer::Claimed(Vec::new())
}
