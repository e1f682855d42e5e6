//! The values of the chart that the rules read.

use crate::names::wait_buckets;
use crate::render::{groups, least, values};
use gristmill_chart_tests::{files, helm};
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
    let all: Value = serde_saphyr::from_str(&files::read("values.yaml")).unwrap();
    let mut thresholds = Vec::new();
    leaves("prometheusRule.thresholds", &all["prometheusRule"]["thresholds"], &mut thresholds);
    assert!(thresholds.len() >= 14, "{thresholds:?}");
    helm::with_one(|helm| {
        let default = groups(helm, &[], &least());
        for (path, value) in &thresholds {
            let other = match (value, path.ends_with("objective"), path.contains("targetSeconds")) {
                (_, true, _) => "0.95".to_owned(),
                (_, _, true) => "300".to_owned(),
                (Value::String(_), ..) => "\"17m\"".to_owned(),
                (number, ..) => format!("{}", number.as_u64().unwrap() + 1),
            };
            let changed = groups(helm, &["--set-json", &format!("{path}={other}")], &least());
            assert_ne!(changed, default, "{path} changes nothing");
        }
    });
}

#[test]
fn what_could_never_fire_is_refused_by_name() {
    for helm in helm::all() {
        for (thresholds, name) in [
            ("wait: {targetSeconds: {default: 61}}", "wait.targetSeconds: 61 is no bucket"),
            ("wait: {targetSeconds: {queues: {mail: 7}}}", "wait.targetSeconds: 7 is no bucket"),
            ("wait: {objective: 0.9}", "objective"),
            ("failure: {objective: 1}", "objective"),
        ] {
            let text = format!("prometheusRule: {{enabled: true, thresholds: {{{thresholds}}}}}");
            let refused = helm.refusal(&values(&text));
            assert!(refused.contains(name), "{helm}: {text}: {refused}");
        }
    }
}

#[test]
fn a_target_may_be_any_bucket() {
    helm::with_one(|helm| {
        for target in wait_buckets() {
            let set = format!("prometheusRule.thresholds.wait.targetSeconds.default={target}");
            let rendered = groups(helm, &["--set-json", &set], &least()).to_string();
            assert!(rendered.contains(&format!(r#"le=~\"{target}(\\\\.0)?\""#)), "{set}: {rendered}");
        }
    });
    let comment = format!("# {}\n", wait_buckets().join(" "));
    assert!(files::read("values.yaml").contains(&comment), "the values say otherwise than {comment}");
}
