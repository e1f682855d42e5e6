//! Asking a process what it answers about itself, by HTTP as plain as it can be.

use crate::fixture::SOON;
use gristmill_testkit::eventually;
use gristmill_testkit::process::Process;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An answer, and how the connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Where this process listens for questions, as its log tells.
#[track_caller]
pub(crate) fn address(process: &Process) -> SocketAddr {
    let line =
        process.wait_line(|line| line.text.contains("health and metrics can be asked for"), SOON).unwrap();
    let text = strip(&line.text);
    let at = text.split("listen=").nth(1).unwrap_or_else(|| panic!("no address: {text}"));
    at.split(' ').next().unwrap().parse().unwrap()
}

/// Without colours.
fn strip(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(letter) = rest.next() {
        if letter == '\u{1b}' {
            rest.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(letter);
        }
    }
    plain
}

/// Says this and reads to the end.
pub(crate) fn say(address: SocketAddr, request: &[u8]) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(SOON))?;
    // The other side may have had enough.
    let _ = stream.write_all(request);
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Ok(Answer { status, head: head.to_lowercase(), body: body.to_owned() })
}

#[track_caller]
pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    say(address, request.as_bytes()).unwrap()
}

#[track_caller]
pub(crate) fn status(address: SocketAddr, path: &str) -> u16 {
    get(address, path).status
}

/// The value of a series; `None` where it is not shown.
#[track_caller]
pub(crate) fn metric(address: SocketAddr, series: &str) -> Option<f64> {
    let text = get(address, "/metrics").body;
    let prefix = format!("gristmill_{series} ");
    text.lines().find_map(|line| line.strip_prefix(&prefix)?.parse().ok())
}

/// Waits until a series has a value of this sort.
#[track_caller]
pub(crate) fn wait_metric(address: SocketAddr, series: &str, wanted: impl Fn(f64) -> bool) -> f64 {
    eventually(SOON, series, || metric(address, series).filter(|value| wanted(*value)))
}
