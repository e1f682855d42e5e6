//! The schema of the values refuses names it does not know and numbers out of bounds, at every depth.

use gristmill_chart_tests::{files, helm};
use serde_json::{Map, Value};

fn schema() -> Value {
    serde_json::from_str(&files::read("values.schema.json")).unwrap()
}

fn defaults() -> Value {
    serde_saphyr::from_str(&files::read("values.yaml")).unwrap()
}

/// Every place of the schema that describes a value, with its path.
fn places<'a>(at: &str, value: &'a Value, found: &mut Vec<(String, &'a Map<String, Value>)>) {
    match value {
        Value::Object(map) => {
            if map.contains_key("type") || map.contains_key("enum") {
                found.push((at.to_owned(), map));
            }
            for (key, value) in map {
                places(&format!("{at}/{key}"), value, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| places(at, value, found)),
        _ => {}
    }
}

#[test]
fn every_object_with_names_knows_no_others() {
    let schema = schema();
    let mut found = Vec::new();
    places("", &schema, &mut found);
    assert!(found.len() > 150, "{}", found.len());
    for (path, place) in found {
        if place.get("properties").is_some() {
            assert_eq!(place.get("additionalProperties"), Some(&Value::Bool(false)), "{path} takes any name");
        }
    }
}

#[test]
fn every_number_has_bounds() {
    let schema = schema();
    let mut found = Vec::new();
    places("", &schema, &mut found);
    let is_number = |place: &Map<String, Value>| {
        let kind = place.get("type").map(Value::to_string).unwrap_or_default();
        kind.contains("integer") || kind.contains("number")
    };
    let numbers: Vec<_> = found.into_iter().filter(|(_, place)| is_number(place)).collect();
    assert!(numbers.len() > 40);
    for (path, place) in numbers {
        assert!(place.contains_key("minimum"), "{path} has no least value");
        // Thresholds of alerts may be as high as somebody likes; quantities are Kubernetes' own.
        let free =
            path.contains("/thresholds/") || path.ends_with("/threshold") || path.contains("quantities");
        let free = free || path.contains("definitions/threshold");
        assert!(free || place.contains_key("maximum"), "{path} has no greatest value");
    }
}

#[test]
fn the_defaults_and_the_schema_know_the_same_names() {
    let (schema, defaults) = (schema(), defaults());
    let mut complaints = Vec::new();
    compare("", &schema, &schema, &defaults, &mut complaints);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Only parent charts say these, or pods and pools where what holds for all is said elsewhere.
const SAID_ELSEWHERE: &[&str] = &["global", "drain", "probes", "pod"];

fn compare(path: &str, root: &Value, schema: &Value, value: &Value, complaints: &mut Vec<String>) {
    let schema = match schema["$ref"].as_str() {
        Some(reference) => root.pointer(reference.trim_start_matches('#')).unwrap(),
        None => schema,
    };
    let (Some(properties), Some(value)) = (schema["properties"].as_object(), value.as_object()) else {
        return;
    };
    for (name, value) in value {
        match properties.get(name) {
            Some(schema) => compare(&format!("{path}.{name}"), root, schema, value, complaints),
            None => complaints.push(format!("values.yaml has {path}.{name}, the schema does not")),
        }
    }
    let inner = path.ends_with(".pod") && path != ".pod"
        || path.ends_with(".resources")
        || path.ends_with(".template");
    let layered = [".drain", ".probes"].iter().any(|end| path.ends_with(end) && path != *end);
    if !inner && !layered {
        for name in properties.keys() {
            let elsewhere = SAID_ELSEWHERE.contains(&name.as_str());
            if !value.contains_key(name) && !elsewhere && !path.ends_with("behavior") {
                complaints.push(format!("the schema has {path}.{name}, values.yaml does not"));
            }
        }
    }
}

/// In-process: each map of the defaults, one after the other, gets a name that nobody knows.
#[test]
fn a_typo_is_refused_at_every_depth() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let defaults = defaults();
    assert!(validator.is_valid(&defaults), "{:?}", validator.iter_errors(&defaults).next());
    let mut maps = Vec::new();
    collect("", &defaults, &mut maps);
    let free = |path: &str| {
        let last = path.rsplit('/').next().unwrap_or_default();
        // Maps of the user's own names, and parts of Kubernetes' objects.
        [
            "config",
            "labels",
            "annotations",
            "queues",
            "commonLabels",
            "commonAnnotations",
            "workers",
            "nodeSelector",
        ]
        .contains(&last)
            || ["requests", "limits", "resourceAttributes", "affinity", "capabilities", "seccompProfile"]
                .contains(&last)
            || path.to_ascii_lowercase().ends_with("securitycontext")
    };
    let named: Vec<_> = maps.iter().filter(|path| !free(path)).collect();
    assert!(named.len() > 60, "{}", named.len());
    for path in named {
        let mut values = defaults.clone();
        let map = values.pointer_mut(path).unwrap().as_object_mut().unwrap();
        map.insert("replcias".into(), Value::from(3));
        assert!(!validator.is_valid(&values), "{path}.replcias is taken");
    }
}

fn collect(path: &str, value: &Value, maps: &mut Vec<String>) {
    if let Value::Object(map) = value {
        maps.push(path.to_owned());
        for (name, value) in map {
            collect(&format!("{path}/{}", name.replace('~', "~0").replace('/', "~1")), value, maps);
        }
    }
}

/// By Helm itself; its words differ from release to release, but for the name of the value.
#[test]
fn and_by_helm_with_the_name_of_the_value() {
    let base = "redis: {existingSecret: redis}\n";
    let cases = [
        ("replicaCount: 3", "replicaCount"),
        ("workers: {default: {queues: [a], replicaCount: 3}}", "replicaCount"),
        ("workers: {default: {queues: [a], replicas: -1}}", "replicas"),
        ("workers: {default: {queues: [a], replicas: two}}", "replicas"),
        ("workers: {default: {queues: [a], slots: 0}}", "slots"),
        ("workers: {default: {queues: [\"A B\"]}}", "queues"),
        ("workers: {default: {queues: [\"a:0\"]}}", "queues"),
        ("workers: {default: {queues: [\"a:1025\"]}}", "queues"),
        ("workers: {default: {queues: [a], keda: {minReplica: 1}}}", "minReplica"),
        ("workers: {Orders: {queues: [a]}}", "Orders"),
        ("workers: {a-name-of-more-than-twenty: {queues: [a]}}", "a-name-of-more-than-twenty"),
        ("drain: {windowSeconds: 0}", "windowSeconds"),
        ("drain: {windowSeconds: 25.5}", "windowSeconds"),
        ("drain: {graceSeconds: 0}", "graceSeconds"),
        ("health: {port: 80}", "port"),
        ("config: {retries: {max_attempts: 3}}", "retries"),
        ("tracing: {keep: 1.5}", "keep"),
        ("tracing: {protocol: http/json}", "protocol"),
        ("image: {digest: latest}", "digest"),
        ("image: {pullPolicy: always}", "pullPolicy"),
        ("redis: {existingSecret: redis, url: \"http://a\"}", "url"),
        ("pod: {extraEnv: [{value: a}]}", "extraEnv"),
        ("metrics: {podMonitor: {interval: \"30 s\"}}", "interval"),
        ("prometheusRule: {thresholds: {oldestAge: 3}}", "oldestAge"),
        ("monitor: {replicas: 0}", "replicas"),
        ("pod: {template: {sepc: {}}}", "sepc"),
    ];
    for helm in helm::all() {
        for (values, name) in cases {
            let said = helm.refusal(&format!("{base}{values}\n"));
            assert!(
                said.contains("values don't meet the specifications") && said.contains(name),
                "{helm} on {values}: {said}"
            );
        }
    }
}
