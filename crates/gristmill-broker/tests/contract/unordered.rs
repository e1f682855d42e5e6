//! Queues with ordering none: grab, extend, reclaim, and the calls under number 0, which need a claim and no lease.

use crate::fixture::*;
use bytes::Bytes;
use gristmill_broker::call::{Answer, Call, Guard};
use gristmill_broker::cancel::{Cancel, Cancelled, Stands};
use gristmill_broker::create::CreateError;
use gristmill_broker::grab::Grabbed;
use gristmill_broker::lease::acquire::Acquired;
use gristmill_broker::reclaim::{Reclaim, Reclaimed};
use gristmill_broker::replay::{Replay, Replayed};
use gristmill_broker::said::Said;
use gristmill_broker::start::{How, Marked, Start};
use gristmill_broker::state::{StateLine, Suspicion, Why};
use gristmill_broker::{CallError, Entry, Epoch, Fence, Mode, QueueDefinition, Settle, Settled, Verdict};
use gristmill_job::{Place, QueueName};
use std::time::Duration;

pub(crate) const NOW: Duration = Duration::ZERO;

pub(crate) fn line_of(entry: &Entry) -> StateLine {
    entry.state.line().cloned().unwrap_or_default()
}

impl World {
    /// The queue of this world is one without order.
    pub(crate) async fn unordered(&mut self) {
        self.queue = QueueDefinition::new(QueueName::new("u").unwrap(), 1).with_mode(Mode::None);
        self.keys = std::sync::Arc::new(self.queue.partition(0));
        self.connection.create(&self.queue).await.unwrap();
    }

    pub(crate) async fn grab(&self, name: &str, count: usize) -> Vec<Entry> {
        match self.connection.grab(&self.keys, &incarnation(name), count).await.unwrap() {
            Grabbed::Jobs { entries, .. } => entries,
            other => panic!("not grabbed: {other:?}"),
        }
    }

    pub(crate) async fn extend(&self, name: &str, entries: &[Entry]) -> Vec<Place> {
        let places: Vec<Place> = entries.iter().map(|entry| entry.place).collect();
        self.connection.extend(&self.keys, &incarnation(name), &places).await.unwrap().lost
    }

    async fn reclaim(&self, name: &str, timeout: Duration, cursor: Place, count: usize) -> Reclaimed {
        let reclaim = Reclaim { timeout, cursor, count };
        self.connection.reclaim(&self.keys, &incarnation(name), reclaim).await.unwrap()
    }

    /// Everything that is over.
    pub(crate) async fn reclaimed(&self, name: &str, timeout: Duration, count: usize) -> Vec<Entry> {
        let (mut all, mut cursor) = (Vec::new(), Place::ZERO);
        loop {
            let Reclaimed::Slice { entries, next, .. } = self.reclaim(name, timeout, cursor, count).await
            else {
                panic!("another ordering");
            };
            all.extend(entries);
            cursor = next;
            if cursor == Place::ZERO {
                return all;
            }
        }
    }

    pub(crate) async fn unleased(&self, name: &str, call: Call) -> Answer {
        let fence = Fence::unordered(&incarnation(name));
        self.connection.call(&call, Guard::unordered(&self.keys, &fence, WINDOW_MS)).await.unwrap()
    }

    pub(crate) async fn settle_as(&self, name: &str, jobs: Vec<Settle>) -> Vec<Settled> {
        settled(self.unleased(name, Call::Settle(jobs)).await)
    }

    pub(crate) async fn mark_as(&self, name: &str, entry: &Entry, how: How) -> Marked {
        let start = Start { place: entry.place, turn: entry.state.turn(), how };
        match self.unleased(name, Call::Start(vec![start])).await {
            Answer::Started(marks) => marks[0],
            other => panic!("not marked: {other:?}"),
        }
    }

    pub(crate) fn holder(&self, entry: &Entry) -> Option<String> {
        let place = entry.place.to_string();
        self.holders().into_iter().find(|(held, _)| *held == place).map(|(_, holder)| holder)
    }

