//! inspect: plain reads for people and pages. Nothing here changes anything; counts of different partitions are of
//! slightly different moments.

use crate::create;
use crate::error::CallError;
use crate::keys::{GROUP, PartitionKeys, QUEUES, QueueDefinition};
use crate::link::Connection;
use crate::promote;
use crate::reply;
use bytes::Bytes;
use gristmill_job::{DeadLetter, Due, EncodedJob, JobId, Key, Place, QueueName, UnixMillis, partition_of};
use redis::{Pipeline, Value};

/// One partition, at a glance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartitionView {
    /// Which.
    pub partition: u16,
    /// Jobs in the stream: waiting and claimed.
    pub ready: u64,
    /// Jobs claimed by an owner and not settled.
    pub claimed: u64,
    /// Dead letters.
    pub dead: u64,
    /// Emitted jobs on their way.
    pub outbox: u64,
    /// Jobs for later.
    pub delayed: u64,
    /// When the first of them is due, or was, by the Redis clock.
    pub due: Option<UnixMillis>,
    /// When its oldest job became ready, by the Redis clock.
    pub oldest: Option<UnixMillis>,
    /// Who owns it; empty if nobody.
    pub owner: String,
    /// The owner's epoch.
    pub epoch: u64,
    /// When its lease expires, by the Redis clock.
    pub expires: UnixMillis,
    /// The Redis clock when this was read.
    pub now: UnixMillis,
}

/// The state an entity has by effects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntityView {
    /// The version of the effect that was applied last.
    pub version: u64,
    /// Its state; empty when deleted.
    pub state: Bytes,
    /// Whether it was deleted.
    pub deleted: bool,
    /// How many effects were applied.
    pub changes: u64,
}

/// One dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadView {
    /// Its own id.
    pub id: String,
    /// The partition it lies in.
    pub partition: u16,
    /// When it died.
    pub at: UnixMillis,
    /// Its record, or why it cannot be read.
    pub letter: Result<DeadLetter, String>,
}

/// Why a letter without a record cannot be read.
pub(crate) const UNREADABLE_GONE: &str = "its record is gone";

