//! The tables of the documentation are those of the code.

use gristmill_remote::Outcome;
use gristmill_remote::exec::exit;
use gristmill_remote::http::status::{self, StatusTable};
use std::path::Path;

fn document() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/HANDLERS.md")).unwrap()
}

/// The cells of each row of the section's first table.
fn rows(document: &str, section: &str) -> Vec<Vec<String>> {
    let from = document.split(&format!("\n## {section}\n")).nth(1).unwrap();
    let table = from.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    table.take_while(|line| line.starts_with('|')).map(cells).collect()
}

fn word(outcome: Outcome) -> String {
    format!("`{}`", outcome.as_str())
}

#[test]
fn exit_codes() {
    let document = document();
    let rows = rows(&document, "Commands");
    let coded: Vec<_> = rows.iter().filter(|row| row[0].parse::<u8>().is_ok()).collect();
    assert_eq!(coded.len(), exit::TABLE.len());
    for ((code, name, outcome), row) in exit::TABLE.iter().zip(coded) {
        assert_eq!((&row[0], &row[1]), (&code.to_string(), &format!("`{name}`")));
        assert!(row[2].starts_with(&word(*outcome)), "{row:?}");
    }
    assert!(rows.iter().any(|row| row[0].starts_with("every other") && row[2] == "`unknown`"));
}

#[test]
fn statuses() {
    let document = document();
    let rows = rows(&document, "HTTP");
    for (status, outcome) in status::TABLE {
        let said = rows.iter().find(|row| row[0].split(['(', ',', ' ']).any(|part| part.trim() == *status));
        let said = said.unwrap_or_else(|| panic!("{status} is in no row"));
        assert_eq!(said[1], word(*outcome), "{status}: {said:?}");
    }
    // And nothing is said that does not hold.
    for row in rows.iter().filter(|row| Outcome::ALL.iter().any(|outcome| word(*outcome) == row[1])) {
        for status in row[0].split(['(', ',', ' ', ')']).filter_map(|part| part.parse::<u16>().ok()) {
            assert_eq!(word(StatusTable::default().outcome(status)), row[1], "{status}");
        }
    }
    for outcome in Outcome::ALL {
        assert!(document.contains(&format!("| {} |", word(outcome))), "{outcome:?} is explained");
    }
}
