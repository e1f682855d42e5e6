//! Signals, and Redis that goes and comes back.

use crate::client::Wire;
use crate::fixture::{Fixture, JSON, SOON, job, words};
use gristmill_testkit::eventually;
use std::net::TcpStream;

/// Until nobody is let in any more.
fn closed(fixture: &Fixture) {
    eventually(SOON, "it listens no more", || TcpStream::connect(fixture.address).is_err().then_some(()));
}

#[test]
fn what_is_under_way_is_answered_and_idle_connections_end() {
    let mut fixture = Fixture::new("");
    let body = job("a", "k");
    let mut idle = Wire::open(fixture.address);
    let mut under_way = fixture.begun(body.len());
    under_way.say(&body[..10]);
    // Answered, so that the server has seen the others, too.
    assert_eq!(fixture.get("/v1/openapi.json").status, 200);
    fixture.process.terminate().unwrap();
    closed(&fixture);
    assert!(idle.hear().is_none());
    under_way.say(&body[10..]);
    let answer = fixture.heard("/v1/queues/q/jobs", &mut under_way);
    assert_eq!((answer.status, words(&answer.json())), (200, vec!["enqueued"]));
    assert_eq!(fixture.process.wait(SOON).unwrap().code(), Some(0));
    assert_eq!(fixture.out(), ["drained: answered=2 cut_off=0"]);
    assert_eq!(fixture.stored(), 1);
}

#[test]
fn a_second_signal_and_the_end_of_the_window_cut_off() {
    for (more, second) in [("", true), ("--set drain.window_ms=300", false)] {
        let mut fixture = Fixture::new(more);
        let mut under_way = fixture.begun(100);
        under_way.say("{");
        assert_eq!(fixture.get("/v1/openapi.json").status, 200);
        fixture.process.terminate().unwrap();
        closed(&fixture);
        if second {
            fixture.process.terminate().unwrap();
        }
        assert_eq!(fixture.process.wait(SOON).unwrap().code(), Some(4));
        assert_eq!(fixture.out(), ["drained: answered=1 cut_off=1"]);
        assert!(under_way.hear().is_none());
        assert_eq!(fixture.stored(), 0);
    }
}

#[test]
fn redis_goes_and_comes_back() {
    let mut fixture = Fixture::new("");
    assert_eq!(fixture.post(JSON, job("a", "k")).status, 200);
    fixture.server.pause().unwrap();
    let answer = fixture.post(JSON, job("b", "k"));
    assert_eq!((answer.status, answer.code().as_str()), (503, "redis_away"));
    assert_eq!(words(&answer.json()), ["unknown"], "it was sent, and may be in");
    fixture.server.resume().unwrap();
    let answered = || Some(fixture.post(JSON, job("b", "k"))).filter(|answer| answer.status == 200);
    let answer = eventually(SOON, "Redis is back", answered).json();
    // The one that was unknown may have been executed when Redis went on: once in any case.
    assert!(matches!(words(&answer)[..], ["enqueued" | "duplicate"]), "{answer}");
    assert_eq!(fixture.stored(), 2);
}
