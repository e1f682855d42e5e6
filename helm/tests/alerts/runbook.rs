//! The runbook: a section for each alert, with what a person needs in it, and no other.

use crate::render::alerts;
use gristmill_chart_tests::{files, helm};
use std::collections::{BTreeMap, BTreeSet};

/// What every section answers, in this order.
const PARTS: &[&str] = &["**It means**", "**Look at**", "**Do**", "**It can wait**"];

fn runbook() -> String {
    files::text(&files::helm().join("../docs/RUNBOOK.md"))
}

/// Sections by alert.
fn sections(text: &str) -> BTreeMap<String, String> {
    let mut sections = BTreeMap::new();
    for section in text.split("\n## ").skip(1) {
        let (title, body) = section.split_once('\n').unwrap();
        if title.starts_with("Gristmill") {
            assert!(sections.insert(title.to_owned(), body.to_owned()).is_none(), "{title} stands twice");
        }
    }
    sections
}

#[test]
fn every_alert_has_a_section_and_every_section_an_alert() {
    let sections: BTreeSet<String> = sections(&runbook()).into_keys().collect();
    helm::with_one(|helm| {
        let alerts: BTreeSet<String> = alerts(helm).into_iter().map(|alert| alert.name).collect();
        assert_eq!(alerts, sections);
    });
}

#[test]
fn every_section_says_what_it_means_what_to_look_at_what_to_do_and_whether_it_can_wait() {
    let sections = sections(&runbook());
    assert!(sections.len() >= 12, "{}", sections.len());
    for (alert, body) in sections {
        let places: Vec<Option<usize>> = PARTS.iter().map(|part| body.find(part)).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{alert}: {PARTS:?} at {places:?}");
        assert!(body.contains("gristmill "), "{alert}: names no command");
    }
}
