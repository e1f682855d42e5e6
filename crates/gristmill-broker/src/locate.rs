//! locate: where one job is and what is stored about it. Plain reads, of one moment each.

use crate::entry;
use crate::error::CallError;
use crate::inspect;
use crate::keys::{GROUP, PartitionKeys, QueueDefinition};
use crate::link::Connection;
use crate::reply;
use crate::returned::Returned;
use crate::state::{JobState, StateLine};
use bytes::Bytes;
use gristmill_job::{JobId, Key, Place, UnixMillis};
use redis::{Pipeline, Value};

/// How a producer's id stands in one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkView {
    /// Which partition.
    pub partition: u16,
    /// `waiting <place>`, `applied`, `stale`, `dead <letter>`, `discarded`, or whatever stands there.
    pub standing: String,
    /// Until when that is known, by the Redis clock; `None` as long as its job lives.
    pub until: Option<UnixMillis>,
}

/// Who holds a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimView {
    /// The consumer: a tenure, or [`crate::keys::HANDED_BACK`].
    pub holder: String,
    /// For how long, in ms.
    pub idle_ms: u64,
    /// How often it was claimed.
    pub deliveries: u64,
}

/// A job where it lies, as one moment showed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobView {
    /// Its place.
    pub place: Place,
    /// Its id.
    pub id: JobId,
    /// Its key.
    pub key: Key,
    /// Its envelope, undecoded.
    pub envelope: Bytes,
    /// Whether it came back from the dead and lies beside the stream.
    pub returned: bool,
    /// Its claim, if it is claimed; none for one that came back.
    pub claim: Option<ClaimView>,
    /// What is stored about it.
    pub line: StateLine,
    /// The size of the envelope it had before a person edited it, in bytes; `None` if nobody did.
    pub original_bytes: Option<u64>,
    /// Who owns the partition; empty if nobody.
    pub owner: String,
    /// The owner's epoch.
    pub epoch: u64,
    /// When the lease expires, or expired.
    pub expires: UnixMillis,
    /// The Redis clock.
    pub now: UnixMillis,
}

impl Connection {
    /// How a producer's id stands in every partition that has a mark of it, and the Redis clock.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn marks(
        &self,
        queue: &QueueDefinition,
        id: &JobId,
    ) -> Result<(UnixMillis, Vec<MarkView>), CallError> {
        let count = 2 * usize::from(queue.partitions) + 1;
        let mut read = Pipeline::with_capacity(count);
        read.cmd("TIME");
        for partition in 0..queue.partitions {
            let seen = queue.partition(partition).seen(id.as_bytes());
            read.cmd("GET").arg(&seen);
            read.cmd("PTTL").arg(&seen);
        }
        let mut answers = self.many(read, count).await?.into_iter();
        let now = inspect::time(answers.next().unwrap_or(Value::Nil))?;
        let mut marks = Vec::new();
        for partition in 0..queue.partitions {
            let (mark, life) = (answers.next().unwrap_or(Value::Nil), answers.next());
            // A key of another type is no mark.
            if matches!(mark, Value::Nil | Value::ServerError(_)) {
                continue;
            }
            let standing = String::from_utf8_lossy(&reply::bytes(mark)?).into_owned();
            let until = match life {
                Some(Value::Int(ms)) => u64::try_from(ms).ok().map(|ms| UnixMillis(now.0 + ms)),
                _ => None,
            };
            marks.push(MarkView { partition, standing, until });
        }
        Ok((now, marks))
    }

    /// The job at a place; `None` if there is none, or none any more.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn job_at(&self, keys: &PartitionKeys, place: Place) -> Result<Option<JobView>, CallError> {
        const READS: usize = 7;
        let name = place.to_string();
        let mut read = Pipeline::with_capacity(READS);
        read.cmd("XRANGE").arg(&keys.stream).arg(&name).arg(&name);
        read.cmd("XPENDING").arg(&keys.stream).arg(GROUP).arg(&name).arg(&name).arg(1);
        read.cmd("HGET").arg(&keys.state).arg(&name);
        read.cmd("HGET").arg(&keys.returned_bodies).arg(&name);
        read.cmd("HSTRLEN").arg(&keys.originals).arg(&name);
        read.cmd("HMGET").arg(&keys.lease).arg(&["incarnation", "epoch", "expires"]);
        read.cmd("TIME");
        let mut answers = self.many(read, READS).await?.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil);
        let (entry, claim, line, record) = (entry::read_all(next())?.pop(), next(), next(), next());
        let original = reply::number(next())?;
        let mut lease = reply::list(next(), "a lease")?.into_iter();
        let now = inspect::time(next())?;
        let (entry, returned) = match (entry, record) {
            (Some(entry), _) => (entry, false),
            (None, Value::Nil) => return Ok(None),
            (None, record) => (Returned::entry(&reply::bytes(record)?, place, JobState::default()), true),
        };
        let line = match line {
            Value::Nil => StateLine::default(),
            line => StateLine::parse(&reply::bytes(line)?).unwrap_or_default(),
        };
        Ok(Some(JobView {
            place,
            id: entry.id,
            key: entry.key,
            envelope: entry.envelope,
            returned,
            claim: claim_of(claim)?,
            line,
            original_bytes: (original > 0).then_some(original),
            owner: lease.next().map_or(Ok(String::new()), inspect::optional_text)?,
            epoch: lease.next().map_or(Ok(0), inspect::optional_number)?,
            expires: UnixMillis(lease.next().map_or(Ok(0), inspect::optional_number)?),
            now,
        }))
    }

    /// The first envelope of a job that was replayed with another.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn original(&self, keys: &PartitionKeys, place: Place) -> Result<Option<Bytes>, CallError> {
        let mut read = redis::cmd("HGET");
        read.arg(&keys.originals).arg(place.to_string());
        match self.one(read).await? {
            Value::Nil => Ok(None),
            original => reply::bytes(original).map(Some),
        }
    }
}

fn claim_of(value: Value) -> Result<Option<ClaimView>, CallError> {
    // The group was deleted: nothing is claimed.
    if matches!(value, Value::ServerError(_)) {
        return Ok(None);
    }
    let Some(row) = reply::list(value, "a claim")?.pop() else { return Ok(None) };
    let mut row = reply::list(row, "a claim")?.into_iter().skip(1);
    let mut next = || row.next().unwrap_or(Value::Nil);
    Ok(Some(ClaimView {
        holder: reply::text(next())?,
        idle_ms: reply::number(next())?,
        deliveries: reply::number(next())?,
    }))
}
