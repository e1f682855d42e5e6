//! dead: reading dead letters, however many there are. Plain reads: slices of at most [`SLICE`] ids per partition,
//! merged by time of death, and records in portions of at most [`PORTION_BYTES`], so that neither Redis nor the reader
//! ever holds all of them.

use crate::error::CallError;
use crate::inspect::UNREADABLE_GONE;
use crate::keys::{PartitionKeys, QueueDefinition};
use crate::link::Connection;
use crate::reply::{self, Words};
use crate::script::DEAD;
use bytes::Bytes;
use gristmill_job::{DeadLetter, QueueName, UnixMillis};
use redis::{Pipeline, Value};
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

/// Most ids asked for at once.
pub const SLICE: usize = 200;
/// Ids of the first slice of a partition; each further one has twice as many, up to [`SLICE`]. A page takes few of each.
const FIRST_SLICE: usize = 16;
/// Records read at once have no more bytes than this, or are one.
pub const PORTION_BYTES: u64 = 4 * 1024 * 1024;
/// Slices under way at a time. Redis serves a pipeline whole before it looks at another client.
const ABREAST: usize = 8;

/// Which letters come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Those that died first.
    #[default]
    OldestFirst,
    /// Those that died last.
    NewestFirst,
}

/// Where a letter stands among all of them: by time of death, then queue, partition and id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadPosition {
    /// When it died, by the clock of the node that gave up.
    pub at: UnixMillis,
    /// Its queue.
    pub queue: QueueName,
    /// Its partition.
    pub partition: u16,
    /// Its own id.
    pub id: Bytes,
}

impl fmt::Display for DeadPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = String::from_utf8_lossy(&self.id);
        write!(f, "{}:{}:{}:{id}", self.at, self.queue, self.partition)
    }
}

impl FromStr for DeadPosition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(4, ':');
        let mut next = || parts.next().unwrap_or_default();
        let (at, queue, partition, id) = (next(), next(), next(), next());
        match (at.parse(), QueueName::new(queue), partition.parse()) {
            (Ok(at), Ok(queue), Ok(partition)) if !id.is_empty() => {
                let id = Bytes::copy_from_slice(id.as_bytes());
                Ok(Self { at: UnixMillis(at), queue, partition, id })
            }
            _ => Err(format!("expected a position as the last page showed it, got {text:?}")),
        }
    }
}

/// A dead letter as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadFound {
    /// Where it stands.
    pub position: DeadPosition,
    /// Its record as stored; empty where it is gone.
    pub record: Bytes,
    /// What the record says, or why it cannot be read.
    pub letter: Result<DeadLetter, String>,
}

impl DeadFound {
    fn new(position: DeadPosition, record: Value) -> Result<Self, CallError> {
        let (record, letter) = match record {
            Value::Nil => (Bytes::new(), Err(UNREADABLE_GONE.to_owned())),
            record => {
                let record = reply::bytes(record)?;
                let letter = DeadLetter::decode(&record);
                (record, letter)
            }
        };
        Ok(Self { position, record, letter })
    }
}

/// Which letters, in which order, from where on.
#[derive(Debug, Clone, Default)]
pub struct DeadRange {
    /// Which come first.
    pub order: Order,
    /// Only those that died then or later.
    pub since: Option<UnixMillis>,
    /// Only those that died then or before.
    pub until: Option<UnixMillis>,
    /// Only those behind this one, which need not be there any more.
    pub after: Option<DeadPosition>,
}

impl DeadRange {
    /// Whether `a` comes before `b`.
    fn precedes(&self, a: &DeadPosition, b: &DeadPosition) -> bool {
        match self.order {
            Order::OldestFirst => a < b,
            Order::NewestFirst => a > b,
        }
    }

    fn starts(&self, position: &DeadPosition) -> bool {
        let late_enough = self.since.is_none_or(|since| position.at >= since);
        let early_enough = self.until.is_none_or(|until| position.at <= until);
        late_enough && early_enough && self.after.as_ref().is_none_or(|after| self.precedes(after, position))
    }

