//! purgeable: the jobs that a purge would remove, slice by slice, as far as they were there when it began. Plain reads.

use crate::call::{MAX_BYTES_PER_CALL, MAX_JOBS_PER_CALL};
use crate::delayed::{self, Member};
use crate::error::CallError;
use crate::keys::PartitionKeys;
use crate::link::Connection;
use crate::purge::{LeaseSeen, Purge};
use crate::reply::{self, Words};
use crate::returned::Returned;
use crate::script::PURGEABLE;
use crate::state::JobState;
use gristmill_job::{JobId, Place};
use redis::{Pipeline, Value};

/// How a partition stood at one moment: what came later is not older than this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Until {
    /// The last place that was given.
    pub place: Place,
    /// How many jobs were ever delayed.
    pub delayed_seq: u64,
    /// How often people had acted: what came back from the dead later has a higher number.
    pub changes: u64,
}

/// One slice of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSlice {
    /// The lease, as it stands.
    pub lease: LeaseSeen,
    /// How the partition stands.
    pub until: Until,
    /// The jobs.
    pub jobs: Vec<Purge>,
    /// Whether there are no more.
    pub ended: bool,
}

impl Connection {
    /// One slice of the jobs in a stream behind `after`, none later than `until`.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn purgeable(
        &self,
        keys: &PartitionKeys,
        after: Option<Place>,
        until: Option<Place>,
    ) -> Result<StreamSlice, CallError> {
        let mut script =
            PURGEABLE.call(&[keys.lease.as_bytes(), keys.stream.as_bytes(), keys.meta.as_bytes()]);
        script.arg(after.map_or_else(|| "-".to_owned(), |place| format!("({place}")));
        script.arg(until.map_or_else(|| "+".to_owned(), |place| place.to_string()));
        script.arg(MAX_JOBS_PER_CALL).arg(MAX_BYTES_PER_CALL);
        let mut words = Words::read(self.one(script).await?, "the answer of purgeable")?;
        if words.tag() != "ok" {
            return Err(words.unknown("ok"));
        }
        let lease = LeaseSeen { owner: words.next_text()?, epoch: words.next_text()? };
        let place = place(words.next())?;
        let until = Until { place, delayed_seq: words.next_number()?, changes: words.next_number()? };
        let mut rows = reply::list(words.next(), "jobs")?.into_iter();
        let mut jobs = Vec::new();
        while let (Some(at), Some(id)) = (rows.next(), rows.next()) {
            jobs.push(Purge::At(self::place(at)?, JobId::from_stored(reply::bytes(id)?)));
        }
        Ok(StreamSlice { lease, until, jobs, ended: words.next_text()? == "1" })
    }

    /// Jobs that came back from the dead, and jobs for later, none of after `until`: at most so many as one call may purge, the
    /// first `passed` jobs for later left out. With how many jobs for later were passed over, since they came after.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn purgeable_beside(
        &self,
        keys: &PartitionKeys,
        until: &Until,
        passed: usize,
    ) -> Result<(Vec<Purge>, usize), CallError> {
        let half = MAX_JOBS_PER_CALL / 2;
        let mut read = Pipeline::with_capacity(2);
        read.cmd("ZRANGEBYSCORE").arg(&keys.returned).arg("-inf").arg(until.changes);
        read.arg("LIMIT").arg(0).arg(half);
        read.cmd("ZRANGE").arg(&keys.delayed).arg(passed).arg(passed + half - 1);
        let mut answers = self.many(read, 2).await?.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil);
        let returned = reply::list(next(), "returned jobs")?;
        let members = delayed::members(next())?;
        let mut jobs = Vec::new();
        for at in returned {
            let name = reply::bytes(at)?;
            let Some(at) = Place::parse(&name) else { continue };
            let mut body = redis::cmd("HGET");
            body.arg(&keys.returned_bodies).arg(name.as_ref());
            let id = match self.one(body).await? {
                Value::Nil => JobId::from_stored(Vec::new().into()),
                record => Returned::entry(&reply::bytes(record)?, at, JobState::default()).id,
            };
            jobs.push(Purge::At(at, id));
        }
        let mut later = 0;
        for member in members {
            match seq(&member) <= until.delayed_seq {
                true => jobs.push(Purge::Later(member)),
                false => later += 1,
            }
        }
        Ok((jobs, later))
    }
}

impl Connection {
    /// How many jobs of a partition came back from the dead and are not settled.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn returned_count(&self, keys: &PartitionKeys) -> Result<u64, CallError> {
        let mut count = redis::cmd("ZCARD");
        count.arg(&keys.returned);
        reply::number(self.one(count).await?)
    }
}

/// How many jobs were delayed before and with it; 0 for a member of foreign making.
fn seq(member: &Member) -> u64 {
    let digits = member.as_bytes().split(|byte| *byte == b':').next().unwrap_or_default();
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or_default()
}

fn place(value: Value) -> Result<Place, CallError> {
    let text = reply::bytes(value)?;
    Place::parse(&text).ok_or_else(|| CallError::Unexpected(format!("expected a stream id, got {text:?}")))
}
