//! Every script says on top what it is for, its KEYS, its ARGV, what it replies and why it is safe to repeat; and
//! the Rust file of the same name, which calls it, is in the same crate.

use crate::accept;
use crate::tree::{self, File};

/// How far down the header may reach.
const HEADER_LINES: usize = 60;

/// What a header must speak of: the word looked for, in lower case, and what is meant.
const TOPICS: &[(&str, &str)] = &[
    ("keys", "KEYS with their types"),
    ("argv", "ARGV with their units"),
    ("repl", "the replies"),
    ("repeat", "why it is safe to repeat"),
];

fn judge(files: &[File]) -> Vec<String> {
    let scripts = files.iter().filter(|file| file.is("lua") && file.path.contains("/src/lua/"));
    scripts.flat_map(|script| judge_one(script, files)).collect()
}

fn judge_one(script: &File, files: &[File]) -> Vec<String> {
    let path = &script.path;
    let mut complaints = Vec::new();
    let header: Vec<&str> = script
        .text
        .lines()
        .skip_while(|line| line.starts_with("#!"))
        .take(HEADER_LINES)
        .map_while(|line| line.strip_prefix("--"))
        .collect();
    if header.first().is_none_or(|line| line.split_whitespace().count() < 3) {
        complaints.push(format!("{path}: its first line is no comment that says what it is for"));
    }
    let header = header.join("\n").to_lowercase();
    for (word, topic) in TOPICS {
        if !header.contains(word) {
            complaints.push(format!("{path}: its header does not name {topic}"));
        }
    }
    let name = path.rsplit('/').next().unwrap_or_default().trim_end_matches(".lua");
    let sister = format!("/{name}.rs");
    let has_sister = |file: &File| file.crate_name() == script.crate_name() && file.path.ends_with(&sister);
    if !files.iter().any(has_sister) {
        complaints.push(format!("{path}: no {name}.rs beside it in the crate's src"));
    }
    complaints
}

#[test]
fn every_script_carries_its_contract_and_has_a_rust_file_of_its_name() {
    accept(&judge(&tree::files()));
}

#[cfg(test)]
fn planted(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

#[test]
fn a_whole_contract_is_accepted() {
    let text = "#!lua\n-- Gives a lease back.\n-- KEYS[1] lease hash\n-- ARGV[1] epoch\n-- Replies ok\n-- Safe to repeat: yes\nreturn 1";
    let files = [planted("crates/b/src/lua/release.lua", text), planted("crates/b/src/lease/release.rs", "")];
    assert_eq!(judge(&files), Vec::<String>::new());
}

#[test]
fn a_script_without_contract_or_rust_file_is_refused() {
    let files = [
        planted("crates/b/src/lua/release.lua", "local keys, argv, reply, repeats = 1\nreturn 1"),
        // In another crate: no sister.
        planted("crates/c/src/release.rs", ""),
    ];
    let complaints = judge(&files);
    assert_eq!(complaints.len(), 2 + TOPICS.len(), "{complaints:#?}");
    let half = [
        planted(
            "crates/b/src/lua/claim.lua",
            "-- Takes waiting jobs.\n-- KEYS[1] stream\n-- Replies jobs\nreturn 1",
        ),
        planted("crates/b/src/claim.rs", ""),
    ];
    assert_eq!(
        judge(&half),
        [
            "crates/b/src/lua/claim.lua: its header does not name ARGV with their units",
            "crates/b/src/lua/claim.lua: its header does not name why it is safe to repeat",
        ]
    );
}
