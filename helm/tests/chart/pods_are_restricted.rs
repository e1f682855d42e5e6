//! Every pod, hooks and tests included, meets the Pod Security Standard "restricted", has a read-only root, no token, and
//! no secret where it could be read by others.

use gristmill_chart_tests::objects::{Release, at};
use gristmill_chart_tests::pods::{self, Pod};
use gristmill_chart_tests::{files, helm};
use serde_json::{Value, json};

fn complaints(pod: &Pod) -> Vec<String> {
    let spec = pod.spec();
    let mut said = Vec::new();
    let mut ensure = |ok: bool, what: &str| {
        if !ok {
            said.push(format!("{}: {what}", pod.of));
        }
    };
    for host in ["hostNetwork", "hostPID", "hostIPC"] {
        ensure(spec[host] != json!(true), host);
    }
    let plain = [
        "configMap",
        "secret",
        "emptyDir",
        "projected",
        "downwardAPI",
        "csi",
        "persistentVolumeClaim",
        "ephemeral",
    ];
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        let kinds: Vec<_> = volume.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
        ensure(kinds.iter().all(|kind| *kind == "name" || plain.contains(kind)), "a volume of another kind");
    }
    ensure(spec["automountServiceAccountToken"] == json!(false), "a token is mounted");
    ensure(spec["enableServiceLinks"] == json!(false), "services are told in the environment");
    for container in pod.containers() {
        let name = container["name"].as_str().unwrap_or_default();
        let own = |path: &str| match at(container, &format!("/securityContext/{path}")) {
            Value::Null => at(spec, &format!("/securityContext/{path}")),
            found => found,
        };
        let mut ensure = |ok: bool, what: &str| ensure(ok, &format!("{name}: {what}"));
        ensure(own("runAsNonRoot") == &json!(true), "may run as root");
        ensure(own("runAsUser") != &json!(0), "runs as root");
        ensure(
            ["RuntimeDefault", "Localhost"].map(Value::from).contains(own("seccompProfile/type")),
            "no seccomp",
        );
        let context = &container["securityContext"];
        ensure(context["allowPrivilegeEscalation"] == json!(false), "may escalate");
        ensure(context["privileged"] != json!(true), "is privileged");
        ensure(at(context, "/capabilities/drop") == &json!(["ALL"]), "keeps capabilities");
        let added = at(context, "/capabilities/add").as_array().map_or(0, Vec::len);
        ensure(added == 0, "adds capabilities");
        for port in container["ports"].as_array().into_iter().flatten() {
            ensure(port["hostPort"].is_null(), "a port of the host");
        }
        if name == "gristmill" {
            ensure(context["readOnlyRootFilesystem"] == json!(true), "may write to its root");
            ensure(at(container, "/resources/limits/memory").is_string(), "has no limit of memory");
            ensure(container["command"].is_null(), "names a command: the image's entrypoint is the program");
        }
    }
    said
}

#[test]
fn in_every_file_of_values() {
    helm::with_one(|helm| {
        let mut seen = 0;
        for (name, values) in files::matrix() {
            for pod in pods::all(&helm.render(&values)) {
                let complaints = complaints(&pod);
                assert!(complaints.is_empty(), "{name}:\n{}", complaints.join("\n"));
                seen += 1;
            }
        }
        assert!(seen > 15, "only {seen} pods");
    });
}

#[test]
fn and_a_planted_hole_is_found() {
    helm::with_one(|helm| {
        let base = "redis: {existingSecret: a}\nworkers: {default: {queues: [a]}}\nmonitor: {enabled: false}\ntest: {enabled: false}\n";
        let holes = [
            (
                "pod: {securityContext: {runAsNonRoot: false}, containerSecurityContext: {runAsNonRoot: null}}",
                "may run as root",
            ),
            ("pod: {securityContext: {seccompProfile: null}}", "no seccomp"),
            ("pod: {containerSecurityContext: {capabilities: {add: [NET_ADMIN]}}}", "adds capabilities"),
            ("pod: {containerSecurityContext: {readOnlyRootFilesystem: false}}", "may write to its root"),
            ("pod: {extraVolumes: [{name: a, hostPath: {path: /}}]}", "a volume of another kind"),
            ("pod: {sidecars: [{name: a, image: b}]}", "a: may escalate"),
            ("pod: {template: {spec: {hostNetwork: true}}}", "hostNetwork"),
            ("pod: {template: {spec: {automountServiceAccountToken: true}}}", "a token is mounted"),
        ];
        for (hole, says) in holes {
            let release = helm.render(&format!("{base}{hole}\n"));
            let said = complaints(&pods::of_deployment(&release, "r-gristmill-worker-default")).join("\n");
            assert!(said.contains(says), "{hole}: {said}");
        }
    });
}

