//! Jobs for later: how they are kept, who is told, and how they become ready.

use crate::fixture::*;
use gristmill_broker::call::{Answer, Call, MAX_BYTES_PER_CALL, MAX_JOBS_PER_CALL};
use gristmill_broker::delayed::{Body, Member};
use gristmill_broker::enqueue::{Accepted, EnqueueAnswer};
use gristmill_broker::lease::renew::{Renew, Renewed};
use gristmill_broker::promote::Promoted;
use gristmill_broker::{Broker, EnqueueError, Link, RedisConfig};
use gristmill_job::{Due, EncodedJob, JobId, NewJob, Place, UnixMillis};
use gristmill_testkit::server::Reply;
use std::time::{Duration, Instant};

fn later(job: EncodedJob, due: Due) -> EncodedJob {
    EncodedJob { due, ..job }
}

fn hour(job: EncodedJob) -> EncodedJob {
    later(job, Due::In(HOUR))
}

impl World {
    async fn delay(&mut self, jobs: &[EncodedJob]) -> Vec<Member> {
        match self.try_enqueue(jobs).await.unwrap() {
            EnqueueAnswer::Accepted(accepted) => accepted
                .into_iter()
                .map(|accepted| match accepted {
                    Accepted::Delayed(member) => member,
                    other => panic!("not delayed: {other:?}"),
                })
                .collect(),
            other => panic!("not accepted: {other:?}"),
        }
    }

    async fn promote(&self, tenure: &mut Tenure, slice: &[Member]) -> Promoted {
        promoted(self.call(tenure, Call::Promote(slice.to_vec())).await)
    }

    /// As if its time had come, in this order.
    fn due_now(&self, members: &[Member]) {
        for (n, member) in members.iter().enumerate() {
            let due = (n + 1).to_string();
            self.raw(&[b"ZADD", self.keys.delayed.as_bytes(), due.as_bytes(), member.as_bytes()]);
        }
    }

    fn redis_ms(&self) -> u64 {
        let time = self.raw(&[b"TIME"]);
        let part = |n: usize| time.as_array().unwrap()[n].as_str().unwrap().parse::<u64>().unwrap();
        part(0) * 1000 + part(1) / 1000
    }

    fn count(&self, command: &[u8], key: &str) -> i64 {
        self.raw(&[command, key.as_bytes()]).as_int().unwrap()
    }

    fn mark(&self, id: &str) -> Option<String> {
        self.raw(&[b"GET", &self.keys.seen(id.as_bytes())]).as_str().map(str::to_owned)
    }
}

#[track_caller]
fn promoted(answer: Answer) -> Promoted {
    match answer {
        Answer::Promoted(promoted) => promoted,
        other => panic!("not promoted: {other:?}"),
    }
}

#[test]
fn a_job_for_later_lies_beside_the_stream_until_it_is_due_and_is_known_by_its_id() {
    on_each(async |world| {
        let before = world.redis_ms();
        let jobs = [hour(own("a", "k")), hour(ours("b", "k"))];
        let answer = world.connection.enqueue(&world.keys, 1, "c1", &jobs).await.unwrap();
        let EnqueueAnswer::Accepted(accepted) = answer else { panic!("{answer:?}") };
        let [Accepted::Delayed(a), Accepted::Delayed(b)] = accepted.as_slice() else {
            panic!("{accepted:?}")
        };
        assert_eq!(a.to_string(), "0000000000000001:1:a");
        assert_eq!(b.to_string(), "0000000000000002:0:b");
        assert_eq!(world.length(), 0);
        let score = world.raw(&[b"ZSCORE", world.keys.delayed.as_bytes(), a.as_bytes()]);
        let score: u64 = score.as_str().unwrap().parse().unwrap();
        assert!(score >= before + 3_600_000 && score <= world.redis_ms() + 3_600_000, "{score}");
        let body = world.raw(&[b"HGET", world.keys.delayed_bodies.as_bytes(), a.as_bytes()]);
        let Reply::Bulk(body) = body else { panic!("{body:?}") };
        let body = Body::read(body.into());
        assert_eq!(
            (&body.key[..], &body.envelope[..], &body.line[..]),
            (&b"k"[..], &b"envelope of a"[..], &b""[..])
        );

        assert_eq!(world.standing("a").await, format!("waiting {a}"), "also of a second one that is due now");
        let again = world.connection.enqueue(&world.keys, 1, "c1", &jobs).await.unwrap();
        assert_eq!(again, EnqueueAnswer::Accepted(vec![Accepted::Before; 2]), "the answer was lost");
        assert_eq!(world.count(b"ZCARD", &world.keys.delayed), 2);
    });
}

