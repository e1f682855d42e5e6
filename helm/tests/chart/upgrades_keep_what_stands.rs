//! From values to other values, and from one version of the chart to the next: selectors, which Kubernetes lets nobody
//! change, stay; names stay; and only those pods are replaced whose settings changed.

use gristmill_chart_tests::objects::{Release, at};
use gristmill_chart_tests::{files, helm};
use serde_json::json;
use std::collections::BTreeSet;

const LEAST: &str = "redis: {existingSecret: a}\nworkers: {default: {queues: [a]}}\n";

/// What may be said on top of it later.
const LATER: &[&str] = &[
    "image: {tag: \"2\"}",
    "commonLabels: {team: a}\ncommonAnnotations: {b: c}",
    "worker: {hpa: {enabled: true}}",
    "worker: {keda: {enabled: true}}",
    "worker: {config: {retry: {max_attempts: 3}}, slots: 5, pod: {labels: {a: b}}}",
    "ingest: {enabled: true, tokensSecret: t}\nrelay: {enabled: true}\npostgres: {existingSecret: p}",
    "config: {retry: {max_attempts: 3}}",
    "nameOverride: gristmill",
    "serviceAccount: {annotations: {a: b}}\nnetworkPolicy: {enabled: true}\nprometheusRule: {enabled: true}\ndashboard: {enabled: true}",
    "drain: {windowSeconds: 120}\nhealth: {port: 9999}",
];

fn unchangeable(before: &Release, after: &Release, what: &str) {
    for (kind, name, body) in before.iter() {
        let Some(later) = after.find(kind, name) else {
            // Budgets come and go with the number of replicas.
            assert!(kind == "PodDisruptionBudget", "{what}: {kind} {name} is gone");
            continue;
        };
        if ["Deployment", "Service", "PodDisruptionBudget"].contains(&kind) {
            assert_eq!(at(body, "/spec/selector"), at(later, "/spec/selector"), "{what}: {kind} {name}");
        }
    }
}

#[test]
fn selectors_and_names_stay_whatever_is_said_later() {
    helm::with_one(|helm| {
        let before = helm.render(LEAST);
        for later in LATER {
            let after = helm.render(&format!("{LEAST}{later}\n"));
            unchangeable(&before, &after, later);
            unchangeable(&after.clone(), &after, later);
            // And back.
            for (kind, name, body) in before.iter().filter(|(kind, _, _)| *kind == "Deployment") {
                assert_eq!(at(body, "/spec/selector"), at(after.get(kind, name), "/spec/selector"));
            }
        }
        let pools = helm
            .render("redis: {existingSecret: a}\nworkers: {default: {queues: [a]}, mail: {queues: [b]}}\n");
        unchangeable(&before, &pools, "another pool");
    });
}

/// These are what stands in clusters: a change here is a change that no cluster takes.
#[test]
fn selectors_are_these() {
    helm::with_one(|helm| {
        let release = helm.render(&format!("{LEAST}ingest: {{enabled: true, tokensSecret: t}}\nrelay: {{enabled: true}}\npostgres: {{existingSecret: p}}\n"));
        let label = |component: &str| json!({"app.kubernetes.io/name": "gristmill", "app.kubernetes.io/instance": "r", "app.kubernetes.io/component": component});
        for role in ["monitor", "ingest", "relay"] {
            let deployment = release.get("Deployment", &format!("r-gristmill-{role}"));
            assert_eq!(at(deployment, "/spec/selector/matchLabels"), &label(role));
        }
        let mut worker = label("worker");
        worker["gristmill/pool"] = json!("default");
        assert_eq!(
            at(release.get("Deployment", "r-gristmill-worker-default"), "/spec/selector/matchLabels"),
            &worker
        );
    });
}

/// The Deployments whose pods are replaced.
fn replaced(before: &Release, after: &Release) -> BTreeSet<String> {
    let changed = |name: &&str| {
        let template = |release: &Release| at(release.get("Deployment", name), "/spec/template").clone();
        after.find("Deployment", name).is_some() && template(before) != template(after)
    };
    before
        .of("Deployment")
        .into_iter()
        .filter(changed)
        .map(|name| name.trim_start_matches("r-gristmill-").to_owned())
        .collect()
}

