//! Faults between a client and a real server, and whether the call was applied.

use gristmill_testkit::{
    Error, eventually,
    proxy::Proxy,
    server::{Reply, Server, ServerOptions},
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::Duration,
};

const SOON: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(80);

fn setup() -> (Server, Proxy) {
    match Server::start(ServerOptions::new())
        .and_then(|server| Proxy::start(server.port()).map(|proxy| (server, proxy)))
    {
        Ok(both) => both,
        Err(error) => panic!("{error}"),
    }
}

fn value(server: &Server, key: &str) -> Option<String> {
    server.command(&["GET", key]).ok()?.as_str().map(str::to_owned)
}

/// A client that sees bytes, so that a test can tell a lost reply from a late one.
struct Client(TcpStream);

impl Client {
    fn new(proxy: &Proxy) -> Self {
        match TcpStream::connect(("127.0.0.1", proxy.port())) {
            Ok(stream) => Self(stream),
            Err(error) => panic!("{error}"),
        }
    }

    fn send(&mut self, args: &[&str]) {
        let mut request = format!("*{}\r\n", args.len());
        for arg in args {
            request += &format!("${}\r\n{arg}\r\n", arg.len());
        }
        self.0.write_all(request.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    }

    /// What comes within the time; none at the end of the connection.
    fn receive(&mut self, within: Duration) -> Option<String> {
        let mut bytes = [0; 4096];
        self.0.set_read_timeout(Some(within)).unwrap_or_else(|error| panic!("{error}"));
        match self.0.read(&mut bytes) {
            Ok(0) => None,
            Ok(count) => Some(String::from_utf8_lossy(&bytes[..count]).into_owned()),
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) =>
            {
                Some(String::new())
            }
            Err(_) => None,
        }
    }
}

#[test]
fn passes_pipelines_and_large_values_unchanged() {
    let (server, proxy) = setup();
    let mut client = Client::new(&proxy);
    let big = "x".repeat(1_000_000);
    client.send(&["SET", "big", &big]);
    client.send(&["STRLEN", "big"]);
    client.send(&["GET", "big"]);
    let expected = format!("+OK\r\n:1000000\r\n$1000000\r\n{big}\r\n");
    let mut got = String::new();
    while got.len() < expected.len() {
        got += &client.receive(SOON).unwrap();
    }
    assert!(got == expected, "{} bytes instead of {}", got.len(), expected.len());
    assert_eq!(value(&server, "big").unwrap().len(), big.len());
    assert_eq!(proxy.connections(), 1);
    drop(client);
    eventually(SOON, "the connection to end upstream too", || {
        (proxy.connections() == 0 && server.kill_client_connections().ok()? == 0).then_some(())
    });
}

#[test]
fn a_reply_is_lost_after_the_call_was_applied() {
    let (server, proxy) = setup();
    let mut client = Client::new(&proxy);
    let fault = proxy.cut_after_next_request("second");
    client.send(&["SET", "k", "first"]);
    assert_eq!(client.receive(SOON).as_deref(), Some("+OK\r\n"));
    assert!(!fault.struck());
    client.send(&["SET", "k", "second"]);
    fault.wait(SOON).unwrap();
    assert_eq!(client.receive(SOON), None, "the client must see a cut and no reply");
    assert_eq!(value(&server, "k").as_deref(), Some("second"));
    let mut again = Client::new(&proxy);
    again.send(&["SET", "k", "second"]);
    assert_eq!(again.receive(SOON).as_deref(), Some("+OK\r\n"), "a fault strikes once");
}

#[test]
fn a_request_is_lost_before_it_was_applied() {
    let (server, proxy) = setup();
    let mut client = Client::new(&proxy);
    let fault = proxy.cut_before_next_request("lost");
    client.send(&["SET", "k", "lost"]);
    fault.wait(SOON).unwrap();
    assert_eq!(client.receive(SOON), None);
    assert_eq!(value(&server, "k"), None);
}

