//! The identifiers of the field, each with its limits, and the frozen hash from key to partition.

use bytes::Bytes;
use std::fmt;
use std::hash::Hash;

/// Longest job id, in bytes.
pub const MAX_JOB_ID_BYTES: usize = 256;
/// Longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;
/// Longest kind, in bytes.
pub const MAX_KIND_BYTES: usize = 128;

/// Why a name was refused: what was expected, what came.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// A queue name outside `[a-z0-9._-]{1,64}`.
    #[error("a queue name is 1 to 64 of a-z, 0-9, '.', '_' and '-', got {0:?}")]
    Queue(String),
    /// An empty id, or one that is too long or not printable text.
    #[error("a job id is 1 to {MAX_JOB_ID_BYTES} bytes of text without control characters, got {0}")]
    JobId(String),
    /// No key, in a queue that is ordered by key.
    #[error("a job of a queue that is ordered by key needs a key of 1 to {MAX_KEY_BYTES} bytes, got none")]
    NoKey,
    /// A key that is too long.
    #[error("a key is at most {MAX_KEY_BYTES} bytes, got {0}; use a hash or a shorter name of the entity")]
    KeyTooLong(usize),
    /// An empty kind, or one that is too long or not printable text.
    #[error("a kind is 1 to {MAX_KIND_BYTES} bytes of text without spaces or control characters, got {0:?}")]
    Kind(String),
}

/// The name users chose for a queue: `[a-z0-9._-]{1,64}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName(std::sync::Arc<str>);

