//! `docs/TELEMETRY.md` has a row for every event and every metric, and no others, each as the code has it.
//!
//! `GRISTMILL_WRITE_DOCS=1 cargo test -p gristmill-telemetry --test documented` writes the tables anew.

#![allow(clippy::unwrap_used, reason = "all of it is a test; clippy excuses test functions only")]

use gristmill_telemetry::events::{self, COUNTED};
use gristmill_telemetry::metrics::{self, Role, Sort};
use gristmill_telemetry::trace::words::ATTRIBUTES;
use std::fmt::Write;
use std::ops::Range;
use std::path::PathBuf;

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/TELEMETRY.md")
}

fn code(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

fn events_table() -> String {
    let mut table = "| event | level | words | fields | metrics |\n|---|---|---|---|---|\n".to_owned();
    for row in events::all() {
        let level = row.level.as_str().to_lowercase();
        let (fields, moves) = (code(row.fields), code(row.moves));
        writeln!(table, "| `{}` | {level} | {} | {fields} | {moves} |", row.name, row.words).unwrap();
    }
    table
}

fn metrics_table() -> String {
    let mut table =
        "| metric | sort | labels | from | what it tells | what moves it |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for about in metrics::ALL {
        let from: Vec<&str> = about.from.iter().map(|role| role.as_str()).collect();
        let from = if about.from.len() == Role::ALL.len() { "all".to_owned() } else { from.join(", ") };
        let rows = events::all();
        let by: Vec<&str> =
            rows.iter().filter(|row| row.moves.contains(&about.name)).map(|row| row.name).collect();
        let counted = COUNTED.iter().find(|(name, _)| *name == about.name).map(|(_, how)| *how);
        let moved = match (counted, by.is_empty()) {
            (Some(how), _) => how.to_owned(),
            (None, false) => code(&by),
            (None, true) => "a look".to_owned(),
        };
        let unit = if about.sort == Sort::Histogram { "histogram" } else { about.sort.as_str() };
        writeln!(
            table,
            "| `{}{}` | {unit} | {} | {from} | {} | {moved} |",
            metrics::PREFIX,
            about.name,
            code(about.labels),
            about.help
        )
        .unwrap();
    }
    table
}

fn attributes_table() -> String {
    let mut table = "| attribute | on | what it tells |\n|---|---|---|\n".to_owned();
    for (name, on, help) in ATTRIBUTES {
        writeln!(table, "| `{name}` | {on} | {help} |").unwrap();
    }
    table
}

/// The text between the marks of a table.
fn table(text: &str, name: &str) -> Range<usize> {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let from = text.find(&begin).unwrap_or_else(|| panic!("docs/TELEMETRY.md lacks {begin}")) + begin.len();
    from..from + text[from..].find(&end).unwrap()
}

#[test]
fn every_event_every_metric_and_every_attribute_has_its_row() {
    let mut text = std::fs::read_to_string(path()).unwrap();
    let tables =
        [("events", events_table()), ("metrics", metrics_table()), ("attributes", attributes_table())];
    if std::env::var_os("GRISTMILL_WRITE_DOCS").is_some() {
        for (name, written) in &tables {
            let at = table(&text, name);
            text.replace_range(at, written);
        }
        std::fs::write(path(), &text).unwrap();
    }
    for (name, written) in tables {
        let told: Vec<&str> = text[table(&text, name)].lines().collect();
        for (at, line) in written.lines().enumerate() {
            assert_eq!(told.get(at), Some(&line), "row {at} of {name}; see above how to write them anew");
        }
        assert_eq!(told.len(), written.lines().count(), "{name}");
    }
}

#[test]
fn buckets_are_as_the_page_says() {
    let text = std::fs::read_to_string(path()).unwrap();
    for bounds in [metrics::LONG_US, metrics::SHORT_US, metrics::LATE_US] {
        let shown: Vec<String> = bounds.iter().map(|us| (*us as f64 / 1e6).to_string()).collect();
        assert!(text.contains(&shown.join(", ")), "{}", shown.join(", "));
    }
}
