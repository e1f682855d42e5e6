//! PING from a connection and a thread of its own while something else is done to the server.

use crate::failure::{Failure, Outcome, ensure};
use crate::rate::percentile;
use crate::raw;
use gristmill_testkit::server::Server;
use redis::Value;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

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

/// Does `work` and sends PINGs until it is done, each when it is due, whether or not the ones before were answered: a server
/// that holds everybody up is met by all of them.
pub(super) fn pinging<T>(server: &Server, work: impl FnOnce() -> Outcome<T>) -> Outcome<(T, Pings)> {
    let url = server.url();
    let (working, done) = oneshot::channel::<()>();
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(send(&url, done))
        });
        let worked = work();
        // The thread ends with its channel.
        drop(working);
        let pings = sending.join().map_err(|_| Failure::Broken("the thread of the PINGs panicked".into()))?;
        Ok((worked?, pings?))
    })
}

async fn send(url: &str, mut done: oneshot::Receiver<()>) -> Outcome<Pings> {
    let connection = raw::connect(url).await?;
    let mut sent = JoinSet::new();
    let mut due = tokio::time::interval(EVERY);
    loop {
        tokio::select! {
            _ = &mut done => break,
            _ = due.tick() => {}
        }
        let mut connection = connection.clone();
        sent.spawn(async move {
            let from = Instant::now();
            let answer = connection.send_packed_command(&redis::cmd("PING")).await;
            (from.elapsed(), answer)
        });
    }
    let mut pings = Vec::new();
    while let Some(sent) = sent.join_next().await {
        let (away, answer) = sent.map_err(|error| Failure::Broken(error.to_string()))?;
        let answer = answer?;
        ensure(answer == Value::SimpleString("PONG".into()), || format!("expected PONG, got {answer:?}"))?;
        pings.push(away.as_secs_f64() * 1e3);
    }
    Ok(Pings(pings))
}
