//! `purge`: removes what waits in a queue, beside running producers and nodes, and notes it in the audit log before and after.

use crate::audit::Act;
use crate::dead::choice::said;
use crate::exit::{End, Failure};
use crate::output;
use crate::settings::Settings;
use clap::Args;
use gristmill_broker::dead::{DeadRange, DeadWalk, SLICE};
use gristmill_broker::discard::{Discard, Discarded, Whose};
use gristmill_broker::purgeable::Until;
use gristmill_broker::{Connection, QueueDefinition};
use gristmill_job::UnixMillis;
use serde_json::json;
use std::io::{IsTerminal, Write};

#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct PurgeArguments {
    /// The queue
    queue: String,
    /// The queue's name once more: what is purged is gone. Without it the name is asked for, where there is a terminal
    #[arg(long, value_name = "QUEUE")]
    confirm: Option<String>,
    /// Dead letters too
    #[arg(long)]
    dead: bool,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT", value_parser = said)]
    reason: String,
    /// Say what would be removed, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// The result as one JSON object
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Removed is what was there when it began: jobs that wait, also behind a key that is held or waits, jobs for later, jobs that came back from the \
dead, and what is stored about them; their ids may come again. What is enqueued meanwhile stays. A run of a purged job goes on, and its result is \
refused; nodes build their lanes again from what is left. Dead letters, and the keys they hold, stay without --dead. States of entities \
and emitted jobs on their way are not touched. It goes in slices: Ctrl-C ends it between two of them, and it may be said again.";

/// What was removed, or would be.
#[derive(Default)]
struct Counts {
    jobs: u64,
    letters: u64,
}

/// The command.
pub(crate) async fn command(settings: &Settings, arguments: &PurgeArguments) -> Result<End, Failure> {
    let PurgeArguments { queue: name, confirm, dead, reason, dry_run, json } = arguments;
    if !dry_run {
        confirmed(name, confirm.as_deref())?;
    }
    let connection = crate::connect(settings).await?;
    let queue = crate::keys::queue(&connection, name).await?;
    if *dry_run {
        let look = connection.partitions(&queue).await?;
        let mut counts = Counts::default();
        for view in look {
            counts.jobs += view.ready + view.delayed;
            counts.letters += if *dead { view.dead } else { 0 };
        }
        for partition in 0..queue.partitions {
            let keys = queue.partition(partition);
            counts.jobs += connection.returned_count(&keys).await?;
        }
        return tell(&counts, *json, true);
    }
    let act = Act::new("purge", format!("queue={name}{}", if *dead { " dead" } else { "" }), reason);
    act.begin(&connection).await?;
    let mut counts = Counts::default();
    let done = tokio::select! {
        done = purge(settings, &connection, &queue, *dead, &mut counts) => done,
        _ = tokio::signal::ctrl_c() => Err(Failure::Failed("ended by Ctrl-C; what was removed is counted".into())),
    };
    act.end(&connection, counts.jobs + counts.letters, done.is_ok()).await;
    let end = tell(&counts, *json, false)?;
    done.map(|()| end)
}

/// # Errors
/// The name was not said, or another.
fn confirmed(name: &str, confirm: Option<&str>) -> Result<(), Failure> {
    let said = match confirm {
        Some(said) => said.to_owned(),
        None if std::io::stdin().is_terminal() => {
            eprint!("what waits in queue {name} will be removed for good; its name: ");
            let _ = std::io::stderr().flush();
            let mut line = String::new();
            std::io::stdin().read_line(&mut line)?;
            line.trim().to_owned()
        }
        None => {
            return Err(Failure::Usage(format!(
                "what is purged is gone: look with --dry-run, then say the queue's name with --confirm {name}"
            )));
        }
    };
    match said == name {
        true => Ok(()),
        false => Err(Failure::Usage(format!("expected the name {name}, got {said:?}; nothing was removed"))),
    }
}

async fn purge(
    settings: &Settings,
    connection: &Connection,
    queue: &QueueDefinition,
    dead: bool,
    counts: &mut Counts,
) -> Result<(), Failure> {
    // Of all partitions first: what comes from here on stays.
    let mut until: Vec<(u16, Until)> = Vec::new();
    for partition in 0..queue.partitions {
        until.push((partition, connection.purgeable(&queue.partition(partition), None, None).await?.until));
    }
    let (now, _) = connection.pauses(&queue.name).await?;
    for (partition, until) in &until {
        let keys = queue.partition(*partition);
        connection.purge_waiting(&keys, until, |jobs| counts.jobs += jobs).await?;
    }
    if dead {
        letters(settings, connection, queue, now, counts).await?;
    }
    Ok(())
}

/// Discards the letters of before `until`; whoever died of a job that was purged meanwhile is younger.
async fn letters(
    settings: &Settings,
    connection: &Connection,
    queue: &QueueDefinition,
    until: UnixMillis,
    counts: &mut Counts,
) -> Result<(), Failure> {
    let partitions: Vec<_> = (0..queue.partitions).map(|partition| (queue.clone(), partition)).collect();
    let range = DeadRange { until: Some(until), ..DeadRange::default() };
    let mut walk = DeadWalk::new(connection.clone(), &partitions, range);
    loop {
        let portion = walk.next(SLICE).await?;
        if portion.is_empty() && walk.is_over() {
            return Ok(());
        }
        for partition in 0..queue.partitions {
            let mine = portion.iter().filter(|found| found.position.partition == partition);
            let letters: Vec<Discard> = mine
                .map(|found| Discard {
                    letter: found.position.id.clone(),
                    job: found.letter.clone().ok().map(Whose::of),
                })
                .collect();
            if letters.is_empty() {
                continue;
            }
            let keys = queue.partition(partition);
            let answers = connection.discard(&keys, settings.seen_window_ms(&queue.name), &letters).await?;
            let gone = answers.iter().filter(|answer| **answer == Discarded::Discarded);
            counts.letters += gone.count() as u64;
        }
    }
}

fn tell(counts: &Counts, json: bool, dry_run: bool) -> Result<End, Failure> {
    let Counts { jobs, letters } = counts;
    if json {
        let result = if dry_run { "would_purge" } else { "purged" };
        output::print(&json!({ "result": result, "jobs": jobs, "dead_letters": letters }).to_string())?;
    } else {
        let would = if dry_run { "would be removed" } else { "removed" };
        output::print(&format!("{would}: {jobs} jobs, {letters} dead letters"))?;
    }
    Ok(End::Done)
}
