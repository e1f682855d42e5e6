//! limit: says what a kind is limited to in a queue, across all nodes; and reads who holds its slots, for people.
//!
//! The slots themselves: [`admit`](crate::admit), [`keep`](crate::keep), [`free`](crate::free).

use crate::error::CallError;
use crate::fence::{Fence, Incarnation};
use crate::keys;
use crate::link::Connection;
use crate::reply::{self, Words};
use crate::script::LIMIT;
use crate::{Epoch, inspect};
use bytes::Bytes;
use gristmill_job::{JobId, Limit, Place, QueueName, UnixMillis};
use redis::{Pipeline, Value};
use std::fmt;
use std::time::Duration;

/// What a run of a limited kind holds its slot by: its job's claim. The same for whoever runs that job next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotName {
    /// The job's partition.
    pub partition: u16,
    /// Its place.
    pub place: Place,
}

impl SlotName {
    /// As it stands in Redis.
    #[must_use]
    pub fn stored(self) -> String {
        format!("{} {}", self.partition, self.place)
    }

    pub(crate) fn read(text: &str) -> Option<Self> {
        let (partition, place) = text.split_once(' ')?;
        Some(Self { partition: partition.parse().ok()?, place: Place::parse(place.as_bytes())? })
    }
}

/// Under what a slot was asked for. An incarnation never asks twice under the same number: what it frees late is never what
/// it holds by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Asked {
    /// The epoch of the run. Of two that ask for the same job, the younger inherits.
    pub epoch: Epoch,
    /// Which asking of this incarnation.
    pub number: u64,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.number)
    }
}

/// What is limited in a queue, as it is heeded by all nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitView {
    /// The kind.
    pub kind: String,
    /// Runs at a time; 0 for any number.
    pub max_running: u32,
    /// Time between two runs that keep the rate exactly, in µs; 0 for none.
    pub interval_us: f64,
    /// Runs at once where nothing ran for a while.
    pub burst: u32,
    /// Whether the rate is counted per key.
    pub per_key: bool,
    /// When it was written (Redis ms).
    pub written: UnixMillis,
    /// By whom.
    pub by: String,
}

impl LimitView {
    fn read(kind: String, line: &str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let mut next = || words.next();
        Some(Self {
            kind,
            max_running: next()?.parse().ok()?,
            interval_us: next()?.parse().ok()?,
            burst: next()?.parse().ok()?,
            per_key: next()? == "key",
            written: UnixMillis(next()?.parse().ok()?),
            by: next()?.to_owned(),
        })
    }

    /// For people.
    #[must_use]
    pub fn shown(&self) -> String {
        gristmill_job::limit::shown(&self.stored())
    }

    fn stored(&self) -> String {
        let Self { max_running, interval_us, burst, per_key, .. } = self;
        let per = if *per_key { "key" } else { "kind" };
        let interval = if *interval_us > 0.0 { format!("{interval_us:.3}") } else { "0".into() };
        format!("{max_running} {interval} {burst} {per}")
    }

    /// Whether it says what a node announces, as [`Limit::stored`] writes it.
    #[must_use]
    pub fn is_as(&self, stored: &str) -> bool {
        self.stored() == stored
    }

    /// Whether it says what `limit` says.
    #[must_use]
    pub fn says(&self, limit: &Limit) -> bool {
        self.is_as(&limit.stored())
    }
}

/// A run that has a slot of its kind's limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The claim of its job.
    pub name: SlotName,
    /// Whose run it is.
    pub owner: Fence,
    /// Its job.
    pub job: JobId,
    /// Since when (Redis ms).
    pub since: UnixMillis,
    /// When it lapses unless it is kept (Redis ms).
    pub until: UnixMillis,
}

impl Holder {
    fn read(name: &str, until: UnixMillis, line: &[u8]) -> Option<Self> {
        let mut words = line.splitn(4, |byte| *byte == b' ');
        let mut text = || std::str::from_utf8(words.next()?).ok();
        let (owner, _, since) = (text()?, text()?, text()?);
        let (incarnation, asked) = owner.rsplit_once('#')?;
        let (epoch, _) = asked.split_once('.')?;
        Some(Self {
            name: SlotName::read(name)?,
            owner: Fence {
                incarnation: Incarnation::from_stored(incarnation),
                epoch: Epoch(epoch.parse().ok()?),
            },
            since: UnixMillis(since.parse().ok()?),
            job: JobId::from_stored(Bytes::copy_from_slice(words.next()?)),
            until,
        })
    }
}

impl Connection {
    /// Says what these kinds of a queue are limited to from now on, or that they are not any more; `by` is shown to people.
    /// Answers what stood there before, in the same order; empty for nothing.
    ///
    /// # Errors
    /// [`CallError`]; a repeat writes the same.
    pub async fn limit(
        &self,
        queue: &QueueName,
        limits: &[(&str, Limit)],
        by: &str,
    ) -> Result<Vec<String>, CallError> {
        let mut script = LIMIT.call(&[keys::limits(queue).as_bytes()]);
        for (kind, limit) in limits {
            let stored = if limit.is_none() { String::new() } else { limit.stored() };
            script.arg(*kind).arg(stored).arg(by);
        }
        let mut words = Words::read(self.one(script).await?, "the answer of limit")?;
        if words.tag() != "ok" {
            return Err(words.unknown("ok"));
        }
        words.next_answers(limits.len(), reply::text)
    }

