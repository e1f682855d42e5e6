//! What can go wrong with a call, answering one question: what is known about it?

/// A call that has no proper answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No answer in time. The call may have run, or may still run.
    #[error("no answer from Redis within the response timeout; whether the call ran is unknown")]
    Unknown,
    /// The connection broke. The call may have run.
    #[error("the connection to Redis broke ({0}); whether the call ran is unknown")]
    Lost(String),
    /// There is no connection at present; nothing was sent.
    #[error("there is no connection to Redis: {0}")]
    NotConnected(String),
    /// Redis refused it and nothing ran on this server: a replica, loading, a script that is not there.
    #[error("Redis cannot serve now: {0}")]
    Unserved(String),
    /// Redis is out of memory; nothing was written.
    #[error("Redis is out of memory: {0}; raise maxmemory or let the backlog drain")]
    OutOfMemory(String),
    /// The stream or its group is gone.
    #[error("the queue's stream or group is gone from Redis: {0}")]
    NoGroup(String),
    /// An answer that no release of ours gives, or an error of the script.
    #[error("unexpected answer from Redis: {0}")]
    Unexpected(String),
}

impl CallError {
    /// Whether the connection should be replaced at once.
    #[must_use]
    pub fn breaks_connection(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Unserved(_))
    }
}

impl From<redis::RedisError> for CallError {
    fn from(error: redis::RedisError) -> Self {
        use redis::{ErrorKind, ServerErrorKind as Server};
        let text = error.to_string();
        if error.is_timeout() {
            return Self::Unknown;
        }
        match error.kind() {
            ErrorKind::Io | ErrorKind::Parse => Self::Lost(text),
            ErrorKind::AuthenticationFailed => Self::Unserved(text),
            ErrorKind::Server(
                Server::ReadOnly
                | Server::BusyLoading
                | Server::NoScript
                | Server::MasterDown
                | Server::ClusterDown
                | Server::Moved
                | Server::Ask
                | Server::TryAgain
                | Server::NoPerm,
            ) => Self::Unserved(text),
            _ if error.is_connection_dropped() || error.is_unrecoverable_error() => Self::Lost(text),
            _ => match error.code() {
                Some("OOM") => Self::OutOfMemory(text),
                Some("NOGROUP") => Self::NoGroup(text),
                Some("NOAUTH" | "WRONGPASS" | "NOREPLICAS" | "MISCONF" | "BUSY") => Self::Unserved(text),
                _ => Self::Unexpected(text),
            },
        }
    }
}
