use super::*;
use gristmill_job::Backoff;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder of one test, removed at its end.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gristmill-settings-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(super) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn layers(file: Option<&Path>, variables: &[(&str, &str)], set: &[(&str, &str)]) -> Layers {
    let over = |&(key, value): &(&str, &str)| Override {
        key: key.into(),
        value: value.into(),
        origin: "--set".into(),
    };
    Layers {
        file: file.map(Path::to_path_buf),
        environment: variables.iter().map(|&(name, value)| (name.into(), value.into())).collect(),
        overrides: set.iter().map(over).collect(),
    }
}

pub(super) fn load(
    file: Option<&Path>,
    variables: &[(&str, &str)],
    set: &[(&str, &str)],
) -> Result<Settings, String> {
    Settings::load(&layers(file, variables, set)).map_err(|error| error.to_string())
}

fn complaint(variables: &[(&str, &str)]) -> String {
    match load(None, variables, &[]) {
        Err(error) => error,
        Ok(settings) => settings.node().unwrap_err().to_string(),
    }
}

#[test]
fn the_built_in_file_equals_the_defaults_in_code() {
    let settings = load(None, &[], &[("queues", "q"), ("node.name", "n")]).unwrap();
    let queue = QueueConfig::new(QueueName::new("q").unwrap());
    let expected = NodeConfig::new("n", RedisConfig::new("redis://127.0.0.1:6379"), vec![queue]);
    assert_eq!(settings.node().unwrap(), expected);
    assert_eq!(settings.job_limits(), JobLimits::default());
    let ingest = gristmill_ingest::IngestConfig::new(([127, 0, 0, 1], 8080).into());
    assert_eq!(settings.ingest().unwrap(), ingest);
    let untouched = load(None, &[], &[]).unwrap();
    assert!(untouched.entries().iter().all(|entry| entry.origin == "the built-in defaults"));
    assert!(!untouched.node_name().is_empty());
}

#[test]
fn what_the_ingest_server_cannot_be_told_is_named() {
    for (key, value, expected) in [
        ("ingest.listen", "localhost", "an address and a port"),
        ("ingest.listen", "", "an address and a port"),
        ("ingest.max_body_bytes", "10", "1024 to 1073741824"),
        ("ingest.max_jobs", "0", "1 to 1000000"),
        ("ingest.body_timeout_ms", "0", "1 to 3600000"),
    ] {
        let complaint = load(None, &[], &[(key, value)]).unwrap().ingest().unwrap_err().to_string();
        assert!(complaint.starts_with(key) && complaint.contains(expected), "{complaint}");
    }
    let given = [("ingest.listen", "[::1]:0"), ("ingest.tokens_file", "t"), ("drain.window_ms", "7")];
    let ingest = load(None, &[], &given).unwrap().ingest().unwrap();
    assert_eq!((ingest.listen.port(), ingest.drain_window), (0, Duration::from_millis(7)));
    assert_eq!(ingest.tokens_file.as_deref(), Some(Path::new("t")));
}

#[test]
fn every_setting_is_shown_under_the_key_it_is_read_from() {
    let shown: Vec<String> =
        load(None, &[], &[]).unwrap().entries().into_iter().map(|entry| entry.key).collect();
    let settings = load(None, &[], &[]).unwrap();
    let mut sorted = shown.clone();
    sorted.sort();
    assert_eq!(sorted, settings.origins.keys().cloned().collect::<Vec<_>>());
}

#[test]
fn the_files_in_the_repository_are_legal() {
    for name in ["default", "development", "production"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../config/{name}.toml"));
        let settings = load(Some(&path), &[], &[("queues", "q")]).unwrap();
        settings.node().unwrap();
        settings.log_format().unwrap();
    }
}

