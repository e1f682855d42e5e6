//! What a kind says about runs that may have happened already.

use serde::{Deserialize, Serialize};

/// What happens to a job whose run was interrupted, so that nobody knows whether its effect happened.
///
/// Which one a kind needs depends on what its handler does to the world:
///
/// | the handler | say | after an interrupted run |
/// |---|---|---|
/// | returns `Effects`, or may be done twice | nothing: `rerun` | it runs again |
/// | calls a service that takes an idempotency key | nothing: `rerun`, and send `Context::idempotency_key` | it runs again, the service knows it |
/// | does what can be looked up afterwards | `Registry::reconcile` | your function looks: done, run again, or ask a person |
/// | does what cannot be looked up and must not happen twice | `KindOptions::review` | a dead letter `review`: a person decides |
/// | does what may rather be lost than happen twice | `KindOptions::at_most_once` | never: its job was acknowledged before it began |
///
/// `reconcile` and `review` cost one write before every run, the start mark: without it, everything a dead node had
/// merely claimed would have to be looked at. A handler that finds out by itself that it does not know answers
/// `HandlerError::review`, whatever its kind says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Redelivery {
    /// It runs again: its handler may be repeated.
    #[default]
    Rerun,
    /// A function of the user looks, and says how it goes on.
    Reconcile,
    /// A person looks: it becomes a dead letter `review`.
    Review,
}

impl Redelivery {
    /// The word used in lists, metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rerun => "rerun",
            Self::Reconcile => "reconcile",
            Self::Review => "review",
        }
    }
}

/// When a job is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliverySemantics {
    /// After its run: an interrupted one comes again.
    #[default]
    AtLeastOnce,
    /// Before its run: an interrupted one is lost.
    AtMostOnce,
}

impl DeliverySemantics {
    /// The word used in lists, metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AtLeastOnce => "at_least_once",
            Self::AtMostOnce => "at_most_once",
        }
    }
}

/// What a node heeds before it starts a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// What happens after an interrupted run.
    pub redelivery: Redelivery,
    /// When it is acknowledged.
    pub delivery: DeliverySemantics,
    /// Whether a handler serves its kind. True where the kind cannot be read: starting such a job tells what is wrong
    /// with it, waiting for a handler does not help it.
    pub served: bool,
    /// How many crashes it is charged with before it is dead, where its kind says so.
    pub crash_budget: Option<u32>,
}

impl Default for Rule {
    /// Of a kind that says nothing.
    fn default() -> Self {
        Self {
            redelivery: Redelivery::Rerun,
            delivery: DeliverySemantics::AtLeastOnce,
            served: true,
            crash_budget: None,
        }
    }
}

/// What a node announces about a kind it serves. Stored as JSON; a field that is missing says nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KindDescription {
    /// The kind.
    pub kind: String,
    /// What happens after an interrupted run.
    #[serde(default)]
    pub redelivery: Redelivery,
    /// When it is acknowledged.
    #[serde(default)]
    pub delivery: DeliverySemantics,
    /// How many attempts its jobs have, where it has a retry policy of its own.
    #[serde(default)]
    pub max_attempts: Option<u32>,
    /// How many crashes its jobs are charged with before they are dead, where it says so.
    #[serde(default)]
    pub crash_budget: Option<u32>,
    /// Its soft time limit, where it has one.
    #[serde(default)]
    pub soft_limit_ms: Option<u64>,
    /// Its hard time limit, where it has one.
    #[serde(default)]
    pub hard_limit_ms: Option<u64>,
    /// What it is limited to across the fleet, as `Limit::stored` writes it, where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}
