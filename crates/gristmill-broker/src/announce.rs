//! announce: says that a node lives and serves a queue, and tells who else does. Advisory.

use crate::error::CallError;
use crate::fence::Incarnation;
use crate::keys;
use crate::lease::acquire::millis;
use crate::link::Connection;
use crate::reply::{self, Words};
use crate::script::ANNOUNCE;
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
    /// Announces `incarnation` for `ttl` (zero to leave) and returns who serves the queue, in no order.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn announce(
        &self,
        queue: &QueueName,
        incarnation: &Incarnation,
        ttl: Duration,
        draining: bool,
    ) -> Result<Vec<Member>, CallError> {
        let mut script = ANNOUNCE.call(&[keys::nodes(queue).as_bytes()]);
        script.arg(incarnation.as_str()).arg(millis(ttl)).arg(if draining { "1" } else { "0" });
        let mut words = Words::read(self.one(script).await?, "the answer of announce")?;
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
}
