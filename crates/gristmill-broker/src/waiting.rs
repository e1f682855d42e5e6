//! waiting: what is stored about jobs that do not simply run, read slice by slice with their keys. Plain reads.

use crate::error::CallError;
use crate::keys::{PartitionKeys, QueueDefinition};
use crate::link::Connection;
use crate::reply::{self, Words};
use crate::script::WAITING;
use crate::state::StateLine;
use bytes::Bytes;
use gristmill_job::{Key, Place, UnixMillis};
use redis::Value;

/// About how many lines a slice has.
pub const SLICE: usize = 200;

/// A job about which something is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLine {
    /// Its place.
    pub place: Place,
    /// What is stored.
    pub line: StateLine,
    /// Its key; `None` where there is no such job any more.
    pub key: Option<Key>,
    /// Whether it came back from the dead.
    pub returned: bool,
}

/// A key whose lane waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldKey {
    /// The key.
    pub key: Key,
    /// The dead letter it waits for.
    pub letter: String,
    /// Since when, by the clock of the node that gave up.
    pub since: UnixMillis,
    /// The place of the letter's job.
    pub place: Option<Place>,
}

/// One slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice<T> {
    /// What it holds; an item may come in two slices.
    pub items: Vec<T>,
    /// Where to go on; 0 at the end.
    pub next: u64,
    /// The Redis clock.
    pub now: UnixMillis,
}

impl HeldKey {
    fn parse(key: Value, hold: Value) -> Result<Self, CallError> {
        let hold = String::from_utf8_lossy(&reply::bytes(hold)?).into_owned();
        let mut words = hold.split(' ');
        let letter = words.next().unwrap_or_default().to_owned();
        let since = UnixMillis(words.next().and_then(|ms| ms.parse().ok()).unwrap_or_default());
        let place = words.next().and_then(|place| Place::parse(place.as_bytes()));
        Ok(Self { key: Key::from_stored(reply::bytes(key)?), letter, since, place })
    }
}

impl Connection {
    /// The partitions of a queue in which something is stored about jobs, or a key waits for a person.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn waiting_partitions(&self, queue: &QueueDefinition) -> Result<Vec<u16>, CallError> {
        let count = 2 * usize::from(queue.partitions);
        let mut read = redis::Pipeline::with_capacity(count);
        for partition in 0..queue.partitions {
            let keys = queue.partition(partition);
            read.cmd("HLEN").arg(&keys.state);
            read.cmd("HLEN").arg(&keys.held);
        }
        let answers = self.many(read, count).await?;
        let numbers = answers.into_iter().map(reply::number).collect::<Result<Vec<_>, _>>()?;
        let waits = (0..queue.partitions).zip(numbers.chunks(2));
        Ok(waits.filter(|(_, of)| of.iter().sum::<u64>() > 0).map(|(partition, _)| partition).collect())
    }

    /// One slice of what is stored about a partition's jobs; `cursor` is 0 first. A line that is not ours is left out.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn stored_lines(
        &self,
        keys: &PartitionKeys,
        cursor: u64,
    ) -> Result<Slice<StoredLine>, CallError> {
        let mut script =
            WAITING.call(&[keys.stream.as_bytes(), keys.state.as_bytes(), keys.returned_bodies.as_bytes()]);
        script.arg(cursor).arg(SLICE);
        let mut words = Words::read(self.one(script).await?, "the answer of waiting")?;
        if words.tag() != "ok" {
            return Err(words.unknown("ok"));
        }
        let next = words.next_number()?;
        let now = UnixMillis(words.next_number()?);
        let mut items = Vec::new();
        for row in reply::list(words.next(), "lines")? {
            let mut row = reply::list(row, "a line")?.into_iter();
            let mut next = || reply::bytes(row.next().unwrap_or(Value::Nil));
            let (place, line, at, key) = (next()?, next()?, next()?, next()?);
            let (Some(place), Some(line)) = (Place::parse(&place), StateLine::parse(&line)) else { continue };
            let key = (at.as_ref() != b"gone").then(|| Key::from_stored(key));
            items.push(StoredLine { place, line, key, returned: at.as_ref() == b"returned" });
        }
        Ok(Slice { items, next, now })
    }

    /// One slice of the keys that wait for a person; `cursor` is 0 first.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn held_keys(&self, keys: &PartitionKeys, cursor: u64) -> Result<Slice<HeldKey>, CallError> {
        let mut read = redis::Pipeline::with_capacity(2);
        read.cmd("TIME").cmd("HSCAN").arg(&keys.held).arg(cursor).arg("COUNT").arg(SLICE);
        let mut answers = self.many(read, 2).await?.into_iter();
        let now = crate::inspect::time(answers.next().unwrap_or(Value::Nil))?;
        let mut slice = reply::list(answers.next().unwrap_or(Value::Nil), "held keys")?.into_iter();
        let next = reply::number(slice.next().unwrap_or(Value::Nil))?;
        let mut rows = reply::list(slice.next().unwrap_or(Value::Nil), "held keys")?.into_iter();
        let mut items = Vec::new();
        while let (Some(key), Some(hold)) = (rows.next(), rows.next()) {
            items.push(HeldKey::parse(key, hold)?);
        }
        Ok(Slice { items, next, now })
    }

    /// The hold of one key.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn hold_of(&self, keys: &PartitionKeys, key: &Key) -> Result<Option<HeldKey>, CallError> {
        let mut read = redis::cmd("HGET");
        read.arg(&keys.held).arg(key.as_bytes());
        match self.one(read).await? {
            Value::Nil => Ok(None),
            hold => {
                let key = Value::BulkString(key.as_bytes().to_vec());
                HeldKey::parse(key, hold).map(Some)
            }
        }
    }

    /// Places of jobs that came back from the dead, in the order of their return, from the `skip`th on.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn returned_places(
        &self,
        keys: &PartitionKeys,
        skip: usize,
        count: usize,
    ) -> Result<Vec<Place>, CallError> {
        let mut range = redis::cmd("ZRANGE");
        range.arg(&keys.returned).arg(skip).arg(skip + count.max(1) - 1);
        let places = reply::list(self.one(range).await?, "places")?;
        let places: Vec<Bytes> = places.into_iter().map(reply::bytes).collect::<Result<_, _>>()?;
        Ok(places.iter().filter_map(|place| Place::parse(place)).collect())
    }
}