#[test]
fn later_layers_win_and_each_value_knows_where_it_came_from() {
    let folder = Folder::new("layers");
    let file = folder.file(
        "a.toml",
        "queues = [\"a:2\", \"b\"]\n[lease]\nttl_ms = 4000\nrenewal_ms = 800\n[node]\nslots = 7\n",
    );
    let variables = [
        ("GRISTMILL__LEASE__TTL_MS", "3000"),
        ("GRISTMILL__NODE__NAME", "007"),
        ("GRISTMILL__NODE__SLOTS", ""),
        ("GRISTMILL_ENV", "not a setting"),
        ("GRISTMILL_NODE_SLOTS", "not a setting either"),
    ];
    let settings = load(Some(&file), &variables, &[("lease.margin_ms", "900")]).unwrap();
    let node = settings.node().unwrap();
    assert_eq!(node.name, "007", "a text that looks like a number stays what it is");
    assert_eq!(node.slots, 7, "an empty variable says nothing");
    let lease = (node.lease_ttl, node.lease_renewal, node.lease_margin);
    assert_eq!(lease, (Duration::from_millis(3000), Duration::from_millis(800), Duration::from_millis(900)));
    let queues: Vec<_> = node.queues.iter().map(|queue| (queue.name.as_str(), queue.partitions)).collect();
    assert_eq!(queues, [("a", 2), ("b", 64)]);
    let origin = |key: &str| settings.entries().into_iter().find(|entry| entry.key == key).unwrap().origin;
    assert_eq!(origin("lease.ttl_ms"), "the variable GRISTMILL__LEASE__TTL_MS");
    assert!(origin("lease.renewal_ms").ends_with("a.toml"), "{}", origin("lease.renewal_ms"));
    assert_eq!(origin("lease.margin_ms"), "--set");
    assert_eq!(origin("drain.window_ms"), "the built-in defaults");
}

#[test]
fn a_list_from_the_environment_is_split_on_commas() {
    let settings = load(None, &[("GRISTMILL__QUEUES", "orders:64, prices:8,")], &[]).unwrap();
    let queues: Vec<_> =
        settings.queues().unwrap().into_iter().map(|q| (q.name.to_string(), q.partitions)).collect();
    assert_eq!(queues, [("orders".into(), 64), ("prices".into(), 8)]);
    // One element that looks like a number is still a name.
    assert_eq!(
        load(None, &[("GRISTMILL__QUEUES", "7")], &[]).unwrap().queues().unwrap()[0].name.as_str(),
        "7"
    );
}

#[test]
fn a_queue_may_differ_from_the_others() {
    let folder = Folder::new("queues");
    let file = folder.file(
        "a.toml",
        "queues = [\"a\", \"b.2\"]\n[queue]\ncrash_budget = 5\n[queue.\"b.2\"]\nafter_dead_letter = \"hold\"\n",
    );
    let set = [("queue.b.2.dead_max_age_ms", "60000"), ("retry.budget_percent", "50")];
    let settings = load(Some(&file), &[("GRISTMILL__QUEUE__A__CRASH_BUDGET", "7")], &set).unwrap();
    let queues = settings.queues().unwrap();
    let said = |at: usize| {
        let queue: &QueueConfig = &queues[at];
        (queue.after_dead_letter.as_str(), queue.crash_budget, queue.dead_max_age, queue.retry_budget.share)
    };
    assert_eq!(said(0), ("continue", 7, None, 0.5));
    assert_eq!(said(1), ("hold", 5, Some(Duration::from_secs(60)), 0.5));
    let entries = settings.entries();
    let entry = entries.iter().find(|entry| entry.key == "queue.b.2.after_dead_letter").unwrap();
    assert!(entry.value == "hold" && entry.origin.ends_with("a.toml"), "{entry:?}");
    let error = load(None, &[], &[("queue.a.crash_budged", "1")]).unwrap_err();
    assert!(error.starts_with("queue.a.crash_budged: there is no such setting"), "{error}");
}

