//! A command per run: what it is given, the table of exit codes, limits, what it leaves behind.

use crate::fixture::{Folder, Kind, all_gone, job, kind, lives, ms, said, sh, told, within};
use gristmill_handler::Answer;
use gristmill_job::{ContentType, EntityChange, NewJob};
use gristmill_remote::exec::exit::ExitTable;
use gristmill_remote::{ExecConfig, Form, KindConfig, Remote, Way};
use std::time::Instant;

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn once(script: &str) -> KindConfig {
    sh(Form::Once, script)
}

#[tokio::test]
async fn a_command_gets_the_payload_on_stdin_and_the_rest_in_its_environment() {
    let folder = Folder::new("given");
    let (out, env) = (folder.path("stdin"), folder.path("env"));
    let kind = Kind::new(once(&format!("cat >{out}; env >{env}; pwd >>{env}")));
    let payload = format!("\"{}\"", "x".repeat(500_000));
    let sent = job(&payload).with_header("traceparent", TRACE);
    assert_eq!(told(&kind.run(&sent).await), ("done".into(), String::new()));
    assert_eq!(folder.read("stdin"), payload);
    let env = folder.read("env");
    for line in [
        "GRISTMILL_ID=a1",
        "GRISTMILL_KEY=sku-1",
        "GRISTMILL_KIND=price.changed",
        "GRISTMILL_QUEUE=prices",
        "GRISTMILL_VERSION=7",
        "GRISTMILL_ATTEMPT=3",
        "GRISTMILL_RECOVERED=false",
        "GRISTMILL_CONTENT_TYPE=application/json",
        "GRISTMILL_IDEMPOTENCY_KEY=prices:a1",
        &format!("TRACEPARENT={TRACE}"),
    ] {
        assert!(env.lines().any(|have| have == line), "{line}: {env}");
    }
    assert!(env.contains("\nGRISTMILL_DEADLINE_MS=") && env.contains("PATH="), "{env}");
    let odd = NewJob::from_bytes("price.changed", b"a\nB=c\0\xff", "1", ContentType::Json).unwrap();
    assert_eq!(told(&kind.run(&odd).await).0, "done");
    assert!(folder.read("env").contains("GRISTMILL_KEY=a%0AB=c%00%FF\n"), "{}", folder.read("env"));
}

#[tokio::test]
async fn every_exit_code_means_what_the_table_says() {
    for code in 0..=255u8 {
        let expected = match code {
            0 => "done",
            65..=68 | 76 => "permanent",
            69 | 71 | 73..=75 => "transient",
            _ => "unknown",
        };
        let (outcome, text) = Kind::new(once(&format!("exit {code}"))).ask().await;
        assert_eq!(outcome, expected, "{code}: {text}");
        let name = if code == 75 { " (EX_TEMPFAIL)" } else { "" };
        assert!(code == 0 || text.starts_with(&format!("sh ended with exit code {code}{name}")), "{text}");
    }
    let (outcome, text) = Kind::new(once("kill -9 $$")).ask().await;
    assert!(outcome == "unknown" && text == "sh was killed by signal 9", "{outcome} {text}");
}

#[tokio::test]
async fn a_kind_may_say_otherwise() {
    let exit = ExitTable::new(&["3=discard".into(), "75=review".into(), "0=transient".into()]).unwrap();
    for (code, expected) in [(3, "discarded"), (75, "review"), (0, "transient"), (65, "permanent")] {
        let command = ["sh", "-c", &format!("exit {code}")].map(str::to_owned).to_vec();
        let config = ExecConfig { command, folder: None, form: Form::Once, exit: exit.clone() };
        assert_eq!(Kind::new(kind(Way::Exec(config))).ask().await.0, expected, "{code}");
    }
}

