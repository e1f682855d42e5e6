//! A private Postgres cluster: answers, survives a kill, leaves nothing.

use gristmill_testkit::{Error, eventually, postgres::Postgres};
use std::time::Duration;

#[test]
fn answers_keeps_its_data_over_a_kill_and_leaves_nothing() {
    let mut postgres = match Postgres::start() {
        Ok(postgres) => postgres,
        Err(error @ Error::MissingServer { .. }) => return eprintln!("SKIPPED: {error}"),
        Err(error) => panic!("{error}"),
    };
    postgres.ask("create table t (n int); insert into t values (1), (2)").unwrap();
    postgres.restart().unwrap();
    assert_eq!(postgres.ask("select n, 'x' from t order by n").unwrap(), "1|x\n2|x");
    let refused = postgres.ask("select 1 / 0").unwrap_err().to_string();
    assert!(refused.contains("division by zero"), "{refused}");
    let pid = postgres.pid().unwrap();
    let dir = postgres.url().split("host=").nth(1).unwrap().split('&').next().unwrap().to_owned();
    drop(postgres);
    assert!(!std::path::Path::new(&dir).exists());
    eventually(Duration::from_secs(10), "the end of its first process", || {
        (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
}
