//! The load: the history of a well-known repository, which leads to a tree that was not computed from it.

use flate2::read::GzDecoder;
use gristmill_job::NewJob;
use gristmill_testkit::seed::SplitMix64;
use gristmill_tests::fleet::Fleet;
use gristmill_tests::script::Script;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// Jobs in the order in which they are enqueued, and where their keys end.
pub(crate) struct Load {
    pub(crate) jobs: Vec<NewJob>,
    /// What each key ends as; `None`: deleted.
    pub(crate) truth: BTreeMap<String, Option<String>>,
}

#[derive(Deserialize)]
struct Event {
    id: String,
    key: String,
    version: u64,
    op: String,
    mode: String,
    blob: String,
}

fn data() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    folder.join("redis-history.jsonl.gz").is_file().then_some(folder)
}

/// What a job does: most are quick, some fail first, a few take longer than a drain may last.
fn script(random: &mut SplitMix64, long_ms: u64) -> Script {
    let wait_ms = match random.below(400) {
        0 => long_ms,
        1..20 => 50 + random.below(100),
        _ => random.below(4),
    };
    Script { wait_ms, fail_until: u32::from(random.one_in(200)), effect: true, ..Script::default() }
}

impl Load {
    /// The real events; or, said loudly, made ones where they are not beside the checkout.
    pub(crate) fn new(random: &mut SplitMix64, long_ms: u64) -> Self {
        match data() {
            Some(folder) => Self::real(&folder, random, long_ms),
            None => {
                let test = std::thread::current().name().unwrap_or("a test").to_owned();
                let _ = writeln!(
                    std::io::stderr(),
                    "SKIPPED {test} with the real data: there is no folder ../shared/data; made events stand in"
                );
                Self::made(random, long_ms)
            }
        }
    }

    fn real(folder: &Path, random: &mut SplitMix64, long_ms: u64) -> Self {
        let file = File::open(folder.join("redis-history.jsonl.gz")).unwrap();
        let mut load = Self { jobs: Vec::new(), truth: BTreeMap::new() };
        for line in BufReader::new(GzDecoder::new(file)).lines() {
            let event: Event = serde_json::from_str(&line.unwrap()).unwrap();
            let deleted = event.op == "delete";
            let state = format!("{}\t{}", event.mode, event.blob);
            let script = Script { state: Some(state), delete: deleted, ..script(random, long_ms) };
            load.jobs.push(Fleet::job(&event.id, &event.key, event.version, &script));
            load.truth.insert(event.key, None);
        }
        let tree = BufReader::new(File::open(folder.join("redis-tree.tsv")).unwrap());
        for line in tree.lines() {
            let line = line.unwrap();
            let (path, state) = line.split_once('\t').unwrap();
            load.truth.insert(path.to_owned(), Some(state.to_owned()));
        }
        load
    }

    /// Few hot keys and many cold ones, as the real ones are.
    fn made(random: &mut SplitMix64, long_ms: u64) -> Self {
        let mut load = Self { jobs: Vec::new(), truth: BTreeMap::new() };
        let mut versions: BTreeMap<String, u64> = BTreeMap::new();
        for n in 0..25_000_u64 {
            let key = match random.below(7) {
                0 => format!("hot{}", random.below(5)),
                _ => format!("cold{}", random.below(2000)),
            };
            let version = versions.entry(key.clone()).or_default();
            *version += 1;
            let script = Script { state: Some(version.to_string()), ..script(random, long_ms) };
            load.jobs.push(Fleet::job(&format!("e{n}"), &key, *version, &script));
            load.truth.insert(key, Some(version.to_string()));
        }
        load
    }

    /// Every key stands where the truth says.
    pub(crate) fn assert_truth(&self, fleet: &Fleet) {
        let keys: Vec<Vec<u8>> = self.truth.keys().map(|key| key.as_bytes().to_vec()).collect();
        let wrong: Vec<String> = self
            .truth
            .iter()
            .zip(fleet.entities(&keys))
            .filter_map(|((key, truth), found)| {
                let found = found
                    .filter(|entity| !entity.deleted)
                    .map(|entity| String::from_utf8_lossy(&entity.state).into_owned());
                (found != *truth).then(|| format!("{key}: {found:?} instead of {truth:?}"))
            })
            .collect();
        assert!(wrong.is_empty(), "{} keys stand wrong: {:?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    }
}
