//! Commands that stay: one line of JSON in, one out.

use crate::fixture::{Folder, Kind, all_gone, job, lives, ms, said, sh, told, within};
use gristmill_handler::Answer;
use gristmill_job::{ContentType, EntityChange, NewJob};
use gristmill_remote::exec::exit::ExitTable;
use gristmill_remote::{Form, KindConfig, Way};
use std::sync::Arc;
use std::time::Instant;

/// Answers each line with `answer`, in which $id is the id and $line the whole line.
fn loop_of(folder: &Folder, answer: &str) -> KindConfig {
    let (pids, seen) = (folder.path("pids"), folder.path("seen"));
    let id = r#"id=${line#*\"id\":\"}; id=${id%%\"*}"#;
    sh(
        Form::Lines,
        &format!(
            "echo $$ >>{pids}; while read -r line; do {id}; printf '%s\\n' \"$line\" >>{seen}; {answer}; done"
        ),
    )
}

const DONE: &str = r#"echo "{\"id\":\"$id\"}""#;

#[tokio::test]
async fn one_process_takes_job_after_job_and_is_told_everything() {
    let folder = Folder::new("lines");
    let kind = Kind::new(loop_of(&folder, DONE));
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let sent = job("{\n \"price\":\r\n 1.50, \"text\": \"a\\nb\"}").with_header("traceparent", trace);
    assert_eq!(told(&kind.run(&sent).await), ("done".into(), String::new()));
    for _ in 0..9 {
        assert_eq!(kind.ask().await.0, "done");
    }
    assert_eq!(folder.lines("pids", 1).await.len(), 1, "one process for all");
    let seen = folder.lines("seen", 10).await;
    assert_eq!(seen.len(), 10);
    assert!(seen[0].contains("1.50"), "numbers stay as they were written: {}", seen[0]);
    let mut line: serde_json::Value = serde_json::from_str(&seen[0]).unwrap();
    assert!(line["deadline_ms"].take().as_u64().unwrap() > 1_600_000_000_000);
    assert_eq!(
        line,
        serde_json::json!({
            "id": "a1", "kind": "price.changed", "queue": "prices", "key": "sku-1", "version": 7, "attempt": 3,
            "recovered": false, "deadline_ms": null, "idempotency_key": "prices:a1",
            "headers": {"traceparent": trace}, "payload": {"price": 1.5, "text": "a\nb"},
        })
    );
    let odd = NewJob::from_bytes("price.changed", b"\xff\n", vec![0x80], ContentType::MessagePack).unwrap();
    assert_eq!(told(&kind.run(&odd).await).0, "done");
    let line: serde_json::Value = serde_json::from_str(&folder.lines("seen", 11).await[10]).unwrap();
    assert_eq!((&line["key_base64"], &line["payload_base64"]), (&"/wo=".into(), &"gA==".into()));
    assert!(line.get("key").is_none() && line.get("payload").is_none());
    let garbage = told(&kind.run(&job("{\"a\":")).await);
    assert!(said("permanent")(&garbage) && garbage.1.contains("said to be JSON"), "{garbage:?}");
    assert_eq!(folder.lines("pids", 1).await.len(), 1);
    let pids = folder.lines("pids", 1).await;
    assert!(lives(&pids[0]));
    kind.close().await;
    all_gone(&pids).await;
}