impl QueueName {
    /// # Errors
    /// [`NameError::Queue`] outside `[a-z0-9._-]{1,64}`.
    pub fn new(name: &str) -> Result<Self, NameError> {
        let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > 64 || !name.bytes().all(legal) {
            return Err(NameError::Queue(name.chars().take(80).collect()));
        }
        Ok(Self(name.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a job, given by its producer or made by us. Effects are applied once per id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(Bytes);

impl JobId {
    /// # Errors
    /// [`NameError::JobId`] if empty, longer than [`MAX_JOB_ID_BYTES`], or with control characters.
    pub fn new(id: &str) -> Result<Self, NameError> {
        if id.is_empty() || id.len() > MAX_JOB_ID_BYTES || id.chars().any(char::is_control) {
            let shown: String = id.chars().take(40).collect();
            return Err(NameError::JobId(format!("{} bytes ({shown:?})", id.len())));
        }
        Ok(Self(Bytes::copy_from_slice(id.as_bytes())))
    }

    /// A fresh UUIDv7, for a job whose producer names none.
    #[must_use]
    pub fn generate() -> Self {
        let mut buffer = [0; uuid::fmt::Hyphenated::LENGTH];
        let text = uuid::Uuid::now_v7().hyphenated().encode_lower(&mut buffer).as_bytes().to_vec();
        Self(Bytes::from(text))
    }

    /// The id of the job that `parent`'s effects emit at `position`: the same on every rerun, so that its queue absorbs it.
    /// A parent whose id leaves no room (a long chain of emissions) is named by its hash.
    #[must_use]
    pub fn emitted_by(parent: &JobId, position: usize) -> Self {
        let suffix = format!(":{position}");
        let mut id = if parent.0.len() + suffix.len() <= MAX_JOB_ID_BYTES {
            parent.0.to_vec()
        } else {
            let half = |seed| xxhash_rust::xxh64::xxh64(&parent.0, seed);
            format!("{:016x}{:016x}", half(0), half(1)).into_bytes()
        };
        id.extend_from_slice(suffix.as_bytes());
        Self(Bytes::from(id))
    }

    /// An id as it was found in Redis, whatever it is.
    #[must_use]
    pub fn from_stored(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The bytes as they stand in Redis.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// What must stay in order (an entity: an SKU, an account). Any bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Bytes);

impl Key {
    /// # Errors
    /// [`NameError::NoKey`] if empty, [`NameError::KeyTooLong`] beyond [`MAX_KEY_BYTES`].
    pub fn new(key: impl AsRef<[u8]>) -> Result<Self, NameError> {
        match key.as_ref() {
            [] => Err(NameError::NoKey),
            key if key.len() > MAX_KEY_BYTES => Err(NameError::KeyTooLong(key.len())),
            key => Ok(Self(Bytes::copy_from_slice(key))),
        }
    }

    /// A key as it was found in Redis; empty where an entry has none.
    #[must_use]
    pub fn from_stored(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The bytes as they stand in Redis.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// What sort of work a job is: an explicit constant, never a Rust type path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(Box<str>);

impl Kind {
    /// # Errors
    /// [`NameError::Kind`] if empty, longer than [`MAX_KIND_BYTES`], or with spaces or control characters.
    pub fn new(kind: &str) -> Result<Self, NameError> {
        if kind.is_empty()
            || kind.len() > MAX_KIND_BYTES
            || kind.chars().any(|c| c.is_control() || c.is_whitespace())
        {
            return Err(NameError::Kind(kind.chars().take(80).collect()));
        }
        Ok(Self(kind.into()))
    }

    /// The kind as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The partition of a key: xxh64 with seed 0 of the key's bytes, modulo `partitions`. Frozen: producers in other
/// languages compute the same (vectors in `docs/PROTOCOL.md` and in this module's tests).
///
/// `partitions` 0 is treated as 1.
#[must_use]
pub fn partition_of(key: &[u8], partitions: u16) -> u16 {
    let hash = xxhash_rust::xxh64::xxh64(key, 0);
    // The remainder of a u16 fits a u16.
    u16::try_from(hash % u64::from(partitions.max(1))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors for producers in other languages; `docs/PROTOCOL.md` shows the same table.
    #[test]
    fn key_to_partition_is_frozen() {
        let vectors: [(&[u8], u64, u16); 6] = [
            (b"a", 0xd24e_c4f1_a98c_6e5b, 27),
            (b"BUGS", 0xb587_ca95_2c38_ef7c, 60),
            (b"src/server.c", 0x03b3_b897_da17_d80d, 13),
            ("caf\u{e9}".as_bytes(), 0x9a40_a9b9_74d8_5a6a, 42),
            (&[0x00, 0xff, 0x80], 0x432e_d237_6781_f717, 23),
            (b"0123456789abcdef0123456789abcdef", 0x642a_9495_8e71_e6c5, 5),
        ];
        for (key, hash, partition) in vectors {
            assert_eq!(xxhash_rust::xxh64::xxh64(key, 0), hash, "xxh64 of {key:?}");
            assert_eq!(partition_of(key, 64), partition, "partition of {key:?}");
        }
        assert_eq!(partition_of(b"anything", 1), 0);
        assert_eq!(partition_of(b"anything", 0), 0);
    }

    #[test]
    fn names_outside_their_limits_are_refused_with_what_was_expected() {
        for bad in ["", "Orders", "a b", "a/b", &"q".repeat(65)] {
            assert!(QueueName::new(bad).unwrap_err().to_string().contains("1 to 64"), "{bad}");
        }
        assert!(QueueName::new("a.b_c-9").is_ok());
        assert!(JobId::new("").is_err() && JobId::new("a\n").is_err());
        assert!(JobId::new(&"x".repeat(256)).is_ok() && JobId::new(&"x".repeat(257)).is_err());
        assert_eq!(Key::new("").unwrap_err(), NameError::NoKey);
        assert_eq!(Key::new([0u8; 1025]).unwrap_err(), NameError::KeyTooLong(1025));
        assert!(Kind::new("price.changed").is_ok() && Kind::new("a b").is_err());
    }

    #[test]
    fn emitted_ids_are_the_same_on_every_rerun() {
        let parent = JobId::new("p").unwrap();
        assert_eq!(JobId::emitted_by(&parent, 0).to_string(), "p:0");
        assert_ne!(JobId::emitted_by(&parent, 0), JobId::emitted_by(&parent, 1));
        let long = JobId::new(&"x".repeat(256)).unwrap();
        assert_eq!(JobId::emitted_by(&long, 7), JobId::emitted_by(&long, 7));
        assert!(JobId::emitted_by(&long, 7).as_bytes().len() < 64);
        assert_eq!(JobId::generate().as_bytes().len(), 36);
    }
}
