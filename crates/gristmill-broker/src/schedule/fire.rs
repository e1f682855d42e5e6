//! fire: the job of one slot, once under any number of nodes.

use crate::error::CallError;
use crate::keys::PartitionKeys;
use crate::link::Connection;
use crate::reply::Words;
use crate::script::FIRE;
use gristmill_job::{EncodedJob, JobId, Place, UnixMillis};

/// One slot of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fire {
    /// The schedule's name.
    pub name: String,
    /// Fingerprint of its timing.
    pub timing: String,
    /// Fingerprint of all of it.
    pub whole: String,
    /// Up to which slot all was dealt with, as the node knows it.
    pub after: UnixMillis,
    /// The slot whose job was enqueued last, as the node knows it.
    pub fired: UnixMillis,
    /// The id of that slot's job.
    pub before: JobId,
    /// The slot.
    pub slot: UnixMillis,
    /// Its job; the id is its own.
    pub job: EncodedJob,
    /// Whether it is passed over.
    pub pass: bool,
    /// Whether it is passed over while the job of the slot before is not done.
    pub unless_alive: bool,
    /// A name of this call, so that its repeat is known.
    pub call: String,
}

/// What became of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fired {
    /// Its job is enqueued, at this place.
    At(Place),
    /// It was passed over, as asked.
    Passed,
    /// It was passed over, since the job of the slot before is not done.
    Overlaps,
    /// Its job was enqueued before; the record, which had been deleted, knows it again.
    Before,
    /// This very call was executed.
    Already {
        /// The slot whose job was enqueued last: this one's, if it was fired.
        fired: UnixMillis,
    },
    /// There is no record: the definition is to be said again.
    Unknown,
    /// Another definition stands.
    Other,
    /// Somebody dealt with a slot meanwhile, or a node knows another record.
    Moved {
        /// Every slot up to this moment was dealt with.
        after: UnixMillis,
        /// The slot whose job was enqueued last; 0 where there was none.
        fired: UnixMillis,
        /// The call that dealt with a slot last; `-` for none.
        call: String,
    },
    /// A person paused it.
    Paused,
    /// It is not after the last slot.
    Behind,
    /// It is in the future, by the Redis clock.
    Early,
    /// The partition is at its length limit.
    Full {
        /// Its limit, in jobs.
        limit: String,
    },
}

/// What a call answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FireAnswer {
    /// The Redis clock, and what became of the slot.
    Fired(UnixMillis, Fired),
    /// The partition does not exist.
    NoQueue,
    /// The queue has another number of partitions.
    Differs {
        /// How many it has.
        partitions: String,
    },
}

impl Connection {
    /// Fires a slot, or passes it over.
    ///
    /// # Errors
    /// [`CallError`]; repeat it with the same `call` where the answer is unknown.
    pub async fn fire(
        &self,
        keys: &PartitionKeys,
        partitions: u16,
        fire: &Fire,
    ) -> Result<FireAnswer, CallError> {
        let mut script = FIRE.call_sized(9, 13, fire.job.envelope.len() + 256);
        script.arg(&keys.meta).arg(&keys.stream).arg(&keys.schedules).arg(&keys.schedules_paused);
        script.arg(&keys.returned_bodies).arg(&keys.delayed).arg(&keys.delayed_bodies);
        script.arg(keys.seen(fire.job.id.as_bytes())).arg(keys.seen(fire.before.as_bytes()));
        script.arg(partitions).arg(&fire.name).arg(&fire.timing).arg(&fire.whole);
        script.arg(fire.after.0).arg(fire.fired.0).arg(fire.slot.0);
        script.arg(if fire.pass { "pass" } else { "fire" });
        script.arg(if fire.unless_alive { "1" } else { "0" }).arg(&fire.call);
        script.arg(fire.job.id.as_bytes()).arg(fire.job.key.as_bytes()).arg(fire.job.envelope.as_ref());
        let mut words = Words::read(self.timed("fire", self.one(script)).await?, "the answer of fire")?;
        let tag = words.tag().to_owned();
        match tag.as_str() {
            "no_queue" => return Ok(FireAnswer::NoQueue),
            "differs" => return Ok(FireAnswer::Differs { partitions: words.next_text()? }),
            _ => {}
        }
        let now = UnixMillis(words.next_number()?);
        let fired = match tag.as_str() {
            "fired" => {
                let place = words.next_text()?;
                let read = Place::parse(place.as_bytes());
                Fired::At(
                    read.ok_or_else(|| CallError::Unexpected(format!("expected a place, got {place:?}")))?,
                )
            }
            "passed" => Fired::Passed,
            "overlaps" => Fired::Overlaps,
            "before" => Fired::Before,
            "already" => Fired::Already { fired: UnixMillis(words.next_number()?) },
            "unknown" => Fired::Unknown,
            "other" => Fired::Other,
            "moved" => Fired::Moved {
                after: UnixMillis(words.next_number()?),
                fired: UnixMillis(words.next_number()?),
                call: words.next_text()?,
            },
            "paused" => Fired::Paused,
            "behind" => Fired::Behind,
            "early" => Fired::Early,
            "full" => Fired::Full { limit: words.next_text()? },
            _ => return Err(words.unknown("a word of fire")),
        };
        Ok(FireAnswer::Fired(now, fired))
    }
}
