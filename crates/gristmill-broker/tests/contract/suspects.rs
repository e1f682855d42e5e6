//! Suspicion: who is suspected, under which mark a run dies, and what is charged.

use crate::fixture::*;
use bytes::Bytes;
use gristmill_broker::call::{Answer, Call};
use gristmill_broker::start::{How, Marked, Start};
use gristmill_broker::state::{Crash, Request, StartMark, StateLine, Suspicion, Why};
use gristmill_broker::{Entry, Fence, Settled, Verdict};
use gristmill_job::{Place, UnixMillis};
use std::time::Duration;

fn suspicion(entry: &Entry) -> Suspicion {
    entry.state.line().map_or(Suspicion::None, |line| line.suspicion)
}

fn suspicions(entries: &[Entry]) -> Vec<Suspicion> {
    entries.iter().map(suspicion).collect()
}

fn beside(fence: &Fence) -> Option<StartMark> {
    Some(StartMark { fence: fence.clone(), alone: false })
}

fn alone(fence: &Fence) -> Option<StartMark> {
    Some(StartMark { fence: fence.clone(), alone: true })
}

/// Everything a line can say.
fn full(mark: Option<StartMark>) -> StateLine {
    StateLine {
        turn: 2,
        attempts: 1,
        due_ms: 5,
        why: Why::Snooze,
        suspicion: Suspicion::Weak,
        interrupted: true,
        mark,
        crashes: Vec::new(),
        replays: 3,
        request: Some(Request::Skip),
        history: Bytes::from_static(b"\x00 any \xff bytes\n 1 2 3 "),
    }
}

/// Without a start mark only the first unsettled job of each key can have been running.
#[test]
fn v30_what_a_dead_owner_held_unmarked_is_a_weak_suspect_where_it_was_first_of_its_key() {
    on_each(async |world| {
        world.enqueue(&[own("1", "k"), own("2", "k"), own("3", "other"), own("4", "other")]).await;
        let mut a = world.dying("a").await;
        world.claim(&mut a).await;
        let mut b = world.dying("b").await;
        let found = world.recover(&mut b).await;
        use Suspicion::{None, Weak};
        assert_eq!(suspicions(&found), [Weak, None, Weak, None]);
        let line = StateLine { suspicion: Weak, ..StateLine::default() };
        assert_eq!(world.line(found[0].place), Some(line), "stored, and nothing but that");
        assert_eq!(world.line(found[1].place), Option::None);
        // It survives a clean hand-over, and the next death of an owner that started nothing adds nothing.
        let places = found.iter().map(|entry| entry.place).collect();
        assert_eq!(world.call(&mut b, Call::hand_back(places)).await, Answer::Done);
        let mut c = world.dying("c").await;
        assert_eq!(suspicions(&world.recover(&mut c).await), [Weak, None, Weak, None]);
        let mut d = world.acquire("d").await;
        assert_eq!(suspicions(&world.recover(&mut d).await), [Weak, None, Weak, None]);
        // The first is settled: who is first now was not running when c died.
        let entries = world.recover(&mut d).await;
        assert_eq!(world.settle(&mut d, vec![done(&entries[0])]).await, [Settled::Done]);
        assert_eq!(suspicions(&world.recover(&mut d).await), [None, Weak, None]);
    });
}

#[test]
fn nobody_is_suspected_whose_holder_lives_or_handed_it_back() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "k"), own("2", "k"), own("3", "other")]).await;
        let mut a = world.dying("a").await;
        world.claim(&mut a).await;
        let mut again = world.dying("a").await;
        let found = world.recover(&mut again).await;
        assert_eq!(suspicions(&found), [Suspicion::None; 3], "my own older epoch: its process is this one");
        assert!(found.iter().all(|entry| entry.recovered));
        // Only the first of its key was handed back: the second cannot have been running.
        assert_eq!(world.call(&mut again, Call::hand_back(vec![places[0]])).await, Answer::Done);
        let mut b = world.acquire("b").await;
        let found = world.recover(&mut b).await;
        assert_eq!(suspicions(&found), [Suspicion::None, Suspicion::None, Suspicion::Weak]);
        assert_eq!(found.iter().map(|entry| entry.recovered).collect::<Vec<_>>(), [false, true, true]);
    });
}