    /// Whether nothing behind `position` can be in the range.
    fn is_over(&self, position: &DeadPosition) -> bool {
        match self.order {
            Order::OldestFirst => self.until.is_some_and(|until| position.at > until),
            Order::NewestFirst => self.since.is_some_and(|since| position.at < since),
        }
    }

    /// The moment, and the letter of that moment, behind which a partition is read.
    fn first(&self, queue: &QueueName, partition: u16) -> Option<(UnixMillis, Bytes)> {
        if let Some(after) = &self.after {
            let same = after.queue == *queue && after.partition == partition;
            return Some((after.at, if same { after.id.clone() } else { Bytes::new() }));
        }
        let bound = match self.order {
            Order::OldestFirst => self.since,
            Order::NewestFirst => self.until,
        };
        bound.map(|at| (at, Bytes::new()))
    }
}

/// A walk through the dead letters of many partitions.
#[derive(Debug)]
pub struct DeadWalk {
    connection: Connection,
    range: DeadRange,
    tails: Vec<Tail>,
}

/// What is still to come of one partition.
#[derive(Debug)]
struct Tail {
    queue: QueueName,
    partition: u16,
    keys: PartitionKeys,
    /// In order, with the sizes of their records.
    ahead: VecDeque<(DeadPosition, u64)>,
    last: Option<(UnixMillis, Bytes)>,
    slice: usize,
    ended: bool,
}

impl DeadWalk {
    /// Over these partitions.
    #[must_use]
    pub fn new(connection: Connection, partitions: &[(QueueDefinition, u16)], range: DeadRange) -> Self {
        let tail = |(queue, partition): &(QueueDefinition, u16)| Tail {
            queue: queue.name.clone(),
            partition: *partition,
            keys: queue.partition(*partition),
            ahead: VecDeque::new(),
            last: range.first(&queue.name, *partition),
            slice: FIRST_SLICE,
            ended: false,
        };
        let tails = partitions.iter().map(tail).collect();
        Self { connection, range, tails }
    }

    /// Whether it is at its end.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.tails.iter().all(|tail| tail.ended && tail.ahead.is_empty())
    }

    /// The next letters, at most `count`, fewer where their records are large; none at the end.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn next(&mut self, count: usize) -> Result<Vec<DeadFound>, CallError> {
        let mut portion: Vec<(usize, DeadPosition)> = Vec::new();
        let mut bytes = 0;
        while portion.len() < count.clamp(1, SLICE) {
            self.fill().await?;
            let Some(first) = self.first() else { break };
            let Some((position, size)) = self.tails[first].ahead.pop_front() else { break };
            if bytes + size > PORTION_BYTES && !portion.is_empty() {
                self.tails[first].ahead.push_front((position, size));
                break;
            }
            bytes += size;
            portion.push((first, position));
        }
        let mut read = Pipeline::with_capacity(portion.len());
        for (tail, position) in &portion {
            read.cmd("HGET").arg(&self.tails[*tail].keys.dead_bodies).arg(position.id.as_ref());
        }
        if portion.is_empty() {
            return Ok(Vec::new());
        }
        let records = self.connection.many(read, portion.len()).await?;
        portion
            .into_iter()
            .zip(records)
            .map(|((_, position), record)| DeadFound::new(position, record))
            .collect()
    }

    /// The tail whose next letter comes first.
    fn first(&self) -> Option<usize> {
        let mut first: Option<(usize, &DeadPosition)> = None;
        for (index, tail) in self.tails.iter().enumerate() {
            let Some((position, _)) = tail.ahead.front() else { continue };
            if first.is_none_or(|(_, before)| self.range.precedes(position, before)) {
                first = Some((index, position));
            }
        }
        first.map(|(index, _)| index)
    }

    /// Every tail that has not ended knows its next letter.
    async fn fill(&mut self) -> Result<(), CallError> {
        let (connection, range) = (&self.connection, &self.range);
        let mut empty: Vec<&mut Tail> =
            self.tails.iter_mut().filter(|tail| tail.ahead.is_empty() && !tail.ended).collect();
        for abreast in empty.chunks_mut(ABREAST) {
            let fills = abreast.iter_mut().map(|tail| tail.fill(connection, range));
            futures_util::future::try_join_all(fills).await?;
        }
        Ok(())
    }
}

