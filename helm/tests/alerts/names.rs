//! Metrics and labels: what rules and dashboard ask for, against one list. Prometheus answers a question about a name that
//! does not exist with silence, and so would an alert.

use crate::dashboard::Dashboard;
use crate::promql::Question;
use crate::render::alerts;
use gristmill_chart_tests::{files, helm};
use std::collections::{BTreeMap, BTreeSet};

/// Labels that a scrape, a histogram or Prometheus itself gives.
const GIVEN: &[&str] = &["namespace", "pod", "job", "instance", "container", "le"];

/// A series of Prometheus' own.
const ALERTS: &str = "ALERTS";

#[derive(Debug, PartialEq, Eq)]
enum Type {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug)]
struct Metric {
    kind: Type,
    /// Labels, and their words where these are known.
    labels: BTreeMap<String, Vec<String>>,
}

type List = BTreeMap<String, Metric>;

fn list(text: &str) -> List {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut list = List::new();
    for line in lines {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap();
        let kind = match words.next() {
            Some("counter") => Type::Counter,
            Some("gauge") => Type::Gauge,
            Some("histogram") => Type::Histogram,
            other => panic!("{line}: {other:?} is no type"),
        };
        let label = |word: &str| match word.split_once('=') {
            Some((label, words)) => (label.to_owned(), words.split('|').map(str::to_owned).collect()),
            None => (word.to_owned(), Vec::new()),
        };
        let metric = Metric { kind, labels: words.map(label).collect() };
        assert!(list.insert(name.to_owned(), metric).is_none(), "{name} is listed twice");
    }
    list
}

/// The metric that a series belongs to.
fn metric<'a>(series: &str, list: &'a List) -> Option<(String, &'a Metric)> {
    if let Some(metric) = list.get(series) {
        return (metric.kind != Type::Histogram).then(|| (series.to_owned(), metric));
    }
    let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| series.strip_suffix(end))?;
    let metric = list.get(base).filter(|metric| metric.kind == Type::Histogram)?;
    Some((base.to_owned(), metric))
}

/// What is wrong with a question, and which metrics it asks for.
fn judge(place: &str, expr: &str, list: &List, asked: &mut BTreeSet<String>) -> Vec<String> {
    let question = match Question::of(expr) {
        Ok(question) => question,
        Err(error) => return vec![format!("{place}: {error}")],
    };
    let mut complaints = Vec::new();
    let mut labels: BTreeSet<&str> = GIVEN.iter().copied().collect();
    for selector in question.selectors.iter().filter(|selector| selector.name != ALERTS) {
        let Some((name, metric)) = metric(&selector.name, list) else {
            complaints.push(format!("{place}: {} is not in the list", selector.name));
            continue;
        };
        asked.insert(name);
        labels.extend(metric.labels.keys().map(String::as_str));
        for matcher in selector.matchers.iter().filter(|matcher| !GIVEN.contains(&matcher.label.as_str())) {
            let Some(known) = metric.labels.get(&matcher.label) else {
                complaints.push(format!("{place}: {} has no label {}", selector.name, matcher.label));
                continue;
            };
            let strange = matcher.words.iter().filter(|word| !known.is_empty() && !known.contains(word));
            complaints.extend(
                strange.map(|word| format!("{place}: {} is never {}={word}", selector.name, matcher.label)),
            );
        }
    }
    let strange = question.grouping.iter().filter(|label| !labels.contains(label.as_str()));
    complaints.extend(strange.map(|label| format!("{place}: nothing there has a label {label}: {expr}")));
    complaints
}

/// The bounds of the histogram of waits.
pub(crate) fn wait_buckets() -> Vec<String> {
    metrics()["gristmill_job_wait_seconds"].labels["le"].clone()
}

fn metrics() -> List {
    list(&files::text(&files::helm().join("tests/metrics.txt")))
}

