//! `dev`: something to try, and nothing left behind.

use crate::fixture::{SOON, gristmill, run};
use gristmill_testkit::process::{Process, ProcessOptions};
use gristmill_testkit::{Deadline, eventually};
use std::net::TcpStream;
use std::path::PathBuf;

struct Dev {
    process: Process,
    address: String,
    /// Where its folder is made; removed with what is left in it.
    temporary: PathBuf,
}

impl Dev {
    fn start(test: &str) -> Self {
        Self::with(test, &[])
    }

    fn with(test: &str, arguments: &[&str]) -> Self {
        let temporary =
            std::env::temp_dir().join(format!("gristmill-dev-test-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&temporary).unwrap();
        let process = ProcessOptions::new(gristmill())
            .args(arguments)
            .args(["dev"])
            .envs([("TMPDIR", &temporary)])
            .spawn()
            .unwrap();
        let line = process.wait_line(|line| line.text.starts_with("redis: redis://"), SOON).unwrap();
        let address = line.text.split("//").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        process.wait_line(|line| line.text.contains(" ready "), SOON).unwrap();
        Self { process, address, temporary }
    }

    fn wait_nothing_left(&self) {
        eventually(Deadline::after(SOON), "the private server and its folder to be gone", || {
            let folder = std::fs::read_dir(&self.temporary).unwrap().next().is_none();
            (folder && TcpStream::connect(&self.address).is_err()).then_some(())
        });
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = std::fs::remove_dir_all(&self.temporary);
    }
}

#[test]
fn what_it_says_to_try_works_and_it_leaves_nothing_behind() {
    let mut dev = Dev::start("try");
    let url = format!("redis://{}", dev.address);
    let jobs = dev.temporary.join("jobs");
    let line = |kind: &str, payload: &str| {
        format!(
            "{{\"id\":\"{kind}\",\"key\":\"{kind}\",\"version\":1,\"kind\":\"{kind}\",\"payload\":{payload}}}\n"
        )
    };
    let text = [
        line("echo", "\"hello\""),
        line("sleep", "{\"ms\":1}"),
        line("count", "{}"),
        line("fail", "{\"class\":\"permanent\"}"),
    ];
    std::fs::write(&jobs, text.concat()).unwrap();
    let enqueue = ProcessOptions::new(gristmill()).args(["--redis", &url, "enqueue", "dev", "--from", "-"]);
    let said = run(enqueue.stdin(&jobs));
    assert_eq!(said.out, "enqueued=4 duplicates=0 bad=0", "{said:?}");
    eventually(SOON, "all jobs to be settled", || {
        let queues = run(ProcessOptions::new(gristmill()).args(["--redis", &url, "queues", "--json"])).json();
        (queues["queues"][0]["ready"] == 0 && queues["queues"][0]["dead"] == 1).then_some(())
    });
    std::fs::remove_file(&jobs).unwrap();
    dev.process.terminate().unwrap();
    assert_eq!(dev.process.wait(SOON).unwrap().code(), Some(0));
    assert!(crate::fixture::out(&dev.process).last().unwrap().starts_with("drained: finished="));
    dev.wait_nothing_left();
}

#[test]
fn killed_it_leaves_nothing_behind_either() {
    let mut dev = Dev::start("kill");
    // The program alone, not the group that the testkit would kill with it.
    dev.process.signal(gristmill_testkit::process::Signal::SIGKILL).unwrap();
    dev.wait_nothing_left();
}

#[test]
fn without_a_server_program_it_says_what_to_install() {
    let said = run(ProcessOptions::new(gristmill())
        .args(["dev"])
        .envs([("GRISTMILL_REDIS_7", "/nowhere/redis-server")]));
    assert_eq!(said.code, 1);
    assert!(said.err.contains("cannot run /nowhere/redis-server; install Redis 7.0 or newer"), "{said:?}");
}

#[test]
fn kinds_that_others_serve_can_be_tried_too() {
    let mut dev =
        Dev::with("others", &["--set", "kinds.hello.exec=sh,-c,echo hello $GRISTMILL_KEY >&2; exit 65"]);
    dev.process.wait_line(|line| line.text == "kinds: count, echo, fail, hello, sleep", SOON).unwrap();
    let jobs = dev.temporary.join("jobs");
    std::fs::write(&jobs, "{\"id\":\"a\",\"key\":\"you\",\"version\":1,\"kind\":\"hello\",\"payload\":1}\n")
        .unwrap();
    let url = format!("redis://{}", dev.address);
    let command = |words: &[&str]| run(ProcessOptions::new(gristmill()).args(["--redis", &url]).args(words));
    assert_eq!(command(&["enqueue", "dev", "--from", &jobs.display().to_string()]).code, 0);
    eventually(SOON, "it ran", || {
        let told = command(&["dead", "list", "dev"]).out;
        (told.contains("EX_DATAERR") && told.contains("hello you")).then_some(())
    });
    dev.process.terminate().unwrap();
    assert_eq!(dev.process.wait(SOON).unwrap().code(), Some(0));
}