/// Each slice knows its own firsts only: a suspect too many costs a start mark, no more.
#[test]
fn a_slice_of_recover_looks_at_itself_alone() {
    on_each(async |world| {
        world.enqueue(&[own("1", "k"), own("2", "k"), own("3", "k")]).await;
        let mut a = world.dying("a").await;
        world.claim(&mut a).await;
        let mut b = world.acquire("b").await;
        let first = world.call(&mut b, Call::Recover { cursor: Place::ZERO, count: 2 }).await;
        let Answer::Recovered { entries, next } = first else { panic!("{first:?}") };
        assert_eq!(suspicions(&entries), [Suspicion::Weak, Suspicion::None]);
        let second = world.call(&mut b, Call::Recover { cursor: next, count: 2 }).await;
        let Answer::Recovered { entries, next } = second else { panic!("{second:?}") };
        assert_eq!((suspicions(&entries), next), (vec![Suspicion::Weak], Place::ZERO));
    });
}

/// V29: what ran beside it may have killed it.
#[test]
fn v29_a_mark_of_a_run_beside_others_raises_suspicion_by_one_step_and_charges_nothing() {
    on_each(async |world| {
        world.enqueue(&[own("1", "k"), own("2", "other")]).await;
        let mut owner = world.dying("a").await;
        let mut found = world.claim(&mut owner).await;
        for (next, expected) in [("b", Suspicion::Weak), ("c", Suspicion::Strong), ("d", Suspicion::Strong)] {
            let started = world.start(&mut owner, How::Beside, &[&found[0], &found[1]]).await;
            assert_eq!(started, [Marked::Started; 2]);
            assert_eq!(world.line(found[0].place).unwrap().mark, beside(&owner.fence));
            owner = world.dying(next).await;
            found = world.recover(&mut owner).await;
            assert_eq!(suspicions(&found), [expected; 2]);
            let line = world.line(found[1].place).unwrap();
            assert_eq!((line.mark, line.interrupted, line.crashes), (None, true, vec![]), "{next}");
        }
        // Found once: who comes next finds no mark, and does not raise it again.
        let mut last = world.acquire("e").await;
        assert_eq!(suspicions(&world.recover(&mut last).await), [Suspicion::Strong; 2]);
        assert_eq!(ids(&world.recover(&mut last).await), ["1", "2"]);
    });
}

/// V28: a lone run is charged once, by the call that removes its mark, and the charge names it.
#[test]
fn v28_a_mark_of_a_lone_run_is_charged_once_and_names_the_run() {
    on_each(async |world| {
        let place = world.enqueue(&[own("1", "k")]).await[0];
        let mut a = world.dying("a").await;
        let entry = world.claim(&mut a).await.remove(0);
        assert_eq!(world.start(&mut a, How::Alone, &[&entry]).await, [Marked::Started]);
        assert_eq!(world.line(place).unwrap().mark, alone(&a.fence));
        let mut b = world.dying("b").await;
        let call = Call::Recover { cursor: Place::ZERO, count: 9 };
        let answer = world.call(&mut b, call.clone()).await;
        let Answer::Recovered { entries, .. } = answer else { panic!("{answer:?}") };
        let line = entries[0].state.line().unwrap().clone();
        assert_eq!(world.line(place), Some(line.clone()), "told as it is stored");
        let [crash] = &line.crashes[..] else { panic!("{line:?}") };
        assert_eq!((&crash.fence, crash.turn), (&a.fence, 0));
        let time = world.raw(&[b"TIME"]).as_array().unwrap()[0].as_int().unwrap() as u64 * 1000;
        assert!(crash.at.0.abs_diff(time) < 60_000, "{crash:?} at {time}");
        assert_eq!((line.suspicion, line.interrupted, &line.mark), (Suspicion::Strong, true, &None));
        assert_eq!(world.call_as(&b.fence, b.number, &call).await, Answer::Already);
        assert_eq!(world.line(place), Some(line), "a repeat charges nothing");
        // A second death, of a later turn, is another charge behind the first.
        let found = world.recover(&mut b).await.remove(0);
        assert_eq!(world.settle(&mut b, vec![retry(&found, Duration::ZERO)]).await, [Settled::Retried]);
        let found = at_turn(&found, 1);
        assert_eq!(world.start(&mut b, How::Alone, &[&found]).await, [Marked::Started]);
        let mut c = world.acquire("c").await;
        let line = world.recover(&mut c).await.remove(0).state.line().unwrap().clone();
        let runs: Vec<_> = line.crashes.iter().map(|crash| (crash.fence.clone(), crash.turn)).collect();
        assert_eq!(runs, [(a.fence, 0), (b.fence, 1)]);
        assert_eq!((line.turn, line.history.as_ref()), (1, &b"boom"[..]), "the rest of the line stays");
    });
}

