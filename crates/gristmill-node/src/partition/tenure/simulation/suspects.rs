//! Jobs that kill their process, and runs that may not be repeated.

use super::world::{VERSIONS, World};
use super::{Faults, NONE, simulate};
use gristmill_testkit::seed::seed;

/// `poison` jobs, and faults beside them. Returns how often a process died of them, at worst.
pub(super) fn poisoned(poison: &[(usize, u64)], faults: Faults) -> usize {
    let cases: u64 = std::env::var("GRISTMILL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(150);
    let (first, mut worst) = (seed(), 0);
    for case in 0..cases {
        let seed = first.wrapping_add(case);
        let ran = std::panic::catch_unwind(|| {
            let mut world = World::new(seed, faults);
            world.poison = poison.iter().map(|(key, version)| (format!("key{key}"), *version)).collect();
            world.play();
            world.deaths
        });
        let Ok(deaths) = ran else { panic!("seed {seed} with {faults:?}: GRISTMILL_SEED={seed} repeats it") };
        worst = worst.max(deaths);
    }
    worst
}

#[test]
fn a_poison_job_is_dead_after_its_budget_and_two_deaths_wherever_it_stands() {
    for version in [1, 3, VERSIONS] {
        let worst = poisoned(&[(1, version)], NONE);
        assert!((4..=5).contains(&worst), "version {version}: {worst} deaths");
    }
}

#[test]
fn two_poison_jobs_charge_nobody_else() {
    // While both run beside others, a death may be the other's.
    let worst = poisoned(&[(0, 2), (2, 4)], NONE);
    assert!((8..=10).contains(&worst), "{worst} deaths");
    poisoned(&[(1, 2), (1, 3)], NONE);
}

#[test]
fn a_poison_job_among_hand_overs_retries_and_lost_answers() {
    let worst = poisoned(&[(1, 2)], Faults { handover: true, retry: true, ..NONE });
    assert!(worst <= 5, "{worst} deaths");
    // A lost answer ends a tenure, and with it a run that was alone in it may be repeated: never uncounted, never twice.
    poisoned(&[(1, 2)], Faults { handover: true, retry: true, lost: true, reconnect: true, ..NONE });
}

#[test]
fn a_run_that_may_not_be_repeated_goes_to_a_person_once_it_was_interrupted() {
    let asks = Faults { asks: true, ..NONE };
    simulate(asks);
    simulate(Faults { reconnect: true, lost: true, ..asks });
    simulate(Faults { retry: true, dies: true, handover: true, ..asks });
    simulate(Faults {
        crash: true,
        expiry: true,
        handover: true,
        reconnect: true,
        lost: true,
        retry: true,
        ..asks
    });
}

#[test]
fn a_node_that_lost_its_lease_takes_false_charges_back() {
    poisoned(&[(1, 2)], Faults { expiry: true, ..NONE });
    poisoned(&[], Faults { expiry: true, crash: true, lost: true, ..NONE });
    poisoned(&[(0, 3)], Faults { expiry: true, dies: true, ..NONE });
}
