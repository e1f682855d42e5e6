//! `dead discard`: removes dead letters, by id or by filter, and notes it in the audit log before and after.

use super::choice::{Breaker, Choice, Work, said};
use crate::audit::Act;
use crate::exit::{End, Failure};
use crate::output;
use crate::settings::Settings;
use clap::Args;
use gristmill_broker::dead::DeadFound;
use gristmill_broker::discard::{Discard, Discarded, Whose};
use gristmill_broker::{Connection, QueueDefinition};
use gristmill_job::QueueName;
use serde_json::json;
use std::collections::BTreeMap;

#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct DiscardArguments {
    #[command(flatten)]
    choice: Choice,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT", value_parser = said)]
    reason: String,
}

const AFTER: &str = "\
What is discarded cannot be brought back. Its job's id may be enqueued again from then on, and a key that waited for it \
goes on. Ids that are not found are named (exit code 3, or 1 if none was found): a second time finds nothing. Ctrl-C \
ends it between two steps. `gristmill audit` lists what was done.";

/// Letters of one call: they share a partition.
type Batches = BTreeMap<(QueueName, u16), Vec<Discard>>;

/// The command.
pub(crate) async fn command(settings: &Settings, arguments: &DiscardArguments) -> Result<End, Failure> {
    let choice = &arguments.choice;
    choice.check()?;
    let connection = crate::connect(settings).await?;
    let queues = super::queues(&connection, choice.queue.as_deref()).await?;
    let mut work = Discarding {
        connection: &connection,
        queues: &queues,
        settings,
        dry_run: choice.dry_run,
        count: 0,
        unmarked: 0,
    };
    let act = Act::new("dead discard", choice.described(), &arguments.reason);
    let missing = choice.noted(act, &connection, &queues, &Breaker::new(), &mut work).await?;
    work.tell(&missing, choice.json)
}

struct Discarding<'a> {
    connection: &'a Connection,
    queues: &'a [QueueDefinition],
    settings: &'a Settings,
    dry_run: bool,
    count: u64,
    /// Discarded without knowing whose they were.
    unmarked: u64,
}

impl Work for Discarding<'_> {
    async fn portion(&mut self, found: Vec<DeadFound>) -> Result<u64, Failure> {
        if self.dry_run {
            self.count += found.len() as u64;
            return Ok(found.len() as u64);
        }
        let mut batches = Batches::new();
        for DeadFound { position, letter, .. } in found {
            let batch = batches.entry((position.queue, position.partition)).or_default();
            batch.push(Discard { letter: position.id, job: letter.ok().map(Whose::of) });
        }
        let mut gone = 0;
        for ((name, partition), batch) in batches {
            let Some(queue) = self.queues.iter().find(|queue| queue.name == name) else { continue };
            let keys = queue.partition(partition);
            let answers = self.connection.discard(&keys, self.settings.seen_window_ms(&name), &batch).await?;
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

    fn count(&self) -> u64 {
        self.count
    }

    fn done(&self) -> &'static str {
        "discarded"
    }

    fn makes_letters(&self) -> bool {
        false
    }
}

impl Discarding<'_> {
    fn tell(self, missing: &[String], json: bool) -> Result<End, Failure> {
        let end = match (missing.is_empty(), self.count) {
            (true, _) => End::Done,
            (false, 0) => End::Bad,
            (false, _) => End::Partly,
        };
        if json {
            let name = if self.dry_run { "would_discard" } else { "discarded" };
            output::print(&json!({ name: self.count, "not_found": missing }).to_string())?;
        } else {
            let would = if self.dry_run { "would be discarded" } else { "discarded" };
            output::print(&format!("{} {would}", self.count))?;
        }
        for id in missing {
            output::complain(&super::none_has(id, "it may have been discarded before"));
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
