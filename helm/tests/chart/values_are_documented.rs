//! The tables of the chart's README name every value of values.yaml with its default, and no other; every value is read by
//! some template.

use gristmill_chart_tests::files;
use serde_json::Value;
use std::collections::BTreeMap;

/// Pods of roles say no more than what is theirs: `pod` is documented once. So are pools, by `worker`.
const SAID_ONCE: &[&str] = &["workers"];

/// Every leaf of the values by its path.
fn leaves() -> BTreeMap<String, Value> {
    let values: Value = serde_saphyr::from_str(&files::read("values.yaml")).unwrap();
    let mut found = BTreeMap::new();
    collect("", &values, &mut found);
    found
}

fn collect(path: &str, value: &Value, found: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(map) if !map.is_empty() && !is_a_whole(path) => {
            for (name, value) in map {
                collect(&format!("{path}.{name}"), value, found);
            }
        }
        value => {
            found.insert(path.trim_start_matches('.').to_owned(), value.clone());
        }
    }
}

/// Parts of Kubernetes' objects, and maps of names that are the user's.
fn is_a_whole(path: &str) -> bool {
    SAID_ONCE.iter().any(|name| path == format!(".{name}"))
        || ["resources", "securityContext", "containerSecurityContext", "labels"]
            .iter()
            .any(|end| path.ends_with(&format!(".{end}")))
}

/// Rows of tables: `| `path` | `default` | what |`.
fn rows() -> BTreeMap<String, (String, String)> {
    let readme = files::read("README.md");
    let mut found = BTreeMap::new();
    let values = readme.split("## Values").nth(1).unwrap();
    for line in values.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [path, default, what] = cells[..] else { panic!("three cells: {line}") };
        let plain = |cell: &str| cell.trim_matches('`').to_owned();
        let before =
            found.insert(plain(path), (plain(default), what.trim_end_matches('|').trim().to_owned()));
        assert!(before.is_none(), "{path} stands twice");
    }
    found
}

#[test]
fn every_value_with_its_default() {
    let (leaves, rows) = (leaves(), rows());
    assert!(leaves.len() > 150, "{}", leaves.len());
    let mut complaints = Vec::new();
    for (path, value) in &leaves {
        match rows.get(path) {
            None => complaints.push(format!("README.md has no row for {path} ({value})")),
            Some((default, _)) => {
                let said: Value = serde_saphyr::from_str(default).unwrap_or(Value::Null);
                if said != *value {
                    complaints.push(format!("README.md says {path} is {default}; it is {value}"));
                }
            }
        }
    }
    for path in rows.keys().filter(|path| !leaves.contains_key(*path)) {
        complaints.push(format!("README.md has a row for {path}, which is no value"));
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn and_says_what_it_is() {
    for (path, (_, what)) in rows() {
        assert!(what.split_whitespace().count() >= 2, "{path}: {what}");
    }
}

/// A value that nothing reads is a promise that is not kept.
#[test]
fn every_value_is_read() {
    let mut templates = files::read("files/alerts.yaml");
    let folder = files::chart().join("templates");
    for entry in std::fs::read_dir(folder).unwrap().flatten().filter(|entry| entry.path().is_file()) {
        templates += &files::text(&entry.path());
    }
    for path in leaves().keys() {
        let name = path.rsplit('.').next().unwrap();
        assert!(
            templates.contains(&format!(".{name}")) || templates.contains(&format!("\"{name}\"")),
            "{path} is read nowhere"
        );
    }
}
