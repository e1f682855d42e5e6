//! What lies beside the stream: jobs that came back from the dead, keys whose lanes wait for a person, and the census
//! that counts and repairs.

use crate::fixture::*;
use gristmill_broker::call::{Answer, Call};
use gristmill_broker::census::Census;
use gristmill_broker::start::{How, Marked};
use gristmill_broker::state::{StartMark, StateLine, Suspicion};
use gristmill_broker::{Entry, Settle, Settled, Verdict};
use gristmill_job::{Key, Place, UnixMillis};
use gristmill_testkit::server::Reply;
use std::collections::BTreeSet;
use std::time::Duration;

pub(crate) fn place(seq: u64) -> Place {
    Place { ms: 1000, seq }
}

/// A line as a replay writes it.
pub(crate) fn replayed(turn: u32) -> StateLine {
    StateLine { turn, replays: 1, ..StateLine::default() }
}

fn places(entries: &[Entry]) -> Vec<Place> {
    entries.iter().map(|entry| entry.place).collect()
}

fn mark(tenure: &Tenure, alone: bool) -> Option<StartMark> {
    Some(StartMark { fence: tenure.fence.clone(), alone })
}

/// The same letter, and the lane of its key waits for a person.
pub(crate) fn holding(mut letter: Settle) -> Settle {
    if let Verdict::Dead { hold, at, .. } = &mut letter.verdict {
        (*hold, *at) = (true, UnixMillis(77));
    }
    letter
}

/// The same letter, of a job that was acknowledged before its run.
fn buried(mut letter: Settle) -> Settle {
    if let Verdict::Dead { acknowledged, .. } = &mut letter.verdict {
        *acknowledged = true;
    }
    letter
}

impl World {
    pub(crate) fn hold(&self, key: &str, letter: &str) {
        let hold = format!("{letter} 5 1000-1");
        self.raw(&[b"HSET", self.keys.held.as_bytes(), key.as_bytes(), hold.as_bytes()]);
    }

    /// Places in `returned`, in order of return.
    pub(crate) fn returned(&self) -> Vec<Place> {
        let all = self.raw(&[b"ZRANGE", self.keys.returned.as_bytes(), b"0", b"-1"]);
        let place = |reply: &Reply| reply.as_str().unwrap().parse().unwrap();
        all.as_array().unwrap().iter().map(place).collect()
    }

    pub(crate) fn bodies(&self) -> Vec<String> {
        self.hash(&self.keys.returned_bodies).into_keys().collect()
    }

    pub(crate) async fn census(&self, tenure: &mut Tenure, cursors: (u64, u64)) -> Census {
        match self.call(tenure, Call::Census { cursors }).await {
            Answer::Counted(Some(census)) => census,
            other => panic!("not counted: {other:?}"),
        }
    }

    /// A claimed job and, beside it, one that came back with the same key.
    async fn both_kinds(&mut self) -> (Tenure, Entry, Entry) {
        self.enqueue(&[own("claimed", "k")]).await;
        let mut a = self.acquire("a").await;
        let claimed = self.claim(&mut a).await.remove(0);
        self.come_back(place(1), &own("back", "k"), &replayed(1));
        let back = self.take(&mut a, 9).await.0.remove(0);
        (a, claimed, back)
    }
}

