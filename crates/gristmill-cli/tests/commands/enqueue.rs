//! Lines in, and what is said about the bad ones.

use crate::fixture::{Fixture, SOON, Said, gristmill, run};
use gristmill_broker::keys::QueueDefinition;
use gristmill_job::{QueueName, partition_of};
use gristmill_testkit::eventually;
use gristmill_testkit::process::ProcessOptions;
use gristmill_testkit::server::Reply;
use std::io::Write;
use std::process::{Command, Stdio};

fn lines(count: usize, keys: usize) -> String {
    let line = |n: usize| format!("{{\"id\":\"j{n}\",\"at\":\"k{}\",\"n\":{n}}}\n", n % keys);
    (0..count).map(line).collect()
}

const BY_FIELDS: &str = "--kind tick --id id --key at --version n";

fn gzip(text: &str) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(text.as_bytes()).unwrap();
    packer.finish().unwrap()
}

/// The ids in the stream of a key's partition, in order.
fn ids(fixture: &Fixture, partitions: u16, key: &str) -> Vec<String> {
    let queue = QueueDefinition::new(QueueName::new("q").unwrap(), partitions);
    let stream = queue.partition(partition_of(key.as_bytes(), partitions)).stream;
    let reply = fixture.server.command(&["XRANGE", stream.as_str(), "-", "+"]).unwrap();
    let field = |entry: &Reply, n: usize| {
        entry.as_array().unwrap()[1].as_array().unwrap()[n].as_str().unwrap().to_owned()
    };
    let entries = reply.as_array().unwrap().iter();
    entries.filter(|entry| field(entry, 3) == key).map(|entry| field(entry, 1)).collect()
}

#[test]
fn a_queue_is_made_only_where_that_was_asked_for() {
    let fixture = Fixture::new();
    let file = fixture.file("a", lines(3, 3).as_bytes());
    let enqueue =
        |more: &str| fixture.run(&format!("enqueue q --from {} {BY_FIELDS} {more}", file.display()));
    let said = enqueue("");
    assert_eq!((said.code, said.out.as_str()), (1, ""));
    let expected = "gristmill: there is no queue q (there are: none); start a node that serves it, or add --create --partitions N";
    assert_eq!(said.err, expected);
    assert_eq!(enqueue("--create --partitions 2").out, "enqueued=3 duplicates=0 bad=0");
    // Known from now on; another number of partitions is refused.
    assert_eq!(enqueue("").out, "enqueued=0 duplicates=3 bad=0");
    assert_eq!(enqueue("--create").out, "enqueued=0 duplicates=3 bad=0");
    let differs = enqueue("--create --partitions 3");
    assert_eq!(differs.code, 1);
    assert!(differs.err.contains("exists with ordering \"key\" and 2 partitions"), "{differs:?}");
    let other = fixture.run(&format!("enqueue orders --from {}", file.display()));
    assert!(other.err.contains("(there are: q)"), "{other:?}");
    assert_eq!(fixture.run("enqueue Orders --from -").code, 2);
}

#[test]
fn jobs_of_a_key_keep_their_order_and_repeats_are_absorbed() {
    let fixture = Fixture::new();
    // More than a batch, packed, through standard input, some of it twice.
    let text = lines(10_000, 3);
    let again: String = text.lines().take(500).map(|line| format!("{line}\n")).collect();
    let stdin = fixture.file("packed", &gzip(&format!("{text}{again}")));
    let said =
        fixture.run_from(&format!("enqueue q --create --partitions 2 --from - --json {BY_FIELDS}"), &stdin);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(said.json(), serde_json::json!({ "enqueued": 10_000, "duplicates": 500, "bad": 0 }));
    for (key, first) in [("k0", 0), ("k1", 1), ("k2", 2)] {
        let expected: Vec<String> = (first..10_000).step_by(3).map(|n| format!("j{n}")).collect();
        assert!(ids(&fixture, 2, key) == expected, "the order of {key} is not the order of the lines");
    }
}

