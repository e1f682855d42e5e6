//! The alerts as Helm renders them: release `r` in namespace `jobs`.

use gristmill_chart_tests::files;
use gristmill_chart_tests::helm::Helm;
use gristmill_chart_tests::objects::Release;
use serde_json::Value;

/// An alert as Prometheus will have it.
#[derive(Debug)]
pub(crate) struct Alert {
    pub(crate) name: String,
    pub(crate) expr: String,
    pub(crate) severity: String,
    pub(crate) annotations: Value,
}

/// The least of values, and the alerts.
pub(crate) fn least() -> String {
    values("prometheusRule: {enabled: true}")
}

/// The least of values, and some more.
pub(crate) fn values(more: &str) -> String {
    files::read("ci/minimal.yaml") + more + "\n"
}

/// The groups of rules.
pub(crate) fn groups(helm: &Helm, options: &[&str], values: &str) -> Value {
    let release = Release::parse(&helm.text(options, values));
    release.get("PrometheusRule", "r-gristmill")["spec"]["groups"].clone()
}

pub(crate) fn alerts(helm: &Helm) -> Vec<Alert> {
    let groups = groups(helm, &[], &least());
    let rules = groups.as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    let alerts: Vec<Alert> = rules.map(alert).collect();
    assert!(alerts.len() >= 12, "too few: {alerts:?}");
    alerts
}

fn alert(rule: &Value) -> Alert {
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("no text in {rule}")).to_owned();
    Alert {
        name: text(&rule["alert"]),
        expr: text(&rule["expr"]),
        severity: text(&rule["labels"]["severity"]),
        annotations: rule["annotations"].clone(),
    }
}