#[test]
fn a_queue_may_have_retries_of_its_own() {
    let set = [
        ("queue.b.retry_shape", "linear"),
        ("queue.b.retry_max_attempts", "3"),
        ("queue.b.retry_budget_per_second", "7"),
        ("retry.max_age_ms", "60000"),
    ];
    let settings = load(None, &[("GRISTMILL__QUEUES", "a,b")], &set).unwrap();
    let queues = settings.queues().unwrap();
    let second = Duration::from_secs(1);
    let exponential = Backoff::Exponential { base: second };
    assert_eq!((&queues[0].retry.backoff, queues[0].retry.max_attempts), (&exponential, 10));
    assert_eq!(
        (&queues[1].retry.backoff, queues[1].retry.max_attempts),
        (&Backoff::Linear { step: second }, 3)
    );
    assert!(queues.iter().all(|queue| queue.retry.max_age == Some(second * 60)));
    assert_eq!((queues[0].retry_budget.per_second, queues[1].retry_budget.per_second), (10.0, 7.0));
    for (key, value, expected) in [
        (
            "queue.b.retry_shape",
            "square",
            "queue.b.retry_shape: expected exponential, linear or fixed, got \"square\"",
        ),
        ("queue.b.retry_cap_ms", "1", "queue.b.retry_cap_ms: expected at least retry.base_ms (1000)"),
        ("queue.b.retry_colour", "1", "queue.b.retry_colour: there is no such setting"),
    ] {
        let loaded = load(None, &[("GRISTMILL__QUEUES", "a,b")], &[(key, value)]);
        let error =
            loaded.and_then(|settings| settings.queues().map_err(|e| e.to_string()).map(drop)).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn unknown_keys_are_refused_by_name_with_the_nearest_known_one() {
    let cases = [
        (
            "GRISTMILL__LEASE__TLL_MS",
            "lease.tll_ms: there is no such setting (from the variable GRISTMILL__LEASE__TLL_MS); did you mean lease.ttl_ms?",
        ),
        (
            "GRISTMILL__NODE__TTL_MS",
            "node.ttl_ms: there is no such setting (from the variable GRISTMILL__NODE__TTL_MS); did you mean lease.ttl_ms?",
        ),
        (
            "GRISTMILL__FLAVOUR__OF_THE_DAY",
            "flavour.of_the_day: there is no such setting (from the variable GRISTMILL__FLAVOUR__OF_THE_DAY)",
        ),
    ];
    for (variable, expected) in cases {
        assert_eq!(complaint(&[(variable, "1")]), expected);
    }
    let folder = Folder::new("unknown");
    let file = folder.file("a.toml", "[redis]\nurll = \"redis://:secret@h\"\n[lease]\nttl = 3\n");
    let error = load(Some(&file), &[], &[]).unwrap_err();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 2, "all of them at once: {error}");
    assert!(
        lines[0].starts_with("lease.ttl: ")
            && lines[0].contains("a.toml")
            && lines[0].ends_with("lease.ttl_ms?"),
        "{error}"
    );
    assert!(lines[1].starts_with("redis.urll: ") && !error.contains("secret"), "{error}");
}

#[test]
fn a_wrong_value_says_key_expectation_what_came_and_from_where() {
    let from = |name: &str| format!("(from the variable {name})");
    let cases = [
        (
            "GRISTMILL__LEASE__TTL_MS",
            "5s",
            "lease.ttl_ms: expected a whole number of milliseconds, got \"5s\"",
        ),
        (
            "GRISTMILL__LEASE__TTL_MS",
            " 9",
            "lease.ttl_ms: expected a whole number of milliseconds, got \" 9\"",
        ),
        ("GRISTMILL__WINDOW__BYTES", "-1", "window.bytes: expected a whole number of bytes, got \"-1\""),
        ("GRISTMILL__NODE__SLOTS", "many", "node.slots: expected a whole number, got \"many\""),
        (
            "GRISTMILL__NODE__SLOTS",
            "99999999999999999999",
            "node.slots: expected a whole number, got \"99999999999999999999\"",
        ),
        ("GRISTMILL__REDIS", "redis://:secret@h", "redis: expected a section"),
        ("GRISTMILL__LOG__FORMAT", "xml", "log.format: expected human or json, got \"xml\""),
        ("GRISTMILL__LOG__LEVEL", "loud", "log.level: expected a level or directives (a level is off, error"),
        ("GRISTMILL__REDIS__URL", "http://u:secret@h", "redis.url: expected redis://["),
        (
            "GRISTMILL__REDIS__CA_FILE",
            "/nowhere.pem",
            "redis.ca_file: expected to be used with a redis.url that begins with rediss://",
        ),
        (
            "GRISTMILL__REDIS__URL_FILE",
            "/nowhere",
            "redis.url_file: expected a file that can be read, got \"/nowhere\": No such file",
        ),
        (
            "GRISTMILL__REDIS__RESPONSE_TIMEOUT_MS",
            "0",
            "redis.response_timeout_ms: expected 1 to 600000 ms, got 0 ms",
        ),
        ("GRISTMILL__QUEUES", "Orders", "queues: expected name or name:partitions, where a name is 1 to 64"),
        (
            "GRISTMILL__QUEUES",
            "a:b",
            "queues: expected name:partitions with 1 to 1024 partitions, got \"a:b\"",
        ),
        (
            "GRISTMILL__QUEUES",
            "a:2000",
            "queues: expected name:partitions with 1 to 1024 partitions, got \"a:2000\"",
        ),
        ("GRISTMILL__QUEUES", "a,a", "queues: expected each queue once, got \"a\" twice"),
        (
            "GRISTMILL__QUEUE__A__CRASH_BUDGET",
            "no",
            "queue.a.crash_budget: expected a whole number, got \"no\"",
        ),
        (
            "GRISTMILL__NODE__BLOCKED_AFTER_MS",
            "-",
            "node.blocked_after_ms: expected a whole number of millisec",
        ),
        (
            "GRISTMILL__RETRY__CAP_MS",
            "10",
            "retry.cap_ms: expected at least retry.base_ms (1000) and retry.floor_ms (100), got 10 ms",
        ),
    ];
    for (name, value, expected) in cases {
        let error = complaint(&[(name, value)]);
        assert!(error.starts_with(expected), "{name}={value}: {error}");
        assert!(error.ends_with(&from(name)), "{name}={value}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn values_that_do_not_go_together_are_named_with_the_relation() {
    let queue = ("GRISTMILL__QUEUES", "q");
    let cases = [
        ("GRISTMILL__LEASE__MARGIN_MS", "1", "lease.margin_ms: expected at least lease.renewal_ms"),
        (
            "GRISTMILL__LEASE__RENEWAL_MS",
            "4000",
            "lease.renewal_ms: expected 50 ms or more, and at most a third",
        ),
        ("GRISTMILL__RETRY__MAX_ATTEMPTS", "0", "retry.max_attempts: expected 1 or more, got 0"),
        ("GRISTMILL__WINDOW__BYTES", "1024", "window.bytes: expected at least job.max_bytes"),
        ("GRISTMILL__NODE__BLOCKED_AFTER_MS", "10", "node.blocked_after_ms: expected 1000 ms or more"),
        ("GRISTMILL__RETRY__BUDGET_PER_SECOND", "0", "retry.budget_per_second: expected 1 or more"),
        ("GRISTMILL__QUEUE__CRASH_BUDGET", "0", "queue.crash_budget: expected 1 or more, got 0"),
        ("GRISTMILL__QUEUE__Q__CRASH_BUDGET", "0", "queue.q.crash_budget: expected 1 or more, got 0"),
        ("GRISTMILL__QUEUE__DEAD_MAX_AGE_MS", "5", "queue.dead_max_age_ms: expected 1000 ms or more, or 0"),
        ("GRISTMILL__QUEUE__AFTER_DEAD_LETTER", "stop", "queue.after_dead_letter: expected continue or hold"),
        (
            "GRISTMILL__QUEUE__Q__AFTER_DEAD_LETTER",
            "x",
            "queue.q.after_dead_letter: expected continue or hold",
        ),
    ];
    for (name, value, expected) in cases {
        let error = complaint(&[queue, (name, value)]);
        assert!(
            error.starts_with(expected) && error.ends_with(&format!("(from the variable {name})")),
            "{error}"
        );
    }
    assert!(
        complaint(&[])
            .starts_with("queues: expected at least one queue to serve, got none (from the built-in")
    );
}

#[test]
fn values_of_a_wrong_kind_in_a_file_are_refused() {
    let folder = Folder::new("kinds");
    let cases = [
        ("queues = [1]", "queues: expected a list of texts, or one text with commas, got [1]"),
        ("queues = 3", "queues: expected a list of texts"),
        ("[node]\nname = 7", "node.name: expected a text, got 7"),
        ("[redis]\nurl = [\"redis://:secret@h\"]", "redis.url: expected a text, got a list"),
        ("[lease]\nttl_ms = 1.5", "lease.ttl_ms: expected a whole number of milliseconds, got 1.5"),
        ("lease = 3", "lease: expected a section with settings of its own, got a number"),
    ];
    for (n, (text, expected)) in cases.into_iter().enumerate() {
        let file = folder.file(&format!("{n}.toml"), text);
        let error = load(Some(&file), &[], &[]).unwrap_err();
        assert!(error.starts_with(expected) && error.contains(&format!("{n}.toml")), "{text}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn a_file_that_is_missing_or_no_toml_is_named_and_its_lines_are_not_quoted() {
    let missing = load(Some(Path::new("/nowhere/production.toml")), &[], &[]).unwrap_err();
    assert!(
        missing.starts_with("cannot read the settings in /nowhere/production.toml: No such file"),
        "{missing}"
    );
    let folder = Folder::new("syntax");
    let file = folder.file("a.toml", "[redis]\nurl = \"redis://:secret@h\n");
    let error = load(Some(&file), &[], &[]).unwrap_err();
    assert!(error.contains("a.toml") && error.contains("line 2") && !error.contains("secret"), "{error}");
}

#[test]
fn overrides_name_a_known_key() {
    let error = load(None, &[], &[("", "1")]).unwrap_err();
    assert_eq!(error, "--set: expected SECTION.KEY=VALUE, got the key \"\"");
    assert!(load(None, &[], &[("lease.tl_ms", "1")]).unwrap_err().contains("did you mean lease.ttl_ms?"));
}

#[test]
fn secrets_come_from_files_and_are_never_shown() {
    let folder = Folder::new("secrets");
    let password = folder.file("password", "s3cr et\n");
    let password = password.to_str().unwrap();
    let url = ("GRISTMILL__REDIS__URL", "rediss://worker@db:6380/1");
    let by_password = ("GRISTMILL__REDIS__PASSWORD_FILE", password);
    let ca = folder.file("ca.pem", "-----BEGIN CERTIFICATE-----\n");
    let by_ca = ("GRISTMILL__REDIS__CA_FILE", ca.to_str().unwrap());
    let settings = load(None, &[url, by_password, by_ca], &[("queues", "q")]).unwrap();
    let redis = settings.redis().unwrap();
    assert_eq!(redis.url, "rediss://worker:s3cr%20et@db:6380/1");
    assert!(redis.ca_pem.is_some());

    let whole = folder.file("url", "redis://:s3cret@db\r\n");
    let by_file = ("GRISTMILL__REDIS__URL_FILE", whole.to_str().unwrap());
    let from_file = load(None, &[by_file], &[]).unwrap();
    assert_eq!(from_file.redis().unwrap().url, "redis://:s3cret@db");

    let inline = load(None, &[("GRISTMILL__REDIS__URL", "redis://u:s3cret@db")], &[("queues", "q")]).unwrap();
    let shown =
        format!("{settings:?} {:?} {inline:?} {:?} {:?}", settings.redis(), inline.node(), inline.entries());
    assert!(!shown.contains("s3cr") && shown.contains("redis://***@db"), "{shown}");

    let both = load(None, &[url, by_file], &[]).unwrap().redis().unwrap_err().to_string();
    assert!(both.starts_with("redis.url_file: expected either the URL or a file with it"), "{both}");
    let twice = [("GRISTMILL__REDIS__URL", "redis://u:old@db"), by_password];
    let twice = load(None, &twice, &[]).unwrap().redis().unwrap_err().to_string();
    assert!(twice.starts_with("redis.password_file: expected no password file"), "{twice}");
    let empty = folder.file("empty", "\n");
    let empty = load(None, &[("GRISTMILL__REDIS__PASSWORD_FILE", empty.to_str().unwrap())], &[]).unwrap();
    assert!(empty.redis().unwrap_err().to_string().contains("with nothing in it"));
}
