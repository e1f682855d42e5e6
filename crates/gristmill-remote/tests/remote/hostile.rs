//! Connections that break, answers that are slow, endless, huge or garbage.

use crate::fixture::{Kind, at, job, ms, told};
use crate::site::{Reply, Site, with};
use gristmill_remote::{KindConfig, Limits};
use std::time::Instant;

fn head(rest: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\n{rest}").into_bytes()
}

const JSON: &str = "Content-Type: application/json\r\n";

async fn ask(reply: Reply, hard_ms: u64) -> (String, String) {
    let site = Site::saying(reply).await;
    let kind =
        Kind::new(KindConfig { limits: Limits { soft: None, hard: ms(hard_ms) }, ..at(&site.url("/")) });
    let outcome = kind.ask().await;
    drop(kind);
    site.all_closed().await;
    outcome
}

#[tokio::test]
async fn connections_that_fail_or_break_are_transient() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (outcome, text) = Kind::new(at(&format!("http://{nobody}/x?secret=1"))).ask().await;
    assert!(
        outcome == "transient" && text.starts_with(&format!("no connection to http://{nobody}/x: ")),
        "{text}"
    );
    assert!(!text.contains("secret"), "{text}");
    let (outcome, text) = Kind::new(at("http://no-such-host.invalid/")).ask().await;
    assert!(outcome == "transient" && text.starts_with("no connection to"), "{outcome} {text}");
    for reply in [
        Reply::Last(Vec::new()),
        Reply::Last(b"HTTP/1.1 200 OK\r\nContent-".to_vec()),
        Reply::Last(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
        Reply::Last(b"\0\xff\xfe".repeat(1000)),
        Reply::Last(b"HTTP/1.1 999999 X\r\n\r\n".to_vec()),
        Reply::Last(b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n".to_vec()),
        Reply::Last(head("Content-Length: -5\r\n\r\n")),
    ] {
        let (outcome, text) = ask(reply.clone(), 5000).await;
        assert!(
            outcome == "transient" && text.starts_with("no answer from http://"),
            "{reply:?}: {outcome} {text}"
        );
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_matters_only_where_it_says_something() {
    let json = Reply::Last(head(&format!("{JSON}Content-Length: 100\r\n\r\n{{\"gristmill\":")));
    let (outcome, text) = ask(json, 5000).await;
    assert!(outcome == "transient" && text.contains("its body broke off"), "{outcome} {text}");
    let chunked = Reply::Last(head(&format!("{JSON}Transfer-Encoding: chunked\r\n\r\nzz\r\n")));
    assert_eq!(ask(chunked, 5000).await.0, "transient");
    let plain = Reply::Last(head("Content-Length: 100\r\n\r\nall fi"));
    assert_eq!(ask(plain, 5000).await.0, "done");
    let error = Reply::Last(b"HTTP/1.1 422 X\r\nContent-Length: 100\r\n\r\nno such".to_vec());
    let (outcome, text) = ask(error, 5000).await;
    assert!(outcome == "permanent" && text.ends_with(": no such"), "{outcome} {text}");
}

#[tokio::test]
async fn an_answer_that_does_not_come_ends_at_the_hard_limit() {
    let trickle = head(&format!("{JSON}Transfer-Encoding: chunked\r\n\r\n1\r\n \r\n"));
    for reply in [
        Reply::Silence(Vec::new()),
        Reply::Silence(b"HTTP/1.1 200 OK\r\n".to_vec()),
        Reply::Silence(head(&format!("{JSON}Content-Length: 10\r\n\r\n{{"))),
        Reply::Silence(trickle),
        // Heads that are not the last, without end.
        Reply::Endless(Vec::new(), b"HTTP/1.1 100 Continue\r\n\r\n".to_vec()),
    ] {
        let began = Instant::now();
        let (outcome, text) = ask(reply.clone(), 400).await;
        let took = began.elapsed();
        assert!(outcome == "timeout" && text.contains("hard limit of 400 ms"), "{reply:?}: {outcome} {text}");
        assert!(took >= ms(400) && took < ms(5000), "{took:?}");
    }
}

#[tokio::test]
async fn what_is_endless_or_huge_is_bounded() {
    let chunks =
        |head: Vec<u8>| Reply::Endless(head, format!("400\r\n{}\r\n", "x".repeat(1024)).into_bytes());
    let (outcome, text) = ask(chunks(head(&format!("{JSON}Transfer-Encoding: chunked\r\n\r\n"))), 9000).await;
    assert!(outcome == "permanent" && text.contains("with more than 65536 bytes"), "{outcome} {text}");
    let huge =
        Reply::Silence(head(&format!("{JSON}Content-Length: 99999999999\r\n\r\n{}", "[".repeat(70_000))));
    assert_eq!(ask(huge, 9000).await.0, "permanent");
    // Where the status says all, the rest is not waited for.
    assert_eq!(ask(chunks(head("Transfer-Encoding: chunked\r\n\r\n")), 9000).await.0, "done");
    let slow = Reply::Silence(head("Content-Length: 10\r\n\r\nx"));
    let began = Instant::now();
    assert_eq!(ask(slow, 9000).await.0, "done");
    assert!(began.elapsed() < ms(5000));
    let error = chunks(b"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec());
    let (outcome, text) = ask(error, 9000).await;
    assert!(outcome == "transient" && text.len() < 1200 && text.ends_with("xxx"), "{outcome} {}", text.len());
    for more in ["X-A: 1\r\n".to_owned(), "x".repeat(1000)] {
        let (outcome, text) = ask(Reply::Endless(head(""), more.into_bytes()), 9000).await;
        assert!(outcome == "transient" && text.starts_with("no answer from"), "{outcome} {text}");
    }
}

#[tokio::test]
async fn a_run_that_is_dropped_hangs_up() {
    let site = Site::saying(Reply::Silence(Vec::new())).await;
    let kind = Kind::new(at(&site.url("/")));
    let (run, _) = kind.start(&job("1"));
    let run = tokio::spawn(run);
    site.asked().await;
    run.abort();
    site.all_closed().await;
}

#[tokio::test]
async fn a_connection_that_broke_is_made_anew() {
    let site = Site::start(|heard| match heard.connection {
        0 => Reply::Last(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()),
        _ => with(200, "", ""),
    })
    .await;
    let kind = Kind::new(at(&site.url("/")));
    assert_eq!(kind.ask().await.0, "done");
    site.all_closed().await;
    for _ in 0..5 {
        assert_eq!(kind.ask().await.0, "done");
    }
    assert_eq!(site.heard().iter().map(|heard| heard.connection).max(), Some(1));
}

#[tokio::test]
async fn a_payload_that_nobody_reads_ends_at_the_hard_limit() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let kind = Kind::new(KindConfig { limits: Limits { soft: None, hard: ms(500) }, ..at(&url) });
    let sent = job(&format!("\"{}\"", "x".repeat(900_000)));
    let (run, _) = kind.start(&sent);
    let (answer, _connection) = tokio::join!(run, async { listener.accept().await.unwrap() });
    assert_eq!(told(&answer).0, "timeout");
}

#[tokio::test]
async fn an_answer_to_a_payload_that_is_not_read_to_its_end_counts() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let kind = Kind::new(at(&format!("http://{}/", listener.local_addr().unwrap())));
    let sent = job(&format!("\"{}\"", "x".repeat(900_000)));
    let (run, _) = kind.start(&sent);
    let site = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 100]).await.unwrap();
        stream.write_all(b"HTTP/1.1 413 X\r\nContent-Length: 9\r\n\r\ntoo large").await.unwrap();
        stream
    };
    let (answer, _connection) = tokio::join!(run, site);
    let (outcome, text) = told(&answer);
    assert!(
        outcome == "permanent" && text.ends_with("answered 413 Payload Too Large: too large"),
        "{outcome} {text}"
    );
}
