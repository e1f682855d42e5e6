//! replay: brings dead letters of one partition back as jobs. Needs no lease.

use crate::call::{MAX_BYTES_PER_CALL, MAX_JOBS_PER_CALL};
use crate::error::CallError;
use crate::keys::PartitionKeys;
use crate::link::Connection;
use crate::reply::{self, Words};
use crate::returned::Returned;
use crate::script::REPLAY;
use crate::state::Suspicion;
use bytes::Bytes;
use gristmill_job::{DeadLetter, DeadReason, JobId, Key, Place};

/// A letter that comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// Its own id.
    pub letter: Bytes,
    /// The place of its job, which it keeps.
    pub place: Place,
    /// The turn that died.
    pub turn: u32,
    /// The job's id.
    pub job: JobId,
    /// Its key.
    pub key: Key,
    /// The envelope it runs with.
    pub envelope: Bytes,
    /// The suspicion it starts with.
    pub suspicion: Suspicion,
    /// How often it had been replayed before.
    pub replays: u32,
    /// The envelope it died with, where it runs with another.
    pub original: Option<Bytes>,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replayed {
    /// It is a job again.
    Replayed,
    /// There is no such letter in this partition, or no longer.
    Gone,
    /// Another letter of the same job came back before and is not settled; this one stays.
    Waits,
}

impl Replay {
    /// As its record says. A job that died with its process starts under strong suspicion: it runs alone.
    ///
    /// # Errors
    /// What is wrong with the record: its place is none.
    pub fn of(letter: Bytes, record: DeadLetter) -> Result<Self, String> {
        let place = Place::parse(record.place.as_bytes())
            .ok_or_else(|| format!("its record names no place of a job: {:?}", record.place))?;
        let crashed = record.reason == DeadReason::Crashed;
        Ok(Self {
            letter,
            place,
            turn: record.turn,
            job: JobId::from_stored(record.job.into()),
            key: Key::from_stored(record.key.into()),
            envelope: record.envelope.into(),
            suspicion: if crashed { Suspicion::Strong } else { Suspicion::None },
            replays: record.replays,
            original: None,
        })
    }

    /// With another envelope; the one it died with is kept beside it.
    #[must_use]
    pub fn with_envelope(self, envelope: Bytes) -> Self {
        Self { original: Some(self.envelope), envelope, ..self }
    }

    fn bytes(&self) -> usize {
        self.envelope.len() + self.original.as_ref().map_or(0, Bytes::len)
    }

    /// How many of these go into one call, at least one.
    #[must_use]
    pub fn of_one_call(letters: &[Self]) -> usize {
        let mut bytes = 0;
        let fits = |letter: &&Self| {
            bytes += letter.bytes();
            bytes <= MAX_BYTES_PER_CALL
        };
        letters.iter().take(MAX_JOBS_PER_CALL).take_while(fits).count().max(1)
    }
}

impl Connection {
    /// Replays at most [`MAX_JOBS_PER_CALL`] letters of one partition; one answer per letter, in order. The owner hears
    /// of them with its next renewal.
    ///
    /// # Errors
    /// [`CallError`]; where the answer is unknown, ask again: what was replayed is then gone.
    pub async fn replay(&self, keys: &PartitionKeys, letters: &[Replay]) -> Result<Vec<Replayed>, CallError> {
        debug_assert!(letters.len() <= MAX_JOBS_PER_CALL);
        let fixed = [
            &keys.lease,
            &keys.stream,
            &keys.state,
            &keys.dead,
            &keys.dead_bodies,
            &keys.returned,
            &keys.returned_bodies,
            &keys.originals,
            &keys.held,
            &keys.meta,
        ];
        let bytes: usize = letters.iter().map(|letter| 128 + letter.bytes()).sum();
        let mut script = REPLAY.call_sized(fixed.len() + letters.len(), 8 * letters.len(), bytes);
        for key in fixed {
            script.arg(key);
        }
        for letter in letters {
            script.arg(keys.seen(letter.job.as_bytes()));
        }
        for letter in letters {
            let record = Returned {
                i: letter.job.as_bytes().to_vec(),
                k: letter.key.as_bytes().to_vec(),
                d: letter.envelope.to_vec(),
            };
            script.arg(letter.letter.as_ref()).arg(letter.place.to_string());
            script.arg(letter.turn.saturating_add(1)).arg(letter.suspicion.as_str());
            script.arg(letter.replays.saturating_add(1)).arg(letter.key.as_bytes());
            script.arg(record.encode().map_err(CallError::Unexpected)?);
            script.arg(letter.original.as_deref().unwrap_or_default());
        }
        let mut words = Words::read(self.one(script).await?, "the answer of replay")?;
        if words.tag() != "ok" {
            return Err(words.unknown("ok"));
        }
        words.next_answers(letters.len(), answer)
    }
}

fn answer(value: redis::Value) -> Result<Replayed, CallError> {
    match reply::text(value)?.as_str() {
        "replayed" => Ok(Replayed::Replayed),
        "gone" => Ok(Replayed::Gone),
        "waits" => Ok(Replayed::Waits),
        other => Err(CallError::Unexpected(format!("expected replayed, gone or waits, got {other:?}"))),
    }
}
