//! hung: names the runs of a node that hold their threads and cannot be stopped, for people. Advisory.

use crate::error::CallError;
use crate::fence::Incarnation;
use crate::keys;
use crate::lease::acquire::millis;
use crate::link::Connection;
use crate::reply;
use bytes::Bytes;
use gristmill_job::{JobId, Place, QueueName, UnixMillis};
use redis::Pipeline;
use std::time::Duration;

/// A run that holds its thread and was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HungRun {
    /// Which start of which node it holds a thread of.
    pub incarnation: Incarnation,
    /// The partition of its job.
    pub partition: u16,
    /// The place of its job.
    pub place: Place,
    /// The kind of its job.
    pub kind: String,
    /// Its job.
    pub job: JobId,
    /// Since when it holds its thread (Redis ms).
    pub since: UnixMillis,
}

impl HungRun {
    fn field(&self) -> String {
        format!("{} {} {}", self.incarnation, self.partition, self.place)
    }

    /// `<since ms> <kind> <job id>`: an id may contain anything, a kind no space.
    fn value(&self) -> Vec<u8> {
        let mut value = format!("{} {} ", self.since.0, self.kind).into_bytes();
        value.extend_from_slice(self.job.as_bytes());
        value
    }

    fn read(field: &str, value: &[u8]) -> Option<Self> {
        let mut words = field.rsplitn(3, ' ');
        let (place, partition, incarnation) = (words.next()?, words.next()?, words.next()?);
        let mut parts = value.splitn(3, |byte| *byte == b' ');
        let mut next = || parts.next();
        let since = std::str::from_utf8(next()?).ok()?.parse().ok()?;
        let kind = String::from_utf8_lossy(next()?).into_owned();
        Some(Self {
            incarnation: Incarnation::from_stored(incarnation),
            partition: partition.parse().ok()?,
            place: Place::parse(place.as_bytes())?,
            kind,
            job: JobId::from_stored(Bytes::copy_from_slice(next()?)),
            since: UnixMillis(since),
        })
    }
}

impl Connection {
    /// Names these runs of a queue for `ttl`, and those no more. Repeated while any of them holds its thread.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn name_hung(
        &self,
        queue: &QueueName,
        hung: &[HungRun],
        ended: &[HungRun],
        ttl: Duration,
    ) -> Result<(), CallError> {
        let key = keys::hung(queue);
        let mut pipeline = Pipeline::with_capacity(ended.len() + hung.len() + 1);
        for run in ended {
            pipeline.cmd("HDEL").arg(&key).arg(run.field());
        }
        for run in hung {
            pipeline.cmd("HSET").arg(&key).arg(run.field()).arg(run.value());
        }
        pipeline.cmd("PEXPIRE").arg(&key).arg(millis(ttl));
        self.many(pipeline, ended.len() + hung.len() + 1).await.map(drop)
    }

    /// The runs of a queue that are named, in no order; also of nodes that have died since. What cannot be read is left out.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn hung(&self, queue: &QueueName) -> Result<Vec<HungRun>, CallError> {
        let mut command = redis::cmd("HGETALL");
        command.arg(keys::hung(queue));
        let mut rows = reply::list(self.one(command).await?, "the hung runs")?.into_iter();
        let mut hung = Vec::new();
        while let (Some(field), Some(value)) = (rows.next(), rows.next()) {
            hung.extend(HungRun::read(&reply::text(field)?, &reply::bytes(value)?));
        }
        Ok(hung)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_read_as_it_was_written_and_what_is_no_run_is_left_out() {
        let run = HungRun {
            incarnation: Incarnation::of("a node", 7),
            partition: 12,
            place: Place { ms: 5, seq: 3 },
            kind: "price.changed".into(),
            job: JobId::from_stored(Bytes::from_static(b"\xff id with spaces")),
            since: UnixMillis(99),
        };
        assert_eq!(HungRun::read(&run.field(), &run.value()), Some(run));
        for (field, value) in [("", ""), ("n 1 5-3", "x k j"), ("n 1 5-3", "1 k"), ("n p 5-3", "1 k j")] {
            assert_eq!(HungRun::read(field, value.as_bytes()), None, "{field} {value}");
        }
    }
}