/// The process that lost its lease and has it again may still run it.
#[test]
fn marks_of_my_own_incarnation_stay() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "k"), own("2", "other")]).await;
        let mut a = world.dying("a").await;
        let entries = world.claim(&mut a).await;
        world.start(&mut a, How::Alone, &[&entries[0]]).await;
        world.start(&mut a, How::Beside, &[&entries[1]]).await;
        let before = [world.line(places[0]), world.line(places[1])];
        let mut again = world.acquire("a").await;
        let found = world.recover(&mut again).await;
        assert_eq!([world.line(places[0]), world.line(places[1])], before);
        assert_eq!(found[0].state.line(), before[0].as_ref());
        assert_eq!(before[0].as_ref().unwrap().mark, alone(&a.fence));
    });
}

/// A mark changes nothing else of a line, and its finding only what it has to.
#[test]
fn whatever_stands_beside_a_mark_stays_as_it_is() {
    on_each(async |world| {
        let place = world.enqueue(&[own("1", "k")]).await[0];
        let mut a = world.dying("a").await;
        let entry = at_turn(&world.claim(&mut a).await.remove(0), 2);
        world.set_line(place, &full(None).write());
        assert_eq!(world.start(&mut a, How::Look, &[&entry]).await, [Marked::Started]);
        assert_eq!(
            world.line(place),
            Some(full(beside(&a.fence))),
            "a look leaves the run noted as interrupted"
        );
        assert_eq!(world.start(&mut a, How::Alone, &[&entry]).await, [Marked::Started]);
        assert_eq!(world.line(place), Some(StateLine { interrupted: false, ..full(alone(&a.fence)) }));
        let mut b = world.acquire("b").await;
        let line = world.recover(&mut b).await.remove(0).state.line().unwrap().clone();
        let expected =
            StateLine { suspicion: Suspicion::Strong, crashes: line.crashes.clone(), ..full(None) };
        assert_eq!((line.crashes.len(), &line), (1, &expected));
    });
}

/// What it is suspected and charged of stays with the job; what its last run and a person said of it is answered.
#[test]
fn a_retry_keeps_suspicion_charges_and_replays_and_nothing_else() {
    on_each(async |world| {
        let place = world.enqueue(&[own("1", "k")]).await[0];
        let mut a = world.acquire("a").await;
        let entry = at_turn(&world.claim(&mut a).await.remove(0), 2);
        let crash = Crash { fence: a.fence.clone(), turn: 1, at: UnixMillis(7) };
        let before = StateLine { crashes: vec![crash.clone()], ..full(alone(&a.fence)) };
        world.set_line(place, &before.write());
        let history = Bytes::from_static(b" \n\x00 \xff 1 2 ");
        for (turn, why) in
            [Why::Kind, Why::Budget, Why::Snooze, Why::Nothing, Why::Retry].into_iter().enumerate()
        {
            let mut settle = retry(&at_turn(&entry, turn as u32 + 2), HOUR);
            settle.verdict = Verdict::Retry {
                attempts: 9,
                delay: HOUR,
                why,
                interrupted: false,
                history: history.clone(),
            };
            assert_eq!(world.settle(&mut a, vec![settle]).await, [Settled::Retried]);
            let line = world.line(place).unwrap();
            let expected = StateLine {
                turn: turn as u32 + 3,
                attempts: 9,
                due_ms: line.due_ms,
                why,
                interrupted: false,
                mark: None,
                request: None,
                history: history.clone(),
                ..before.clone()
            };
            assert_eq!(line, expected);
            let entry = world.recover(&mut a).await.remove(0);
            assert_eq!(entry.state.line(), Some(&line), "told as it is stored");
            let waits = entry.state.due_in;
            assert!(waits <= HOUR && waits > HOUR - Duration::from_secs(60), "{waits:?}");
        }
    });
}

