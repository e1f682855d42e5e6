//! A scanner of manifests finds nothing that was not decided. It is large, and runs where it is asked for: `cargo xtask chart
//! --scan`.

use gristmill_chart_tests::{files, helm};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// What it says of us, and why it stays so. The second word is a kind, or `*`.
const DECIDED: &[(&str, &str, &str)] = &[
    ("CKV_K8S_11", "*", "no limit of processor time: a throttled heartbeat loses leases"),
    ("CKV_K8S_15", "*", "image.pullPolicy is the user's choice; a tag of ours is never moved"),
    ("CKV_K8S_35", "Deployment", "headers for OTLP: the standard has no variable for a file"),
    ("CKV_K8S_43", "*", "image.digest is the user's choice"),
    ("CKV2_K8S_6", "*", "networkPolicy.enabled is the user's choice: what handlers call is not known here"),
    ("CKV_K8S_8", "Pod", "the test ends by itself"),
    ("CKV_K8S_9", "Pod", "the test ends by itself"),
];

fn findings(scanner: &str, manifests: &Path) -> BTreeSet<(String, String)> {
    let output = Command::new("python3")
        .args([
            "-m",
            "checkov.main",
            "--framework",
            "kubernetes",
            "--skip-download",
            "--output",
            "json",
            "--file",
        ])
        .arg(manifests)
        .env("PYTHONPATH", scanner)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text}\n{}", String::from_utf8_lossy(&output.stderr)));
    assert!(report["summary"]["passed"].as_u64() > Some(20), "the scanner saw nothing: {report:#}");
    assert_eq!(report["summary"]["parsing_errors"], 0, "{report:#}");
    let failed = report["results"]["failed_checks"].as_array().unwrap();
    let finding = |check: &Value| {
        let kind = check["resource"].as_str().unwrap().split('.').next().unwrap().to_owned();
        (check["check_id"].as_str().unwrap().to_owned(), kind)
    };
    failed.iter().map(finding).collect()
}

#[test]
fn that_was_not_decided() {
    let Some(scanner) = std::env::var("GRISTMILL_CHECKOV").ok().filter(|path| !path.is_empty()) else {
        helm::skipped(
            "a security scanner",
            "GRISTMILL_CHECKOV is not set; `cargo xtask chart --scan` fetches it",
        );
        return;
    };
    helm::with_one(|helm| {
        let mut found = BTreeSet::new();
        for (name, values) in files::matrix() {
            let file = std::env::temp_dir().join(format!("gristmill-scan-{}-{name}", std::process::id()));
            std::fs::write(&file, helm.text(&["--kube-version", helm::KUBERNETES], &values)).unwrap();
            let findings = findings(&scanner, &file);
            std::fs::remove_file(&file).unwrap();
            for (check, kind) in findings {
                let decided =
                    DECIDED.iter().position(|(id, of, _)| *id == check && ["*", kind.as_str()].contains(of));
                match decided {
                    Some(at) => drop(found.insert(at)),
                    None => panic!("{name}: {check} on a {kind}"),
                }
            }
        }
        assert_eq!(found.len(), DECIDED.len(), "a decision that nothing is found against: {found:?}");
    });
}
