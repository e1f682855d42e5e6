//! `dead discard`: removes dead letters, by id or by filter, and notes it in the audit log before and after.

use super::Graveyard;
use super::filter::{Filter, Wanted};
use crate::audit::Act;
use crate::exit::{End, Failure};
use crate::output;
use crate::settings::Settings;
use clap::Args;
use gristmill_broker::dead::{DeadFound, DeadWalk, SLICE};
use gristmill_broker::discard::{Discard, Discarded, Whose};
use gristmill_broker::{Connection, QueueDefinition};
use gristmill_job::QueueName;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct DiscardArguments {
    /// The letters' ids, as `dead list` shows them; or a filter instead
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT", value_parser = said)]
    reason: String,
    /// Only of this queue; without ids, all of it
    #[arg(long)]
    queue: Option<String>,
    #[command(flatten)]
    filter: Filter,
    /// Only those that died for this reason: exhausted, permanent, undecodable, unknown_kind, …
    #[arg(long, value_name = "REASON")]
    dead_reason: Option<String>,
    /// Count what would be discarded, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Needed with a filter: it may mean many
    #[arg(long)]
    yes: bool,
    /// The result as one JSON object
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
What is discarded cannot be brought back. Its job's id may be enqueued again from then on. Ids that are not found are \
named (exit code 3, or 1 if none was found): a second time finds nothing. Ctrl-C ends it between two steps. \
`gristmill audit` lists what was done.";

fn said(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() { Err("say why".into()) } else { Ok(text.to_owned()) }
}

/// Letters of one call: they share a partition.
type Batches = BTreeMap<(QueueName, u16), Vec<Discard>>;

/// The command.
pub(crate) async fn command(settings: &Settings, arguments: &DiscardArguments) -> Result<End, Failure> {
    let wanted = Wanted { filter: arguments.filter.clone(), reason: arguments.dead_reason.clone() };
    match (arguments.ids.is_empty(), wanted.takes_all()) {
        (false, true) => {}
        (false, false) => {
            return Err(Failure::Usage("say which by ids or by a filter, not by both".into()));
        }
        (true, true) if arguments.queue.is_none() => {
            return Err(Failure::Usage("say which: ids, --queue, or another filter (see --help)".into()));
        }
        (true, _) if !arguments.yes && !arguments.dry_run => {
            return Err(Failure::Usage(
                "a filter may mean many letters: look with --dry-run, then say --yes".into(),
            ));
        }
        (true, _) => {}
    }
    let connection = crate::connect(settings).await?;
    let queues = super::queues(&connection, arguments.queue.as_deref()).await?;
    let mut work = Work {
        connection: &connection,
        queues: &queues,
        seen_window_ms: settings.seen_window_ms(),
        interrupted: interrupted(),
        dry_run: arguments.dry_run,
        count: 0,
        missing: Vec::new(),
        unmarked: 0,
    };
    let filter = described(arguments, &wanted);
    let act = Act::new("dead discard", filter, &arguments.reason);
    if !arguments.dry_run {
        act.begin(&connection).await?;
    }
    let done = match arguments.ids.is_empty() {
        true => work.by_filter(&wanted).await,
        false => work.by_id(&arguments.ids).await,
    };
    if !arguments.dry_run {
        act.end(&connection, work.count, done.is_ok()).await;
    }
    done.map_err(|failure| Failure::Failed(format!("{failure}; {} were discarded until then", work.count)))?;
    work.tell(arguments.json)
}

fn described(arguments: &DiscardArguments, wanted: &Wanted) -> String {
    let mut words: Vec<String> = arguments.queue.iter().map(|queue| format!("queue={queue}")).collect();
    words.extend(wanted.words());
    words.extend(arguments.ids.iter().map(|id| format!("id={id}")));
    words.join(" ")
}

/// Becomes true with Ctrl-C, which no longer ends the process by itself: the audit log is to know how far it came.
fn interrupted() -> Arc<AtomicBool> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let heard = interrupted.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            heard.store(true, Ordering::Relaxed);
        }
    });
    interrupted
}

struct Work<'a> {
    connection: &'a Connection,
    queues: &'a [QueueDefinition],
    seen_window_ms: u64,
    interrupted: Arc<AtomicBool>,
    dry_run: bool,
    count: u64,
    missing: Vec<String>,
    /// Discarded without knowing whose they were.
    unmarked: u64,
}

impl Work<'_> {
    async fn by_id(&mut self, ids: &[String]) -> Result<(), Failure> {
        // One by one: a record may be large, and an id that is named twice is found once.
        for id in ids {
            self.go_on()?;
            match super::find(self.connection, self.queues, id).await? {
                None => self.missing.push(id.clone()),
                Some(found) => {
                    if self.away(vec![found]).await? == 0 {
                        self.missing.push(id.clone());
                    }
                }
            }
        }
        Ok(())
    }

    async fn by_filter(&mut self, wanted: &Wanted) -> Result<(), Failure> {
        let yard = Graveyard::look(self.connection, self.queues).await?;
        let mut walk = DeadWalk::new(self.connection.clone(), &yard.partitions, wanted.range(yard.now));
        loop {
            self.go_on()?;
            let portion = walk.next(SLICE).await?;
            if portion.is_empty() {
                return Ok(());
            }
            self.away(portion.into_iter().filter(|found| wanted.takes(found)).collect()).await?;
        }
    }

    fn go_on(&self) -> Result<(), Failure> {
        match self.interrupted.load(Ordering::Relaxed) {
            true => Err(Failure::Failed("interrupted".into())),
            false => Ok(()),
        }
    }

    /// Returns how many of them were there.
    async fn away(&mut self, found: Vec<DeadFound>) -> Result<u64, Failure> {
        if self.dry_run {
            self.count += found.len() as u64;
            return Ok(found.len() as u64);
        }
        let mut batches = Batches::new();
        for DeadFound { position, letter, .. } in found {
            let job = letter.ok().map(Whose::of);
            let batch = batches.entry((position.queue, position.partition)).or_default();
            batch.push(Discard { letter: position.id, job });
        }
        let mut gone = 0;
        for ((name, partition), batch) in batches {
            let Some(queue) = self.queues.iter().find(|queue| queue.name == name) else { continue };
            let keys = queue.partition(partition);
            let answers = self.connection.discard(&keys, self.seen_window_ms, &batch).await?;
            for (answer, letter) in answers.iter().zip(&batch) {
                if *answer == Discarded::Discarded {
                    gone += 1;
                    self.count += 1;
                    self.unmarked += u64::from(letter.job.is_none());
                }
            }
        }
        Ok(gone)
    }

    fn tell(self, json: bool) -> Result<End, Failure> {
        let end = match (self.missing.is_empty(), self.count) {
            (true, _) => End::Done,
            (false, 0) => End::Bad,
            (false, _) => End::Partly,
        };
        if json {
            let name = if self.dry_run { "would_discard" } else { "discarded" };
            output::print(&json!({ name: self.count, "not_found": self.missing }).to_string())?;
        } else {
            let would = if self.dry_run { "would be discarded" } else { "discarded" };
            output::print(&format!("{} {would}", self.count))?;
        }
        for id in &self.missing {
            output::complain(&format!(
                "there is no dead letter {}; it may have been discarded before",
                output::visible(id)
            ));
        }
        if self.unmarked > 0 {
            output::complain(&format!(
                "the records of {} could not be read: if their jobs had ids of their producers, those ids are still \
                 taken for dead",
                self.unmarked
            ));
        }
        Ok(end)
    }
}
