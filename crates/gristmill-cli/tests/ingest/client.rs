//! HTTP/1.1 by hand, so that it can say what no library would.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for a response.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// A response as it came.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap().to_owned()
    }
}

/// One connection.
pub(crate) struct Wire(TcpStream);

impl Wire {
    #[track_caller]
    pub(crate) fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(ANSWER_WITHIN)).unwrap();
        stream.set_write_timeout(Some(ANSWER_WITHIN)).unwrap();
        Self(stream)
    }

    #[track_caller]
    pub(crate) fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    /// The same, where the other side may have had enough.
    pub(crate) fn try_say(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.0.write_all(bytes.as_ref()).is_ok()
    }

    pub(crate) fn hang_up(&mut self) {
        self.0.shutdown(Shutdown::Write).unwrap();
    }

    /// The next response; `None` where the connection ends without one.
    #[track_caller]
    pub(crate) fn hear(&mut self) -> Option<Response> {
        let mut read = Vec::new();
        let head = loop {
            if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            if !self.more(&mut read) {
                assert!(read.is_empty(), "half a head: {}", String::from_utf8_lossy(&read));
                return None;
            }
        };
        let mut body = read.split_off(head + 4);
        let head = String::from_utf8(read).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let header = |line: &str| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        let headers: Vec<_> = lines.map(header).collect();
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
        while body.len() < length {
            assert!(self.more(&mut body), "half a body");
        }
        assert_eq!(body.len(), length, "more than was announced");
        Some(Response { status, headers, body: String::from_utf8(body).unwrap() })
    }

    fn more(&mut self, into: &mut Vec<u8>) -> bool {
        let mut piece = [0; 8192];
        match self.0.read(&mut piece) {
            Ok(0) => false,
            Ok(bytes) => {
                into.extend_from_slice(&piece[..bytes]);
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("no response: {error}"),
        }
    }
}
