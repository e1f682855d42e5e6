//! A job's place: the stream id it got when it became ready. The order of a key is the order of places.

use std::fmt;
use std::str::FromStr;

/// A stream id, `ms-seq`. It never changes, wherever the job lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place {
    /// Milliseconds of the Redis clock when the job became ready.
    pub ms: u64,
    /// Which job of that millisecond.
    pub seq: u64,
}

impl Place {
    /// Before every job.
    pub const ZERO: Place = Place { ms: 0, seq: 0 };

    /// The place right behind this one.
    #[must_use]
    pub fn next(self) -> Self {
        match self.seq.checked_add(1) {
            Some(seq) => Self { ms: self.ms, seq },
            None => Self { ms: self.ms.saturating_add(1), seq: 0 },
        }
    }

    /// Reads `ms-seq` from bytes as Redis sends them.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let dash = bytes.iter().position(|b| *b == b'-')?;
        Some(Self { ms: digits(&bytes[..dash])?, seq: digits(&bytes[dash + 1..])? })
    }
}

fn digits(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0u64, |n, b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    })
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text.as_bytes())
            .ok_or_else(|| format!("expected a place such as 1700000000000-0, got {text:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_ordered_as_numbers_not_as_text() {
        let a: Place = "9-2".parse().unwrap();
        let b: Place = "10-1".parse().unwrap();
        assert!(a < b);
        assert_eq!(b.to_string(), "10-1");
        assert!(a < a.next() && a.next() < b);
    }

    #[test]
    fn what_is_not_a_place_is_refused() {
        for text in ["", "-", "1", "1-", "-1", "a-1", "1-1x", "99999999999999999999-0"] {
            assert!(Place::parse(text.as_bytes()).is_none(), "{text}");
        }
    }
}
