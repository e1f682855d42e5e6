//! `healthcheck`: asks the process that runs with these settings whether it is ready. For images without a shell.

use crate::exit::{End, Failure};
use crate::output;
use crate::settings::Settings;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long the whole question may take.
const WITHIN: Duration = Duration::from_secs(3);
/// An answer is a line.
const MOST_BYTES: u64 = 16 * 1024;

pub(crate) fn command(settings: &Settings) -> Result<End, Failure> {
    let Some(config) = settings.health()? else {
        return Err(Failure::Usage("which address? these settings have no health.listen".into()));
    };
    let address = reachable(config.listen);
    match ask(address, "/readyz") {
        Ok((200, words)) => {
            output::print(&words)?;
            Ok(End::Done)
        }
        Ok((status, words)) => Err(Failure::Failed(format!("not ready: {words} ({status})"))),
        Err(error) => Err(Failure::Failed(format!("not ready: {address} does not answer: {error}"))),
    }
}

/// Where one asks who listens everywhere.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

fn ask(address: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let by = Instant::now() + WITHIN;
    let left = || by.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let mut stream = TcpStream::connect_timeout(&address, WITHIN)?;
    stream.set_write_timeout(Some(left()))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut part = [0; 1024];
    while answer.len() < usize::try_from(MOST_BYTES).unwrap_or(usize::MAX) {
        stream.set_read_timeout(Some(left()))?;
        match stream.read(&mut part)? {
            0 => break,
            bytes => answer.extend_from_slice(&part[..bytes]),
        }
    }
    read(&String::from_utf8_lossy(&answer)).ok_or_else(|| io::Error::other("not an answer of HTTP"))
}

/// The status and the words of an answer.
fn read(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some((status, output::visible(body.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_everywhere_is_asked_here() {
        for (listen, asked) in
            [("0.0.0.0:9464", "127.0.0.1:9464"), ("[::]:1", "[::1]:1"), ("10.0.0.7:80", "10.0.0.7:80")]
        {
            assert_eq!(reachable(listen.parse().unwrap()), asked.parse().unwrap());
        }
    }

    #[test]
    fn an_answer_is_its_status_and_its_words() {
        let answer = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 9\r\n\r\ndraining\n";
        assert_eq!(read(answer), Some((503, "draining".into())));
        for bad in ["", "HTTP/1.1", "HTTP/1.1 abc\r\n\r\n", "SSH-2.0\r\n\r\n"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