#[test]
fn a_time_that_is_over_is_now_and_one_out_of_reach_is_refused_with_all_of_its_call() {
    on_each(async |world| {
        let now = world.redis_ms();
        let past = [Due::At(UnixMillis(1)), Due::At(UnixMillis(now)), Due::In(Duration::ZERO)];
        let jobs: Vec<_> = past.into_iter().map(|due| later(ours("p", "k"), due)).collect();
        assert_eq!(world.enqueue(&jobs).await.len(), 3);
        for far in [UnixMillis(now * 1000), UnixMillis(u64::MAX), UnixMillis(now + 12 * 366 * 86_400_000)] {
            let answer =
                world.try_enqueue(&[own("x", "k"), later(own("y", "k"), Due::At(far))]).await.unwrap();
            assert_eq!(answer, EnqueueAnswer::TooFar { job: 2, due: far.to_string() });
        }
        assert_eq!((world.length(), world.mark("x")), (3, None), "all or nothing");
        let config = RedisConfig::new(world.server.url());
        let broker = Broker::over(Link::start(config, "producer"));
        let job = NewJob::new("kind", "k", &()).unwrap().due_at(UnixMillis(now * 1000));
        let refused = broker.enqueue(&world.queue.name, job).await;
        assert!(matches!(refused, Err(EnqueueError::Encode { index: 0, .. })), "{refused:?}");
        let job = NewJob::new("kind", "k", &()).unwrap().due_in(HOUR).with_id("z").unwrap();
        let enqueued = broker.enqueue(&world.queue.name, job).await.unwrap();
        assert_eq!((enqueued.place, enqueued.delayed.unwrap().id().0), (None, JobId::new("z").unwrap()));
    });
}

#[test]
fn the_length_limit_counts_jobs_for_later() {
    on_each(async |world| {
        world.raw(&[b"HSET", world.keys.meta.as_bytes(), b"limit", b"3"]);
        world.delay(&[hour(ours("a", "k")), hour(ours("b", "k"))]).await;
        let two = [ours("c", "k"), ours("d", "k")];
        let full = EnqueueAnswer::Full { limit: "3".to_owned() };
        assert_eq!(world.try_enqueue(&two).await.unwrap(), full);
        assert_eq!(world.try_enqueue(&two.map(hour)).await.unwrap(), full);
        world.enqueue(&[ours("c", "k")]).await;
        assert_eq!(world.try_enqueue(&[hour(ours("d", "k"))]).await.unwrap(), full);
    });
}

