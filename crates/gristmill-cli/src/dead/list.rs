//! `dead list`: a page of dead letters.

use super::filter::{Filter, Wanted};
use super::{Graveyard, kind, lossy};
use crate::exit::{End, Failure};
use crate::output::{self, Table, age, cut};
use crate::settings::Settings;
use clap::Args;
use gristmill_broker::dead::{DeadFound, DeadPosition, DeadRange, DeadWalk, Order, SLICE};
use gristmill_job::{DeadLetter, UnixMillis};
use serde_json::{Value, json};

/// Longest error in a table, in characters; `--json` has all of it.
const ERROR_SHOWN: usize = 100;

#[derive(Args)]
#[command(after_help = PAGES)]
pub(crate) struct ListArguments {
    /// Only of this queue
    #[arg(conflicts_with = "of_queue")]
    queue: Option<String>,
    /// Only of this queue
    #[arg(long = "queue", id = "of_queue", value_name = "QUEUE")]
    of_queue: Option<String>,
    #[command(flatten)]
    filter: Filter,
    /// Only those that died for this reason: exhausted, permanent, undecodable, unknown_kind, …
    #[arg(long, visible_alias = "dead-reason")]
    reason: Option<String>,
    /// The newest first
    #[arg(long)]
    newest_first: bool,
    /// How many at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    limit: u64,
    /// Go on behind this letter: what the page before named at its end
    #[arg(long, value_name = "POSITION")]
    after: Option<DeadPosition>,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

const PAGES: &str = "\
A page that is full names the position of its last letter. With --after POSITION, and the same filter and order, the \
next page begins behind it, also when that letter is gone by then. With --json it is `next`, null on the last page.";

/// What a line shows of a letter; the envelope, which may be large, is let go.
struct Row {
    position: DeadPosition,
    letter: Result<DeadLetter, String>,
    kind: Option<String>,
    now: UnixMillis,
}

/// The command.
pub(crate) async fn command(settings: &Settings, arguments: &ListArguments) -> Result<End, Failure> {
    let connection = crate::connect(settings).await?;
    let only = arguments.queue.as_deref().or(arguments.of_queue.as_deref());
    let queues = super::queues(&connection, only).await?;
    let yard = Graveyard::look(&connection, &queues).await?;
    let wanted = Wanted { filter: arguments.filter.clone(), reason: arguments.reason.clone() };
    let order = if arguments.newest_first { Order::NewestFirst } else { Order::OldestFirst };
    let range = DeadRange { order, after: arguments.after.clone(), ..wanted.range(yard.now) };
    let mut walk = DeadWalk::new(connection, &yard.partitions, range);
    let limit = usize::try_from(arguments.limit).unwrap_or(usize::MAX);
    let (rows, more) = page(&mut walk, &wanted, yard.now, limit).await?;
    let next = rows.last().filter(|_| more).map(|row| row.position.to_string());
    if arguments.json {
        let letters: Vec<Value> = rows.iter().map(Row::as_json).collect();
        output::print(&json!({ "total": yard.total, "dead_letters": letters, "next": next }).to_string())?;
        return Ok(End::Done);
    }
    if !rows.is_empty() {
        output::print(&table(&rows))?;
    }
    if yard.total > rows.len() as u64 || yard.total == 0 {
        output::complain(&format!("{} of {} dead letters are shown", rows.len(), yard.total));
    }
    if let Some(next) = next {
        output::complain(&format!("go on with --after {next}"));
    }
    Ok(End::Done)
}

/// At most `limit` letters, without their envelopes, and whether there may be more.
async fn page(
    walk: &mut DeadWalk,
    wanted: &Wanted,
    now: UnixMillis,
    limit: usize,
) -> Result<(Vec<Row>, bool), Failure> {
    let mut rows = Vec::new();
    while rows.len() < limit {
        let portion = walk.next(SLICE).await?;
        if portion.is_empty() {
            return Ok((rows, false));
        }
        let mut taken = portion.into_iter().filter(|found| wanted.takes(found));
        rows.extend(taken.by_ref().take(limit - rows.len()).map(|found| Row::of(found, now)));
        if taken.next().is_some() {
            return Ok((rows, true));
        }
    }
    Ok((rows, !walk.is_over()))
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        "id",
        "queue",
        "#part",
        "job",
        "key",
        "kind",
        "reason",
        "class",
        "#attempts",
        "#age",
        "error",
    ]);
    rows.iter().for_each(|row| table.row(row.cells()));
    table.render()
}

impl Row {
    fn of(found: DeadFound, now: UnixMillis) -> Self {
        let DeadFound { position, letter, .. } = found;
        let kind = letter.as_ref().ok().and_then(|letter| kind(&letter.envelope));
        let letter = letter.map(|letter| DeadLetter { envelope: Vec::new(), ..letter });
        Self { position, letter, kind, now }
    }

    fn cells(&self) -> Vec<String> {
        let DeadPosition { at, queue, partition, id } = &self.position;
        let age = age(at.age_at(self.now));
        let (id, queue, partition) = (lossy(id), queue.to_string(), partition.to_string());
        match &self.letter {
            Ok(letter) => vec![
                id,
                queue,
                partition,
                lossy(&letter.job),
                lossy(&letter.key),
                self.kind.clone().unwrap_or_else(|| "?".into()),
                letter.reason.as_str().into(),
                letter.class.clone().unwrap_or_else(|| "-".into()),
                letter.attempts.to_string(),
                age,
                cut(&letter.error.join(": "), ERROR_SHOWN),
            ],
            Err(why) => {
                let mut cells = vec![id, queue, partition];
                cells.extend((0..6).map(|_| "?".to_owned()));
                cells.extend([age, cut(why, ERROR_SHOWN)]);
                cells
            }
        }
    }

    fn as_json(&self) -> Value {
        let DeadPosition { at, queue, partition, id } = &self.position;
        let mut row = json!({
            "id": lossy(id),
            "queue": queue.as_str(),
            "partition": partition,
            "at_ms": at.0,
            "age_ms": at.age_at(self.now).as_millis(),
        });
        let more = match &self.letter {
            Ok(letter) => json!({
                "job": lossy(&letter.job),
                "key": lossy(&letter.key),
                "kind": self.kind,
                "reason": letter.reason.as_str(),
                "class": letter.class,
                "attempts": letter.attempts,
                "turn": letter.turn,
                "replays": letter.replays,
                "place": letter.place,
                "node": letter.node,
                "error": letter.error,
            }),
            Err(why) => json!({ "unreadable": why }),
        };
        if let (Value::Object(row), Value::Object(more)) = (&mut row, more) {
            row.extend(more);
        }
        row
    }
}
