use super::*;
use crate::timing::tests::{moments, timings};
use proptest::collection::vec;
use proptest::prelude::*;

const SECOND: u64 = 1000;

fn every(seconds: u64) -> Timing {
    Timing::Every { every_ms: seconds * SECOND, anchor: UnixMillis(0) }
}

fn rules(catch_up: CatchUp, window_s: u64) -> Rules {
    Rules { catch_up, window: Duration::from_secs(window_s) }
}

/// Slots that are due, that are passed over, and how many were missed; all in seconds.
fn plan(timing: &Timing, rules: Rules, after_s: u64, now_s: u64) -> (Vec<u64>, Option<u64>, u64) {
    let plan = decide(timing, rules, UnixMillis(after_s * SECOND), UnixMillis(now_s * SECOND));
    (
        plan.due.iter().map(|slot| slot.0 / SECOND).collect(),
        plan.pass.map(|slot| slot.0 / SECOND),
        plan.missed,
    )
}

#[test]
fn what_is_on_time_is_due_whatever_the_policy() {
    for catch_up in [CatchUp::Skip, CatchUp::Last, CatchUp::All] {
        let found = plan(&every(1), rules(catch_up, 3600), 1000, 1003);
        assert_eq!(found, (vec![1001, 1002, 1003], None, 0), "{catch_up:?}");
        assert_eq!(plan(&every(60), rules(catch_up, 3600), 1200, 1210), (vec![], None, 0), "{catch_up:?}");
    }
}

#[test]
fn missed_slots_are_made_up_as_the_policy_says() {
    // Every minute; nobody was there from 600 to 930.
    let found = |catch_up, window| plan(&every(60), rules(catch_up, window), 600, 930);
    assert_eq!(found(CatchUp::Skip, 3600), (vec![], Some(900), 5));
    assert_eq!(found(CatchUp::Last, 3600), (vec![900], None, 4));
    assert_eq!(found(CatchUp::Last, 20), (vec![], Some(900), 5));
    assert_eq!(found(CatchUp::All, 3600), (vec![660, 720, 780, 840, 900], None, 0));
    assert_eq!(found(CatchUp::All, 150), (vec![780, 840, 900], None, 2));
    assert_eq!(found(CatchUp::All, 20), (vec![], Some(900), 5));
    // One that is on time makes up for those before it.
    let found = |catch_up| plan(&every(60), rules(catch_up, 3600), 600, 905);
    assert_eq!(found(CatchUp::Skip), (vec![900], None, 4));
    assert_eq!(found(CatchUp::Last), (vec![900], None, 4));
}

#[test]
fn no_more_than_the_bound_is_made_up_and_they_are_the_newest() {
    let (due, pass, missed) = plan(&every(1), rules(CatchUp::All, 86_400), 0, 86_400);
    assert_eq!((due.len(), due[0], due.last().copied()), (MOST_SLOTS, 85_401, Some(86_400)));
    assert_eq!((pass, missed), (None, MOST_SLOTS as u64), "counted no further");
}

#[test]
fn a_clock_that_was_set_back_fires_nothing_again() {
    let plan = decide(&every(60), Rules::default(), UnixMillis(600 * SECOND), UnixMillis(300 * SECOND));
    assert_eq!(plan, Plan { next: Some(UnixMillis(660 * SECOND)), ..Plan::default() });
}

#[test]
fn a_jump_forward_fires_what_it_skips_to_once() {
    let (timing, year) = (every(86_400), 31_536_000);
    assert_eq!(plan(&timing, Rules::default(), 0, year + 5), (vec![year], None, 364));
}

/// The record, and what was fired.
struct Store {
    after: UnixMillis,
    fired: Vec<UnixMillis>,
    passed: u64,
}

/// One that decides, as a node does: on what it knew at some time.
#[derive(Default)]
struct Decider {
    knows: UnixMillis,
    plan: Plan,
}

impl Decider {
    fn look(&mut self, timing: &Timing, rules: Rules, store: &Store, now: UnixMillis) {
        self.knows = store.after;
        self.plan = decide(timing, rules, self.knows, now);
    }

