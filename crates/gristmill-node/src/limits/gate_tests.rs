use super::*;
use gristmill_job::Place;
use std::sync::Mutex as StdMutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

fn gate() -> (Arc<Gate>, UnboundedReceiver<ToReleaser>) {
    let (freed, told) = unbounded_channel();
    (Arc::new(Gate::new(QueueName::new("q").unwrap(), "k", Limit::default(), freed)), told)
}

fn enter(gate: &Arc<Gate>, job: u64, now: Instant) -> Result<Arc<Permit>, Instant> {
    let name = SlotName { partition: u16::try_from(job % 4).unwrap(), place: Place { ms: 1, seq: job } };
    gate.enter(name, Epoch(7), &JobId::new(&format!("j{job}")).unwrap(), now)
}

#[test]
fn the_first_asks_alone_and_who_is_let_in_lets_more_ask() {
    let ((gate, _told), now) = (gate(), Instant::now());
    let first = enter(&gate, 0, now).unwrap();
    assert!(enter(&gate, 1, now).is_err(), "one asks, and is not answered");
    first.answered(Some(Admitted::Slot), now + LOOK_AGAIN, 0.0);
    let two: Vec<_> = (1..3).map(|job| enter(&gate, job, now).unwrap()).collect();
    assert!(enter(&gate, 3, now).is_err());
    drop(two);
    assert!(enter(&gate, 3, now).is_ok(), "who leaves without asking makes room");
}

#[test]
fn a_full_kind_is_not_asked_for_a_while_and_at_once_when_a_slot_is_freed_here() {
    let ((gate, _told), now) = (gate(), Instant::now());
    let mut longest = Duration::ZERO;
    for _ in 0..8 {
        let later = now + longest + LONGEST_PAUSE * 8;
        let asks = enter(&gate, 0, later).unwrap();
        gate.answered(Some(Admitted::Full(1)), later, 1.0);
        let until = enter(&gate, 1, later).unwrap_err();
        longest = longest.max(until - later);
        assert!(until > later && until <= later + LONGEST_PAUSE, "{:?}", until - later);
        std::mem::forget(asks);
        gate.state.lock().unwrap().closed_until = None;
    }
    assert_eq!(longest, LONGEST_PAUSE, "the pause grows");
    gate.answered(Some(Admitted::Full(1)), now, 1.0);
    assert!(gate.room(0, now).is_err());
    gate.opened(1, now);
    assert!(gate.room(0, now).is_ok());
}

#[test]
fn a_rate_closes_the_gate_until_its_token_whatever_is_freed() {
    let ((gate, _told), now) = (gate(), Instant::now());
    let _asks = enter(&gate, 0, now).unwrap();
    gate.answered(Some(Admitted::Until(Duration::from_secs(9))), now, 0.5);
    gate.opened(5, now);
    assert_eq!(gate.room(0, now), Err(now + Duration::from_secs(9)));
    assert!(gate.room(0, now + Duration::from_secs(9)).is_ok());
}

#[test]
fn what_may_be_held_is_freed_when_it_is_dropped_and_nothing_else() {
    let ((gate, mut told), now) = (gate(), Instant::now());
    for (said, holds) in [
        (Some(Admitted::Slot), true),
        (None, true),
        (Some(Admitted::Passed), false),
        (Some(Admitted::Full(3)), false),
        (Some(Admitted::Fenced), false),
    ] {
        gate.state.lock().unwrap().closed_until = None;
        let permit = enter(&gate, 0, now).unwrap();
        permit.answered(said, now + LOOK_AGAIN, 0.5);
        assert_eq!(gate.holds(), usize::from(holds), "{said:?}");
        assert_eq!(permit.trusted(now), matches!(said, Some(Admitted::Slot | Admitted::Passed)), "{said:?}");
        let asked = permit.held().asked;
        drop(permit);
        assert_eq!(gate.holds(), 0);
        match told.try_recv() {
            Ok(ToReleaser::Freed(freed)) => assert!(holds && freed.asked == asked, "{said:?}"),
            other => assert!(!holds, "{said:?} {other:?}"),
        }
    }
}

#[test]
fn partitions_that_wait_are_woken_in_turn_as_many_as_may_ask() {
    let ((gate, _told), now) = (gate(), Instant::now());
    let woken = Arc::new(StdMutex::new(Vec::new()));
    let heard = woken.clone();
    gate.wakes(move |partition| heard.lock().unwrap().push(partition));
    let first = enter(&gate, 0, now).unwrap();
    for partition in [3, 1, 2] {
        assert!(gate.room(partition, now).is_err());
    }
    first.answered(Some(Admitted::Slot), now + LOOK_AGAIN, 0.5);
    assert_eq!(*woken.lock().unwrap(), [3, 1], "two may ask now");
    gate.waits(2, 5);
    gate.waits(1, 2);
    assert_eq!(gate.waiting(), 7);
    gate.waits(2, 0);
    assert_eq!(gate.waiting(), 2);
    // Room is shared with the others that wait.
    gate.opened(8, now);
    gate.room(1, now).unwrap();
}