#[test]
fn take_reads_in_order_of_return_in_slices_and_what_came_later() {
    on_each(async |world| {
        let mut a = world.acquire("a").await;
        let nothing = world.call(&mut a, Call::Take { after: 0, count: 9, cursor: Some(0) }).await;
        let Answer::Taken(nothing) = nothing else { panic!("{nothing:?}") };
        assert_eq!((nothing.changes, nothing.last, nothing.more, nothing.cursor), (0, 0, false, 0));
        assert!(nothing.entries.is_empty() && nothing.held.is_empty());

        for seq in [3, 1, 2] {
            world.come_back(place(seq), &own(&format!("id{seq}"), "k"), &replayed(seq as u32));
        }
        let first = world.call(&mut a, Call::Take { after: 0, count: 2, cursor: Some(0) }).await;
        let Answer::Taken(first) = first else { panic!("{first:?}") };
        assert_eq!(places(&first.entries), [place(3), place(1)], "in order of return, not of place");
        assert_eq!((first.changes, first.last, first.more), (3, 2, true));
        let entry = &first.entries[0];
        assert_eq!((entry.id.as_bytes(), entry.key.as_bytes()), (&b"id3"[..], &b"k"[..]));
        assert_eq!(entry.envelope.as_ref(), b"envelope of id3");
        assert_eq!(entry.state.line(), Some(&replayed(3)));
        assert!(entry.returned && !entry.recovered);
        let second = Call::Take { after: first.last, count: 2, cursor: Some(0) };
        let answer = world.call(&mut a, second.clone()).await;
        let Answer::Taken(rest) = answer else { panic!("{answer:?}") };
        assert_eq!((places(&rest.entries), rest.last, rest.more), (vec![place(2)], 3, false));
        assert_eq!(world.call_as(&a.fence, a.number, &second).await, Answer::Already);
        assert_eq!(world.call_as(&a.fence, a.number + 2, &second).await, gap(a.number));

        // Came back again, later: only that is new. Taking takes nothing away.
        world.come_back(place(3), &own("id3", "k"), &replayed(4));
        let later = world.call(&mut a, Call::Take { after: rest.last, count: 2, cursor: Some(0) }).await;
        let Answer::Taken(later) = later else { panic!("{later:?}") };
        assert_eq!((places(&later.entries), later.changes, later.last), (vec![place(3)], 4, 4));
        assert_eq!(later.entries[0].state.turn(), 4);
        assert_eq!(places(&world.take(&mut a, 1).await.0), [place(1), place(2), place(3)]);
        let b = world.acquire("a").await;
        assert_fenced(&world.call_as(&a.fence, a.number + 1, &second).await, "a");
        assert_eq!(world.call_as(&b.fence, 2, &second).await, gap(0));
    });
}

/// A hash of thousands is not read at once, and every key comes; keys are any bytes.
#[test]
fn take_reads_held_keys_in_slices() {
    on_each(async |world| {
        for n in 0..1800 {
            world.hold(&format!("key{n}"), "letter");
        }
        world.raw(&[b"HSET", world.keys.held.as_bytes(), b"\xff\x00 k", b"letter 5 1000-1"]);
        world.come_back(place(1), &own("1", "k"), &replayed(1));
        let mut a = world.acquire("a").await;
        let first = world.call(&mut a, Call::Take { after: 0, count: 9, cursor: Some(0) }).await;
        let Answer::Taken(first) = first else { panic!("{first:?}") };
        assert!(first.cursor > 0 && first.held.len() < 1500, "{} keys at once", first.held.len());
        let (mut held, mut cursor, mut slices) = (first.held, first.cursor, 1);
        while cursor > 0 {
            let call = Call::Take { after: first.last, count: 9, cursor: Some(cursor) };
            let Answer::Taken(slice) = world.call(&mut a, call).await else { panic!() };
            assert!(slice.entries.is_empty(), "jobs come once");
            held.extend(slice.held);
            (cursor, slices) = (slice.cursor, slices + 1);
        }
        assert!(slices > 2, "{slices}");
        let held: BTreeSet<Key> = held.into_iter().collect();
        assert_eq!(held.len(), 1801);
        assert!(
            held.contains(&Key::new(b"\xff\x00 k").unwrap()) && held.contains(&Key::new("key1799").unwrap())
        );
    });
}

