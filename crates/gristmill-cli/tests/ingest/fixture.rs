//! A private Redis, the server before it, and requests to it.

use crate::client::{Response, Wire};
use crate::document::{self, Documented};
use gristmill_broker::QueueDefinition;
use gristmill_job::QueueName;
use gristmill_testkit::process::{Output, Process, ProcessOptions};
use gristmill_testkit::server::{Server, ServerOptions};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

/// For anything that should take a moment.
pub(crate) const SOON: Duration = Duration::from_secs(20);
pub(crate) const TOKEN: &str = "the-token-of-the-shop";
pub(crate) const JSON: &str = "application/json";
pub(crate) const LINES: &str = "application/x-ndjson";
pub(crate) const PARTITIONS: u16 = 4;

pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
    pub(crate) folder: PathBuf,
    seen: Mutex<(BTreeSet<Documented>, BTreeSet<String>)>,
}

impl Fixture {
    /// With a queue `q` of [`PARTITIONS`].
    pub(crate) fn new(more: &str) -> Self {
        let server = Server::start(ServerOptions::new()).unwrap();
        let folder =
            std::env::temp_dir().join(format!("gristmill-ingest-{}-{}", std::process::id(), server.port()));
        std::fs::create_dir_all(&folder).unwrap();
        let tokens = folder.join("tokens");
        std::fs::write(&tokens, format!("# of the shop\n{TOKEN}\n")).unwrap();
        let empty = folder.join("empty");
        std::fs::write(&empty, "").unwrap();
        let url = server.url();
        let create =
            format!("--redis {url} enqueue q --create --partitions {PARTITIONS} --from {}", empty.display());
        let mut made = ProcessOptions::new(gristmill()).args(create.split(' ')).spawn().unwrap();
        assert!(made.wait(SOON).unwrap().success(), "{}", made.stderr_tail());
        let args =
            format!("--redis {url} ingest --listen 127.0.0.1:0 --tokens-file {} {more}", tokens.display());
        let process = ProcessOptions::new(gristmill()).args(args.split_whitespace()).spawn().unwrap();
        let ready = process.wait_line(|line| line.text.contains(" ready "), SOON).unwrap();
        let address = ready.text.split("listen=").nth(1).unwrap().trim().parse().unwrap();
        Self { server, process, address, folder, seen: Mutex::default() }
    }

    /// One request on a connection of its own, with the token.
    #[track_caller]
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Response {
        self.raw(method, path, &format!("Authorization: Bearer {TOKEN}\r\n{headers}"), body)
    }

    /// The same with no other headers than these.
    #[track_caller]
    pub(crate) fn raw(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Response {
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {length}\r\n\r\n");
        let mut wire = Wire::open(self.address);
        wire.say([head.as_bytes(), body].concat());
        self.heard(path, &mut wire)
    }

    /// The response on a connection, held against the document.
    #[track_caller]
    pub(crate) fn heard(&self, path: &str, wire: &mut Wire) -> Response {
        let response = wire.hear().unwrap();
        let mut seen = self.seen.lock().unwrap();
        seen.0.extend(document::hold(path, &response));
        if response.status != 200 {
            seen.1.insert(response.code());
        }
        response
    }

    /// Jobs for the queue `q`.
    #[track_caller]
    pub(crate) fn post(&self, content_type: &str, body: impl AsRef<[u8]>) -> Response {
        self.ask("POST", "/v1/queues/q/jobs", &format!("Content-Type: {content_type}\r\n"), body.as_ref())
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Response {
        self.ask("GET", path, "", b"")
    }

    /// A request whose body of `length` bytes is to come.
    #[track_caller]
    pub(crate) fn begun(&self, length: usize) -> Wire {
        let mut wire = Wire::open(self.address);
        wire.say(format!(
            "POST /v1/queues/q/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: {JSON}\r\n\
             Content-Length: {length}\r\n\r\n"
        ));
        wire
    }

    /// What was seen so far: documented responses, and codes.
    pub(crate) fn seen(&self) -> (BTreeSet<Documented>, BTreeSet<String>) {
        self.seen.lock().unwrap().clone()
    }

    /// A command to Redis.
    #[track_caller]
    pub(crate) fn redis(&self, args: &[&str]) -> gristmill_testkit::server::Reply {
        self.server.command(args).unwrap()
    }

    /// Jobs in all streams of `q`.
    pub(crate) fn stored(&self) -> i64 {
        let queue = queue();
        let length = |p| self.redis(&["XLEN", &queue.partition(p).stream]).as_int().unwrap();
        (0..PARTITIONS).map(length).sum()
    }

    pub(crate) fn out(&self) -> Vec<String> {
        let lines = self.process.lines().into_iter();
        lines.filter(|line| line.from == Output::Stdout).map(|line| line.text).collect()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn gristmill() -> &'static str {
    env!("CARGO_BIN_EXE_gristmill")
}

pub(crate) fn queue() -> QueueDefinition {
    QueueDefinition::new(QueueName::new("q").unwrap(), PARTITIONS)
}

/// A job as JSON.
pub(crate) fn job(id: &str, key: &str) -> String {
    format!("{{\"id\":\"{id}\",\"key\":\"{key}\",\"kind\":\"charge\",\"payload\":{{\"of\":\"{id}\"}}}}")
}

/// The word for each job of an answer.
pub(crate) fn words(answer: &Value) -> Vec<&str> {
    answer["jobs"].as_array().unwrap().iter().map(|job| job["status"].as_str().unwrap()).collect()
}
