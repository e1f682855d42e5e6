//! PING from a connection and a thread of its own while something else is done to the server.

use crate::failure::{Failure, Outcome, ensure};
use crate::rate::percentile;
use gristmill_testkit::server::Server;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(2);

/// How long each answer was away, in ms.
pub(super) struct Pings(Vec<f64>);

impl Pings {
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// p50, p99 and the longest, in ms.
    pub(super) fn figures(&mut self) -> (f64, f64, f64) {
        [0.50, 0.99, 1.0].map(|share| percentile(&mut self.0, share)).into()
    }
}

/// Does `work` and sends PINGs until it is done. One that was due while the answer to another was awaited counts from when
/// it was due: a server that holds everybody up is met by all of them.
pub(super) fn pinging<T>(server: &Server, work: impl FnOnce() -> Outcome<T>) -> Outcome<(T, Pings)> {
    let mut connection = server.connection()?;
    let (working, done) = channel::<()>();
    std::thread::scope(|scope| {
        let sent = scope.spawn(move || -> Outcome<Pings> {
            let (mut pings, mut due) = (Vec::new(), Instant::now());
            loop {
                due += EVERY;
                let now = Instant::now();
                if due > now && done.recv_timeout(due - now) == Err(RecvTimeoutError::Disconnected) {
                    return Ok(Pings(pings));
                }
                let from = if due > now { Instant::now() } else { due };
                let answer = connection.command(&["PING"])?;
                pings.push(from.elapsed().as_secs_f64() * 1e3);
                ensure(answer.as_str() == Some("PONG"), || format!("expected PONG, got {answer:?}"))?;
            }
        });
        let worked = work();
        // The thread ends with its channel.
        drop(working);
        let pings = sent.join().map_err(|_| Failure::Broken("the thread of the PINGs panicked".into()))?;
        Ok((worked?, pings?))
    })
}