#[test]
fn due_jobs_get_their_places_by_due_time_and_then_as_they_were_enqueued() {
    on_each(async |world| {
        let mut a = world.acquire("a").await;
        let nothing = world.promote(&mut a, &[]).await;
        assert_eq!((nothing.moved, &nothing.due[..], nothing.next), (0, &[][..], None));
        let members = world.delay(&["w", "x", "y", "z"].map(|id| hour(own(id, "k")))).await;
        let [w, x, y, z] = members.as_slice() else { panic!() };
        let next = world.promote(&mut a, &[]).await;
        assert!(next.due.is_empty() && next.next.is_some_and(|due| due > next.now));
        for (member, due) in [(w, b"30"), (x, b"20"), (y, b"20")] {
            world.raw(&[b"ZADD", world.keys.delayed.as_bytes(), due, member.as_bytes()]);
        }
        let told = world.promote(&mut a, &[]).await;
        assert_eq!((told.due.as_slice(), told.next), (&[x.clone(), y.clone(), w.clone()][..], None));
        // One that is not due, one that nobody knows, and one that was named before are passed over.
        let gone = Member::new(99, true, &JobId::new("gone").unwrap());
        let slice = [x.clone(), z.clone(), gone, y.clone(), x.clone(), w.clone()];
        let slice = world.promote(&mut a, &slice).await;
        assert_eq!((slice.moved, slice.lost, slice.due.len()), (3, 0, 0));
        assert!(slice.late >= Duration::from_millis(slice.now.0 - 20), "x was due in 1970: {:?}", slice.late);
        assert!(slice.next.is_some_and(|next| next > slice.now), "z is due in an hour");
        let entries = world.claim(&mut a).await;
        assert_eq!(ids(&entries), ["x", "y", "w"]);
        assert_eq!(entries[0].envelope.as_ref(), b"envelope of x");
        for entry in &entries {
            let id = entry.id.to_string();
            assert_eq!(world.mark(&id), Some(format!("waiting {}", entry.place)), "{id}");
        }
        assert_eq!(world.mark("z"), Some(format!("waiting {z}")));
        assert_eq!(world.mark("gone"), None);
        let left =
            (world.count(b"ZCARD", &world.keys.delayed), world.count(b"HLEN", &world.keys.delayed_bodies));
        assert_eq!(left, (1, 1));
        assert_eq!(world.settle(&mut a, entries.iter().map(done).collect()).await.len(), 3);
        assert_eq!(world.mark("x").as_deref(), Some("applied"));
    });
}

#[test]
fn a_promote_is_fenced_and_numbered_and_its_repeat_moves_nothing() {
    on_each(async |world| {
        let old = world.dying("a").await;
        let mut b = world.acquire("b").await;
        let members = world.delay(&[hour(own("x", "k")), hour(own("y", "k"))]).await;
        world.due_now(&members);
        assert_fenced(&world.call_as(&old.fence, 1, &Call::Promote(members.clone())).await, "b");
        assert_eq!(world.call_as(&b.fence, 2, &Call::Promote(members.clone())).await, gap(0));
        assert_eq!(world.length(), 0);
        assert_eq!(world.promote(&mut b, &members[..1]).await.moved, 1);
        // Under the same number, whatever it names: nothing moves, and it says what is due as ever.
        let again = promoted(world.call_as(&b.fence, 1, &Call::Promote(members.clone())).await);
        assert_eq!((again.moved, again.due), (0, vec![members[1].clone()]));
        assert_eq!(world.length(), 1);
        let hash = world.hash(&world.keys.lease.clone());
        assert_eq!(hash["number"], "1");
    });
}

#[test]
fn without_a_tenure_two_nodes_at_once_move_each_job_once() {
    on_each(async |world| {
        let jobs: Vec<_> = (0..150).map(|n| hour(own(&format!("j{n}"), "k"))).collect();
        let members = world.delay(&jobs).await;
        world.due_now(&members);
        let (one, two) = (world.connect(&world.server.url()).await, world.connect(&world.server.url()).await);
        let keys = world.keys.clone();
        let (one, two) = tokio::join!(one.promote(&keys, &members), two.promote(&keys, &members));
        assert_eq!(one.unwrap().moved + two.unwrap().moved, 150);
        assert_eq!(world.length(), 150);
        let mut a = world.acquire("a").await;
        let expected: Vec<_> = (0..100).map(|n| format!("j{n}")).collect();
        assert_eq!(ids(&world.claim(&mut a).await), expected);
    });
}

