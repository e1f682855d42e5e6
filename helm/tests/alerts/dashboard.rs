//! The dashboard: what Grafana would stumble over without a word.

use crate::promtool::Promtool;
use gristmill_chart_tests::files;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A question of a panel or of a variable.
pub(crate) struct Query {
    /// Where it stands.
    pub(crate) place: String,
    pub(crate) expr: String,
}

pub(crate) struct Dashboard(Value);

impl Dashboard {
    pub(crate) fn read() -> Self {
        Self(serde_json::from_str(&files::read("files/dashboard.json")).unwrap())
    }

    fn panels(&self) -> &[Value] {
        self.0["panels"].as_array().unwrap()
    }

    fn variables(&self) -> &[Value] {
        self.0["templating"]["list"].as_array().unwrap()
    }

    /// Every question, with the intervals that Grafana puts in; `$namespace` and `$queue` stand inside of strings.
    pub(crate) fn queries(&self) -> Vec<Query> {
        let targets = self.panels().iter().flat_map(|panel| {
            let title = panel["title"].as_str().unwrap();
            let targets = panel["targets"].as_array().map_or(&[][..], Vec::as_slice);
            targets.iter().map(move |target| (title, target["expr"].as_str().unwrap().to_owned()))
        });
        let variables = self.variables().iter().filter_map(|variable| {
            let query = variable["query"]["query"].as_str()?;
            let (series, _label) =
                query.strip_prefix("label_values(")?.strip_suffix(')')?.rsplit_once(", ")?;
            Some((variable["name"].as_str()?, series.to_owned()))
        });
        let query = |(place, expr): (&str, String)| Query {
            place: format!("dashboard: {place}"),
            expr: expr.replace("$__rate_interval", "5m"),
        };
        let all: Vec<Query> = targets.chain(variables).map(query).collect();
        assert!(all.len() > 40, "only {} questions were found", all.len());
        all
    }
}

/// Two panels lie over each other.
fn overlap(a: &Value, b: &Value) -> bool {
    let edge = |it: &Value, at: &str| it["gridPos"][at].as_i64().unwrap();
    let apart = |from: &str, long: &str| {
        edge(a, from) + edge(a, long) <= edge(b, from) || edge(b, from) + edge(b, long) <= edge(a, from)
    };
    !apart("x", "w") && !apart("y", "h")
}

#[test]
fn prometheus_takes_every_question() {
    let Some(promtool) = Promtool::find("dashboard-questions") else { return };
    let queries = Dashboard::read().queries();
    let rule =
        |(at, query): (usize, &Query)| json!({ "record": format!("question_{at}"), "expr": query.expr });
    let rules: Vec<Value> = queries.iter().enumerate().map(rule).collect();
    let path = promtool.rules("all", &json!([{ "name": "dashboard", "rules": rules }]));
    promtool.judges("check", &[path]).unwrap();
}

#[test]
fn panels_have_ids_places_and_questions_of_their_own() {
    let dashboard = Dashboard::read();
    let panels = dashboard.panels();
    let ids: BTreeSet<i64> = panels.iter().map(|panel| panel["id"].as_i64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "two panels have one id");
    let mut titles = BTreeSet::new();
    for (at, panel) in panels.iter().enumerate() {
        let title = panel["title"].as_str().unwrap();
        assert!(titles.insert(title), "two panels are called {title}");
        let over = panels[..at].iter().find(|other| overlap(panel, other));
        assert!(over.is_none(), "{title} lies over {}", over.unwrap()["title"]);
        let (x, w) = (panel["gridPos"]["x"].as_i64().unwrap(), panel["gridPos"]["w"].as_i64().unwrap());
        assert!(x + w <= 24, "{title} is beyond the edge");
        if panel["type"] == "row" {
            continue;
        }
        let targets = panel["targets"].as_array().unwrap();
        let refs: BTreeSet<&str> = targets.iter().map(|target| target["refId"].as_str().unwrap()).collect();
        assert!(!targets.is_empty() && refs.len() == targets.len(), "{title}: {refs:?}");
        for place in targets.iter().chain([panel]) {
            assert_eq!(
                place["datasource"]["uid"], "${datasource}",
                "{title}: of a source that may not exist"
            );
        }
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title}: has no unit");
    }
}

#[test]
fn every_question_keeps_to_the_namespace_and_every_queue_to_the_choice() {
    for Query { place, expr } in Dashboard::read().queries().iter().filter(|query| query.expr.contains('{')) {
        let selectors = expr.matches('{').count();
        assert_eq!(expr.matches(r#"namespace="$namespace""#).count(), selectors, "{place}: {expr}");
        let chosen = expr.matches(r#"queue=~"$queue""#).count();
        assert!(chosen == 0 || chosen == selectors, "{place}: {expr}");
        if expr.contains("gristmill_queue_") && !place.ends_with(": queue") {
            assert_eq!(chosen, selectors, "{place}: {expr}");
        }
    }
}

#[test]
fn the_variables_are_source_namespace_and_queue_and_no_other_is_used() {
    let dashboard = Dashboard::read();
    let names: Vec<&str> =
        dashboard.variables().iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["datasource", "namespace", "queue"]);
    let text = dashboard.0.to_string();
    for (at, _) in text.match_indices('$') {
        let rest = text[at + 1..].trim_start_matches('{');
        let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let known = names.contains(&name.as_str()) || ["__rate_interval", "__all"].contains(&name.as_str());
        assert!(known, "${name} is no variable");
    }
}

/// Alerts link to it by this name.
#[test]
fn its_uid_is_the_one_that_alerts_link_to() {
    let alerts = files::read("files/alerts.yaml");
    let uid = Dashboard::read().0["uid"].as_str().unwrap().to_owned();
    assert!(alerts.contains(&format!("/d/{uid}?")));
}
