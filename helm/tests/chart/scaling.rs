//! Replicas, budgets, and the two ways to scale.

use gristmill_chart_tests::helm;
use gristmill_chart_tests::objects::{Release, at};
use serde_json::json;

const NAME: &str = "r-gristmill-worker-default";

fn pool(values: &str) -> String {
    format!("redis: {{existingSecret: a}}\nworkers: {{default: {{queues: [\"orders:64\"], {values}}}}}\n")
}

fn replicas(release: &Release) -> Option<u64> {
    at(release.get("Deployment", NAME), "/spec/replicas").as_u64()
}

#[test]
fn replicas_are_left_out_where_something_else_says_them() {
    for helm in helm::all() {
        assert_eq!(replicas(&helm.render(&pool(""))), Some(2));
        assert_eq!(replicas(&helm.render(&pool("replicas: 0"))), Some(0));
        assert_eq!(replicas(&helm.render(&pool("hpa: {enabled: true}"))), None);
        assert_eq!(replicas(&helm.render(&pool("keda: {enabled: true}"))), None);
        assert_eq!(replicas(&helm.render(&format!("{}worker: {{replicas: null}}\n", pool("")))), None);
    }
}

#[test]
fn a_budget_is_made_where_it_leaves_somebody() {
    helm::with_one(|helm| {
        let budget = |values: &str| {
            let release = helm.render(&pool(values));
            release.find("PodDisruptionBudget", NAME).map(|budget| at(budget, "/spec").clone())
        };
        let spec = budget("").unwrap();
        assert_eq!(spec["maxUnavailable"], 1);
        assert_eq!(spec["unhealthyPodEvictionPolicy"], "AlwaysAllow");
        assert!(budget("replicas: 1").is_none(), "it would block every drain, or none");
        assert!(budget("pdb: {enabled: false}").is_none());
        assert!(budget("keda: {enabled: true, minReplicas: 1}").is_none());
        assert_eq!(
            budget("keda: {enabled: true, minReplicas: 2}, pdb: {maxUnavailable: 20%}").unwrap()["maxUnavailable"],
            "20%"
        );
        assert!(budget("hpa: {enabled: true}, replicas: 1").is_some());
    });
}

#[test]
fn by_processor_time_and_more() {
    helm::with_one(|helm| {
        let release = helm.render(&pool(
            "hpa: {enabled: true, maxReplicas: 20, metrics: [{type: Pods, pods: {metric: {name: a}, target: {type: AverageValue, averageValue: \"1\"}}}], \
             behavior: {scaleDown: {policies: [{type: Pods, value: 1, periodSeconds: 60}]}}}",
        ));
        let spec = at(release.get("HorizontalPodAutoscaler", NAME), "/spec");
        assert_eq!((&spec["minReplicas"], &spec["maxReplicas"]), (&json!(2), &json!(20)));
        assert_eq!(at(spec, "/metrics/0/resource/target/averageUtilization"), 70);
        assert_eq!(at(spec, "/metrics/1/type"), "Pods");
        assert_eq!(
            at(spec, "/behavior/scaleDown"),
            &json!({"stabilizationWindowSeconds": 300, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]})
        );
    });
}

#[test]
fn by_the_jobs_of_its_queues() {
    helm::with_one(|helm| {
        let spec = |values: &str| at(helm.render(&pool(values)).get("ScaledObject", NAME), "/spec").clone();
        let one = spec("keda: {enabled: true, minReplicas: 0, jobsPerReplica: 50, activationJobs: 3}");
        assert_eq!(one["minReplicaCount"], 0);
        let trigger = at(&one, "/triggers/0");
        assert_eq!(trigger["type"], "metrics-api");
        assert_eq!(
            trigger["metadata"],
            json!({
                "url": "http://r-gristmill-monitor.jobs.svc:9464/autoscale/orders",
                "valueLocation": "jobs",
                "targetValue": "50",
                "activationTargetValue": "3",
            })
        );
        assert!(at(&one, "/advanced/scalingModifiers").is_null());
        assert!(one["fallback"].is_null());

        let more = spec("keda: {enabled: true, fallbackReplicas: 5}").clone();
        assert_eq!(more["fallback"], json!({"failureThreshold": 4, "replicas": 5}));

        let sum = "redis: {existingSecret: a}\nfullnameOverride: jobs\nhealth: {port: 9000}\n\
                   workers: {default: {queues: [\"a.b:8\", c-d], keda: {enabled: true}}}\n";
        let sum = helm.render(sum);
        let spec = at(sum.get("ScaledObject", "jobs-worker-default"), "/spec");
        assert_eq!(at(spec, "/advanced/scalingModifiers/formula"), "q0 + q1");
        assert_eq!(at(spec, "/triggers/1/metadata/url"), "http://jobs-monitor.jobs.svc:9000/autoscale/c-d");
        // What it asks is there, at that port.
        assert_eq!(at(sum.get("Service", "jobs-monitor"), "/spec/ports/0/port"), 9000);
    });
}

#[test]
fn rollouts_bring_the_new_before_they_take_the_old() {
    helm::with_one(|helm| {
        let spec = |values: &str| at(helm.render(&pool(values)).get("Deployment", NAME), "/spec").clone();
        let usual = spec("");
        assert_eq!(
            usual["strategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
        );
        assert_eq!(usual["minReadySeconds"], 10);
        assert_eq!(usual["progressDeadlineSeconds"], 600);
        let other = spec("maxSurge: 25%, maxUnavailable: 2, minReadySeconds: 0");
        assert_eq!(at(&other, "/strategy/rollingUpdate"), &json!({"maxSurge": "25%", "maxUnavailable": 2}));
        assert_eq!(other["minReadySeconds"], 0);
    });
}
