//! Every object of every file of values is valid on the oldest and the newest Kubernetes and between, unknown fields refused.

use gristmill_chart_tests::schema::{Kinds, RELEASES};
use gristmill_chart_tests::{files, helm};
use serde_json::json;

#[test]
fn every_object_of_every_file_of_values() {
    helm::with_one(|helm| {
        for release in RELEASES {
            let Some(mut kinds) = Kinds::of(release) else { continue };
            for (name, values) in files::matrix() {
                let rendered = helm.render_for(&format!("{release}.0"), &values);
                for (kind, object, body) in rendered.iter() {
                    let complaints = kinds.complaints(body);
                    assert!(complaints.is_empty(), "{name}: {kind} {object}:\n{}", complaints.join("\n"));
                }
            }
        }
    });
}

#[test]
fn and_a_planted_mistake_is_found() {
    let Some(mut kinds) = Kinds::of("1.34") else { return };
    let mut wrong = |object| kinds.complaints(&object).len();
    let budget = |spec| json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"}, "spec": spec});
    assert_eq!(wrong(budget(json!({"maxUnavailable": 1}))), 0);
    assert_eq!(wrong(budget(json!({"maxUnavail": 1}))), 1);
    let scaled = |spec| json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "a"}, "spec": spec});
    let trigger = json!([{"type": "metrics-api", "metadata": {"url": "http://a", "valueLocation": "jobs", "targetValue": "1"}}]);
    assert_eq!(wrong(scaled(json!({"scaleTargetRef": {"name": "a"}, "triggers": trigger}))), 0);
    assert_eq!(
        wrong(scaled(json!({"scaleTargetRef": {"name": "a"}, "triggers": trigger, "minReplicas": 1}))),
        1
    );
    let number = json!([{"type": "metrics-api", "metadata": {"url": "http://a", "valueLocation": "jobs", "targetValue": 1}}]);
    assert_eq!(wrong(scaled(json!({"scaleTargetRef": {"name": "a"}, "triggers": number}))), 1);
}
