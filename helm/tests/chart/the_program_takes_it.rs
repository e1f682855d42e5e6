//! The real program reads what each pod is given: the settings file, the variables and the files of Secrets, in a folder that
//! stands for the pod's, and finds nothing wrong with them.

use gristmill_chart_tests::objects::{Release, at};
use gristmill_chart_tests::pods::{self, Pod};
use gristmill_chart_tests::{files, helm};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Beside this test, where `cargo xtask test` and `cargo xtask chart` build it.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().unwrap();
    let path = own.parent().and_then(Path::parent).unwrap().join("gristmill");
    if path.is_file() {
        return Some(path);
    }
    helm::skipped("the program itself", "it is not built; `cargo xtask chart` builds it");
    None
}

/// What a Secret of the user's might hold.
fn content(file: &str) -> &'static str {
    match file.trim_start_matches("/run/gristmill/") {
        "redis/url" => "rediss://redis:6379/0",
        "redis-password/password" => "a password",
        "postgres/url" => "postgres://jobs@db/jobs",
        "ingest-tokens/tokens" => "a-token-of-some-length",
        "redis-ca/ca.crt" | "postgres-ca/ca.crt" => include_str!("authority.pem"),
        other => panic!("nobody knows what {other} holds"),
    }
}

/// Lays out what the pod would see below `root`.
fn lay_out(root: &Path, release: &Release, pod: &Pod) {
    let config_map = at(pod.spec(), "/volumes/0/configMap/name").as_str().unwrap();
    let settings = release
        .find("ConfigMap", config_map)
        .map_or("", |map| at(map, "/data/gristmill.toml").as_str().unwrap());
    std::fs::create_dir_all(root.join("etc/gristmill")).unwrap();
    std::fs::write(root.join("etc/gristmill/gristmill.toml"), settings).unwrap();
    for file in pod.secrets().keys() {
        let path = root.join(file.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content(file)).unwrap();
    }
}

fn run(program: &Path, root: &Path, pod: &Pod, command: &[&str]) -> String {
    let inside = |text: &str| match text.strip_prefix('/') {
        Some(path) => root.join(path).to_string_lossy().into_owned(),
        None => text.to_owned(),
    };
    let mut run = Command::new(program);
    run.env_clear().args(["--config", &inside("/etc/gristmill/gristmill.toml")]).args(command);
    for (name, value) in pod.environment() {
        // Where it comes from the pod itself, as Kubernetes would fill it in.
        let value = if value.starts_with('{') {
            "jobs-worker-orders-7d4b9c-x2x5p".to_owned()
        } else {
            inside(&value)
        };
        run.env(name, value);
    }
    let output = run.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {}", pod.of, String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn in_every_file_of_values() {
    let Some(program) = program() else { return };
    helm::with_one(|helm| {
        pods::of_every_file(helm, |name, release, pod| {
            let whose = format!("{name}: {}", pod.of);
            let root = std::env::temp_dir().join(format!("gristmill-{}-{whose}", std::process::id()));
            lay_out(&root, release, pod);
            let said = run(&program, &root, pod, &["config", "check"]);
            assert!(said.starts_with("the settings are well"), "{whose}: {said}");

            let all = run(&program, &root, pod, &["config", "show", "--json"]);
            let all: Value = serde_json::from_str(&all).unwrap();
            let window = all["drain.window_ms"]["value"].as_u64().unwrap();
            let grace = pod.spec()["terminationGracePeriodSeconds"].as_u64().unwrap();
            assert!(window + all["drain.grace_ms"]["value"].as_u64().unwrap() < grace * 1000, "{whose}");
            assert_eq!(all["log.format"]["value"], "json", "{whose}");
            std::fs::remove_dir_all(&root).unwrap();
        });
    });
}

/// Arguments are commands that the program has; those that wait for something are asked for their help.
#[test]
fn and_has_the_commands_of_the_arguments() {
    let Some(program) = program() else { return };
    helm::with_one(|helm| {
        let everything = files::matrix().into_iter().find(|(name, _)| name == "everything.yaml").unwrap().1;
        for pod in pods::all(&helm.render(&everything)) {
            let mut arguments = pod.arguments();
            arguments.retain(|argument| !argument.starts_with('/') && *argument != "--config");
            let output = Command::new(&program).args(&arguments).arg("--help").output().unwrap();
            assert!(
                output.status.success(),
                "{}: {arguments:?}: {}",
                pod.of,
                String::from_utf8_lossy(&output.stderr)
            );
        }
    });
}