    /// The member, its score, and its body unpacked by Redis.
    fn put_back(&self) -> Vec<(String, u64, Vec<Bytes>)> {
        let script = b"local rows = {} \
            for n, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do \
              local job = cmsgpack.unpack(redis.call('HGET', KEYS[2], member)) \
              rows[n] = {member, redis.call('ZSCORE', KEYS[1], member), job[1], job[2], job[3]} \
            end return rows";
        let keys = &self.keys;
        let reply =
            self.raw(&[b"EVAL", script, b"2", keys.delayed.as_bytes(), keys.delayed_bodies.as_bytes()]);
        let row = |row: &gristmill_testkit::server::Reply| {
            let mut words = row.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned());
            let (member, score) = (words.next().unwrap(), words.next().unwrap().parse().unwrap());
            (member, score, words.map(Bytes::from).collect())
        };
        reply.as_array().unwrap().iter().map(row).collect()
    }
}

#[test]
fn a_queue_keeps_its_ordering_and_nobody_owns_a_partition_without_one() {
    on_each(async |world| {
        world.unordered().await;
        assert_eq!(world.try_acquire("a", HOUR, Epoch(0)).await, Acquired::Unordered);
        let found = world.connection.definition(&world.queue.name).await.unwrap();
        assert_eq!(found, Some(world.queue.clone()));
        let ordered = world.queue.clone().with_mode(Mode::Key);
        let refused = world.connection.create(&ordered).await.unwrap_err();
        let CreateError::Differs { ref mode, configured_mode, .. } = refused else { panic!("{refused}") };
        assert_eq!((mode.as_str(), configured_mode), ("none", "key"));
        // And the other way round: what grabs takes nothing of a queue with an order.
        world.queue = QueueDefinition::new(QueueName::new("q").unwrap(), 1);
        world.keys = std::sync::Arc::new(world.queue.partition(0));
        world.enqueue(&[own("1", "k")]).await;
        let grabbed = world.connection.grab(&world.keys, &incarnation("a"), 5).await.unwrap();
        assert_eq!(grabbed, Grabbed::Differs("key".into()));
        assert_eq!(world.reclaim("a", NOW, Place::ZERO, 5).await, Reclaimed::Differs("key".into()));
        assert!(world.holders().is_empty());
        let gone = world.queue.name.as_str();
        world.raw(&[b"DEL", world.keys.meta.as_bytes()]);
        let grabbed = world.connection.grab(&world.keys, &incarnation("a"), 5).await.unwrap();
        assert_eq!(grabbed, Grabbed::Differs(String::new()), "{gone} has no meta");
    });
}

#[test]
fn two_nodes_share_a_partition_and_settle_only_what_is_theirs() {
    on_each(async |world| {
        world.unordered().await;
        world.enqueue(&[ours("1", "k"), ours("2", "k"), own("3", "k"), own("4", "k")]).await;
        let (a, b) = (world.grab("a", 2).await, world.grab("b", 5).await);
        assert_eq!((ids(&a), ids(&b)), (vec!["1".into(), "2".into()], vec!["3".into(), "4".into()]));
        // The short way and the long way through the script.
        assert_eq!(
            world.settle_as("b", vec![plain(&a[0]), done(&a[1])]).await,
            [Settled::Gone, Settled::Gone]
        );
        assert_eq!(
            world.settle_as("a", vec![done(&b[0]), plain(&a[0])]).await,
            [Settled::Gone, Settled::Done]
        );
        assert_eq!(
            world.settle_as("b", vec![retry(&a[1], HOUR), dead(&a[1], "l")]).await,
            vec![Settled::Gone; 2]
        );
        assert_eq!(world.length(), 3);
        assert_eq!(world.settle_as("b", vec![put(&b[0], 1, "s"), done(&b[1])]).await, vec![Settled::Done; 2]);
        // A repeat, such as after a lost answer.
        assert_eq!(world.settle_as("b", vec![put(&b[0], 1, "s"), done(&b[1])]).await, vec![Settled::Gone; 2]);
        assert_eq!(
            world.settle_as("a", vec![plain(&a[0]), plain(&a[1])]).await,
            [Settled::Gone, Settled::Done]
        );
        assert_eq!((world.length(), world.holders().len()), (0, 0));
    });
}

