//! What promtool says of the rules, and whether its tests could say otherwise.

use crate::render::Chart;
use crate::tools::{self, helm_folder, read, run};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tests of promtool in a folder, by name of the alert.
fn files(folder: &Path) -> Vec<(String, PathBuf)> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let tests = paths.filter(|path| path.is_file() && path.file_name().unwrap() != "values.yaml");
    let mut tests: Vec<_> =
        tests.map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), path)).collect();
    tests.sort();
    assert!(!tests.is_empty(), "no tests in {}", folder.display());
    tests
}

fn tests_folder() -> PathBuf {
    helm_folder().join("tests/alerts")
}

/// Copies tests beside the rules that they name.
fn beside(rules: &Path, tests: &[(String, PathBuf)]) -> Vec<PathBuf> {
    let folder = rules.parent().unwrap();
    let copy = |(_, from): &(String, PathBuf)| {
        let to = folder.join(from.file_name().unwrap());
        fs::copy(from, &to).unwrap();
        to
    };
    tests.iter().map(copy).collect()
}

#[test]
fn promtool_takes_the_rules_and_each_alert_fires_is_silent_and_bears_missing_series() {
    let test = "promtool-takes-the-rules";
    let (Some(promtool), Some(chart)) = (tools::promtool(test), Chart::new(test)) else { return };
    let own = tests_folder().join("own");
    let of_own = ["--values".to_owned(), own.join("values.yaml").display().to_string()];
    let of_own: Vec<&str> = of_own.iter().map(String::as_str).collect();
    for (name, tests, values) in [("default", tests_folder(), [].as_slice()), ("own", own, &of_own)] {
        let rules = chart.rules_for_promtool(&chart.folder.join(name), values);
        let said = run(Command::new(&promtool).args(["check", "rules"]).arg(&rules)).unwrap();
        assert!(said.contains("SUCCESS") && !said.contains("duplicate"), "{said}");
        let tests = beside(&rules, &files(&tests));
        run(Command::new(&promtool).args(["test", "rules"]).args(tests)).unwrap();
    }
}

#[test]
fn the_tests_fail_where_an_alert_never_fires_and_where_it_always_does() {
    let test = "the-tests-fail";
    let (Some(promtool), Some(chart)) = (tools::promtool(test), Chart::new(test)) else { return };
    let names: BTreeSet<String> = chart.alerts().into_iter().map(|alert| alert.name).collect();
    for (name, expr) in [("never", "vector(1) > 1"), ("always", "vector(1)")] {
        let rules: Vec<Value> = names.iter().map(|alert| json!({ "alert": alert, "expr": expr })).collect();
        let path = chart.folder.join(format!("{name}/rules.yaml"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, json!({ "groups": [{ "name": "planted", "rules": rules }] }).to_string()).unwrap();
        for test in beside(&path, &files(&tests_folder())) {
            let said = run(Command::new(&promtool).args(["test", "rules"]).arg(&test));
            let said = said.expect_err(&format!("{} passes where its alert {name} fires", test.display()));
            assert!(said.contains("FAILED") && said.contains("exp:"), "{said}");
        }
    }
}

#[test]
fn every_alert_has_tests_that_it_fires_that_it_is_silent_and_that_series_may_be_missing() {
    let Some(chart) = Chart::new("every-alert-has-tests") else { return };
    let alerts: BTreeSet<String> = chart.alerts().into_iter().map(|alert| alert.name).collect();
    let files = files(&tests_folder());
    let tested: BTreeSet<String> = files.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(alerts, tested, "an alert without a file of tests, or a file without an alert");
    for (alert, path) in files {
        let file: Value = serde_saphyr::from_str(&read(&path)).unwrap();
        let mut words = BTreeSet::new();
        for test in file["tests"].as_array().unwrap() {
            let name = test["name"].as_str().unwrap();
            let word = name.split(':').next().unwrap();
            let checks = test["alert_rule_test"].as_array().unwrap();
            assert!(
                checks.iter().all(|check| check["alertname"] == *alert),
                "{alert}: {name}: another alert"
            );
            let fires =
                checks.iter().any(|check| check["exp_alerts"].as_array().is_some_and(|all| !all.is_empty()));
            match word {
                "fires" => assert!(fires, "{alert}: {name}: it does not"),
                "silent" => assert!(!fires, "{alert}: {name}: it is not"),
                "missing" => {}
                _ => panic!("{alert}: {name}: begins with none of fires, silent, missing"),
            }
            words.insert(word.to_owned());
        }
        assert_eq!(words.len(), 3, "{alert}: there is {words:?} alone");
    }
}

#[test]
fn every_alert_says_how_bad_it_is_what_it_is_and_where_to_read() {
    let Some(chart) = Chart::new("every-alert-says") else { return };
    for alert in chart.alerts() {
        let name = &alert.name;
        assert!(name.starts_with("Gristmill"), "{name}: names of alerts are shared with everybody's");
        assert!(["page", "ticket", "info"].contains(&alert.severity.as_str()), "{name}: {}", alert.severity);
        let said = |what: &str| alert.annotations[what].as_str().unwrap_or_default().to_owned();
        assert!(!said("summary").is_empty() && !said("description").is_empty(), "{name}: says nothing");
        assert_eq!(said("runbook_url"), format!("docs/RUNBOOK.md#{}", name.to_lowercase()));
    }
}
