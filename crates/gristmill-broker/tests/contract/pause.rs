//! What people pause, as nodes and people read it.

use crate::fixture::*;
use gristmill_broker::pause::{MAX_PAUSES, Pause, Paused, Target};
use gristmill_broker::said::Said;
use gristmill_job::{Key, QueueName};
use gristmill_testkit::deadline::Deadline;
use std::time::Duration;

fn name(world: &World) -> QueueName {
    world.queue.name.clone()
}

async fn pause(world: &World, target: &Target, length: Option<Duration>, why: &str) -> Paused {
    world.connection.pause(&name(world), target, length, &Said::new("me@home", why)).await.unwrap()
}

async fn pauses(world: &World) -> Vec<Pause> {
    world.connection.pauses(&name(world)).await.unwrap().1
}

#[test]
fn what_is_paused_is_read_with_who_and_why_until_it_is_resumed() {
    on_each(async |world| {
        assert_eq!(pauses(world).await, []);
        let (kind, key) = (Target::Kind("charge".into()), Target::Key(Key::new(b"\xff 1").unwrap()));
        let Paused::Paused { since, until: None, again: false } =
            pause(world, &Target::Queue, None, "a b").await
        else {
            panic!("not paused")
        };
        pause(world, &kind, Some(HOUR), "c/d").await;
        pause(world, &key, None, "").await;
        let all = pauses(world).await;
        let targets: Vec<&Target> = all.iter().map(|pause| &pause.target).collect();
        assert_eq!(targets, [&Target::Queue, &kind, &key]);
        assert_eq!((all[0].said.who.as_str(), all[0].said.why.as_str()), ("me@home", "a b"));
        assert_eq!((all[0].since, all[0].said.at, all[1].said.why.as_str()), (since, since, "c/d"));
        let until = all[1].until.unwrap().0 - all[1].since.0;
        assert_eq!(until, 3_600_000);

        // Once more: the beginning stays.
        let again = pause(world, &Target::Queue, Some(HOUR), "longer").await;
        assert!(
            matches!(again, Paused::Paused { since: s, until: Some(_), again: true } if s == since),
            "{again:?}"
        );
        assert_eq!(pauses(world).await[0].said.why, "longer");

        let was = world.connection.resume(&name(world), &Target::Queue).await.unwrap().unwrap();
        assert_eq!((was.since, was.said.why.as_str()), (since, "longer"));
        assert_eq!(world.connection.resume(&name(world), &Target::Queue).await.unwrap(), None, "once");
        assert_eq!(pauses(world).await.len(), 2);
    });
}

#[test]
fn an_end_comes_by_itself_and_a_new_pause_begins_anew() {
    on_each(async |world| {
        let first = pause(world, &Target::Queue, Some(Duration::from_millis(1)), "x").await;
        let Paused::Paused { since, .. } = first else { panic!("{first:?}") };
        let mut gone = false;
        let deadline = Deadline::after(Duration::from_secs(10));
        while !gone && !deadline.passed() {
            gone = pauses(world).await.is_empty();
        }
        assert!(gone, "its end has come");
        assert_eq!(world.connection.resume(&name(world), &Target::Queue).await.unwrap(), None);
        // One that nobody has read since its end is over too.
        let dead = format!("{} {} me/", since.0, since.0 + 1);
        let paused = gristmill_broker::keys::paused(&name(world));
        world.raw(&[b"HSET", paused.as_bytes(), b"queue", dead.as_bytes()]);
        assert_eq!(world.connection.resume(&name(world), &Target::Queue).await.unwrap(), None);
        world.raw(&[b"HSET", paused.as_bytes(), b"queue", dead.as_bytes()]);
        let anew = pause(world, &Target::Queue, None, "x").await;
        assert!(matches!(anew, Paused::Paused { since: s, again: false, .. } if s > since), "{anew:?}");
    });
}

#[test]
fn there_are_not_more_than_every_node_can_read_all_the_time_and_foreign_ones_are_passed_over() {
    on_each(async |world| {
        for n in 0..MAX_PAUSES {
            pause(world, &Target::Kind(n.to_string()), None, "x").await;
        }
        assert_eq!(pause(world, &Target::Queue, None, "x").await, Paused::Full);
        let known = pause(world, &Target::Kind("7".into()), None, "y").await;
        assert!(matches!(known, Paused::Paused { again: true, .. }), "{known:?}");
        let paused = gristmill_broker::keys::paused(&name(world));
        world.raw(&[
            b"HSET",
            paused.as_bytes(),
            b"kind:\xff",
            b"1 0 a/b",
            b"kind:z",
            b"nonsense",
            b"other",
            b"1 0 a/b",
        ]);
        assert_eq!(pauses(world).await.len(), MAX_PAUSES);
        // With the beat: whoever else lives is told also where pauses cannot be read.
        let beat = async || {
            world
                .connection
                .announce_and_hear(&name(world), &incarnation("a"), HOUR, false, "")
                .await
                .unwrap()
        };
        let (members, heard) = beat().await;
        assert_eq!((members.len(), heard.unwrap().len()), (1, MAX_PAUSES));
        world.raw(&[b"SET", paused.as_bytes(), b"x"]);
        let (members, heard) = beat().await;
        assert_eq!((members.len(), heard), (1, None));
    });
}
