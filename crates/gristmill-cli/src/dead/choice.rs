//! Which letters a command acts on: those of some ids, or those that a filter takes; and Ctrl-C between two steps.

use super::Graveyard;
use super::filter::{Filter, Wanted};
use crate::audit::Act;
use crate::exit::Failure;
use clap::Args;
use gristmill_broker::dead::{DeadFound, DeadRange, DeadWalk, SLICE};
use gristmill_broker::{Connection, QueueDefinition};
use std::time::Duration;
use tokio::sync::watch;

#[derive(Args, Debug, Clone)]
pub(crate) struct Choice {
    /// The letters' ids, as `dead list` shows them; or a filter instead
    #[arg(value_name = "ID")]
    pub(super) ids: Vec<String>,
    /// Only of this queue; without ids, all of it
    #[arg(long)]
    pub(super) queue: Option<String>,
    #[command(flatten)]
    filter: Filter,
    /// Only those that died for this reason: exhausted, permanent, crashed, review, undecodable, unknown_kind, …
    #[arg(long, value_name = "REASON")]
    dead_reason: Option<String>,
    /// Count what would be done, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Needed with a filter: it may mean many
    #[arg(long)]
    yes: bool,
    /// The result as one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// A text that a person says for the audit log.
pub(crate) fn said(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() { Err("say why".into()) } else { Ok(text.to_owned()) }
}

impl Choice {
    fn wanted(&self) -> Wanted {
        Wanted { filter: self.filter.clone(), reason: self.dead_reason.clone() }
    }

    /// Before anything is asked of Redis.
    ///
    /// # Errors
    /// What to say otherwise.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let refused = |why: &str| Err(Failure::Usage(why.into()));
        match (self.ids.is_empty(), self.wanted().takes_all()) {
            (false, true) => Ok(()),
            (false, false) => refused("say which by ids or by a filter, not by both"),
            (true, true) if self.queue.is_none() => {
                refused("say which: ids, --queue, or another filter (see --help)")
            }
            (true, _) if !self.yes && !self.dry_run => {
                refused("a filter may mean many letters: look with --dry-run, then say --yes")
            }
            (true, _) => Ok(()),
        }
    }

    /// For the audit log.
    pub(super) fn described(&self) -> String {
        let mut words: Vec<String> = self.queue.iter().map(|queue| format!("queue={queue}")).collect();
        words.extend(self.wanted().words());
        words.extend(self.ids.iter().map(|id| format!("id={id}")));
        words.join(" ")
    }

    /// Does `work` to every letter meant, from one line of the audit log to another where it is not dry. Returns the ids
    /// that were not there.
    ///
    /// # Errors
    /// As `work`; what Redis says; Ctrl-C. It says how many were done until then.
    pub(super) async fn noted(
        &self,
        act: Act,
        connection: &Connection,
        queues: &[QueueDefinition],
        breaker: &Breaker,
        work: &mut impl Work,
    ) -> Result<Vec<String>, Failure> {
        if !self.dry_run {
            act.begin(connection).await?;
        }
        let done = self.each(connection, queues, breaker, work).await;
        let count = work.count();
        if !self.dry_run {
            act.end(connection, count, done.is_ok()).await;
        }
        done.map_err(|failure| Failure::Failed(format!("{failure}; {count} were {} until then", work.done())))
    }

    async fn each(
        &self,
        connection: &Connection,
        queues: &[QueueDefinition],
        breaker: &Breaker,
        work: &mut impl Work,
    ) -> Result<Vec<String>, Failure> {
        let mut missing = Vec::new();
        // One by one: a record may be large, and an id that is named twice is found once.
        for id in &self.ids {
            breaker.go_on()?;
            let there = match super::find(connection, queues, id).await? {
                None => 0,
                Some(found) => work.portion(vec![found]).await?,
            };
            if there == 0 {
                missing.push(id.clone());
            }
        }
        if !self.ids.is_empty() {
            return Ok(missing);
        }
        let (yard, wanted) = (Graveyard::look(connection, queues).await?, self.wanted());
        let range = wanted.range(yard.now);
        let latest = work.makes_letters().then(|| yard.latest());
        let range = DeadRange { until: range.until.or(latest), ..range };
        let mut walk = DeadWalk::new(connection.clone(), &yard.partitions, range);
        loop {
            breaker.go_on()?;
            let portion = walk.next(SLICE).await?;
            if portion.is_empty() {
                return Ok(missing);
            }
            work.portion(portion.into_iter().filter(|found| wanted.takes(found)).collect()).await?;
        }
    }
}

/// What a command does to letters.
pub(super) trait Work {
    /// Returns how many of them were there.
    async fn portion(&mut self, found: Vec<DeadFound>) -> Result<u64, Failure>;

    /// How many it was done to.
    fn count(&self) -> u64;

    /// The word for it.
    fn done(&self) -> &'static str;

    /// Whether jobs may die of it: then it takes no letter that dies later by a filter, so that it has an end.
    fn makes_letters(&self) -> bool;
}

/// Trips with Ctrl-C, which no longer ends the process by itself: the audit log is to know how far it came.
#[derive(Clone)]
pub(crate) struct Breaker(watch::Receiver<bool>);

impl Breaker {
    pub(crate) fn new() -> Self {
        let (trip, tripped) = watch::channel(false);
        tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                let _ = trip.send(true);
            }
            trip.closed().await;
        });
        Self(tripped)
    }

    /// Between two steps.
    ///
    /// # Errors
    /// It has tripped.
    pub(crate) fn go_on(&self) -> Result<(), Failure> {
        if *self.0.borrow() { Err(Failure::Failed("interrupted".into())) } else { Ok(()) }
    }

    /// Lets time pass, unless it trips.
    ///
    /// # Errors
    /// It has tripped.
    pub(crate) async fn pause(&self, pause: Duration) -> Result<(), Failure> {
        let mut tripped = self.0.clone();
        let _ = tokio::time::timeout(pause, tripped.wait_for(|tripped| *tripped)).await;
        self.go_on()
    }
}
