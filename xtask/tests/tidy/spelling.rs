//! Keys are spelled in `keys.rs` of the broker and nowhere else in production code: no other file, script or Rust,
//! builds a hash tag or ends a name with a key's last word.

use std::collections::BTreeSet;

use crate::accept;
use crate::source;
use crate::tree::{self, File};

const KEYS: &str = "crates/gristmill-broker/src/keys.rs";

/// Crates that are not production code: they may look at a key to judge it.
const TOOLS: &[&str] = &["gristmill-testkit", "gristmill-demo", "gristmill-bench"];

/// Last words of keys; those found in `keys.rs` come on top.
const KNOWN_ENDINGS: &[&str] = &[
    ":stream", ":meta", ":lease", ":pulse", ":delayed", ":state", ":blocked", ":parked", ":dead", ":seen",
    ":entity", ":outbox",
];

/// A hash tag as a Rust format string spells it, and as Lua does.
const RUST_TAG: &str = "{{{";
const LUA_TAG: &str = "{";

/// How every key begins.
const PREFIX: &str = "gm:";

fn judge(files: &[File]) -> Vec<String> {
    let mut endings: BTreeSet<String> = KNOWN_ENDINGS.iter().map(|ending| (*ending).to_owned()).collect();
    if let Some(keys) = files.iter().find(|file| file.path == KEYS) {
        endings.extend(endings_in(&keys.text));
    }
    let production = files.iter().filter(|file| {
        file.path != KEYS && !file.is_test() && file.crate_name().is_some_and(|name| !TOOLS.contains(&name))
    });
    production.flat_map(|file| judge_one(file, &endings)).collect()
}

fn judge_one(file: &File, endings: &BTreeSet<String>) -> Vec<String> {
    let (comment, tag) = match (file.is("rs"), file.is("lua")) {
        (true, _) => ("//", RUST_TAG),
        (_, true) => ("--", LUA_TAG),
        _ => return Vec::new(),
    };
    let mut complaints = Vec::new();
    for line in source::production(&file.text) {
        for literal in source::strings(line.text, comment) {
            let spelled = endings.iter().find(|ending| spells(literal, ending));
            let tag = Some(tag).filter(|tag| literal.contains(tag));
            let prefix = Some(PREFIX).filter(|prefix| literal.starts_with(prefix));
            if let Some(what) = spelled.map(String::as_str).or(tag).or(prefix) {
                complaints.push(format!(
                    "{}:{}: spells a key (`{what}` in \"{literal}\"); keys are made in {KEYS} only",
                    file.path, line.number
                ));
            }
        }
    }
    complaints
}

/// Whether `literal` holds `ending` as the last word of a key or before a further part of it.
fn spells(literal: &str, ending: &str) -> bool {
    literal.match_indices(ending).any(|(at, _)| {
        let before = literal[..at].chars().next_back();
        let after = literal[at + ending.len()..].chars().next();
        before != Some(':') && after.is_none_or(|letter| letter == ':' || letter == '{')
    })
}

/// `:word` wherever it follows a placeholder or begins a literal.
fn endings_in(keys: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in source::production(keys) {
        for literal in source::strings(line.text, "//") {
            for (at, _) in literal.match_indices(':') {
                let word: String =
                    literal[at + 1..].chars().take_while(|letter| letter.is_ascii_lowercase()).collect();
                if (at == 0 || literal[..at].ends_with('}')) && word.len() > 2 {
                    found.insert(format!(":{word}"));
                }
            }
        }
    }
    found
}

#[test]
fn keys_are_spelled_in_one_file() {
    accept(&judge(&tree::files()));
}

#[cfg(test)]
fn planted(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

#[test]
fn a_key_spelled_elsewhere_is_refused() {
    let keys = planted(KEYS, "fn a(tag: &str) -> String {\n    format!(\"{tag}:fancy\")\n}\n");
    let refused = [
        planted("crates/gristmill-node/src/a.rs", "    let key = format!(\"{tag}:lease\");\n"),
        planted("crates/gristmill-node/src/b.rs", "    let key = format!(\"{tag}:fancy\");\n"),
        planted("crates/gristmill-broker/src/c.rs", "    let tag = format!(\"{{{queue}:{p}}}\");\n"),
        planted("crates/gristmill-broker/src/lua/d.lua", "local key = KEYS[1] .. ':seen:' .. id\n"),
        planted("crates/gristmill-broker/src/lua/e.lua", "local key = '{' .. queue\n"),
        planted("crates/gristmill-cli/src/f.rs", "    let all = \"gm:queues\";\n"),
    ];
    for file in refused {
        let path = file.path.clone();
        let complaints = judge(&[planted(&keys.path, &keys.text), file]);
        assert_eq!(complaints.len(), 1, "{path}: {complaints:?}");
    }
}

#[test]
fn what_only_looks_like_a_key_is_accepted() {
    let accepted = [
        planted("crates/gristmill-node/src/a.rs", "use crate::lease::seen; // \"{tag}:lease\"\n"),
        planted(
            "crates/gristmill-node/src/b.rs",
            "    format!(\"{node}#{epoch}: lease lost, crate::lease\")\n",
        ),
        planted("crates/gristmill-demo/src/c.rs", "    \"{q:0}:lease\"\n"),
        planted("crates/gristmill-broker/tests/d.rs", "    \"{q:0}:lease\"\n"),
        planted("crates/gristmill-broker/src/lua/e.lua", "local t = {} -- ':seen'\n"),
    ];
    assert_eq!(judge(&accepted), Vec::<String>::new());
}
