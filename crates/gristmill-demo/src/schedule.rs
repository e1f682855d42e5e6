//! Which job is enqueued when, and which twice. Pure.

use crate::input::Input;
use gristmill_testkit::seed::SplitMix64;
use std::collections::HashMap;

/// One event in this many is enqueued twice.
const TWICE_ONE_IN: u64 = 10;
/// One event in this many comes later than its place in the input.
const LATER_ONE_IN: u64 = 5;
/// By how many places at most.
const LATER_AT_MOST: u64 = 200;

/// One enqueue. Events by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    First(usize),
    /// Under the same id: to be absorbed.
    Again(usize),
    /// Under another id: a plant.
    Planted(usize),
}

#[derive(Debug)]
pub(crate) struct Schedule {
    pub(crate) steps: Vec<Step>,
    /// How many are to be absorbed.
    pub(crate) again: u64,
    /// How many events come behind one that stands after them in the input.
    pub(crate) out_of_order: u64,
}

/// Per key the order stays that of the input; across keys a part is turned round. Half of the second copies follow
/// their first at once, the others come any time later.
pub(crate) fn plan(input: &Input, planted: Option<usize>, rng: &mut SplitMix64) -> Schedule {
    let order = displaced(input, rng);
    let mut out_of_order = 0;
    let mut furthest = 0;
    for index in &order {
        out_of_order += u64::from(*index < furthest);
        furthest = furthest.max(*index);
    }
    // First copies stand at even positions, second copies at odd ones.
    let end = order.len() as u64 * 2;
    let mut steps: Vec<(u64, Step)> = Vec::with_capacity(order.len() + order.len() / 8);
    let mut firsts = vec![0; order.len()];
    for (at, index) in order.iter().enumerate() {
        let at = at as u64 * 2;
        firsts[*index] = at;
        steps.push((at, Step::First(*index)));
        // At least one, however small the input is.
        if at == 0 || rng.one_in(TWICE_ONE_IN) {
            let later = if rng.one_in(2) { 0 } else { rng.below(end - at) };
            steps.push(((at + later) | 1, Step::Again(*index)));
        }
    }
    for index in &input.repeated {
        steps.push(((firsts[*index] + rng.below(end - firsts[*index])) | 1, Step::Again(*index)));
    }
    steps.extend(planted.map(|index| (end + 1, Step::Planted(index))));
    steps.sort_by_key(|(at, _)| *at);
    let steps: Vec<Step> = steps.into_iter().map(|(_, step)| step).collect();
    let again = steps.iter().filter(|step| matches!(step, Step::Again(_))).count() as u64;
    Schedule { steps, again, out_of_order }
}

fn displaced(input: &Input, rng: &mut SplitMix64) -> Vec<usize> {
    let mut newest: HashMap<&str, u64> = HashMap::new();
    let mut order: Vec<(u64, usize)> = Vec::with_capacity(input.events.len());
    for (index, event) in input.events.iter().enumerate() {
        let later = if rng.one_in(LATER_ONE_IN) { rng.below(LATER_AT_MOST) } else { 0 };
        let last = newest.entry(&event.key).or_default();
        *last = (*last).max(index as u64 + later);
        order.push((*last, index));
    }
    order.sort_unstable();
    order.into_iter().map(|(_, index)| index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{Event, Op};

    fn input(events: usize, repeated: Vec<usize>) -> Input {
        let event = |n: usize| Event {
            id: n.to_string(),
            key: (n % 7).to_string(),
            version: (n / 7 + 1) as u64,
            op: Op::Modify,
            mode: "100644".to_owned(),
            blob: String::new(),
        };
        Input {
            source: String::new(),
            events: (0..events).map(event).collect(),
            repeated,
            truth: Default::default(),
        }
    }

    #[test]
    fn keys_keep_their_order_and_second_copies_come_second() {
        let input = input(3_000, vec![17, 17]);
        let schedule = plan(&input, Some(2_999), &mut SplitMix64::new(3));
        let (mut versions, mut seen) = (HashMap::new(), vec![0; input.events.len()]);
        for step in &schedule.steps {
            match step {
                Step::First(index) => {
                    let event = &input.events[*index];
                    let before = versions.insert(&event.key, event.version).unwrap_or(0);
                    assert_eq!(event.version, before + 1);
                    seen[*index] += 1;
                }
                Step::Again(index) => {
                    assert!(seen[*index] > 0, "a second copy came first");
                    seen[*index] += 1;
                }
                Step::Planted(index) => assert_eq!(*index, 2_999),
            }
        }
        assert!(seen.iter().all(|count| *count > 0) && seen[17] >= 3);
        assert_eq!(schedule.again, seen.iter().map(|count| count - 1).sum::<u64>());
        assert!((100..1_000).contains(&schedule.again), "{}", schedule.again);
        assert!(schedule.out_of_order > 100, "{}", schedule.out_of_order);
        assert_eq!(schedule.steps.last(), Some(&Step::Planted(2_999)));
    }

    #[test]
    fn the_smallest_input_has_a_second_copy() {
        let schedule = plan(&input(1, vec![]), None, &mut SplitMix64::new(1));
        assert_eq!(schedule.steps, [Step::First(0), Step::Again(0)]);
    }
}