#[test]
fn only_the_request_with_the_needle_is_struck_in_a_pipeline() {
    let (server, proxy) = setup();
    let mut client = Client::new(&proxy);
    let fault = proxy.cut_after_next_request("two");
    for word in ["one", "two", "three"] {
        client.send(&["RPUSH", "l", word]);
    }
    fault.wait(SOON).unwrap();
    let list = server.command(&["LRANGE", "l", "0", "-1"]).unwrap();
    let words: Vec<_> = list.as_array().unwrap().iter().filter_map(Reply::as_str).collect();
    assert_eq!(words, ["one", "two"], "what follows the lost reply is not sent");
}

#[test]
fn a_held_request_arrives_after_its_client_left() {
    let (server, proxy) = setup();
    let mut client = Client::new(&proxy);
    let held = proxy.hold_next_request("late");
    client.send(&["SET", "k", "late"]);
    client.send(&["APPEND", "k", " and its follower"]);
    held.wait_held(SOON).unwrap();
    proxy.wait_held(SOON).unwrap();
    assert_eq!(client.receive(SHORT).as_deref(), Some(""));
    drop(client);
    eventually(SOON, "the proxy to see the client leave", || (proxy.connections() == 0).then_some(()));
    server.command(&["SET", "k", "meanwhile"]).unwrap();
    held.release(SOON).unwrap();
    assert!(value(&server, "k").unwrap().starts_with("late"));
    eventually(SOON, "what followed it", || (value(&server, "k")? == "late and its follower").then_some(()));
}

#[test]
fn a_held_request_survives_a_cut_and_reaches_the_server_after_a_roll_back() {
    let (mut server, proxy) = setup();
    server.command(&["SET", "k", "older"]).unwrap();
    let snapshot = server.snapshot().unwrap();
    let mut client = Client::new(&proxy);
    client.send(&["CLIENT", "SETNAME", "greeting"]);
    assert_eq!(client.receive(SOON).as_deref(), Some("+OK\r\n"));
    let held = proxy.hold_next_request("late");
    client.send(&["APPEND", "k", "+late"]);
    held.wait_held(SOON).unwrap();
    proxy.cut();
    assert_eq!(client.receive(SOON), None);
    server.command(&["SET", "k", "lost by the failover"]).unwrap();
    server.roll_back_to(&snapshot).unwrap();
    held.release(SOON).unwrap();
    assert_eq!(value(&server, "k").as_deref(), Some("older+late"));
}

#[test]
fn a_reply_is_held_and_delivered_late() {
    let (server, proxy) = setup();
    let mut client = Client::new(&proxy);
    let held = proxy.hold_next_reply("slow");
    client.send(&["SET", "k", "slow"]);
    held.wait_held(SOON).unwrap();
    assert_eq!(value(&server, "k").as_deref(), Some("slow"));
    assert_eq!(client.receive(SHORT).as_deref(), Some(""));
    held.release();
    assert_eq!(client.receive(SOON).as_deref(), Some("+OK\r\n"), "and nothing of the proxy's own");
}

#[test]
fn all_replies_or_all_requests_are_held_and_released_in_order() {
    let (server, proxy) = setup();
    let mut client = Client::new(&proxy);
    proxy.hold_replies();
    client.send(&["INCR", "n"]);
    client.send(&["INCR", "n"]);
    eventually(SOON, "both to be executed", || (value(&server, "n")? == "2").then_some(()));
    proxy.wait_held(SOON).unwrap();
    assert_eq!(client.receive(SHORT).as_deref(), Some(""));
    proxy.release_replies();
    let mut got = String::new();
    while got.len() < 8 {
        got += &client.receive(SOON).unwrap();
    }
    assert_eq!(got, ":1\r\n:2\r\n");

    proxy.hold_requests();
    client.send(&["INCR", "n"]);
    proxy.wait_held(SOON).unwrap();
    assert_eq!(value(&server, "n").as_deref(), Some("2"));
    drop(client);
    proxy.cut();
    proxy.release_requests();
    eventually(SOON, "the late request", || (value(&server, "n")? == "3").then_some(()));
}