/// The word stands where a password would.
const SECRETS: &str = "
redis: {url: \"redis://user:HUSHHUSH@redis:6379\"}
postgres:
  url: postgres://user:HUSHHUSH@db/jobs
  migrate: {enabled: true}
workers: {default: {queues: [a]}}
relay: {enabled: true}
";

#[test]
fn secrets_are_in_secrets_alone() {
    for helm in helm::all() {
        let release = helm.render(SECRETS);
        let holders: Vec<_> = release
            .iter()
            .filter(|(_, _, object)| object.to_string().contains("HUSHHUSH"))
            .map(|(kind, name, _)| format!("{kind} {name}"))
            .collect();
        let secrets =
            ["Secret r-gristmill-migrate", "Secret r-gristmill-postgres", "Secret r-gristmill-redis"];
        assert_eq!(holders, secrets);
        let notes = helm.notes(&[], SECRETS).unwrap_or_default();
        assert!(!notes.contains("HUSHHUSH"));
    }
}

#[test]
fn and_reach_pods_as_files() {
    helm::with_one(|helm| {
        let files = |release: &Release, deployment: &str| -> Vec<String> {
            let secrets = pods::of_deployment(release, deployment).secrets();
            secrets.iter().map(|(path, from)| format!("{path} {from}")).collect()
        };
        let own = helm.render(SECRETS);
        let both = [
            "/run/gristmill/postgres/url r-gristmill-postgres/url",
            "/run/gristmill/redis/url r-gristmill-redis/url",
        ];
        for role in ["worker-default", "monitor", "relay"] {
            assert_eq!(files(&own, &format!("r-gristmill-{role}")), both, "{role}");
        }
        // The hook runs before the Secrets of the release are there: it brings one of its own, and no more than it needs.
        let hook =
            pods::all(&own).into_iter().find(|pod| pod.of == "Job r-gristmill-migrate").unwrap().secrets();
        assert_eq!(hook["/run/gristmill/postgres/url"], "r-gristmill-migrate/url");
        assert_eq!(hook.len(), 1);

        let given = "
redis: {existingSecret: r, existingSecretKey: a.b, passwordSecret: p, passwordSecretKey: c, tls: {caSecret: ca, caSecretKey: d}}
postgres: {existingSecret: db, existingSecretKey: uri, tls: {caSecret: dbca}}
workers: {default: {queues: [a]}}
ingest: {enabled: true, tokensSecret: t, tokensSecretKey: e}
";
        let given = helm.render(given);
        assert_eq!(
            files(&given, "r-gristmill-worker-default"),
            [
                "/run/gristmill/postgres-ca/ca.crt dbca/ca.crt",
                "/run/gristmill/postgres/url db/uri",
                "/run/gristmill/redis-ca/ca.crt ca/d",
                "/run/gristmill/redis-password/password p/c",
                "/run/gristmill/redis/url r/a.b",
            ]
        );
        let ingest = files(&given, "r-gristmill-ingest");
        assert!(ingest.contains(&"/run/gristmill/ingest-tokens/tokens t/e".to_owned()), "{ingest:?}");
        assert!(
            !ingest.iter().any(|file| file.contains("postgres")),
            "jobs by HTTP need no Postgres: {ingest:?}"
        );
        assert_eq!(given.of("Secret"), Vec::<&str>::new(), "nothing of the user's is copied");

        // Each file is named by a setting or a variable.
        for pod in pods::all(&given) {
            let environment = pod.environment();
            for path in pod.secrets().keys() {
                assert!(
                    environment.values().any(|value| value == path),
                    "{}: nobody is told of {path}",
                    pod.of
                );
            }
        }
    });
}
