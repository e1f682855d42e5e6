//! Jobs for later, as they are kept beside the stream: they have no place before they are due.

use crate::error::CallError;
use crate::inspect;
use crate::keys::PartitionKeys;
use crate::link::Connection;
use crate::reply;
use crate::state::StateLine;
use bytes::Bytes;
use gristmill_job::{JobId, UnixMillis};
use redis::{Pipeline, Value};
use serde_bytes::ByteBuf;
use std::fmt;

/// What names a job in `delayed`: `<seq>:<own>:<id>`. Of those that are due at the same time the lesser goes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member(Bytes);

impl Member {
    /// The member of the `seq`th job that was ever delayed in its partition.
    #[must_use]
    pub fn new(seq: u64, own_id: bool, id: &JobId) -> Self {
        let mut member = format!("{seq:016}:{}:", u8::from(own_id)).into_bytes();
        member.extend_from_slice(id.as_bytes());
        Self(Bytes::from(member))
    }

    /// As it was read from Redis.
    #[must_use]
    pub fn from_stored(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// As it stands in Redis.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The job's id, and whether it is the producer's. One that somebody wrote by hand is its own id.
    #[must_use]
    pub fn id(&self) -> (JobId, bool) {
        match self.parts() {
            Some((own, at)) => (JobId::from_stored(self.0.slice(at..)), own),
            None => (JobId::from_stored(self.0.clone()), false),
        }
    }

    /// As `promote.lua` reads it, to the byte: both must agree about whose mark is declared.
    fn parts(&self) -> Option<(bool, usize)> {
        let digits = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        match self.0.get(digits..digits + 3)? {
            [b':', own @ (b'0' | b'1'), b':'] if digits > 0 => Some((*own == b'1', digits + 3)),
            _ => None,
        }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// What lies in `delayed_bodies`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// Its key.
    pub key: Bytes,
    /// Its envelope.
    pub envelope: Bytes,
    /// The line ([`crate::state`]) that is stored about it once it has a place; empty for none.
    pub line: Bytes,
}

impl Body {
    /// Reads a record. One that cannot be read is a job without a key, which ends as undecodable once it is due.
    #[must_use]
    pub fn read(record: Bytes) -> Self {
        match rmp_serde::from_slice::<(ByteBuf, ByteBuf, ByteBuf)>(&record) {
            Ok((key, envelope, line)) => Self {
                key: key.into_vec().into(),
                envelope: envelope.into_vec().into(),
                line: line.into_vec().into(),
            },
            Err(_) => Self { key: Bytes::new(), envelope: record, line: Bytes::new() },
        }
    }
}

/// A job for later where it lies, as one moment showed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelayedView {
    /// What names it.
    pub member: Member,
    /// What it will be.
    pub body: Body,
    /// When it is due, or was, by the Redis clock.
    pub due: UnixMillis,
    /// How many jobs of its partition are due before it.
    pub before: u64,
    /// Who owns the partition; empty if nobody.
    pub owner: String,
    /// When the lease expires, or expired.
    pub expires: UnixMillis,
    /// The Redis clock.
    pub now: UnixMillis,
}

impl DelayedView {
    /// What is stored about it.
    #[must_use]
    pub fn line(&self) -> StateLine {
        StateLine::parse(&self.body.line).unwrap_or_default()
    }
}

/// How much of a set is looked at per round trip.
const SCAN_SLICE: u64 = 1000;

impl Connection {
    /// The job for later that this member names; `None` if there is none, or none any more.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn delayed_at(
        &self,
        keys: &PartitionKeys,
        member: &Member,
    ) -> Result<Option<DelayedView>, CallError> {
        const READS: usize = 5;
        let mut read = Pipeline::with_capacity(READS);
        read.cmd("ZSCORE").arg(&keys.delayed).arg(member.as_bytes());
        read.cmd("ZRANK").arg(&keys.delayed).arg(member.as_bytes());
        read.cmd("HGET").arg(&keys.delayed_bodies).arg(member.as_bytes());
        read.cmd("HMGET").arg(&keys.lease).arg(&["incarnation", "expires"]);
        read.cmd("TIME");
        let mut answers = self.many(read, READS).await?.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil);
        let (score, rank, record) = (next(), next(), next());
        let mut lease = reply::list(next(), "a lease")?.into_iter();
        let now = inspect::time(next())?;
        let (Value::BulkString(_), Value::BulkString(record)) = (&score, record) else { return Ok(None) };
        let Some(due) = crate::promote::due_time(score)? else { return Ok(None) };
        Ok(Some(DelayedView {
            member: member.clone(),
            body: Body::read(record.into()),
            due,
            before: inspect::optional_number(rank)?,
            owner: lease.next().map_or(Ok(String::new()), inspect::optional_text)?,
            expires: UnixMillis(lease.next().map_or(Ok(0), inspect::optional_number)?),
            now,
        }))
    }

    /// Looks through the jobs for later for one with this id, `most` of them about: what was found, how many were looked at,
    /// and whether there are more. A producer's id is found by its mark, without a search.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn find_delayed(
        &self,
        keys: &PartitionKeys,
        id: &JobId,
        most: u64,
    ) -> Result<(Option<Member>, u64, bool), CallError> {
        let (mut cursor, mut looked) = ("0".to_owned(), 0);
        loop {
            if looked >= most {
                return Ok((None, looked, true));
            }
            let mut scan = redis::cmd("ZSCAN");
            scan.arg(&keys.delayed).arg(&cursor).arg("COUNT").arg(SCAN_SLICE);
            let mut slice = reply::list(self.one(scan).await?, "a slice of the delayed set")?.into_iter();
            cursor = reply::text(slice.next().unwrap_or(Value::Nil))?;
            let rows = reply::list(slice.next().unwrap_or(Value::Nil), "members and due times")?;
            for row in rows.into_iter().step_by(2) {
                let member = Member(reply::bytes(row)?);
                looked += 1;
                if member.id().0 == *id {
                    return Ok((Some(member), looked, false));
                }
            }
            if cursor == "0" {
                return Ok((None, looked, false));
            }
        }
    }
}

/// A list of members.
pub(crate) fn members(value: Value) -> Result<Vec<Member>, CallError> {
    let members = reply::list(value, "members of the delayed set")?;
    members.into_iter().map(|member| Ok(Member(reply::bytes(member)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_tells_its_job_and_sorts_by_when_it_was_enqueued() {
        let id = JobId::new("a:1:b").unwrap();
        let first = Member::new(9, true, &id);
        assert_eq!(first.to_string(), "0000000000000009:1:a:1:b");
        assert_eq!(first.id(), (id.clone(), true));
        assert_eq!(Member::new(9, false, &id).id(), (id.clone(), false));
        assert!(first < Member::new(10, false, &id));
    }

    #[test]
    fn a_member_of_foreign_making_is_its_own_id_and_has_no_mark() {
        for foreign in ["", ":1:a", "12", "12:", "12:1", "12:2:a", "x12:1:a", "12:1 a", "1x:1:a"] {
            let member = Member::from_stored(Bytes::from_static(foreign.as_bytes()));
            let (id, own) = member.id();
            assert!(id.as_bytes() == foreign.as_bytes() && !own, "{foreign}");
        }
        assert!(Member::from_stored(Bytes::from_static(b"1:1:")).id().1, "an empty id is one to the script");
    }
}