#[test]
fn a_slice_is_bounded_in_jobs_and_bytes_and_names_what_is_left() {
    on_each(async |world| {
        let mut a = world.acquire("a").await;
        let jobs: Vec<_> = (0..205).map(|n| hour(ours(&format!("j{n}"), "k"))).collect();
        let mut members = world.delay(&jobs[..200]).await;
        members.extend(world.delay(&jobs[200..]).await);
        world.due_now(&members);
        let told = world.promote(&mut a, &[]).await;
        assert_eq!(told.due, members[..MAX_JOBS_PER_CALL]);
        let next = world.promote(&mut a, &told.due).await;
        assert_eq!((next.moved, next.due), (200, members[200..].to_vec()));
        assert_eq!(world.promote(&mut a, &members[200..]).await.moved, 5);

        let mut large = hour(ours("large", "k"));
        large.envelope = vec![7; MAX_BYTES_PER_CALL / 2 + 1].into();
        let mut members = Vec::new();
        for _ in 0..3 {
            members.extend(world.delay(std::slice::from_ref(&large)).await);
        }
        world.due_now(&members);
        for left in [2, 1, 0] {
            let slice = world.promote(&mut a, &members).await;
            assert_eq!((slice.moved, slice.due.len()), (1, left), "one always fits, two are too much");
        }
    });
}

#[test]
fn what_is_stored_about_a_job_moves_with_it_and_another_jobs_mark_stays() {
    on_each(async |world| {
        let mut a = world.acquire("a").await;
        let members = world.delay(&[hour(own("x", "k")), hour(own("y", "k"))]).await;
        world.due_now(&members);
        // As a retry in mode none writes it: [key, envelope, line], strings each.
        let line = b"3 2 0 retry - 0 - - 0 - ";
        let mut body = vec![0x93, 0xa1, b'k', 0xa1, b'e', 0xa0 | line.len() as u8];
        body.extend_from_slice(line);
        world.raw(&[b"HSET", world.keys.delayed_bodies.as_bytes(), members[0].as_bytes(), &body]);
        world.raw(&[b"SET", &world.keys.seen(b"y"), b"applied"]);
        assert_eq!(world.promote(&mut a, &members).await.moved, 2);
        let entries = world.claim(&mut a).await;
        let line = world.line(entries[0].place).unwrap();
        assert_eq!((line.turn, line.attempts), (3, 2));
        assert_eq!(entries[0].envelope.as_ref(), b"e");
        assert_eq!(world.line(entries[1].place), None);
        assert_eq!(world.mark("y").as_deref(), Some("applied"));
    });
}