#[test]
fn rules_and_dashboard_ask_for_the_metrics_of_the_list_and_for_all_of_them() {
    let list = metrics();
    let (mut asked, mut complaints) = (BTreeSet::new(), Vec::new());
    for query in Dashboard::read().queries() {
        complaints.extend(judge(&query.place, &query.expr, &list, &mut asked));
    }
    if let Some(helm) = helm::all().last() {
        for alert in alerts(helm) {
            complaints.extend(judge(&alert.name, &alert.expr, &list, &mut asked));
        }
        let idle = list.keys().filter(|name| !asked.contains(*name));
        complaints.extend(idle.map(|name| format!("{name} is in the list, and nobody asks for it")));
    }
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// The table of metrics in docs/TELEMETRY.md, which its own tests compare with what a run tells.
fn told(page: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let rows = page.lines().filter(|line| line.starts_with("| `gristmill_"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let labels = cells[3].split(", ").map(|label| label.trim_matches('`').to_owned());
        let labels = labels.filter(|label| !label.is_empty()).collect();
        (cells[1].trim_matches('`').to_owned(), (cells[2].to_owned(), labels))
    };
    rows.map(row).collect()
}

#[test]
fn the_list_says_of_every_metric_what_the_page_about_telemetry_says() {
    let page = files::text(&files::helm().join("../docs/TELEMETRY.md"));
    let told = told(&page);
    for (name, metric) in metrics() {
        let sort = format!("{:?}", metric.kind).to_lowercase();
        let labels = metric.labels.into_keys().filter(|label| label != "le").collect();
        assert_eq!(
            told.get(&name),
            Some(&(sort, labels)),
            "{name}: as the page has it, and as the list has it"
        );
    }
    let buckets = wait_buckets().join(", ");
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(&format!("waits and hand-overs: {buckets};")), "other buckets than {buckets}");
}

#[test]
fn names_say_what_they_count_in() {
    for (name, metric) in metrics() {
        assert!(name.starts_with("gristmill_"), "{name}");
        assert_eq!(name.ends_with("_total"), metric.kind == Type::Counter, "{name}: counters end so");
        assert!(
            metric.kind != Type::Histogram || name.ends_with("_seconds"),
            "{name}: histograms are of seconds"
        );
        let given = metric.labels.keys().find(|label| *label != "le" && GIVEN.contains(&label.as_str()));
        assert_eq!(given, None, "{name}: a scrape gives this label");
    }
}

#[test]
fn metrics_that_the_runbook_names_are_in_the_list() {
    let list = metrics();
    let runbook = files::text(&files::helm().join("../docs/RUNBOOK.md"));
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    for word in runbook.split(|c: char| !letter(c)).filter(|word| word.starts_with("gristmill_")) {
        assert!(metric(word, &list).is_some(), "{word}");
    }
}

#[test]
fn a_wrong_name_label_word_and_grouping_are_complained_of() {
    let list = list("# x\na_total counter queue state=x|y\nb_seconds histogram\n");
    let judge = |expr: &str| judge("p", expr, &list, &mut BTreeSet::new());
    for right in [
        r#"sum by (queue) (rate(a_total{state=~"x|y", namespace="n", queue=~"$q"}[5m]))"#,
        "histogram_quantile(0.9, sum by (le) (rate(b_seconds_bucket[5m])))",
        r#"count(ALERTS{alertname=~"A.+"})"#,
    ] {
        assert_eq!(judge(right), Vec::<String>::new());
    }
    for (wrong, complaint) in [
        ("a", "p: a is not in the list"),
        ("b_seconds", "p: b_seconds is not in the list"),
        ("a_total_count", "p: a_total_count is not in the list"),
        (r#"a_total{kind="k"}"#, "p: a_total has no label kind"),
        (r#"a_total{state="z"}"#, "p: a_total is never state=z"),
        (r#"a_total{state=~"x|z"}"#, "p: a_total is never state=z"),
        ("sum by (kind) (a_total)", "p: nothing there has a label kind: sum by (kind) (a_total)"),
    ] {
        assert_eq!(judge(wrong), [complaint]);
    }
    assert_eq!(judge("sum(").len(), 1);
}