/// V26: a job beside the stream is in no list of claims; its mark alone tells that it was running.
#[test]
fn v26_take_finds_the_marks_of_the_dead() {
    on_each(async |world| {
        for seq in 1..4 {
            world.come_back(place(seq), &own(&seq.to_string(), "k"), &replayed(1));
        }
        let mut a = world.dying("a").await;
        let (taken, _) = world.take(&mut a, 9).await;
        assert_eq!(world.start(&mut a, How::Beside, &[&taken[0]]).await, [Marked::Started]);
        assert_eq!(world.start(&mut a, How::Alone, &[&taken[1]]).await, [Marked::Started]);
        let mut again = world.dying("a").await;
        let (mine, _) = world.take(&mut again, 9).await;
        assert_eq!(mine[0].state.line().unwrap().mark, mark(&a, false), "my own may be running still");
        assert_eq!(mine[1].state.line().unwrap().mark, mark(&a, true));

        let mut b = world.acquire("b").await;
        let (found, _) = world.take(&mut b, 9).await;
        let line = |n: usize| found[n].state.line().unwrap().clone();
        let suspected = |suspicion, line: StateLine| StateLine { suspicion, interrupted: true, ..line };
        assert_eq!(line(0), suspected(Suspicion::Weak, replayed(1)));
        assert_eq!(line(2), replayed(1), "without a mark it did not run");
        let [crash] = &line(1).crashes[..] else { panic!("{:?}", line(1)) };
        assert_eq!((&crash.fence, crash.turn), (&a.fence, 1));
        assert_eq!(
            line(1),
            StateLine { crashes: vec![crash.clone()], ..suspected(Suspicion::Strong, replayed(1)) }
        );
        for (n, entry) in found.iter().enumerate() {
            assert_eq!(world.line(entry.place), Some(line(n)), "told as it is stored");
        }
        let (again, _) = world.take(&mut b, 9).await;
        assert_eq!(again, found, "found once");
    });
}

#[test]
fn a_returned_job_is_loaded_marked_and_handed_back_where_it_lies() {
    on_each(async |world| {
        let (mut a, claimed, back) = world.both_kinds().await;
        let nowhere = place(9);
        let asked = [back.place, nowhere, claimed.place];
        let loaded = world.connection.load(&world.keys, &asked).await.unwrap();
        let expected =
            [(back.place, Some(back.clone())), (nowhere, None), (claimed.place, Some(claimed.clone()))];
        assert_eq!(loaded, expected);
        assert_eq!(world.start(&mut a, How::Beside, &[&back]).await, [Marked::Started]);
        let call = Call::HandBack { places: vec![back.place, claimed.place], claims: Vec::new(), stopped: 1 };
        assert_eq!(world.call(&mut a, call).await, Answer::Done);
        assert_eq!(world.line(back.place), Some(StateLine { interrupted: true, ..replayed(1) }));
        assert_eq!(world.call(&mut a, Call::Release).await, Answer::Done);
        let mut b = world.acquire("b").await;
        assert_eq!(ids(&world.recover(&mut b).await), ["claimed"], "it is in no stream");
        assert_eq!(ids(&world.take(&mut b, 9).await.0), ["back"]);
    });
}