#[test]
fn what_a_person_broke_by_hand_harms_nothing_else() {
    on_each(async |world| {
        let mut a = world.acquire("a").await;
        let keys = world.keys.clone();
        let members = world.delay(&[hour(own("x", "k")), hour(own("y", "k")), hour(own("z", "k"))]).await;
        world.due_now(&members);
        world.raw(&[b"HDEL", keys.delayed_bodies.as_bytes(), members[0].as_bytes()]);
        world.raw(&[b"HSET", keys.delayed_bodies.as_bytes(), members[1].as_bytes(), b"\xc1nonsense"]);
        world.raw(&[b"ZADD", keys.delayed.as_bytes(), b"5", b"by hand"]);
        world.raw(&[b"HSET", keys.delayed_bodies.as_bytes(), b"by hand", b"\x92\xa1k\xa1e"]);
        let told = world.promote(&mut a, &[]).await;
        let slice = world.promote(&mut a, &told.due).await;
        assert_eq!((slice.moved, slice.lost, slice.due.len()), (3, 1, 0));
        assert_eq!(world.mark("x"), None, "no job any more: its id may come again");
        let entries = world.claim(&mut a).await;
        assert_eq!(ids(&entries), ["y", "z", "by hand"]);
        assert!(
            entries[0].key.as_bytes().is_empty() && !entries[0].envelope.is_empty(),
            "ends as undecodable"
        );
        assert_eq!((entries[2].key.as_bytes(), entries[2].envelope.as_ref()), (&b"k"[..], &b"e"[..]));

        world.delay(&[hour(own("v", "k"))]).await;
        world.raw(&[b"DEL", keys.delayed.as_bytes()]);
        let swept = world.promote(&mut a, &[]).await;
        assert_eq!((swept.moved, swept.lost, swept.due.len()), (0, 1, 0));
        assert_eq!(world.count(b"EXISTS", &keys.delayed_bodies), 0, "bodies that nothing names are no jobs");
        world.delay(&[hour(own("u", "k"))]).await;
        world.raw(&[b"DEL", keys.delayed.as_bytes(), keys.delayed_bodies.as_bytes()]);
        let nothing = world.promote(&mut a, &[]).await;
        assert_eq!((nothing.due.len(), nothing.next), (0, None));

        // Keys of another type: nothing is promoted, leases stand, and no call of others fails.
        for key in [&keys.delayed, &keys.delayed_bodies, &keys.delayed_bell] {
            world.raw(&[b"SET", key.as_bytes(), b"text"]);
        }
        let nothing = world.promote(&mut a, &members).await;
        assert_eq!((nothing.moved, nothing.due.len(), nothing.next), (0, 0, None));
        let renew = Renew { keys: keys.clone(), fence: a.fence.clone(), answered: 0 };
        let renewed = world.connection.renew(&[renew], HOUR).await.unwrap().remove(0);
        assert!(matches!(renewed, Renewed::Ok { due: None, .. }), "{renewed:?}");
        assert_eq!(world.enqueue(&[own("n", "k")]).await.len(), 1);
        let refused = world.try_enqueue(&[ours("m", "k"), hour(own("w", "k"))]).await;
        assert!(refused.is_err(), "{refused:?}");
        assert_eq!(
            (world.mark("w"), world.length()),
            (None, 4),
            "refused as a whole, before anything was written"
        );
    });
}

