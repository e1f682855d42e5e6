//! The grace period of every pod is what its drain needs, and the program is told the same numbers.

use gristmill_chart_tests::helm;
use gristmill_chart_tests::objects::at;
use gristmill_chart_tests::pods::{self, Pod};

const BASE: &str = "redis: {existingSecret: a}\nworkers: {default: {queues: [a]}, slow: {queues: [b], drain: {windowSeconds: 900}}}\n\
                    ingest: {enabled: true, tokensSecret: t}\n";

fn number(pod: &Pod, variable: &str) -> u64 {
    pod.environment()[variable].parse().unwrap()
}

fn grace(pod: &Pod) -> u64 {
    pod.spec()["terminationGracePeriodSeconds"].as_u64().unwrap()
}

#[test]
fn the_period_is_computed() {
    helm::with_one(|helm| {
        let release = helm.render(BASE);
        let of = |role: &str| grace(&pods::of_deployment(&release, &format!("r-gristmill-{role}")));
        assert_eq!(of("worker-default"), 25 + 5 + 5);
        assert_eq!(of("worker-slow"), 900 + 5 + 5);
        assert_eq!(of("ingest"), 5 + 25 + 5 + 5);
        assert_eq!(of("monitor"), 25 + 5 + 5);
        let hook = pods::of_deployment(&release, "r-gristmill-ingest");
        assert_eq!(at(hook.program(), "/lifecycle/preStop/sleep/seconds"), 5);

        // Before 1.30 there is no such hook, and nothing is added for it.
        let old = helm.render_for("1.29.0", BASE);
        let ingest = pods::of_deployment(&old, "r-gristmill-ingest");
        assert!(ingest.program()["lifecycle"].is_null());
        assert_eq!(grace(&ingest), 35);

        let longer = helm.render(&format!(
            "{BASE}drain: {{graceSeconds: 8, marginSeconds: 7, terminationGracePeriodSeconds: 1000}}\n"
        ));
        assert_eq!(grace(&pods::of_deployment(&longer, "r-gristmill-worker-default")), 1000);
        assert_eq!(grace(&pods::of_deployment(&longer, "r-gristmill-worker-slow")), 1000);
        let exact = helm.render(&format!("{BASE}drain: {{graceSeconds: 8, marginSeconds: 7}}\n"));
        assert_eq!(grace(&pods::of_deployment(&exact, "r-gristmill-worker-slow")), 900 + 8 + 7);
    });
}

#[test]
fn the_program_is_told_the_same() {
    helm::with_one(|helm| {
        pods::of_every_file(helm, |name, _, pod| {
            let told = number(pod, "GRISTMILL__DRAIN__WINDOW_MS") + number(pod, "GRISTMILL__DRAIN__GRACE_MS");
            let stop = at(pod.program(), "/lifecycle/preStop/sleep/seconds").as_u64().unwrap_or(0);
            let left = (grace(pod) * 1000).checked_sub(stop * 1000 + told);
            assert!(left.is_some_and(|ms| ms >= 1000), "{name}: {} has {left:?} ms left", pod.of);
        });
        let slow = helm.render(BASE);
        let slow = pods::of_deployment(&slow, "r-gristmill-worker-slow");
        assert_eq!(number(&slow, "GRISTMILL__DRAIN__WINDOW_MS"), 900_000);
        assert_eq!(number(&slow, "GRISTMILL__DRAIN__GRACE_MS"), 5_000);
    });
}

#[test]
fn the_notes_tell_the_numbers_and_warn() {
    let Some(helm) = helm::all().into_iter().find(|helm| helm.to_string() == "Helm 4") else { return };
    let notes = |values: &str| helm.notes(&[], values).unwrap();
    let said = notes(BASE);
    for line in [
        "workers.default          window 25 s + flush 5 s + margin 5 s -> grace period 35 s",
        "workers.slow             window 900 s + flush 5 s + margin 5 s -> grace period 910 s",
        "ingest                   window 25 s + flush 5 s + margin 5 s + preStop 5 s -> grace period 40 s",
        "workers.default          2 x (start + 10 s), and up to 35 s until the last old pod is gone",
        "helm test r --namespace jobs",
        "http://r-gristmill-ingest.jobs.svc:8080/v1/queues/QUEUE/jobs",
        "WARNING workers.slow: the grace period is 910 s.",
        "WARNING tracing is off",
        "WARNING nobody is told to scrape the metrics",
        "WARNING image.repository is localhost/gristmill",
    ] {
        assert!(said.contains(line), "no `{line}` in\n{said}");
    }
    assert!(!said.contains("WARNING workers.default"), "{said}");

    let quiet = notes(
        "redis: {existingSecret: a}\nworkers: {default: {queues: [a]}}\nimage: {repository: registry.example/jobs}\n\
         tracing: {enabled: true, endpoint: \"http://a:4317\"}\nmetrics: {podMonitor: {enabled: true}}\n",
    );
    assert!(!quiet.contains("WARNING"), "{quiet}");

    let careless = notes(
        "redis: {url: \"redis://:secret@a\"}\npostgres: {url: \"postgres://a:b@c/d\"}\n\
         workers: {default: {queues: [a], replicas: 1}}\n\
         config: {kinds: {mail: {http: \"https://a\", hard_limit_ms: 40000}, quick: {http: \"https://a\"}}, remote: {hard_limit_ms: 1000}}\n",
    );
    for warning in [
        "WARNING redis.url holds a password",
        "WARNING postgres.url holds a password",
        "WARNING workers.default: a single replica.",
        "WARNING workers.default: runs of remote kinds may take 40000 ms",
    ] {
        assert!(careless.contains(warning), "no `{warning}` in\n{careless}");
    }
}
