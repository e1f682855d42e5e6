//! `dead`: dead letters, page by page. Nothing here holds all of them, and neither does Redis.
//!
//! * `filter`: which letters are meant;
//! * `list`: a page of them;
//! * `show`: one of them in full, its `payload` as a person can read it;
//! * `choice`: letters by id or by filter, for the commands that act on them;
//! * `replay`: back to work with them, perhaps with a payload that a person edited (`edit`);
//! * `discard`: away with them. Both are noted in the audit log.

pub(crate) mod choice;
pub(crate) mod discard;
mod edit;
pub(crate) mod filter;
pub(crate) mod list;
pub(crate) mod payload;
pub(crate) mod replay;
pub(crate) mod show;

use crate::exit::Failure;
use gristmill_broker::dead::DeadFound;
use gristmill_broker::{Connection, QueueDefinition};
use gristmill_job::{Envelope, QueueName, UnixMillis};

/// The queues meant: the one that is named, or all.
pub(crate) async fn queues(
    connection: &Connection,
    only: Option<&str>,
) -> Result<Vec<QueueDefinition>, Failure> {
    let Some(only) = only else { return Ok(connection.queues().await?) };
    let name = QueueName::new(only).map_err(|error| Failure::Usage(error.to_string()))?;
    match connection.definition(&name).await? {
        Some(queue) => Ok(vec![queue]),
        None => Err(Failure::Failed(format!("there is no queue {name}; `gristmill queues` lists them"))),
    }
}

/// Where dead letters lie, how many there are, and what time it is there.
struct Graveyard {
    partitions: Vec<(QueueDefinition, u16)>,
    total: u64,
    now: UnixMillis,
}

impl Graveyard {
    /// Nothing that is dead by now died later: nodes label deaths by their own clocks, which may be a little ahead.
    fn latest(&self) -> UnixMillis {
        UnixMillis(self.now.0 + 60_000)
    }

    async fn look(connection: &Connection, queues: &[QueueDefinition]) -> Result<Self, Failure> {
        let (mut partitions, mut total, mut now) = (Vec::new(), 0, UnixMillis::default());
        for queue in queues {
            for view in connection.partitions(queue).await? {
                now = now.max(view.now);
                if view.dead > 0 {
                    total += view.dead;
                    partitions.push((queue.clone(), view.partition));
                }
            }
        }
        Ok(Self { partitions, total, now })
    }
}

/// The letter of this id; `None` where there is none.
pub(crate) async fn find(
    connection: &Connection,
    queues: &[QueueDefinition],
    id: &str,
) -> Result<Option<DeadFound>, Failure> {
    let mut all = Vec::new();
    for queue in queues {
        all.extend(connection.dead_find(queue, id.as_bytes()).await?);
    }
    if all.len() > 1 {
        let places: Vec<String> = all
            .iter()
            .map(|found| format!("{}:{}", found.position.queue, found.position.partition))
            .collect();
        let places = places.join(", ");
        return Err(Failure::Failed(format!("there are letters {id} in {places}; say which with --queue")));
    }
    Ok(all.pop())
}

/// What is said of an id that no letter has, with a `hint` of the command.
fn none_has(id: &str, hint: &str) -> String {
    let id = crate::output::visible(id);
    format!(
        "there is no dead letter {id}; {hint}; if a job has this id, `gristmill explain {id}` names its letter"
    )
}

/// `None` where the envelope cannot be read, which may be why it is here.
pub(crate) fn kind(envelope: &[u8]) -> Option<String> {
    Envelope::decode(envelope, usize::MAX).ok().map(|envelope| envelope.kind.to_owned())
}

pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
