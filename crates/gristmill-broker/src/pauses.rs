//! pauses: what of a queue is paused now. Read by people, and by every node with its beat.

use crate::error::CallError;
use crate::keys;
use crate::link::Connection;
use crate::pause::Pause;
use crate::reply::{self, Words};
use crate::script::PAUSES;
use gristmill_job::{QueueName, UnixMillis};
use redis::Value;

impl Connection {
    /// What of a queue is paused, in order, and the Redis clock. A pause that is not ours is left out.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn pauses(&self, queue: &QueueName) -> Result<(UnixMillis, Vec<Pause>), CallError> {
        read(self.timed("pauses", self.one(write(queue))).await?)
    }
}

pub(crate) fn write(queue: &QueueName) -> redis::Cmd {
    PAUSES.call(&[keys::paused(queue).as_bytes()])
}

pub(crate) fn read(value: Value) -> Result<(UnixMillis, Vec<Pause>), CallError> {
    let mut words = Words::read(value, "the answer of pauses")?;
    if words.tag() != "ok" {
        return Err(words.unknown("ok"));
    }
    let now = UnixMillis(words.next_number()?);
    let mut rows = reply::list(words.next(), "pauses")?.into_iter();
    let mut pauses = Vec::new();
    while let (Some(field), Some(value)) = (rows.next(), rows.next()) {
        pauses.extend(Pause::parse(&reply::bytes(field)?, &reply::bytes(value)?));
    }
    pauses.sort_by(|a, b| a.target.cmp(&b.target));
    Ok((now, pauses))
}
