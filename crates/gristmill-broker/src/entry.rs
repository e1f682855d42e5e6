//! A claimed job as it lies in the stream, read by hand: whatever a foreign producer wrote, a reader goes on.

use crate::error::CallError;
use crate::reply;
use bytes::Bytes;
use gristmill_job::{JobId, Key, Place};
use redis::Value;
use std::time::Duration;

/// One stream entry. Nothing in it is trusted; a field that is missing is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its place.
    pub place: Place,
    /// Field `i`.
    pub id: JobId,
    /// Field `k`.
    pub key: Key,
    /// Field `d`, undecoded.
    pub envelope: Bytes,
    /// What is stored about it, where it was put back.
    pub state: JobState,
    /// Whether another tenure held it: its handler may have run.
    pub recovered: bool,
}

/// What is stored about a job that was put back. All zero for one that never was.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobState {
    /// How often it was put back.
    pub turn: u32,
    /// Attempts that ended with an answer.
    pub attempts: u32,
    /// How long it still waits.
    pub due_in: Duration,
}

impl JobState {
    /// Reads `<turn> <attempts> <due ms> <error>`; `now_ms` is the Redis clock of the same answer. A line that is not
    /// ours counts as none: the job runs again from its first attempt rather than never.
    #[must_use]
    pub fn parse(line: &[u8], now_ms: u64) -> Self {
        let text = String::from_utf8_lossy(line);
        let mut words = text.splitn(4, ' ');
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        let (Some(turn), Some(attempts), Some(due)) = (number(), number(), number()) else {
            return Self::default();
        };
        Self {
            turn: u32::try_from(turn).unwrap_or(u32::MAX),
            attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
            due_in: Duration::from_millis(due.saturating_sub(now_ms)),
        }
    }
}

/// Reads `[place, [field, value, ...]]`. `None` for an entry that was deleted meanwhile.
pub(crate) fn read(place: Value, fields: Value) -> Result<Option<Entry>, CallError> {
    let place = reply::bytes(place)?;
    let place = Place::parse(&place)
        .ok_or_else(|| CallError::Unexpected(format!("expected a stream id, got {place:?}")))?;
    let fields = match fields {
        Value::Nil => return Ok(None),
        other => reply::list(other, "the fields of an entry")?,
    };
    let (mut id, mut key, mut envelope) = (Vec::new(), Vec::new(), Vec::new());
    let mut fields = fields.into_iter();
    while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
        let (Value::BulkString(name), Value::BulkString(value)) = (name, value) else { continue };
        match name.as_slice() {
            b"i" => id = value,
            b"k" => key = value,
            b"d" => envelope = value,
            _ => {}
        }
    }
    // One buffer for all three: they travel together and are cloned often.
    let (id_end, key_end) = (id.len(), id.len() + key.len());
    id.reserve_exact(key.len() + envelope.len());
    id.extend_from_slice(&key);
    id.extend_from_slice(&envelope);
    let all = Bytes::from(id);
    Ok(Some(Entry {
        place,
        id: JobId::from_stored(all.slice(..id_end)),
        key: Key::from_stored(all.slice(id_end..key_end)),
        envelope: all.slice(key_end..),
        state: JobState::default(),
        recovered: false,
    }))
}

/// Reads a list of entries as `XREADGROUP` and `XRANGE` give it.
pub(crate) fn read_all(value: Value) -> Result<Vec<Entry>, CallError> {
    let rows = reply::list(value, "a list of entries")?;
    let mut entries = Vec::with_capacity(rows.len());
    for row in rows {
        let mut row = reply::list(row, "an entry")?.into_iter();
        let (place, fields) = (row.next().unwrap_or(Value::Nil), row.next().unwrap_or(Value::Nil));
        entries.extend(read(place, fields)?);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_line_of_another_hand_counts_as_none() {
        assert_eq!(
            JobState::parse(b"2 1 1500 boom now", 1000),
            JobState { turn: 2, attempts: 1, due_in: Duration::from_millis(500) }
        );
        for bad in [&b""[..], b"x", b"1 2", b"-1 0 0 e", b"\xff \xff"] {
            assert_eq!(JobState::parse(bad, 0), JobState::default(), "{bad:?}");
        }
    }

    #[test]
    fn an_entry_of_a_foreign_producer_is_read_as_far_as_it_goes() {
        let text = |t: &[u8]| Value::BulkString(t.to_vec());
        let fields =
            Value::Array(vec![text(b"\xff\xfe"), text(b"?"), text(b"k"), text(b"key"), text(b"odd")]);
        let entry = read(text(b"5-1"), fields).unwrap().unwrap();
        assert_eq!((entry.key.as_bytes(), entry.envelope.len()), (&b"key"[..], 0));
        assert!(read(text(b"5-1"), Value::Nil).unwrap().is_none());
        assert!(read(text(b"nonsense"), Value::Nil).is_err());
    }
}
