//! doctor: what the server says about itself, and what a queue should have. Plain reads; nothing here judges.

use crate::error::CallError;
use crate::fence::Incarnation;
use crate::keys::{self, GROUP, HANDED_BACK, QueueDefinition};
use crate::link::Connection;
use crate::reply;
use gristmill_job::{QueueName, UnixMillis};
use redis::{Pipeline, Value};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The server's own words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerFacts {
    /// Every field of `INFO`.
    pub info: BTreeMap<String, String>,
    /// The configuration that matters; without those that the server does not tell (managed services forbid it).
    pub config: BTreeMap<String, String>,
}

/// The configuration that is asked for.
const CONFIG: [&str; 5] = ["appendonly", "appendfsync", "save", "min-replicas-to-write", "maxmemory-policy"];

/// A node's announcement for a queue, also one that has run out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberView {
    /// Which start of which node.
    pub incarnation: Incarnation,
    /// Until when it counts, by the Redis clock.
    pub expires: UnixMillis,
    /// When it came, by the Redis clock.
    pub since: UnixMillis,
    /// Whether it is leaving.
    pub draining: bool,
}

/// Claims of a queue that have not been heard of for long.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimsOver {
    /// How many.
    pub claims: u64,
    /// Whether there may be more: [`CLAIMS`] are read of a partition.
    pub at_least: bool,
    /// How long the oldest has not been heard of.
    pub oldest: Duration,
    /// The node that holds that one.
    pub holder: String,
}

/// Claims that are read of a partition.
pub const CLAIMS: usize = 1000;

impl Connection {
    /// What the server says about itself.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn server_facts(&self) -> Result<ServerFacts, CallError> {
        let text = reply::text(self.one(redis::cmd("INFO")).await?)?;
        let fields = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        let info = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut pipeline = Pipeline::with_capacity(CONFIG.len());
        for name in CONFIG {
            pipeline.cmd("CONFIG").arg("GET").arg(name);
        }
        let mut config = BTreeMap::new();
        for answer in self.many(pipeline, CONFIG.len()).await? {
            // An error is a server that does not tell.
            let Ok(pair) = reply::list(answer, "a setting") else { continue };
            let mut pair = pair.into_iter();
            if let (Some(name), Some(value)) = (pair.next(), pair.next()) {
                config.insert(reply::text(name)?, reply::text(value)?);
            }
        }
        Ok(ServerFacts { info, config })
    }

    /// How long one empty round trip takes.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn ping(&self) -> Result<Duration, CallError> {
        let sent = Instant::now();
        self.one(redis::cmd("PING")).await?;
        Ok(sent.elapsed())
    }

    /// The Redis clock, and who announced itself for a queue, also where that has run out. Changes nothing.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn members(&self, queue: &QueueName) -> Result<(UnixMillis, Vec<MemberView>), CallError> {
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("TIME").cmd("HGETALL").arg(keys::nodes(queue));
        let mut answers = self.many(pipeline, 2).await?.into_iter();
        let now = crate::inspect::time(answers.next().unwrap_or(Value::Nil))?;
        let mut rows = reply::list(answers.next().unwrap_or(Value::Nil), "the nodes")?.into_iter();
        let mut members = Vec::new();
        while let (Some(incarnation), Some(entry)) = (rows.next(), rows.next()) {
            let (incarnation, entry) = (reply::text(incarnation)?, reply::text(entry)?);
            let mut words = entry.split(' ');
            let mut number = || words.next().and_then(|word| word.parse().ok()).map(UnixMillis);
            // An entry that cannot be read counts for no time; who announces next removes it.
            let (expires, since) = (number().unwrap_or_default(), number().unwrap_or_default());
            let draining = words.next() == Some("1");
            let incarnation = Incarnation::from_stored(&incarnation);
            members.push(MemberView { incarnation, expires, since, draining });
        }
        members.sort_by(|a, b| a.incarnation.as_str().cmp(b.incarnation.as_str()));
        Ok((now, members))
    }

    /// Claims that nodes made and have not extended for `idle`, together. What was handed back is nobody's.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn claims_over(
        &self,
        queue: &QueueDefinition,
        idle: Duration,
    ) -> Result<ClaimsOver, CallError> {
        let mut pipeline = Pipeline::with_capacity(usize::from(queue.partitions));
        for partition in 0..queue.partitions {
            let stream = queue.partition(partition).stream;
            let rows = pipeline.cmd("XPENDING").arg(stream).arg(GROUP).arg("IDLE");
            rows.arg(u64::try_from(idle.as_millis()).unwrap_or(u64::MAX)).arg("-").arg("+").arg(CLAIMS);
        }
        let mut over = ClaimsOver::default();
        for rows in self.many(pipeline, usize::from(queue.partitions)).await? {
            // The group was deleted: nothing is claimed.
            if matches!(rows, Value::ServerError(_)) {
                continue;
            }
            let rows = reply::list(rows, "claims")?;
            over.at_least |= rows.len() >= CLAIMS;
            for row in rows {
                let mut row = reply::list(row, "a claim")?.into_iter().skip(1);
                let mut next = || row.next().unwrap_or(Value::Nil);
                let (holder, idle) = (reply::text(next())?, Duration::from_millis(reply::number(next())?));
                if holder == HANDED_BACK {
                    continue;
                }
                over.claims += 1;
                if idle > over.oldest {
                    let node = holder.rsplit_once('#').map_or(holder.as_str(), |(node, _)| node);
                    (over.oldest, over.holder) = (idle, node.to_owned());
                }
            }
        }
        Ok(over)
    }

    /// For each partition of a queue, in order, whether its consumer group is there.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn groups(&self, queue: &QueueDefinition) -> Result<Vec<bool>, CallError> {
        let mut pipeline = Pipeline::with_capacity(usize::from(queue.partitions));
        for partition in 0..queue.partitions {
            pipeline.cmd("XPENDING").arg(queue.partition(partition).stream).arg(GROUP);
        }
        let answers = self.many(pipeline, usize::from(queue.partitions)).await?;
        let there = |answer| match reply::list(answer, "a summary") {
            Ok(_) => Ok(true),
            Err(CallError::NoGroup(_)) => Ok(false),
            Err(error) => Err(error),
        };
        answers.into_iter().map(there).collect()
    }
}