/// V31: or the next death of anybody would charge the innocent.
#[test]
fn v31_every_settle_and_every_hand_back_removes_the_mark() {
    on_each(async |world| {
        let jobs: Vec<_> = (0..6).map(|n| own(&n.to_string(), &n.to_string())).collect();
        let places = world.enqueue(&jobs).await;
        world.raw(&[b"SET", &world.keys.entity(b"5"), b"x"]);
        let mut a = world.dying("a").await;
        let entries = world.claim(&mut a).await;
        for how in [How::Beside, How::Alone] {
            world.start(&mut a, how, &entries.iter().collect::<Vec<_>>()).await;
        }
        let batch = vec![
            done(&entries[0]),
            dead(&entries[1], "letter"),
            discard(&entries[2]),
            retry(&entries[3], Duration::ZERO),
            put(&entries[5], 1, "refused"),
        ];
        let words = world.settle(&mut a, batch).await;
        assert_eq!(words[..4], [Settled::Done, Settled::Dead, Settled::Discarded, Settled::Retried]);
        assert!(matches!(words[4], Settled::Rejected(_)), "{words:?}");
        assert_eq!(world.call(&mut a, Call::hand_back(vec![places[4]])).await, Answer::Done);
        for gone in &places[..3] {
            assert_eq!(world.line(*gone), None);
        }
        assert_eq!(world.line(places[3]).unwrap().mark, None);
        assert_eq!(world.line(places[4]), None, "it says nothing any more");
        let mut b = world.acquire("b").await;
        let found = world.recover(&mut b).await;
        assert_eq!(ids(&found), ["3", "4", "5"]);
        let charged = |entry: &Entry| entry.state.line().map_or(0, |line| line.crashes.len());
        let charges: Vec<_> = found.iter().map(charged).collect();
        assert_eq!(charges, [0, 0, 1], "what was refused is not settled: its run is still marked");
    });
}

/// V33: a drain that stops a run hard leaves it interrupted, uncharged and unsuspected.
#[test]
fn v33_a_run_that_was_stopped_hard_is_noted_as_interrupted() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "a"), own("2", "b"), own("3", "c"), own("4", "d")]).await;
        let mut a = world.acquire("a").await;
        let entries = world.claim(&mut a).await;
        world.start(&mut a, How::Beside, &[&entries[0], &entries[1]]).await;
        let look = at_turn(&entries[2], 0);
        world.set_line(places[2], &StateLine { interrupted: true, ..StateLine::default() }.write());
        world.start(&mut a, How::Look, &[&look]).await;
        // 1 and 4 were stopped, of which 4 had no mark: its kind does not ask. 1 is named twice.
        let order = vec![places[0], places[3], places[1], places[2], places[0]];
        let call = Call::HandBack { places: order, claims: Vec::new(), stopped: 2 };
        assert_eq!(world.call(&mut a, call.clone()).await, Answer::Done);
        let interrupted = Some(StateLine { interrupted: true, ..StateLine::default() });
        let stand = |world: &World| places.iter().map(|place| world.line(*place)).collect::<Vec<_>>();
        assert_eq!(stand(world), [interrupted.clone(), None, interrupted.clone(), None]);
        assert_eq!(world.call_as(&a.fence, a.number, &call).await, Answer::Done, "a repeat");
        assert_eq!(stand(world), [interrupted.clone(), None, interrupted, None]);
        let mut b = world.acquire_after_release(&mut a, "b").await;
        let found = world.recover(&mut b).await;
        assert_eq!(suspicions(&found), [Suspicion::None; 4]);
        // A run anew starts from the beginning: its own mark speaks for it.
        assert_eq!(world.start(&mut b, How::Beside, &[&found[0]]).await, [Marked::Started]);
        assert!(!world.line(places[0]).unwrap().interrupted);
    });
}

