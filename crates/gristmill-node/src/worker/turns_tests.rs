use super::*;
use gristmill_testkit::seed::{SplitMix64, seed};
use std::collections::BTreeMap;

/// Queues whose participants hold numbers of runs.
#[derive(Default)]
struct World {
    turns: Turns<(usize, usize)>,
    left: BTreeMap<(usize, usize), u32>,
    weights: Vec<u32>,
}

impl World {
    fn new(weights: &[u32]) -> Self {
        Self { weights: weights.to_vec(), ..Self::default() }
    }

    fn add(&mut self, queue: usize, participant: usize, runs: u32) {
        let left = self.left.entry((queue, participant)).or_default();
        if *left == 0 && runs > 0 {
            self.turns.join(Share { queue, weight: self.weights[queue] }, (queue, participant));
        }
        *left += runs;
    }

    fn next(&mut self, plenty: Plenty) -> Option<(usize, usize)> {
        let left = &mut self.left;
        let next = self.turns.next(plenty, |participant| {
            let left = left.get_mut(participant).unwrap();
            let taken = left.checked_sub(1);
            *left = taken.unwrap_or(0);
            (taken.map(|_| ()), *left > 0)
        });
        next.map(|(participant, ())| participant)
    }

    fn of_queue(&mut self, plenty: Plenty, starts: usize) -> BTreeMap<usize, usize> {
        let mut counted = BTreeMap::new();
        for _ in 0..starts {
            *counted.entry(self.next(plenty).unwrap().0).or_default() += 1;
        }
        counted
    }
}

#[test]
fn a_queue_has_its_share_by_weight_however_many_partitions_another_has() {
    for plenty in [Plenty::Free, Plenty::Scarce(Instant::now())] {
        let mut world = World::new(&[1, 3]);
        (0..64).for_each(|partition| world.add(0, partition, 10_000));
        world.add(1, 0, 10_000);
        assert_eq!(world.of_queue(plenty, 6400), BTreeMap::from([(0, 1600), (1, 4800)]), "{plenty:?}");
    }
}

#[test]
fn while_slots_are_scarce_a_turn_is_short_where_runs_are_slow() {
    for (each_ms, in_a_row) in [(0, 128), (1, 11), (5, 3), (10, 2), (1000, 2)] {
        let mut world = World::new(&[1]);
        (0..3).for_each(|partition| world.add(0, partition, 1000));
        let mut now = Instant::now();
        let starts: Vec<usize> = (0..3 * in_a_row)
            .map(|_| {
                now += Duration::from_millis(each_ms);
                world.next(Plenty::Scarce(now)).unwrap().1
            })
            .collect();
        let turns = [vec![0; in_a_row], vec![1; in_a_row], vec![2; in_a_row]].concat();
        assert_eq!(starts, turns, "a start every {each_ms} ms");
    }
}

#[test]
fn while_slots_are_free_a_partition_keeps_its_turn_and_still_gives_it_up() {
    let mut world = World::new(&[1]);
    (0..2).for_each(|partition| world.add(0, partition, 1000));
    let starts: Vec<usize> = (0..256).map(|_| world.next(Plenty::Free).unwrap().1).collect();
    assert_eq!(starts, [vec![0; 128], vec![1; 128]].concat());
}

#[test]
fn what_joins_waits_for_no_more_than_one_round_of_the_others() {
    let seed = seed();
    for case in 0..200 {
        let mut rng = SplitMix64::new(seed.wrapping_add(case));
        let queues = 2 + usize::try_from(rng.below(4)).unwrap();
        let weights: Vec<u32> = (0..queues).map(|_| 1 + u32::try_from(rng.below(9)).unwrap()).collect();
        let mut world = World::new(&weights);
        for queue in 1..queues {
            let participants = 1 + usize::try_from(rng.below(40)).unwrap();
            (0..participants).for_each(|p| world.add(queue, p, 1_000_000));
        }
        let plenty = if rng.one_in(2) { Plenty::Free } else { Plenty::Scarce(Instant::now()) };
        let round: u32 = weights[1..].iter().sum::<u32>() * plenty.takes();
        for _ in 0..20 {
            for _ in 0..rng.below(300) {
                world.next(plenty);
            }
            world.add(0, 0, 1);
            let waited = (0..).find(|_| world.next(plenty) == Some((0, 0))).unwrap();
            assert!(waited <= round, "seed {seed:#x} case {case}: {waited} of {round} {plenty:?}");
        }
    }
}

#[test]
fn nothing_is_lost_and_nothing_is_invented() {
    let seed = seed();
    let mut rng = SplitMix64::new(seed);
    let mut world = World::new(&[1, 100, 7]);
    let (mut added, mut started) = (0_u64, 0_u64);
    for _ in 0..20_000 {
        if rng.one_in(3) {
            let runs = rng.below(6);
            let (queue, p) = (rng.below(3), rng.below(4));
            world.add(
                usize::try_from(queue).unwrap(),
                usize::try_from(p).unwrap(),
                u32::try_from(runs).unwrap(),
            );
            added += runs;
        }
        let plenty = if rng.one_in(2) { Plenty::Free } else { Plenty::Scarce(Instant::now()) };
        started += u64::from(world.next(plenty).is_some());
    }
    while world.next(Plenty::Free).is_some() {
        started += 1;
    }
    assert_eq!(started, added, "seed {seed:#x}");
    assert!(world.left.values().all(|left| *left == 0));
}

#[test]
fn one_that_gives_nothing_leaves_and_joins_again() {
    let mut turns = Turns::default();
    turns.join(Share::default(), 'a');
    turns.join(Share { queue: 3, weight: 1 }, 'b');
    assert_eq!(turns.next(Plenty::Free, |p| ((*p == 'b').then_some(()), true)), Some(('b', ())));
    assert_eq!(turns.next(Plenty::Free, |_| (None::<()>, true)), None, "a left, and now b");
    turns.join(Share::default(), 'a');
    assert_eq!(turns.next(Plenty::Free, |_| (Some(()), false)), Some(('a', ())));
    assert_eq!(turns.next(Plenty::Free, |_| (Some(()), false)), None);
}
