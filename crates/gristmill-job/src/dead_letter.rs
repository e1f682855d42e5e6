//! The record kept of a job that is no longer tried. Written by the node that gave up, opaque to the scripts.

use crate::time::UnixMillis;
use serde::{Deserialize, Serialize};

/// Why a job is no longer tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadReason {
    /// The handler said that trying again cannot help.
    Permanent,
    /// Every attempt it had was used.
    Exhausted,
    /// The entry is no envelope of a schema we read.
    Undecodable,
    /// No handler of this node serves its kind.
    UnknownKind,
    /// Redis refused to write its effects.
    Rejected,
    /// A word of a newer version.
    #[serde(other)]
    Other,
}

impl DeadReason {
    /// The word used in metrics, logs and lists.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Permanent => "permanent",
            Self::Exhausted => "exhausted",
            Self::Undecodable => "undecodable",
            Self::UnknownKind => "unknown_kind",
            Self::Rejected => "rejected",
            Self::Other => "other",
        }
    }
}

/// Everything needed to understand a dead job and to try it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The job's id, as it stood in the stream.
    #[serde(with = "serde_bytes")]
    pub job: Vec<u8>,
    /// Its key, as it stood in the stream.
    #[serde(with = "serde_bytes")]
    pub key: Vec<u8>,
    /// Its envelope, byte for byte.
    #[serde(with = "serde_bytes")]
    pub envelope: Vec<u8>,
    /// Its place, `ms-seq`.
    pub place: String,
    /// Which turn died.
    pub turn: u32,
    /// Why.
    pub reason: DeadReason,
    /// The last error and its sources, outermost first.
    pub error: Vec<String>,
    /// The class of the last error, where there was one.
    pub class: Option<String>,
    /// Attempts that ended with an answer, the last included.
    pub attempts: u32,
    /// The node that gave up.
    pub node: String,
    /// When, by that node's clock.
    pub at: UnixMillis,
}

impl DeadLetter {
    /// Named MessagePack.
    ///
    /// # Errors
    /// The encoder's own words; not expected for this type.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        rmp_serde::to_vec_named(self).map_err(|e| e.to_string())
    }

    /// Reads what [`DeadLetter::encode`] wrote, also by a newer version.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        rmp_serde::from_slice(bytes).map_err(|e| format!("not a dead letter record: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_its_encoding_and_a_reason_of_tomorrow() {
        let letter = DeadLetter {
            job: b"a".to_vec(),
            key: vec![0xff, 0],
            envelope: vec![1, 2],
            place: "1-0".into(),
            turn: 2,
            reason: DeadReason::Exhausted,
            error: vec!["outer".into(), "inner".into()],
            class: Some("transient".into()),
            attempts: 10,
            node: "n#1".into(),
            at: UnixMillis(5),
        };
        let bytes = letter.encode().unwrap();
        assert_eq!(DeadLetter::decode(&bytes).unwrap(), letter);
        let renamed = bytes.windows(9).position(|w| w == b"exhausted").unwrap();
        let mut newer = bytes;
        newer[renamed..renamed + 9].copy_from_slice(b"tomorrow1");
        assert_eq!(DeadLetter::decode(&newer).unwrap().reason, DeadReason::Other);
    }
}
