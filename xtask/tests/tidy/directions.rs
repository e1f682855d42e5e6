//! Which crate may depend on which. Only what is built into a product counts: normal and build dependencies.

use std::process::Command;

use serde_json::Value;

use crate::accept;

/// A member of the workspace and what it is built with.
struct Member {
    name: String,
    dependencies: Vec<String>,
}

/// Who may use which member. A tool, which ships to nobody, may use all.
enum May {
    Only(&'static [&'static str]),
    All,
}

const DIRECTIONS: &[(&str, May)] = &[
    ("gristmill-job", May::Only(&[])),
    ("gristmill-telemetry", May::Only(&["gristmill-job"])),
    // When recurring jobs are due: pure.
    ("gristmill-schedule", May::Only(&["gristmill-job"])),
    // Heavy, and of use to a program alone.
    ("gristmill-otlp", May::Only(&["gristmill-job", "gristmill-telemetry"])),
    ("gristmill-broker", May::Only(&["gristmill-job", "gristmill-telemetry"])),
    // A handler runs without a broker: users test theirs with none.
    ("gristmill-handler", May::Only(&["gristmill-job"])),
    (
        "gristmill-node",
        May::Only(&[
            "gristmill-job",
            "gristmill-schedule",
            "gristmill-broker",
            "gristmill-handler",
            "gristmill-telemetry",
        ]),
    ),
    ("gristmill-postgres", May::Only(&["gristmill-job", "gristmill-broker", "gristmill-handler"])),
    // Handlers like any other, whoever runs them.
    ("gristmill-remote", May::Only(&["gristmill-job", "gristmill-handler"])),
    // A producer like any other, whose jobs come by HTTP.
    ("gristmill-ingest", May::Only(&["gristmill-job", "gristmill-broker", "gristmill-telemetry"])),
    (
        "gristmill-cli",
        May::Only(&[
            "gristmill-job",
            "gristmill-schedule",
            "gristmill-broker",
            "gristmill-handler",
            "gristmill-node",
            "gristmill-postgres",
            "gristmill-remote",
            "gristmill-ingest",
            "gristmill-telemetry",
            "gristmill-otlp",
        ]),
    ),
    (
        "gristmill",
        May::Only(&[
            "gristmill-job",
            "gristmill-schedule",
            "gristmill-broker",
            "gristmill-handler",
            "gristmill-node",
            "gristmill-postgres",
            "gristmill-cli",
        ]),
    ),
    // It judges production code, so it shares none with it.
    ("gristmill-testkit", May::Only(&[])),
    // What a user would write.
    ("gristmill-example-shop", May::Only(&["gristmill"])),
    ("gristmill-tests", May::All),
    // It reads what Helm renders, and nothing of ours.
    ("gristmill-chart-tests", May::Only(&[])),
    ("gristmill-demo", May::All),
    ("gristmill-bench", May::All),
    // It must compile in seconds.
    ("xtask", May::Only(&[])),
];

/// One production crate speaks Redis; the others are tools and tests.
const MAY_SPEAK_REDIS: &[&str] =
    &["gristmill-broker", "gristmill-testkit", "gristmill-tests", "gristmill-demo", "gristmill-bench"];

fn judge(members: &[Member]) -> Vec<String> {
    let mut complaints = Vec::new();
    for member in members {
        let name = &member.name;
        let Some((_, may)) = DIRECTIONS.iter().find(|(known, _)| known == name) else {
            complaints.push(format!("{name}: a new crate; say in DIRECTIONS what it may use"));
            continue;
        };
        for dependency in &member.dependencies {
            let is_member = members.iter().any(|other| &other.name == dependency);
            if is_member
                && let May::Only(allowed) = may
                && !allowed.contains(&dependency.as_str())
            {
                complaints.push(format!("{name} depends on {dependency}, which is against the directions"));
            }
            if dependency == "redis" && !MAY_SPEAK_REDIS.contains(&name.as_str()) {
                complaints.push(format!("{name} depends on redis; only the broker speaks it"));
            }
        }
        if name == "xtask" && !member.dependencies.is_empty() {
            complaints.push(format!("xtask has dependencies: {}", member.dependencies.join(", ")));
        }
    }
    complaints
}

fn members(metadata: &str) -> Vec<Member> {
    let metadata: Value = serde_json::from_str(metadata).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap();
    let member = |package: &Value| Member {
        name: text(&package["name"]),
        dependencies: package["dependencies"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|dependency| dependency["kind"] != "dev")
            .map(|dependency| text(&dependency["name"]))
            .collect(),
    };
    packages.iter().map(member).collect()
}

#[test]
fn crates_depend_in_the_agreed_directions() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(crate::tree::root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let members = members(&String::from_utf8(output.stdout).unwrap());
    assert!(members.iter().any(|member| member.name == "gristmill-job"));
    accept(&judge(&members));
}

#[test]
fn a_wrong_direction_a_second_redis_client_and_an_unknown_crate_are_refused() {
    let planted = r#"{"packages": [
        {"name": "gristmill-broker", "dependencies": [{"name": "gristmill-job", "kind": null}, {"name": "redis", "kind": null}]},
        {"name": "gristmill-job", "dependencies": [{"name": "gristmill-broker", "kind": null}]},
        {"name": "gristmill-handler", "dependencies": [{"name": "gristmill-broker", "kind": "dev"}]},
        {"name": "gristmill-node", "dependencies": [{"name": "redis", "kind": "build"}]},
        {"name": "gristmill-new", "dependencies": []},
        {"name": "xtask", "dependencies": [{"name": "clap", "kind": null}]}
    ]}"#;
    assert_eq!(
        judge(&members(planted)),
        [
            "gristmill-job depends on gristmill-broker, which is against the directions",
            "gristmill-node depends on redis; only the broker speaks it",
            "gristmill-new: a new crate; say in DIRECTIONS what it may use",
            "xtask has dependencies: clap",
        ]
    );
}
