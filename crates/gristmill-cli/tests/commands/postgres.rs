//! `postgres migrate`, `postgres relay`, `postgres prune`, what `doctor` and the monitor say of a database, and the relay
//! inside a node.

use crate::asked::{address, metric, status, wait_metric};
use crate::fixture::{Fixture, SOON, gristmill, run};
use gristmill_testkit::postgres::Postgres;
use gristmill_testkit::process::ProcessOptions;
use gristmill_testkit::proxy::Proxy;
use gristmill_testkit::{Error, eventually};

/// A cluster, or nothing, said loudly.
fn cluster() -> Option<Postgres> {
    match Postgres::start() {
        Ok(postgres) => Some(postgres),
        Err(error @ Error::MissingServer { .. }) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// What `doctor` says of Postgres: check and severity.
fn judged(fixture: &Fixture, url: &str) -> Vec<(String, String)> {
    let said = ProcessOptions::new(gristmill())
        .args(["--redis", &fixture.server.url(), "doctor", "--json"])
        .envs([("GRISTMILL__POSTGRES__URL", url)]);
    let findings = run(said).json();
    let all = findings["findings"].as_array().unwrap().iter();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let all = all.map(|finding| (text(&finding["check"]), text(&finding["severity"])));
    all.filter(|(check, _)| check.starts_with("postgres")).collect()
}

#[test]
fn a_node_relays_beside_its_handlers_and_doctor_tells_how_the_outbox_stands() {
    let Some(postgres) = cluster() else { return };
    let fixture = Fixture::new();
    let url = postgres.url();
    let pairs = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(check, severity)| ((*check).to_owned(), (*severity).to_owned()))
            .collect::<Vec<_>>()
    };
    let away = "postgres://nobody@127.0.0.1:1/none";
    assert_eq!(judged(&fixture, away), pairs(&[("postgres", "bad")]));
    assert_eq!(judged(&fixture, &url), pairs(&[("postgres: tables", "bad")]));
    assert_eq!(fixture.run(&format!("postgres migrate --database {url}")).code, 0);
    postgres
        .ask(
            "insert into gristmill.outbox (queue, kind, key, payload, at) values
                 ('q', 'note', 'k', '{}', now() - interval '2 minutes');
             insert into gristmill.outbox (queue, kind, key, payload, refused) values
                 ('q', 'note', 'k', '{}', 'a test says so')",
        )
        .unwrap();
    let stuck =
        pairs(&[("postgres: outbox", "bad"), ("postgres: refused", "warn"), ("postgres: inbox", "ok")]);
    assert_eq!(judged(&fixture, &url), stuck);

    // The kind is served by a command that leaves a mark; the node is told of the database in a file.
    let file = fixture.file("url", url.as_bytes()).display().to_string();
    let settings = format!(
        "queues = [\"q:4\"]\n[postgres]\nurl_file = \"{file}\"\nrelay = true\n[kinds.note]\nexec = [\"true\"]\n"
    );
    let config = fixture.file("node.toml", settings.as_bytes()).display().to_string();
    let arguments = ["--redis", &fixture.server.url(), "--config", &config, "node"];
    let mut node = ProcessOptions::new(gristmill()).args(arguments).spawn().unwrap();
    eventually(SOON, "the row that waited becomes a job, and the job is done", || {
        let left = postgres.ask("select count(*) from gristmill.outbox where refused is null").unwrap();
        (left == "0" && fixture.run("queues --json").out.contains("\"ready\":0")).then_some(())
    });
    let well = pairs(&[("postgres: outbox", "ok"), ("postgres: refused", "warn"), ("postgres: inbox", "ok")]);
    assert_eq!(judged(&fixture, &url), well);
    node.terminate().unwrap();
    assert!(node.wait(SOON).unwrap().success(), "{}", node.stderr_tail());
    assert!(node.stderr_tail().contains("relayed=1 refused=0"), "{}", node.stderr_tail());
}

