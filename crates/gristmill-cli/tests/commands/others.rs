//! Kinds that others serve, from settings alone: the program without a handler of its own, and Python's standard library.

use crate::fixture::{Fixture, SOON, gristmill, out};
use gristmill_broker::keys::QueueDefinition;
use gristmill_job::{QueueName, partition_of};
use gristmill_testkit::eventually;
use gristmill_testkit::process::{Output, Process, ProcessOptions};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The path of an example; `None`, said loudly, where this machine has no Python.
fn example(name: &str) -> Option<String> {
    if gristmill_testkit::guard::find_program("python3").is_none() {
        eprintln!(
            "SKIPPED: python3 is not on PATH, so that {name} is not tested; `cargo xtask test` installs it"
        );
        return None;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python").join(name);
    Some(std::fs::canonicalize(path).unwrap().display().to_string())
}

/// A node with these settings, ready.
fn node(fixture: &Fixture, settings: &str) -> Process {
    let node = start(fixture, settings);
    node.wait_line(|line| line.text.contains(" ready "), SOON).unwrap();
    node
}

fn start(fixture: &Fixture, settings: &str) -> Process {
    let general = "queues = [\"q:4\"]\n[lease]\nttl_ms = 1500\nrenewal_ms = 300\nmargin_ms = 450\n[retry]\nbase_ms = 20\nfloor_ms = 10\n";
    let file = fixture.file("node.toml", format!("{general}{settings}").as_bytes());
    let url = fixture.server.url();
    let config = file.display().to_string();
    ProcessOptions::new(gristmill()).args(["--redis", &url, "--config", &config, "node"]).spawn().unwrap()
}

/// Lines of `enqueue`: id, key, version, payload.
fn enqueue(fixture: &Fixture, jobs: &[(&str, &str, u64, &str)]) {
    let line = |(id, key, version, payload): &(&str, &str, u64, &str)| {
        format!(
            "{{\"id\":\"{id}\",\"key\":\"{key}\",\"version\":{version},\"kind\":\"price.changed\",\"payload\":{payload}}}\n"
        )
    };
    let file = fixture.file("jobs", jobs.iter().map(line).collect::<String>().as_bytes());
    let said = fixture.run(&format!("enqueue q --create --partitions 4 --from {}", file.display()));
    assert_eq!(said.code, 0, "{said:?}");
}

fn drain(mut node: Process) {
    node.terminate().unwrap();
    assert_eq!(node.wait(SOON).unwrap().code(), Some(0), "{}", node.stderr_tail());
    assert!(
        out(&node)[0].starts_with("drained: ") && out(&node)[0].contains("abandoned=0"),
        "{:?}",
        out(&node)
    );
}

/// Version and state that effects gave to a key.
fn state(fixture: &Fixture, key: &str) -> String {
    let queue = QueueDefinition::new(QueueName::new("q").unwrap(), 4);
    let name = queue.partition(partition_of(key.as_bytes(), 4)).entity(key.as_bytes());
    let field = |field: &[u8]| {
        let reply = fixture.server.command(&[b"HGET", name.as_slice(), field]).unwrap();
        reply.as_str().unwrap_or_default().to_owned()
    };
    format!("{} {}", field(b"version").trim_start_matches('0'), field(b"state"))
}

fn letters(fixture: &Fixture, count: usize) -> Vec<Value> {
    eventually(SOON, "the dead letters", || {
        let page = fixture.run("dead list q --json").json();
        let letters = page["dead_letters"].as_array().unwrap().clone();
        (letters.len() == count).then_some(letters)
    })
}

#[test]
fn a_handler_in_python_serves_a_kind_over_http_and_each_job_takes_effect_once() {
    let Some(example) = example("price_http.py") else { return };
    let fixture = Fixture::new();
    let secret = fixture.file("secret", b"a secret of this test alone\n").display().to_string();
    let database = fixture.file("prices.db", b"").display().to_string();
    let site =
        Process::spawn("python3", [&example, &database, "0", &secret], [("PYTHONUNBUFFERED", "1")]).unwrap();
    let serving = site.wait_line(|line| line.text.starts_with("serving on "), SOON).unwrap().text;
    let address = format!("http://127.0.0.1:{}/jobs/price", serving.rsplit(' ').next().unwrap());
    let settings = format!("[kinds.\"price.changed\"]\nhttp = \"{address}\"\nsecret_file = \"{secret}\"\n");
    let node = node(&fixture, &settings);

    let ids: Vec<String> = (0..60).map(|n| format!("e{n}")).collect();
    let keys: Vec<String> = (0..60).map(|n| format!("sku {}", n % 3)).collect();
    let payloads: Vec<String> =
        (0..60).map(|n| format!("{{\"sku\":\"sku {}\",\"cents\":{n}}}", n % 3)).collect();
    let mut jobs: Vec<(&str, &str, u64, &str)> = (0..60)
        .map(|n| (ids[n].as_str(), keys[n].as_str(), n as u64 / 3 + 1, payloads[n].as_str()))
        .collect();
    // What is old comes late, what cannot be comes too, and one comes again.
    jobs.push(("late", "sku 0", 3, "{\"sku\":\"sku 0\",\"cents\":-1}"));
    jobs.push(("bad", "sku 1", 99, "{\"sku\":\"sku 1\"}"));
    enqueue(&fixture, &jobs);
    enqueue(&fixture, &jobs[..3]);

    let letter = &letters(&fixture, 1)[0];
    let error = letter["error"].to_string();
    assert!(error.contains("answered 422") && error.contains("KeyError('cents')"), "{letter}");
    site.wait_line(|line| line.text.starts_with("stale key=sku 0 version=3"), SOON).unwrap();
    let lines = |word: &str| {
        let of = |line: &gristmill_testkit::process::Line| {
            line.from == Output::Stdout && line.text.starts_with(word)
        };
        site.lines().into_iter().filter(of).map(|line| line.text).collect::<Vec<_>>()
    };
    let applied = eventually(SOON, "all are applied", || {
        let applied = lines("applied ");
        (applied.len() == 60).then_some(applied)
    });
    let mut newest = BTreeMap::new();
    for line in &applied {
        let key = line.split("key=").nth(1).unwrap().split(" version").next().unwrap().to_owned();
        let version: u64 = line.split("version=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        let before = newest.insert(key, version).unwrap_or(0);
        assert_eq!(version, before + 1, "in order: {applied:?}");
    }
    assert_eq!(newest.into_values().collect::<Vec<_>>(), [20, 20, 20]);
    assert_eq!(lines("duplicate ").len(), 0);

    // A node that does not know the secret is told so, and goes on trying.
    drain(node);
    let other = fixture.file("other", b"another secret of this test\n").display().to_string();
    let settings = settings.replace(&secret, &other);
    enqueue(&fixture, &[("f1", "sku 2", 50, "{\"sku\":\"sku 2\",\"cents\":1}")]);
    let wrong = self::node(&fixture, &settings);
    eventually(SOON, "it is refused and kept", || {
        fixture.run("explain f1").out.contains("not signed with our secret").then_some(())
    });
    assert_eq!(lines("applied ").len(), 60);
    drain(wrong);
    // And done by one that does.
    let right = self::node(&fixture, &settings.replace(&other, &secret));
    site.wait_line(|line| line.text.starts_with("applied key=sku 2 version=50"), SOON).unwrap();
    drain(right);
}

#[test]
fn the_handler_in_python_refuses_signatures_that_are_wrong_or_old() {
    let Some(example) = example("price_http.py") else { return };
    let fixture = Fixture::new();
    let script = r#"
import base64, hashlib, hmac, sys, time
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
from price_http import is_ours
secret, body, now = b"a secret of this test alone", b'{"a":1}', int(time.time())
def signed(at, body=body, secret=secret, id="q:1"):
    mac = hmac.new(secret, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
    return {"Webhook-Id": "q:1", "Webhook-Timestamp": str(at), "Webhook-Signature": "v1," + base64.b64encode(mac).decode()}
both = signed(now)
both["Webhook-Signature"] = "v1,AAAA " + both["Webhook-Signature"]
none = dict.fromkeys(both)
for fine in (signed(now), signed(now - 200), both):
    assert is_ours(secret, fine, body), fine
for bad in (signed(now - 400), signed(now + 400), signed(now, b"other"), signed(now, secret=b"other"), signed(now, id="q:2"),
            none, {**signed(now), "Webhook-Timestamp": "soon"}, {**signed(now), "Webhook-Signature": ""}):
    assert not is_ours(secret, bad, body), bad
print("all as expected")
"#;
    let script = fixture.file("check.py", script.as_bytes()).display().to_string();
    let folder = Path::new(&example).parent().unwrap().display().to_string();
    let said = crate::fixture::run(ProcessOptions::new("python3").args([script, folder]));
    assert_eq!((said.code, said.out.as_str()), (0, "all as expected"), "{said:?}");
}

#[test]
fn a_command_in_python_serves_a_kind_with_a_process_per_job() {
    let Some(example) = example("price_exec.py") else { return };
    let fixture = Fixture::new();
    let folder = fixture.file("x", b"").parent().unwrap().join("prices");
    let settings = format!(
        "[kinds.\"price.changed\"]\nexec = [\"python3\", \"{example}\", \"{}\"]\nconcurrency = 3\n",
        folder.display()
    );
    let node = node(&fixture, &settings);
    let fine = "{\"sku\":\"a\",\"cents\":5}";
    let jobs: Vec<(String, String)> = (0..12).map(|n| (format!("e{n}"), format!("k {}", n % 4))).collect();
    let mut jobs: Vec<(&str, &str, u64, &str)> =
        jobs.iter().zip(1..).map(|((id, key), version)| (id.as_str(), key.as_str(), version, fine)).collect();
    jobs.push(("bad", "other", 1, "{\"sku\":\"a\"}"));
    enqueue(&fixture, &jobs);
    let error = letters(&fixture, 1)[0]["error"].to_string();
    assert!(error.contains("exit code 65 (EX_DATAERR)") && error.contains("KeyError('cents')"), "{error}");
    // Its folder is not there: exit code 75, tried again until it is.
    eventually(SOON, "it is tried again", || {
        fixture.run("explain e0").out.contains("is not there (yet)").then_some(())
    });
    std::fs::create_dir_all(&folder).unwrap();
    for (key, version) in [("k 0", 9), ("k 1", 10), ("k 2", 11), ("k 3", 12)] {
        let expected = format!("a {version} 5\n");
        eventually(SOON, "the newest version", || {
            (std::fs::read_to_string(folder.join(key)).ok()? == expected).then_some(())
        });
        let expected = format!("{version} {{\"cents\": 5}}");
        eventually(SOON, "the state", || (state(&fixture, key) == expected).then_some(()));
    }
    drain(node);
}

#[test]
fn a_command_in_python_that_stays_serves_a_kind_and_leaves_with_the_node() {
    let Some(example) = example("price_lines.py") else { return };
    let fixture = Fixture::new();
    let settings = format!(
        "[remote]\nexec_form = \"lines\"\nconcurrency = 2\n[kinds.\"price.changed\"]\nexec = [\"python3\", \"{example}\"]\n"
    );
    let node = node(&fixture, &settings);
    let ids: Vec<String> = (0..200).map(|n| format!("e{n}")).collect();
    let keys: Vec<String> = (0..200).map(|n| format!("k{}", n % 10)).collect();
    let mut jobs: Vec<(&str, &str, u64, &str)> = ids
        .iter()
        .zip(&keys)
        .zip(1..)
        .map(|((id, key), n)| (id.as_str(), key.as_str(), n, "{\"cents\":7}"))
        .collect();
    jobs.push(("bad", "other", 1, "{}"));
    jobs.push(("soon", "soon", 1, "{\"cents\":-1}"));
    enqueue(&fixture, &jobs);
    let error = letters(&fixture, 1)[0]["error"].to_string();
    assert!(error.contains("the handler says permanent") && error.contains("KeyError('cents')"), "{error}");
    for (key, version) in [("k0", "191"), ("k9", "200")] {
        let expected = format!("{version} {{\"cents\": 7}}");
        eventually(SOON, "the newest state", || (state(&fixture, key) == expected).then_some(()));
    }
    eventually(SOON, "the price that is not known", || {
        fixture.run("explain soon").out.contains("the price is not known yet").then_some(())
    });
    let children = children_of(node.pid());
    assert!((1..=2).contains(&children.len()), "{children:?}");
    drain(node);
    eventually(SOON, "its processes are gone", || {
        children.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
}

/// The processes that the node started itself.
fn children_of(pid: u32) -> Vec<u32> {
    let parent = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // The testkit's watchdog is the node's child, too, as far as the system knows.
    let is_python = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains("price_lines"))
    };
    pids.filter(|child| parent(child) == Some(pid) && is_python(child)).collect()
}

#[test]
fn settings_that_cannot_be_are_refused_with_what_was_expected() {
    let fixture = Fixture::new();
    for (settings, expected) in [
        ("[kinds.a]\nhttp = \"ftp://h\"\n", "kinds.a.http: expected http://host[:port]/path or https://"),
        (
            "[kinds.a]\nexec = [\"no-such-program\"]\n",
            "kinds.a.exec: expected a program on PATH, or the path of an executable",
        ),
        (
            "[kinds.a]\nhttp = \"http://h\"\nexec = [\"sh\"]\n",
            "kinds.a.exec: expected nothing beside kinds.a.http",
        ),
    ] {
        let mut node = start(&fixture, settings);
        assert_eq!(node.wait(SOON).unwrap().code(), Some(2), "{settings}");
        let said = node.stderr_tail();
        assert!(said.contains(expected) && said.contains("node.toml)"), "{settings}: {said}");
    }
}

#[test]
fn a_drain_ends_a_command_and_hands_its_job_back() {
    let fixture = Fixture::new();
    let pids = fixture.file("pids", b"").display().to_string();
    for form in ["once", "lines"] {
        let settings = format!(
            "[drain]\nwindow_ms = 400\ngrace_ms = 3000\n[kinds.\"price.changed\"]\nexec_form = \"{form}\"\n\
             exec = [\"sh\", \"-c\", \"echo $$ >>{pids}; sleep 60\"]\n"
        );
        let mut node = node(&fixture, &settings);
        enqueue(&fixture, &[(form, form, 1, "1")]);
        let pid = eventually(SOON, "it runs", || {
            let pids = std::fs::read_to_string(&pids).unwrap();
            pids.lines().last().filter(|_| pids.ends_with('\n')).map(str::to_owned)
        });
        node.terminate().unwrap();
        assert_eq!(node.wait(SOON).unwrap().code(), Some(0), "{}", node.stderr_tail());
        let said = out(&node);
        assert!(said[0].starts_with("drained: finished=0 handed_back=1 abandoned=0"), "{said:?}");
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "it ended before its node");
        std::fs::write(&pids, "").unwrap();
        let told = fixture.run(&format!("explain {form}")).out;
        assert!(told.contains("handed it back") && !told.contains("attempt"), "nothing is charged: {told}");
        fixture.server.command(&[b"FLUSHALL"]).unwrap();
    }
}

#[test]
fn after_a_kill_the_job_runs_again_elsewhere_under_the_same_idempotency_key() {
    let fixture = Fixture::new();
    let seen = fixture.file("seen", b"").display().to_string();
    let script = format!(
        "echo $$ $GRISTMILL_IDEMPOTENCY_KEY $GRISTMILL_RECOVERED $GRISTMILL_ATTEMPT >>{seen}; \
         [ $GRISTMILL_RECOVERED = true ] || exec sleep 60"
    );
    let settings = format!("[kinds.\"price.changed\"]\nexec = [\"sh\", \"-c\", \"{script}\"]\n");
    let lines = |count: usize| {
        eventually(SOON, "it runs", || {
            let lines: Vec<String> =
                std::fs::read_to_string(&seen).unwrap().lines().map(str::to_owned).collect();
            (lines.len() == count).then_some(lines)
        })
    };
    let mut first = node(&fixture, &settings);
    enqueue(&fixture, &[("e1", "k", 1, "1")]);
    let before = lines(1);
    first.kill().unwrap();
    // As is documented: the command itself goes on, and nobody is left who would end it.
    let pid: u32 = before[0].split(' ').next().unwrap().parse().unwrap();
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    let second = node(&fixture, &settings);
    let after = lines(2);
    assert!(before[0].ends_with(" q:e1 false 1"), "{before:?}");
    assert!(after[1].ends_with(" q:e1 true 1"), "{after:?}");
    eventually(SOON, "it is done", || fixture.run("explain e1").out.contains("done").then_some(()));
    drain(second);
    ProcessOptions::new("kill").args(["-9", &format!("{pid}")]).spawn().unwrap().wait(SOON).unwrap();
}

#[test]
fn what_a_command_says_on_standard_error_is_in_the_log_where_that_was_asked_for() {
    let fixture = Fixture::new();
    let kind = "[kinds.\"price.changed\"]\nexec = [\"sh\", \"-c\", \"echo rendering $GRISTMILL_ID >&2; printf unended >&2\"]\n";
    let quiet = node(&fixture, kind);
    enqueue(&fixture, &[("e1", "k", 1, "1")]);
    eventually(SOON, "it is done", || fixture.run("explain e1").out.contains("done").then_some(()));
    assert!(quiet.lines().iter().all(|line| !line.text.contains("rendering")));
    drain(quiet);
    let talking = node(&fixture, &format!("{kind}[log]\nlevel = \"info,gristmill_remote=debug\"\n"));
    enqueue(&fixture, &[("e2", "k", 2, "1")]);
    talking
        .wait_line(|line| line.text.contains("rendering e2") && line.text.contains("price.changed"), SOON)
        .unwrap();
    talking.wait_line(|line| line.text.contains("unended"), SOON).unwrap();
    drain(talking);
}
