//! What is wrong with settings, in words: which key, what was expected, what came, and from where.

use std::fmt;

/// One thing that is wrong with the settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A key that nothing reads.
    #[error("{key}: there is no such setting (from {origin}){}", meant(suggestion.as_deref()))]
    UnknownKey {
        /// The key, with its section.
        key: String,
        /// Where it came from.
        origin: String,
        /// The known key that is nearest, if one is near.
        suggestion: Option<String>,
    },
    /// A value that cannot be.
    #[error("{key}: expected {expected}, got {got} (from {origin})")]
    WrongValue {
        /// The key, with its section.
        key: String,
        /// What was expected.
        expected: String,
        /// What came; secrets are left out.
        got: String,
        /// Where it came from.
        origin: String,
    },
    /// A layer that cannot be read.
    #[error("{0}")]
    Layer(String),
}

fn meant(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(String::new, |key| format!("; did you mean {key}?"))
}

/// Everything that is wrong with the settings, a line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError {
    /// Never empty.
    pub faults: Vec<Fault>,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, fault) in self.faults.iter().enumerate() {
            write!(f, "{}{fault}", if n == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for SettingsError {}

impl From<Fault> for SettingsError {
    fn from(fault: Fault) -> Self {
        Self { faults: vec![fault] }
    }
}