#[test]
fn bad_lines_are_told_and_the_rest_goes_on() {
    let fixture = Fixture::new();
    let huge = format!("{{\"key\":\"k\",\"kind\":\"x\",\"payload\":\"{}\"}}", "x".repeat(3_000_000));
    let good = "{\"key\":\"k\",\"kind\":\"x\",\"payload\":1}";
    let text =
        format!("{good}\n{huge}\nnonsense \u{1b}[2J\n\n{good}\n{{\"key\":\"k\",\"payload\":1}}\n{good}");
    let file = fixture.file("a", text.as_bytes());
    let said = fixture.run(&format!("enqueue q --create --partitions 1 --from {}", file.display()));
    assert_eq!((said.code, said.out.as_str()), (3, "enqueued=3 duplicates=0 bad=3"));
    let told: Vec<&str> = said.err.lines().collect();
    assert_eq!(told.len(), 3, "{said:?}");
    assert!(told[0].starts_with("line 2: it has 3000035 bytes, a line may have "), "{said:?}");
    assert_eq!(told[1], "line 3: expected a JSON object, got \"nonsense \\u{1b}[2J\"");
    assert!(told[2].starts_with("line 6: no field `kind`"), "{said:?}");

    // A flood of bad lines is counted, not told.
    let file = fixture.file("flood", "x\n".repeat(5000).as_bytes());
    let said = fixture.run(&format!("enqueue q --from {}", file.display()));
    assert_eq!((said.code, said.out.as_str()), (3, "enqueued=0 duplicates=0 bad=5000"));
    assert_eq!(said.err.lines().count(), 101);
}

#[test]
fn a_source_that_cannot_be_read_is_named() {
    let fixture = Fixture::new();
    fixture.enqueue("x", &["k"]);
    let packed = gzip(&lines(20_000, 7));
    let cut = fixture.file("cut.gz", &packed[..packed.len() / 2]);
    let said = fixture.run(&format!("enqueue q --from {} {BY_FIELDS}", cut.display()));
    assert_eq!((said.code, said.out.as_str()), (1, ""));
    assert!(said.err.contains("cut.gz, behind line "), "{said:?}");
    assert!(
        said.err
            .contains("the gzip data ends before its end; it was cut off; what came before it: enqueued="),
        "{said:?}"
    );
    let fake = fixture.file("fake.gz", b"{}");
    let said = fixture.run(&format!("enqueue q --from {}", fake.display()));
    assert!(said.code == 1 && said.err.contains("does not begin as gzip does"), "{said:?}");
    let said = fixture.run("enqueue q --from /nowhere/a.jsonl");
    assert_eq!((said.code, said.err.as_str()), (1, "gristmill: there is no file /nowhere/a.jsonl"));
}