#[test]
fn many_plain_jobs_among_many_claims_are_each_found() {
    on_each(async |world| {
        world.unordered().await;
        let jobs: Vec<_> = (0..150).map(|n| ours(&n.to_string(), "k")).collect();
        world.enqueue(&jobs).await;
        let (mut mine, theirs) = (world.grab("a", 100).await, world.grab("b", 100).await);
        // First and last of what is held, and one of another: the look at the range between is cut short.
        let batch = vec![plain(&mine[99]), plain(&theirs[0]), plain(&mine[0])];
        assert_eq!(world.settle_as("a", batch).await, [Settled::Done, Settled::Gone, Settled::Done]);
        mine.retain(|entry| ![0, 99].contains(&entry.id.to_string().parse::<u32>().unwrap()));
        assert_eq!(world.extend("a", &mine).await, []);
        let settled = world.settle_as("a", mine.iter().map(plain).collect()).await;
        assert_eq!(settled, vec![Settled::Done; 98]);
        assert_eq!(world.length(), 50);
    });
}

#[test]
fn who_claims_a_job_hears_with_its_extend_that_a_person_cancelled_it() {
    on_each(async |world| {
        world.unordered().await;
        world.enqueue(&[own("1", "k"), own("2", "other"), own("3", "third")]).await;
        let (mine, theirs) = (world.grab("a", 2).await, world.grab("b", 1).await);
        for entry in [&mine[1], &theirs[0]] {
            let cancel = Cancel {
                stands: Stands::At(entry.place),
                id: entry.id.clone(),
                key: entry.key.clone(),
                own_id: true,
                said: Said::new("me@home", "no longer wanted"),
            };
            let told = world.connection.cancel(&world.keys, 60_000, &cancel).await.unwrap();
            assert_eq!(told, Cancelled::Asked);
        }
        assert_eq!(
            world.raw(&[b"EXISTS", world.keys.asked.as_bytes()]).as_int(),
            Some(0),
            "no owner would take it from there"
        );
        let places: Vec<Place> = mine.iter().chain(&theirs).map(|entry| entry.place).collect();
        let told = world.connection.extend(&world.keys, &incarnation("a"), &places).await.unwrap();
        assert_eq!((told.lost, told.cancelled), (vec![theirs[0].place], vec![mine[1].place]));
        // A key of another type says nothing, and stops no extend.
        world.raw(&[b"DEL", world.keys.state.as_bytes()]);
        world.raw(&[b"SET", world.keys.state.as_bytes(), b"x"]);
        let told = world.connection.extend(&world.keys, &incarnation("a"), &places[..2]).await.unwrap();
        assert_eq!((told.lost, told.cancelled), (vec![], vec![]));
    });
}

#[test]
fn a_retry_leaves_the_stream_for_the_delayed_set_and_its_mark_goes_with_it() {
    on_each(async |world| {
        world.unordered().await;
        world.enqueue(&[own("1", "k"), ours("2", "other")]).await;
        let entries = world.grab("a", 5).await;
        let back = vec![
            retry(&entries[0], HOUR),
            Settle { marked: false, ..retry(&entries[1], Duration::from_secs(1)) },
        ];
        assert_eq!(world.settle_as("a", back.clone()).await, vec![Settled::Retried; 2]);
        assert_eq!((world.length(), world.holders().len(), world.line(entries[0].place)), (0, 0, None));
        let delayed = world.put_back();
        let members: Vec<&str> = delayed.iter().map(|(member, ..)| member.as_str()).collect();
        assert_eq!(members, ["0000000000000002:0:2", "0000000000000001:1:1"], "by due time");
        let (_, due, body) = &delayed[1];
        assert_eq!((&body[0], &body[1]), (&Bytes::from("k"), &Bytes::from("envelope of 1")));
        let line = StateLine::parse(&body[2]).unwrap();
        assert_eq!((line.turn, line.attempts, line.why, line.due_ms), (1, 1, Why::Retry, *due));
        assert_eq!(&line.history[..], b"boom");
        assert_eq!(world.standing("1").await, "waiting 0000000000000001:1:1");
        // A lost answer: the repeat moves nothing twice.
        assert_eq!(world.settle_as("a", back).await, vec![Settled::Gone; 2]);
        assert_eq!(world.put_back().len(), 2);
    });
}

