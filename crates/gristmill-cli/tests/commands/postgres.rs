//! `postgres migrate`, `postgres relay`, `postgres prune`.

use crate::fixture::{Fixture, SOON, gristmill};
use gristmill_testkit::postgres::Postgres;
use gristmill_testkit::process::ProcessOptions;
use gristmill_testkit::{Error, eventually};

#[test]
fn tables_are_made_rows_become_jobs_and_the_inbox_is_pruned() {
    let postgres = match Postgres::start() {
        Ok(postgres) => postgres,
        Err(error @ Error::MissingServer { .. }) => return eprintln!("SKIPPED: {error}"),
        Err(error) => panic!("{error}"),
    };
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
        .envs([("GRISTMILL_POSTGRES_URL", &url)])
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
    let said = fixture.run("postgres migrate --database mysql://secret@x/y");
    assert_eq!((said.code, said.err.contains("secret")), (2, false), "{said:?}");
    let said = fixture.run("postgres migrate --database postgres://nobody@127.0.0.1:1/none");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("Postgres:"), "{said:?}");
}