#[test]
fn returned_jobs_are_settled_beside_the_stream() {
    on_each(async |world| {
        let mut a = world.acquire("a").await;
        world.raw(&[b"SET", &world.keys.entity(b"spoiled"), b"x"]);
        for (seq, key) in [(1, "k"), (2, "k"), (3, "k"), (4, "spoiled"), (5, "k"), (6, "k"), (7, "k")] {
            world.come_back(place(seq), &own(&seq.to_string(), key), &replayed(2));
            let field = place(seq).to_string();
            world.raw(&[b"HSET", world.keys.originals.as_bytes(), field.as_bytes(), b"first envelope"]);
        }
        let (e, _) = world.take(&mut a, 9).await;
        let mut both = put(&e[0], 5, "state");
        if let (Verdict::Done { emits: of, .. }, Verdict::Done { emits, .. }) =
            (&mut both.verdict, emitting(&e[0], 1).verdict)
        {
            *of = emits;
        }
        let batch = vec![
            both,
            retry(&e[1], HOUR),
            dead(&e[2], "letter"),
            put(&e[3], 1, "never"),
            discard(&e[4]),
            put(&e[5], 5, "not newer"),
            done(&at_turn(&e[6], 1)),
            dead(&e[0], "second letter"),
            retry(&e[2], HOUR),
        ];
        let words = world.settle(&mut a, batch.clone()).await;
        use Settled::{AtTurn, Dead, Discarded, Done, Gone, Rejected, Retried, Stale};
        assert!(matches!(&words[3], Rejected(why) if why.contains("WRONGTYPE")), "{words:?}");
        let rejected = words[3].clone();
        assert_eq!(words, [Done, Retried, Dead, rejected, Discarded, Stale, AtTurn(2), Gone, Gone]);

        let left = [place(2), place(4), place(7)];
        let text: Vec<_> = left.iter().map(Place::to_string).collect();
        assert_eq!((world.returned(), world.bodies()), (left.to_vec(), text.clone()));
        assert_eq!(world.hash(&world.keys.state).into_keys().collect::<Vec<_>>(), text);
        let originals: Vec<_> = world.hash(&world.keys.originals).into_keys().collect();
        let kept = [place(2), place(3), place(4), place(7)].map(|place| place.to_string());
        assert_eq!(originals, kept, "a letter may be replayed once more");
        let line = world.line(place(2)).unwrap();
        assert_eq!((line.turn, line.attempts, line.replays), (3, 1, 1));
        assert_eq!(line.history.as_ref(), b"boom");
        assert_eq!(world.line(place(4)), Some(replayed(2)), "refused: as it was");
        let entity = world.connection.entity(&world.queue, b"k").await.unwrap().unwrap();
        assert_eq!((entity.version, entity.state.as_ref(), entity.changes), (5, &b"state"[..], 1));
        assert_eq!(world.connection.outbox(&world.keys, 9).await.unwrap().len(), 1);
        let letters = world.connection.dead_letters(&world.queue, 0, 0, 9).await.unwrap();
        assert_eq!(letters.iter().map(|letter| &letter.id[..]).collect::<Vec<_>>(), ["letter"]);
        assert_eq!(world.standing("1").await, "applied");
        assert_eq!(world.standing("3").await, "dead letter");
        assert_eq!((world.holders(), world.length()), (vec![], 0), "the stream knows nothing of them");

        let again = repeated(world.call_as(&a.fence, a.number, &Call::Settle(batch)).await);
        assert_eq!(again, [Gone, AtTurn(3), Gone, AtTurn(2), Gone, Gone, AtTurn(2), Gone, Gone]);
        // What was put back comes again to the next owner, at its new turn.
        let (found, _) = world.take(&mut a, 9).await;
        assert_eq!((places(&found), found[0].state.turn()), (left.to_vec(), 3));
        assert!(found[0].state.due_in > Duration::from_secs(3500), "{:?}", found[0].state);
        let words =
            world.settle(&mut a, vec![done(&found[0]), dead(&found[1], "other"), done(&found[2])]).await;
        assert_eq!(words, [Done, Dead, Done]);
        for key in [&world.keys.returned, &world.keys.returned_bodies, &world.keys.state] {
            assert_eq!(world.raw(&[b"EXISTS", key.as_bytes()]).as_int(), Some(0), "{key}");
        }
    });
}

/// Its line was lost or is another hand's: it counts as never put back, and takes the short way like any other.
#[test]
fn a_returned_job_without_its_line_is_settled_also_the_short_way() {
    for line in [&b""[..], b"not a line of ours"] {
        on_each(async |world| {
            let (mut a, claimed, back) = world.both_kinds().await;
            match line {
                b"" => drop(world.raw(&[b"DEL", world.keys.state.as_bytes()])),
                _ => world.set_line(back.place, line),
            }
            let back = world.take(&mut a, 9).await.0.remove(0);
            assert_eq!(back.state.turn(), 0);
            world.raw(&[b"HSET", world.keys.originals.as_bytes(), back.place.to_string().as_bytes(), b"x"]);
            let call = Call::Settle(vec![plain(&claimed), plain(&back)]);
            let words = settled(world.call(&mut a, call.clone()).await);
            assert_eq!(words, [Settled::Done, Settled::Done]);
            assert_eq!((world.returned(), world.bodies(), world.length()), (vec![], vec![], 0));
            let none = std::collections::BTreeMap::new();
            assert_eq!(
                (world.hash(&world.keys.state), world.hash(&world.keys.originals)),
                (none.clone(), none)
            );
            let again = repeated(world.call_as(&a.fence, a.number, &call).await);
            assert_eq!(again, [Settled::Gone, Settled::Gone]);
        });
    }
}

