//! A job that came back from the dead by a replay, as it is kept beside the stream: it has its old place, and a stream takes
//! no entry behind its end. It is taken, run and settled there.

use crate::entry::Entry;
use crate::state::JobState;
use bytes::Bytes;
use gristmill_job::{JobId, Key, Place};
use serde::{Deserialize, Serialize};

/// The record in the hash `returned:bodies`: named MessagePack, the fields of a stream entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    /// The job's id.
    #[serde(with = "serde_bytes")]
    pub i: Vec<u8>,
    /// Its key.
    #[serde(with = "serde_bytes")]
    pub k: Vec<u8>,
    /// Its envelope, perhaps edited by a person.
    #[serde(with = "serde_bytes")]
    pub d: Vec<u8>,
}

impl Returned {
    /// The record's bytes.
    ///
    /// # Errors
    /// The encoder's own words; not expected for this type.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        rmp_serde::to_vec_named(self).map_err(|error| error.to_string())
    }

    /// The job of such a record. One that cannot be read is a job without key and envelope: it has a place and ends as
    /// undecodable, rather than lie there for ever.
    #[must_use]
    pub fn entry(record: &[u8], place: Place, state: JobState) -> Entry {
        let Self { i, k, d } = rmp_serde::from_slice(record).unwrap_or_else(|_| Self {
            i: Vec::new(),
            k: Vec::new(),
            d: record.to_vec(),
        });
        Entry {
            place,
            id: JobId::from_stored(Bytes::from(i)),
            key: Key::from_stored(Bytes::from(k)),
            envelope: Bytes::from(d),
            state,
            recovered: false,
            returned: true,
            claim: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_its_encoding_and_a_foreign_one_is_a_job_that_cannot_be_decoded() {
        let record = Returned { i: b"id".to_vec(), k: vec![0xff, 0], d: vec![1, 2] };
        let entry = Returned::entry(&record.encode().unwrap(), Place { ms: 5, seq: 1 }, JobState::default());
        assert_eq!(
            (entry.id.as_bytes(), entry.key.as_bytes(), &entry.envelope[..]),
            (&b"id"[..], &[0xff, 0][..], &[1, 2][..])
        );
        let entry = Returned::entry(b"\xc1nonsense", Place { ms: 5, seq: 1 }, JobState::default());
        assert!(entry.key.as_bytes().is_empty() && !entry.envelope.is_empty());
    }
}