    /// The script's rule: it is done only where nobody else did anything since.
    fn act(&mut self, store: &mut Store, clock: UnixMillis) {
        let fires = self.plan.due.pop_front();
        let Some(slot) = fires.or(self.plan.pass.take()) else { return };
        if self.knows != store.after || slot <= store.after || slot > clock {
            self.plan = Plan::default();
            return;
        }
        match fires {
            Some(slot) => store.fired.push(slot),
            None => store.passed += 1,
        }
        (store.after, self.knows) = (slot, slot);
    }
}

proptest! {
    /// Two nodes that look and act in any order, late, with a clock that may jump, fire every slot once.
    #[test]
    fn any_two_deciders_fire_each_slot_once(
        timing in timings(),
        start in moments(),
        window in 10..100_000u64,
        steps in vec((0..2usize, any::<bool>(), 0..40_000u64, 0..40u8), 1..60),
    ) {
        let rules = rules(CatchUp::All, window);
        let mut store = Store { after: start, fired: Vec::new(), passed: 0 };
        let mut nodes = [Decider::default(), Decider::default()];
        let mut clock = start;
        for (who, looks, ms, jump) in steps {
            clock = match jump {
                0 => UnixMillis(clock.0.saturating_sub(ms)),
                _ => UnixMillis(clock.0 + ms),
            };
            if looks {
                nodes[who].look(&timing, rules, &store, clock);
            }
            nodes[who].act(&mut store, clock);
        }
        // Twice in a row what is left, so that nothing is still due.
        for _ in 0..2 {
            nodes[0].look(&timing, rules, &store, clock);
            for _ in 0..=nodes[0].plan.due.len() {
                nodes[0].act(&mut store, clock);
            }
        }
        prop_assert!(store.fired.is_sorted_by(|one, next| one < next), "{:?}", store.fired);
        prop_assert!(store.fired.iter().all(|slot| timing.next_after(UnixMillis(slot.0 - 1)) == Some(*slot)));
        prop_assert!(nodes[0].plan.due.is_empty());
    }

    /// As long as somebody is there in time, every slot is fired, none is passed over, whatever the policy.
    #[test]
    fn who_is_never_late_misses_nothing(
        timing in timings(),
        start in moments(),
        catch_up in proptest::sample::select(&[CatchUp::Skip, CatchUp::Last, CatchUp::All][..]),
        steps in vec((0..2usize, 0..9000u64), 1..60),
    ) {
        let rules = rules(catch_up, 3600);
        let mut store = Store { after: start, fired: Vec::new(), passed: 0 };
        let mut nodes = [Decider::default(), Decider::default()];
        let mut clock = start;
        for (who, ms) in steps {
            clock = UnixMillis(clock.0 + ms);
            nodes[who].look(&timing, rules, &store, clock);
            for _ in 0..=nodes[who].plan.due.len() {
                nodes[who].act(&mut store, clock);
            }
        }
        let all: Vec<UnixMillis> = slots(&timing, start, clock).collect();
        prop_assert_eq!(store.fired, all);
        prop_assert_eq!(store.passed, 0);
    }

    #[test]
    fn every_slot_between_is_due_or_missed(
        timing in timings(), after in moments(), span in 0..3_000_000u64, window in 10..4000u64,
        catch_up in proptest::sample::select(&[CatchUp::Skip, CatchUp::Last, CatchUp::All][..]),
    ) {
        let now = UnixMillis(after.0 + span);
        let plan = decide(&timing, rules(catch_up, window), after, now);
        let all: Vec<UnixMillis> = slots(&timing, after, now).collect();
        prop_assert_eq!((plan.due.len() + plan.missed.min(1000) as usize).min(1000), all.len().min(1000));
        prop_assert!(all.ends_with(&Vec::from(plan.due.clone())));
        prop_assert_eq!(plan.pass.is_some(), plan.due.is_empty() && !all.is_empty());
        prop_assert_eq!(plan.next, timing.next_after(now));
    }
}