#[test]
fn a_letter_that_holds_its_lane_says_so() {
    on_each(async |world| {
        let (mut a, claimed, back) = world.both_kinds().await;
        let odd = Key::new(b"\xff\x00 odd key").unwrap();
        let mut first = holding(dead(&claimed, "letter1"));
        first.key = odd.clone();
        let words = world.settle(&mut a, vec![first, holding(dead(&back, "letter2"))]).await;
        assert_eq!(words, [Settled::Dead, Settled::Dead]);
        let hold = world.raw(&[b"HGET", world.keys.held.as_bytes(), odd.as_bytes()]);
        assert_eq!(hold.as_str(), Some(format!("letter1 77 {}", claimed.place).as_str()));
        let hold = world.hash(&world.keys.held).remove("k");
        assert_eq!(hold, Some(format!("letter2 77 {}", back.place)));
        let (_, held) = world.take(&mut a, 9).await;
        assert_eq!(held.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([odd, Key::new("k").unwrap()]));
        assert_eq!(world.changes(), 1, "the owner wrote it itself");

        world.enqueue(&[own("3", "other")]).await;
        let entry = world.claim(&mut a).await.remove(0);
        assert_eq!(world.settle(&mut a, vec![dead(&entry, "letter3")]).await, [Settled::Dead]);
        assert_eq!(world.hash(&world.keys.held).len(), 2, "its queue's policy is to go on");
    });
}

/// A kind that runs at most once is acknowledged before its run; what fails then is a letter from the node's copy.
#[test]
fn a_job_that_was_acknowledged_is_buried_without_a_claim() {
    on_each(async |world| {
        let (mut a, claimed, back) = world.both_kinds().await;
        assert_eq!(
            world.settle(&mut a, vec![done(&claimed), done(&back)]).await,
            [Settled::Done, Settled::Done]
        );
        let bury = vec![buried(dead(&claimed, "letter1")), buried(holding(dead(&back, "letter2")))];
        let call = Call::Settle(bury);
        // The first sending never arrived: the repeat under a number that is not next, and one that is.
        let other = Call::hand_back(Vec::new());
        assert_eq!(world.call(&mut a, other).await, Answer::Done);
        let unknown = repeated(world.call_as(&a.fence, a.number, &call).await);
        assert_eq!(
            unknown,
            [Settled::AtTurn(0), Settled::AtTurn(1)],
            "nothing was written yet: send it anew"
        );
        assert_eq!(settled(world.call(&mut a, call.clone()).await), [Settled::Dead, Settled::Dead]);
        let again = repeated(world.call_as(&a.fence, a.number, &call).await);
        assert_eq!(again, [Settled::Gone, Settled::Gone]);
        let letters = world.connection.dead_letters(&world.queue, 0, 0, 9).await.unwrap();
        assert_eq!(letters.len(), 2);
        assert_eq!(letters[0].letter.as_ref().unwrap().job, b"claimed");
        assert_eq!(world.standing("claimed").await, "dead letter1");
        assert_eq!(world.hash(&world.keys.held).into_keys().collect::<Vec<_>>(), ["k"]);
        let stale = gristmill_broker::Fence { epoch: gristmill_broker::Epoch(1), ..a.fence.clone() };
        assert_fenced(&world.call_as(&stale, 1, &call).await, "a");
    });
}