#[test]
fn cuts_and_refuses_and_passes_again() {
    let (_server, proxy) = setup();
    let mut client = Client::new(&proxy);
    client.send(&["PING"]);
    assert_eq!(client.receive(SOON).as_deref(), Some("+PONG\r\n"));
    proxy.refuse();
    client.send(&["PING"]);
    assert_eq!(client.receive(SOON).as_deref(), Some("+PONG\r\n"), "refusing leaves what is open");
    proxy.cut();
    assert_eq!(client.receive(SOON), None);
    assert_eq!(Client::new(&proxy).receive(SOON), None);
    proxy.pass();
    let mut again = Client::new(&proxy);
    again.send(&["PING"]);
    assert_eq!(again.receive(SOON).as_deref(), Some("+PONG\r\n"));
}

#[test]
fn new_connections_go_to_the_new_target() {
    let (old, proxy) = setup();
    let new = Server::start(ServerOptions::new()).unwrap();
    let mut early = Client::new(&proxy);
    early.send(&["SET", "k", "1"]);
    assert_eq!(early.receive(SOON).as_deref(), Some("+OK\r\n"));
    proxy.retarget(new.port());
    early.send(&["SET", "k", "2"]);
    assert_eq!(early.receive(SOON).as_deref(), Some("+OK\r\n"));
    let mut late = Client::new(&proxy);
    late.send(&["SET", "k", "3"]);
    assert_eq!(late.receive(SOON).as_deref(), Some("+OK\r\n"));
    assert_eq!((value(&old, "k").as_deref(), value(&new, "k").as_deref()), (Some("2"), Some("3")));
}

#[test]
fn a_failover_is_hidden_and_what_was_outstanding_gets_an_error() {
    let (mut old, proxy) = setup();
    let new = Server::start(ServerOptions::new()).unwrap();
    let mut client = Client::new(&proxy);
    client.send(&["SELECT", "3"]);
    assert_eq!(client.receive(SOON).as_deref(), Some("+OK\r\n"));
    client.send(&["BLPOP", "nothing", "0"]);
    eventually(SOON, "the client to block", || {
        (old.info("clients", "blocked_clients").ok()? == "1").then_some(())
    });
    proxy.fail_over_unseen(new.port()).unwrap();
    let reply = client.receive(SOON).unwrap();
    assert!(reply.starts_with("-ERR upstream failure"), "{reply}");
    old.kill().unwrap();
    client.send(&["SET", "k", "v"]);
    assert_eq!(client.receive(SOON).as_deref(), Some("+OK\r\n"), "the same connection goes on");
    assert_eq!(value(&new, "k"), None);
    let mut third = new.connection().unwrap();
    third.command(&["SELECT", "3"]).unwrap();
    assert_eq!(third.command(&["GET", "k"]).unwrap().as_str(), Some("v"), "the greeting was repeated");
}

#[test]
fn upstream_away_looks_like_a_closed_connection() {
    let (mut server, proxy) = setup();
    let mut client = Client::new(&proxy);
    client.send(&["PING"]);
    assert_eq!(client.receive(SOON).as_deref(), Some("+PONG\r\n"));
    server.kill().unwrap();
    assert_eq!(client.receive(SOON), None);
    assert_eq!(Client::new(&proxy).receive(SOON), None);
    server.restart().unwrap();
    let mut again = Client::new(&proxy);
    again.send(&["PING"]);
    assert_eq!(again.receive(SOON).as_deref(), Some("+PONG\r\n"));
}

#[test]
fn a_fault_that_never_strikes_says_so() {
    let (_server, proxy) = setup();
    let error = proxy.cut_after_next_request("never").wait(SHORT).unwrap_err();
    assert!(matches!(&error, Error::Timeout { what, .. } if what.contains("never")), "{error}");
}

#[test]
fn dropped_it_closes_everything() {
    let (_server, proxy) = setup();
    let mut client = Client::new(&proxy);
    client.send(&["PING"]);
    assert_eq!(client.receive(SOON).as_deref(), Some("+PONG\r\n"));
    let port = proxy.port();
    thread::spawn(move || drop(proxy)).join().unwrap();
    assert_eq!(client.receive(SOON), None);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}