#[test]
fn no_server_is_told_at_once_and_without_the_password() {
    let mut fixture = Fixture::new();
    fixture.server.kill().unwrap();
    let url = format!("redis://user:s3cret@127.0.0.1:{}", fixture.server.port());
    let Said { code, out, err } = run(ProcessOptions::new(gristmill()).args(["--redis", &url, "queues"]));
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(
        err.contains("Connection refused") && err.contains("config show") && !err.contains("s3cret"),
        "{err}"
    );
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = Command::new(gristmill())
        .args(["config", "show"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn jobs_for_later_are_named_by_option_or_line_counted_explained_and_cancelled() {
    let fixture = Fixture::new();
    let line = |id: &str, more: &str| {
        format!("{{\"id\":\"{id}\",\"key\":\"k\",\"kind\":\"x\",\"payload\":1{more}}}\n")
    };
    let lines = [line("a", ""), line("b", ",\"in_ms\":7200000"), line("c", ",\"at\":1")].concat();
    let file = fixture.file("a", lines.as_bytes()).display().to_string();
    let enqueue =
        |more: &str| fixture.run(&format!("enqueue q --create --partitions 1 --from {file} {more}"));
    for wrong in ["--in 5", "--in tomorrow", "--at 12:00", "--in 5m --at 2026-12-24T08:00:00Z"] {
        assert_eq!(enqueue(wrong).code, 2, "{wrong}");
    }
    let far = enqueue("--in 4000d");
    assert!(far.code == 3 && far.err.contains("within ten years"), "{far:?}");
    // The others name their own times, and were enqueued before.
    assert_eq!(enqueue("--in 1h").out, "enqueued=1 duplicates=2 bad=0");
    assert_eq!(ids(&fixture, 1, "k"), ["c"]);
    let queues = fixture.run("queues --json").json();
    let queue = &queues["queues"][0];
    assert_eq!((&queue["delayed"], &queue["overdue_ms"]), (&2.into(), &serde_json::Value::Null), "{queues}");

    let due = |id: &str| {
        let explained = fixture.run(&format!("explain {id} --json")).json();
        let found = explained["found"][0].clone();
        assert_eq!((&found["is"], &found["key"]), (&"delayed".into(), &"k".into()), "{found}");
        (found["due_ms"].as_u64().unwrap() - found["now_ms"].as_u64().unwrap()) / 60_000
    };
    assert!((55..60).contains(&due("a")) && (115..120).contains(&due("b")));
    let text = fixture.run("explain b").out;
    for words in ["for later as", "it is for later: due at", "left", "has no owner", "gristmill cancel b"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // One without an id of its own has no mark, and is looked for.
    let ours = fixture.file("b", b"{\"key\":\"k\",\"kind\":\"x\",\"payload\":1}\n").display().to_string();
    assert_eq!(fixture.run(&format!("enqueue q --from {ours} --at 2035-12-24T08:00:00+01:00")).code, 0);
    let set = QueueDefinition::new(QueueName::new("q").unwrap(), 1).partition(0).delayed;
    let members = fixture.server.command(&["ZRANGE", set.as_str(), "2", "2", "WITHSCORES"]).unwrap();
    let members = members.as_array().unwrap();
    assert_eq!(members[1].as_str(), Some("2082092400000"), "2035-12-24T07:00:00Z");
    let id = members[0].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    assert!(fixture.run(&format!("explain {id}")).out.contains("2035-12-24T07:00:00Z"));
    for id in ["a", id.as_str()] {
        let cancelled = fixture.run(&format!("cancel {id} --reason test"));
        assert_eq!(cancelled.code, 0, "{cancelled:?}");
    }
    assert_eq!(fixture.run("queues --json").json()["queues"][0]["delayed"], 1);
}

#[test]
fn jobs_that_expire_do_not_start_late_and_explain_says_so() {
    let fixture = Fixture::new();
    let line = |id: &str, more: &str| {
        format!("{{\"id\":\"{id}\",\"key\":\"k\",\"kind\":\"refuse\",\"payload\":1{more}}}\n")
    };
    let own = ",\"expires_in_ms\":3600000";
    let jobs = format!("{}{}{}", line("late", ""), line("own", own), line("bad", ",\"expires_in_ms\":\"x\""));
    let file = fixture.file("expiring", jobs.as_bytes());
    let said =
        fixture.run(&format!("enqueue q --create --partitions 4 --from {} --expires-in 1ms", file.display()));
    assert!(
        said.code == 3 && said.err.contains("`expires_in_ms` is ms: expected a whole number"),
        "{said:?}"
    );
    let wrong = fixture.run(&format!("enqueue q --from {} --expires-in soon", file.display()));
    assert!(wrong.code == 2 && wrong.err.contains("a whole number and a unit"), "{wrong:?}");
    let explained = fixture.run("explain own").out;
    assert!(explained.contains("expires      in 59m"), "{explained}");
    let node = fixture.stubborn_node("--name reader");
    eventually(SOON, "the one to run, and the other to end", || {
        let of = |id: &str| fixture.run(&format!("explain {id} --json")).json()["found"][0].clone();
        (of("own")["is"] == "dead" && of("late")["standing"] == "expired").then_some(())
    });
    let explained = fixture.run("explain late").out;
    assert!(explained.contains("expired: it was not started in time"), "{explained}");
    drop(node);
}
