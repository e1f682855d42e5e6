//! What cannot work together is refused before it reaches a cluster, with words that say what to do. A last test sees to
//! it that no refusal of the templates is without a case here.

use gristmill_chart_tests::{files, helm};

/// What every case has that is not about it.
const REST: &str = "redis: {existingSecret: redis}\nworkers: {default: {queues: [orders]}}\n";

struct Case {
    values: String,
    says: &'static str,
}

/// Without what every release needs.
fn bare(values: &str, says: &'static str) -> Case {
    Case { values: values.to_owned(), says }
}

fn case(values: &str, says: &'static str) -> Case {
    let key = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
    let given: Vec<String> = values.lines().map(key).collect();
    let rest: Vec<&str> = REST.lines().filter(|line| !given.contains(&key(line))).collect();
    Case { values: format!("{values}\n{}\n", rest.join("\n")), says }
}

fn pool(values: &str, says: &'static str) -> Case {
    case(&format!("workers: {{default: {{queues: [orders], {values}}}}}"), says)
}

fn cases() -> Vec<Case> {
    [connections(), settings(), services(), rollouts(), scaling(), queues()].into_iter().flatten().collect()
}

fn connections() -> Vec<Case> {
    vec![
        bare("workers: {default: {queues: [a]}}", "how is Redis reached? Give redis.existingSecret"),
        case(
            "redis: {url: \"redis://a\", existingSecret: b}",
            "redis.url and redis.existingSecret exclude each other",
        ),
        case(
            "postgres: {url: \"postgres://a/b\", existingSecret: c}",
            "postgres.url and postgres.existingSecret exclude each other",
        ),
        case("postgres: {relay: true}", "postgres.relay needs postgres.existingSecret or postgres.url"),
        case("relay: {enabled: true}", "relay.enabled needs postgres.existingSecret or postgres.url"),
        case(
            "postgres: {existingSecret: c, relay: true}\nrelay: {enabled: true}",
            "postgres.relay and relay.enabled exclude each other",
        ),
        case(
            "postgres: {migrate: {enabled: true}}",
            "postgres.migrate.enabled needs postgres.migrate.existingSecret, postgres.existingSecret or postgres.url",
        ),
    ]
}

fn settings() -> Vec<Case> {
    vec![
        case(
            "config: {drain: {window_ms: 1000}}",
            "config.drain.window_ms is set by the chart, from: drain.windowSeconds",
        ),
        case("config: {redis: {url: \"redis://a\"}}", "config.redis.url is set by the chart"),
        case("config: {queues: [a]}", "config.queues is set by the chart, from: workers.<pool>.queues"),
        case("config: {postgres: {relay: false}}", "config.postgres.relay is set by the chart"),
        case("worker: {config: {node: {slots: 5}}}", "worker.config.node.slots is set by the chart"),
        pool(
            "config: {log: {level: debug}}",
            "workers.default.config.log.level is set by the chart, from: log.level",
        ),
        case(
            "config: {retry: {base_ms: 5}}\nexistingConfigMap: mine",
            "existingConfigMap and config exclude each other",
        ),
        case(
            "existingConfigMap: mine\nworkers: {default: {queues: [a], config: {retry: {base_ms: 5}}}}",
            "existingConfigMap and workers.<pool>.config exclude each other",
        ),
        case(
            "existingConfigMap: mine\nworker: {config: {retry: {base_ms: 5}}}",
            "existingConfigMap and workers.<pool>.config exclude each other",
        ),
        case(
            "pod: {extraEnv: [{name: GRISTMILL__DRAIN__WINDOW_MS, value: \"1\"}]}",
            "pod.extraEnv must not hold GRISTMILL__DRAIN__WINDOW_MS: the chart sets it",
        ),
        pool(
            "pod: {extraEnv: [{name: GRISTMILL__QUEUES, value: a}]}",
            "workers.default: pod.extraEnv must not hold GRISTMILL__QUEUES",
        ),
        pool(
            "config: {lease: {renewal_ms: 2000}}",
            "workers.default: config.lease.renewal_ms is 2000: at most a third of config.lease.ttl_ms, 5000",
        ),
        case(
            "config: {lease: {margin_ms: 900}}",
            "config.lease.margin_ms is 900: at least config.lease.renewal_ms, 1000, and less than config.lease.ttl_ms - config.lease.renewal_ms, 4000",
        ),
        case("config: {lease: {margin_ms: 4000}}", "config.lease.margin_ms is 4000: at least"),
    ]
}

fn services() -> Vec<Case> {
    vec![
        case("ingest: {enabled: true}", "ingest.enabled needs ingest.tokensSecret"),
        case(
            "ingest: {enabled: true, tokensSecret: a, port: 9464}",
            "ingest.port and health.port are both 9464: they are two servers",
        ),
        case("ingest: {ingress: {enabled: true, host: a}}", "ingest.ingress.enabled needs ingest.enabled"),
        case(
            "ingest: {enabled: true, tokensSecret: a, ingress: {enabled: true}}",
            "ingest.ingress.enabled needs ingest.ingress.host",
        ),
        case(
            "monitor: {enabled: false}\nmetrics: {serviceMonitor: {enabled: true}}",
            "metrics.serviceMonitor.enabled needs monitor.enabled",
        ),
        case("tracing: {enabled: true}", "tracing.enabled needs tracing.endpoint"),
        case("metrics: {otlp: true}", "metrics.otlp needs tracing.endpoint"),
    ]
}