#[tokio::test]
async fn the_end_of_stderr_is_kept_with_the_error_however_much_there_is() {
    let (_, text) = Kind::new(once("echo Traceback >&2; echo 'KeyError: sku' >&2; exit 1")).ask().await;
    assert_eq!(text, "sh ended with exit code 1: Traceback\nKeyError: sku");
    let much = "i=0; while [ $i -lt 20000 ]; do echo line $i >&2; i=$((i+1)); done; echo last >&2; exit 65";
    let answer = Kind::new(once(much)).run(&job("1")).await;
    match &answer {
        Answer::Failed(failure) => {
            assert!(failure.chain[1].ends_with("line 19999\nlast"), "{failure:?}");
            assert!(
                failure.chain[1].starts_with("…\nline 19") && failure.chain[1].len() <= 1010,
                "{failure:?}"
            );
        }
        other => panic!("{other:?}"),
    }
    let (outcome, text) = Kind::new(once("printf '\\377\\376 bad' >&2; exit 1")).ask().await;
    assert!(outcome == "unknown" && text.ends_with(" bad"), "{text}");
}

#[tokio::test]
async fn the_last_line_of_stdout_may_carry_an_answer() {
    let speak = |line: &str| once(&format!("cat >/dev/null; echo hello; echo '{line}'"));
    match Kind::new(speak(r#"{"gristmill":{"state":{"a":1}}}"#)).run(&job("1")).await {
        Answer::Done(effects) => assert_eq!(effects.entity, Some(EntityChange::Put("{\"a\":1}".into()))),
        other => panic!("{other:?}"),
    }
    for (script, outcome, text) in [
        (r#"{"gristmill":{"snooze_ms":9}}"#, "snoozed", "9 ms"),
        (r#"{"gristmill":{"snoze_ms":9}}"#, "permanent", "unknown field"),
        (r#"{"gristmill":{"snooze_ms"#, "permanent", "expected JSON"),
        (r#"{"other":1}"#, "done", ""),
        ("all fine", "done", ""),
    ] {
        let (got, error) = Kind::new(speak(script)).ask().await;
        assert!(got == outcome && error.contains(text), "{script}: {got} {error}");
    }
    let (got, _) = Kind::new(once(r#"echo '{"gristmill":{"snooze_ms":9}}'; exit 75"#)).ask().await;
    assert_eq!(got, "transient", "an answer counts with exit code 0 alone");
}

#[tokio::test]
async fn huge_outputs_are_read_and_not_kept() {
    let many = "i=0; while [ $i -lt 3000 ]; do printf '%0500d\\n' 7; i=$((i+1)); done; echo '{\"gristmill\":{\"snooze_ms\":9}}'";
    assert_eq!(Kind::new(once(many)).ask().await.0, "snoozed");
    let (outcome, text) = Kind::new(once("head -c 1000000 /dev/zero | tr '\\0' x")).ask().await;
    assert!(outcome == "permanent" && text.contains("more than 65536 bytes"), "{outcome} {text}");
    let endless = within(None, 500, once("while :; do echo y; echo e >&2; done"));
    assert_eq!(Kind::new(endless).ask().await.0, "timeout");
}

#[tokio::test]
async fn a_payload_that_nobody_reads_harms_nobody() {
    let sent = job(&format!("\"{}\"", "x".repeat(900_000)));
    let kind = Kind::new(once("exec 0<&-; exit 0"));
    for _ in 0..5 {
        assert_eq!(told(&kind.run(&sent).await).0, "done");
    }
    let slow = Kind::new(within(None, 400, once("exec sleep 60")));
    assert_eq!(told(&slow.run(&sent).await).0, "timeout");
}

#[tokio::test]
async fn at_its_soft_limit_a_command_is_asked_to_end() {
    let tidy = |code: u8| format!("trap 'echo tidy >&2; exit {code}' TERM; sleep 60 & wait");
    for (code, expected) in [(0, "done"), (75, "timeout"), (1, "timeout"), (65, "permanent")] {
        let began = Instant::now();
        let (outcome, text) = Kind::new(within(Some(300), 15_000, once(&tidy(code)))).ask().await;
        assert_eq!(outcome, expected, "{code}: {text}");
        assert!(began.elapsed() >= ms(300) && began.elapsed() < ms(10_000));
        assert!(
            expected != "timeout" || text.contains("asked to end at its soft limit of 300 ms: "),
            "{text}"
        );
    }
    // Who does not care for it ends by it, with all that it started.
    let (outcome, text) = Kind::new(within(Some(300), 15_000, once("sleep 60 | sleep 60"))).ask().await;
    assert!(outcome == "timeout" && text.contains("by signal 15"), "{outcome} {text}");
}

#[tokio::test]
async fn at_its_hard_limit_a_command_and_all_it_started_are_killed() {
    let folder = Folder::new("hard");
    let pids = folder.path("pids");
    let script = format!(
        "trap '' TERM; echo $$ >>{pids}; (trap '' TERM; while :; do sleep 1; done) & echo $! >>{pids}; \
         echo still here >&2; while :; do sleep 1; done"
    );
    let began = Instant::now();
    let (outcome, text) = Kind::new(within(Some(200), 700, once(&script))).ask().await;
    assert!(
        outcome == "timeout" && text.starts_with("sh was killed at its hard limit of 700 ms"),
        "{outcome} {text}"
    );
    assert!(
        text.ends_with("still here") && began.elapsed() >= ms(700) && began.elapsed() < ms(8000),
        "{text}"
    );
    all_gone(&folder.lines("pids", 2).await).await;
}

#[tokio::test]
async fn a_drain_asks_it_to_end_and_what_then_fails_is_tried_elsewhere() {
    let folder = Folder::new("drain");
    let up = folder.path("up");
    for (script, expected) in [
        (format!("echo $$ >>{up}; exec sleep 60"), "transient"),
        (format!("trap 'exit 1' TERM; echo $$ >>{up}; sleep 60 & wait"), "transient"),
        (format!("trap 'exit 0' TERM; echo $$ >>{up}; sleep 60 & wait"), "done"),
        (format!("trap 'exit 65' TERM; echo $$ >>{up}; sleep 60 & wait"), "permanent"),
    ] {
        let _ = std::fs::remove_file(folder.0.join("up"));
        let kind = Kind::new(once(&script));
        let (run, stop) = kind.start(&job("1"));
        let run = tokio::spawn(run);
        folder.lines("up", 1).await;
        stop.soft(tokio::time::Instant::now() + ms(10_000));
        let outcome = told(&run.await.unwrap());
        assert!(said(expected)(&outcome), "{script}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_run_that_is_dropped_leaves_nothing_behind() {
    let folder = Folder::new("dropped");
    let pids = folder.path("pids");
    let kind = Kind::new(once(&format!("trap '' TERM; echo $$ >>{pids}; sleep 60 & echo $! >>{pids}; wait")));
    let (run, _) = kind.start(&job("1"));
    let run = tokio::spawn(run);
    let pids = folder.lines("pids", 2).await;
    assert!(pids.iter().all(|pid| lives(pid)));
    run.abort();
    all_gone(&pids).await;
}

#[tokio::test]
async fn what_a_command_leaves_running_ends_with_it() {
    let folder = Folder::new("left");
    let pids = folder.path("pids");
    // It holds stdout and stderr, and would hold up whoever waits for their end.
    let kind = Kind::new(once(&format!("trap '' TERM; sleep 60 & echo $! >>{pids}; exit 0")));
    let began = Instant::now();
    assert_eq!(kind.ask().await.0, "done");
    assert!(began.elapsed() < ms(10_000));
    all_gone(&folder.lines("pids", 1).await).await;
    if gristmill_testkit::guard::find_program("setsid").is_some() {
        // Who left the group is beyond reach, and holds nobody up.
        let away = folder.path("away");
        let script = format!(
            "setsid sh -c 'echo $$ >{away}; exec sleep 60' & while [ ! -s {away} ]; do sleep 0.01; done"
        );
        let kind = Kind::new(once(&script));
        assert_eq!(kind.ask().await.0, "done");
        assert!(began.elapsed() < ms(15_000));
        let away = nix::unistd::Pid::from_raw(folder.read("away").trim().parse().unwrap());
        nix::sys::signal::kill(away, nix::sys::signal::Signal::SIGKILL).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_at_a_time_end_each_with_its_own_answer_and_leave_no_zombie() {
    let folder = Folder::new("hundred");
    let pids = folder.path("pids");
    let kind = std::sync::Arc::new(Kind::new(once(&format!(
        "echo $$ >>{pids}; read n; while [ $(wc -l <{pids}) -lt 100 ]; do sleep 0.05; done; echo n=$n >&2; exit $((n % 2 * 75))"
    ))));
    let mut runs = tokio::task::JoinSet::new();
    for n in 0..100 {
        let kind = std::sync::Arc::clone(&kind);
        runs.spawn(async move { (n, told(&kind.run(&job(&format!("{n}\n"))).await)) });
    }
    // They wait for each other: none ends before all of them run.
    while let Some(ended) = runs.join_next().await {
        let (n, (outcome, text)) = ended.unwrap();
        assert_eq!(outcome, if n % 2 == 0 { "done" } else { "transient" }, "{n}: {text}");
        assert!(n % 2 == 0 || text.ends_with(&format!(": n={n}")), "{n}: {text}");
    }
    all_gone(&folder.lines("pids", 100).await).await;
}

#[tokio::test]
async fn no_more_processes_than_said_run_at_a_time() {
    let folder = Folder::new("two");
    let count = folder.path("count");
    let script = format!("echo + >>{count}; sleep 0.05; echo - >>{count}");
    let kind = std::sync::Arc::new(Kind::new(KindConfig { concurrency: Some(2), ..once(&script) }));
    let mut runs = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let kind = std::sync::Arc::clone(&kind);
        runs.spawn(async move { kind.ask().await });
    }
    while let Some(ended) = runs.join_next().await {
        assert_eq!(ended.unwrap().0, "done");
    }
    let (mut now, mut most) = (0i32, 0);
    for line in folder.lines("count", 24).await {
        now += if line == "+" { 1 } else { -1 };
        most = most.max(now);
    }
    assert_eq!((now, most), (0, 2));
}

#[tokio::test]
async fn a_folder_is_where_it_runs_and_a_program_is_found_from_there() {
    let folder = Folder::new("folder");
    // By a shell: what this process has open for writing, a sister of this test may hold while it starts a child.
    let write = |script: &str| {
        let script = format!("cd {}; printf '{script}' >handler; chmod +x handler", folder.0.display());
        assert!(std::process::Command::new("sh").arg("-c").arg(script).status().unwrap().success());
    };
    write("#!/bin/sh\\npwd >here\\n");
    let config = |command: &str| {
        let command = vec![command.to_owned()];
        kind(Way::Exec(ExecConfig {
            command,
            folder: Some(folder.0.clone()),
            form: Form::Once,
            exit: ExitTable::default(),
        }))
    };
    assert_eq!(Kind::new(config("./handler")).ask().await, ("done".into(), String::new()));
    let here = std::fs::canonicalize(folder.read("here").trim()).unwrap();
    assert_eq!(here, std::fs::canonicalize(&folder.0).unwrap());
    // A program that is gone, or is none, is no job's fault.
    let broken = Kind::new(config("./handler"));
    write("\\0\\0");
    let (outcome, text) = broken.ask().await;
    assert!(outcome == "transient" && text.starts_with("cannot start handler: "), "{outcome} {text}");
    std::fs::remove_file(folder.0.join("handler")).unwrap();
    assert_eq!(broken.ask().await.0, "transient");
}

#[test]
fn settings_that_cannot_be_are_refused_with_what_was_expected() {
    let refused = |command: &[&str], folder: Option<&str>| {
        let command = command.iter().map(|part| (*part).to_owned()).collect();
        let config = ExecConfig {
            command,
            folder: folder.map(Into::into),
            form: Form::Once,
            exit: ExitTable::default(),
        };
        Remote::new(vec![kind(Way::Exec(config))]).unwrap_err().to_string()
    };
    assert_eq!(
        refused(&[], None),
        "kind \"price.changed\", exec: expected a program and its arguments, got nothing"
    );
    assert!(refused(&["", "x"], None).ends_with("got nothing"));
    let expected = "exec: expected a program on PATH, or the path of an executable file, got ";
    for bad in ["no-such-program-here", "/no/such", "./Cargo.toml", "/"] {
        let error = refused(&[bad], None);
        assert!(error.contains(&format!("{expected}{bad:?}")), "{error}");
    }
    assert!(refused(&["sh", "a\0b"], None).contains("text without NUL"));
    assert!(
        refused(&["sh"], Some("/no/such"))
            .contains("folder: expected a folder that is there, got \"/no/such\"")
    );
}