impl Tail {
    async fn fill(&mut self, connection: &Connection, range: &DeadRange) -> Result<(), CallError> {
        while self.ahead.is_empty() && !self.ended {
            let rows = connection.dead_slice(&self.keys, range.order, self.last.as_ref(), self.slice).await?;
            self.ended = rows.len() < self.slice;
            self.slice = SLICE.min(self.slice * 2);
            for (id, at, size) in rows {
                self.last = Some((at, id.clone()));
                let (queue, partition) = (self.queue.clone(), self.partition);
                let position = DeadPosition { at, queue, partition, id };
                if range.is_over(&position) {
                    self.ended = true;
                    break;
                }
                if range.starts(&position) {
                    self.ahead.push_back((position, size));
                }
            }
        }
        Ok(())
    }
}

impl Connection {
    /// One slice: ids, times of death and sizes of records.
    async fn dead_slice(
        &self,
        keys: &PartitionKeys,
        order: Order,
        after: Option<&(UnixMillis, Bytes)>,
        most: usize,
    ) -> Result<Vec<(Bytes, UnixMillis, u64)>, CallError> {
        let mut script = DEAD.call(&[keys.dead.as_bytes(), keys.dead_bodies.as_bytes()]);
        script.arg(match order {
            Order::OldestFirst => "oldest",
            Order::NewestFirst => "newest",
        });
        match after {
            None => script.arg("").arg(""),
            Some((at, id)) => script.arg(at.0).arg(id.as_ref()),
        };
        script.arg(most);
        let mut words = Words::read(self.one(script).await?, "the answer of dead")?;
        if words.tag() != "ok" {
            return Err(words.unknown("ok"));
        }
        let rows = reply::list(words.next(), "dead letters")?;
        rows.into_iter()
            .map(|row| {
                let mut row = reply::list(row, "a dead letter")?.into_iter();
                let mut next = || row.next().unwrap_or(Value::Nil);
                Ok((reply::bytes(next())?, moment(next())?, reply::number(next())?))
            })
            .collect()
    }

    /// The letters of this id in a queue, wherever they lie: one, or none. A record that stands in no list any more is
    /// found too.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn dead_find(&self, queue: &QueueDefinition, id: &[u8]) -> Result<Vec<DeadFound>, CallError> {
        let mut look = Pipeline::with_capacity(2 * usize::from(queue.partitions));
        for partition in 0..queue.partitions {
            let keys = queue.partition(partition);
            look.cmd("ZSCORE").arg(&keys.dead).arg(id);
            look.cmd("HEXISTS").arg(&keys.dead_bodies).arg(id);
        }
        let mut answers = self.many(look, 2 * usize::from(queue.partitions)).await?.into_iter();
        let mut found = Vec::new();
        for partition in 0..queue.partitions {
            let (at, kept) = (answers.next().unwrap_or(Value::Nil), answers.next().unwrap_or(Value::Nil));
            let kept = reply::number(kept)? > 0;
            if at == Value::Nil && !kept {
                continue;
            }
            let mut read = redis::cmd("HGET");
            read.arg(queue.partition(partition).dead_bodies).arg(id);
            let listed = if at == Value::Nil { None } else { Some(moment(at)?) };
            let id = Bytes::copy_from_slice(id);
            let at = listed.unwrap_or_default();
            let position = DeadPosition { at, queue: queue.name.clone(), partition, id };
            let mut letter = DeadFound::new(position, self.one(read).await?)?;
            if let (None, Ok(record)) = (listed, &letter.letter) {
                letter.position.at = record.at;
            }
            found.push(letter);
        }
        Ok(found)
    }
}

/// A score. One that a person wrote may be anything.
fn moment(value: Value) -> Result<UnixMillis, CallError> {
    if let Value::Double(score) = value {
        return Ok(UnixMillis(score as u64));
    }
    let text = reply::text(value)?;
    let score: f64 =
        text.parse().map_err(|_| CallError::Unexpected(format!("expected a score, got {text:?}")))?;
    Ok(UnixMillis(score as u64))
}
