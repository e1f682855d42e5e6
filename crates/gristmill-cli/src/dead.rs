//! `dead list`: dead letters, oldest first.

use crate::exit::{End, Failure};
use crate::output::{self, Table, age, cut};
use crate::settings::Settings;
use gristmill_broker::inspect::DeadView;
use gristmill_broker::{Connection, QueueDefinition};
use gristmill_job::{Envelope, QueueName, UnixMillis};
use serde_json::{Value, json};

/// Longest error in a table, in characters; `--json` has all of it.
const ERROR_SHOWN: usize = 100;

struct Row {
    queue: QueueName,
    letter: DeadView,
    now: UnixMillis,
}

/// The command.
pub(crate) async fn list(
    settings: &Settings,
    only: Option<&str>,
    limit: usize,
    json: bool,
) -> Result<End, Failure> {
    let only = only.map(QueueName::new).transpose().map_err(|error| Failure::Usage(error.to_string()))?;
    let connection = crate::connect(settings).await?;
    let queues = match only {
        None => connection.queues().await?,
        Some(name) => match connection.definition(&name).await? {
            Some(queue) => vec![queue],
            None => {
                return Err(Failure::Failed(format!(
                    "there is no queue {name}; `gristmill queues` lists them"
                )));
            }
        },
    };
    let (mut rows, mut total) = (Vec::new(), 0);
    for queue in &queues {
        total += gather(&connection, queue, limit, &mut rows).await?;
    }
    rows.sort_by_key(|row| row.letter.at);
    rows.truncate(limit);
    if json {
        let letters: Vec<Value> = rows.iter().map(Row::as_json).collect();
        output::print(&json!({ "total": total, "dead_letters": letters }).to_string())?;
        return Ok(End::Done);
    }
    if !rows.is_empty() {
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
        output::print(&table.render())?;
    }
    if total > rows.len() as u64 || total == 0 {
        output::complain(&format!("{} of {total} dead letters are shown", rows.len()));
    }
    Ok(End::Done)
}

/// The oldest of each partition; returns how many there are in all.
async fn gather(
    connection: &Connection,
    queue: &QueueDefinition,
    limit: usize,
    rows: &mut Vec<Row>,
) -> Result<u64, Failure> {
    let mut total = 0;
    for view in connection.partitions(queue).await?.into_iter().filter(|view| view.dead > 0) {
        total += view.dead;
        if limit > 0 {
            let letters = connection.dead_letters(queue, view.partition, 0, limit).await?;
            rows.extend(letters.into_iter().map(|letter| Row {
                queue: queue.name.clone(),
                letter,
                now: view.now,
            }));
        }
    }
    Ok(total)
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let DeadView { id, partition, at, letter } = &self.letter;
        let age = age(at.age_at(self.now));
        let (queue, partition) = (self.queue.to_string(), partition.to_string());
        match letter {
            Ok(letter) => vec![
                id.clone(),
                queue,
                partition,
                String::from_utf8_lossy(&letter.job).into_owned(),
                String::from_utf8_lossy(&letter.key).into_owned(),
                kind(&letter.envelope).unwrap_or_else(|| "?".into()),
                letter.reason.as_str().into(),
                letter.class.clone().unwrap_or_else(|| "-".into()),
                letter.attempts.to_string(),
                age,
                cut(&letter.error.join(": "), ERROR_SHOWN),
            ],
            Err(why) => {
                let unknown = || "?".to_owned();
                let mut cells = vec![id.clone(), queue, partition];
                cells.extend((0..6).map(|_| unknown()));
                cells.extend([age, cut(why, ERROR_SHOWN)]);
                cells
            }
        }
    }

    fn as_json(&self) -> Value {
        let DeadView { id, partition, at, letter } = &self.letter;
        let mut row = json!({
            "id": id,
            "queue": self.queue.as_str(),
            "partition": partition,
            "at_ms": at.0,
            "age_ms": at.age_at(self.now).as_millis(),
        });
        let more = match letter {
            Ok(letter) => json!({
                "job": String::from_utf8_lossy(&letter.job),
                "key": String::from_utf8_lossy(&letter.key),
                "kind": kind(&letter.envelope),
                "reason": letter.reason.as_str(),
                "class": letter.class,
                "attempts": letter.attempts,
                "turn": letter.turn,
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

/// `None` where the envelope cannot be read, which may be why it is here.
fn kind(envelope: &[u8]) -> Option<String> {
    Envelope::decode(envelope, usize::MAX).ok().map(|envelope| envelope.kind.to_owned())
}