impl World {
    async fn acquire_after_release(&self, owner: &mut Tenure, name: &str) -> Tenure {
        assert_eq!(self.call(owner, Call::Release).await, Answer::Done);
        self.acquire(name).await
    }
}

#[test]
fn every_word_of_start() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "k"), own("2", "k"), own("3", "k"), own("4", "k")]).await;
        let mut a = world.acquire("a").await;
        let call = Call::Claim { count: 3 };
        let Answer::Claimed(entries) = world.call(&mut a, call).await else { panic!() };
        world.settle(&mut a, vec![done(&entries[0]), retry(&entries[1], Duration::ZERO)]).await;
        let start = |n: usize, turn, how| Start { place: places[n], turn, how };
        let starts = vec![
            start(0, 0, How::Beside), // settled
            start(1, 0, How::Beside), // put back since
            start(1, 1, How::Look),
            start(2, 0, How::Alone),
            start(2, 7, How::Alone),
            start(3, 0, How::Beside), // nobody claimed it
        ];
        let call = Call::Start(starts);
        use Marked::{AtTurn, Gone, Started};
        let expected = Answer::Started(vec![Gone, AtTurn(1), Started, Started, AtTurn(0), Gone]);
        assert_eq!(world.call(&mut a, call.clone()).await, expected);
        assert_eq!(world.line(places[1]).unwrap().mark, beside(&a.fence));
        assert_eq!(world.line(places[2]).unwrap().mark, alone(&a.fence));
        assert_eq!((world.line(places[0]), world.line(places[3])), (None, None));

        // A repeat writes nothing: the runs it spoke of may have been settled or laid down meanwhile.
        let number = a.number;
        assert_eq!(world.settle(&mut a, vec![done(&entries[2])]).await, [Settled::Done]);
        assert_eq!(world.call(&mut a, Call::hand_back(vec![places[1]])).await, Answer::Done);
        assert_eq!(world.line(places[1]).unwrap().mark, None);
        let before = world.hash(&world.keys.state);
        let expected = Answer::Started(vec![Gone, AtTurn(1), Started, Gone, Gone, Gone]);
        assert_eq!(world.call_as(&a.fence, number, &call).await, expected);
        assert_eq!(world.hash(&world.keys.state), before);
        assert_eq!(world.call_as(&a.fence, a.number + 2, &call).await, gap(a.number));
        let stale = Fence { epoch: gristmill_broker::Epoch(1), ..a.fence.clone() };
        assert_fenced(&world.call_as(&stale, 1, &call).await, "a");
        assert_eq!(world.hash(&world.keys.state), before);
        assert_eq!(world.claim(&mut a).await.len(), 1, "the number did not move");
    });
}

/// The short way through settle: a suspect that was never put back stands at turn 0, and its line goes with it.
#[test]
fn a_plain_settle_of_a_weak_suspect_removes_its_line() {
    on_each(async |world| {
        world.enqueue(&[ours("1", "k"), ours("2", "other"), ours("3", "third")]).await;
        let mut a = world.dying("a").await;
        world.claim(&mut a).await;
        let mut b = world.acquire("b").await;
        let found = world.recover(&mut b).await;
        assert_eq!(suspicions(&found), [Suspicion::Weak; 3]);
        world.start(&mut b, How::Beside, &[&found[1]]).await;
        world.settle(&mut b, vec![retry(&found[2], Duration::ZERO)]).await;
        let words = world.settle(&mut b, found.iter().map(plain).collect()).await;
        assert_eq!(words, [Settled::Done, Settled::Done, Settled::Gone], "the third stands at turn 1");
        let left: Vec<_> = world.hash(&world.keys.state).into_keys().collect();
        assert_eq!(left, [found[2].place.to_string()]);
        assert_eq!(world.length(), 1);
    });
}