#[test]
fn a_retry_that_cannot_be_written_is_refused_and_stays_claimed() {
    on_each(async |world| {
        world.unordered().await;
        world.enqueue(&[own("1", "k")]).await;
        let entries = world.grab("a", 5).await;
        world.raw(&[b"SET", world.keys.delayed.as_bytes(), b"a text"]);
        let settled = world.settle_as("a", vec![retry(&entries[0], HOUR)]).await;
        assert!(matches!(&settled[..], [Settled::Rejected(why)] if why.contains("WRONGTYPE")), "{settled:?}");
        assert_eq!(world.holder(&entries[0]), Some(Fence::unordered(&incarnation("a")).consumer()));
        assert_eq!(world.settle_as("a", vec![dead(&entries[0], "l")]).await, [Settled::Dead]);
        assert_eq!(world.length(), 0);
    });
}

#[test]
fn extend_prolongs_what_is_mine_and_never_takes_back_what_is_not() {
    on_each(async |world| {
        world.unordered().await;
        world.enqueue(&[own("1", "k"), own("2", "k"), own("3", "k"), own("4", "k")]).await;
        let entries = world.grab("a", 4).await;
        let stolen = world.reclaimed("b", NOW, 1).await;
        assert_eq!(stolen.len(), 4);
        world.settle_as("b", vec![done(&entries[3])]).await;
        let consumer = Fence::unordered(&incarnation("b")).consumer();
        let lost = world.extend("a", &entries).await;
        assert_eq!(lost, entries.iter().map(|entry| entry.place).collect::<Vec<_>>());
        assert_eq!(world.holder(&entries[0]), Some(consumer));
        // An acknowledged job whose entry is still there is not brought back into the pending list.
        world.raw(&[
            b"XACK",
            world.keys.stream.as_bytes(),
            b"workers",
            entries[2].place.to_string().as_bytes(),
        ]);
        assert_eq!(world.extend("b", &entries).await, [entries[2].place, entries[3].place]);
        assert_eq!(world.holders().len(), 2);
        // One whose entry somebody deleted is no claim any more.
        world.raw(&[b"XDEL", world.keys.stream.as_bytes(), entries[1].place.to_string().as_bytes()]);
        assert_eq!(world.extend("b", &entries[..2]).await, [entries[1].place]);
        assert_eq!(world.extend("b", &[]).await, []);
    });
}

#[test]
fn reclaim_follows_its_cursor_to_the_end_in_bounded_slices_and_leaves_live_claims_alone() {
    on_each(async |world| {
        world.unordered().await;
        let jobs: Vec<_> = (0..60).map(|n| own(&n.to_string(), "k")).collect();
        world.enqueue(&jobs).await;
        let (dead, alive) = (world.grab("dead", 20).await, world.grab("alive", 40).await);
        let timeout = Duration::from_millis(400);
        gristmill_testkit::deadline::eventually(SOON, "the claims are over", || {
            let idle = world.raw(&[
                b"XPENDING",
                world.keys.stream.as_bytes(),
                b"workers",
                b"IDLE",
                b"400",
                b"-",
                b"+",
                b"100",
            ]);
            (idle.as_array().unwrap().len() == 60).then_some(())
        });
        assert_eq!(world.extend("alive", &alive).await, []);
        let Reclaimed::Slice { entries, next, left, worst, .. } =
            world.reclaim("b", timeout, Place::ZERO, 0).await
        else {
            panic!("another ordering")
        };
        assert!(entries.is_empty() && next == Place::ZERO && left == 20, "{left} to {next}");
        assert!(worst < SOON);
        // Two at a time: a slice looks at twenty claims and takes two.
        let Reclaimed::Slice { entries, next, left, .. } = world.reclaim("b", timeout, Place::ZERO, 2).await
        else {
            panic!("another ordering")
        };
        assert_eq!((entries.len(), left, next), (2, 18, dead[2].place));
        let all = world.reclaimed("b", timeout, 2).await;
        assert_eq!(all.len(), 18, "those of the live node were left alone");
        assert!(all.iter().all(|entry| entry.recovered && line_of(entry).suspicion == Suspicion::Weak));
    });
}

