//! What each role is started with: arguments, settings, ports, probes; and that what selects pods selects the right ones.

use gristmill_chart_tests::objects::{Release, at};
use gristmill_chart_tests::pods;
use gristmill_chart_tests::{files, helm};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const ALL: &str = "
redis: {existingSecret: a}
postgres: {existingSecret: db, migrate: {enabled: true}}
workers:
  default: {queues: [\"orders:64\", mail], slots: 7}
  more: {queues: [reports, mail]}
ingest: {enabled: true, tokensSecret: t}
relay: {enabled: true}
";

#[test]
fn arguments_are_those_of_the_command_line() {
    helm::with_one(|helm| {
        let release = helm.render(ALL);
        let config = ["--config", "/etc/gristmill/gristmill.toml"];
        let started: Vec<(String, Vec<&str>)> =
            pods::all(&release).iter().map(|pod| (pod.of.clone(), pod.arguments())).collect();
        let with = |command: &[&'static str]| [command, &config].concat();
        assert_eq!(
            started,
            [
                ("Deployment r-gristmill-ingest".to_owned(), with(&["ingest"])),
                ("Deployment r-gristmill-monitor".to_owned(), with(&["monitor"])),
                ("Deployment r-gristmill-relay".to_owned(), with(&["postgres", "relay"])),
                ("Deployment r-gristmill-worker-default".to_owned(), with(&["node"])),
                ("Deployment r-gristmill-worker-more".to_owned(), with(&["node"])),
                ("Job r-gristmill-migrate".to_owned(), vec!["postgres", "migrate"]),
                ("Pod r-gristmill-test".to_owned(), with(&["roundtrip"])),
            ]
        );
    });
}

#[test]
fn settings_that_the_chart_computes() {
    helm::with_one(|helm| {
        let release = helm.render(ALL);
        let told = |role: &str| pods::of_deployment(&release, &format!("r-gristmill-{role}")).environment();
        let worker = told("worker-default");
        assert_eq!(worker["GRISTMILL__QUEUES"], "orders:64,mail");
        assert_eq!(worker["GRISTMILL__NODE__SLOTS"], "7");
        assert_eq!(worker["GRISTMILL__NODE__NAME"], r#"{"fieldRef":{"fieldPath":"metadata.name"}}"#);
        assert_eq!(worker["GRISTMILL__HEALTH__LISTEN"], "0.0.0.0:9464");
        assert!(!worker.contains_key("GRISTMILL__POSTGRES__RELAY"), "the relay has pods of its own");
        assert_eq!(told("worker-more")["GRISTMILL__QUEUES"], "reports,mail");
        assert_eq!(told("worker-more")["GRISTMILL__NODE__SLOTS"], "100");
        // Each queue once, whoever serves it.
        assert_eq!(told("monitor")["GRISTMILL__QUEUES"], "orders:64,mail,reports");
        assert!(!told("ingest").contains_key("GRISTMILL__QUEUES"));
        assert_eq!(told("ingest")["GRISTMILL__INGEST__LISTEN"], "0.0.0.0:8080");
        assert_eq!(told("ingest")["GRISTMILL__INGEST__TOKENS_FILE"], "/run/gristmill/ingest-tokens/tokens");

        let inside =
            helm.render(&ALL.replace("db,", "db, relay: true,").replace("relay: {enabled: true}", ""));
        let worker = pods::of_deployment(&inside, "r-gristmill-worker-more").environment();
        assert_eq!(worker["GRISTMILL__POSTGRES__RELAY"], "true");
        assert!(inside.find("Deployment", "r-gristmill-relay").is_none());

        let traced = helm.render(&format!(
            "{ALL}tracing: {{enabled: true, endpoint: \"http://jaeger:4317\", headersSecret: h, headersSecretKey: k, resourceAttributes: {{a.b: c}}}}\n"
        ));
        let worker = pods::of_deployment(&traced, "r-gristmill-worker-default").environment();
        assert_eq!(worker["GRISTMILL__TELEMETRY__TRACES"], "true");
        assert_eq!(worker["GRISTMILL__TELEMETRY__TRACES_KEEP"], "0.01");
        assert_eq!(worker["GRISTMILL__TELEMETRY__SLOW_MS"], "10000");
        assert_eq!(worker["OTEL_EXPORTER_OTLP_ENDPOINT"], "http://jaeger:4317");
        assert_eq!(worker["OTEL_EXPORTER_OTLP_PROTOCOL"], "grpc");
        assert_eq!(worker["OTEL_EXPORTER_OTLP_HEADERS"], r#"{"secretKeyRef":{"key":"k","name":"h"}}"#);
        assert_eq!(worker["OTEL_SERVICE_NAME"], "r-gristmill");
        let attributes: BTreeSet<&str> = worker["OTEL_RESOURCE_ATTRIBUTES"].split(',').collect();
        for pair in [
            "a.b=c",
            "gristmill.pool=default",
            "k8s.namespace.name=jobs",
            "service.instance.id=$(GRISTMILL_POD_NAME)",
        ] {
            assert!(attributes.contains(pair), "no {pair} in {attributes:?}");
        }
    });
}

/// A variable that is named in another's value must stand before it.
#[test]
fn variables_stand_before_those_that_use_them() {
    helm::with_one(|helm| {
        for (name, values) in files::matrix() {
            for pod in pods::all(&helm.render(&values)) {
                let mut known = BTreeSet::new();
                for variable in at(pod.program(), "/env").as_array().into_iter().flatten() {
                    let value = variable["value"].as_str().unwrap_or_default();
                    for used in value.split("$(").skip(1) {
                        let used = used.split(')').next().unwrap();
                        assert!(known.contains(used), "{name}: {}: {used} is not known yet", pod.of);
                    }
                    known.insert(variable["name"].as_str().unwrap());
                }
            }
        }
    });
}

#[test]
fn every_role_has_its_probes_at_its_port() {
    helm::with_one(|helm| {
        let release =
            helm.render(&format!("{ALL}health: {{port: 9999}}\nprobes: {{live: {{periodSeconds: 20}}}}\n"));
        for deployment in release.of("Deployment") {
            let pod = pods::of_deployment(&release, deployment);
            let program = pod.program();
            for (probe, path) in
                [("startupProbe", "/startupz"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")]
            {
                assert_eq!(
                    at(program, &format!("/{probe}/httpGet")),
                    &json!({"path": path, "port": "metrics"})
                );
            }
            assert_eq!(at(program, "/livenessProbe/periodSeconds"), 20);
            assert_eq!(at(program, "/livenessProbe/failureThreshold"), 3);
            assert!(
                program["ports"]
                    .as_array()
                    .unwrap()
                    .contains(&json!({"name": "metrics", "containerPort": 9999, "protocol": "TCP"}))
            );
            assert!(pod.environment()["GRISTMILL__HEALTH__LISTEN"].ends_with(":9999"));
        }
    });
}

fn labels_of<'a>(release: &'a Release, selector: &Value) -> Vec<String> {
    let wanted =
        at(selector, "/matchLabels").as_object().or(selector.as_object()).cloned().unwrap_or_default();
    let expressions = at(selector, "/matchExpressions").as_array().cloned().unwrap_or_default();
    let fits = |labels: &'a Value| {
        wanted.iter().filter(|(key, _)| *key != "matchExpressions").all(|(key, value)| &labels[key] == value)
            && expressions.iter().all(|expression| {
                let values = expression["values"].as_array().unwrap();
                values.contains(&labels[expression["key"].as_str().unwrap()])
            })
    };
    let pods = pods::all(release);
    pods.iter().filter(|pod| fits(at(pod.template, "/metadata/labels"))).map(|pod| pod.of.clone()).collect()
}

/// A Deployment, Service or budget of a role never reaches for the pods of another, hooks and tests included.
#[test]
fn what_selects_pods_selects_the_right_ones() {
    helm::with_one(|helm| {
        for (name, values) in files::matrix() {
            let release = helm.render(&values);
            let fullname = if name == "everything.yaml" { "jobs" } else { "r-gristmill" };
            for (kind, object, body) in release.iter() {
                let selector = match kind {
                    "Deployment" | "PodDisruptionBudget" => at(body, "/spec/selector"),
                    "Service" => at(body, "/spec/selector"),
                    _ => continue,
                };
                assert_eq!(
                    labels_of(&release, selector),
                    [format!("Deployment {object}")],
                    "{name}: {kind} {object}"
                );
                if kind == "Deployment" {
                    for spread in at(body, "/spec/template/spec/topologySpreadConstraints")
                        .as_array()
                        .into_iter()
                        .flatten()
                    {
                        let selector = &spread["labelSelector"];
                        assert!(labels_of(&release, selector).contains(&format!("Deployment {object}")));
                    }
                }
            }
            for policy in release.of("NetworkPolicy") {
                let chosen =
                    labels_of(&release, at(release.get("NetworkPolicy", policy), "/spec/podSelector"));
                match policy == fullname {
                    true => assert_eq!(chosen.len(), pods::all(&release).len(), "all pods, hooks included"),
                    false => assert_eq!(chosen, ["Deployment jobs-ingest"]),
                }
            }
        }
        // Who is scraped: everybody that serves, once.
        let scraped = |metrics: &str| {
            let release = helm.render(&format!("{ALL}metrics: {metrics}\n"));
            let of = |kind: &str, name: &str| {
                release
                    .find(kind, name)
                    .map_or_else(Vec::new, |body| labels_of(&release, at(body, "/spec/selector")))
            };
            [of("PodMonitor", "r-gristmill"), of("ServiceMonitor", "r-gristmill-monitor")]
                .map(|names| names.len())
        };
        assert_eq!(scraped("{podMonitor: {enabled: true}}"), [5, 0]);
        assert_eq!(scraped("{serviceMonitor: {enabled: true}}"), [0, 1]);
        assert_eq!(scraped("{podMonitor: {enabled: true}, serviceMonitor: {enabled: true}}"), [4, 1]);
    });
}

/// Names of ports, ConfigMaps, Secrets and accounts: each that is meant to be of the release is in it.
#[test]
fn what_is_named_is_there() {
    helm::with_one(|helm| {
        for (name, values) in files::matrix() {
            let release = helm.render(&values);
            let own = |object: &Value| {
                object
                    .as_str()
                    .is_some_and(|name| name.starts_with("r-gristmill") || name.starts_with("jobs-w"))
            };
            for pod in pods::all(&release) {
                for volume in at(pod.spec(), "/volumes").as_array().into_iter().flatten() {
                    for (kind, path) in [("ConfigMap", "/configMap/name"), ("Secret", "/secret/secretName")] {
                        let named = at(volume, path);
                        assert!(
                            !own(named) || release.find(kind, named.as_str().unwrap()).is_some(),
                            "{name}: no {kind} {named}"
                        );
                    }
                }
                for mount in at(pod.program(), "/volumeMounts").as_array().into_iter().flatten() {
                    let volumes = at(pod.spec(), "/volumes").as_array().unwrap();
                    assert!(
                        volumes.iter().any(|volume| volume["name"] == mount["name"]),
                        "{name}: {}: {mount}",
                        pod.of
                    );
                }
                let account = &pod.spec()["serviceAccountName"];
                assert!(!own(account) || release.find("ServiceAccount", account.as_str().unwrap()).is_some());
            }
            for kind in ["HorizontalPodAutoscaler", "ScaledObject"] {
                for scaler in release.of(kind) {
                    let target = at(release.get(kind, scaler), "/spec/scaleTargetRef/name").as_str().unwrap();
                    let deployment = release.get("Deployment", target);
                    assert!(
                        at(deployment, "/spec/replicas").is_null(),
                        "{name}: {target} has replicas beside {kind}"
                    );
                }
            }
        }
    });
}
