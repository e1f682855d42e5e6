//! The record kept of a job that is no longer tried. Written by the node that gave up, opaque to the scripts.

use crate::history::{AttemptRecord, CrashRecord};
use crate::time::UnixMillis;
use serde::{Deserialize, Serialize};

/// Why a job is no longer tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
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
    /// Processes died under it as often as its crash budget allows.
    Crashed,
    /// It is not known whether its effect happened: a person decides.
    Review,
    /// Older than its policy tries a job.
    TooOld,
    /// A person passed over it, so that its key could go on.
    Skipped,
    /// A word of a newer version.
    #[default]
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
            Self::Crashed => "crashed",
            Self::Review => "review",
            Self::TooOld => "too_old",
            Self::Skipped => "skipped",
            Self::Other => "other",
        }
    }
}

/// Everything needed to understand a dead job and to try it again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
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
    /// Its attempts, oldest first: the first and the newest 19.
    #[serde(default)]
    pub history: Vec<AttemptRecord>,
    /// The crashes it was charged with, oldest first.
    #[serde(default)]
    pub crashes: Vec<CrashRecord>,
    /// How often it had been replayed before this death.
    #[serde(default)]
    pub replays: u32,
    /// W3C trace ids: of its envelope, then of its attempts, without repeats.
    #[serde(default)]
    pub traces: Vec<String>,
    /// Its kind, where the envelope could be read.
    #[serde(default)]
    pub kind: Option<String>,
    /// Its version, where the envelope could be read.
    #[serde(default)]
    pub version: Option<u64>,
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

    fn letter() -> DeadLetter {
        DeadLetter {
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
            ..DeadLetter::default()
        }
    }

    #[test]
    fn a_record_survives_its_encoding_and_a_reason_of_tomorrow() {
        let attempt = AttemptRecord { attempt: 1, error: "busy".into(), ..AttemptRecord::default() };
        let letter = DeadLetter {
            history: vec![attempt],
            crashes: vec![CrashRecord { node: "n#0".into(), at: UnixMillis(3) }],
            replays: 4,
            traces: vec!["4bf92f3577b34da6a3ce929d0e0e4736".into()],
            kind: Some("mail".into()),
            version: Some(u64::MAX),
            ..letter()
        };
        let bytes = letter.encode().unwrap();
        assert_eq!(DeadLetter::decode(&bytes).unwrap(), letter);
        let renamed = bytes.windows(9).position(|w| w == b"exhausted").unwrap();
        let mut newer = bytes;
        newer[renamed..renamed + 9].copy_from_slice(b"tomorrow1");
        assert_eq!(DeadLetter::decode(&newer).unwrap().reason, DeadReason::Other);
    }

    /// As the release before wrote it: without history, crashes, replays, traces, kind and version.
    #[test]
    fn a_record_of_the_release_before_decodes() {
        let old = b"\x8b\xa3job\xc4\x01a\xa3key\xc4\x02\xff\x00\xa8envelope\xc4\x02\x01\x02\xa5place\xa31-0\
            \xa4turn\x02\xa6reason\xa9exhausted\xa5error\x92\xa5outer\xa5inner\xa5class\xa9transient\
            \xa8attempts\x0a\xa4node\xa3n#1\xa2at\x05";
        assert_eq!(DeadLetter::decode(old).unwrap(), letter());
    }

    #[test]
    fn a_reason_is_stored_as_the_word_that_is_shown() {
        use DeadReason::{
            Crashed, Exhausted, Other, Permanent, Rejected, Review, Skipped, TooOld, Undecodable, UnknownKind,
        };
        let all = [
            Permanent,
            Exhausted,
            Undecodable,
            UnknownKind,
            Rejected,
            Crashed,
            Review,
            TooOld,
            Skipped,
            Other,
        ];
        for reason in all {
            let bytes = rmp_serde::to_vec_named(&reason).unwrap();
            assert_eq!(&bytes[1..], reason.as_str().as_bytes());
            assert_eq!(rmp_serde::from_slice::<DeadReason>(&bytes).unwrap(), reason);
        }
        assert_eq!(TooOld.as_str(), "too_old");
    }
}