#[test]
fn a_job_that_was_acknowledged_before_its_run_is_buried_once() {
    on_each(async |world| {
        world.unordered().await;
        world.enqueue(&[own("1", "k")]).await;
        let entry = &world.grab("a", 1).await[0];
        assert_eq!(world.settle_as("a", vec![done(entry)]).await, [Settled::Done]);
        let letter = dead(entry, "letter");
        let Verdict::Dead { dead_id, at, reason, body, hold, .. } = letter.verdict.clone() else {
            unreachable!()
        };
        let bury = Settle {
            verdict: Verdict::Dead { dead_id, at, reason, body, hold, acknowledged: true },
            ..letter
        };
        assert_eq!(world.settle_as("a", vec![bury.clone()]).await, [Settled::Dead]);
        assert_eq!(world.settle_as("a", vec![bury]).await, [Settled::Gone], "known, and not written again");
    });
}

#[test]
fn a_stream_that_is_gone_is_said_to_be_gone() {
    on_each(async |world| {
        world.unordered().await;
        world.enqueue(&[own("1", "k")]).await;
        let entries = world.grab("a", 1).await;
        world.raw(&[b"DEL", world.keys.stream.as_bytes()]);
        let a = incarnation("a");
        let no_group = |error: CallError| matches!(error, CallError::NoGroup(_));
        assert!(no_group(world.connection.grab(&world.keys, &a, 1).await.unwrap_err()));
        assert!(no_group(world.connection.extend(&world.keys, &a, &[entries[0].place]).await.unwrap_err()));
        let reclaim = Reclaim { timeout: NOW, cursor: Place::ZERO, count: 1 };
        assert!(no_group(world.connection.reclaim(&world.keys, &a, reclaim).await.unwrap_err()));
        let fence = Fence::unordered(&a);
        let guard = Guard::unordered(&world.keys, &fence, WINDOW_MS);
        let call = Call::Settle(vec![done(&entries[0])]);
        assert!(no_group(world.connection.call(&call, guard).await.unwrap_err()));
        world.connection.create(&world.queue).await.unwrap();
        assert_eq!(world.settle_as("a", vec![done(&entries[0])]).await, [Settled::Gone]);
        assert_eq!(world.grab("a", 1).await, []);
    });
}

#[test]
fn a_letter_comes_back_into_the_stream_at_a_new_place() {
    on_each(async |world| {
        world.unordered().await;
        world.enqueue(&[own("1", "k")]).await;
        let entry = &world.grab("a", 1).await[0];
        assert_eq!(world.settle_as("a", vec![dead(entry, "l")]).await, [Settled::Dead]);
        let letter = world.connection.dead_letters(&world.queue, 0, 0, 10).await.unwrap().remove(0);
        let replay = Replay::of(Bytes::from("l"), letter.letter.unwrap()).unwrap();
        let edited = replay.with_envelope(Bytes::from("another envelope"));
        let replayed = world.connection.replay(&world.keys, std::slice::from_ref(&edited)).await.unwrap();
        assert_eq!(replayed, [Replayed::Replayed]);
        let back = &world.grab("b", 5).await[0];
        assert!(back.place > entry.place, "a new place");
        assert_eq!((back.id.as_bytes(), back.key.as_bytes()), (&b"1"[..], &b"k"[..]));
        assert_eq!(&back.envelope[..], b"another envelope");
        assert_eq!((line_of(back).turn, line_of(back).replays), (1, 1));
        assert_eq!(world.standing("1").await, format!("waiting {}", back.place));
        assert_eq!(world.connection.replay(&world.keys, &[edited]).await.unwrap(), [Replayed::Gone]);
        assert_eq!(world.settle_as("b", vec![done(back)]).await, [Settled::Done]);
        assert_eq!((world.length(), world.standing("1").await), (0, "applied".to_owned()));
        assert!(world.hash(&world.keys.originals).is_empty(), "its first envelope is forgotten with it");
    });
}
