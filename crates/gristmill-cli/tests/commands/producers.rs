//! A producer in another language, with a Redis client alone.

use crate::fixture::{Fixture, SOON, Said, gristmill, run};
use gristmill_testkit::eventually;
use gristmill_testkit::process::ProcessOptions;
use gristmill_testkit::python;
use std::path::{Path, PathBuf};

const MODULES: &[&str] = &["redis", "msgpack", "xxhash"];

fn line(id: &str, key: &str, version: u64) -> String {
    format!(
        "{{\"id\":\"{id}\",\"key\":\"{key}\",\"version\":{version},\"kind\":\"echo\",\"payload\":{{\"n\":[1,\"ü\"]}}}}\n"
    )
}

/// Runs `enqueue.py` with these lines.
fn produce(fixture: &Fixture, python: &PathBuf, more: &[&str], lines: &str) -> Said {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python/enqueue.py");
    let script = script.display().to_string();
    let file = fixture.file("events", lines.as_bytes());
    let url = fixture.server.url();
    let arguments = [script.as_str(), &url].into_iter().chain(more.iter().copied());
    run(ProcessOptions::new(python).args(arguments).stdin(file))
}

#[test]
fn a_producer_in_python_enqueues_by_the_script_and_by_xadd() {
    let Some(python) = python::with(MODULES) else {
        return eprintln!("SKIPPED: {}", python::missing(MODULES));
    };
    let fixture = Fixture::new();
    let none = produce(&fixture, &python, &["q"], &line("a", "k", 1));
    assert!(none.code == 1 && none.err.contains("there is no queue q"), "{none:?}");

    // The queue of tests, made by an enqueue of our own.
    fixture.enqueue("echo", &["ours"]);
    let three = [line("a", "café", 1), line("b", "café", 2), line("a", "café", 1)].concat();
    let said = produce(&fixture, &python, &["q"], &three);
    let answers: Vec<&str> = said.out.lines().collect();
    assert_eq!((said.code, answers.len()), (0, 3), "{said:?}");
    assert_eq!(answers[2], format!("duplicate waiting {}", answers[0]));
    let explained = fixture.run("explain a --queue q --json").json();
    let explained = &explained["found"][0];
    assert_eq!(explained["place"], answers[0], "{explained}");
    assert_eq!((&explained["key"], &explained["kind"]), (&"café".into(), &"echo".into()), "{explained}");

    // Known by no mark: once more is another job.
    let plain =
        produce(&fixture, &python, &["q", "--plain"], &[line("c", "x", 1), line("c", "x", 1)].concat());
    assert_eq!(
        (plain.code, plain.out.lines().filter(|place| place.contains('-')).count()),
        (0, 2),
        "{plain:?}"
    );
    let ready = fixture.run("queues --json").out;
    assert!(ready.contains("\"ready\":5"), "{ready}");

    let later = line("d", "x", 1).replace("\"kind\"", "\"in_ms\":1,\"kind\"");
    let delayed = produce(&fixture, &python, &["q"], &later);
    assert!(delayed.out.starts_with("delayed 0000000000000001:1:d"), "{delayed:?}");
    let refused = produce(&fixture, &python, &["q", "--plain"], &later);
    assert!(refused.code == 1 && refused.err.contains("needs the script"), "{refused:?}");

    // What was enqueued can be read: a node runs all six.
    let settings = "queues = [\"q:4\"]\n[kinds.echo]\nexec = [\"true\"]\n";
    let config = fixture.file("node.toml", settings.as_bytes()).display().to_string();
    let node = ProcessOptions::new(gristmill()).args([
        "--redis",
        &fixture.server.url(),
        "--config",
        &config,
        "node",
    ]);
    let node = node.spawn().unwrap();
    eventually(SOON, "all are done", || {
        let queues = fixture.run("queues --json").out;
        assert!(queues.contains("\"dead\":0"), "{queues}");
        (queues.contains("\"ready\":0") && queues.contains("\"delayed\":0")).then_some(())
    });
    drop(node);
    let again = produce(&fixture, &python, &["q"], &line("a", "café", 1));
    assert_eq!(again.out.trim(), "duplicate applied", "{again:?}");
}