#[test]
fn a_renewal_tells_when_the_first_is_due_and_the_bell_rings_for_a_new_first_alone() {
    on_each(async |world| {
        let a = world.acquire("a").await;
        let keys = world.keys.clone();
        let tells = async |world: &World| {
            let renew = Renew { keys: world.keys.clone(), fence: a.fence.clone(), answered: 0 };
            match world.connection.renew(&[renew], HOUR).await.unwrap().remove(0) {
                Renewed::Ok { due, .. } => due,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(tells(world).await, None);
        let at = |ms: u64| Due::At(UnixMillis(2_000_000_000_000 + ms));
        let rung = async |world: &World, from: Place| {
            let bell = world.keys.delayed_bell.as_str();
            let rung = world.connection.doorbell(&[(bell, from)], Duration::from_millis(1)).await.unwrap();
            rung.first().map(|(_, place)| *place)
        };
        assert_eq!(rung(world, Place::ZERO).await, None);
        world.delay(&[later(ours("a", "k"), at(50)), later(ours("b", "k"), at(60))]).await;
        let first = rung(world, Place::ZERO).await.unwrap();
        assert_eq!(tells(world).await, Some(UnixMillis(2_000_000_000_050)));
        world.delay(&[later(ours("c", "k"), at(50))]).await;
        assert_eq!(rung(world, first).await, None, "not the first: nobody waits for it");
        world.delay(&[later(ours("d", "k"), at(70)), later(ours("e", "k"), at(40))]).await;
        let second = rung(world, first).await.unwrap();
        assert!(second > first);
        assert_eq!(tells(world).await, Some(UnixMillis(2_000_000_000_040)));
        assert_eq!(world.count(b"XLEN", &keys.delayed_bell), 1, "it does not grow");
    });
}

#[test]
fn a_job_becomes_due_by_the_clock_of_redis() {
    on_each(async |world| {
        let mut a = world.acquire("a").await;
        world.delay(&[later(own("x", "k"), Due::In(Duration::from_millis(30)))]).await;
        let deadline = Instant::now() + SOON;
        let told = loop {
            let told = world.promote(&mut a, &[]).await;
            if !told.due.is_empty() {
                break told;
            }
            assert!(told.next.is_some_and(|next| next > told.now), "neither due nor to come: {told:?}");
            assert!(Instant::now() < deadline, "never due");
        };
        assert_eq!(world.promote(&mut a, &told.due).await.moved, 1);
        assert_eq!(ids(&world.claim(&mut a).await), ["x"]);
    });
}

#[test]
fn due_jobs_become_ready_also_when_memory_is_full_and_none_is_taken_for_later() {
    on_each(async |world| {
        let mut a = world.acquire("a").await;
        let members = world.delay(&[hour(own("x", "k")), hour(own("y", "k"))]).await;
        world.due_now(&members);
        world.raw(&[b"CONFIG", b"SET", b"maxmemory", b"1"]);
        let refused = world.try_enqueue(&[hour(own("z", "k"))]).await;
        assert!(matches!(refused, Err(gristmill_broker::CallError::OutOfMemory(_))), "{refused:?}");
        assert_eq!(world.promote(&mut a, &members).await.moved, 2);
        assert_eq!(ids(&world.claim(&mut a).await), ["x", "y"]);
        assert_eq!(world.count(b"ZCARD", &world.keys.delayed), 0);
    });
}

#[test]
fn an_emitted_job_for_later_counts_from_the_settle_of_its_parent() {
    on_each(async |world| {
        world.enqueue(&[own("parent", "k")]).await;
        let mut a = world.acquire("a").await;
        let entry = world.claim(&mut a).await.remove(0);
        let mut settle = emitting(&entry, 3);
        if let gristmill_broker::Verdict::Done { emits, .. } = &mut settle.verdict {
            emits[1].job.due = Due::In(HOUR);
            emits[2].job.due = Due::At(UnixMillis(1_700_000_000_000));
        }
        let before = world.redis_ms();
        world.settle(&mut a, vec![settle]).await;
        let after = world.redis_ms();
        let outbox = world.connection.outbox(&world.keys, 10).await.unwrap();
        let dues: Vec<Due> = outbox.into_iter().map(|(_, job)| job.unwrap().1.due).collect();
        let [Due::Now, Due::At(hour), Due::At(past)] = dues[..] else { panic!("{dues:?}") };
        assert!((before + 3_600_000..=after + 3_600_000).contains(&hour.0), "{hour}");
        assert_eq!(past.0, 1_700_000_000_000);
    });
}

#[test]
fn a_job_that_comes_late_goes_behind_those_that_were_due_before_it() {
    on_each(async |world| {
        let mut a = world.acquire("a").await;
        let first = world.delay(&[hour(own("first", "k"))]).await;
        let now = world.redis_ms();
        let due = (now - 1000).to_string();
        world.raw(&[b"ZADD", world.keys.delayed.as_bytes(), due.as_bytes(), first[0].as_bytes()]);
        // Emitted in time, and forwarded after the owner of its parent died.
        let late = later(own("late", "k"), Due::At(UnixMillis(now - 500)));
        world.delay(std::slice::from_ref(&late)).await;
        let earlier = later(own("earlier", "k"), Due::At(UnixMillis(now - 2000)));
        let plain = own("plain", "k");
        assert_eq!(
            world.enqueue(&[earlier, plain]).await.len(),
            2,
            "nobody was due before it; or it has no time"
        );
        let told = world.promote(&mut a, &[]).await;
        assert_eq!(world.promote(&mut a, &told.due).await.moved, 2);
        assert_eq!(ids(&world.claim(&mut a).await), ["earlier", "plain", "first", "late"]);
    });
}
