//! Judges the limits of kinds: what nodes say, and what is heeded, are to be the same.

use super::Finding;
use gristmill_broker::limit::LimitView;
use gristmill_handler::KindDescription;
use gristmill_job::QueueName;
use gristmill_job::limit::shown;
use std::collections::BTreeMap;

/// One finding for each kind on which nodes, or nodes and Redis, disagree; and one where all is well.
pub(super) fn judge(
    queue: &QueueName,
    limits: &[LimitView],
    kinds: &BTreeMap<String, Vec<(KindDescription, Vec<String>)>>,
) -> Vec<Finding> {
    let check = format!("{queue}: limits");
    let mut findings = Vec::new();
    let mut agreed = Vec::new();
    for (kind, said) in kinds {
        let heeded = limits.iter().find(|limit| limit.kind == *kind);
        let mut of_nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (description, nodes) in said {
            let limit = description.limit.as_deref().unwrap_or_default();
            of_nodes.entry(limit).or_default().extend(nodes.iter().map(String::as_str));
        }
        let same = of_nodes.keys().all(|limit| match heeded {
            Some(heeded) => heeded.is_as(limit),
            None => limit.is_empty(),
        });
        // One that nobody says any more limits nobody: no node asks.
        if same || of_nodes.keys().all(|limit| limit.is_empty()) {
            agreed.extend(heeded.filter(|_| same).map(|heeded| format!("{kind}: {}", heeded.shown())));
            continue;
        }
        let words = |limit: &str| if limit.is_empty() { "no limit".into() } else { shown(limit) };
        let said: Vec<String> =
            of_nodes.iter().map(|(limit, nodes)| format!("{} ({})", words(limit), nodes.join(" "))).collect();
        let is = heeded.map_or_else(|| "nothing is written".into(), |it| format!("{} is heeded", it.shown()));
        findings.push(Finding::warn(
            check.clone(),
            format!("kind {kind}: {is}, and nodes say {}", said.join(", ")),
            "normal while nodes of two releases serve the queue; else give all of them the same settings, and restart one: \
             what is written last is heeded by those that have a limit, and a node without one does not ask",
        ));
    }
    if !agreed.is_empty() {
        findings.push(Finding::ok(check, agreed.join("; ")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;
    use gristmill_job::UnixMillis;

    fn said(limit: Option<&str>, nodes: &[&str]) -> (KindDescription, Vec<String>) {
        let limit = limit.map(str::to_owned);
        let description = KindDescription { kind: "mail".into(), limit, ..KindDescription::default() };
        (description, nodes.iter().map(|node| (*node).to_owned()).collect())
    }

    fn judged(heeded: Option<u32>, said: Vec<(KindDescription, Vec<String>)>) -> Vec<(Severity, String)> {
        let view = |max_running| LimitView {
            kind: "mail".into(),
            max_running,
            interval_us: 0.0,
            burst: 1,
            per_key: false,
            written: UnixMillis(1),
            by: "a".into(),
        };
        let limits: Vec<LimitView> = heeded.map(view).into_iter().collect();
        let kinds = BTreeMap::from([("mail".to_owned(), said)]);
        let findings = judge(&QueueName::new("q").unwrap(), &limits, &kinds);
        findings.into_iter().map(|it| (it.severity, it.found)).collect()
    }

    #[test]
    fn nodes_that_say_the_same_are_well_and_others_are_named() {
        assert_eq!(judged(None, vec![said(None, &["a"])]), []);
        let five = Some("5 0 1 kind");
        assert_eq!(
            judged(Some(5), vec![said(five, &["a", "b"])]),
            [(Severity::Ok, "mail: 5 at a time".into())]
        );
        // Somebody wrote another, and is gone.
        let other = judged(Some(3), vec![said(five, &["a"])]);
        let words = "kind mail: 3 at a time is heeded, and nodes say 5 at a time (a)";
        assert_eq!(other, [(Severity::Warn, words.into())]);
        let two = judged(Some(5), vec![said(five, &["a"]), said(None, &["b", "c"])]);
        assert!(two[0].1.ends_with("nodes say no limit (b c), 5 at a time (a)"), "{two:?}");
        assert_eq!(judged(None, vec![said(five, &["a"])])[0].0, Severity::Warn);
        assert_eq!(judged(Some(5), vec![said(None, &["a"])]), [], "nobody asks any more");
    }
}
