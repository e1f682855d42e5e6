//! The values of the chart that the rules read.

use crate::names::wait_buckets;
use crate::render::{Chart, values};
use crate::tools::read;
use serde_json::Value;

/// Every leaf below a value, as `--set` names it.
fn leaves(at: &str, value: &Value, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                leaves(&format!("{at}.{name}"), field, found);
            }
        }
        leaf => found.push((at.to_owned(), leaf.clone())),
    }
}

#[test]
fn every_threshold_changes_the_rules() {
    let Some(chart) = Chart::new("every-threshold") else { return };
    let values: Value = serde_saphyr::from_str(&read(&values())).unwrap();
    let mut thresholds = Vec::new();
    leaves("prometheusRule.thresholds", &values["prometheusRule"]["thresholds"], &mut thresholds);
    assert!(thresholds.len() >= 14, "{thresholds:?}");
    let default = chart.render(&[]).unwrap();
    for (path, value) in thresholds {
        let other = match (&value, path.ends_with("objective"), path.contains("targetSeconds")) {
            (_, true, _) => "0.95".to_owned(),
            (_, _, true) => "300".to_owned(),
            (Value::String(_), ..) => "17m".to_owned(),
            (number, ..) => format!("{}", number.as_u64().unwrap() + 1),
        };
        let changed = chart.render(&["--set", &format!("{path}={other}")]).unwrap();
        assert_ne!(changed, default, "{path} changes nothing");
    }
}

#[test]
fn what_could_never_fire_is_refused_by_name() {
    let Some(chart) = Chart::new("what-could-never-fire") else { return };
    for (set, name) in [
        ("wait.targetSeconds.default=61", "wait.targetSeconds: 61 is no bucket"),
        ("wait.targetSeconds.queues.mail=7", "wait.targetSeconds: 7 is no bucket"),
        ("wait.objective=0.9", "wait.objective: 0.9 is not between"),
        ("failure.objective=1", "failure.objective: 1 is not between"),
    ] {
        let refused = chart.render(&["--set", &format!("prometheusRule.thresholds.{set}")]).unwrap_err();
        assert!(refused.contains(&format!("prometheusRule.thresholds.{name}")), "{set}: {refused}");
    }
}

#[test]
fn a_target_may_be_any_bucket_however_it_is_written() {
    let Some(chart) = Chart::new("a-target-may-be") else { return };
    for target in wait_buckets() {
        for how in ["--set", "--set-string"] {
            let set = format!("prometheusRule.thresholds.wait.targetSeconds.default={target}");
            let rendered = chart.render(&[how, &set]).unwrap().to_string();
            assert!(rendered.contains(&format!(r#"le=~\"{target}(\\\\.0)?\""#)), "{how} {set}: {rendered}");
        }
    }
    let comment = format!("# {}\n", wait_buckets().join(" "));
    assert!(read(&values()).contains(&comment), "the values say otherwise than {comment}");
}
