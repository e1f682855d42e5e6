//! What lies in helm/examples is valid, and as safe as the chart itself.

use gristmill_chart_tests::objects::{Release, at};
use gristmill_chart_tests::schema::Kinds;
use gristmill_chart_tests::{files, helm, pods};
use serde_json::json;

fn example(name: &str) -> String {
    files::text(&files::helm().join("examples").join(name))
}

#[test]
fn manifests_are_valid() {
    let Some(mut kinds) = Kinds::of("1.34") else { return };
    for name in ["redis.yaml", "jaeger.yaml"] {
        let release = Release::parse(&example(name));
        for (kind, object, body) in release.iter() {
            let complaints = kinds.complaints(body);
            assert!(complaints.is_empty(), "{name}: {kind} {object}:\n{}", complaints.join("\n"));
        }
    }
}

#[test]
fn their_pods_are_restricted() {
    for name in ["redis.yaml", "jaeger.yaml"] {
        for pod in pods::all(&Release::parse(&example(name))) {
            let container = at(pod.spec(), "/containers/0");
            assert_eq!(at(pod.spec(), "/automountServiceAccountToken"), &json!(false), "{name}");
            assert_eq!(at(pod.spec(), "/securityContext/runAsNonRoot"), &json!(true), "{name}");
            assert_eq!(
                at(pod.spec(), "/securityContext/seccompProfile/type"),
                &json!("RuntimeDefault"),
                "{name}"
            );
            assert_eq!(at(container, "/securityContext/allowPrivilegeEscalation"), &json!(false), "{name}");
            assert_eq!(at(container, "/securityContext/capabilities/drop"), &json!(["ALL"]), "{name}");
        }
    }
}

/// The values that go with them render, and name the Services that the manifests make.
#[test]
fn values_fit_the_manifests() {
    helm::with_one(|helm| {
        for (name, manifest) in [("redis-values.yaml", "redis.yaml"), ("jaeger-values.yaml", "jaeger.yaml")] {
            let made = Release::parse(&example(manifest));
            let rendered = helm.render(&(example(name) + BASE_FOR[usize::from(manifest == "jaeger.yaml")]));
            let service = made.of("Service")[0];
            let port = at(made.get("Service", service), "/spec/ports/0/port").as_u64().unwrap();
            let text =
                serde_json::to_string(&rendered.iter().map(|(_, _, body)| body).collect::<Vec<_>>()).unwrap();
            assert!(text.contains(&format!("://{service}:{port}")), "{name} does not name {service}:{port}");
        }
        let keda = helm.render(&(example("keda-values.yaml") + "redis: {existingSecret: redis}\n"));
        assert_eq!(keda.of("ScaledObject"), ["r-gristmill-worker-default"]);
    });
}

const BASE_FOR: [&str; 2] = ["", "redis: {existingSecret: redis}\nworkers: {default: {queues: [orders]}}\n"];
