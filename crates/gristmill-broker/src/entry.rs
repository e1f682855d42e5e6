//! A claimed job as it lies in the stream, read by hand: whatever a foreign producer wrote, a reader goes on.

use crate::error::CallError;
use crate::reply;
use crate::state::JobState;
use bytes::Bytes;
use gristmill_job::{JobId, Key, Place};
use redis::Value;

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
    /// Whether it came back from the dead and lies beside the stream.
    pub returned: bool,
    /// Which of its claims this is: how often it was claimed at this place, this time included. 1 for one that was read new, more
    /// where `grab` or `reclaim` told so; of use where the ordering is none.
    pub claim: u64,
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
        returned: false,
        claim: 1,
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