#[test]
fn a_permit_whose_claim_was_lost_lets_no_run_begin_though_its_slot_is_kept() {
    let ((gate, _told), now) = (gate(), Instant::now());
    let permit = enter(&gate, 0, now).unwrap();
    let until = now + Duration::from_secs(3);
    permit.answered(Some(Admitted::Slot), until, 0.5);
    permit.revoke();
    permit.kept(until + Duration::from_secs(1));
    assert!(!permit.trusted(now));
    // The same where its answer comes afterwards.
    let asks = enter(&gate, 1, now).unwrap();
    asks.revoke();
    asks.answered(Some(Admitted::Slot), until, 0.5);
    assert!(!asks.trusted(now));
}

#[test]
fn a_slot_that_nobody_kept_lets_no_run_begin() {
    let ((gate, _told), now) = (gate(), Instant::now());
    let permit = enter(&gate, 0, now).unwrap();
    let until = now + Duration::from_secs(3);
    permit.answered(Some(Admitted::Slot), until, 0.5);
    assert!(permit.trusted(now) && !permit.trusted(until));
    permit.kept(until + Duration::from_secs(1));
    assert!(permit.trusted(until));
    let of_tenure = permit.clone();
    assert!(permit.lost() && !permit.lost(), "told once");
    drop(of_tenure);
}

#[test]
fn what_is_put_back_comes_again_as_often_as_one_is_let_in_and_no_later_than_it_costs() {
    let ((gate, _told), start) = (gate(), Instant::now());
    let ms = Duration::from_millis;
    let first: Vec<Duration> = (0..3).map(|_| gate.comes_again(start)).collect();
    assert_eq!(first, [ms(250), ms(260), ms(270)]);
    // One every 400 ms, as it turns out.
    let mut now = start + ms(1000);
    for _ in 0..8 {
        gate.answered(Some(Admitted::Full(1)), now, 0.0);
        now += ms(400);
        gate.answered(Some(Admitted::Slot), now, 0.0);
    }
    assert_eq!([gate.comes_again(now), gate.comes_again(now)], [ms(250), ms(650)]);
    // A thousand do not come as late as their turn would be.
    let thousand: Vec<Duration> = (0..1000).map(|_| gate.comes_again(now)).collect();
    let last = thousand[999];
    assert!(last > ms(5000) && last < ms(5500), "{last:?}");
    // Not before the gate is open.
    gate.answered(Some(Admitted::Until(ms(7000))), now, 0.0);
    assert!(gate.comes_again(now) > ms(7000));
}

#[test]
fn jobs_of_a_key_come_again_one_token_behind_the_other() {
    let (freed, _told) = unbounded_channel();
    let rate = gristmill_job::Rate::per_second(20).burst(1).per_key();
    let limit = Limit { rate: Some(rate), ..Limit::default() };
    let gate = Gate::new(QueueName::new("q").unwrap(), "k", limit, freed);
    let (now, ms) = (Instant::now(), Duration::from_millis);
    let (a, b) = (Key::new("a").unwrap(), Key::new("b").unwrap());
    let waits: Vec<Duration> = (0..3).map(|_| gate.comes_again_for(&a, ms(30), now)).collect();
    assert_eq!(waits, [ms(30), ms(80), ms(130)]);
    assert_eq!(gate.comes_again_for(&b, ms(30), now), ms(30), "another key");
    assert_eq!(gate.comes_again_for(&a, ms(20), now + ms(100)), ms(70), "one has not come");
}

#[test]
fn a_partition_in_which_nothing_waits_any_more_takes_no_turn_from_others() {
    let ((gate, _told), now) = (gate(), Instant::now());
    let woken = Arc::new(StdMutex::new(Vec::new()));
    let heard = woken.clone();
    gate.wakes(move |partition| heard.lock().unwrap().push(partition));
    let first = enter(&gate, 0, now).unwrap();
    for partition in [3, 1, 2] {
        gate.waits(partition, 1);
        assert!(gate.room(partition, now).is_err());
    }
    gate.waits(3, 0);
    first.answered(Some(Admitted::Slot), now + LOOK_AGAIN, 0.5);
    assert_eq!(*woken.lock().unwrap(), [1, 2]);
}
