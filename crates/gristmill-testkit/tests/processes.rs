//! Captured children: lines, signals, ends.

use gristmill_testkit::{
    Error, eventually,
    process::{Output, Process, ProcessOptions, Signal},
};
use std::{os::unix::process::ExitStatusExt, time::Duration};

const SOON: Duration = Duration::from_secs(10);
const NO_ENVS: [(&str, &str); 0] = [];

fn sh(script: &str) -> Process {
    match Process::spawn("sh", ["-c", script], NO_ENVS) {
        Ok(process) => process,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn captures_both_streams_and_the_exit_code() {
    let mut process =
        Process::spawn("sh", ["-c", "echo out $MARK; echo err >&2; printf last; exit 3"], [("MARK", "a b")])
            .unwrap();
    assert_eq!(process.wait(SOON).unwrap().code(), Some(3));
    let of = |from| {
        process.lines().into_iter().filter(|line| line.from == from).map(|line| line.text).collect::<Vec<_>>()
    };
    assert_eq!(of(Output::Stdout), ["out a b", "last"]);
    assert_eq!(of(Output::Stderr), ["err"]);
    assert_eq!(process.stderr_tail(), "  err\n");
}

#[test]
fn waits_for_a_line_and_goes_on_from_there() {
    let process = sh("echo one; echo two; echo one; exec sleep 600");
    let (first, _) = process.wait_line_from(0, |line| line.text == "one", SOON).unwrap();
    let (second, _) = process.wait_line_from(first + 1, |line| line.text == "one", SOON).unwrap();
    assert_eq!((first, second), (0, 2));
    let late =
        process.wait_line(|line| line.text == "three", Duration::from_millis(30)).unwrap_err().to_string();
    assert!(late.contains("still running") && late.contains("two"), "{late}");
}

#[test]
fn does_not_wait_for_a_line_of_an_ended_program() {
    let process = sh("echo only this");
    let error =
        process.wait_line(|line| line.text == "more", Duration::from_secs(600)).unwrap_err().to_string();
    assert!(error.contains("its output ended") && error.contains("only this"), "{error}");
}

#[test]
fn the_pid_is_the_programs_own_and_signals_reach_it() {
    let mut process = sh(
        "trap 'echo asked; exit 7' TERM; echo $$; while :; do read -t 1 x 2>/dev/null || sleep 0.05; done",
    );
    let line = process.wait_line(|_| true, SOON).unwrap();
    assert_eq!(line.text, process.pid().to_string());
    process.terminate().unwrap();
    process.wait_line(|line| line.text == "asked", SOON).unwrap();
    assert_eq!(process.wait(SOON).unwrap().code(), Some(7));
    assert!(matches!(process.signal(Signal::SIGTERM), Err(Error::NotRunning { .. })));
}

#[test]
fn sigint_is_not_ignored() {
    let mut process = Process::spawn("sleep", ["600"], NO_ENVS).unwrap();
    process.signal(Signal::SIGINT).unwrap();
    assert_eq!(process.wait(SOON).unwrap().signal(), Some(2));
}

#[test]
fn paused_it_writes_nothing() {
    let mut process = sh("i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done");
    process.wait_line(|line| line.text == "3", SOON).unwrap();
    process.pause().unwrap();
    let state = format!("/proc/{}/stat", process.pid());
    eventually(SOON, "the stopped state", || {
        std::fs::read_to_string(&state).unwrap().contains(") T ").then_some(())
    });
    // What was in the pipe arrives; then nothing more does.
    let mut before = process.lines().len();
    eventually(SOON, "silence", || {
        let now = process.lines().len();
        std::mem::replace(&mut before, now).eq(&now).then_some(())
    });
    assert!(process.wait_line_from(before, |_| true, Duration::from_millis(100)).is_err());
    process.resume().unwrap();
    process.wait_line_from(before, |_| true, SOON).unwrap();
}

#[test]
fn a_kill_takes_grandchildren_along() {
    let mut process = sh("sleep 600 & echo $!; wait");
    let grandchild = process.wait_line(|_| true, SOON).unwrap().text;
    process.pause().unwrap();
    assert_eq!(process.kill().unwrap().signal(), Some(9));
    eventually(SOON, "the grandchild's end", || {
        let stat = std::fs::read_to_string(format!("/proc/{grandchild}/stat")).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z ")).then_some(())
    });
    assert_eq!(process.kill().unwrap().signal(), Some(9), "a second kill says the same");
}

#[test]
fn reads_a_file_as_standard_input_and_nothing_by_default() {
    let mut process = ProcessOptions::new("wc").args(["-l"]).stdin("/etc/passwd").spawn().unwrap();
    process.wait(SOON).unwrap();
    assert!(process.lines()[0].text.trim().parse::<u32>().unwrap() > 0);
    let mut empty = Process::spawn("wc", ["-c"], NO_ENVS).unwrap();
    empty.wait(SOON).unwrap();
    assert_eq!(empty.lines()[0].text.trim(), "0");
}

#[test]
fn a_missing_program_is_named() {
    let error = Process::spawn("no-such-program", ["x"], NO_ENVS).err().unwrap();
    assert!(matches!(&error, Error::MissingProgram { program } if program == "no-such-program"), "{error}");
}

#[test]
fn a_wait_that_fails_shows_the_last_lines() {
    let mut process = sh("echo busy; exec sleep 600");
    process.wait_line(|_| true, SOON).unwrap();
    let error = process.wait(Duration::from_millis(20)).unwrap_err().to_string();
    assert!(error.contains("the end of sh") && error.contains("busy"), "{error}");
}
