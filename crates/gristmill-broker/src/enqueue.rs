//! enqueue: adds jobs to one partition, each once per producer's id. [`crate::Broker`] sorts jobs by partition and
//! repeats calls whose answer was lost.

use crate::call::MAX_JOBS_PER_CALL;
use crate::delayed::Member;
use crate::error::CallError;
use crate::keys::PartitionKeys;
use crate::lease::acquire::millis;
use crate::link::Connection;
use crate::reply::{self, Words};
use crate::script::ENQUEUE;
use gristmill_job::{Due, EncodedJob, Place};
use std::time::Duration;

/// How long the mark of one call answers its repeat.
pub const CALL_MARK_LIFE: Duration = Duration::from_secs(120);

/// What became of one job of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// In the stream, at this place.
    At(Place),
    /// For later: it gets its place when it is due.
    Delayed(Member),
    /// In the stream or for later, by an earlier execution of the same call; where, is not told again.
    Before,
    /// Its id is known already.
    Duplicate {
        /// How the first one stands: `waiting <place>`, `waiting <member>` where it is for later, `applied`, `stale`, `dead <letter>`.
        standing: String,
    },
}

/// What a call answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnqueueAnswer {
    /// One answer per job, in order.
    Accepted(Vec<Accepted>),
    /// The partition does not exist.
    NoQueue,
    /// The queue has another number of partitions.
    Differs {
        /// How many it has.
        partitions: String,
    },
    /// The partition is at its length limit; nothing was added.
    Full {
        /// Its limit, in jobs.
        limit: String,
    },
    /// A job is due further away than the script takes; nothing was added.
    TooFar {
        /// Which job of the call, from 1.
        job: u64,
        /// As it was sent.
        due: String,
    },
}

impl Connection {
    /// One call for one partition; `call_id` names it, so that its repeat is known. At most [`MAX_JOBS_PER_CALL`] jobs.
    ///
    /// # Errors
    /// [`CallError`]; repeat with the same `call_id` and the same jobs where the answer is unknown.
    pub async fn enqueue(
        &self,
        keys: &PartitionKeys,
        partitions: u16,
        call_id: &str,
        jobs: &[EncodedJob],
    ) -> Result<EnqueueAnswer, CallError> {
        debug_assert!(jobs.len() <= MAX_JOBS_PER_CALL);
        let marked = jobs.iter().filter(|job| job.own_id).count();
        let bytes = jobs.iter().map(|job| job.envelope.len() + 96).sum();
        let mut script = ENQUEUE.call_sized(6 + marked, 2 + 5 * jobs.len(), bytes);
        script.arg(&keys.meta).arg(&keys.stream).arg(keys.call(call_id));
        script.arg(&keys.delayed).arg(&keys.delayed_bodies).arg(&keys.delayed_bell);
        for job in jobs.iter().filter(|job| job.own_id) {
            script.arg(keys.seen(job.id.as_bytes()));
        }
        script.arg(partitions).arg(millis(CALL_MARK_LIFE));
        for job in jobs {
            script.arg(job.id.as_bytes()).arg(job.key.as_bytes()).arg(job.envelope.as_ref());
            script.arg(if job.own_id { "1" } else { "0" });
            match job.due {
                Due::Now => script.arg(""),
                due => script.arg(due.to_string()),
            };
        }
        let mut words = Words::read(self.timed("enqueue", self.one(script)).await?, "the answer of enqueue")?;
        Ok(match words.tag() {
            "ok" => EnqueueAnswer::Accepted(words.rest().map(accepted).collect::<Result<_, _>>()?),
            "repeated" => EnqueueAnswer::Accepted(vec![Accepted::Before; jobs.len()]),
            "no_queue" => EnqueueAnswer::NoQueue,
            "differs" => EnqueueAnswer::Differs { partitions: words.next_text()? },
            "full" => EnqueueAnswer::Full { limit: words.next_text()? },
            "too_far" => EnqueueAnswer::TooFar { job: words.next_number()?, due: words.next_text()? },
            _ => return Err(words.unknown("ok, repeated, no_queue, differs, full or too_far")),
        })
    }
}

fn accepted(value: redis::Value) -> Result<Accepted, CallError> {
    let bytes = reply::bytes(value)?;
    if let Some(place) = Place::parse(&bytes) {
        return Ok(Accepted::At(place));
    }
    if let Some(member) = bytes.strip_prefix(b"delayed ") {
        return Ok(Accepted::Delayed(Member::from_stored(bytes.slice_ref(member))));
    }
    let text = String::from_utf8_lossy(&bytes);
    match text.strip_prefix("duplicate ") {
        Some(standing) => Ok(Accepted::Duplicate { standing: standing.to_owned() }),
        None => {
            Err(CallError::Unexpected(format!("expected a place, a member or a duplicate, got {text:?}")))
        }
    }
}
