//! What happened to a job so far: the attempts that ended with an answer, and the crashes it was charged with. It
//! travels with the job while it is tried, and stays in its dead letter.
//!
//! Bounded: the first attempt and the newest 19, an error of at most 300 bytes each.

use crate::time::UnixMillis;
use serde::{Deserialize, Serialize};

/// How many attempts a history keeps: the first, and the newest of the others.
pub const MAX_RECORDS: usize = 20;
/// The longest error of one attempt, in bytes.
pub const MAX_ERROR_BYTES: usize = 300;
/// Deeper than a history goes; what a newer version adds may nest so far.
const MAX_DEPTH: usize = 16;

/// One attempt that ended with an answer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// Which attempt; 1 for the first.
    pub attempt: u32,
    /// When it ended, by its node's clock.
    pub at: UnixMillis,
    /// The incarnation that ran it.
    pub node: String,
    /// The class of its error.
    pub class: String,
    /// Its error; cut to [`MAX_ERROR_BYTES`] when it joins a history.
    pub error: String,
    /// The W3C trace id of its run (32 hex digits), where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

/// One crash a job was charged with: the process died while it ran alone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CrashRecord {
    /// The incarnation that died.
    pub node: String,
    /// When its run was begun, on the Redis clock.
    pub at: UnixMillis,
}

/// The attempts of a job, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History(Vec<AttemptRecord>);

impl History {
    /// Adds an attempt. Where there are more than [`MAX_RECORDS`] then, the second oldest goes.
    pub fn push(&mut self, mut record: AttemptRecord) {
        cut(&mut record.error);
        self.0.push(record);
        if self.0.len() > MAX_RECORDS {
            self.0.remove(1);
        }
    }

    /// Oldest first.
    #[must_use]
    pub fn records(&self) -> &[AttemptRecord] {
        &self.0
    }

    /// Oldest first.
    #[must_use]
    pub fn into_records(self) -> Vec<AttemptRecord> {
        self.0
    }

    /// Named MessagePack; no bytes at all for an empty history.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self.0.as_slice() {
            [] => Vec::new(),
            // Writing plain records to memory does not fail; a lost history would harm no job.
            records => rmp_serde::to_vec_named(records).unwrap_or_default(),
        }
    }

    /// Reads what [`History::encode`] wrote, also by a newer version. Bytes that are no history give an empty one: it
    /// explains a job, and no job waits for its explanation.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        let mut reader = rmp_serde::Deserializer::from_read_ref(bytes);
        reader.set_max_depth(MAX_DEPTH);
        let mut records = Vec::<AttemptRecord>::deserialize(&mut reader).unwrap_or_default();
        if records.len() > MAX_RECORDS {
            records.drain(1..=records.len() - MAX_RECORDS);
        }
        records.iter_mut().for_each(|record| cut(&mut record.error));
        Self(records)
    }
}

fn cut(error: &mut String) {
    const MARK: char = '…';
    if error.len() > MAX_ERROR_BYTES {
        error.truncate(error.floor_char_boundary(MAX_ERROR_BYTES - MARK.len_utf8()));
        error.push(MARK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(attempt: u32) -> AttemptRecord {
        AttemptRecord {
            attempt,
            at: UnixMillis(u64::from(attempt) * 1000),
            node: "n#1".into(),
            class: "transient".into(),
            error: format!("busy {attempt}"),
            trace: (attempt > 1).then(|| "4bf92f3577b34da6a3ce929d0e0e4736".into()),
        }
    }

    fn history(attempts: u32) -> History {
        let mut history = History::default();
        (1..=attempts).for_each(|n| history.push(record(n)));
        history
    }

    #[test]
    fn the_first_and_the_newest_are_kept() {
        assert_eq!(history(20).records().len(), 20);
        let long = history(50);
        let kept: Vec<u32> = long.records().iter().map(|r| r.attempt).collect();
        assert_eq!(kept, std::iter::once(1).chain(32..=50).collect::<Vec<_>>());
        let foreign = rmp_serde::to_vec_named(&(1..=50).map(record).collect::<Vec<_>>()).unwrap();
        assert_eq!(History::decode(&foreign), long);
    }

    #[test]
    fn it_survives_its_encoding_and_nothing_is_no_bytes() {
        for attempts in [0, 1, 20] {
            let history = history(attempts);
            let bytes = history.encode();
            assert_eq!(bytes.is_empty(), attempts == 0);
            assert_eq!(History::decode(&bytes), history);
            assert_eq!(history.clone().into_records(), history.records());
        }
    }

    #[test]
    fn an_error_is_cut_at_a_character() {
        for (text, bytes) in [("x".repeat(300), 300), ("x".repeat(301), 300), ("é".repeat(400), 299)] {
            let mut history = History::default();
            history.push(AttemptRecord { error: text.clone(), ..record(1) });
            let kept = &history.records()[0].error;
            assert_eq!(kept.len(), bytes);
            assert_eq!(kept.ends_with('…'), text.len() > 300);
            assert!(text.starts_with(kept.trim_end_matches('…')));
        }
        let foreign =
            rmp_serde::to_vec_named(&[AttemptRecord { error: "y".repeat(9_000), ..record(1) }]).unwrap();
        assert_eq!(History::decode(&foreign).records()[0].error.len(), MAX_ERROR_BYTES);
    }

    #[test]
    fn what_is_no_history_is_an_empty_one() {
        let whole = history(3).encode();
        for end in 0..whole.len() {
            assert_eq!(History::decode(&whole[..end]), History::default(), "{end} bytes");
        }
        let deep = vec![0x91; 100_000];
        for bytes in [&b"timeout"[..], b"\xc1", b"\xdd\xff\xff\xff\xff", b"\x91\x80", &deep] {
            assert_eq!(History::decode(bytes), History::default(), "{:?}", &bytes[..bytes.len().min(8)]);
        }
    }

    #[test]
    fn a_name_of_tomorrow_is_passed_over() {
        #[derive(Serialize)]
        struct Newer {
            attempt: u32,
            at: u64,
            node: &'static str,
            class: &'static str,
            error: &'static str,
            zone: Vec<u8>,
        }
        let newer =
            Newer { attempt: 1, at: 1000, node: "n#1", class: "transient", error: "busy 1", zone: vec![1] };
        assert_eq!(History::decode(&rmp_serde::to_vec_named(&[newer]).unwrap()), history(1));
    }
}