#[tokio::test]
async fn an_answer_may_say_more_than_done() {
    for (more, outcome, text) in [
        (r#"\"outcome\":\"permanent\",\"error\":\"no such sku\""#, "permanent", "no such sku"),
        (r#"\"outcome\":\"transient\",\"retry_after_ms\":5"#, "transient", "says transient"),
        (r#"\"snooze_ms\":7"#, "snoozed", "7 ms"),
        (r#"\"more\":7"#, "permanent", "unknown field"),
    ] {
        let folder = Folder::new("answers");
        let kind = Kind::new(loop_of(&folder, &format!(r#"echo "{{\"id\":\"$id\",{more}}}""#)));
        for _ in 0..2 {
            let (got, error) = kind.ask().await;
            assert!(got == outcome && error.contains(text), "{more}: {got} {error}");
        }
        assert_eq!(
            folder.lines("pids", 1).await.len(),
            1,
            "{more}: such an answer is no reason to end a process"
        );
    }
    let folder = Folder::new("state");
    let kind = Kind::new(loop_of(&folder, r#"echo "{\"id\":\"$id\",\"state\":[1]}""#));
    match kind.run(&job("1")).await {
        Answer::Done(effects) => assert_eq!(effects.entity, Some(EntityChange::Put("[1]".into()))),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_process_that_dies_or_is_out_of_step_costs_its_job_and_is_replaced() {
    for (answer, outcome, text) in [
        ("echo 'KeyError: sku' >&2; exit 1", "unknown", "exit code 1 and had not answered: KeyError: sku"),
        ("exit 75", "transient", "exit code 75 (EX_TEMPFAIL) and had not answered"),
        ("exit 65", "permanent", "exit code 65"),
        ("exit 0", "unknown", "ended without an answer"),
        ("kill -9 $$", "unknown", "killed by signal 9"),
        ("echo debugging", "unknown", "out of step"),
        ("echo '{}'", "unknown", "one without id"),
        (r#"echo '{"id":"other"}'"#, "unknown", "got \"other\""),
        ("exec 1>&-; sleep 60", "unknown", "closed its streams"),
        ("head -c 100000 /dev/zero | tr '\\0' x", "permanent", "more than 65536 bytes"),
    ] {
        let folder = Folder::new("dies");
        let kind = Kind::new(loop_of(&folder, answer));
        for _ in 0..2 {
            let (got, error) = kind.ask().await;
            assert!(got == outcome && error.contains(text), "{answer}: {got} {error}");
        }
        let pids = folder.lines("pids", 2).await;
        assert_eq!(pids.len(), 2, "{answer}");
        all_gone(&pids).await;
    }
}

#[tokio::test]
async fn a_kind_may_say_otherwise_of_exit_codes_here_too() {
    let folder = Folder::new("override");
    let mut config = loop_of(&folder, "exit 3");
    if let Way::Exec(exec) = &mut config.way {
        exec.exit = ExitTable::new(&["3=discard".into()]).unwrap();
    }
    let (outcome, text) = Kind::new(config).ask().await;
    assert!(outcome == "discarded" && text.contains("exit code 3 and had not answered"), "{outcome} {text}");
}

#[tokio::test]
async fn an_answer_too_many_is_not_taken_for_the_next_jobs() {
    let folder = Folder::new("twice");
    let kind = Kind::new(loop_of(&folder, &format!("{DONE}; {DONE}")));
    assert_eq!(told(&kind.run(&job("1").with_id("first").unwrap()).await).0, "done");
    let (outcome, text) = told(&kind.run(&job("1").with_id("second").unwrap()).await);
    assert!(outcome == "unknown" && text.contains("\"second\", got \"first\""), "{outcome} {text}");
    assert_eq!(told(&kind.run(&job("1").with_id("third").unwrap()).await).0, "done");
}

#[tokio::test]
async fn one_that_died_while_idle_costs_no_job() {
    let folder = Folder::new("idle");
    let kind = Kind::new(loop_of(&folder, DONE));
    assert_eq!(kind.ask().await.0, "done");
    let pids = folder.lines("pids", 1).await;
    let pid = nix::unistd::Pid::from_raw(pids[0].parse().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    let gone = || (!lives(&pids[0])).then_some(());
    gristmill_testkit::eventually(crate::fixture::SOON, "it died", gone);
    assert_eq!(kind.ask().await.0, "done");
    assert_eq!(folder.lines("pids", 2).await.len(), 2);
    all_gone(&pids).await;
}

#[tokio::test]
async fn limits_hold_for_each_job() {
    let folder = Folder::new("limits");
    let stubborn = format!("trap '' TERM; case $line in *slow*) sleep 60;; esac; {DONE}");
    let kind = Kind::new(within(Some(200), 700, loop_of(&folder, &stubborn)));
    assert_eq!(kind.ask().await.0, "done");
    let began = Instant::now();
    let (outcome, text) = told(&kind.run(&job("\"slow\"")).await);
    assert!(outcome == "timeout" && text.contains("killed at its hard limit of 700 ms"), "{outcome} {text}");
    assert!(began.elapsed() >= ms(700) && began.elapsed() < ms(8000));
    all_gone(&folder.lines("pids", 1).await).await;
    assert_eq!(kind.ask().await.0, "done");

    // Asked to end, it answers first and leaves; the next has a new one.
    let folder = Folder::new("tidy");
    let left = folder.path("left");
    let tidy = format!(
        "stop=; trap 'stop=1' TERM; case $line in *slow*) sleep 60 & wait;; esac; {DONE}; [ -z \"$stop\" ] || {{ sleep 0.3; echo left >>{left}; exit 0; }}"
    );
    let kind = Kind::new(within(Some(200), 15_000, loop_of(&folder, &tidy)));
    assert_eq!(told(&kind.run(&job("\"slow\"")).await).0, "done");
    assert_eq!(kind.ask().await.0, "done");
    let pids = folder.lines("pids", 2).await;
    assert_eq!(
        (pids.len(), folder.lines("left", 1).await),
        (2, vec!["left".to_owned()]),
        "it had its time to leave"
    );
    all_gone(&pids[..1]).await;
}

#[tokio::test]
async fn a_drain_asks_it_to_end_and_a_dropped_run_takes_its_process_along() {
    let folder = Folder::new("drained");
    let kind = Kind::new(loop_of(&folder, "sleep 60"));
    let (run, stop) = kind.start(&job("1"));
    let run = tokio::spawn(run);
    folder.lines("seen", 1).await;
    stop.soft(tokio::time::Instant::now() + ms(10_000));
    let outcome = told(&run.await.unwrap());
    assert!(said("transient")(&outcome) && outcome.1.contains("asked to stop"), "{outcome:?}");
    let (run, _) = kind.start(&job("1"));
    let run = tokio::spawn(run);
    let pids = folder.lines("pids", 2).await;
    folder.lines("seen", 2).await;
    run.abort();
    all_gone(&pids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_are_as_many_processes_as_runs_at_a_time_and_no_more() {
    let folder = Folder::new("many");
    let kind = Arc::new(Kind::new(KindConfig {
        concurrency: Some(3),
        ..loop_of(&folder, &format!("sleep 0.02; {DONE}"))
    }));
    let mut runs = tokio::task::JoinSet::new();
    for n in 0..60 {
        let kind = Arc::clone(&kind);
        runs.spawn(async move { told(&kind.run(&job("1").with_id(&format!("j{n}")).unwrap()).await) });
    }
    while let Some(ended) = runs.join_next().await {
        assert_eq!(ended.unwrap(), ("done".into(), String::new()));
    }
    let pids = folder.lines("pids", 3).await;
    assert_eq!(pids.len(), 3, "{pids:?}");
    assert!(pids.iter().all(|pid| lives(pid)));
    kind.close().await;
    all_gone(&pids).await;
}

#[tokio::test]
async fn those_that_will_not_leave_are_killed() {
    let folder = Folder::new("stays");
    let pids = folder.path("pids");
    let script = format!(
        r#"trap '' TERM; echo $$ >>{pids}; read -r line; echo '{{"id":"a1"}}'; while :; do sleep 1; done"#
    );
    let kind = Kind::new(sh(Form::Lines, &script));
    let all = tokio::join!(kind.ask(), kind.ask(), kind.ask(), kind.ask());
    assert!([all.0, all.1, all.2, all.3].iter().all(said("done")));
    let pids = folder.lines("pids", 4).await;
    let began = Instant::now();
    kind.close().await;
    // All of them in the same two seconds.
    assert!(began.elapsed() >= ms(1900) && began.elapsed() < ms(6000), "{:?}", began.elapsed());
    all_gone(&pids).await;
}
