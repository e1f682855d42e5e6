//! The alerts, the dashboard and the runbook: rendered by the real helm, judged by the real promtool, and held against
//! each other.
//!
//! * `rules`: promtool takes the rules, and each alert fires, is silent and bears that its series are missing
//!   (`helm/tests/alerts/ALERT.yaml`; `own/` has the values that somebody may change);
//! * `values`: every threshold of the chart matters, and nonsense is refused;
//! * `names`: metrics and labels that rules and dashboard ask for are those of `helm/tests/metrics.txt`;
//! * `dashboard`: what Grafana would stumble over;
//! * `runbook`: a section for each alert and no other;
//! * [`render`], [`promql`], [`tools`]: how.
//!
//! `cargo xtask test` fetches helm and promtool and names them in `GRISTMILL_HELM_4` and `GRISTMILL_PROMTOOL`.

#![allow(clippy::unwrap_used, reason = "all of it is a test; clippy excuses test functions only")]

mod dashboard;
mod names;
mod promql;
mod render;
mod rules;
mod runbook;
mod tools;
mod values;
