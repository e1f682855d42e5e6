//! A repository's first-parent history as events, and its tree as the truth.

use super::{Event, Input, Op, check_state, shortened};
use crate::projection::FileState;
use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    process::{Command, Stdio},
};

/// What the log must not inherit from a person's configuration.
const SETTINGS: [&str; 4] = ["-c", "log.showSignature=false", "-c", "log.showRoot=true"];
const LOG: [&str; 11] = [
    "log",
    "--first-parent",
    "-m",
    "--raw",
    "-z",
    "--reverse",
    "--no-renames",
    "--abbrev=40",
    "--no-ext-diff",
    "--ignore-submodules=none",
    "--format=%H",
];

/// Errors are in words: what git said, or what was not understood.
pub(super) fn read(repo: &Path) -> Result<Input, String> {
    // Both reads are of one commit, also while somebody commits.
    let head = git(repo, &["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?;
    let head = String::from_utf8_lossy(&head).trim().to_owned();
    if head.is_empty() {
        return Err("it has no commit yet".to_owned());
    }
    let log: Vec<&str> = SETTINGS.into_iter().chain(LOG).chain([head.as_str(), "--"]).collect();
    let events = parse_log(&git(repo, &log)?)?;
    let truth = parse_tree(&git(repo, &["ls-tree", "-r", "-z", "--full-tree", &head])?)?;
    let place = repo.canonicalize().unwrap_or_else(|_| repo.to_owned());
    let short: String = head.chars().take(12).collect();
    Ok(Input {
        source: format!("git history of {} at {short}", place.display()),
        events,
        repeated: Vec::new(),
        truth,
    })
}

fn git(repo: &Path, args: &[&str]) -> Result<Vec<u8>, String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(repo).args(args).env("LC_ALL", "C").env("GIT_OPTIONAL_LOCKS", "0");
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| format!("git cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    match said.lines().find(|line| !line.trim().is_empty()) {
        Some(line) => Err(format!("git says: {line}")),
        None => Err("it has no commit yet".to_owned()),
    }
}

/// `<commit> NUL`, then per change `:<mode> <mode> <blob> <blob> <letter> NUL <path> NUL`; a line break stands between.
fn parse_log(log: &[u8]) -> Result<Vec<Event>, String> {
    let mut words = log.split(|byte| *byte == 0).map(|word| word.strip_prefix(b"\n").unwrap_or(word));
    let (mut events, mut versions) = (Vec::new(), HashMap::<String, u64>::new());
    let (mut commit, mut number) = (String::new(), 0);
    while let Some(word) = words.next() {
        let text = String::from_utf8_lossy(word);
        if text.is_empty() {
            continue;
        }
        let Some(change) = text.strip_prefix(':') else {
            (commit, number) = (text.chars().take(12).collect(), 0);
            continue;
        };
        let fields: Vec<&str> = change.split(' ').collect();
        let (&[_, mode, _, blob, letter], Some(path)) = (fields.as_slice(), words.next()) else {
            return Err(format!("git's log was not understood at {:?}", shortened(&text)));
        };
        let op = match letter.get(..1) {
            Some("A") => Op::Add,
            Some("M" | "T") => Op::Modify,
            Some("D") => Op::Delete,
            _ => return Err(format!("git's log names a change of an unknown sort: {:?}", shortened(&text))),
        };
        check_state(mode, blob)?;
        let key = name(path);
        let version = versions.entry(key.clone()).or_default();
        (*version, number) = (*version + 1, number + 1);
        let (id, version) = (format!("{commit}:{number}"), *version);
        let event = Event { id, key, version, op, mode: mode.to_owned(), blob: blob.to_owned() };
        event.job().map_err(|error| format!("a path cannot be a key: {error}"))?;
        events.push(event);
    }
    Ok(events)
}

/// `<mode> <type> <blob> TAB <path> NUL`.
fn parse_tree(tree: &[u8]) -> Result<BTreeMap<String, FileState>, String> {
    let mut truth = BTreeMap::new();
    for entry in tree.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
        let odd =
            || format!("git's tree was not understood at {:?}", shortened(&String::from_utf8_lossy(entry)));
        let tab = entry.iter().position(|byte| *byte == b'\t').ok_or_else(odd)?;
        let fields = String::from_utf8_lossy(&entry[..tab]);
        let fields: Vec<&str> = fields.split(' ').collect();
        let &[mode, _, blob] = fields.as_slice() else { return Err(odd()) };
        check_state(mode, blob)?;
        truth.insert(name(&entry[tab + 1..]), FileState { mode: mode.to_owned(), blob: blob.to_owned() });
    }
    Ok(truth)
}

/// The histories are text: a path that is none is written with `\xNN` for the bytes beyond ASCII, and marked by a
/// leading `//`, which no path of a tree has.
fn name(path: &[u8]) -> String {
    match std::str::from_utf8(path) {
        Ok(text) => text.to_owned(),
        Err(_) => format!("//{}", path.escape_ascii()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "78981922613b2afb6025042ff6bd878ac1994e85";
    const ZERO: &str = "0000000000000000000000000000000000000000";

    #[test]
    fn a_log_with_empty_commits_odd_paths_and_a_submodule() {
        let log = format!(
            "{c0}\0{c1}\0\n:000000 100644 {ZERO} {A} A\0a\0:000000 160000 {ZERO} {A} A\0:sub\0{c2}\0{c3}\0\n:100644 000000 {A} {ZERO} D\0a\0:160000 120000 {A} {A} T\0:sub\0",
            c0 = "0".repeat(40),
            c1 = "1".repeat(40),
            c2 = "2".repeat(40),
            c3 = "3".repeat(40),
        );
        let events = parse_log(log.as_bytes()).unwrap();
        let told: Vec<_> = events.iter().map(|e| (e.id.as_str(), e.key.as_str(), e.version, e.op)).collect();
        assert_eq!(
            told,
            [
                ("111111111111:1", "a", 1, Op::Add),
                ("111111111111:2", ":sub", 1, Op::Add),
                ("333333333333:1", "a", 2, Op::Delete),
                ("333333333333:2", ":sub", 2, Op::Modify),
            ]
        );
        assert_eq!(events[3].mode, "120000");
    }

    #[test]
    fn a_tree_and_a_path_that_is_no_text() {
        let mut tree = format!("100644 blob {A}\tb c\x00160000 commit {A}\t").into_bytes();
        tree.extend_from_slice(b"\xff\0");
        let truth = parse_tree(&tree).unwrap();
        assert_eq!(truth.keys().collect::<Vec<_>>(), ["//\\xff", "b c"]);
        assert!(parse_tree(b"nonsense\0").is_err());
        assert!(parse_log(b":1 2 3\0").is_err());
    }
}
