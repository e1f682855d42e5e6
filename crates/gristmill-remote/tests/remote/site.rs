//! A server that answers as it is told, well or not at all, and notes what it heard. HTTP/1.1 by hand, so that it can
//! do what no library would.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    /// Which connection it came on, from 0.
    pub(crate) connection: usize,
    pub(crate) first: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Heard {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter().filter(|(known, _)| known == name);
        let found = all.next().map(|(_, value)| value.as_str());
        assert!(all.next().is_none(), "{name} came twice");
        found
    }
}

/// What is done about a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// These bytes, and the connection stays.
    Bytes(Vec<u8>),
    /// These bytes, and the connection is closed.
    Last(Vec<u8>),
    /// These bytes, and then these again and again for as long as somebody listens.
    Endless(Vec<u8>, Vec<u8>),
    /// These bytes, then nothing, and the connection stays.
    Silence(Vec<u8>),
}

/// An answer with a body of a type.
pub(crate) fn with(status: u16, headers: &str, body: &str) -> Reply {
    let length = body.len();
    Reply::Bytes(
        format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\n\r\n{body}").into_bytes(),
    )
}

pub(crate) fn json(body: &str) -> Reply {
    with(200, "Content-Type: application/json; charset=utf-8\r\n", body)
}

pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    heard: Arc<Mutex<Vec<Heard>>>,
    open: watch::Receiver<usize>,
    accepting: JoinHandle<()>,
}

impl Site {
    pub(crate) async fn start(answer: impl Fn(&Heard) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (count, open) = watch::channel(0);
        let (notes, answer) = (Arc::clone(&heard), Arc::new(answer));
        let accepting = tokio::spawn(async move {
            // Connections end with the site.
            let mut connections = tokio::task::JoinSet::new();
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let (notes, answer, count) = (Arc::clone(&notes), Arc::clone(&answer), count.clone());
                count.send_modify(|open| *open += 1);
                connections.spawn(async move {
                    let note = |heard: &Heard| notes.lock().unwrap().push(heard.clone());
                    serve(stream, connection, &*answer, note).await;
                    count.send_modify(|open| *open -= 1);
                });
            }
        });
        Self { address, heard, open, accepting }
    }

    /// The same answer to everything.
    pub(crate) async fn saying(reply: Reply) -> Self {
        Self::start(move |_| reply.clone()).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    /// Until no connection is open any more.
    pub(crate) async fn all_closed(&self) {
        let mut open = self.open.clone();
        tokio::time::timeout(crate::fixture::SOON, open.wait_for(|open| *open == 0)).await.unwrap().unwrap();
    }

    /// Until a request has come.
    pub(crate) async fn asked(&self) {
        let mut open = self.open.clone();
        let look = async {
            while self.heard().is_empty() {
                let _ = tokio::time::timeout(crate::fixture::ms(5), open.changed()).await;
            }
        };
        tokio::time::timeout(crate::fixture::SOON, look).await.unwrap();
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// One connection, until either side has enough.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    connection: usize,
    answer: &(dyn Fn(&Heard) -> Reply + Send + Sync),
    note: impl Fn(&Heard),
) {
    let mut read = Vec::new();
    while let Some(heard) = request(&mut stream, &mut read, connection).await {
        note(&heard);
        match answer(&heard) {
            Reply::Bytes(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Reply::Last(bytes) => {
                let _ = stream.write_all(&bytes).await;
                let _ = stream.shutdown().await;
                return;
            }
            Reply::Endless(bytes, more) => {
                let _ = stream.write_all(&bytes).await;
                while stream.write_all(&more).await.is_ok() {
                    tokio::task::yield_now().await;
                }
                return;
            }
            Reply::Silence(bytes) => {
                let _ = stream.write_all(&bytes).await;
                while matches!(stream.read(&mut [0; 1024]).await, Ok(1..)) {}
                return;
            }
        }
    }
}

async fn request<S: AsyncRead + Unpin>(
    stream: &mut S,
    read: &mut Vec<u8>,
    connection: usize,
) -> Option<Heard> {
    let mut more = async |read: &mut Vec<u8>| matches!(stream.read_buf(read).await, Ok(1..)).then_some(());
    let end = loop {
        if let Some(at) = read.windows(4).position(|part| part == b"\r\n\r\n") {
            break at;
        }
        more(read).await?;
    };
    let head = String::from_utf8(read[..end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let first = lines.next()?.to_owned();
    let headers: Vec<(String, String)> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length =
        headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, n)| n.parse().unwrap());
    while read.len() < end + 4 + length {
        more(read).await?;
    }
    let body = read[end + 4..end + 4 + length].to_vec();
    read.drain(..end + 4 + length);
    Some(Heard { connection, first, headers, body })
}
