//! `config` becomes a gristmill.toml that the program reads: whole numbers stay whole, pools lay theirs over it, and every
//! section and variable is one that config/default.toml knows.

use gristmill_chart_tests::objects::at;
use gristmill_chart_tests::pods;
use gristmill_chart_tests::{files, helm};
use std::collections::BTreeSet;
use toml::Table;

/// Whether config/default.toml knows the setting that a variable stands for.
fn is_known(variable: &str) -> bool {
    let key = key(variable);
    let known = known();
    match key.split_once('.') {
        Some((section, setting)) => known.get(section).is_some_and(|section| section.get(setting).is_some()),
        None => known.contains_key(&key),
    }
}

/// `GRISTMILL__LEASE__TTL_MS` is `lease.ttl_ms`.
fn key(variable: &str) -> String {
    variable.trim_start_matches("GRISTMILL__").to_ascii_lowercase().replace("__", ".")
}

fn known() -> Table {
    let root = files::helm().parent().unwrap().to_path_buf();
    files::text(&root.join("config/default.toml")).parse().unwrap()
}

fn settings(helm: &helm::Helm, config_map: &str, values: &str) -> Table {
    let release = helm.render(values);
    let text = at(release.get("ConfigMap", config_map), "/data/gristmill.toml").as_str().unwrap().to_owned();
    text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"))
}

const VALUES: &str = "
redis: {existingSecret: a}
config:
  retry: {max_attempts: 5, cap_ms: 268435456000, shape: linear}
  seen: {window_ms: 0}
  kinds:
    price.changed:
      exec: [python3, handler.py]
      hard_limit_ms: 60000
      exit: [\"3=discard\"]
    mail: {http: \"https://mail.example/é\"}
workers:
  default: {queues: [a]}
  mail: {queues: [b], config: {retry: {max_attempts: 3}, kinds: {mail: {concurrency: 2}}}}
";

#[test]
fn as_they_were_said() {
    for helm in helm::all() {
        let shared = settings(&helm, "r-gristmill", VALUES);
        let wanted: Table = "
            [retry]
            max_attempts = 5
            cap_ms = 268435456000
            shape = \"linear\"
            [seen]
            window_ms = 0
            [kinds.\"price.changed\"]
            exec = [\"python3\", \"handler.py\"]
            hard_limit_ms = 60000
            exit = [\"3=discard\"]
            [kinds.mail]
            http = \"https://mail.example/é\"
        "
        .parse()
        .unwrap();
        assert_eq!(shared, wanted, "{helm}");

        let mut of_the_pool = wanted;
        of_the_pool["retry"]["max_attempts"] = 3.into();
        of_the_pool["kinds"]["mail"].as_table_mut().unwrap().insert("concurrency".into(), 2.into());
        assert_eq!(settings(&helm, "r-gristmill-worker-mail", VALUES), of_the_pool, "{helm}");
    }
}

#[test]
fn each_pool_reads_its_own() {
    helm::with_one(|helm| {
        let reads = |values: &str, role: &str| {
            let release = helm.render(values);
            let pod = pods::of_deployment(&release, &format!("r-gristmill-{role}"));
            at(pod.spec(), "/volumes/0/configMap/name").as_str().unwrap().to_owned()
        };
        assert_eq!(reads(VALUES, "worker-default"), "r-gristmill");
        assert_eq!(reads(VALUES, "monitor"), "r-gristmill");
        assert_eq!(reads(VALUES, "worker-mail"), "r-gristmill-worker-mail");
        let given =
            "redis: {existingSecret: a}\nexistingConfigMap: mine\nworkers: {default: {queues: [a]}}\n";
        assert_eq!(reads(given, "worker-default"), "mine");
        assert_eq!(helm.render(given).of("ConfigMap"), Vec::<&str>::new());
    });
}

#[test]
fn every_variable_is_a_setting() {
    helm::with_one(|helm| {
        let mut seen = BTreeSet::new();
        for (name, values) in files::matrix() {
            for pod in pods::all(&helm.render(&values)) {
                for variable in pod.environment().keys().filter(|name| name.starts_with("GRISTMILL__")) {
                    let key = key(variable);
                    assert!(is_known(variable), "{name}: {}: no setting {key}", pod.of);
                    seen.insert(key);
                }
            }
        }
        assert!(seen.len() > 15, "{seen:?}");
        for key in [
            "health.listen",
            "telemetry.traces",
            "telemetry.traces_keep",
            "telemetry.slow_ms",
            "telemetry.metrics_otlp",
        ] {
            assert!(seen.contains(key), "no file of values makes use of {key}");
        }
    });
}

/// A new section of the program's settings is one that `config` takes; and none that it does not have.
#[test]
fn every_section_may_be_said_in_config() {
    let schema: serde_json::Value = serde_json::from_str(&files::read("values.schema.json")).unwrap();
    let names = at(&schema, "/definitions/config/propertyNames/enum").as_array().unwrap();
    let taken: BTreeSet<String> = names.iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    let soon = ["health", "monitor", "telemetry"].map(str::to_owned);
    let mut wanted: BTreeSet<String> = known().keys().cloned().chain(soon).collect();
    // Named in the comments of default.toml alone: every kind and every schedule has a table of its own.
    wanted.insert("kinds".to_owned());
    wanted.insert("schedules".to_owned());
    assert_eq!(taken, wanted);
}

/// What the chart computes must not be said in `config`, which would be passed over without a word.
#[test]
fn no_variable_can_be_said_twice() {
    helm::with_one(|helm| {
        let owned = files::read("templates/_checks.tpl");
        for (name, values) in files::matrix() {
            for pod in pods::all(&helm.render(&values)) {
                for variable in pod.environment().keys().filter(|name| name.starts_with("GRISTMILL__")) {
                    let key = key(variable);
                    assert!(owned.contains(&format!("\n{key}: ")), "{name}: {key} is not owned by the chart");
                }
            }
        }
    });
}