    /// What is limited in a queue, by kind. What cannot be read is left out.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn limits(&self, queue: &QueueName) -> Result<Vec<LimitView>, CallError> {
        let mut command = redis::cmd("HGETALL");
        command.arg(keys::limits(queue));
        let mut rows = reply::list(self.one(command).await?, "limits")?.into_iter();
        let mut limits = Vec::new();
        while let (Some(kind), Some(line)) = (rows.next(), rows.next()) {
            limits.extend(LimitView::read(reply::text(kind)?, &reply::text(line)?));
        }
        limits.sort_by(|a, b| a.kind.cmp(&b.kind));
        Ok(limits)
    }

    /// Up to `most` runs that have a slot of this kind, the first to lapse first; how many have one; and the Redis clock.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn holders(
        &self,
        queue: &QueueName,
        kind: &str,
        most: usize,
    ) -> Result<(Vec<Holder>, u64, UnixMillis), CallError> {
        let time = redis::cmd("TIME");
        let now = inspect::time(self.one(time).await?)?;
        let (holders, after) = (keys::holders(queue, kind), format!("({}", now.0));
        let mut read = Pipeline::with_capacity(2);
        read.cmd("ZRANGEBYSCORE").arg(&holders).arg(&after).arg("+inf").arg("WITHSCORES");
        read.arg("LIMIT").arg(0).arg(most);
        read.cmd("ZCOUNT").arg(&holders).arg(&after).arg("+inf");
        let mut answers = self.many(read, 2).await?.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil);
        let mut rows = reply::list(next(), "holders")?.into_iter();
        let count = reply::number(next())?;
        let mut named = Vec::new();
        while let (Some(name), Some(until)) = (rows.next(), rows.next()) {
            named.push((reply::text(name)?, UnixMillis(score(until)?)));
        }
        if named.is_empty() {
            return Ok((Vec::new(), count, now));
        }
        let mut lines = redis::cmd("HMGET");
        lines.arg(keys::owners(queue, kind));
        for (name, _) in &named {
            lines.arg(name);
        }
        let lines = reply::list(self.one(lines).await?, "owners")?;
        let mut found = Vec::new();
        for ((name, until), line) in named.iter().zip(lines) {
            // Freed in between.
            if line != Value::Nil {
                found.extend(Holder::read(name, *until, &reply::bytes(line)?));
            }
        }
        Ok((found, count, now))
    }

    /// How long it is until the rate of this kind, or of one key of it, lets another run start; nothing where it does now.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn rate_wait(
        &self,
        queue: &QueueName,
        limit: &LimitView,
        key: &[u8],
    ) -> Result<Option<Duration>, CallError> {
        if limit.interval_us <= 0.0 {
            return Ok(None);
        }
        let name = match limit.per_key {
            true => keys::rate_of_key(queue, &limit.kind, key),
            false => keys::rate(queue, &limit.kind).into_bytes(),
        };
        let mut read = Pipeline::with_capacity(2);
        read.cmd("GET").arg(&name);
        read.cmd("TIME");
        let mut answers = self.many(read, 2).await?.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil);
        let (used, now) = (next(), next());
        let now_us = inspect::time(now)?.0 as f64 * 1000.0;
        let Value::BulkString(used) = used else { return Ok(None) };
        let used: f64 = std::str::from_utf8(&used).ok().and_then(|text| text.parse().ok()).unwrap_or(0.0);
        let wait = used + limit.interval_us * (1.0 - f64::from(limit.burst)) - now_us;
        let wait = Duration::try_from_secs_f64(wait / 1e6).ok();
        Ok(wait.filter(|wait| !wait.is_zero()))
    }
}

/// A score of whole milliseconds, in either protocol.
fn score(value: Value) -> Result<u64, CallError> {
    match value {
        Value::Double(score) if score >= 0.0 => Ok(score as u64),
        other => reply::number(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_job::Rate;

    #[test]
    fn a_holder_and_a_limit_are_read_as_scripts_write_them() {
        let holder = Holder::read("7 5-3", UnixMillis(9), b"n~1#42.3 5000 8 id with spaces").unwrap();
        assert_eq!(holder.name, SlotName { partition: 7, place: Place { ms: 5, seq: 3 } });
        assert_eq!(holder.name.stored(), "7 5-3");
        assert_eq!((holder.owner.consumer().as_str(), holder.since.0), ("n~1#42", 8));
        assert_eq!(holder.job.as_bytes(), b"id with spaces");
        for (name, line) in
            [("7", "n#1.1 5 8 j"), ("7 5-3", "n#1 5 8 j"), ("7 5-3", "n#1.1 5 x j"), ("7 5-3", "n#1.1 5 8")]
        {
            assert_eq!(Holder::read(name, UnixMillis(9), line.as_bytes()), None, "{name} {line}");
        }
        let limit = Limit { max_running: Some(5), rate: Some(Rate::per_second(300).per_key()) };
        let view = LimitView::read("k".into(), &format!("{} 77 n~1", limit.stored())).unwrap();
        assert!(view.says(&limit) && !view.says(&Limit::default()));
        assert_eq!((view.max_running, view.burst, view.per_key, view.written.0), (5, 300, true, 77));
        let only = Limit { max_running: Some(1), rate: None };
        assert!(LimitView::read("k".into(), &format!("{} 77 n~1", only.stored())).unwrap().says(&only));
        assert_eq!(LimitView::read("k".into(), "nonsense"), None);
    }
}
