//! Who may touch a partition: an incarnation, in one epoch, with its calls numbered. Compared for equality, never by
//! time; a stale owner differs in one of the three and is refused.

use std::fmt;
use std::sync::Arc;

/// One start of a node: its name and a random number, so that a restarted node is another owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(Arc<str>);

impl Incarnation {
    /// A new incarnation of `node`. Whatever is not `[A-Za-z0-9._-]` in the name becomes `-`.
    #[must_use]
    pub fn of(node: &str, random: u64) -> Self {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let name: String = node.chars().take(64).map(|c| if legal(c) { c } else { '-' }).collect();
        Self(format!("{name}~{random:016x}").into())
    }

    /// As it was read from Redis.
    #[must_use]
    pub fn from_stored(text: &str) -> Self {
        Self(text.into())
    }

    /// As it stands in Redis.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The node's name, without the random number.
    #[must_use]
    pub fn node(&self) -> &str {
        self.0.rsplit_once('~').map_or(&*self.0, |(node, _)| node)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The lease's fencing number; grows with every grant, also to the same owner. 0 is before every grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a script compares before it does anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// Whose tenure.
    pub incarnation: Incarnation,
    /// Which grant.
    pub epoch: Epoch,
}

impl Fence {
    /// The name under which this tenure claims: `incarnation#epoch`.
    #[must_use]
    pub fn consumer(&self) -> String {
        format!("{}#{}", self.incarnation, self.epoch)
    }
}

/// Why a guarded call did nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The lease is another's, or of another epoch.
    Fenced {
        /// Whose it is now; empty if nobody's.
        owner: String,
    },
    /// The call's number does not follow: Redis stands on another history than the caller.
    Gap {
        /// The last number Redis has executed.
        last: u64,
    },
    /// The transaction of a claim was dropped, since the lease changed hands while it ran.
    Overtaken,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced { owner } if owner.is_empty() => f.write_str("the lease is nobody's"),
            Self::Fenced { owner } => write!(f, "the lease is held by {owner}"),
            Self::Gap { last } => {
                write!(f, "Redis has executed calls up to {last} only, or others than ours")
            }
            Self::Overtaken => f.write_str("the lease changed hands during the claim"),
        }
    }
}
