//! Jobs for later, step by step: what is asked when, and that nothing is asked for nothing.

use super::leaving_tests::Played as Alone;
use super::*;
use gristmill_broker::delayed::Member;
use gristmill_broker::promote::Promoted;
use gristmill_job::{JobId, UnixMillis};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// An answer at 10 s after 1970: so many moved, these are due, the next so much later.
fn slice(moved: u64, due: Vec<Member>, next: Option<Duration>) -> Answer {
    let now = UnixMillis(10_000);
    let next = next.map(|later| UnixMillis(now.0 + later.as_millis() as u64));
    Answer::Promoted(Promoted { moved, late: Duration::ZERO, lost: 0, due, next, now })
}

fn member(seq: u64) -> Member {
    Member::new(seq, true, &JobId::new("id").unwrap())
}

/// Whoever asks for a turn gets it at once.
struct Played(Alone);

impl Played {
    fn tell(&mut self, after: Duration, event: Event) -> Vec<Action> {
        let mut actions = self.0.tell(after, event);
        if asks(&actions) {
            actions.extend(self.0.tell(after, Event::MayPromote));
        }
        actions
    }

    fn granted(&mut self) {
        self.0.granted();
    }

    fn taken(&mut self) -> Vec<Action> {
        let mut actions = self.0.taken();
        if asks(&actions) {
            actions.extend(self.0.tell(Duration::ZERO, Event::MayPromote));
        }
        actions
    }
}

fn asks(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::AskPromote))
}

fn over(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::PromoteOver))
}

/// Serves, and has claimed once (call 3) and asked once (call 4).
fn serving() -> Played {
    let mut played = Played(Alone::new());
    played.tell(Duration::ZERO, Event::Serve);
    played.granted();
    let answer = Answer::Recovered { entries: Vec::new(), next: Place::ZERO };
    played.tell(Duration::ZERO, Event::Answered(1, Ok(answer)));
    let actions = played.taken();
    assert_eq!(promotes(&actions), [(4, Vec::new())], "it asks as soon as it serves");
    played.tell(Duration::ZERO, Event::Answered(3, Ok(Answer::Claimed(Vec::new()))));
    played
}

fn promotes(actions: &[Action]) -> Vec<(u64, Vec<Member>)> {
    let promote = |action: &Action| match action {
        Action::Send(number, call) => match &**call {
            Call::Promote(slice) => Some((*number, slice.clone())),
            _ => None,
        },
        _ => None,
    };
    actions.iter().filter_map(promote).collect()
}

fn claims(actions: &[Action]) -> bool {
    actions.iter().any(|a| matches!(a, Action::Send(_, call) if matches!(**call, Call::Claim { .. })))
}

fn wakes(actions: &[Action]) -> Option<Instant> {
    actions.iter().find_map(|action| match action {
        Action::WakeAt(at) => Some(*at),
        _ => None,
    })
}

#[test]
fn the_next_due_time_is_slept_until_and_then_asked_for() {
    let mut played = serving();
    let before = Instant::now();
    let actions = played.tell(Duration::ZERO, Event::Answered(4, Ok(slice(0, Vec::new(), Some(5 * SECOND)))));
    assert!(promotes(&actions).is_empty(), "{actions:?}");
    let at = wakes(&actions).expect("a wake");
    assert!(at >= before + 4 * SECOND && at <= Instant::now() + 5 * SECOND);
    for early in [SECOND, 4 * SECOND] {
        assert!(promotes(&played.tell(early, Event::Tick)).is_empty(), "not due: nothing is asked");
    }
    let actions = played.tell(5 * SECOND, Event::Tick);
    assert_eq!(promotes(&actions), [(5, Vec::new())]);
    // Still on its way: once.
    assert!(promotes(&played.tell(6 * SECOND, Event::Tick)).is_empty());
    // None is left: no wake, no call.
    let actions = played.tell(6 * SECOND, Event::Answered(5, Ok(slice(0, Vec::new(), None))));
    assert!(promotes(&actions).is_empty() && wakes(&actions).is_none(), "{actions:?}");
    assert!(promotes(&played.tell(100 * SECOND, Event::Tick)).is_empty());
}

