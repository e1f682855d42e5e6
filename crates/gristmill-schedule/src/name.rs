//! The name of a schedule.

use std::fmt;
use std::sync::Arc;

/// Longest name, in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// A name outside its limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the name of a schedule is 1 to {MAX_NAME_BYTES} of a-z, 0-9, '_' and '-', got {0:?}")]
pub struct ScheduleNameError(String);

/// The name users chose for a schedule: `[a-z0-9_-]{1,64}`. No two of a queue and a key may share one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleName(Arc<str>);

impl ScheduleName {
    /// # Errors
    /// Outside `[a-z0-9_-]{1,64}`.
    pub fn new(name: &str) -> Result<Self, ScheduleNameError> {
        let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(legal) {
            return Err(ScheduleNameError(name.chars().take(80).collect()));
        }
        Ok(Self(name.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ScheduleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