fn rollouts() -> Vec<Case> {
    vec![
        case(
            "drain: {terminationGracePeriodSeconds: 34}",
            "drain.terminationGracePeriodSeconds is 34, and the drain needs 35: preStop 0 + windowSeconds 25 + graceSeconds 5 + marginSeconds 5. Kubernetes would kill",
        ),
        pool(
            "drain: {terminationGracePeriodSeconds: 60, windowSeconds: 55}",
            "workers.default: drain.terminationGracePeriodSeconds is 60, and the drain needs 65",
        ),
        pool(
            "pod: {template: {spec: {terminationGracePeriodSeconds: 30}}}",
            "workers.default: pod.template.spec.terminationGracePeriodSeconds is 30, and the drain needs 35",
        ),
        case(
            "drain: {terminationGracePeriodSeconds: 39}\ningest: {enabled: true, tokensSecret: a}",
            "ingest: drain.terminationGracePeriodSeconds is 39, and the drain needs 40: preStop 5 +",
        ),
        pool(
            "maxSurge: 0",
            "workers.default: maxSurge and maxUnavailable are both 0: no pod could ever be replaced",
        ),
        pool("maxSurge: 0%, maxUnavailable: 0%", "maxSurge and maxUnavailable are both 0"),
        pool(
            "progressDeadlineSeconds: 70",
            "workers.default: progressDeadlineSeconds is 70: it must be more than 70, the time a pod may take to start (60) and minReadySeconds (10)",
        ),
    ]
}

fn scaling() -> Vec<Case> {
    vec![
        pool(
            "hpa: {enabled: true}, keda: {enabled: true}",
            "workers.default: hpa.enabled and keda.enabled exclude each other",
        ),
        case(
            "monitor: {enabled: false}\nworker: {keda: {enabled: true}}",
            "workers.default: keda.enabled needs monitor.enabled",
        ),
        pool(
            "hpa: {enabled: true, minReplicas: 11}",
            "workers.default: hpa.minReplicas is 11 and hpa.maxReplicas is 10",
        ),
        pool(
            "keda: {enabled: true, maxReplicas: 1, minReplicas: 2}",
            "keda.minReplicas is 2 and keda.maxReplicas is 1",
        ),
        pool(
            "keda: {enabled: true, fallbackReplicas: 11}",
            "workers.default: keda.fallbackReplicas is 11 and keda.maxReplicas is 10",
        ),
        pool(
            "hpa: {enabled: true, scaleDownStabilizationSeconds: 24}",
            "workers.default: hpa.scaleDownStabilizationSeconds is 24, less than drain.windowSeconds, 25",
        ),
        pool(
            "keda: {enabled: true}, drain: {windowSeconds: 301}",
            "keda.scaleDownStabilizationSeconds is 300, less than drain.windowSeconds, 301",
        ),
        pool(
            "hpa: {enabled: true, targetCPUUtilizationPercentage: 0}",
            "workers.default: hpa.enabled needs hpa.targetCPUUtilizationPercentage or hpa.metrics",
        ),
        pool(
            "hpa: {enabled: true}, pod: {resources: {requests: {cpu: null}}}",
            "workers.default: hpa.targetCPUUtilizationPercentage is a share of pod.resources.requests.cpu, which is missing",
        ),
        case(
            "ingest: {enabled: true, tokensSecret: a, hpa: {enabled: true, minReplicas: 20}}",
            "ingest: hpa.minReplicas is 20 and hpa.maxReplicas is 10",
        ),
    ]
}

fn queues() -> Vec<Case> {
    vec![
        case("workers: {default: {}}", "workers.default.queues: which queues does this pool serve?"),
        case(
            "workers: {default: {queues: [a]}, mail: {}}",
            "workers.mail.queues: which queues does this pool serve?",
        ),
        case("workers: {default: {queues: [a, \"a:64\"]}}", "workers.default.queues names a twice"),
        case(
            "workers: {default: {queues: [a]}, more: {queues: [\"a:8\"]}}",
            "workers.more.queues: a has 8 partitions here and 64 in another pool",
        ),
    ]
}

#[test]
fn each_with_its_words() {
    for helm in helm::all() {
        for Case { values, says } in cases() {
            let said = helm.refusal(&values);
            assert!(said.contains(says), "{helm} on\n{values}says\n{said}\nand not\n{says}");
        }
    }
}

/// What the cases have in common is taken.
#[test]
fn and_nothing_else_is() {
    helm::with_one(|helm| {
        let _ = helm.render(REST);
        // The least window that still fits: one second more in the cases above is too much.
        let _ = helm.render(&format!("{REST}drain: {{terminationGracePeriodSeconds: 35}}\n"));
        let _ = helm.render(&format!("{REST}config: {{lease: {{margin_ms: 3999}}}}\n"));
        let _ = helm.render(&format!("{REST}worker: {{progressDeadlineSeconds: 71}}\n"));
    });
}

#[test]
fn and_no_refusal_is_without_a_case() {
    let checks = files::read("templates/_checks.tpl");
    let said: Vec<&str> = cases().iter().map(|case| case.says).collect();
    let mut refusals = 0;
    for line in checks.lines().filter(|line| line.contains("fail ")) {
        let (_, message) = line.split_once('"').unwrap();
        let parts = message.replace("\\\"", "'");
        let parts: Vec<&str> = parts.split('"').next().unwrap().split(['%', ';']).collect();
        // The letter behind a percent sign is its own; a piece of a dozen letters tells a message from the others.
        let pieces =
            parts.iter().map(|part| part.get(1..).unwrap_or_default()).filter(|piece| piece.len() > 9);
        let mut heads = pieces.map(|piece| piece.chars().take(22).collect::<String>());
        refusals += 1;
        assert!(
            heads.any(|head| said.iter().any(|says| says.contains(head.trim()))),
            "no case is refused with: {message}"
        );
    }
    assert!(refusals > 25, "{refusals} refusals were found");
}