#[test]
fn only_those_pods_are_replaced_whose_settings_changed() {
    helm::with_one(|helm| {
        let base = "redis: {url: \"redis://a\"}\nworkers: {default: {queues: [a]}, mail: {queues: [b], config: {retry: {max_attempts: 3}}}}\n";
        let before = helm.render(base);
        let after = |change: &str| {
            let replaced = replaced(&before, &helm.render(&format!("{base}{change}\n")));
            replaced.into_iter().collect::<Vec<_>>().join(" ")
        };
        let all = "monitor worker-default worker-mail";
        assert_eq!(after(""), "");
        assert_eq!(after("config: {seen: {window_ms: 5000}}"), all);
        // The pool says otherwise itself, so that nothing changes for it.
        assert_eq!(after("config: {retry: {max_attempts: 3}}"), "monitor worker-default");
        assert_eq!(after("configChecksum: \"1\""), all);
        assert_eq!(
            after("worker: {replicas: 5, maxSurge: 2, minReadySeconds: 20, pdb: {enabled: false}}"),
            ""
        );
        assert_eq!(after("worker: {slots: 5}"), "worker-default worker-mail");
        assert_eq!(after("worker: {keda: {enabled: true}}"), "");
        assert_eq!(after("monitor: {service: {annotations: {a: b}}}"), "");
        assert_eq!(
            after(
                "metrics: {podMonitor: {enabled: true}}\nprometheusRule: {enabled: true}\ndashboard: {enabled: true}\nnetworkPolicy: {enabled: true}"
            ),
            ""
        );
        let other = helm.render(&base.replace("redis://a", "redis://b"));
        assert_eq!(replaced(&before, &other).len(), 3, "an address of Redis is read at the start");
    });
}

/// A chart of the next version, with the same image.
#[test]
fn a_new_version_of_the_chart_alone_replaces_no_pod() {
    helm::with_one(|helm| {
        let (before, after) = (helm.render(LEAST), helm.at_version("0.2.0", LEAST));
        assert_ne!(before, after, "the label of the chart says so");
        assert_eq!(replaced(&before, &after), BTreeSet::new());
        unchangeable(&before, &after, "the next version");
    });
}

/// A release that is named as the chart is; one with a name of its own; a long one.
#[test]
fn names_follow_the_release() {
    helm::with_one(|helm| {
        let named = |values: &str| helm.render(&format!("{LEAST}{values}\n")).of("Deployment").join(" ");
        assert_eq!(named(""), "r-gristmill-monitor r-gristmill-worker-default");
        assert_eq!(named("fullnameOverride: jobs"), "jobs-monitor jobs-worker-default");
        assert_eq!(named("nameOverride: mill"), "r-mill-monitor r-mill-worker-default");
        let long = named(&format!("fullnameOverride: {}", "a".repeat(60)));
        assert!(long.split(' ').all(|name| name.len() <= 63), "{long}");
        let longest = "redis: {existingSecret: a}\nworkers: {default: {enabled: false}, a-name-of-20-letters: {queues: [a]}}\n";
        let longest = helm.render(&format!("{longest}fullnameOverride: {}\n", "a".repeat(60)));
        for (kind, name, _) in longest.iter() {
            assert!(name.len() <= 44 + "-worker-".len() + 20, "{kind} {name}");
            assert!(kind != "Service" || name.len() <= 63, "{kind} {name}");
        }
    });
}

#[test]
fn files_of_values_can_follow_each_other() {
    helm::with_one(|helm| {
        let releases: Vec<_> =
            files::matrix().into_iter().map(|(name, values)| (name, helm.render(&values))).collect();
        for (one, before) in &releases {
            for (other, after) in &releases {
                for name in before.of("Deployment") {
                    let Some(later) = after.find("Deployment", name) else { continue };
                    let selector = at(before.get("Deployment", name), "/spec/selector");
                    assert_eq!(selector, at(later, "/spec/selector"), "{one} to {other}: {name}");
                }
            }
        }
    });
}