#[test]
fn slices_follow_each_other_one_at_a_time_and_what_became_ready_is_claimed_at_once() {
    let mut played = serving();
    let actions = played.tell(SECOND, Event::Answered(4, Ok(slice(0, vec![member(1), member(2)], None))));
    assert_eq!(promotes(&actions), [(5, vec![member(1), member(2)])]);
    assert!(!claims(&actions));
    // Its answer is lost: the same call again, under its number.
    let actions = played.tell(SECOND, Event::Answered(5, Err(CallError::Unknown)));
    assert_eq!(promotes(&actions), [(5, vec![member(1), member(2)])]);
    let actions = played.tell(SECOND, Event::Answered(5, Ok(slice(2, vec![member(3)], None))));
    assert_eq!(promotes(&actions), [(7, vec![member(3)])]);
    assert!(claims(&actions), "nobody waits for the doorbell: {actions:?}");
    assert!(actions.iter().any(|action| matches!(action, Action::Promoted { moved: 2, .. })));
    let actions = played.tell(SECOND, Event::Answered(7, Ok(slice(1, Vec::new(), None))));
    assert!(promotes(&actions).is_empty(), "{actions:?}");
}

#[test]
fn a_bell_or_a_renewal_tells_of_a_first_that_was_not_known() {
    let mut played = serving();
    played.tell(Duration::ZERO, Event::Answered(4, Ok(slice(0, Vec::new(), Some(50 * SECOND)))));
    let actions = played.tell(SECOND, Event::Bell);
    assert_eq!(promotes(&actions), [(5, Vec::new())]);
    // Rung once more before the answer: it may tell of one that the answer does not know.
    assert!(promotes(&played.tell(SECOND, Event::Bell)).is_empty());
    let actions = played.tell(SECOND, Event::Answered(5, Ok(slice(0, Vec::new(), Some(50 * SECOND)))));
    assert_eq!(promotes(&actions), [(6, Vec::new())]);
    played.tell(SECOND, Event::Answered(6, Ok(slice(0, Vec::new(), Some(50 * SECOND)))));
    // The clock of Redis stands at 1 ms here.
    let renewed = |due| Event::Renewed { wanted: false, changes: 0, due: Some(UnixMillis(due)) };
    assert!(promotes(&played.tell(SECOND, renewed(3001))).is_empty(), "due in three seconds");
    assert!(promotes(&played.tell(2 * SECOND, renewed(90_000))).is_empty(), "a later one changes nothing");
    assert_eq!(promotes(&played.tell(4 * SECOND, Event::Tick)).len(), 1);
}

#[test]
fn who_gives_the_partition_up_promotes_no_more() {
    let mut played = serving();
    played.tell(Duration::ZERO, Event::Answered(4, Ok(slice(0, vec![member(1)], None))));
    played.tell(Duration::ZERO, Event::Yield(Why::Handover));
    let actions = played.tell(Duration::ZERO, Event::Answered(5, Ok(slice(1, vec![member(2)], None))));
    assert!(promotes(&actions).is_empty(), "{actions:?}");
    // The next tenure asks anew, and under its own numbers.
    played.tell(Duration::ZERO, Event::Lost(End::Connection));
    played.tell(Duration::ZERO, Event::Acquired(Err(())));
    played.tell(Duration::ZERO, Event::Serve);
    played.granted();
    let answer = Answer::Recovered { entries: Vec::new(), next: Place::ZERO };
    played.tell(Duration::ZERO, Event::Answered(1, Ok(answer)));
    assert_eq!(promotes(&played.taken()), [(4, Vec::new())]);
}

#[test]
fn every_turn_that_comes_is_used_or_given_back() {
    let mut played = serving();
    let played = &mut played.0;
    let actions = played.tell(SECOND, Event::Answered(4, Ok(slice(0, vec![member(1)], None))));
    assert!(
        over(&actions) && asks(&actions) && promotes(&actions).is_empty(),
        "one turn, one slice: {actions:?}"
    );
    assert!(!asks(&played.tell(SECOND, Event::Bell)), "it has asked");
    let actions = played.tell(SECOND, Event::MayPromote);
    assert_eq!(promotes(&actions), [(5, vec![member(1)])]);
    // Asked for, and given up before the turn comes.
    assert!(asks(&played.tell(SECOND, Event::Answered(5, Ok(slice(1, vec![member(2)], None))))));
    played.tell(SECOND, Event::Yield(Why::Handover));
    let actions = played.tell(SECOND, Event::MayPromote);
    assert!(over(&actions) && promotes(&actions).is_empty(), "{actions:?}");
}

#[test]
fn a_due_time_that_is_years_away_is_looked_at_within_the_hour() {
    let mut played = serving();
    let far = Duration::from_secs(3650 * 86_400);
    let actions = played.tell(Duration::ZERO, Event::Answered(4, Ok(slice(0, Vec::new(), Some(far)))));
    assert!(wakes(&actions).is_some_and(|at| at <= Instant::now() + 3600 * SECOND), "{actions:?}");
}
