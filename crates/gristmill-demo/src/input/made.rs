//! A small world of files that changes by chance: for where there is no history. The truth is the world as it stands
//! at the end; the events are what was seen on the way.

use super::{Event, Input, Op};
use crate::projection::FileState;
use gristmill_testkit::seed::SplitMix64;
use std::collections::{BTreeMap, HashMap};

pub(super) fn make(count: u32, seed: u64) -> Input {
    let mut rng = SplitMix64::new(seed);
    let mut world: BTreeMap<String, FileState> = BTreeMap::new();
    let mut versions: HashMap<String, u64> = HashMap::new();
    let files = u64::from(count / 12).max(4);
    let mut events = Vec::with_capacity(count as usize);
    for number in 1..=count {
        // The product of two dice: a few files are hot, as in every repository.
        let file = rng.below(files).min(rng.below(files)) * rng.below(files) / files;
        let key = format!("made/{:02}/{file}.txt", file % 16);
        let there = world.contains_key(&key);
        let op = match there {
            false => Op::Add,
            true if rng.one_in(12) => Op::Delete,
            true => Op::Modify,
        };
        let (mode, blob) = match op {
            Op::Delete => ("000000", "0".repeat(40)),
            _ => (if rng.one_in(20) { "100755" } else { "100644" }, blob(&mut rng)),
        };
        let state = FileState { mode: mode.to_owned(), blob };
        match op {
            Op::Delete => world.remove(&key),
            _ => world.insert(key.clone(), state.clone()),
        };
        let version = versions.entry(key.clone()).or_default();
        *version += 1;
        events.push(Event {
            id: format!("made:{number}"),
            version: *version,
            key,
            op,
            mode: state.mode,
            blob: state.blob,
        });
    }
    Input { source: format!("made from seed {seed:#x}"), events, repeated: Vec::new(), truth: world }
}

fn blob(rng: &mut SplitMix64) -> String {
    format!("{:016x}{:016x}{:08x}", rng.next_u64(), rng.next_u64(), rng.below(1 << 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_input_with_deletions_and_hot_keys() {
        let input = make(2_000, 7);
        assert_eq!(input.events, make(2_000, 7).events);
        assert_ne!(input.events, make(2_000, 8).events);
        assert!(input.events.iter().any(|event| event.op == Op::Delete));
        let hottest = input.per_key().into_values().max().unwrap();
        assert!((20..500).contains(&hottest), "{hottest}");
        assert!(input.truth.len() < input.per_key().len(), "some file stays deleted");
    }
}