/// A database that hangs in the middle delays no number of a queue, and makes the monitor neither late nor unready.
#[test]
fn the_monitor_tells_how_the_outbox_stands_and_waits_for_no_database() {
    let Some(postgres) = cluster() else { return };
    let fixture = Fixture::new();
    let url = postgres.url();
    assert_eq!(fixture.run(&format!("postgres migrate --database {url}")).code, 0);
    postgres
        .ask(
            "insert into gristmill.outbox (queue, kind, key, payload, at)
                 select 'q', 'note', 'k', '{}', now() - interval '2 minutes' from generate_series(1, 3);
             insert into gristmill.outbox (queue, kind, key, payload, refused) values
                 ('q', 'note', 'k', '{}', 'a test says so');
             insert into gristmill.inbox (queue, job_id, kind) values ('q', 'a', 'note');
             analyze gristmill.inbox",
        )
        .unwrap();
    let proxy = Proxy::start(postgres.port()).unwrap();
    let database = format!("--set postgres.url={}", postgres.url_at(proxy.port()));
    let start = || {
        fixture.stubborn(&format!(
            "monitor --set health.listen=127.0.0.1:0 --set monitor.every_ms=100 {database}"
        ))
    };
    let monitor = start();
    let at = address(&monitor);
    wait_metric(at, "outbox_backlog_rows", |rows| rows == 3.0);
    wait_metric(at, "outbox_oldest_age_seconds", |age| (120.0..300.0).contains(&age));
    wait_metric(at, "outbox_refused_rows", |rows| rows == 1.0);
    wait_metric(at, "inbox_rows", |rows| rows == 1.0);

    proxy.hold_requests();
    proxy.wait_held(SOON).unwrap();
    fixture.enqueue("note", &["first"]);
    wait_metric(at, "queue_jobs{queue=\"q\",state=\"ready\"}", |jobs| jobs == 1.0);
    assert_eq!(metric(at, "outbox_backlog_rows"), Some(3.0), "what was seen before stands");
    let second = start();
    let at = address(&second);
    wait_metric(at, "queue_jobs{queue=\"q\",state=\"ready\"}", |jobs| jobs == 1.0);
    assert_eq!(status(at, "/readyz"), 200);
    proxy.release_requests();
    wait_metric(at, "outbox_backlog_rows", |rows| rows == 3.0);
}

#[test]
fn a_relay_is_ready_once_both_of_its_sides_have_answered_and_tells_what_it_did() {
    let Some(mut postgres) = cluster() else { return };
    let fixture = Fixture::new();
    let url = postgres.url();
    assert_eq!(fixture.run(&format!("postgres migrate --database {url}")).code, 0);
    fixture.enqueue("note", &["first"]);
    postgres
        .ask("insert into gristmill.outbox (queue, kind, key, payload) values ('q', 'note', 'k', '{}')")
        .unwrap();
    postgres.kill().unwrap();
    let listen = "--set health.listen=127.0.0.1:0";
    let mut relay = fixture.stubborn(&format!("postgres relay --database {url} {listen}"));
    let at = address(&relay);
    eventually(SOON, "Redis is reached", || (metric(at, "redis_up")? == 1.0).then_some(()));
    assert_eq!((status(at, "/livez"), status(at, "/readyz")), (200, 503));
    postgres.restart().unwrap();
    eventually(SOON, "both are there", || (status(at, "/readyz") == 200).then_some(()));
    wait_metric(at, "outbox_relayed_total", |rows| rows == 1.0);
    relay.terminate().unwrap();
    assert!(relay.wait(SOON).unwrap().success(), "{}", relay.stderr_tail());
}

#[test]
fn tables_are_made_rows_become_jobs_and_the_inbox_is_pruned() {
    let Some(postgres) = cluster() else { return };
    let fixture = Fixture::new();
    let url = postgres.url();
    for _ in 0..2 {
        let said = fixture.run(&format!("postgres migrate --database {url}"));
        assert_eq!((said.code, said.out.contains("up to date")), (0, true), "{said:?}");
    }
    postgres
        .ask(
            "insert into gristmill.inbox values ('q', 'old', 'k', 'done', now() - interval '40 days'), ('q', 'new', 'k', 'done', now());
             insert into gristmill.outbox (queue, kind, key, payload) values ('q', 'charge', 'k', '{}')",
        )
        .unwrap();
    fixture.enqueue("charge", &["first"]);
    let redis = fixture.server.url();
    let mut relay = ProcessOptions::new(gristmill())
        .args(["--redis", &redis, "postgres", "relay", "--prune-inbox-after-days", "30"])
        .envs([("GRISTMILL__POSTGRES__URL", &url)])
        .spawn()
        .unwrap();
    let left = "select (select count(*) from gristmill.outbox), (select string_agg(job_id, ',') from gristmill.inbox)";
    eventually(SOON, "an empty outbox and a pruned inbox", || {
        (postgres.ask(left).unwrap() == "0|new").then_some(())
    });
    relay.terminate().unwrap();
    assert!(relay.wait(SOON).unwrap().success(), "{}", relay.stderr_tail());
    assert!(relay.lines().iter().any(|line| line.text == "relayed=1 refused=0 errors=0 pruned=1"));
    let queues = fixture.run("queues --json").out;
    assert!(queues.contains("\"ready\":2"), "{queues}");
    let said = fixture.run(&format!("postgres prune --older-than-days 1 --database {url}"));
    assert_eq!((said.code, said.out.trim()), (0, "pruned=0"), "{said:?}");
    let said = fixture.run("postgres migrate");
    assert!(said.code == 2 && said.err.contains("which database?"), "{said:?}");
    let said = fixture.run("postgres migrate --database mysql://secret@x/y");
    assert_eq!((said.code, said.err.contains("secret")), (2, false), "{said:?}");
    let said = fixture.run("postgres migrate --database postgres://nobody@127.0.0.1:1/none");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("Postgres:"), "{said:?}");
}
