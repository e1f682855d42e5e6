//! How a command ends: its exit code, and the message that goes with it.

use crate::settings::SettingsError;
use gristmill_broker::CallError;
use gristmill_broker::create::CreateError;
use std::process::ExitCode;

/// How a command that printed its result ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All of it was done: 0.
    Done,
    /// It was done, and what was found is bad (`doctor`), or nothing was found (`dead discard`): 1.
    Bad,
    /// A part of it was done (`enqueue` with bad lines, `dead discard` with ids that are not there): 3.
    Partly,
    /// A node left while handlers could not be stopped: 4.
    Abandoned,
}

impl From<End> for ExitCode {
    fn from(end: End) -> Self {
        Self::from(match end {
            End::Done => 0,
            End::Bad => 1,
            End::Partly => 3,
            End::Abandoned => 4,
        })
    }
}

/// Why a command did not do what it was asked for. The message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Settings that cannot be: 2.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Arguments that cannot be: 2.
    #[error("{0}")]
    Usage(String),
    /// Anything else: 1.
    #[error("{0}")]
    Failed(String),
    /// Redis: 1.
    #[error(transparent)]
    Redis(#[from] CallError),
    /// A queue that exists otherwise: 1.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// Standard output or a thread: 1.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Failure {
    /// 1 failed, 2 usage.
    #[must_use]
    pub fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Settings(_) | Self::Usage(_) => 2,
            Self::Failed(_) | Self::Redis(_) | Self::Create(_) | Self::Io(_) => 1,
        })
    }
}
