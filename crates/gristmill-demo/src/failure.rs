//! Why the demo ended without having shown that every promise holds.

use gristmill_broker::{CallError, EnqueueError};
use std::fmt::Display;

/// Each kind has an exit code of its own.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The arguments or the input cannot be used.
    #[error("{0}")]
    Input(String),
    /// The demo could not run to its end.
    #[error("{0}")]
    Run(String),
    /// It ran to its end, and the account, already printed, shows a broken promise.
    #[error("a promise was broken")]
    Broken,
    /// A person wanted no more of it.
    #[error("interrupted; everything that was started is stopped and removed")]
    Interrupted,
}

impl Failure {
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Run(_) | Self::Broken => 1,
            Self::Input(_) => 2,
            Self::Interrupted => 130,
        }
    }

    /// For `map_err`: says what was being done.
    pub(crate) fn while_doing<E: Display>(what: &str) -> impl FnOnce(E) -> Self + '_ {
        move |error| Self::Run(format!("{what}: {error}"))
    }
}

impl From<gristmill_testkit::Error> for Failure {
    fn from(error: gristmill_testkit::Error) -> Self {
        Self::Run(error.to_string())
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::Run(format!("a look at Redis failed: {error}"))
    }
}

impl From<EnqueueError> for Failure {
    fn from(error: EnqueueError) -> Self {
        Self::Run(format!("enqueueing failed: {error}"))
    }
}
