//! announce: says that a node lives and serves a queue, and which kinds, and tells who else does. Advisory.

use crate::error::CallError;
use crate::fence::Incarnation;
use crate::keys;
use crate::lease::acquire::millis;
use crate::link::Connection;
use crate::pause::Pause;
use crate::pauses;
use crate::reply::{self, Words};
use crate::script::ANNOUNCE;
use bytes::Bytes;
use gristmill_job::QueueName;
use std::time::Duration;

/// A node that serves a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Which start of which node.
    pub incarnation: Incarnation,
    /// For how long it has been there.
    pub since: Duration,
    /// Whether it is leaving.
    pub draining: bool,
}

impl Connection {
    /// What living nodes say of the kinds they serve, in order of incarnation; those that say nothing are left out.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn announced_kinds(&self, queue: &QueueName) -> Result<Vec<(Incarnation, Bytes)>, CallError> {
        let (now, members) = self.members(queue).await?;
        let mut living: Vec<Incarnation> =
            members.into_iter().filter(|it| it.expires > now).map(|it| it.incarnation).collect();
        if living.is_empty() {
            return Ok(Vec::new());
        }
        let mut read = redis::cmd("HMGET");
        read.arg(keys::kinds(queue));
        for incarnation in &living {
            read.arg(incarnation.as_str());
        }
        let said = reply::list(self.one(read).await?, "kinds of nodes")?;
        let said = living.drain(..).zip(said).filter(|(_, said)| *said != redis::Value::Nil);
        said.map(|(incarnation, said)| Ok((incarnation, reply::bytes(said)?))).collect()
    }

    /// Announces `incarnation` for `ttl` (zero to leave) and returns who serves the queue, in no order. `kinds` is what it
    /// says of the kinds it serves, opaque here; empty to say nothing.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn announce(
        &self,
        queue: &QueueName,
        incarnation: &Incarnation,
        ttl: Duration,
        draining: bool,
        kinds: &str,
    ) -> Result<Vec<Member>, CallError> {
        let script = write(queue, incarnation, ttl, draining, kinds);
        read(self.timed("announce", self.one(script)).await?)
    }

    /// The same, and in the same round trip what of the queue is paused; `None` where that cannot be read.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn announce_and_hear(
        &self,
        queue: &QueueName,
        incarnation: &Incarnation,
        ttl: Duration,
        draining: bool,
        kinds: &str,
    ) -> Result<(Vec<Member>, Option<Vec<Pause>>), CallError> {
        let mut both = redis::Pipeline::with_capacity(2);
        both.add_command(write(queue, incarnation, ttl, draining, kinds)).add_command(pauses::write(queue));
        let mut answers = self.timed("announce", self.many(both, 2)).await?.into_iter();
        let mut next = || answers.next().unwrap_or(redis::Value::Nil);
        Ok((read(next())?, pauses::read(next()).ok().map(|(_, pauses)| pauses)))
    }
}

fn write(
    queue: &QueueName,
    incarnation: &Incarnation,
    ttl: Duration,
    draining: bool,
    kinds: &str,
) -> redis::Cmd {
    let mut script = ANNOUNCE.call(&[keys::nodes(queue).as_bytes(), keys::kinds(queue).as_bytes()]);
    script.arg(incarnation.as_str()).arg(millis(ttl)).arg(if draining { "1" } else { "0" }).arg(kinds);
    script
}

fn read(value: redis::Value) -> Result<Vec<Member>, CallError> {
    let mut words = Words::read(value, "the answer of announce")?;
    if words.tag() != "ok" {
        return Err(words.unknown("ok"));
    }
    let mut members = Vec::new();
    for row in reply::list(words.next(), "the living nodes")? {
        let mut row = reply::list(row, "a node")?.into_iter();
        let mut next = || row.next().unwrap_or(redis::Value::Nil);
        members.push(Member {
            incarnation: Incarnation::from_stored(&reply::text(next())?),
            since: Duration::from_millis(reply::number(next())?),
            draining: reply::text(next())? == "1",
        });
    }
    Ok(members)
}
