//! The demo itself, on small made inputs: clean when nothing is planted, and each plant turns exactly its own field.
//! Then its words for an input that cannot be used, and what is left of it when a person interrupts it.

#![allow(clippy::unwrap_used, reason = "all of it is a test; clippy excuses test functions only")]

use gristmill_testkit::{
    eventually,
    process::{Process, Signal},
};
use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

const SMALL: [&str; 8] = ["--made", "1200", "--seconds", "2", "--lease-ms", "1500", "--seed", "0x9157"];
const PROMISES: [&str; 4] = ["lost", "doubled", "out_of_order", "mismatched"];

/// One demo at a time: each has a server and up to four nodes.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn demo(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gristmill-demo")).args(args).output().unwrap()
}

/// Runs a small demo, checks what holds with every plant, and gives the promises' fields with the exit code.
#[track_caller]
fn fields_of(more: &[&str]) -> (BTreeMap<String, u64>, Option<i32>) {
    let _alone = alone();
    let output = demo(&[&SMALL, more].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().last().and_then(|line| line.strip_prefix("demo: "));
    let last = last.unwrap_or_else(|| panic!("no last line\n{text}\n{errors}"));
    let fields: Vec<(String, u64)> = last
        .split(' ')
        .map(|field| field.split_once('=').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect();
    let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names.join(" "),
        "events applied duplicates_absorbed lost doubled out_of_order mismatched recovery_ms drain_ms jobs_per_s"
    );
    let fields: BTreeMap<String, u64> = fields.into_iter().collect();
    println!("{text}");
    assert_eq!(fields["events"], 1200);
    for measured in ["duplicates_absorbed", "recovery_ms", "drain_ms", "jobs_per_s"] {
        assert!(fields[measured] > 0, "{measured} is 0");
    }
    assert!(text.contains("SIGKILL to node-") && text.contains("SIGTERM to node-"));
    (fields, output.status.code())
}

/// Exactly this field is turned, by one, and so many effects are applied.
#[track_caller]
fn turns(plant: &str, field: &str, applied: u64) {
    let (fields, code) = fields_of(&["--plant", plant]);
    for promise in PROMISES {
        assert_eq!(fields[promise], u64::from(promise == field), "{promise}");
    }
    assert_eq!((fields["applied"], code), (applied, Some(1)));
}

#[test]
fn with_nothing_planted_every_promise_is_kept() {
    let (fields, code) = fields_of(&[]);
    for promise in PROMISES {
        assert_eq!(fields[promise], 0, "{promise}");
    }
    assert_eq!((fields["applied"], code), (1200, Some(0)));
}

#[test]
fn a_lost_effect_turns_lost() {
    turns("lost", "lost", 1199);
}

#[test]
fn a_doubled_effect_turns_doubled() {
    turns("doubled", "doubled", 1201);
}

#[test]
fn a_reordered_run_turns_out_of_order() {
    turns("reordered", "out_of_order", 1200);
}

#[test]
fn a_stale_write_turns_mismatched() {
    turns("stale", "mismatched", 1200);
}

/// A folder of this test's own, gone when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gristmill-demo-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        fs::write(self.0.join(name), bytes).unwrap();
        self.path(name)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

const BLOB: &str = "6870420affa1335006ce2ec1aa14b802e16b730b";

fn event(id: &str, version: u64) -> String {
    format!(r#"{{"id":"{id}","key":"a","version":{version},"op":"add","mode":"100644","blob":"{BLOB}"}}"#)
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn an_input_that_cannot_be_used_is_told_in_words_before_anything_starts() {
    let folder = Folder::new("bad-input");
    let truth = folder.write("truth.tsv", format!("a\t100644\t{BLOB}\n").as_bytes());
    let good = format!("{}\n{}\n", event("1", 1), event("2", 2));
    let events = folder.write("events.jsonl", good.as_bytes());
    let whole = gzip(&event("1", 1).repeat(200));
    let bad_lines = format!("{good}{{\n\n{}\n{}\n", event("3", 2), event("4", 3).replace("add", "touch"));

    let not_gzip = folder.write("plain.jsonl.gz", good.as_bytes());
    let empty_gzip = folder.write("empty.jsonl.gz", b"");
    let cut = folder.write("cut.jsonl.gz", &whole[..whole.len() - 9]);
    let mut damaged = whole.clone();
    damaged[20] ^= 0xff;
    let damaged = folder.write("damaged.jsonl.gz", &damaged);
    let bad = folder.write("bad.jsonl", bad_lines.as_bytes());
    let bad_gzip = folder.write("bad.jsonl.gz", &gzip(&bad_lines));
    let none = folder.write("none.jsonl", b"\n\n");
    let bad_truth = folder.write("bad.tsv", format!("a\t100644\t{BLOB}\nb 100644 {BLOB}\n").as_bytes());
    let (missing, directory) = (folder.path("no-such-file"), folder.path(""));

    let cases: [(&str, &str, &[&str]); 11] = [
        (&missing, &truth, &["no-such-file: there is no such file"]),
        (&events, &missing, &["no-such-file: there is no such file"]),
        (&directory, &truth, &["cannot be read"]),
        (&not_gzip, &truth, &["not gzip", "does not begin like gzip"]),
        (&empty_gzip, &truth, &["not gzip", "is empty"]),
        (&cut, &truth, &["cut off"]),
        (&damaged, &truth, &["gzip data"]),
        (
            &bad,
            &truth,
            &["line 3: expected an event", "line 5: expected a version of \"a\" above 2", "line 6: "],
        ),
        (&bad_gzip, &truth, &["line 3: ", "unknown variant `touch`"]),
        (&none, &truth, &["at least one event, found none"]),
        (&events, &bad_truth, &["bad.tsv", "line 2: expected path<TAB>mode<TAB>blob"]),
    ];
    for (events, truth, words) in cases {
        let output = demo(&["--events", events, "--truth", truth]);
        refused(&output, words);
    }
    refused(&demo(&["--events", &events]), &["--truth"]);
    refused(&demo(&["--repo", &directory]), &["--repo", "expected a git repository with a commit"]);
    refused(&demo(&["--kill-at", "120"]), &["--kill-at"]);
}

#[track_caller]
fn refused(output: &Output, words: &[&str]) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    for word in words {
        assert!(errors.contains(word), "expected {word:?} in {errors}");
    }
    assert!(!errors.contains("panicked") && !errors.contains("backtrace"), "{errors}");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(!told.contains("Redis"), "something was started: {told}");
}

#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    let _alone = alone();
    let program = env!("CARGO_BIN_EXE_gristmill-demo");
    let nothing: [(&str, &str); 0] = [];
    let mut demo = Process::spawn(program, ["--made", "1200", "--seconds", "60"], nothing).unwrap();
    let paced = demo.wait_line(|line| line.text.starts_with("paced over"), Duration::from_secs(60)).unwrap();
    let pids: Vec<&str> = paced
        .text
        .split("(pid ")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(pid, _)| pid))
        .collect();
    assert_eq!(pids.len(), 3, "{}", paced.text);
    let ports: Vec<u16> = demo
        .lines()
        .iter()
        .filter_map(|line| line.text.split_once(" on port ")?.1.split_once(',')?.0.parse().ok())
        .collect();
    assert_eq!(ports.len(), 2);
    assert!(TcpStream::connect(("127.0.0.1", ports[1])).is_ok());

    demo.signal(Signal::SIGINT).unwrap();
    let status = demo.wait(Duration::from_secs(10)).unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(demo.stderr_tail().contains("interrupted"), "{}", demo.stderr_tail());
    for port in ports {
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "a server is left on port {port}");
    }
    for pid in pids {
        let proc = Path::new("/proc").join(pid);
        eventually(Duration::from_secs(5), "the end of a node", || (!proc.exists()).then_some(()));
    }
}
