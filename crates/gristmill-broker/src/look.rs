//! look: how the partitions of a queue stand, in numbers, for whoever looks again and again (`gristmill monitor`). Plain
//! reads, each bounded whatever the partition holds; counts of different partitions are of slightly different moments.

use crate::error::CallError;
use crate::keys::QueueDefinition;
use crate::link::Connection;
use crate::reply::{self, Words};
use crate::script::LOOK;
use gristmill_job::{Place, UnixMillis};
use redis::{Pipeline, Value};
use std::ops::Range;
use std::time::Duration;

/// About how many lines, holds and claims of a partition are read; more are counted by their share.
pub const READ: usize = 200;
/// Partitions per round trip.
pub const PARTITIONS: u16 = 64;

/// How a partition stands, or several of them together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Look {
    /// Jobs ever enqueued.
    pub added: u64,
    /// Jobs in the stream: claimed or not.
    pub jobs: u64,
    /// Jobs claimed by an owner and not settled.
    pub claimed: u64,
    /// Jobs that came back from the dead.
    pub returned: u64,
    /// Dead letters.
    pub dead: u64,
    /// Jobs for later.
    pub delayed: u64,
    /// How long the first of them has been due without being ready.
    pub overdue: Option<Duration>,
    /// Age of the oldest job that nobody has claimed.
    pub oldest_ready: Option<Duration>,
    /// How long a claim has stood, at most, that does not wait for a time; where the ordering is none, since its node extended it.
    pub oldest_claim: Option<Duration>,
    /// Jobs that wait for another attempt after an error.
    pub retries: u64,
    /// Jobs that wait for something else: their handler asked, the retry budget is used up, nobody serves their kind.
    pub waiting: u64,
    /// How long a key has waited for a person, or for its job that waits, at most.
    pub blocked: Option<Duration>,
    /// Partitions whose lease stands.
    pub owned: u64,
    /// All of them.
    pub partitions: u64,
}

impl Look {
    /// Jobs that nobody has claimed.
    #[must_use]
    pub fn ready(&self) -> u64 {
        self.jobs.saturating_sub(self.claimed) + self.returned
    }

    /// Jobs that are claimed and wait for no time.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.claimed.saturating_sub(self.retries + self.waiting)
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        Self {
            added: self.added + other.added,
            jobs: self.jobs + other.jobs,
            claimed: self.claimed + other.claimed,
            returned: self.returned + other.returned,
            dead: self.dead + other.dead,
            delayed: self.delayed + other.delayed,
            overdue: self.overdue.max(other.overdue),
            oldest_ready: self.oldest_ready.max(other.oldest_ready),
            oldest_claim: self.oldest_claim.max(other.oldest_claim),
            retries: self.retries + other.retries,
            waiting: self.waiting + other.waiting,
            blocked: self.blocked.max(other.blocked),
            owned: self.owned + other.owned,
            partitions: self.partitions + other.partitions,
        }
    }
}

impl Connection {
    /// How these partitions of a queue stand together, [`PARTITIONS`] of them at most in one call.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn look(&self, queue: &QueueDefinition, partitions: Range<u16>) -> Result<Look, CallError> {
        let mut pipeline = Pipeline::with_capacity(partitions.len());
        for partition in partitions.clone() {
            let keys = queue.partition(partition);
            let mut script = LOOK.call(&[
                keys.stream.as_bytes(),
                keys.lease.as_bytes(),
                keys.state.as_bytes(),
                keys.returned.as_bytes(),
                keys.dead.as_bytes(),
                keys.held.as_bytes(),
                keys.delayed.as_bytes(),
            ]);
            script.arg(READ);
            pipeline.add_command(script);
        }
        let answers = self.timed("look", self.many(pipeline, partitions.len())).await?;
        answers.into_iter().try_fold(Look::default(), |looks, answer| Ok(looks.and(&read(answer)?)))
    }
}

fn read(value: Value) -> Result<Look, CallError> {
    let mut words = Words::read(value, "the answer of look")?;
    if words.tag() != "ok" {
        return Err(words.unknown("ok"));
    }
    let now = UnixMillis(words.next_number()?);
    let mut numbers = || words.next_number();
    let (added, jobs, claimed, returned, dead) = (numbers()?, numbers()?, numbers()?, numbers()?, numbers()?);
    let first = reply::bytes(words.next())?;
    let some = |ms: u64| (ms > 0).then(|| Duration::from_millis(ms));
    Ok(Look {
        added,
        jobs,
        claimed,
        returned,
        dead,
        oldest_ready: Place::parse(&first).map(|place| UnixMillis(place.ms).age_at(now)),
        oldest_claim: some(words.next_number()?),
        retries: words.next_number()?,
        waiting: words.next_number()?,
        blocked: some(words.next_number()?),
        owned: words.next_number()?,
        delayed: words.next_number()?,
        overdue: some(words.next_number()?),
        partitions: 1,
    })
}