impl Connection {
    /// Every queue that was made.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn queues(&self) -> Result<Vec<QueueDefinition>, CallError> {
        let mut get = redis::cmd("HGETALL");
        get.arg(QUEUES);
        let mut rows = reply::list(self.one(get).await?, "queue definitions")?.into_iter();
        let mut queues = Vec::new();
        while let (Some(name), Some(definition)) = (rows.next(), rows.next()) {
            let (name, definition) = (reply::text(name)?, reply::text(definition)?);
            let name = QueueName::new(&name).map_err(|e| CallError::Unexpected(e.to_string()))?;
            queues.push(create::parse(&name, &definition)?);
        }
        queues.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(queues)
    }

    /// What the server does when memory is full; `None` where it does not tell (a managed service may forbid CONFIG).
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn eviction_policy(&self) -> Result<Option<String>, CallError> {
        let mut info = redis::cmd("INFO");
        info.arg("memory");
        let info = reply::text(self.one(info).await?)?;
        let policy = info.lines().find_map(|line| line.strip_prefix("maxmemory_policy:"));
        Ok(policy.map(|policy| policy.trim().to_owned()))
    }

    /// Every partition of a queue, in order.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn partitions(&self, queue: &QueueDefinition) -> Result<Vec<PartitionView>, CallError> {
        const READS: usize = 9;
        let mut pipeline = Pipeline::new();
        for partition in 0..queue.partitions {
            let keys = queue.partition(partition);
            pipeline.cmd("XLEN").arg(&keys.stream);
            pipeline.cmd("XPENDING").arg(&keys.stream).arg(GROUP);
            pipeline.cmd("ZCARD").arg(&keys.dead);
            pipeline.cmd("XLEN").arg(&keys.outbox);
            pipeline.cmd("XRANGE").arg(&keys.stream).arg("-").arg("+").arg("COUNT").arg(1);
            pipeline.cmd("HMGET").arg(&keys.lease).arg(&["incarnation", "epoch", "expires"]);
            pipeline.cmd("ZCARD").arg(&keys.delayed);
            pipeline.cmd("ZRANGE").arg(&keys.delayed).arg(0).arg(0).arg("WITHSCORES");
            pipeline.cmd("TIME");
        }
        let reads = READS * usize::from(queue.partitions);
        let values = self.timed("inspect", self.many(pipeline, reads)).await?;
        let mut values = values.into_iter();
        let mut next = || values.next().unwrap_or(Value::Nil);
        let mut views = Vec::with_capacity(usize::from(queue.partitions));
        for partition in 0..queue.partitions {
            let ready = reply::number(next())?;
            let claimed = match next() {
                // The group was deleted, or the stream flushed: nothing is claimed.
                Value::ServerError(_) => 0,
                summary => reply::number(reply::list(summary, "a summary")?.swap_remove(0))?,
            };
            let (dead, outbox) = (reply::number(next())?, reply::number(next())?);
            let oldest = crate::entry::read_all(next())?.first().map(|entry| UnixMillis(entry.place.ms));
            let mut lease = reply::list(next(), "a lease")?.into_iter();
            let owner = lease.next().map_or(Ok(String::new()), optional_text)?;
            let epoch = lease.next().map_or(Ok(0), optional_number)?;
            let expires = UnixMillis(lease.next().map_or(Ok(0), optional_number)?);
            // A key of another type holds none.
            let delayed = reply::number(next()).unwrap_or(0);
            let first = reply::list(next(), "the first job for later").unwrap_or_default().pop();
            let due = first.map_or(Ok(None), promote::due_time)?;
            let now = time(next())?;
            views.push(PartitionView {
                partition,
                ready,
                claimed,
                dead,
                outbox,
                delayed,
                due,
                oldest,
                owner,
                epoch,
                expires,
                now,
            });
        }
        Ok(views)
    }

    /// Which partitions of a queue have an owner whose lease has not expired, in order.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn owned(&self, queue: &QueueDefinition) -> Result<Vec<bool>, CallError> {
        let mut pipeline = Pipeline::with_capacity(1 + usize::from(queue.partitions));
        pipeline.cmd("TIME");
        for partition in 0..queue.partitions {
            pipeline.cmd("HMGET").arg(queue.partition(partition).lease).arg(&["incarnation", "expires"]);
        }
        let reads = 1 + usize::from(queue.partitions);
        let mut values = self.timed("owned", self.many(pipeline, reads)).await?.into_iter();
        let now = time(values.next().unwrap_or(Value::Nil))?;
        values
            .map(|lease| {
                let mut lease = reply::list(lease, "a lease")?.into_iter();
                let owner = lease.next().map_or(Ok(String::new()), optional_text)?;
                let expires = lease.next().map_or(Ok(0), optional_number)?;
                Ok(!owner.is_empty() && expires > now.0)
            })
            .collect()
    }

    /// The state of an entity; `None` if no effect was ever applied.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn entity(&self, queue: &QueueDefinition, key: &[u8]) -> Result<Option<EntityView>, CallError> {
        Ok(self.entities(queue, std::slice::from_ref(&key)).await?.pop().flatten())
    }

    /// The states of many entities in one round trip, in the order of `keys`.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn entities(
        &self,
        queue: &QueueDefinition,
        keys: &[impl AsRef<[u8]>],
    ) -> Result<Vec<Option<EntityView>>, CallError> {
        let mut pipeline = Pipeline::with_capacity(keys.len());
        for key in keys {
            let partition = queue.partition(partition_of(key.as_ref(), queue.partitions));
            let fields: &[&str] = &["version", "state", "deleted", "changes"];
            pipeline.cmd("HMGET").arg(partition.entity(key.as_ref())).arg(fields);
        }
        self.many(pipeline, keys.len()).await?.into_iter().map(entity).collect()
    }

    /// Dead letters of one partition, oldest first, `skip` of them left out.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn dead_letters(
        &self,
        queue: &QueueDefinition,
        partition: u16,
        skip: usize,
        count: usize,
    ) -> Result<Vec<DeadView>, CallError> {
        let keys = queue.partition(partition);
        let mut range = redis::cmd("ZRANGE");
        range.arg(&keys.dead).arg(skip).arg(skip + count.max(1) - 1).arg("WITHSCORES");
        let mut rows = reply::list(self.one(range).await?, "dead letter ids")?.into_iter();
        let mut letters = Vec::new();
        let mut bodies = redis::cmd("HMGET");
        bodies.arg(&keys.dead_bodies);
        while let (Some(id), Some(at)) = (rows.next(), rows.next()) {
            let (id, at) = (reply::text(id)?, reply::number(at)?);
            bodies.arg(&id);
            letters.push((id, UnixMillis(at)));
        }
        if letters.is_empty() {
            return Ok(Vec::new());
        }
        let bodies = reply::list(self.one(bodies).await?, "dead letters")?;
        letters
            .into_iter()
            .zip(bodies)
            .map(|((id, at), body)| {
                let letter = match body {
                    Value::Nil => Err(UNREADABLE_GONE.to_owned()),
                    body => DeadLetter::decode(&reply::bytes(body)?),
                };
                Ok(DeadView { id, partition, at, letter })
            })
            .collect()
    }

    /// The oldest emitted jobs of a partition: the outbox id, the queue, the job. An entry that cannot be read has no
    /// job; it is shown as an error and stays.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn outbox(
        &self,
        keys: &PartitionKeys,
        count: usize,
    ) -> Result<Vec<(Place, Result<(QueueName, EncodedJob), String>)>, CallError> {
        let mut range = redis::cmd("XRANGE");
        range.arg(&keys.outbox).arg("-").arg("+").arg("COUNT").arg(count);
        let mut emitted = Vec::new();
        for row in reply::list(self.timed("outbox", self.one(range)).await?, "outbox entries")? {
            let mut row = reply::list(row, "an outbox entry")?.into_iter();
            let id = reply::bytes(row.next().unwrap_or(Value::Nil))?;
            let id = Place::parse(&id)
                .ok_or_else(|| CallError::Unexpected(format!("expected a stream id, got {id:?}")))?;
            let mut fields = reply::list(row.next().unwrap_or(Value::Nil), "fields")?.into_iter();
            let (mut queue, mut job, mut key, mut envelope) =
                (None, Bytes::new(), Bytes::new(), Bytes::new());
            let mut due = Due::Now;
            while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
                let value = reply::bytes(value)?;
                match reply::bytes(name)?.as_ref() {
                    b"q" => queue = Some(value),
                    b"i" => job = value,
                    b"k" => key = value,
                    b"d" => envelope = value,
                    // Digits of ours; whatever else stands there was due long ago.
                    b"at" => {
                        due = Due::At(
                            reply::number(Value::BulkString(value.into()))
                                .map_or_else(|_| UnixMillis(0), UnixMillis),
                        )
                    }
                    _ => {}
                }
            }
            let queue = queue.unwrap_or_default();
            let read =
                QueueName::new(&String::from_utf8_lossy(&queue)).map_err(|e| e.to_string()).map(|queue| {
                    let (id, key) = (JobId::from_stored(job), Key::from_stored(key));
                    (queue, EncodedJob { id, key, envelope, own_id: true, due })
                });
            emitted.push((id, read));
        }
        Ok(emitted)
    }
}

pub(crate) fn optional_text(value: Value) -> Result<String, CallError> {
    if value == Value::Nil { Ok(String::new()) } else { reply::text(value) }
}

pub(crate) fn optional_number(value: Value) -> Result<u64, CallError> {
    if value == Value::Nil { Ok(0) } else { reply::number(value) }
}

pub(crate) fn time(value: Value) -> Result<UnixMillis, CallError> {
    let mut parts = reply::list(value, "the time")?.into_iter();
    let seconds = reply::number(parts.next().unwrap_or(Value::Nil))?;
    let micros = reply::number(parts.next().unwrap_or(Value::Nil))?;
    Ok(UnixMillis(seconds * 1000 + micros / 1000))
}

fn entity(value: Value) -> Result<Option<EntityView>, CallError> {
    let mut fields = reply::list(value, "an entity")?.into_iter();
    let mut next = || fields.next().unwrap_or(Value::Nil);
    let version = next();
    if version == Value::Nil {
        return Ok(None);
    }
    Ok(Some(EntityView {
        version: reply::number(version)?,
        state: reply::bytes(next())?,
        deleted: optional_text(next())? == "1",
        changes: optional_number(next())?,
    }))
}
