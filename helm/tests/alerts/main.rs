//! The alerts, the dashboard and the runbook: rendered by real Helm, judged by real promtool, and held against each other.
//!
//! * `rules`: promtool takes the rules, and each alert fires, is silent and bears that its series are missing
//!   (`cases/ALERT.yaml`; `own/` has the values that somebody may change);
//! * `values`: every threshold of the chart matters, and nonsense is refused;
//! * `names`: metrics and labels that rules and dashboard ask for are those of `helm/tests/metrics.txt`;
//! * `dashboard`: what Grafana would stumble over;
//! * `runbook`: a section for each alert and no other;
//! * [`render`], [`promql`], [`promtool`]: how.

#![allow(clippy::unwrap_used, reason = "all of it is a test; clippy excuses test functions only")]

mod dashboard;
mod names;
mod promql;
mod promtool;
mod render;
mod rules;
mod runbook;
mod values;
