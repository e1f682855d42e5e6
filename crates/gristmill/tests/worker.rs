//! The twenty lines of the README: they are the example, and they work.

#![allow(clippy::unwrap_used, reason = "all of it is a test; clippy excuses test functions only")]

use gristmill::{QueueDefinition, QueueName, RedisConfig};
use gristmill_testkit::process::{Output, Process, ProcessOptions};
use gristmill_testkit::server::{Appendonly, Server, ServerOptions};

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

/// Cargo builds examples beside the tests, but tells nobody where.
fn worker() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.parent().and_then(Path::parent).unwrap().join("examples/worker");
    assert!(path.is_file(), "{} is not built: `cargo build -p gristmill --examples`", path.display());
    path
}

fn out(process: &Process) -> Vec<String> {
    process.lines().into_iter().filter(|line| line.from == Output::Stdout).map(|line| line.text).collect()
}

#[test]
fn the_example_is_the_whole_command_line_and_applies_effects_once() {
    let server = Server::start(ServerOptions::new().appendonly(Appendonly::Everysec)).unwrap();
    let url = server.url();
    let start = |args: &str| {
        let options = ProcessOptions::new(worker()).args(["--redis", url.as_str()]).args(args.split(' '));
        options.spawn().unwrap()
    };
    let mut node = start(
        "node --queues prices:8 --set lease.ttl_ms=1500 --set lease.renewal_ms=300 --set lease.margin_ms=450",
    );
    node.wait_line(|line| line.text.contains(" ready "), SOON).unwrap();

    let jobs = std::env::temp_dir().join(format!("gristmill-worker-{}", std::process::id()));
    let event = |id: &str, version: u64, cents: i64| {
        let line = serde_json::json!({
            "id": id, "key": "apple", "version": version, "kind": "price.changed",
            "payload": { "sku": "apple", "cents": cents },
        });
        format!("{line}\n")
    };
    // The newest twice, an older one behind it, and one that no retry helps.
    let text = [
        event("e1", 1, 100),
        event("e3", 3, 120),
        event("e3", 3, 120),
        event("e2", 2, 110),
        event("e4", 4, -1),
    ];
    std::fs::write(&jobs, text.concat()).unwrap();
    let mut enqueue = start(&format!("enqueue prices --from {}", jobs.display()));
    assert!(enqueue.wait(SOON).unwrap().success(), "{}", enqueue.stderr_tail());
    std::fs::remove_file(&jobs).unwrap();
    assert_eq!(out(&enqueue), ["enqueued=4 duplicates=1 bad=0"]);

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let queue = QueueDefinition::new(QueueName::new("prices").unwrap(), 8);
    let entity = runtime.block_on(async {
        let connection = gristmill::Connection::open(&RedisConfig::new(url.clone()), 1).await.unwrap();
        // Both end: the jobs that apply, and the one that cannot.
        tokio::time::timeout(SOON, async {
            loop {
                let views = connection.partitions(&queue).await.unwrap();
                if views.iter().all(|view| view.ready == 0)
                    && views.iter().map(|view| view.dead).sum::<u64>() == 1
                {
                    break connection.entity(&queue, b"apple").await.unwrap().unwrap();
                }
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap()
    });
    assert_eq!(entity.state, "apple costs 120 cents, says event 3");
    assert_eq!((entity.version, entity.changes), (3, 2), "one effect for each event that was news");

    node.terminate().unwrap();
    let status = node.wait(SOON).unwrap();
    assert!(status.success(), "{status}: {}", node.stderr_tail());
    let drained = out(&node);
    // Redis may have told us of the last settle before it told the node: what is finished is 0 or 1.
    let line = drained.first().map_or("", String::as_str);
    assert!(drained.len() == 1 && line.starts_with("drained: finished="), "{drained:?}");
    assert!(line.contains(" handed_back=0 abandoned=0 took_ms="), "{line}");
    // Nothing is left to expire.
    let mut doctor = start("queues --json");
    assert!(doctor.wait(SOON).unwrap().success());
    let queues: serde_json::Value = serde_json::from_str(&out(&doctor)[0]).unwrap();
    assert_eq!(queues["queues"][0]["owned"], 0, "{queues}");
    assert_eq!(queues["queues"][0]["nodes"], serde_json::json!([]), "{queues}");
}

#[test]
fn the_readme_shows_this_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let Ok(readme) = std::fs::read_to_string(root.join("README.md")) else {
        // Past the harness, which would keep it to itself.
        let note = "NOTE: there is no README.md; its first Rust code is to be crates/gristmill/examples/worker.rs, word for word";
        writeln!(std::io::stderr(), "{note}").unwrap();
        return;
    };
    let example = std::fs::read_to_string(root.join("crates/gristmill/examples/worker.rs")).unwrap();
    let shown = readme.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next());
    let shown = shown.expect("the README has no Rust code");
    assert_eq!(
        shown.trim(),
        example.trim(),
        "the README's first Rust code is not crates/gristmill/examples/worker.rs"
    );
    let lines = example.lines().filter(|line| !line.trim().is_empty()).count();
    assert!(lines <= 20, "the example has {lines} lines; twenty are promised");
}

#[test]
fn the_example_of_a_batch_is_the_one_in_the_docs() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let example = std::fs::read_to_string(here.join("examples/batch.rs")).unwrap();
    let docs = std::fs::read_to_string(here.join("../../docs/HANDLERS.md")).unwrap();
    assert!(docs.contains(&format!("```rust\n{example}```\n")), "docs/HANDLERS.md shows another example");
}
