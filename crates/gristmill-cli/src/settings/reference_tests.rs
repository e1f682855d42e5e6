//! `docs/CONFIGURATION.md` against the code: every setting with its default, every bound tried from both sides.

use super::tests::load;
use std::collections::BTreeMap;
use std::path::Path;

struct Row {
    default: String,
    bounds: String,
}

fn rows() -> BTreeMap<String, Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/CONFIGURATION.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        assert!(cells.len() >= 6, "a row of setting, default, bounds, text: {line}");
        let key = cells[1].trim_matches('`').to_owned();
        let row = Row { default: cells[2].trim_matches('`').to_owned(), bounds: cells[3].to_owned() };
        assert!(rows.insert(key, row).is_none(), "twice: {line}");
    }
    rows
}

/// What else must be said so that only the bound itself is tried.
fn beside(key: &str, value: u64) -> Vec<(&'static str, String)> {
    match key {
        "lease.ttl_ms" if value < 3000 => {
            vec![("lease.renewal_ms", "100".into()), ("lease.margin_ms", "150".into())]
        }
        "job.max_bytes" if value > 1 << 28 => vec![("window.bytes", (1_u64 << 40).to_string())],
        _ => Vec::new(),
    }
}

/// Whether the settings with this value are accepted by whatever reads them.
fn accepted(key: &str, value: &str) -> Result<(), String> {
    let more = value.parse().map_or_else(|_| Vec::new(), |number| beside(key, number));
    // One of each way, so that what is said for all kinds is read.
    let mut set = vec![("queues", "q"), ("kinds.a.http", "http://127.0.0.1:1/"), ("kinds.b.exec", "true")];
    set.extend(more.iter().map(|(key, value)| (*key, value.as_str())));
    set.push((key, value));
    load(None, &[], &set)?.check().map_err(|error| error.to_string())
}

fn is_in(key: &str, value: impl ToString) {
    let value = value.to_string();
    if let Err(error) = accepted(key, &value) {
        panic!("{key} = {value} is within its bounds, and is refused: {error}");
    }
}

fn is_out(key: &str, value: impl ToString) {
    let value = value.to_string();
    match accepted(key, &value) {
        Ok(()) => panic!("{key} = {value} is out of its bounds, and is accepted"),
        Err(error) => assert!(error.starts_with(key), "{key} = {value} is refused by another name: {error}"),
    }
}

#[test]
fn every_setting_is_in_the_reference_with_its_default() {
    let rows = rows();
    let known: BTreeMap<String, String> = load(None, &[], &[])
        .unwrap()
        .entries()
        .into_iter()
        .map(|entry| (entry.key, entry.value.to_string()))
        .collect();
    for (key, default) in &known {
        let row = rows.get(key).unwrap_or_else(|| panic!("docs/CONFIGURATION.md lacks {key}"));
        assert_eq!(&row.default, default, "the default of {key}");
    }
    for key in rows.keys() {
        assert!(known.contains_key(key), "docs/CONFIGURATION.md has {key}, and nothing reads it");
    }
}

#[test]
fn every_bound_in_the_reference_holds_from_both_sides() {
    let mut tried = 0;
    for (key, row) in rows() {
        let numbers: Vec<Option<u64>> =
            row.bounds.split(' ').map(|word| word.trim_end_matches(',').parse().ok()).collect();
        let words: Vec<&str> = row.bounds.split(' ').collect();
        match (words.as_slice(), numbers.as_slice()) {
            ([_, "to", _], &[Some(low), _, Some(high)]) => {
                is_in(&key, low);
                is_in(&key, high);
                is_out(&key, high + 1);
                low.checked_sub(1).inspect(|below| is_out(&key, below));
            }
            ([_, "or", "more"], &[Some(low), ..]) => {
                is_in(&key, low);
                is_in(&key, low + 100_000);
                low.checked_sub(1).inspect(|below| is_out(&key, below));
            }
            (["0,", "or", _, "or", "more"], &[_, _, Some(low), ..]) => {
                is_in(&key, 0);
                is_in(&key, low);
                is_out(&key, low - 1);
            }
            _ if row.default.starts_with('"') && row.bounds.contains(", ") && !row.bounds.contains('`') => {
                for word in row.bounds.split(", ") {
                    is_in(&key, word);
                }
                is_out(&key, "another");
            }
            (["true,", "false"], _) => {
                is_in(&key, "false");
                is_out(&key, "another");
            }
            _ => continue,
        }
        tried += 1;
    }
    assert!(tried > 30, "{tried} rows have bounds that can be tried");
}
