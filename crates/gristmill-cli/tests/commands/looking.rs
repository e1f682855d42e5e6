//! `queues`, `dead list`, `doctor`, `config show`, `config check`.

use crate::fixture::{Fixture, SOON};
use gristmill_testkit::eventually;
use gristmill_testkit::server::{Appendonly, ServerOptions};

fn severity(report: &serde_json::Value, check: &str) -> String {
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["check"] == check);
    found.map_or_else(|| "absent".into(), |finding| finding["severity"].as_str().unwrap().into())
}

#[test]
fn queues_dead_letters_and_the_doctor_agree_with_what_happened() {
    let options = ServerOptions::new().appendonly(Appendonly::Everysec).maxmemory(1 << 30, "noeviction");
    let fixture = Fixture::with(options);
    let empty = fixture.run("queues");
    assert_eq!((empty.code, empty.out.as_str()), (0, ""));
    assert!(empty.err.starts_with("there are no queues"), "{empty:?}");
    assert_eq!(fixture.run("dead list").err, "0 of 0 dead letters are shown");
    assert!(fixture.run("dead list q").err.contains("there is no queue q"));

    fixture.enqueue("refuse", &["a", "b", "c"]);
    let waiting = fixture.run("queues --json").json();
    let queue = &waiting["queues"][0];
    assert_eq!((&queue["name"], &queue["partitions"], &queue["owned"]), (&"q".into(), &4.into(), &0.into()));
    assert_eq!((&queue["ready"], &queue["claimed"], &queue["waiting"]), (&3.into(), &0.into(), &3.into()));
    assert!(queue["oldest_age_ms"].is_u64() && queue["nodes"].as_array().unwrap().is_empty(), "{queue}");
    let ill = fixture.run("doctor --json");
    assert_eq!((ill.code, severity(&ill.json(), "q: leases").as_str()), (1, "bad"));

    let node = fixture.stubborn_node("--name reader");
    eventually(SOON, "three dead letters and all partitions owned", || {
        let queues = fixture.run("queues --json").json();
        let queue = &queues["queues"][0];
        (queue["dead"] == 3 && queue["owned"] == 4 && queue["ready"] == 0).then_some(())
    });
    let shown = fixture.run("queues").out;
    assert!(shown.lines().nth(1).unwrap().contains("reader~"), "{shown}");

    let all = fixture.run("dead list --json").json();
    assert_eq!(all["total"], 3);
    let letters = all["dead_letters"].as_array().unwrap();
    let mut keys: Vec<&str> = letters.iter().map(|letter| letter["key"].as_str().unwrap()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b", "c"]);
    let letter = letters.iter().find(|letter| letter["key"] == "b").unwrap();
    assert_eq!(letter["job"], "refuse-b");
    assert_eq!(
        (&letter["kind"], &letter["reason"], &letter["class"]),
        (&"refuse".into(), &"permanent".into(), &"permanent".into())
    );
    assert_eq!((&letter["attempts"], &letter["error"][0]), (&1.into(), &"no use for b".into()));
    let table = fixture.run("dead list q --limit 2");
    assert_eq!(table.out.lines().count(), 3, "{table:?}");
    assert!(
        table.out.contains("no use for ") && table.err.starts_with("2 of 3 dead letters are shown\n"),
        "{table:?}"
    );

    let well = fixture.run("doctor --json");
    let report = well.json();
    assert_eq!((well.code, report["worst"].as_str()), (0, Some("warn")), "{well:?}");
    for (check, expected) in [
        ("eviction policy", "ok"),
        ("memory", "ok"),
        ("persistence", "ok"),
        ("latency", "ok"),
        ("q: streams", "ok"),
        ("q: leases", "ok"),
        ("q: nodes", "ok"),
        ("q: dead letters", "warn"),
    ] {
        assert_eq!(severity(&report, check), expected, "{check}: {report}");
    }
    assert!(fixture.run("doctor").out.contains("→ `gristmill dead list q` says why"));
    drop(node);
}

#[test]
fn the_doctor_finds_what_is_ill() {
    let fixture = Fixture::with(ServerOptions::new().maxmemory(1 << 30, "allkeys-lru"));
    fixture.enqueue("x", &["k"]);
    let stream = gristmill_broker::keys::QueueDefinition::new(gristmill_job::QueueName::new("q").unwrap(), 4);
    fixture.server.command(&["DEL", stream.partition(2).stream.as_str()]).unwrap();
    let report = fixture.run("doctor --json");
    assert_eq!(report.code, 1);
    for check in ["eviction policy", "persistence", "q: streams", "q: leases"] {
        assert_eq!(severity(&report.json(), check), "bad", "{check}: {report:?}");
    }
}

#[test]
fn settings_are_shown_with_their_origin_and_without_secrets() {
    let fixture = Fixture::new();
    let file = fixture.file("a.toml", b"[redis]\nurl = \"redis://:s3cret@h\"\n[node]\nslots = 7\n");
    let url = fixture.server.url();
    let shown = fixture
        .run(&format!("config show --json --config {} --set drain.window_ms=9", file.display()))
        .json();
    let of = |key: &str| (shown[key]["value"].clone(), shown[key]["from"].as_str().unwrap().to_owned());
    assert_eq!(of("redis.url"), (url.into(), "--redis".into()));
    assert_eq!(of("drain.window_ms"), (9.into(), "--set".into()));
    assert!(of("node.slots").1.ends_with("a.toml"));
    let plain = fixture.run(&format!("config show --config {}", file.display()));
    assert!(!plain.out.contains("s3cret"), "{plain:?}");
    let wrong = fixture.run("queues --set node.slot=7");
    assert_eq!((wrong.code, wrong.out.as_str()), (2, ""));
    assert_eq!(
        wrong.err,
        "gristmill: node.slot: there is no such setting (from --set); did you mean node.slots?"
    );
}

#[test]
fn settings_are_checked_as_a_whole_and_explained() {
    let fixture = Fixture::new();
    let node = "--set queues=orders:64,prices --set drain.window_ms=20000 --set kinds.slow.exec=true";
    let told = fixture.run(&format!("config check {node}"));
    assert_eq!(told.code, 0, "{told:?}");
    for line in [
        "the settings are well",
        "queues       orders:64, prices:64",
        "once its leases have expired, 5 s after the last renewal",
        "costs no lease up to about 2.5 s; an answer is waited for 1 s",
        "running jobs have 20 s, then all ends within 5 s: the platform waits 25 s or more before SIGKILL",
        "! SIGTERM      runs of slow may take 30 s, longer than drain.window_ms",
    ] {
        assert!(told.out.contains(line), "{line}\n{}", told.out);
    }
    let warns = fixture.run("config check --json --set queues=q --set redis.response_timeout_ms=9000").json();
    let pause = warns["told"].as_array().unwrap().iter().find(|told| told["about"] == "a pause").unwrap();
    assert_eq!((&warns["well"], &pause["warns"]), (&true.into(), &true.into()));

    // Everything that is wrong, whoever would read it.
    let wrong = "--set lease.renewal_ms=4000 --set queues=q --set ingest.listen=x --set postgres.relay=true";
    let wrong = fixture.run(&format!("config check {wrong}"));
    assert_eq!((wrong.code, wrong.out.as_str()), (2, ""));
    for key in
        ["lease.renewal_ms: expected 50 ms or more", "ingest.listen: expected", "postgres.relay: expected"]
    {
        assert!(wrong.err.contains(key), "{wrong:?}");
    }
    assert!(fixture.run("config check").out.contains("none: a node would refuse to start"));
}

#[test]
fn a_job_goes_round_or_it_is_said_why_not() {
    let fixture = Fixture::new();
    for _ in 0..2 {
        let said = fixture.run("roundtrip --json").json();
        assert!(said["job_ms"].as_u64() <= said["whole_ms"].as_u64(), "{said}");
    }
    let queues = fixture.run("queues --json").json();
    let queue = &queues["queues"][0];
    assert_eq!((&queue["name"], &queue["ready"]), (&"gristmill-roundtrip".into(), &0.into()), "{queues}");
    // Nobody serves it between two round trips, and that is well.
    assert_eq!(severity(&fixture.run("doctor --json").json(), "gristmill-roundtrip: leases"), "absent");

    // Rights that end in the middle of the way.
    let words: [&[u8]; 8] = [b"ACL", b"SETUSER", b"half", b"on", b">pw", b"~*", b"+@all", b"-evalsha"];
    fixture.server.command(&words).unwrap();
    let url = fixture.server.url().replace("redis://", "redis://half:pw@");
    let said = crate::fixture::run(
        gristmill_testkit::process::ProcessOptions::new(crate::fixture::gristmill()).args([
            "--redis",
            &url,
            "roundtrip",
            "--within-s",
            "2",
        ]),
    );
    assert!(said.code == 1 && said.err.contains("gristmill") && !said.err.contains("pw@"), "{said:?}");
    let away = crate::fixture::run(
        gristmill_testkit::process::ProcessOptions::new(crate::fixture::gristmill()).args([
            "--redis",
            "redis://127.0.0.1:1",
            "roundtrip",
        ]),
    );
    assert!(away.code == 1 && away.err.contains("gristmill config show"), "{away:?}");
}
