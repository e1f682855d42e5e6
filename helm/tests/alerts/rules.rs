//! What promtool says of the rules, and whether its tests could say otherwise.

use crate::promtool::Promtool;
use crate::render::{alerts, groups, least, values};
use gristmill_chart_tests::files;
use gristmill_chart_tests::helm;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    files::helm().join("tests/alerts")
}

/// The tests of promtool by alert.
fn cases() -> Vec<(String, PathBuf)> {
    let paths = fs::read_dir(folder().join("cases")).unwrap().map(|entry| entry.unwrap().path());
    let mut cases: Vec<_> =
        paths.map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), path)).collect();
    cases.sort();
    assert!(cases.len() >= 12, "{cases:?}");
    cases
}

/// Copies tests beside the rules that they name.
fn beside(rules: &Path, tests: &[PathBuf]) -> Vec<PathBuf> {
    let copy = |from: &PathBuf| {
        let to = rules.with_file_name(from.file_name().unwrap());
        fs::copy(from, &to).unwrap();
        to
    };
    tests.iter().map(copy).collect()
}

#[test]
fn promtool_takes_the_rules_and_each_alert_fires_is_silent_and_bears_missing_series() {
    let Some(promtool) = Promtool::find("alerts-cases") else { return };
    let paths = cases().into_iter().map(|(_, path)| path).collect();
    let own = folder().join("own");
    let of_own = values(&files::text(&own.join("values.yaml")));
    for (name, values, tests) in
        [("default", &least(), &paths), ("own", &of_own, &vec![own.join("own.yaml")])]
    {
        let mut rendered: Vec<Value> = helm::all().iter().map(|helm| groups(helm, &[], values)).collect();
        rendered.dedup();
        assert!(rendered.len() < 2, "two releases of Helm, two sets of rules: {name}");
        let Some(groups) = rendered.pop() else { return };
        let rules = promtool.rules(name, &groups);
        let said = promtool.judges("check", std::slice::from_ref(&rules)).unwrap();
        assert!(said.contains("SUCCESS") && !said.contains("duplicate"), "{said}");
        promtool.judges("test", &beside(&rules, tests)).unwrap();
    }
}

#[test]
fn the_tests_fail_where_an_alert_never_fires_and_where_it_always_does() {
    let Some(promtool) = Promtool::find("alerts-planted") else { return };
    for (name, expr) in [("never", "vector(1) > 1"), ("always", "vector(1)")] {
        let rule = |(alert, _): &(String, PathBuf)| json!({ "alert": alert, "expr": expr });
        let planted: Vec<Value> = cases().iter().map(rule).collect();
        let rules = promtool.rules(name, &json!([{ "name": "planted", "rules": planted }]));
        for (alert, path) in cases() {
            let said = promtool.judges("test", &beside(&rules, &[path]));
            let said = said.expect_err(&format!("{alert}: its tests pass where it {name} fires"));
            assert!(said.contains("FAILED") && said.contains("exp:"), "{said}");
        }
    }
}

#[test]
fn every_alert_has_cases_where_it_fires_is_silent_and_has_no_series() {
    helm::with_one(|helm| {
        let alerts: BTreeSet<String> = alerts(helm).into_iter().map(|alert| alert.name).collect();
        let tested: BTreeSet<String> = cases().into_iter().map(|(alert, _)| alert).collect();
        assert_eq!(alerts, tested, "an alert without a file of cases, or a file without an alert");
    });
    for (alert, path) in cases() {
        let file: Value = serde_saphyr::from_str(&files::text(&path)).unwrap();
        let words: BTreeSet<&str> =
            file["tests"].as_array().unwrap().iter().map(|test| word(&alert, test)).collect();
        assert_eq!(words.len(), 3, "{alert}: there is {words:?} alone");
    }
}

/// What a case shows, by the first word of its name; it must be so.
fn word<'a>(alert: &str, test: &'a Value) -> &'a str {
    let name = test["name"].as_str().unwrap();
    let checks = test["alert_rule_test"].as_array().unwrap();
    assert!(checks.iter().all(|check| check["alertname"] == alert), "{alert}: {name}: of another alert");
    let fires = checks.iter().any(|check| check["exp_alerts"].as_array().is_some_and(|all| !all.is_empty()));
    let word = name.split(':').next().unwrap();
    match word {
        "fires" => assert!(fires, "{alert}: {name}: it does not"),
        "silent" => assert!(!fires, "{alert}: {name}: it is not"),
        "missing" => {}
        _ => panic!("{alert}: {name}: begins with none of fires, silent, missing"),
    }
    word
}

#[test]
fn every_alert_says_how_bad_it_is_what_it_is_and_where_to_read() {
    helm::with_one(|helm| {
        for alert in alerts(helm) {
            let name = &alert.name;
            assert!(name.starts_with("Gristmill"), "{name}: names of alerts are shared with everybody's");
            let known = ["page", "ticket", "info"].contains(&alert.severity.as_str());
            assert!(known, "{name}: {}", alert.severity);
            let said = |what: &str| alert.annotations[what].as_str().unwrap_or_default().to_owned();
            assert!(!said("summary").is_empty() && !said("description").is_empty(), "{name}: says nothing");
            assert_eq!(said("runbook_url"), format!("docs/RUNBOOK.md#{}", name.to_lowercase()));
        }
    });
}
